"""Recovery: taking back what a dead holder held. One transaction, which anyone may run, and only one can win.

In that transaction the lease ends, the task returns to the queue (or is declared dead, or quarantined, as its profile
says), the handoff is written and appended to the task's thread, an escalation goes to the ledger if the lease had been
accepted, and an event is left. A second runner finds an ended lease and does nothing.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter

from tenure.core import handoff as handoffs
from tenure.core import inputs
from tenure.core import recovery as rules
from tenure.core.deadline import PULSE_VALID_MS, is_deaf, live, warn_at_ms
from tenure.core.errors import Refused
from tenure.core.ids import ulid
from tenure.core.model import UNENDED
from tenure.core.profiles import profile_named
from tenure.core.record import Record
from tenure.engine import change, ledger, load
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.core.model import Handoff, Lease, Status, Task
    from tenure.core.profiles import Profile
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

# How many timers one transaction looks at: a bound on how long it holds the write lock.
TIMERS_AT_ONCE = 32
# When a timer whose work failed is tried again.
PUT_OFF_MS = 60_000


class Advanced(Record):
    """What a look at the timers found."""

    fired: int = 0
    recovered: int = 0
    offers_expired: int = 0
    warned: int = 0
    promoted: int = 0
    # Timers whose work raised an error; each is tried again in a minute.
    failed: int = 0
    # How long until the next instant of interest, or None when nothing waits.
    wait_ms: int | None = None


class Due(Record):
    """When there will be something to do."""

    wait_ms: int | None


@query()
def next_due(tx: Transaction) -> Due:
    """How long until the next instant of interest: one row of the timer index, and no lock."""
    return Due(wait_ms=_wait_ms(tx))


def _wait_ms(tx: Transaction) -> int | None:
    wake_at_ms = load.next_wake_ms(tx)
    return None if wake_at_ms is None else wake_at_ms - tx.now_ms


@verb(limit=inputs.limit)
def advance(tx: Transaction, *, limit: int = TIMERS_AT_ONCE) -> Advanced:
    """Do what is due: recover, expire offers, warn, and put tasks whose time has come into the ready index."""
    return advance_timers(tx, limit).replace(wait_ms=_wait_ms(tx))


def advance_timers(tx: Transaction, limit: int) -> Advanced:
    """The work of `advance`, for verbs that must not act on a stale queue."""
    counts = dict.fromkeys(("recovered", "offers_expired", "warned", "promoted", "failed"), 0)
    due = tx.all("due_timers", now_ms=tx.now_ms, limit=limit)
    # What fires is set anew or dropped: the nearest timer has to be asked for again.
    tx.memory.forget("timers")
    # Those of one instant, as far as one look sees them, in the order of their names: no database promises any.
    for timer in sorted(due, key=itemgetter("wake_at_ms", "kind", "ref")):
        kind, ref = timer["kind"], timer["ref"]
        done, error = tx.alone(partial(_fire, tx, kind, ref))
        if error is not None:
            _put_off(tx, kind, ref, error)
            done = "failed"
        if done:
            counts[done] += 1
    return Advanced(fired=len(due), **counts)


def _fire(tx: Transaction, kind: str, ref: str) -> str:
    """Do what one timer is for; says what was done, or nothing."""
    if kind == "task":
        _promote(tx, int(ref))
        return "promoted"
    lease = load.lease_by_id(tx, ref)
    if lease is None or lease.state not in UNENDED:
        # An offer that lapsed a moment ago, with the recovery that made its task dead or blocked.
        return ""
    if live(lease, tx.now_ms):
        return "warned" if _look_at(tx, lease) else ""
    recover(tx, lease)
    return "offers_expired" if lease.state == "offered" else "recovered"


def _put_off(tx: Transaction, kind: str, ref: str, error: Exception) -> None:
    """A timer whose work failed is tried again later: one bad row must not stop the recovery of all others."""
    import logging

    logging.getLogger("tenure").error("the timer of %s %s failed", kind, ref, exc_info=error)
    change.set_timer(tx, kind, ref, tx.now_ms + PUT_OFF_MS)
    lease = load.lease_by_id(tx, ref) if kind == "lease" else None
    change.record(tx, "timer_failed", lease=lease, error=f"{type(error).__name__}: {error}"[: change.TOLD])


def recover_due(tx: Transaction, task: Task) -> tuple[Task, list[Lease]]:
    """Recover whatever is due on this task, and keep that whatever the caller decides next.

    Answers the task as it then stands, and the leases that remain on it, which are live.
    """
    unended = load.unended_of_task(tx, task.key)
    due = [lease for lease in unended if not live(lease, tx.now_ms)]
    if not due:
        return task, unended
    # Holders before offers: when the last holder's recovery makes the task dead or blocked, its offers lapse with it.
    for lease in sorted(due, key=lambda lease: lease.state):
        if any(left.lease_id == lease.lease_id for left in load.unended_of_task(tx, task.key)):
            recover(tx, lease)
    tx.settle()
    return load.task_by_key(tx, task.key), load.unended_of_task(tx, task.key)


def recover(tx: Transaction, lease: Lease) -> None:
    """Take a task back from a holder that is not live any more. The caller has established that."""
    task = load.task_by_key(tx, lease.task_key)
    settings = load.settings_for(tx, task.project_id)
    assert not isinstance(settings, Refused)
    if lease.state == "offered":
        change.end(tx, lease, "expired", "not_accepted")
        change.save_task(tx, task, unended=len(load.unended_of_task(tx, task.key)))
        change.record(tx, "offer_expired", lease=lease)
        return
    reason = lease.end_reason or ("process_exited" if lease.death_at_ms is not None else "lease_expired")
    change.end(tx, lease, "expired", reason)
    tx.do("lose_lease", agent_id=lease.agent_id, lease_id=lease.lease_id, now_ms=tx.now_ms)
    tx.do("count", name="recoveries", by=1)
    profile = profile_of(lease, settings)
    verdict = rules.after_recovery(task, profile, tx.now_ms)
    task = hand_over(tx, task, lease, reason, settings, attempts=verdict.attempts)
    task = ledger.escalate(tx, task, "lease_expired", settings=settings, lease=lease)
    task = return_task(tx, task, verdict, settings, lease)
    facts = rules.numbers(lease, tx.now_ms, settings.task_lease.silence_multiplier)
    change.record(tx, "recovered", lease=lease, reason=reason, status=task.status, **facts)
    tx.recovered.append((lease.agent_id, lease.task_id))


def return_task(tx: Transaction, task: Task, verdict: rules.Verdict, settings: Settings, lease: Lease) -> Task:
    """Apply the verdict on a lost or failed attempt: back to the queue, dead, or quarantined.

    While another slot's holder is at work nothing is given up, so that an obligation is not closed under its hands.
    """
    if verdict.escalation and not any(held.state == "active" for held in load.unended_of_task(tx, task.key)):
        task = ledger.escalate(tx, task, verdict.escalation, settings=settings, lease=lease, terminal=verdict.terminal)
    task = task.replace(
        attempts=verdict.attempts,
        silent_recoveries=verdict.silent_recoveries,
        evidence=verdict.evidence,
        retry_at_ms=verdict.retry_at_ms,
    )
    return leave_to_others(tx, task, verdict.status, verdict.blocked_reason)


def leave_to_others(tx: Transaction, task: Task, status: Status, blocked_reason: str = "") -> Task:
    """The task after one of its holders is gone: in progress with another slot's holder, else `status`, unassigned."""
    others = load.unended_of_task(tx, task.key)
    at_work = [lease for lease in others if lease.state == "active"]
    if at_work:
        task = task.replace(assigned_to=at_work[0].agent_id, retry_at_ms=0)
        return change.save_task(tx, task, unended=len(others))
    if status != "todo":
        for lease in others:
            change.end(tx, lease, "revoked", f"task_{status}")
        others = []
    task = task.replace(status=status, assigned_to=None, owner=None, blocked_reason=blocked_reason)
    return change.save_task(tx, task, unended=len(others))


def hand_over(tx: Transaction, task: Task, lease: Lease, reason: str, settings: Settings, *, attempts: int) -> Task:
    """Write the handoff of an ended lease and append it to the task's thread."""
    agent = load.agent_named(tx, lease.agent_id)
    # Only who was watched can have left last words.
    words = None
    if lease.pulsed_at_ms is not None:
        # A later run of the same agent has words of its own, about another task.
        until_ms = tx.now_ms if lease.death_at_ms is None else lease.death_at_ms
        words = tx.one("last_words", agent_id=lease.agent_id, incarnation=lease.incarnation, until_ms=until_ms)
    handoff = handoffs.build(
        handoff_id=ulid(tx.now_ms, tx.random(10)),
        task=task,
        lease=lease,
        now_ms=tx.now_ms,
        reason=reason,
        prefix=settings.branch_prefix,
        branch=agent.branch if agent else "",
        worktree=agent.worktree if agent else "",
        host=agent.host if agent else "",
        handoff_hours=settings.handoff_hours,
        attempts=attempts,
        decisions=tx.all("decisions_of", task_key=task.key, limit=20),
        artifacts=tx.all("artifacts_of", task_key=task.key, limit=20),
        **(words or {}),
    )
    tx.do("add_handoff", **handoff.as_dict())
    tx.handed_over += 1
    post(tx, task, sender=ledger.SOURCE, kind="handoff", text=_summary(handoff))
    return task


def _summary(handoff: Handoff) -> str:
    return (
        f"Taken back from {handoff.recovered_from_agent} ({handoff.recovery_reason}) at {handoff.previous_progress}% "
        f"after {handoff.time_spent_minutes} min. Its commits are on {handoff.previous_agent_branch}."
    )


def post(
    tx: Transaction, task: Task, *, sender: str, text: str, kind: str = "note", recipient: str | None = None
) -> None:
    """Append to a task's thread."""
    tx.do(
        "add_message",
        at_ms=tx.now_ms,
        project_id=task.project_id,
        task_key=task.key,
        task_id=task.task_id,
        sender=sender,
        recipient=recipient,
        kind=kind,
        text=text,
    )


def profile_of(lease: Lease, settings: Settings) -> Profile:
    """The policy of a lease's profile. One that was removed from the settings leaves its leases to the base rules."""
    profile = profile_named(lease.profile, settings)
    if isinstance(profile, Refused):
        profile = profile_named("worker" if lease.fixed else "agent", settings)
        assert not isinstance(profile, Refused)
    return profile


def _promote(tx: Transaction, key: int) -> None:
    """A task's waiting time is over."""
    tx.do("promote", key=key, now_ms=tx.now_ms)
    row = tx.one("task_by_key", key=key)
    if row is not None and row["waiting"]:
        change.set_timer(tx, "task", str(key), max(row["not_before_ms"], row["retry_at_ms"]))
    else:
        tx.do("drop_timer", kind="task", ref=str(key))


def _look_at(tx: Transaction, lease: Lease) -> int:
    """A live lease's timer fired: warn if it is time to, and set the timer to the next instant of interest."""
    if is_deaf(lease, tx.now_ms) and lease.recover_at_ms <= tx.now_ms:
        # Nobody could have heard this holder. Look again when its server may have been heard.
        change.rearm(tx, lease, min(tx.now_ms + PULSE_VALID_MS, lease.recover_at_ms + lease.hung_after_ms))
        return 0
    warn_at = warn_at_ms(lease)
    if warn_at is not None and warn_at <= tx.now_ms:
        change.record(tx, "warning", lease=lease, expires_at_ms=lease.expires_at_ms)
        change.rearm(tx, lease.replace(warned=1))
        return 1
    change.rearm(tx, lease)
    return 0
