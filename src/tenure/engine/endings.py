"""Letting go: release, complete, block, revoke. Each ends the lease and settles the task in one transaction."""

from __future__ import annotations

from tenure.core import inputs, receipts
from tenure.core import recovery as rules
from tenure.core.errors import Refused, refuse
from tenure.core.record import Record
from tenure.engine import change, holding, ledger, liveness, load, recovery
from tenure.engine.callers import CALLER, known_agent
from tenure.engine.verb import verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Unpack

    from tenure.core.model import Lease, Task
    from tenure.core.settings import Settings
    from tenure.engine.callers import CallerArgs
    from tenure.store.store import Transaction

SEVERITIES = ("low", "medium", "high")
REVOKE_REASONS = ("operator", "preempted", "completed_elsewhere", "moved_on_board", "deleted", "superseded")


class Ended(Record):
    """The task after its lease ended. `lease` is None where nobody held it (an operator's act)."""

    task: Task
    lease: Lease | None = None
    # Dependants that this completion made ready.
    unlocked: tuple[str, ...] = ()
    # True when the same had been done before (a retried request).
    repeated: bool = False


@verb(**CALLER, message=inputs.body, force=inputs.flag)
def release(
    tx: Transaction,
    *,
    message: str = "",
    force: bool = False,
    **caller: Unpack[CallerArgs],
) -> Ended | Refused:
    """The holder gives the task back. An operator may with `force`, which is recorded as a revocation."""
    if force:
        return _forced(tx, caller, message)
    held = holding.find(tx, holding.Caller(**caller))
    if isinstance(held, Refused):
        return held
    if isinstance(held, holding.Lost):
        last = held.last
        if last is not None and last.state == "released" and caller.get("lease_id") == last.lease_id:
            return Ended(task=held.task, lease=last, repeated=True)
        holding.news(tx, held, message)
        return held.refusal
    settings = holding.settings_of(tx, held.task)
    task, lease = let_go(tx, held.task, held.lease, "released", "released", settings, message=message)
    change.record(tx, "released", lease=lease, message=message[: change.TOLD])
    return Ended(task=task, lease=lease)


def _forced(tx: Transaction, caller: CallerArgs, message: str) -> Ended | Refused:
    task = _forced_task(tx, caller)
    if isinstance(task, Refused):
        return task
    return revoke_leases(tx, task, "operator", by=_operator(caller), message=message)


def _forced_task(tx: Transaction, caller: CallerArgs) -> Task | Refused:
    """The task an operator means, who holds nothing and so must name it."""
    task_id, agent_id = caller.get("task_id"), caller.get("agent_id")
    if task_id is None:
        return inputs.bad("task_id", "is needed with force")
    if agent_id is not None and caller.get("incarnation") is not None:
        # An older run of an agent speaks for nobody, not even with force.
        agent = known_agent(tx, agent_id, caller.get("incarnation"))
        if isinstance(agent, Refused):
            return agent
    return load.task_named(tx, task_id, caller.get("project_id"))


def _operator(caller: CallerArgs) -> str:
    return caller.get("agent_id") or "operator"


@verb(
    task_id=inputs.ident,
    project_id=inputs.optional(inputs.ident),
    reason=inputs.one_of(*REVOKE_REASONS),
    by=inputs.line,
    message=inputs.body,
)
def revoke(
    tx: Transaction,
    *,
    task_id: str,
    project_id: str | None = None,
    reason: str = "operator",
    by: str = "operator",
    message: str = "",
) -> Ended | Refused:
    """Take a task away from its holder, who is told on its next call."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    return revoke_leases(tx, task, reason, by=by, message=message)


def revoke_leases(tx: Transaction, task: Task, reason: str, *, by: str, message: str) -> Ended | Refused:
    """Revoke every live lease of a task; it returns to the queue with a handoff."""
    task, leases = recovery.recover_due(tx, task)
    if not leases:
        return refuse("wrong_state", f"Nobody holds task {task.task_id}.", task_id=task.task_id, status=task.status)
    settings = holding.settings_of(tx, task)
    lease = leases[0]
    for lease in leases:
        task, lease = let_go(tx, task, lease, "revoked", "revoked", settings, message=message, detail=reason, by=by)
        tx.do("lose_lease", agent_id=lease.agent_id, lease_id=lease.lease_id, now_ms=tx.now_ms)
        change.record(tx, "revoked", lease=lease, reason=reason, by=by, message=message)
    return Ended(task=task, lease=lease)


def let_go(
    tx: Transaction,
    task: Task,
    lease: Lease,
    state: Any,
    escalation: str,
    settings: Settings,
    *,
    message: str = "",
    detail: str = "",
    by: str = "",
    status: Any = "todo",
    blocked_reason: str = "",
) -> tuple[Task, Lease]:
    """End a lease without completing its task: handoff, escalation, and the task goes to `status`, unassigned."""
    accepted = lease.state == "active"
    ended = change.end(tx, lease, state, detail or escalation)
    if message:
        recovery.post(tx, task, sender=by or lease.agent_id, text=message)
        # A holder's own last words belong to its handoff; an operator's stay in the thread.
        ended = ended if by else ended.replace(message=message)
    if accepted:
        # Whoever gives a task back before doing anything on it leaves nothing to hand over.
        if detail or message or lease.marked_at_ms is not None:
            task = recovery.hand_over(tx, task, ended, detail or escalation, settings, attempts=task.attempts)
        task = ledger.escalate(tx, task, escalation, settings=settings, lease=lease)
    return recovery.leave_to_others(tx, task, status, blocked_reason), ended


@verb(
    **CALLER,
    message=inputs.body,
    outcome_text=inputs.body,
    artifact_location=inputs.text(4096, one_line=True),
    force=inputs.flag,
)
def complete(
    tx: Transaction,
    *,
    message: str = "",
    outcome_text: str = "",
    artifact_location: str = "",
    force: bool = False,
    **caller: Unpack[CallerArgs],
) -> Ended | Refused:
    """Finish the task with success: lease and obligation close and dependants unlock, in one transaction."""
    outcome = {"outcome_text": outcome_text, "artifact_location": artifact_location, "message": message}
    if force:
        return _complete_by_force(tx, caller, outcome)
    held, _ = liveness.find_or_heal(tx, holding.Caller(**caller))
    if isinstance(held, Refused):
        return held
    if isinstance(held, holding.Lost):
        if held.task.status == "done" and held.last is not None and held.last.agent_id == held.agent.agent_id:
            # The outcome is the same: a retried or belated success finds the task finished.
            return Ended(task=held.task, lease=held.last, repeated=True)
        news = f"{held.agent.agent_id}, who lost this task, says it is complete. {message}".strip()
        holding.news(tx, held, news)
        return held.refusal
    if held.lease.state == "offered":
        return holding.not_accepted(held.lease)
    body = receipts.complete_body(held.task.task_id, source=held.lease.agent_id, **outcome)
    settings = holding.settings_of(tx, held.task)
    task = ledger.note(tx, held.task, body, settings=settings, lease=held.lease)
    if isinstance(task, Refused):
        return task
    return finish(tx, task, held.lease, settings, message=message)


def _complete_by_force(tx: Transaction, caller: CallerArgs, outcome: dict[str, str]) -> Ended | Refused:
    task = _forced_task(tx, caller)
    if isinstance(task, Refused):
        return task
    operator = _operator(caller)
    if task.status == "done":
        return Ended(task=task, repeated=True)
    task, _ = recovery.recover_due(tx, task)
    settings = holding.settings_of(tx, task)
    body = receipts.complete_body(task.task_id, source=operator, **outcome)
    noted = ledger.note(tx, task, body, settings=settings, lease=None)
    if isinstance(noted, Refused):
        return noted
    return finish(tx, noted, None, settings, message=outcome["message"], by=operator)


def finish(
    tx: Transaction, task: Task, lease: Lease | None, settings: Settings, *, message: str = "", by: str = ""
) -> Ended:
    """Close a successful task, whoever completed it; any other holder's lease is revoked as completed elsewhere.

    `task` carries the complete receipt's head already.
    """
    ended = None if lease is None else change.end(tx, lease, "completed", "completed")
    assigned = lease.agent_id if lease else by or task.assigned_to
    if message:
        recovery.post(tx, task, sender=assigned or ledger.SOURCE, text=message)
    if lease is None or task.slots > 1:
        task = _revoke_rest(tx, task, settings, by=assigned or "")
    done = change.save_task(
        tx,
        task,
        unended=0,
        status="done",
        assigned_to=assigned,
        owner=None,
        progress=100,
        obligation="closed" if task.obligation != "none" else "none",
        outcome="success",
        silent_recoveries=0,
        blocked_reason="",
        done_at_ms=tx.now_ms,
    )
    tx.do("close_handoffs", task_key=task.key)
    freed = [
        row["task_id"]
        for row in tx.all("unlock_dependants", task_key=task.key)
        if row["unmet"] == 0 and row["open_slots"] and not row["waiting"]
    ]
    # By name, as what a task needs is: the rows that a write gives are in no order.
    unlocked = tuple(sorted(freed))
    change.record(tx, "completed", task=done, lease=ended, agent_id=assigned, message=message, unlocked=list(unlocked))
    return Ended(task=done, lease=ended, unlocked=unlocked)


def _revoke_rest(tx: Transaction, task: Task, settings: Settings, *, by: str) -> Task:
    """Revoke whatever leases remain on a task that is finished, as completed elsewhere."""
    for held in load.unended_of_task(tx, task.key):
        change.end(tx, held, "revoked", "completed_elsewhere")
        tx.do("lose_lease", agent_id=held.agent_id, lease_id=held.lease_id, now_ms=tx.now_ms)
        if held.state == "active":
            task = ledger.escalate(tx, task, "superseded", settings=settings, lease=held)
        change.record(tx, "revoked", lease=held, reason="completed_elsewhere", by=by)
    return task


def fail(tx: Transaction, task: Task, lease: Lease, settings: Settings, *, message: str = "") -> Ended:
    """A completion with status failure: the attempt is used, the task requeues or dies, dependants stay locked."""
    ended = change.end(tx, lease, "completed", "failed")
    verdict = rules.after_failure(task, recovery.profile_of(lease, settings), tx.now_ms)
    task = recovery.hand_over(tx, task, ended, "failed", settings, attempts=verdict.attempts)
    task = recovery.return_task(tx, task, verdict, settings, lease)
    change.record(tx, "failed", lease=ended, message=message, attempts=task.attempts, status=task.status)
    return Ended(task=task, lease=ended)


def cancel(tx: Transaction, task: Task, lease: Lease, settings: Settings, *, message: str = "") -> Ended:
    """A completion with status canceled: the task will not be done; it is dead until someone requeues it."""
    ended = change.end(tx, lease, "completed", "canceled")
    task = _revoke_rest(tx, task, settings, by=lease.agent_id)
    dead = task.replace(
        status="dead",
        assigned_to=None,
        owner=None,
        obligation="closed",
        outcome="canceled",
        blocked_reason="canceled by its holder",
    )
    dead = change.save_task(tx, dead, unended=0)
    change.record(tx, "canceled", lease=ended, message=message)
    return Ended(task=dead, lease=ended)


@verb(**CALLER, reason=inputs.text(required=True), severity=inputs.one_of(*SEVERITIES), force=inputs.flag)
def block(
    tx: Transaction,
    *,
    reason: str,
    severity: str = "medium",
    force: bool = False,
    **caller: Unpack[CallerArgs],
) -> Ended | Refused:
    """The holder cannot go on: the lease ends, the task is blocked, its handoff is kept for whoever continues.

    A task that nobody holds may be blocked by anyone; a held one by others only with `force`.
    """
    if force or (caller.get("lease_id") is None and caller.get("token") is None):
        free = _block_unheld(tx, caller, reason, force)
        if free is not None:
            return free
    held = holding.find(tx, holding.Caller(**caller))
    if isinstance(held, Refused):
        return held
    if isinstance(held, holding.Lost):
        holding.news(tx, held, f"{held.agent.agent_id}, who lost this task, was blocked: {reason}")
        return held.refusal
    settings = holding.settings_of(tx, held.task)
    task, lease = let_go(
        tx,
        held.task,
        held.lease,
        "released",
        "released",
        settings,
        message=reason,
        detail="blocked",
        status="blocked",
        blocked_reason=_short(reason),
    )
    change.record(tx, "blocked", lease=lease, reason=reason, severity=severity)
    return Ended(task=task, lease=lease)


def _block_unheld(tx: Transaction, caller: CallerArgs, reason: str, force: bool) -> Ended | Refused | None:
    """Block a task that nobody holds; None when someone does, and this caller must prove to be that one."""
    task = _forced_task(tx, caller)
    if isinstance(task, Refused):
        return task
    by = _operator(caller)
    if not force and _was_lost(tx, task, caller.get("agent_id")):
        return None
    if not force and task.owner in ("internal", "external"):
        message = f"Task {task.task_id} belongs to {task.assigned_to}."
        return refuse("task_assigned", message, task_id=task.task_id, assigned_to=task.assigned_to)
    if force:
        revoked = revoke_leases(tx, task, "operator", by=by, message=reason)
        task = load.task_by_key(tx, task.key) if isinstance(revoked, Refused) else revoked.task
    else:
        task, held = recovery.recover_due(tx, task)
        if held:
            return None
    if task.status not in ("todo", "in_progress"):
        message = f"Task {task.task_id} is {task.status} and cannot be blocked."
        return refuse("wrong_state", message, task_id=task.task_id, status=task.status)
    blocked = task.replace(status="blocked", assigned_to=None, owner=None, blocked_reason=_short(reason))
    blocked = change.save_task(tx, blocked, unended=0)
    if not force:
        recovery.post(tx, task, sender=by, text=reason)
    change.record(tx, "blocked", task=blocked, agent_id=by, reason=reason)
    return Ended(task=blocked)


def _was_lost(tx: Transaction, task: Task, agent_id: str | None) -> bool:
    """Whether this agent's last holding of the task was taken from it: then it speaks as a lost holder only."""
    row = tx.one("last_lease_of", task_key=task.key, agent_id=agent_id) if agent_id else None
    last = load.lease_by_id(tx, row["lease_id"]) if row else None
    return last is not None and last.state in ("expired", "revoked")


def _short(reason: str) -> str:
    return " ".join(reason.split())[:500]
