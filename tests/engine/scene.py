"""What the engine's tests share besides tests/support.py: looking at the whole database, the ledger and the events."""

from __future__ import annotations

import json
from typing import Any

from tenure.core.model import Event, Handoff, Lease, Receipt, Task
from tenure.engine import endings, liveness, observe, recovery, touch
from tenure.engine import receipts as ledger
from tenure.engine.verb import VERBS as ALL_VERBS
from tenure.store.sqlite import SqliteStore
from tests.support import ok


def whole(store: SqliteStore) -> dict[str, list[tuple[object, ...]]]:
    """Every table, byte for byte."""
    names = [row[0] for row in store.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: store.connection.execute(f"SELECT * FROM {name}").fetchall() for name in sorted(names)}


def row(store: SqliteStore, table: str, **where: object) -> tuple[object, ...]:
    """One row, byte for byte."""
    condition = " AND ".join(f"{name} = :{name}" for name in where)
    found = store.connection.execute(f"SELECT * FROM {table} WHERE {condition}", where).fetchall()
    assert len(found) == 1, found
    return tuple(found[0])


def sql(store: SqliteStore, statement: str, **values: object) -> int:
    """Somebody with a database shell."""
    return store.connection.execute(statement, values).rowcount


def events(store: SqliteStore, *kinds: str) -> list[Event]:
    """The events of these kinds (of all), in order."""
    found = ok(observe.events(store, limit=10_000))
    return [event for event in found if not kinds or event.kind in kinds]


def data(event: Event) -> dict[str, Any]:
    """What an event carries."""
    loaded: dict[str, Any] = json.loads(event.data)
    return loaded


def receipts(store: SqliteStore, task_id: str = "F001") -> list[Receipt]:
    """A task's receipts in ledger order."""
    return list(ok(ledger.list_receipts(store, task_id=task_id, limit=10_000)))


def said(store: SqliteStore, task_id: str = "F001") -> list[str]:
    """A task's receipts as phase or phase/reason, in ledger order."""
    words = []
    for receipt in receipts(store, task_id):
        body = json.loads(receipt.body)
        detail = body["escalation_reason"] if receipt.phase == "escalate" else body["status"]
        words.append(receipt.phase if detail == "NA" else f"{receipt.phase}/{detail}")
    return words


def shown(store: SqliteStore, task_id: str = "F001") -> observe.TaskView:
    """A task as anyone sees it."""
    return ok(observe.show_task(store, task_id=task_id)).view


def task(store: SqliteStore, task_id: str = "F001") -> Task:
    """A task as it is stored."""
    return shown(store, task_id).task


def lease(store: SqliteStore, lease_id: str) -> Lease:
    """A lease as it is stored, live or ended."""
    cursor = store.connection.execute("SELECT * FROM leases WHERE lease_id = ?", (lease_id,))
    names = [column[0] for column in cursor.description]
    return Lease(**dict(zip(names, cursor.fetchone(), strict=True)))


def handoffs(store: SqliteStore, task_id: str = "F001") -> tuple[Handoff, ...]:
    """The handoffs the next holder would be shown, newest first."""
    return ok(observe.show_task(store, task_id=task_id)).handoffs


def thread(store: SqliteStore, task_id: str = "F001") -> list[str]:
    """What a task's thread says."""
    return [message.text for message in ok(observe.show_task(store, task_id=task_id)).messages]


def tick(store: SqliteStore) -> recovery.Advanced:
    """What the monitor does when it wakes."""
    return ok(recovery.advance(store, limit=1_000))


def report(store: SqliteStore, agent_id: str, progress: int, task_id: str = "F001", **more: Any) -> liveness.Kept:
    """A report that must be honoured."""
    return ok(liveness.report(store, task_id=task_id, agent_id=agent_id, progress=progress, **more))


def feel(store: SqliteStore, agent_id: str, **more: Any) -> touch.Touched:
    """A touch that must be honoured."""
    return ok(touch.touch(store, agent_id=agent_id, **more))


def done(store: SqliteStore, agent_id: str, task_id: str = "F001", **more: Any) -> endings.Ended:
    """A completion that must be honoured."""
    return ok(endings.complete(store, task_id=task_id, agent_id=agent_id, **more))


def call(store: SqliteStore, verb_name: str, **arguments: Any) -> Any:
    """A verb by its name, as a table of verbs needs it."""
    return ALL_VERBS[verb_name](store, **arguments)
