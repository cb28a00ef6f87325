"""Writes that several verbs share: a task's state, a lease's birth, extension and end, an event.

Every update of a lease is scoped to its token and must change exactly one row: a verb that decided on a lease it no
longer owns would otherwise write over its successor.
"""

from __future__ import annotations

from tenure.core import ids
from tenure.core.deadline import next_wake_ms, settled
from tenure.core.model import Lease

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenure.core.model import Agent, LeaseState, Task
    from tenure.core.profiles import Profile
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

FAR_MS = 1 << 60
# How much of an agent's words an event carries; the thread and the ledger have them whole.
TOLD = 200


def record(
    tx: Transaction,
    kind: str,
    *,
    task: Task | None = None,
    lease: Lease | None = None,
    agent_id: str | None = None,
    **data: Any,
) -> None:
    """Write an event."""
    text = _compact(data) if data else "{}"
    tx.do(
        "add_event",
        at_ms=tx.now_ms,
        kind=kind,
        project_id=task.project_id if task else lease.project_id if lease else None,
        task_key=task.key if task else lease.task_key if lease else None,
        task_id=task.task_id if task else lease.task_id if lease else None,
        lease_id=lease.lease_id if lease else None,
        agent_id=agent_id if agent_id is not None else lease.agent_id if lease else None,
        data=text,
    )


_encode: Callable[[object], str] | None = None


def _compact(data: dict[str, Any]) -> str:
    """JSON without spaces. The encoder is made once, and not before an event has something to say: a touch has not."""
    global _encode
    parts = []
    for name, value in data.items():
        # What most events carry, numbers and plain words, needs no encoder.
        if type(value) is int:
            parts.append(f'"{name}":{value}')
        elif type(value) is str and value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
            parts.append(f'"{name}":"{value}"')
        elif value == []:
            parts.append(f'"{name}":[]')
        else:
            break
    else:
        return "{" + ",".join(parts) + "}"
    if _encode is None:
        import json

        _encode = json.JSONEncoder(separators=(",", ":")).encode
    return _encode(data)


def save_task(tx: Transaction, task: Task, *, unended: int, **changes: Any) -> Task:
    """Write a task's state, changed so, with what follows from it: its open slots and whether it waits for a time."""
    # Imported here because a touch, which must start fast, comes through this module and writes no task.
    from tenure.core.assignment import open_slots, ready_from_ms

    task = task.replace(**changes, updated_at_ms=tx.now_ms, version=task.version + 1)
    ready_from = ready_from_ms(task)
    waiting = int(ready_from > tx.now_ms and task.status == "todo")
    if waiting:
        set_timer(tx, "task", str(task.key), ready_from)
    elif task.waiting:
        tx.do("drop_timer", kind="task", ref=str(task.key))
    slots = open_slots(task, unended)
    if slots != task.open_slots or waiting != task.waiting:
        task = task.replace(open_slots=slots, waiting=waiting)
    tx.put("save_task", task)
    return task


def save_progress(tx: Transaction, task: Task) -> Task:
    """Write what moves while a task is being worked on. Touches no index."""
    task = task.replace(updated_at_ms=tx.now_ms, version=task.version + 1)
    tx.put("save_progress", task)
    return task


def grant(
    tx: Transaction,
    task: Task,
    agent: Agent,
    profile: Profile,
    settings: Settings,
    *,
    state: LeaseState,
    slot: int,
    term_ms: int,
    grace_ms: int,
    server_id: str | None,
    **carried: Any,
) -> Lease:
    """Write a new lease on a task. `carried` are fields taken over from a lease that this one continues."""
    now = tx.now_ms
    # A row, as every lease is from its next read on: to pass so many keyword arguments would cost more than all else.
    row = {
        "lease_id": ids.lease_id(profile.lease_id_style, now, tx.random(10)),
        "task_key": task.key,
        "project_id": task.project_id,
        "task_id": task.task_id,
        "agent_id": agent.agent_id,
        "incarnation": agent.incarnation,
        # The fencing token for the outside: it grows through restores, upgrades and failovers alike.
        "token": max(task.last_token + 1, now),
        "profile": profile.name,
        "state": state,
        "granted_at_ms": now,
        "slot": slot,
        "accepted_at_ms": now if state == "active" else None,
        "fixed": int(profile.fixed),
        "touch_extends": int(profile.extends != "heartbeat"),
        "term_ms": term_ms,
        "grace_ms": 0 if profile.fixed else grace_ms,
        "hung_after_ms": settings.hung_after_s * 1000,
        "silence_cap_ms": settings.silence_cap_s * 1000,
        "warning_ms": warning_ms(settings),
        "expires_at_ms": now + term_ms,
        "seen_at_ms": now,
        "recover_at_ms": FAR_MS,
        "wake_at_ms": FAR_MS,
        "server_id": server_id,
        **carried,
    }
    lease = settled(Lease.from_row(row))
    tx.put("add_lease", lease)
    set_timer(tx, "lease", lease.lease_id, lease.wake_at_ms)
    return lease


_WARNINGS: dict[float, int] = {}


def warning_ms(settings: Settings) -> int:
    hours = settings.task_lease.warning_hours
    known = _WARNINGS.get(hours)
    if known is None:
        from tenure.core.settings import seconds

        known = _WARNINGS[hours] = seconds(hours) * 1000
    return known


def extend(tx: Transaction, before: Lease, after: Lease) -> Lease:
    """Write a live lease after a sign of life, with its deadline recomputed. Touches no index unless it must wake
    someone earlier than planned."""
    after = settled(after)
    changed = tx.put("extend_lease", after)
    assert changed == 1, f"lease {after.lease_id} changed under its own transaction"
    if after.server_id != before.server_id:
        tx.do("move_lease", **after.as_dict())
    if after.wake_at_ms < before.wake_at_ms:
        set_timer(tx, "lease", after.lease_id, after.wake_at_ms)
    return after


def set_timer(tx: Transaction, kind: str, ref: str, wake_at_ms: int) -> None:
    """Set when a lease or a task is to be looked at next."""
    tx.do("set_timer", kind=kind, ref=ref, wake_at_ms=wake_at_ms)
    tx.memory.lower("timers", "next", wake_at_ms)


def rearm(tx: Transaction, lease: Lease, wake_at_ms: int | None = None) -> None:
    """Set a lease's timer after it fired: this alone moves it up."""
    wake_at = next_wake_ms(lease) if wake_at_ms is None else wake_at_ms
    tx.do("rearm_lease", lease_id=lease.lease_id, token=lease.token, warned=lease.warned, wake_at_ms=wake_at)
    set_timer(tx, "lease", lease.lease_id, wake_at)


def end(tx: Transaction, lease: Lease, state: LeaseState, reason: str) -> Lease:
    """End a lease. It can never be live again."""
    ended = lease.replace(state=state, ended_at_ms=tx.now_ms, end_reason=reason)
    changed = tx.put("end_lease", ended)
    assert changed == 1, f"lease {lease.lease_id} was ended twice"
    tx.do("drop_timer", kind="lease", ref=lease.lease_id)
    return ended
