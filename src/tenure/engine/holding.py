"""From a caller to the live lease it holds, or to what a presumed-dead holder is told.

Callers are matched by (task, agent, incarnation), narrowed by lease id or token where given. A connection speaks for
its own incarnation only; an older one is told `superseded`. The newest incarnation takes over its agent's leases by
acting on them: a client that restarts its MCP server goes on where it was.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.deadline import live
from tenure.core.errors import Refused, refuse
from tenure.core.model import UNENDED
from tenure.core.record import Record
from tenure.core.times import iso
from tenure.engine import change, load, recovery
from tenure.engine.callers import known_agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Agent, Lease, Task
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction


class Caller(Record):
    """Who says they hold what. A lease id alone is enough: knowing it is the proof."""

    task_id: str | None = None
    project_id: str | None = None
    agent_id: str | None = None
    incarnation: int | None = None
    lease_id: str | None = None
    token: int | None = None


class Held(Record):
    """A caller that was found to be right, with everything a holder's verb needs."""

    task: Task
    agent: Agent
    lease: Lease


def not_accepted(lease: Lease) -> Refused:
    """What is told to whoever acts on an offer as if it were held."""
    message = f"Lease {lease.lease_id} is an offer that was not accepted yet."
    return refuse("not_accepted", message, lease_id=lease.lease_id)


class Lost(Record):
    """A caller that does not hold the task (any more): what it is told, and what a healing verb may do about it."""

    refusal: Refused
    task: Task
    agent: Agent
    # The caller's own last lease on this task, if it ever had one.
    last: Lease | None
    holder: Lease | None


def find(tx: Transaction, caller: Caller) -> Held | Lost | Refused:
    """Find the live lease a caller acts on; recover what is due on the task first."""
    task, agent_id = _task_and_agent(tx, caller)
    if isinstance(task, Refused):
        return task
    if agent_id is None:
        return inputs.bad("agent_id", "is needed to tell who calls, or a lease_id")
    agent = known_agent(tx, agent_id, caller.incarnation)
    if isinstance(agent, Refused):
        return agent
    task, leases = recovery.recover_due(tx, task)
    for lease in leases:
        if _is_of(lease, caller, agent_id):
            if lease.incarnation != agent.incarnation:
                # The newest incarnation takes over by acting.
                lease = lease.replace(incarnation=agent.incarnation)
            return Held(task=task, agent=agent, lease=lease)
    return _lost(tx, task, agent, caller, leases)


def _task_and_agent(tx: Transaction, caller: Caller) -> tuple[Task | Refused, str | None]:
    if caller.task_id is not None:
        return load.task_named(tx, caller.task_id, caller.project_id), caller.agent_id or _agent_of(tx, caller)
    if caller.lease_id is None:
        return inputs.bad("task_id", "or lease_id is needed"), None
    tx.ahead_of_lease(caller.lease_id)
    lease = load.lease_by_id(tx, caller.lease_id)
    if lease is None:
        return refuse("lease_not_found", f"There is no lease {caller.lease_id}.", lease_id=caller.lease_id), None
    return load.task_by_key(tx, lease.task_key), caller.agent_id or lease.agent_id


def _agent_of(tx: Transaction, caller: Caller) -> str | None:
    lease = load.lease_by_id(tx, caller.lease_id) if caller.lease_id else None
    return lease.agent_id if lease else None


def _is_of(lease: Lease, caller: Caller, agent_id: str) -> bool:
    return (
        lease.agent_id == agent_id
        and (caller.lease_id is None or caller.lease_id == lease.lease_id)
        and (caller.token is None or caller.token == lease.token)
    )


def _lost(tx: Transaction, task: Task, agent: Agent, caller: Caller, leases: list[Lease]) -> Lost:
    row = tx.one("last_lease_of", task_key=task.key, agent_id=agent.agent_id)
    last = load.lease_by_id(tx, row["lease_id"]) if row else None
    if caller.lease_id and (last is None or last.lease_id != caller.lease_id):
        named = load.lease_by_id(tx, caller.lease_id)
        last = named if named is not None and named.task_key == task.key else last
    if last is not None:
        note_return(tx, agent, last)
        if last.state in ("expired", "revoked"):
            tx.do("look_again", lease_id=last.lease_id)
    holder = next((lease for lease in leases if live(lease, tx.now_ms)), None)
    refusal = _refusal(tx, task, agent, last, holder)
    return Lost(refusal=refusal, task=task, agent=agent, last=last, holder=holder)


def _refusal(tx: Transaction, task: Task, agent: Agent, last: Lease | None, holder: Lease | None) -> Refused:
    facts = _facts(tx, task, agent, last, holder)
    if last is None or last.agent_id != agent.agent_id:
        who = f"{holder.agent_id} holds it" if holder else "nobody holds it"
        message = f"{agent.agent_id} does not hold task {task.task_id}: {who}."
        return refuse("not_holder", message, **facts)
    ended = f"Your lease on {task.task_id} ended at {iso(last.ended_at_ms or tx.now_ms)} ({last.end_reason})"
    if holder is not None:
        since = f"{holder.agent_id} has held it since {iso(holder.granted_at_ms)}"
        if last.state in UNENDED:
            ended = f"Your lease on {task.task_id} has ended; this is a newer one"
        return refuse(
            "lease_lost",
            f"{ended}; {since}.",
            _where_it_is(facts),
            **facts,
        )
    if task.status == "done":
        return refuse("task_done", f"Task {task.task_id} is done.", **facts)
    if task.status in ("blocked", "dead"):
        return refuse(f"task_{task.status}", f"{ended}; the task is {task.status}: {task.blocked_reason}.", **facts)
    return refuse("lease_lost", f"{ended}; nobody has taken the task since.", "Claim it again to go on.", **facts)


def _where_it_is(facts: dict[str, Any]) -> str:
    """What a holder is told whose task somebody else has: where its own work is, and what to do."""
    saved = f" Uncommitted work is saved in {facts['saved']}." if facts.get("saved") else ""
    return f"Stop working on it; your commits stay on {facts['your_branch']}.{saved} Ask for the next task."


def _facts(tx: Transaction, task: Task, agent: Agent, last: Lease | None, holder: Lease | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"task_id": task.task_id, "status": task.status}
    if holder is not None:
        facts.update(holder=holder.agent_id, since=iso(holder.granted_at_ms))
    if last is not None:
        facts.update(your_branch=agent.branch)
        if last.state not in UNENDED:
            # A live lease that the caller did not name is a newer run's: knowing its id would be the proof.
            facts.update(your_lease=last.lease_id, your_token=last.token)
        saved = tx.one("handoff_of_lease", lease_id=last.lease_id)
        if saved is not None and saved["git"]:
            import json

            facts["saved"] = json.loads(saved["git"]).get("rescue_ref")
    return facts


def note_return(tx: Transaction, agent: Agent, lost: Lease) -> bool:
    """A recovered incarnation proves to be alive: within the window, its recovery was false and no longer counts."""
    if lost.state != "expired" or lost.accepted_at_ms is None or lost.returned_at_ms is not None:
        return False
    if lost.agent_id != agent.agent_id or lost.incarnation != agent.incarnation or lost.death_at_ms is not None:
        return False
    settings = load.settings_for(tx, lost.project_id)
    window_ms = 0 if isinstance(settings, Refused) else settings.return_window_s * 1000
    lost_at = agent.lost_at_ms if agent.lost_lease_id == lost.lease_id else lost.ended_at_ms
    if lost_at is None or tx.now_ms - lost_at > window_ms:
        return False
    tx.do("return_lease", lease_id=lost.lease_id, now_ms=tx.now_ms)
    tx.do("uncount_recovery", task_key=lost.task_key)
    tx.do("count", name="false_recoveries", by=1)
    change.record(tx, "returned", lease=lost, after_ms=tx.now_ms - lost_at)
    return True


def news(tx: Transaction, lost: Lost, text: str) -> None:
    """What a lost holder wanted to say goes to the task's thread, for whoever holds it now."""
    was_lost = lost.last is not None and lost.last.state in ("expired", "revoked")
    if was_lost and text and lost.task.status != "done":
        recovery.post(tx, lost.task, sender=lost.agent.agent_id, kind="news", text=text)


def settings_of(tx: Transaction, task: Task) -> Settings:
    """The settings of a task's project, which exists because the task does."""
    settings = load.settings_for(tx, task.project_id)
    assert not isinstance(settings, Refused)
    return settings
