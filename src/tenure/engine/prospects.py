"""What an agent is told when nothing is ready for it. Looks only, at a bounded part of the project.

The rule is in core/prospects.py; here is what it is shown. Each look has a limit, so that the answer costs the same in
a project of ten tasks and of ten million: of very many tasks in progress, waits and offers only the first are seen, and
a project larger than JUDGED_AT_MOST is not judged for gridlock, which means that its agents are never told to go for
that reason.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core import prospects as rule
from tenure.core import recovery as recovery_rules
from tenure.core.assignment import ready_from_ms, satisfies
from tenure.core.deadline import PULSE_VALID_MS, announcement_ms, is_deaf, live, rule_ms
from tenure.core.errors import Refused
from tenure.core.model import DEFAULT_PROJECT, Lease, Task
from tenure.core.prospects import Prospects
from tenure.engine import claims, load, observe, recovery
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenure.core.gridlock import Gridlock
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

HELD_SEEN = 200
TIMERS_SEEN = 500
LOCKED_SEEN = 500
TODO_SEEN = 2_000
NAMED = 10
JUDGED_AT_MOST = 5_000


@query(
    project_id=inputs.ident,
    agent_id=inputs.optional(inputs.ident),
    capabilities=inputs.optional(inputs.capabilities),
)
def prospects(
    tx: Transaction,
    *,
    project_id: str = DEFAULT_PROJECT,
    agent_id: str | None = None,
    capabilities: Sequence[str] | None = None,
) -> Prospects | Refused:
    """When something can become ready for this agent and why then, or that nothing can and it may go."""
    settings = load.settings_for(tx, project_id)
    if isinstance(settings, Refused):
        return settings
    found = {row["status"] for row in tx.all("statuses_of", project_id=project_id)}
    if not found & {"todo", "in_progress"} or _is_ready(tx, project_id, agent_id, capabilities):
        scene = rule.Scene(project_id=project_id, tasks=bool(found), ready=bool(found & {"todo", "in_progress"}))
        return rule.prospects(_with_stopped(tx, scene), tx.now_ms)
    # The reserved owner has a task from the start; while others must come first, nobody is at work on it.
    working = [
        task for task in _first(tx, project_id, "in_progress", HELD_SEEN) if task.owner != "internal" or task.unmet == 0
    ]
    locked_away = "in_progress" in found and not working
    held = [
        _held(tx, task, lease, settings, capabilities)
        for task, lease in _holdings(tx, working)
        if lease.agent_id != agent_id
    ]
    ready_elsewhere = [
        Task(**row) for row in tx.all("unlocked_todos", project_id=project_id, seen=TODO_SEEN, limit=NAMED)
    ]
    internal = {task.task_id: str(task.assigned_to) for task in working if task.owner == "internal"}
    scene = rule.Scene(
        project_id=project_id,
        tasks=True,
        todo="todo" in found or locked_away,
        in_progress=bool(working),
        held=(*held, *_offers(tx, project_id, agent_id, settings, capabilities)),
        locked=tuple(_locked(tx, working, agent_id, capabilities)),
        waiting=_waits(tx, project_id, agent_id, capabilities),
        internal=internal,
        served=not internal or tx.one("server_since", since_ms=tx.now_ms - PULSE_VALID_MS) is not None,
        external={task.task_id: str(task.assigned_to) for task in working if task.owner == "external"},
        kept={task.task_id: task.assigned_to for task in ready_elsewhere if task.assigned_to is not None},
        lacking={
            task.task_id: tuple(sorted(set(task.requires.split()) - set(capabilities or ())))
            for task in ready_elsewhere
            if task.assigned_to is None and not satisfies(task.requires, capabilities)
        },
        gridlock=None if working else _gridlock(tx, project_id),
    )
    return rule.prospects(_with_stopped(tx, scene), tx.now_ms)


def _is_ready(tx: Transaction, project_id: str, agent_id: str | None, capabilities: Sequence[str] | None) -> bool:
    """Whether a claim would be given something now."""
    sets = claims.fitting_sets(tx, project_id, capabilities)
    values = {"project_id": project_id, "agent_id": agent_id or "", "sets": sets}
    return tx.one("kept_for", **values) is not None or tx.one("ready", **values) is not None


def _first(tx: Transaction, project_id: str, status: str, limit: int) -> list[Task]:
    return [Task(**row) for row in tx.all("first_of_status", project_id=project_id, status=status, limit=limit)]


def _with_stopped(tx: Transaction, scene: rule.Scene) -> rule.Scene:
    """The scene with the names and reasons of what only a person can set going again."""
    return scene.replace(
        blocked={task.task_id: task.blocked_reason for task in _first(tx, scene.project_id, "blocked", NAMED)},
        dead={task.task_id: task.blocked_reason for task in _first(tx, scene.project_id, "dead", NAMED)},
    )


def _holdings(tx: Transaction, tasks: Sequence[Task]) -> list[tuple[Task, Lease]]:
    """Each lease on these tasks that nobody has ended, with its task."""
    if not tasks:
        return []
    by_key = {task.key: task for task in tasks}
    leases = [Lease(**row) for row in tx.all("unended_of_tasks", keys=_json(by_key))]
    return [(by_key[lease.task_key], lease) for lease in leases]


def _json(keys: Iterable[int]) -> str:
    return "[" + ",".join(map(str, keys)) + "]"


def _held(
    tx: Transaction, task: Task, lease: Lease, settings: Settings, capabilities: Sequence[str] | None
) -> rule.Held:
    announced_ms = announcement_ms(lease)
    return rule.Held(
        task_id=task.task_id,
        holder=lease.agent_id,
        granted_at_ms=lease.granted_at_ms,
        progress=lease.progress,
        returns_at_ms=_returns_at_ms(tx, task, lease, settings) if satisfies(task.requires, capabilities) else None,
        announced_until_ms=announced_ms if announced_ms > max(rule_ms(lease), tx.now_ms) else None,
    )


def _returns_at_ms(tx: Transaction, task: Task, lease: Lease, settings: Settings) -> int | None:
    """When the task would be on offer again if its holder stayed silent; None if its end would not put it there."""
    now_ms = tx.now_ms
    end_ms = max(lease.recover_at_ms, now_ms)
    if live(lease, now_ms) and is_deaf(lease, now_ms) and lease.recover_at_ms <= now_ms:
        # Nobody could hear this holder; it is looked at again when its server may have been heard.
        end_ms = max(now_ms, min(now_ms + PULSE_VALID_MS, lease.recover_at_ms + lease.hung_after_ms))
    elif lease.pulsed_at_ms is not None and not lease.fixed and now_ms < lease.pulsed_at_ms + PULSE_VALID_MS:
        # Its link shows it to be alive, and will go on doing so for as long as a link is believed.
        end_ms = max(end_ms, lease.seen_at_ms + lease.hung_after_ms)
        if lease.death_at_ms is not None:
            end_ms = max(now_ms, min(end_ms, lease.death_at_ms))
    if lease.state == "offered":
        return end_ms
    verdict = recovery_rules.after_recovery(task, recovery.profile_of(lease, settings), end_ms)
    if verdict.status != "todo" or task.unmet:
        return None
    return max(end_ms, verdict.retry_at_ms, task.not_before_ms)


def _offers(
    tx: Transaction, project_id: str, agent_id: str | None, settings: Settings, capabilities: Sequence[str] | None
) -> list[rule.Held]:
    """Todo tasks that are offered to someone: free again when the offer lapses."""
    found = [Lease(**row) for row in tx.all("near_offers", project_id=project_id, seen=TIMERS_SEEN)]
    return [
        _held(tx, load.task_by_key(tx, lease.task_key), lease, settings, capabilities)
        for lease in found[:NAMED]
        if lease.agent_id != agent_id
    ]


def _waits(
    tx: Transaction, project_id: str, agent_id: str | None, capabilities: Sequence[str] | None
) -> dict[str, int]:
    """Todo tasks that wait for nothing but a time, nearest first."""
    rows = tx.all("near_waits", project_id=project_id, agent_id=agent_id or "", seen=TIMERS_SEEN)
    waiting = [Task(**row) for row in rows]
    return {task.task_id: ready_from_ms(task) for task in waiting if satisfies(task.requires, capabilities)}


def _locked(
    tx: Transaction, working: Sequence[Task], agent_id: str | None, capabilities: Sequence[str] | None
) -> list[rule.Locked]:
    """Todo tasks that wait for tasks in progress, and for how many others besides."""
    names = {task.key: task.task_id for task in working}
    rows = tx.all("locked_by", keys=_json(names), limit=LOCKED_SEEN) if working else []
    needs: dict[str, list[str]] = {}
    unmet: dict[str, int] = {}
    for row in rows:
        if satisfies(row["requires"], capabilities) and row["assigned_to"] in (None, agent_id):
            needs.setdefault(row["task_id"], []).append(names[row["needs_key"]])
            unmet[row["task_id"]] = row["unmet"]
    return [
        rule.Locked(task_id=task_id, needs=tuple(needed), others=max(0, unmet[task_id] - len(needed)))
        for task_id, needed in needs.items()
    ]


def _gridlock(tx: Transaction, project_id: str) -> Gridlock | None:
    """The finding on a project in which nothing is in progress, if it is small enough to be judged at once."""
    row = tx.one("count_unfinished", project_id=project_id, limit=JUDGED_AT_MOST + 1)
    if row is None or row["n"] > JUDGED_AT_MOST:
        return None
    judged = observe.gridlock.body(tx, project_id=project_id)
    assert not isinstance(judged, Refused)
    return judged
