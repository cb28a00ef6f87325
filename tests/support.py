"""What tests share: a fleet on a manual clock, and unwrapping of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.core.model import Agent, Lease, Task
from tenure.engine import agents, claims, tasks
from tenure.store.sqlite import SqliteStore
from tenure.store.store import Store

T = TypeVar("T")


def ok(answer: T | Refused) -> T:
    """The answer of a verb that must not refuse."""
    assert not isinstance(answer, Refused), f"{answer.code}: {answer.message}"
    return answer


def refused(answer: object, code: str) -> Refused:
    """The refusal of a verb that must refuse with this code, and say what to do."""
    assert isinstance(answer, Refused), f"expected {code}, got {answer!r}"
    assert answer.code == code, f"expected {code}, got {answer.code}: {answer.message}"
    assert answer.message
    assert answer.next
    return answer


def opened_on(database: str, directory: Path, clock: ManualClock) -> Any:
    """An empty store on one of the two databases."""
    if database == "sqlite":
        return SqliteStore(str(directory / "tenure.db"), clock=clock)
    # Imported here because psycopg is there for PostgreSQL alone.
    from tests.postgres.support import ProbedPostgres, empty_url

    return ProbedPostgres(empty_url(), clock=clock)


def add(store: Store, task_id: str = "F001", **fields: Any) -> Task:
    """A task with an id and a title."""
    return ok(tasks.add_task(store, task_id=task_id, **{"title": f"Task {task_id}", **fields}))


def join(store: Store, agent_id: str) -> Agent:
    """A registered agent; each call begins a new incarnation."""
    return ok(agents.register(store, agent_id=agent_id))


def take(store: Store, agent_id: str, task_id: str = "F001", profile: str = "agent") -> Lease:
    """A claim that must succeed."""
    return ok(claims.claim(store, task_id=task_id, agent_id=agent_id, profile=profile)).lease


def dump(store: SqliteStore, table: str) -> list[tuple[object, ...]]:
    """A table, byte for byte."""
    return store.connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
