"""Who may be given what: the assignment filter, the order of the queue, and the slots that are open.

The ready index holds only what can be offered now (open slots, nothing unmet, not waiting); `open_slots` is computed
here at every write of a task's status or owner. `conditions` states the same filter one condition at a time, for a
claim by id (the first failed one is its refusal) and for `why` (all of them, with their verdicts).
"""

from __future__ import annotations

from tenure.core.errors import refuse
from tenure.core.record import Record
from tenure.core.times import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenure.core.errors import Refused
    from tenure.core.model import Lease, Task

DAY_MS = 86_400_000
HEAD_START_MS = {"critical": 30 * DAY_MS, "high": 7 * DAY_MS, "medium": 1 * DAY_MS, "low": 0}
MAX_REQUIREMENT_SETS = 1_000


def rank_ms(task: Task) -> int:
    """The task's place in the queue, lowest first: urgent work starts ahead, and nothing waits for ever behind it."""
    return max(task.created_at_ms, task.not_before_ms) - HEAD_START_MS[task.priority]


def open_slots(task: Task, unended_leases: int) -> int:
    """How many more holders anyone may be given now. A task kept for one agent has none for the others."""
    if task.status == "todo" and task.assigned_to is None:
        return max(0, task.slots - unended_leases)
    if task.status == "in_progress" and task.owner == "agent" and task.slots > 1:
        return max(0, task.slots - unended_leases)
    return 0


def ready_from_ms(task: Task) -> int:
    """The instant before which the task waits: the user's not_before or the engine's retry delay."""
    return max(task.not_before_ms, task.retry_at_ms)


def requirement_set(capabilities: Iterable[str]) -> str:
    """One canonical string for a set of capabilities, so that an index can hold it."""
    return " ".join(sorted(set(capabilities)))


def satisfies(requires: str, capabilities: Sequence[str] | None) -> bool:
    """Capabilities filter only where both sides speak: a poll that sends none may be given anything."""
    return capabilities is None or set(requires.split()) <= set(capabilities)


class Condition(Record):
    """One condition of the filter with its verdict; `refusal` is what a claim is told when it fails."""

    name: str
    holds: bool
    detail: str
    refusal: Refused | None = None


def conditions(
    task: Task,
    *,
    agent_id: str | None,
    capabilities: Sequence[str] | None,
    reserved_owner: str,
    unmet: Sequence[str],
    live_leases: Sequence[Lease],
    now_ms: int,
) -> list[Condition]:
    """Every condition under which this agent (None: anyone) is given this task, in the order they are refused."""
    return [
        _reserved(task, reserved_owner),
        _held(task, agent_id, live_leases),
        _status(task),
        _assigned(task, agent_id),
        _dependencies(task, unmet),
        _waiting(task, now_ms),
        _capable(task, capabilities),
    ]


def _reserved(task: Task, reserved_owner: str) -> Condition:
    if task.owner != "internal":
        return Condition(name="reserved_owner", holds=True, detail=f"not owned by {reserved_owner}")
    message = f"Task {task.task_id} is owned by {reserved_owner} and handled inside the server."
    return Condition(
        name="reserved_owner",
        holds=False,
        detail=message,
        refusal=refuse("task_assigned", message, task_id=task.task_id, assigned_to=task.assigned_to),
    )


def _held(task: Task, agent_id: str | None, live_leases: Sequence[Lease]) -> Condition:
    # Of a task with several slots nobody is given a second one.
    mine = next((lease for lease in live_leases if lease.agent_id == agent_id), None)
    if mine is None and len(live_leases) < task.slots:
        detail = f"{task.slots - len(live_leases)} of {task.slots} slots open" if live_leases else "no live lease on it"
        return Condition(name="lease", holds=True, detail=detail)
    lease = mine or live_leases[0]
    yours = mine is not None
    message = f"Already claimed: {'you hold' if yours else lease.agent_id + ' holds'} task {task.task_id}."
    refusal = refuse(
        "already_claimed",
        message,
        "You hold it already: carry on, or repeat the claim with its idempotency key to get the same lease again."
        if yours
        else None,
        task_id=task.task_id,
        holder=lease.agent_id,
        since=iso(lease.granted_at_ms),
        expires_at=iso(lease.expires_at_ms),
    )
    detail = f"held by {lease.agent_id} until {iso(lease.recover_at_ms)}"
    return Condition(name="lease", holds=False, detail=detail, refusal=refusal)


# status: (refusal code, how the sentence ends)
_REFUSED_STATUS = {
    "done": ("task_done", "is done"),
    "dead": ("task_dead", "is dead: it used up its attempts or was canceled"),
    "blocked": ("task_blocked", "is blocked"),
}


def _status(task: Task) -> Condition:
    if task.status not in _REFUSED_STATUS:
        return Condition(name="status", holds=True, detail=task.status)
    code, words = _REFUSED_STATUS[task.status]
    reason = f": {task.blocked_reason}" if task.blocked_reason else ""
    message = f"Task {task.task_id} {words}{reason}."
    refusal = refuse(code, message, task_id=task.task_id, status=task.status, reason=task.blocked_reason)
    return Condition(name="status", holds=False, detail=f"{task.status}{reason}", refusal=refusal)


def _assigned(task: Task, agent_id: str | None) -> Condition:
    if task.assigned_to is None or task.assigned_to == agent_id:
        return Condition(name="assigned_to", holds=True, detail="nobody" if task.assigned_to is None else "you")
    if task.slots > 1 and task.status == "in_progress" and task.owner == "agent":
        # The name is only the first holder's; the other slots are anyone's.
        return Condition(name="assigned_to", holds=True, detail=f"{task.assigned_to} and others")
    if task.owner == "internal":
        return Condition(name="assigned_to", holds=False, detail=f"{task.assigned_to} (internal)")
    message = f"Task {task.task_id} is assigned to {task.assigned_to}."
    refusal = refuse("task_assigned", message, task_id=task.task_id, assigned_to=task.assigned_to, owner=task.owner)
    return Condition(name="assigned_to", holds=False, detail=task.assigned_to, refusal=refusal)


def _dependencies(task: Task, unmet: Sequence[str]) -> Condition:
    if task.unmet == 0:
        return Condition(name="dependencies", holds=True, detail="all done")
    names = ", ".join(unmet) or f"{task.unmet} tasks"
    message = f"Task {task.task_id} waits for {names}."
    refusal = refuse("dependencies_unmet", message, task_id=task.task_id, unmet=list(unmet))
    return Condition(name="dependencies", holds=False, detail=f"waits for {names}", refusal=refusal)


def _waiting(task: Task, now_ms: int) -> Condition:
    ready_from = ready_from_ms(task)
    # Once ready, always ready: a clock that is set back does not send a task into waiting again.
    if not task.waiting or ready_from <= now_ms:
        return Condition(name="not_before", holds=True, detail="not waiting")
    message = f"Task {task.task_id} waits until {iso(ready_from)}."
    refusal = refuse("task_waiting", message, task_id=task.task_id, not_before=iso(ready_from))
    return Condition(name="not_before", holds=False, detail=f"waits until {iso(ready_from)}", refusal=refusal)


def _capable(task: Task, capabilities: Sequence[str] | None) -> Condition:
    if satisfies(task.requires, capabilities):
        detail = f"requires {task.requires}" if task.requires else "requires none"
        return Condition(name="capabilities", holds=True, detail=detail)
    missing = sorted(set(task.requires.split()) - set(capabilities or ()))
    message = f"Task {task.task_id} requires {', '.join(missing)}, which this agent did not declare."
    refusal = refuse("capabilities_missing", message, task_id=task.task_id, missing=missing)
    return Condition(name="capabilities", holds=False, detail=f"lacks {', '.join(missing)}", refusal=refusal)
