"""What must hold of the store at every instant, whatever happened before. Numbers are those of the design, section 11.

Each check recomputes its answer from rows. `check` runs after every step; the time it takes is most of the
simulation's, so it walks the tasks and the unended leases once and nothing else.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.rows import PULSE_VALID_MS, Row, Snapshot, deadline, demand


def check(state: Snapshot) -> None:
    """Everything that can be seen in one snapshot. Without an anchored clock, what depends on now is left out."""
    for task in state.tasks.values():
        leases = state.unended.get(task["key"], [])
        _slots(task, leases)
        _status(task, leases)
        _readiness(state, task, leases)
    for leases in state.unended.values():
        for lease in leases:
            _deadline(state, lease)
    _timers(state)


def _slots(task: Row, leases: list[Row]) -> None:
    """1: at most one live lease per slot. What is unended counts, because what is due may not be granted over."""
    slots = [lease["slot"] for lease in leases]
    demand(len(slots) == len(set(slots)), "1 one lease per slot", task=task["task_id"], slots=slots)
    demand(all(0 <= slot < task["slots"] for slot in slots), "1 a slot exists", task=task["task_id"], slots=slots)
    holders = [lease["agent_id"] for lease in leases]
    demand(len(holders) == len(set(holders)), "1 an agent holds a task once", task=task["task_id"], holders=holders)


def _status(task: Row, leases: list[Row]) -> None:
    """5, as stored: in progress for an agent exactly while an accepted lease is unended; nothing is held when over."""
    accepted = [lease for lease in leases if lease["state"] == "active"]
    facts = {"task": task["task_id"], "status": task["status"], "owner": task["owner"], "leases": _named(leases)}
    if task["owner"] in ("internal", "external"):
        demand(task["status"] in ("in_progress", "done", "blocked", "dead"), "5 an owned task is in progress", **facts)
        demand(not leases, "5 an owned task is not leased", **facts)
        return
    in_progress = task["status"] == "in_progress"
    demand(in_progress == bool(accepted), "5 in progress exactly while an accepted lease is unended", **facts)
    if task["status"] in ("blocked", "done", "dead"):
        demand(not leases, "5 nothing is held on a task that is over", **facts)
    if in_progress:
        demand(task["owner"] == "agent", "5 a held task belongs to an agent", **facts)
        holders = [lease["agent_id"] for lease in accepted]
        demand(task["assigned_to"] in holders, "5 the name on the card holds it", assigned=task["assigned_to"], **facts)


def _readiness(state: Snapshot, task: Row, leases: list[Row]) -> None:
    """8 and the ready index: what is kept equals what is computed from first principles."""
    unmet = len(state.unmet_of(task["key"]))
    facts: dict[str, Any] = {"task": task["task_id"], "status": task["status"]}
    demand(task["unmet"] == unmet, "unmet equals a recount", kept=task["unmet"], counted=unmet, **facts)
    free = task["status"] == "todo" and task["assigned_to"] is None
    shared = task["status"] == "in_progress" and task["owner"] == "agent" and task["slots"] > 1
    slots = max(0, task["slots"] - len(leases)) if free or shared else 0
    demand(task["open_slots"] == slots, "open_slots equals a recount", kept=task["open_slots"], counted=slots, **facts)
    if state.now is None:
        return
    ready_from = state.ready_from(task)
    waits = task["status"] == "todo" and ready_from > state.now
    timer = state.timers.get(("task", str(task["key"])))
    facts.update(waiting=task["waiting"], ready_from=ready_from, now=state.now, timer=timer)
    demand(not waits or task["waiting"], "a task that waits is out of the ready index", **facts)
    if task["waiting"]:
        demand(task["status"] == "todo", "only a todo task waits", **facts)
        demand(timer is not None, "a waiting task has a timer", **facts)
        late = max(task["not_before_ms"], task["retry_at_ms"], state.now)
        demand(timer is None or timer <= late, "a wait ends when it should", **facts)
    else:
        demand(timer is None, "a task that does not wait has no timer", **facts)


def _deadline(state: Snapshot, lease: Row) -> None:
    """4: one deadline, the one of section 2, and a timer that fires no later."""
    facts: dict[str, Any] = {name: lease[name] for name in ("lease_id", "task_id", "state", "profile")}
    computed = deadline(lease)
    demand(
        lease["recover_at_ms"] == computed, "recover_at is the formula", kept=lease["recover_at_ms"], **_terms(lease)
    )
    timer = state.timers.get(("lease", lease["lease_id"]))
    demand(timer is not None, "an unended lease has a timer", **facts)
    demand(timer == lease["wake_at_ms"], "one wake_at", timer=timer, kept=lease["wake_at_ms"], **facts)
    assert timer is not None
    late = lease["recover_at_ms"]
    if lease["server_id"] in state.servers:
        # While nobody can hear the holder, its timer is set again and again to look whether somebody can.
        late = timer if state.now is None else max(late, state.now + PULSE_VALID_MS)
    demand(timer <= late, "the timer fires by the deadline", timer=timer, recover_at=lease["recover_at_ms"], **facts)
    demand(lease["expires_at_ms"] >= 0 and lease["term_ms"] > 0, "a lease has a term", **facts)


def _timers(state: Snapshot) -> None:
    """A timer stands for something that waits."""
    for kind, ref in state.timers:
        if kind == "lease":
            lease = state.leases.get(ref)
            demand(lease is not None and lease["state"] in ("offered", "active"), "a timer has its lease", lease=ref)
        else:
            demand(int(ref) in state.tasks, "a timer has its task", key=ref)


def _named(leases: list[Row]) -> list[tuple[str, str, int]]:
    return [(lease["agent_id"], lease["state"], lease["slot"]) for lease in leases]


def _terms(lease: Row) -> dict[str, Any]:
    names = ("lease_id", "fixed", "expires_at_ms", "grace_ms", "seen_at_ms", "cadence_ms", "pulsed_at_ms")
    return {name: lease[name] for name in (*names, "silent_until_ms", "death_at_ms", "hung_after_ms")}
