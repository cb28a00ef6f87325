"""The newest page of what only grows: events and receipts, in the order they were written.

`observe.events` and `receipts.list_receipts` go on from a cursor; a person who asks what happened wants the end of it.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.model import Event, Receipt
from tenure.core.receipts import PHASES
from tenure.engine import load
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.store.store import Transaction

_NARROWED = {"project_id": inputs.optional(inputs.ident), "task_id": inputs.optional(inputs.ident)}


@query(**_NARROWED, agent_id=inputs.optional(inputs.ident), limit=inputs.limit)
def recent_events(
    tx: Transaction,
    *,
    project_id: str | None = None,
    task_id: str | None = None,
    agent_id: str | None = None,
    limit: int = 100,
) -> tuple[Event, ...] | Refused:
    """The newest events, oldest first. What comes after the last of them is a matter for `events`."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    rows = tx.all("recent_events", project_id=project_id, task_id=task_id, agent_id=agent_id, limit=limit)
    return tuple(Event(**row) for row in reversed(rows))


@query(**_NARROWED, phase=inputs.optional(inputs.one_of(*PHASES)), limit=inputs.limit)
def recent_receipts(
    tx: Transaction,
    *,
    project_id: str | None = None,
    task_id: str | None = None,
    phase: str | None = None,
    limit: int = 100,
) -> tuple[Receipt, ...] | Refused:
    """The newest receipts, oldest first."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    rows = tx.all("recent_receipts", project_id=project_id, task_id=task_id, phase=phase, limit=limit)
    return tuple(Receipt(**row) for row in reversed(rows))
