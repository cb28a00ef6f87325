"""Giving work out: offer, accept, claim, next.

A claim names its task; `claim_next` and `offer` take the best that is ready. An offer becomes a holding when it is
accepted; a claim is both in one step. Each first recovers what it finds due, so that nothing needs to be running in
between for a dead holder's task to be taken.
"""

from __future__ import annotations

from tenure.core import assignment, inputs
from tenure.core.deadline import live, seen, settled
from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT, Agent, Task
from tenure.core.phases import term_for
from tenure.core.profiles import profile_named, ttl_for
from tenure.core.record import Record
from tenure.engine import change, holding, idempotency, ledger, load, recovery
from tenure.engine.agents import ensure_agent, present
from tenure.engine.callers import CALLER, known_agent
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Required, TypedDict, Unpack

    from tenure.core.model import Handoff, Lease, LeaseState, Message
    from tenure.core.profiles import Profile
    from tenure.core.settings import Settings
    from tenure.engine.callers import CallerArgs
    from tenure.store.store import Transaction

    class ClaimantArgs(TypedDict, total=False):
        """The keyword arguments of CLAIMANT."""

        agent_id: Required[str]
        incarnation: int | None
        project_id: str | None
        profile: str
        ttl_s: int | None
        default_ttl_s: int | None
        capabilities: Sequence[str] | None
        idempotency_key: str | None
        server_id: str | None
        worktree: str
        host: str
        branch: str


KINDS_MAX = 16
# How often one claim looks at the timers while it finds nothing: a bound on its statements and on how long it holds the
# lock. What is due beyond that is the next claim's, or a monitor's.
LOOKS_MAX = 4
# A thread longer than this is read with the thread's own verb.
UNREAD_SHOWN = 100
OFFERS_MAX = 100


class Grant(Record):
    """What a claimant receives."""

    lease: Lease
    task: Task
    # Open, unexpired handoffs, newest first: what the previous holders leave to this one.
    handoffs: tuple[Handoff, ...] = ()
    # What this agent has not yet read in the task's thread.
    messages: tuple[Message, ...] = ()
    # True when this is a lease the agent already had (a retried request, or a holder asking for its next task).
    resumed: bool = False


# The arguments by which every way of giving work out is told who asks, and for what terms.
CLAIMANT = {
    "agent_id": inputs.ident,
    "incarnation": CALLER["incarnation"],
    "project_id": CALLER["project_id"],
    "profile": inputs.ident,
    "ttl_s": inputs.optional(inputs.ttl_s),
    "default_ttl_s": inputs.optional(inputs.ttl_s),
    "capabilities": inputs.optional(inputs.capabilities),
    "idempotency_key": inputs.key,
    "server_id": inputs.optional(inputs.ident),
    "worktree": inputs.text(4096, one_line=True),
    "host": inputs.text(256, one_line=True),
    "branch": inputs.text(256, one_line=True),
}


class Claimant(Record):
    """Who asks, as it came in. `ttl_s` is this request's word, `default_ttl_s` its environment's."""

    agent_id: str
    profile: str = "cli"
    incarnation: int | None = None
    project_id: str | None = None
    ttl_s: int | None = None
    default_ttl_s: int | None = None
    capabilities: Sequence[str] | None = None
    idempotency_key: str | None = None
    server_id: str | None = None
    # Where the agent works, so that a later command from there knows who it is, and what it leaves there is saved.
    worktree: str = ""
    host: str = ""
    branch: str = ""


class Request(Record):
    """A claimant, checked against the store."""

    asked: Claimant
    agent: Agent
    project_id: str
    profile: Profile
    settings: Settings


@verb(task_id=inputs.ident, **CLAIMANT)
def claim(tx: Transaction, *, task_id: str, **claimant: Unpack[ClaimantArgs]) -> Grant | Refused:
    """Take one named task, if the assignment filter lets this agent have it."""
    asked = Claimant(**claimant)
    task = load.task_named(tx, task_id, asked.project_id)
    if isinstance(task, Refused):
        return task
    request = _request(tx, asked, task.project_id)
    if isinstance(request, Refused):
        return request
    key = _key(request, "claim", task_id=task_id)
    known = idempotency.replay(tx, key, request.settings.idempotency_hours)
    if known is not None:
        return known if isinstance(known, Refused) else _answer(tx, known[0], resumed=True)
    task, held = recovery.recover_due(tx, task)
    refused = refusal_to_give(tx, task, held, asked.agent_id, asked.capabilities, request.settings)
    if refused is not None:
        return refused
    request = _present(tx, request)
    given = _give(tx, task, request, state="active", unended=held)
    if isinstance(given, Refused):
        return given
    idempotency.remember(tx, key, [given[1]])
    return _answer(tx, given[1], resumed=False, task=given[0])


@verb(**CLAIMANT, preferred_kinds=inputs.each(inputs.kind, most=KINDS_MAX), resume=inputs.flag)
def claim_next(
    tx: Transaction,
    *,
    preferred_kinds: Sequence[str] = (),
    resume: bool = False,
    **claimant: Unpack[ClaimantArgs],
) -> Grant | Refused:
    """Take the best ready task. With `resume`, an agent that already holds one gets that one back."""
    asked = Claimant(**claimant)
    if tx.reads_ahead and not resume:
        _look_ahead(tx, asked, preferred_kinds)
    request = _request(tx, asked)
    if isinstance(request, Refused):
        return request
    given = _give_next(tx, "claim_next", request, preferred_kinds, 1, "active", resume=resume)
    return given if isinstance(given, Refused) else given[0]


@verb(**CLAIMANT, preferred_kinds=inputs.each(inputs.kind, most=KINDS_MAX), max_tasks=inputs.whole(1, OFFERS_MAX))
def offer(
    tx: Transaction,
    *,
    preferred_kinds: Sequence[str] = (),
    max_tasks: int = 1,
    **claimant: Unpack[ClaimantArgs],
) -> tuple[Grant, ...] | Refused:
    """Reserve ready tasks for a worker until it accepts them. An offer creates no obligation."""
    claimant.setdefault("profile", "worker")
    asked = Claimant(**claimant)
    if tx.reads_ahead:
        if max_tasks > 1 and not preferred_kinds:
            tx.ahead_of_claims(max_tasks)
        _look_ahead(tx, asked, preferred_kinds)
    request = _request(tx, asked)
    if isinstance(request, Refused):
        return request
    return _give_next(tx, "offer", request, preferred_kinds, max_tasks, "offered")


for _verb in (claim, claim_next, offer):
    _verb.required.add("agent_id")


@verb(**CALLER)
def accept(
    tx: Transaction,
    **caller: Unpack[CallerArgs],
) -> Grant | Refused:
    """Turn an offer into a holding: the obligation begins here."""
    held = holding.find(tx, holding.Caller(**caller))
    if isinstance(held, Refused):
        return held
    if isinstance(held, holding.Lost):
        return held.refusal
    if held.lease.state == "active":
        return refuse("already_accepted", f"Lease {held.lease.lease_id} is accepted.", lease_id=held.lease.lease_id)
    settings = holding.settings_of(tx, held.task)
    task = ledger.accept(tx, held.task, held.lease, settings=settings)
    task, lease = take_up(tx, task, held.lease)
    return _answer(tx, lease, resumed=False, task=task)


@query(agent_id=inputs.ident)
def leases_of(tx: Transaction, *, agent_id: str) -> tuple[Lease, ...] | Refused:
    """The live leases of an agent: what a restarted worker finds of its own."""
    if load.agent_named(tx, agent_id) is None:
        return refuse("agent_not_found", f"Nobody is registered as {agent_id}.", agent_id=agent_id)
    return tuple(lease for lease in load.unended_of_agent(tx, agent_id) if live(lease, tx.now_ms))


def take_up(tx: Transaction, task: Task, lease: Lease) -> tuple[Task, Lease]:
    """Write an acceptance: lease active, task in progress. `task` carries the accepted receipt's head."""
    accepted = lease.replace(state="active", accepted_at_ms=tx.now_ms)
    # Under a fixed TTL the offer's time goes on; where any call counts, accepting is one.
    accepted = settled(seen(accepted, tx.now_ms, extends=not lease.fixed))
    changed = tx.put("accept_lease", accepted)
    assert changed == 1, f"offer {lease.lease_id} changed under its own transaction"
    if accepted.wake_at_ms < lease.wake_at_ms:
        change.set_timer(tx, "lease", accepted.lease_id, accepted.wake_at_ms)
    # Of a task with one slot there is this lease and no other.
    unended = len(load.unended_of_task(tx, task.key)) if task.slots > 1 else 1
    task = _take(tx, task, accepted, unended=unended)
    change.record(tx, "accepted", lease=accepted, token=accepted.token)
    return task, accepted


def refusal_to_give(
    tx: Transaction,
    task: Task,
    live_leases: Sequence[Lease],
    agent_id: str,
    capabilities: Sequence[str] | None,
    settings: Settings,
) -> Refused | None:
    """Why this agent may not be given this task now, or None."""
    for condition in assignment.conditions(
        task,
        agent_id=agent_id,
        capabilities=capabilities,
        reserved_owner=settings.reserved_owner,
        unmet=load.unmet_ids(tx, task),
        live_leases=live_leases,
        now_ms=tx.now_ms,
    ):
        if condition.refusal is not None:
            return condition.refusal
    return None


def _request(tx: Transaction, asked: Claimant, project_id: str | None = None) -> Request | Refused:
    """Who asks and under which rules; without a task's project, in the one named, else the agent's own."""
    if tx.reads_ahead:
        likely = project_id or asked.project_id or DEFAULT_PROJECT
        tx.ahead("settings_of", project_id=likely)
        tx.ahead("requirement_sets", project_id=likely)
    known = known_agent(tx, asked.agent_id, asked.incarnation)
    if project_id is None:
        project_id = asked.project_id or (DEFAULT_PROJECT if isinstance(known, Refused) else known.project_id)
    settings = load.settings_for(tx, project_id)
    if isinstance(settings, Refused):
        return settings
    profile = profile_named(asked.profile, settings)
    if isinstance(profile, Refused):
        return profile
    agent = ensure_agent(tx, known, asked.agent_id, project_id=project_id, profile=profile, settings=settings)
    if isinstance(agent, Refused):
        return agent
    return Request(asked=asked, agent=agent, project_id=project_id, profile=profile, settings=settings)


def _present(tx: Transaction, request: Request) -> Request:
    """The request of a claimant that is written down as present."""
    asked = request.asked
    agent = present(tx, request.agent, asked.worktree, asked.host, asked.branch)
    return request if agent is request.agent else request.replace(agent=agent)


def _key(request: Request, verb_name: str, **arguments: Any) -> idempotency.Key | None:
    asked = request.asked
    if asked.idempotency_key is None:
        return None
    return idempotency.Key.of(
        request.project_id,
        asked.agent_id,
        verb_name,
        asked.idempotency_key,
        profile=asked.profile,
        ttl_s=asked.ttl_s,
        capabilities=None if asked.capabilities is None else sorted(asked.capabilities),
        **arguments,
    )


def _resumed(tx: Transaction, request: Request) -> Grant | None:
    """The lease the agent already holds in this project, taken over by its present incarnation."""
    for lease in load.unended_of_agent(tx, request.agent.agent_id):
        if lease.project_id == request.project_id and lease.state == "active" and live(lease, tx.now_ms):
            after = seen(lease, tx.now_ms, extends=bool(lease.touch_extends))
            server_id = request.asked.server_id or lease.server_id
            after = after.replace(incarnation=request.agent.incarnation, server_id=server_id)
            after = change.extend(tx, lease, after)
            return _answer(tx, after, resumed=True)
    return None


def _give_next(
    tx: Transaction,
    verb_name: str,
    request: Request,
    preferred_kinds: Sequence[str],
    max_tasks: int,
    state: LeaseState,
    *,
    resume: bool = False,
) -> tuple[Grant, ...] | Refused:
    key = _key(request, verb_name, preferred_kinds=preferred_kinds, max_tasks=max_tasks)
    known = idempotency.replay(tx, key, request.settings.idempotency_hours)
    if known is not None:
        return known if isinstance(known, Refused) else tuple(_answer(tx, lease, resumed=True) for lease in known)
    held = _resumed(tx, request) if resume else None
    if held is not None:
        # What was resumed is the answer to this key too: its retry must not be given another task.
        idempotency.remember(tx, key, [held.lease])
        return (held,)
    # A poll is a sign of life, also when there is nothing to give; but a name nobody knows is not taken up for nothing.
    if request.agent.seen_at_ms or state == "offered":
        request = _present(tx, request)
    grants: list[Grant] = []
    wanted = _wanted(tx, request)
    if tx.reads_ahead:
        _remember_wanted(request.asked, wanted)
    more_is_due, looks = _do_what_is_due(tx), 1
    while len(grants) < max_tasks:
        task = _best(tx, wanted, preferred_kinds)
        if task is None and more_is_due and looks < LOOKS_MAX:
            more_is_due, looks = _do_what_is_due(tx), looks + 1
            continue
        if task is None:
            break
        # What is ready and has one slot, nobody holds.
        unended = load.unended_of_task(tx, task.key) if task.slots > 1 else []
        request = request if request.agent.seen_at_ms else _present(tx, request)
        if tx.reads_ahead and state == "active":
            _read_ahead(tx, task.key, request.agent.agent_id)
        given = _give(tx, task, request, state=state, unended=unended)
        if isinstance(given, Refused):
            return given
        # Nobody can have handed over what nobody ever held.
        grants.append(_answer(tx, given[1], resumed=False, task=given[0], handed_over=task.last_token > 0))
    if not grants:
        return _nothing_ready(tx, request)
    if key is not None:
        idempotency.remember(tx, key, [grant.lease for grant in grants])
    return tuple(grants)


def _do_what_is_due(tx: Transaction) -> bool:
    """Put on offer what is due: nobody else may be running to do it. Says whether more may be due.

    One look fires a bounded number of timers, most of which find a live lease; only a claim that finds nothing ready
    looks further.
    """
    wake_at_ms = load.next_wake_ms(tx)
    if wake_at_ms is None or wake_at_ms > tx.now_ms:
        return False
    fired = recovery.advance_timers(tx, recovery.TIMERS_AT_ONCE).fired
    if fired:
        tx.forget_ahead()
        tx.settle()
    return fired == recovery.TIMERS_AT_ONCE


def _nothing_ready(tx: Transaction, request: Request) -> Refused:
    if request.agent.seen_at_ms:
        tx.do("note_request", project_id=request.project_id, agent_id=request.agent.agent_id, now_ms=tx.now_ms)
    wake_at_ms = load.next_wake_ms(tx)
    return refuse(
        "nothing_ready",
        f"No task in project {request.project_id} is ready for {request.agent.agent_id}.",
        project_id=request.project_id,
        # The nearest instant at which a lease may end or a task's wait is over; new work can come sooner.
        next_change_ms=None if wake_at_ms is None else max(0, wake_at_ms - tx.now_ms),
    )


def _wanted(tx: Transaction, request: Request) -> dict[str, str]:
    """What a request may be given, as the ready queries are asked for it."""
    return {
        "project_id": request.project_id,
        "agent_id": request.agent.agent_id,
        "sets": fitting_sets(tx, request.project_id, request.asked.capabilities),
    }


# What agents were last given work by: project and capability sets, by which their next claim is likely to be, too.
_LAST_WANTED: dict[tuple[object, ...], dict[str, str]] = {}
_LAST_WANTED_MAX = 10_000


def _remember_wanted(asked: Claimant, wanted: dict[str, str]) -> None:
    if len(_LAST_WANTED) >= _LAST_WANTED_MAX:
        _LAST_WANTED.clear()
    _LAST_WANTED[_asked_key(asked)] = wanted


def _asked_key(asked: Claimant) -> tuple[object, ...]:
    return (asked.agent_id, asked.project_id, None if asked.capabilities is None else tuple(asked.capabilities))


def _look_ahead(tx: Transaction, asked: Claimant, preferred_kinds: Sequence[str]) -> None:
    """Announce what this claim will ask if nothing has changed since the agent's last one. If something has, the
    announced reads are not the ones that are asked, and nobody sees their answers; the tasks that were found by one of
    them stay locked until this claim ends, so that others pass over them meanwhile."""
    wanted = _LAST_WANTED.get(_asked_key(asked))
    if wanted is None:
        return
    tx.ahead("next_wake")
    if not preferred_kinds:
        tx.ahead("best", **wanted)


def _best(tx: Transaction, values: dict[str, str], preferred_kinds: Sequence[str]) -> Task | None:
    """The first of: work kept for this agent, work of a preferred kind, any work. A bounded number of index seeks."""
    if not preferred_kinds:
        row = tx.one("best", **values)
        return None if row is None else Task.from_row(row)
    row = tx.one("kept_for", **values)
    if row is not None:
        return Task.from_row(row)
    for kind in preferred_kinds:
        row = tx.one("ready_of_kind", kind=kind, **values)
        if row is not None:
            return Task.from_row(row)
    row = tx.one("ready", **values)
    return None if row is None else Task.from_row(row)


def fitting_sets(tx: Transaction, project_id: str, capabilities: Sequence[str] | None) -> str:
    """The capability sets a claimant satisfies, as the JSON list that the ready queries seek one by one."""
    key = project_id if capabilities is None else f"{project_id} {' '.join(sorted(capabilities))}"
    return tx.memory.recall("requirement_sets", key, lambda: _fitting_sets(tx, project_id, capabilities))


def _fitting_sets(tx: Transaction, project_id: str, capabilities: Sequence[str] | None) -> str:
    found = [row["requires"] for row in tx.all("requirement_sets", project_id=project_id)]
    fitting = [requires for requires in found if assignment.satisfies(requires, capabilities)]
    # Capabilities are identifiers, so that plain quoting is JSON; the json module would cost a claim 6 ms to import.
    return "[" + ",".join(f'"{requires}"' for requires in fitting) + "]"


def _give(
    tx: Transaction, task: Task, request: Request, *, state: LeaseState, unended: Sequence[Lease], **carried: Any
) -> tuple[Task, Lease] | Refused:
    """Write the lease, the acceptance if there is one, and the task's new state."""
    terms = terms_of(
        task, request.profile, request.settings, request.asked.ttl_s, request.asked.default_ttl_s, **carried
    )
    if isinstance(terms, Refused):
        return terms
    taken = {lease.slot for lease in unended} if unended else ()
    lease = change.grant(
        tx,
        task,
        request.agent,
        request.profile,
        request.settings,
        state=state,
        slot=next(slot for slot in range(task.slots) if slot not in taken) if taken else 0,
        term_ms=terms[0],
        grace_ms=terms[1],
        server_id=request.asked.server_id,
        **carried,
    )
    if state == "active":
        task = ledger.accept(tx, task, lease, settings=request.settings, last_token=lease.token)
        task = _take(tx, task, lease, unended=len(unended) + 1)
    else:
        task = _reserve(tx, task, lease, unended=len(unended) + 1)
    kind = "granted" if state == "active" else "offered"
    change.record(tx, kind, lease=lease, token=lease.token, profile=lease.profile, expires_at_ms=lease.expires_at_ms)
    return task, lease


def regrant(tx: Transaction, task: Task, agent: Agent, last: Lease, settings: Settings) -> Lease:
    """Give a free task back to the holder that was wrongly declared dead, with phase and cadence kept."""
    profile = recovery.profile_of(last, settings)
    asked = Claimant(
        agent_id=agent.agent_id,
        profile=last.profile,
        ttl_s=last.term_ms // 1000 if last.fixed else None,
        server_id=last.server_id,
    )
    request = Request(asked=asked, agent=agent, project_id=task.project_id, profile=profile, settings=settings)
    given = _give(
        tx,
        task,
        request,
        state="active",
        unended=load.unended_of_task(tx, task.key),
        renewals=last.renewals,
        reports=last.reports,
        progress=last.progress,
        message=last.message,
        mark_gaps=last.mark_gaps,
        # The silence that cost it the lease is no part of its rhythm: marks begin anew, the known gaps stay.
        marked_at_ms=None,
        cadence_ms=last.cadence_ms,
        stuck=last.stuck,
        over_max=last.over_max,
    )
    assert not isinstance(given, Refused)
    return given[1]


def grant_in_name(tx: Transaction, task: Task, agent: Agent) -> Lease | Refused:
    """Give a task to an agent that did not ask: somebody says that it is at work on it. If it never shows, it is
    recovered like any other. The assignment filter holds."""
    settings = holding.settings_of(tx, task)
    task, held = recovery.recover_due(tx, task)
    refused = refusal_to_give(tx, task, held, agent.agent_id, None, settings)
    if refused is not None:
        return refused
    profile = profile_named(agent.profile, settings)
    if isinstance(profile, Refused):
        return profile
    asked = Claimant(agent_id=agent.agent_id, profile=profile.name)
    request = Request(asked=asked, agent=agent, project_id=task.project_id, profile=profile, settings=settings)
    given = _give(tx, task, request, state="active", unended=held)
    return given if isinstance(given, Refused) else given[1]


def terms_of(
    task: Task,
    profile: Profile,
    settings: Settings,
    ttl_s: int | None,
    default_ttl_s: int | None,
    *,
    reports: int = 0,
    progress: int = 0,
    renewals: int = 0,
    **_: Any,
) -> tuple[int, int] | Refused:
    """The lease's term and grace, in milliseconds."""
    if profile.fixed:
        by_type = settings.task_types.get(task.kind, {}).get("lease_duration_s")
        ttl = ttl_for(
            profile, explicit_s=ttl_s, task_s=task.lease_duration_s, type_s=by_type, environment_s=default_ttl_s
        )
        return ttl if isinstance(ttl, Refused) else (ttl * 1000, 0)
    if ttl_s is not None:
        return inputs.bad("ttl_s", f"is for profiles with a fixed TTL; under {profile.name} the phase sets the term")
    term = term_for(
        settings.task_lease,
        reports=reports,
        progress=progress,
        renewals=renewals,
        estimated_hours=task.estimated_hours,
        priority=task.priority,
        complexity=task.complexity,
    )
    return term.term_ms, term.grace_ms


def _reserve(tx: Transaction, task: Task, lease: Lease, *, unended: int) -> Task:
    """Write that one more slot of a ready task is on offer. Touches only the indexes of what is ready."""
    task = task.replace(
        last_token=lease.token,
        open_slots=assignment.open_slots(task, unended),
        updated_at_ms=tx.now_ms,
        version=task.version + 1,
    )
    tx.put("reserve_task", task)
    return task


def _take(tx: Transaction, task: Task, lease: Lease, *, unended: int) -> Task:
    """The task as its accepted holder's."""
    assigned = task.assigned_to if task.status == "in_progress" and task.assigned_to else lease.agent_id
    return change.save_task(
        tx,
        task,
        unended=unended,
        status="in_progress",
        assigned_to=assigned,
        owner="agent",
        retry_at_ms=0,
        blocked_reason="",
    )


def _answer(
    tx: Transaction, lease: Lease, *, resumed: bool, task: Task | None = None, handed_over: bool = True
) -> Grant:
    """What a claimant receives; `task` where it was just written and need not be read again."""
    task = load.task_by_key(tx, lease.task_key) if task is None else task
    shown = load.handoffs_of(tx, task.key) if handed_over else []
    if resumed:
        # The first answer may have been lost: what it showed as new is shown again.
        messages = [message for message in load.thread_of(tx, task.key) if message.sender != lease.agent_id]
    else:
        messages = read_thread(tx, task.key, lease.agent_id) if lease.state == "active" else []
    return Grant(lease=lease, task=task, handoffs=tuple(shown), messages=tuple(messages), resumed=resumed)


def _read_ahead(tx: Transaction, task_key: int, agent_id: str) -> None:
    """What the answer to a claim will show of a thread that its claimant has not read."""
    tx.ahead("read_up_to", agent_id=agent_id, task_key=task_key)
    tx.ahead("thread", task_key=task_key, after=0, limit=UNREAD_SHOWN)


def read_thread(tx: Transaction, task_key: int, agent_id: str) -> list[Message]:
    """What the agent has not read of a thread; reading it is noted."""
    row = tx.one("read_up_to", agent_id=agent_id, task_key=task_key)
    messages = load.thread_of(tx, task_key, after=row["seq"] if row else 0, limit=UNREAD_SHOWN)
    if messages:
        tx.do("mark_read", agent_id=agent_id, task_key=task_key, seq=messages[-1].seq)
    return [message for message in messages if message.sender != agent_id]
