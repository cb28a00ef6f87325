"""Reads that several verbs share: rows become records here and nowhere else."""

from __future__ import annotations

from tenure.core.deadline import live
from tenure.core.errors import Refused, refuse
from tenure.core.model import Agent, Handoff, Lease, Message, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

THREAD_SHOWN = 20


def task_named(tx: Transaction, task_id: str, project_id: str | None) -> Task | Refused:
    """The task a user means. Without a project the name must be unique in the store."""
    found = [Task.from_row(row) for row in tx.all("tasks_named", task_id=task_id, project_id=project_id)]
    if len(found) == 1:
        return found[0]
    if not found:
        where = f" in project {project_id}" if project_id else ""
        return refuse("task_not_found", f"There is no task {task_id}{where}.", task_id=task_id)
    projects = [task.project_id for task in found]
    return refuse(
        "ambiguous_task", f"Task {task_id} exists in {' and '.join(projects)}.", task_id=task_id, projects=projects
    )


def task_by_key(tx: Transaction, key: int) -> Task:
    """A task that is known to exist, as it stands now."""
    row = tx.one("task_by_key", key=key)
    assert row is not None
    return Task.from_row(row)


def agent_named(tx: Transaction, agent_id: str) -> Agent | None:
    return tx.memory.recall("agents", agent_id, lambda: _agent(tx, agent_id))


def _agent(tx: Transaction, agent_id: str) -> Agent | None:
    row = tx.one("agent_named", agent_id=agent_id)
    return None if row is None else Agent.from_row(row)


def lease_by_id(tx: Transaction, lease_id: str) -> Lease | None:
    row = tx.one("lease_by_id", lease_id=lease_id)
    return None if row is None else Lease.from_row(row)


def unended_of_task(tx: Transaction, task_key: int) -> list[Lease]:
    """The leases of a task that nobody has ended yet, live or due, in the order of their slots."""
    return [Lease.from_row(row) for row in tx.all("unended_of_task", task_key=task_key)]


def unended_of_agent(tx: Transaction, agent_id: str) -> list[Lease]:
    return [Lease.from_row(row) for row in tx.all("unended_of_agent", agent_id=agent_id)]


def live_of_task(tx: Transaction, task_key: int) -> list[Lease]:
    return [lease for lease in unended_of_task(tx, task_key) if live(lease, tx.now_ms)]


def unmet_ids(tx: Transaction, task: Task) -> list[str]:
    """The names of the dependencies that are not done, missing ones included."""
    return [row["needs_id"] for row in tx.all("unmet_of", task_key=task.key)] if task.unmet else []


def handoffs_of(tx: Transaction, task_key: int) -> list[Handoff]:
    """The open, unexpired handoffs of a task, newest first."""
    return [Handoff.from_row(row) for row in tx.all("open_handoffs", task_key=task_key, now_ms=tx.now_ms)]


def thread_of(tx: Transaction, task_key: int, after: int = 0, limit: int = THREAD_SHOWN) -> list[Message]:
    """The newest messages of a thread after a sequence number, in order."""
    rows = tx.all("thread", task_key=task_key, after=after, limit=limit)
    return [Message.from_row(row) for row in reversed(rows)]


def settings_for(tx: Transaction, project_id: str) -> Settings | Refused:
    """The settings in force in a project: the defaults, the store's overrides, the project's."""
    row = tx.memory.recall("settings", project_id, lambda: tx.one("settings_of", project_id=project_id))
    if row is None:
        return refuse("project_not_found", f"There is no project {project_id}.", project_id=project_id)
    return _parsed(row["store"], row["project"])


def next_wake_ms(tx: Transaction) -> int | None:
    """The nearest timer. Within a batch it may be one that was since moved up, never a later one."""
    return tx.memory.recall("timers", "next", lambda: _first_timer(tx))


def _first_timer(tx: Transaction) -> int | None:
    row = tx.one("next_wake")
    return None if row is None else row["wake_at_ms"]


def unknown_project(tx: Transaction, project_id: str | None) -> Refused | None:
    """The refusal of a project that does not exist: an empty answer would hide a misspelt name."""
    if project_id is None or tx.one("project", project_id=project_id) is not None:
        return None
    return refuse("project_not_found", f"There is no project {project_id}.", project_id=project_id)


_SETTINGS: dict[tuple[str, str], Settings] = {}


def _parsed(store: str, project: str) -> Settings:
    """Stored overrides, parsed once per text: they were checked when they were set."""
    settings = _SETTINGS.get((store, project))
    if settings is None:
        from tenure.core.settings import DEFAULTS, merge_overrides

        if store == project == "{}":
            settings = DEFAULTS
        else:
            import json

            parsed = merge_overrides(json.loads(store), json.loads(project))
            assert not isinstance(parsed, Refused), parsed
            settings = parsed
        _SETTINGS[store, project] = settings
    return settings
