"""Looking: lists, one task, what is ready, statistics, gridlock, events. Reads are advice; only a write decides.

A lease that is not live any more is shown as gone, although nobody has written its recovery yet.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core import recovery as rules
from tenure.core.assignment import open_slots
from tenure.core.deadline import CLOSE_PART, live, shown_status
from tenure.core.errors import Refused
from tenure.core.gridlock import Node
from tenure.core.gridlock import gridlock as find_gridlock
from tenure.core.model import DEFAULT_PROJECT, STATUSES, Event, Lease, Task
from tenure.core.record import Record
from tenure.engine import load
from tenure.engine.dependencies import Edge
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tenure.core.gridlock import Gridlock
    from tenure.core.model import Handoff, Message, Status
    from tenure.store.store import Transaction

_NAMED = {"task_id": inputs.ident, "project_id": inputs.optional(inputs.ident)}
DAY_MS = 86_400_000


class TaskView(Record):
    """A task as it should be seen now."""

    task: Task
    # Derived: a task whose holder is dead is todo, and `due` says that its recovery has not been written yet.
    status: Status
    due: bool = False
    # Live leases: one, or one per slot; an offer shows as a todo task with a holder pending.
    leases: tuple[Lease, ...] = ()


class TaskPage(Record):
    """A page of tasks, the cursor after which the next begins (None: this was the last), and the time of the look."""

    views: tuple[TaskView, ...]
    next_after: int | None
    now_ms: int


_LISTED: dict[str, inputs.Check] = {
    "project_id": inputs.optional(inputs.ident),
    "status": inputs.optional(inputs.status),
    "kind": inputs.optional(inputs.kind),
    "assigned_to": inputs.optional(inputs.text(128, one_line=True)),
    "text": inputs.optional(inputs.line),
    "after": inputs.cursor,
    "limit": inputs.limit,
}


@query(**_LISTED)
def list_page(
    tx: Transaction,
    *,
    project_id: str | None = None,
    status: Status | None = None,
    kind: str | None = None,
    assigned_to: str | None = None,
    text: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> TaskPage | Refused:
    """Tasks in the order they were added, a page at a time.

    The status asked for is the derived one; since that is judged row by row, a page may come up short of its limit.
    """
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    rows = tx.all(
        "list_tasks",
        project_id=project_id,
        status=status,
        kind=kind,
        assigned_to=assigned_to,
        text=None if text is None else _like(text),
        now_ms=tx.now_ms,
        after=after,
        limit=limit,
    )
    views = views_of(tx, [Task(**row) for row in rows])
    return TaskPage(
        views=tuple(view for view in views if status is None or view.status == status),
        next_after=rows[-1]["key"] if len(rows) == limit else None,
        now_ms=tx.now_ms,
    )


def _like(text: str) -> str:
    """A LIKE pattern for a text anywhere."""
    return "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


@query(**_LISTED)
def list_tasks(tx: Transaction, /, **filters: Any) -> tuple[TaskView, ...] | Refused:
    """The tasks of one page, for who needs no cursor."""
    page = list_page.body(tx, **filters)
    return page if isinstance(page, Refused) else page.views


def views_of(tx: Transaction, tasks: Sequence[Task]) -> list[TaskView]:
    """Tasks as they should be seen, with one query for all their leases."""
    if not tasks:
        return []
    keys = "[" + ",".join(str(task.key) for task in tasks) + "]"
    leases: dict[int, list[Lease]] = {}
    for row in tx.all("unended_of_tasks", keys=keys):
        leases.setdefault(row["task_key"], []).append(Lease(**row))
    return [view_of(task, leases.get(task.key, []), tx.now_ms) for task in tasks]


def view_of(task: Task, leases: Sequence[Lease], now_ms: int) -> TaskView:
    status, due = shown_status(task, leases, now_ms)
    return TaskView(task=task, status=status, due=due, leases=tuple(lease for lease in leases if live(lease, now_ms)))


class TaskDetail(Record):
    """Everything there is to see of one task."""

    view: TaskView
    needs: tuple[Edge, ...]
    dependants: tuple[str, ...]
    handoffs: tuple[Handoff, ...]
    messages: tuple[Message, ...]
    now_ms: int


@query(**_NAMED)
def show_task(tx: Transaction, *, task_id: str, project_id: str | None = None) -> TaskDetail | Refused:
    """One task, what it needs, who needs it, its handoffs and the end of its thread."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    return TaskDetail(
        view=views_of(tx, [task])[0],
        needs=tuple(
            Edge(task_id=task_id, needs=row["needs_id"], missing=row["status"] is None)
            for row in tx.all("needs_of", task_key=task.key)
        ),
        dependants=tuple(row["task_id"] for row in tx.all("dependants_of", task_key=task.key)),
        handoffs=tuple(load.handoffs_of(tx, task.key)),
        messages=tuple(load.thread_of(tx, task.key)),
        now_ms=tx.now_ms,
    )


@query(project_id=inputs.ident, limit=inputs.limit)
def ready_tasks(
    tx: Transaction, *, project_id: str = DEFAULT_PROJECT, limit: int = 20
) -> tuple[TaskView, ...] | Refused:
    """What could be claimed now, best first: the ready index, tasks whose wait is over, and dead holders' tasks."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    found = {row["key"]: Task(**row) for row in tx.all("ready_list", project_id=project_id, limit=limit)}
    for row in tx.all("overdue_waits", project_id=project_id, now_ms=tx.now_ms, limit=limit):
        found.setdefault(row["key"], Task(**row))
    for row in tx.all("due_leases", project_id=project_id, now_ms=tx.now_ms, limit=limit):
        lease = Lease(**row)
        if not live(lease, tx.now_ms) and _returns_now(tx, lease):
            found.setdefault(lease.task_key, load.task_by_key(tx, lease.task_key))
    ordered = sorted(found.values(), key=lambda task: (task.rank_ms, task.key))
    return tuple(views_of(tx, ordered[:limit]))


def _returns_now(tx: Transaction, lease: Lease) -> bool:
    """Whether the recovery of this dead holder will put its task on offer at once."""
    task = as_recovered(tx, load.task_by_key(tx, lease.task_key), lease)
    return open_slots(task, 0) > 0 and task.unmet == 0 and not task.waiting


def as_recovered(tx: Transaction, task: Task, lease: Lease) -> Task:
    """The task as the recovery of this dead holder, its only one, will leave it. Nothing is written."""
    # Imported here because it brings the ledger, which a command that only looks does not need.
    from tenure.engine import recovery

    if lease.state == "offered":
        return task
    settings = load.settings_for(tx, task.project_id)
    assert not isinstance(settings, Refused)
    verdict = rules.after_recovery(task, recovery.profile_of(lease, settings), tx.now_ms)
    return task.replace(
        status=verdict.status,
        assigned_to=None,
        owner=None,
        retry_at_ms=verdict.retry_at_ms,
        waiting=int(max(task.not_before_ms, verdict.retry_at_ms) > tx.now_ms),
        blocked_reason=verdict.blocked_reason,
    )


class Statistics(Record):
    """Counts that a health check wants. `expired`: past expires_at and not recovered yet."""

    active: int
    offered: int
    expiring_soon: int
    expired: int
    # Not live any more and not recovered yet: shown as todo.
    due: int
    stuck: int
    over_max: int
    average_renewals: float
    max_renewals: int
    recoveries: int
    false_recoveries: int
    agents: int
    tasks: dict[str, int]


@query(project_id=inputs.optional(inputs.ident))
def statistics(tx: Transaction, *, project_id: str | None = None) -> Statistics | Refused:
    """The specification's get_statistics, and what else is worth watching."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    leases = tx.one("lease_statistics", project_id=project_id, now_ms=tx.now_ms, close_part=CLOSE_PART)
    assert leases is not None
    counters = {row["name"]: row["value"] for row in tx.all("counters")}
    agents = tx.one("count_agents", project_id=project_id)
    assert agents is not None
    tasks = dict.fromkeys(STATUSES, 0)
    tasks.update({row["status"]: row["n"] for row in tx.all("count_tasks", project_id=project_id)})
    # Counted as they should be seen: a dead holder's task is todo before its recovery is written.
    due_tasks = leases["due_tasks"] or 0
    tasks["in_progress"] -= due_tasks
    tasks["todo"] += due_tasks
    return Statistics(
        **{
            name: leases[name] or 0
            for name in ("active", "offered", "expiring_soon", "expired", "due", "stuck", "over_max")
        },
        average_renewals=round(leases["average_renewals"] or 0.0, 2),
        max_renewals=leases["max_renewals"] or 0,
        recoveries=counters.get("recoveries", 0),
        false_recoveries=counters.get("false_recoveries", 0),
        agents=agents["n"],
        tasks=tasks,
    )


@query(project_id=inputs.ident)
def gridlock(tx: Transaction, *, project_id: str = DEFAULT_PROJECT) -> Gridlock | Refused:
    """Whether anything can still move, and what stands in the way, by name."""
    settings = load.settings_for(tx, project_id)
    if isinstance(settings, Refused):
        return settings
    needs: dict[int, list[str]] = {}
    for row in tx.all("unfinished_edges", project_id=project_id):
        needs.setdefault(row["task_key"], []).append(row["needs_id"])
    unfinished = [Task(**row) for row in tx.all("unfinished", project_id=project_id)]
    nodes = [
        Node(
            task_id=view.task.task_id,
            # The reserved owner has a task from the start; while others must come first, nobody is at work on it.
            status="todo" if view.task.owner == "internal" and view.task.unmet else view.status,
            needs=tuple(needs.get(view.task.key, ())),
            blocked_reason=view.task.blocked_reason,
            waiting_until_ms=max(view.task.not_before_ms, view.task.retry_at_ms) if view.task.waiting else 0,
        )
        for view in views_of(tx, unfinished)
    ]
    return find_gridlock(nodes)


@query(
    after=inputs.cursor,
    limit=inputs.limit,
    project_id=inputs.optional(inputs.ident),
    task_id=inputs.optional(inputs.ident),
    agent_id=inputs.optional(inputs.ident),
)
def events(
    tx: Transaction,
    *,
    after: int = 0,
    limit: int = 100,
    project_id: str | None = None,
    task_id: str | None = None,
    agent_id: str | None = None,
) -> tuple[Event, ...] | Refused:
    """Events after a sequence number, in order. A reader that keeps the last one it saw misses none."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    rows = tx.all("events", after=after, limit=limit, project_id=project_id, task_id=task_id, agent_id=agent_id)
    return tuple(Event(**row) for row in rows)


@query()
def newest_event(tx: Transaction) -> int:
    """The sequence number of the newest event, 0 before the first: where a reader of only the new begins."""
    row = tx.one("newest_event")
    return 0 if row is None else int(row["seq"])


class Pruned(Record):
    """What was forgotten."""

    events: int
    idempotency_keys: int
    links: int


@verb(limit=inputs.limit)
def prune(tx: Transaction, *, limit: int = 1_000) -> Pruned:
    """Forget events, idempotency keys and links past their time, a bounded number at once. Receipts stay for ever."""
    settings = load.settings_for(tx, DEFAULT_PROJECT)
    assert not isinstance(settings, Refused)
    keys = 0
    for project in tx.all("projects"):
        own = load.settings_for(tx, project["project_id"])
        assert not isinstance(own, Refused)
        before_ms = tx.now_ms - round(own.idempotency_hours * 3_600_000)
        keys += tx.do("prune_idempotency", project_id=project["project_id"], before_ms=before_ms, limit=limit)
    return Pruned(
        events=tx.do("prune_events", before_ms=tx.now_ms - settings.event_retention_days * DAY_MS, limit=limit),
        idempotency_keys=keys,
        links=tx.do("prune_links", before_ms=tx.now_ms - DAY_MS, limit=limit),
    )
