"""What one call may change: the state before it, the call, its answer, the state after it.

3: a lease that is not live changes nothing. Ended leases are frozen; a lease that is due may only be recovered; a live
lease is changed by its own holder, found by what the caller gave, or taken away by a verb whose meaning that is. A
refusal changes nothing beyond the recoveries it found due and the note that a lost holder is alive.
"""

from __future__ import annotations

from typing import Any

from tenure.core.errors import CODES, Refused
from tests.simulation.rows import Row, Snapshot, demand

# Verbs by what they may do to a live lease that they name.
HOLDER = ("accept", "renew", "report", "release", "complete", "block", "log_decision", "log_artifact", "submit_receipt")
AGENT_WIDE = ("touch", "pulse", "link_up", "link_down", "depart")
TAKERS = ("revoke", "delete_task")
# Verbs that look at the timers before they give anything out.
TIMER_VERBS = ("advance", "claim_next", "offer")
GRANTERS = ("claim", "claim_next", "offer", "report", "complete")
# A status that only these verbs leave.
LEAVES = {
    "done": ("reopen_task",),
    "dead": ("requeue_task", "complete"),
    "blocked": ("unblock_task", "requeue_task", "complete", "submit_receipt"),
}
TIMER_FIELDS = {"wake_at_ms", "warned"}
RETURN_FIELDS = {"attempts", "silent_recoveries"}


class Call:
    """One verb called once. `committed` is False for a call that was killed or failed before its commit."""

    def __init__(self, verb: str, arguments: dict[str, Any]) -> None:
        self.verb = verb
        self.arguments = arguments
        self.answer: Any = None
        self.answered = False

    @property
    def refused(self) -> bool:
        """Whether the caller was told no."""
        return isinstance(self.answer, Refused)

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        if not self.answered:
            return f"{self.verb}({said}) -> no answer"
        answer = f"refused {self.answer.code}" if self.refused else type(self.answer).__name__
        return f"{self.verb}({said}) -> {answer}"


def check(before: Snapshot, call: Call, after: Snapshot) -> None:
    """Judge one committed call that did not have to re-anchor the clock."""
    assert after.now is not None
    if call.refused:
        answer = call.answer
        demand(answer.code in CODES and answer.message and answer.next, "a refusal is in the table", code=answer.code)
        demand(answer.code != "internal_error", "no internal error", message=answer.message)
    _superseded(before, call)
    recovered: set[int] = set()
    returned: set[int] = set()
    for lease_id, lease in before.leases.items():
        now_row = after.leases.get(lease_id)
        if now_row is lease:
            continue
        if now_row is None:
            demand(call.verb == "delete_task", "leases go only with their task", lease=lease_id, call=str(call))
        elif lease["state"] not in ("offered", "active"):
            _frozen(lease, now_row, after.now)
            returned.add(lease["task_key"])
        else:
            _changed(before, call, lease, now_row, after.now)
            if now_row["state"] == "expired":
                recovered.add(lease["task_key"])
    for lease_id, lease in after.leases.items():
        if lease_id not in before.leases:
            _granted(before, call, lease, after.now, recovered)
    _tasks(before, call, after, recovered, returned)


def _superseded(before: Snapshot, call: Call) -> None:
    """A connection speaks for its own incarnation only."""
    agent, incarnation = call.arguments.get("agent_id"), call.arguments.get("incarnation")
    if call.verb == "submit_receipt":
        agent = agent or call.arguments["body"].get("source_system")
    if agent is None or incarnation is None or agent not in before.agents or getattr(call.answer, "repeated", False):
        return
    if incarnation < before.agents[agent] and call.answered:
        demand(call.refused, "an older incarnation is refused", current=before.agents[agent], call=str(call))


def _frozen(before: Row, after: Row, now: int) -> None:
    """An ended lease never changes again, but that its holder may prove to have been alive."""
    facts = {"lease": before["lease_id"], "state": before["state"], "changed": sorted(_difference(before, after))}
    demand(_difference(before, after) == {"returned_at_ms"}, "3 an ended lease is frozen", **facts)
    demand(before["state"] == "expired" and before["returned_at_ms"] is None, "3 a return is noted once", **facts)
    demand(after["returned_at_ms"] == now, "3 a return is noted when it happens", **facts)


def _changed(state: Snapshot, call: Call, before: Row, after: Row, now: int) -> None:
    was_live = state.live(before, now)
    changed = _difference(before, after)
    facts = {
        "lease": before["lease_id"],
        "changed": sorted(changed),
        "was_live": was_live,
        "call": str(call),
        "now": now,
        "recover_at": before["recover_at_ms"],
    }
    if after["state"] == "expired":
        demand(not was_live, "a live holder is left alone", **facts)
        demand(call.verb not in ("touch", "pulse", "link_down"), "a sign of life recovers nothing", **facts)
        return
    if not was_live and after["state"] in ("offered", "active"):
        demand(changed <= TIMER_FIELDS, "3 a lease that is due is not revived", **facts)
        return
    if after["state"] == "revoked":
        _taken_away(state, call, before, after, facts)
        return
    demand(was_live, "3 a lease that is due ends by recovery only", **facts)
    if "death_at_ms" in changed:
        _died(state, call, before, now, facts)
    if changed <= TIMER_FIELDS and call.verb in TIMER_VERBS:
        return
    if call.verb in ("start_server", "pulse_server"):
        _lifted(state, call, before, after, now, facts)
        return
    demand(_is_callers(state, call, before), "3 a lease is changed by its own holder", **facts)
    demand(not call.refused, "3 a refusal extends nothing", **facts)


def _lifted(state: Snapshot, call: Call, before: Row, after: Row, now: int, facts: dict[str, Any]) -> None:
    """A server that hears again gives its holders back the time in which nobody could hear them, and no more."""
    pulsed = state.servers[call.arguments["server_id"]]
    demand(before["server_id"] == call.arguments["server_id"], "a server lifts its own holders", **facts)
    demand(now - pulsed > 15_000, "only a deaf server lifts", pulsed=pulsed, **facts)
    deaf_ms = now - max(pulsed, before["seen_at_ms"])
    for name in ("expires_at_ms", "recover_at_ms", "seen_at_ms"):
        demand(after[name] - before[name] == deaf_ms, "a lift is the time nobody could hear", field=name, **facts)


def _died(state: Snapshot, call: Call, lease: Row, now: int, facts: dict[str, Any]) -> None:
    """A death is written down by whoever saw the process exit, unless another link still sees it; or by leaving."""
    if call.verb == "depart":
        return
    demand(call.verb == "link_down" and call.arguments["died"], "a death is seen", **facts)
    link_id = call.arguments["link_id"]
    _, incarnation, weak, _, _ = state.links[link_id]
    others = [other for other in state.pulsing(lease["agent_id"], now) if other != link_id]
    demand(not weak and not others, "a death is believed while no other link pulses", others=others, **facts)
    demand(lease["incarnation"] <= incarnation, "a death is of its own incarnation", incarnation=incarnation, **facts)


def _taken_away(state: Snapshot, call: Call, before: Row, after: Row, facts: dict[str, Any]) -> None:
    named = call.arguments.get("task_id") == before["task_id"]
    forced = call.verb in TAKERS or bool(call.arguments.get("force"))
    finished = call.verb in ("complete", "submit_receipt") and after["end_reason"] == "completed_elsewhere"
    # An offer lapses when its task dies or is blocked, by whoever wrote that down.
    lapsed = before["state"] == "offered"
    demand((named and forced) or finished or lapsed, "3 a lease is taken away by those who may", **facts)


def _is_callers(state: Snapshot, call: Call, lease: Row) -> bool:
    """Whether this call could reach this lease by what it said of itself."""
    said = call.arguments
    if call.verb == "start_server":
        return bool(lease["server_id"] == said["server_id"])
    if call.verb in ("pulse", "link_down"):
        return bool(lease["agent_id"] == state.links[said["link_id"]][0])
    if call.verb in AGENT_WIDE:
        return bool(lease["agent_id"] == said["agent_id"])
    if call.verb == "claim_next":
        return bool(said.get("resume")) and bool(lease["agent_id"] == said["agent_id"])
    if call.verb not in HOLDER:
        return False
    if call.verb == "submit_receipt":
        body = said["body"]
        said = {**body, "agent_id": said.get("agent_id") or body.get("source_system")}
    return all(said.get(name) in (None, lease[name]) for name in ("task_id", "agent_id", "lease_id", "token"))


def _granted(before: Snapshot, call: Call, lease: Row, now: int, recovered: set[int]) -> None:
    """8, and the rest of the assignment filter, judged from the state before the call."""
    task = before.tasks.get(lease["task_key"])
    facts = {"call": str(call), "lease": lease["lease_id"], "task": lease["task_id"]}
    demand(task is not None and call.verb in GRANTERS and not call.refused, "a grant comes from a claim", **facts)
    assert task is not None
    demand(not before.unmet_of(task["key"]), "8 dependencies are done", unmet=before.unmet_of(task["key"]), **facts)
    demand(task["status"] in ("todo", "in_progress"), "a grant is of an open task", status=task["status"], **facts)
    # A name that was nobody's when the task was given to it may register later, and then claim its own.
    free = task["owner"] in (None, "agent") or (
        task["owner"] == "external" and task["assigned_to"] == lease["agent_id"]
    )
    demand(free, "a grant is of a free task", owner=task["owner"], **facts)
    demand(
        lease["token"] > task["last_token"] and lease["token"] >= now, "2 a token grows", token=lease["token"], **facts
    )
    free_of = task["slots"] - len(before.live_of(task["key"], now))
    demand(free_of > 0, "1 a slot was free", live=len(before.live_of(task["key"], now)), **facts)
    kept = task["assigned_to"] if task["status"] == "todo" else None
    demand(kept in (None, lease["agent_id"]), "a kept task is its agent's", kept=kept, **facts)
    early = before.ready_from(task) > now and task["status"] == "todo"
    demand(not early, "a grant is not before its time", ready_from=before.ready_from(task), now=now, **facts)
    capabilities = call.arguments.get("capabilities")
    if capabilities is not None:
        demand(set(task["requires"].split()) <= set(capabilities), "a grant fits", requires=task["requires"], **facts)
    demand(
        lease["agent_id"] in (call.arguments.get("agent_id"), None) or call.verb in HOLDER, "a grant is to who asked"
    )
    if call.verb in ("report", "complete"):
        _healed(before, lease, recovered, facts)


def _healed(before: Snapshot, lease: Row, recovered: set[int], facts: dict[str, Any]) -> None:
    """A re-grant goes to an agent that lost this very task by recovery, and only to a profile that heals."""
    lost = [
        old
        for old in before.leases.values()
        if old["task_key"] == lease["task_key"] and old["agent_id"] == lease["agent_id"]
    ]
    demand(lost and lease["profile"] in ("agent", "cli"), "a re-grant has something to give back", **facts)
    was_lost = any(old["state"] == "expired" for old in lost) or lease["task_key"] in recovered
    demand(was_lost, "a re-grant follows a recovery", **facts)


def _tasks(before: Snapshot, call: Call, after: Snapshot, recovered: set[int], returned: set[int]) -> None:
    for key, task in before.tasks.items():
        row = after.tasks.get(key)
        if row is task:
            continue
        if row is None:
            demand(call.verb == "delete_task" and not call.refused, "tasks go only by deletion", call=str(call))
            continue
        facts = {"task": task["task_id"], "was": task["status"], "now": row["status"], "call": str(call)}
        if task["status"] != row["status"] and task["status"] in LEAVES:
            demand(call.verb in LEAVES[task["status"]], "a task leaves its status by its verb", **facts)
        demand(row["last_token"] >= task["last_token"], "2 last_token only grows", **facts)
        if not call.refused or key in recovered:
            continue
        changed = _difference(task, row)
        allowed = set(RETURN_FIELDS) if key in returned else set()
        if call.verb in TIMER_VERBS:
            allowed.add("waiting")
        demand(changed <= allowed, "3 a refusal changes no task", changed=sorted(changed), **facts)


def _difference(before: Row, after: Row) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def phenomena(before: Snapshot, call: Call, after: Snapshot) -> list[str]:
    """What happened here that a run of many seeds must have reached."""
    assert after.now is not None
    found = []
    for lease_id, lease in before.leases.items():
        row = after.leases.get(lease_id)
        if row is None or row is lease:
            continue
        if row["state"] == "expired" and lease["state"] == "active":
            by = call.verb if call.verb in ("advance", "claim", "claim_next") else "another verb"
            found.append(f"recovered by {by}")
        if row["end_reason"] == "completed_elsewhere":
            found.append("completed elsewhere")
        if row["incarnation"] != lease["incarnation"]:
            found.append("lease taken over by a newer incarnation")
    if call.verb == "submit_receipt" and not call.refused and call.answered and call.answer.lease is not None:
        old = before.leases.get(call.answer.lease.lease_id)
        task = before.tasks.get(call.answer.task.key)
        late = old is not None and not before.live(old, after.now)
        if late and task is not None and task["status"] != "done" and call.answer.task.status == "done":
            found.append("late success")
    link = before.links.get(call.arguments.get("link_id", ""))
    if call.verb == "link_down" and call.arguments["died"] and link and len(before.pulsing(link[0], after.now)) > 1:
        found.append("exit seen while another link pulses")
    for leases in after.unended.values():
        for lease in leases:
            if lease["recover_at_ms"] <= after.now and after.live(lease, after.now):
                found.append("held by a deaf server")
    return found
