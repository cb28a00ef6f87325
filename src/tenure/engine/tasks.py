"""Tasks: add, edit, unblock, reopen, requeue, delete. What holders do to them is in claims, liveness and endings."""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.assignment import MAX_REQUIREMENT_SETS, open_slots, rank_ms, ready_from_ms, requirement_set
from tenure.core.errors import Refused, refuse
from tenure.core.ids import short_id
from tenure.core.model import DEFAULT_PROJECT, Task
from tenure.core.recovery import evidence_of
from tenure.engine import change, dependencies, endings, holding, ledger, load, recovery
from tenure.engine.verb import verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

# What a user may say about a task when adding it, each with its check.
FIELDS: dict[str, inputs.Check] = {
    "task_id": inputs.optional(inputs.ident),
    "title": inputs.title,
    "body": inputs.body,
    "kind": inputs.kind,
    "priority": inputs.priority,
    "complexity": inputs.complexity,
    "estimated_hours": inputs.number(0.01, 10_000),
    "requires": inputs.capabilities,
    "after": inputs.each(inputs.ident, most=1_000),
    "assigned_to": inputs.optional(inputs.text(128, one_line=True, required=True)),
    "not_before_ms": inputs.moment_ms,
    "lease_duration_s": inputs.optional(inputs.ttl_s),
    "max_attempts": inputs.optional(inputs.whole(1, 1_000)),
    "slots": inputs.whole(1, 16),
    "principal_ai": inputs.text(256, one_line=True),
    "payload_pointer": inputs.text(4096, one_line=True),
    "inputs": inputs.json_object(inputs.INPUTS_MAX),
    "expected_outcome_kind": inputs.text(256, one_line=True),
    "expected_artifact_mime": inputs.text(256, one_line=True),
    "dedupe_key": inputs.key,
}
_EDITABLE = (
    "title",
    "body",
    "kind",
    "priority",
    "complexity",
    "estimated_hours",
    "requires",
    "not_before_ms",
    "lease_duration_s",
    "max_attempts",
    "principal_ai",
    "payload_pointer",
    "inputs",
    "expected_outcome_kind",
    "expected_artifact_mime",
)


@verb(**FIELDS, project_id=inputs.ident, allow_missing=inputs.flag)
def add_task(
    tx: Transaction, /, *, project_id: str = DEFAULT_PROJECT, allow_missing: bool = False, **fields: Any
) -> Task | Refused:
    """Add one task. It is ready as soon as everything it comes `after` is done."""
    if "title" not in fields:
        return inputs.bad("title", "is missing")
    added = tx.attempt(lambda: _add_all(tx, project_id, [fields], allow_missing))
    return added if isinstance(added, Refused) else added[0]


def _task_list(name: str, value: Any) -> Any:
    """Check a list of tasks, each an object of FIELDS."""
    if not isinstance(value, list | tuple):
        return inputs.bad(name, f"must be a list, not {inputs.shown(value)}")
    if len(value) > inputs.MANY_MAX:
        return inputs.bad(name, f"has {len(value)} entries; the most at once is {inputs.MANY_MAX}")
    checked = []
    for index, entry in enumerate(value):
        good = _task_fields(f"{name}[{index}]", entry)
        if isinstance(good, Refused):
            return good
        checked.append(good)
    return checked


def _task_fields(name: str, entry: Any) -> dict[str, Any] | Refused:
    if not isinstance(entry, dict):
        return inputs.bad(name, f"must be an object, not {inputs.shown(entry)}")
    unknown = [field for field in entry if field not in FIELDS]
    if unknown:
        return inputs.bad(f"{name}.{inputs.shown(unknown[0])}", "is not a field of a task")
    if "title" not in entry:
        return inputs.bad(f"{name}.title", "is missing")
    fields = {}
    for field, value in entry.items():
        good = FIELDS[field](f"{name}.{field}", value)
        if isinstance(good, Refused):
            return good
        fields[field] = good
    return fields


@verb(tasks=_task_list, project_id=inputs.ident, allow_missing=inputs.flag)
def add_tasks(
    tx: Transaction,
    *,
    tasks: Sequence[Mapping[str, Any]],
    project_id: str = DEFAULT_PROJECT,
    allow_missing: bool = False,
) -> tuple[Task, ...] | Refused:
    """Add many tasks at once, all or none. They may come after each other in any order."""
    return tx.attempt(lambda: _add_all(tx, project_id, tasks, allow_missing))


def _add_all(
    tx: Transaction, project_id: str, tasks: Sequence[Mapping[str, Any]], allow_missing: bool
) -> tuple[Task, ...] | Refused:
    # New edges are added one request after the other; names beside each other, but not beside edges that may need them.
    tx.lock(
        "edges" if allow_missing or any(fields.get("after") for fields in tasks) else "names", project_id=project_id
    )
    new_id = _add_ahead(tx, project_id, tasks[0]) if len(tasks) == 1 else None
    settings = load.settings_for(tx, project_id)
    if isinstance(settings, Refused):
        return settings
    added: list[Task] = []
    edges: list[tuple[Task, Sequence[str]]] = []
    for fields in tasks:
        known = _known(tx, project_id, fields)
        if known is not None:
            if isinstance(known, Refused):
                return known
            added.append(known)
            continue
        task = _add(tx, project_id, fields, settings, new_id)
        if isinstance(task, Refused):
            return task
        added.append(task)
        edges.append((task, fields.get("after", ())))
    for task, after in edges:
        refused = dependencies.connect(tx, task, after, allow_missing=allow_missing)
        if refused is not None:
            return refused
    # The edges were counted in the database.
    counted = {task.key for task, after in edges if after}
    return tuple(load.task_by_key(tx, task.key) if task.key in counted else task for task in added)


def _add_ahead(tx: Transaction, project_id: str, fields: Mapping[str, Any]) -> str | None:
    """Announce what the addition of a task will ask. Answers the name that it will first try."""
    task_id = fields.get("task_id")
    if not task_id and not fields.get("dedupe_key"):
        task_id = _random_id(tx)
    requires = requirement_set(fields.get("requires", ()))
    if task_id:
        tx.ahead_of_task(task_id, project_id=project_id, requires=requires)
    return task_id


def _known(tx: Transaction, project_id: str, fields: Mapping[str, Any]) -> Task | Refused | None:
    """The task that an earlier request with this dedupe_key made."""
    key = fields.get("dedupe_key")
    row = tx.one("task_by_dedupe_key", project_id=project_id, dedupe_key=key) if key else None
    if row is None:
        return None
    task = Task(**row)
    same = all(getattr(task, name) == fields.get(name, getattr(Task, name, "")) for name in ("title", "body", "kind"))
    if same and fields.get("task_id") in (None, task.task_id):
        return task
    return refuse("dedupe_conflict", f"The dedupe_key {key!r} belongs to {task.task_id}.", task_id=task.task_id)


def _add(
    tx: Transaction, project_id: str, fields: Mapping[str, Any], settings: Settings, new_id: str | None = None
) -> Task | Refused:
    task_id = fields.get("task_id") or _new_id(tx, project_id, new_id)
    if fields.get("task_id") and tx.all("tasks_named", task_id=task_id, project_id=project_id):
        return refuse("task_exists", f"There is already a task {task_id} in {project_id}.", task_id=task_id)
    requires = requirement_set(fields.get("requires", ()))
    refused = _know_requirements(tx, project_id, requires)
    if refused is not None:
        return refused
    grave = tx.one("grave", task_id=task_id, project_id=project_id)
    plain = {name: value for name, value in fields.items() if name not in ("after", "requires", "assigned_to")}
    task = Task(
        **{
            **plain,
            "key": 0,
            "project_id": project_id,
            "task_id": task_id,
            "requires": requires,
            "created_at_ms": tx.now_ms,
            "updated_at_ms": tx.now_ms,
            "last_token": grave["last_token"] if grave and grave["last_token"] else 0,
            **_ownership(tx, fields.get("assigned_to"), settings),
        }
    )
    waiting = int(task.not_before_ms > tx.now_ms and task.status == "todo")
    task = task.replace(rank_ms=rank_ms(task), open_slots=open_slots(task, 0), waiting=waiting)
    row = tx.one("add_task", **task.as_dict())
    assert row is not None
    task = task.replace(key=row["key"])
    if waiting:
        change.set_timer(tx, "task", str(task.key), task.not_before_ms)
    change.record(tx, "task_added", task=task, title=task.title)
    return task


def _new_id(tx: Transaction, project_id: str, first: str | None) -> str:
    """A name that no task has: the first, if it is not taken."""
    task_id = first or _random_id(tx)
    while tx.all("tasks_named", task_id=task_id, project_id=project_id):
        task_id = _random_id(tx)
    return task_id


def _random_id(tx: Transaction) -> str:
    return short_id("T-", tx.random(8))


def _know_requirements(tx: Transaction, project_id: str, requires: str) -> Refused | None:
    """Note a capability set. Their number is bounded because claim-next seeks each of them."""
    if tx.one("requirement_set", project_id=project_id, requires=requires) is not None:
        return None
    if _sets_of(tx, project_id) >= MAX_REQUIREMENT_SETS:
        tx.do("forget_requirement_sets", project_id=project_id)
    if requires and _sets_of(tx, project_id) >= MAX_REQUIREMENT_SETS:
        message = f"Project {project_id} already has {MAX_REQUIREMENT_SETS} different capability sets."
        return refuse("too_many_requirement_sets", message, project_id=project_id)
    tx.do("add_requirement_set", project_id=project_id, requires=requires)
    return None


def _sets_of(tx: Transaction, project_id: str) -> int:
    count = tx.one("count_requirement_sets", project_id=project_id)
    assert count is not None
    return int(count["n"])


def _ownership(tx: Transaction, name: str | None, settings: Settings) -> dict[str, Any]:
    """What is changed of a task that belongs to `name`: the reserved owner and outsiders have it in progress; for a
    registered agent it is kept."""
    if name is None:
        return {"assigned_to": None, "owner": None, "status": "todo"}
    if name == settings.reserved_owner:
        return {"assigned_to": name, "owner": "internal", "status": "in_progress"}
    if load.agent_named(tx, name) is not None:
        return {"assigned_to": name, "owner": "agent", "status": "todo"}
    return {"assigned_to": name, "owner": "external", "status": "in_progress"}


_NAMED = {"task_id": inputs.ident, "project_id": inputs.optional(inputs.ident)}


@verb(**_NAMED, **{name: FIELDS[name] for name in _EDITABLE})
def edit_task(tx: Transaction, /, *, task_id: str, project_id: str | None = None, **fields: Any) -> Task | Refused:
    """Change what a task says about itself. Its state is not edited; verbs change it."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    if "requires" in fields:
        fields["requires"] = requirement_set(fields["requires"])
        refused = _know_requirements(tx, task.project_id, fields["requires"])
        if refused is not None:
            return refused
    edited = task.replace(**fields)
    edited = edited.replace(rank_ms=rank_ms(edited))
    tx.do("edit_task", **edited.as_dict())
    change.save_task(tx, edited, unended=len(load.unended_of_task(tx, task.key)))
    change.record(tx, "task_edited", task=task, fields=sorted(fields))
    return load.task_by_key(tx, task.key)


@verb(**_NAMED, assigned_to=FIELDS["assigned_to"], by=inputs.line)
def assign_task(
    tx: Transaction, *, task_id: str, assigned_to: str | None, project_id: str | None = None, by: str = "operator"
) -> Task | Refused:
    """Give a task that nobody holds to a name, or to nobody. A registered agent has it kept; others own it."""
    task = _unheld(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    if task.status not in ("todo", "in_progress"):
        return refuse("wrong_state", f"Task {task_id} is {task.status}.", task_id=task_id, status=task.status)
    task = change.save_task(tx, task, unended=0, **_ownership(tx, assigned_to, holding.settings_of(tx, task)))
    change.record(tx, "assigned", task=task, agent_id=by, assigned_to=assigned_to)
    return task


@verb(**_NAMED, by=inputs.line, note=inputs.body)
def unblock_task(
    tx: Transaction, *, task_id: str, project_id: str | None = None, by: str = "operator", note: str = ""
) -> Task | Refused:
    """What blocked the task is resolved: it returns to the queue, and a quarantine is lifted."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    if task.status != "blocked":
        return refuse("wrong_state", f"Task {task_id} is {task.status}, not blocked.", task_id=task_id)
    if note:
        recovery.post(tx, task, sender=by, text=note)
    task = task.replace(status="todo", silent_recoveries=0, blocked_reason="")
    task = change.save_task(tx, task, unended=0)
    change.record(tx, "unblocked", task=task, agent_id=by)
    return task


@verb(**_NAMED, by=inputs.line, note=inputs.body)
def reopen_task(
    tx: Transaction, *, task_id: str, project_id: str | None = None, by: str = "operator", note: str = ""
) -> Task | Refused:
    """A done task is not done after all: it returns to the queue and its dependants wait for it again."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    if task.status != "done":
        return refuse("wrong_state", f"Task {task_id} is {task.status}, not done.", task_id=task_id)
    if note:
        recovery.post(tx, task, sender=by, text=note)
    tx.do("lock_dependants", task_key=task.key)
    task = task.replace(
        status="todo",
        assigned_to=None,
        owner=None,
        outcome="",
        done_at_ms=None,
        progress=0,
        attempts=0,
        silent_recoveries=0,
    )
    task = task.replace(evidence=evidence_of(task, ""))
    task = change.save_task(tx, task, unended=0)
    change.record(tx, "reopened", task=task, agent_id=by)
    return task


@verb(**_NAMED, by=inputs.line)
def requeue_task(
    tx: Transaction, *, task_id: str, project_id: str | None = None, by: str = "operator"
) -> Task | Refused:
    """Give a dead, blocked or waiting task a new start, with all its attempts, now."""
    task = _unheld(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    # A done task with a time ahead of it is not waiting; to undo it is `reopen`, which locks its dependants again.
    waits = task.status != "done" and ready_from_ms(task) > tx.now_ms
    if task.status not in ("dead", "blocked") and not waits:
        message = f"Task {task_id} is {task.status}; only a dead, blocked or waiting task can be requeued."
        return refuse("wrong_state", message, task_id=task_id, status=task.status)
    requeued = task.replace(
        status="todo" if task.owner is None or task.owner == "agent" else task.status,
        attempts=0,
        silent_recoveries=0,
        blocked_reason="",
        outcome="",
        retry_at_ms=0,
        not_before_ms=min(task.not_before_ms, tx.now_ms),
    )
    requeued = requeued.replace(rank_ms=rank_ms(requeued))
    if requeued.rank_ms != task.rank_ms:
        tx.do("edit_task", **requeued.as_dict())
    requeued = change.save_task(tx, requeued, unended=0)
    change.record(tx, "requeued", task=requeued, agent_id=by)
    return requeued


@verb(**_NAMED, by=inputs.line, force=inputs.flag)
def delete_task(
    tx: Transaction, *, task_id: str, project_id: str | None = None, by: str = "operator", force: bool = False
) -> Task | Refused:
    """Remove a task. Its receipts stay. Dependants of a task deleted by force wait for a name that is missing."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    task, held = recovery.recover_due(tx, task)
    if held and not force:
        message = f"Task {task_id} is held by {held[0].agent_id}."
        return refuse("task_held", message, task_id=task_id, holder=held[0].agent_id)
    waiting = [row["task_id"] for row in tx.all("dependants_of", task_key=task.key)]
    if waiting and not force:
        message = f"{', '.join(waiting[:5])} depend on {task_id}."
        return refuse("has_dependants", message, task_id=task_id, dependants=waiting)
    if held:
        revoked = endings.revoke_leases(tx, task, "deleted", by=by, message="")
        assert not isinstance(revoked, Refused)
        task = revoked.task
    if task.status == "done":
        tx.do("lock_dependants", task_key=task.key)
    if task.obligation in ("open", "overdue"):
        # Whoever accepted it is released from it, for good: an obligation never ends without a word.
        settings = holding.settings_of(tx, task)
        task = ledger.escalate(tx, task, "revoked", settings=settings, lease=None, terminal=True)
    change.record(tx, "task_deleted", task=task, agent_id=by, title=task.title)
    tx.do("bury", **task.as_dict(), now_ms=tx.now_ms)
    tx.do("drop_timer", kind="task", ref=str(task.key))
    tx.do("delete_task", key=task.key)
    return task


def _unheld(tx: Transaction, task_id: str, project_id: str | None) -> Task | Refused:
    """A task that has no live lease, after recovering one that is due."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    task, held = recovery.recover_due(tx, task)
    if held:
        message = f"Task {task_id} is held by {held[0].agent_id}."
        return refuse("task_held", message, task_id=task_id, holder=held[0].agent_id)
    return task
