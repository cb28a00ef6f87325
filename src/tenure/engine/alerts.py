"""Alerts: what somebody should look at, raised with names and not again before a cool-down is over."""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.model import DEFAULT_PROJECT
from tenure.core.record import Record
from tenure.engine import change, load
from tenure.engine.observe import gridlock
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.store.store import Transaction

# Who asked for work within this time counts as waiting for it.
REQUEST_WINDOW_MS = 600_000


class GridlockAlert(Record):
    """Whether a project is gridlocked, whether this call raised the alert, and what stands in the way."""

    project_id: str
    gridlocked: bool
    raised: bool
    requesting_agents: int
    sentences: tuple[str, ...]


@verb(project_id=inputs.ident)
def alert_gridlock(tx: Transaction, *, project_id: str = DEFAULT_PROJECT) -> GridlockAlert | Refused:
    """Raise an alert if nothing can move any more, unless one was raised within the cool-down."""
    found = gridlock.body(tx, project_id=project_id)
    if isinstance(found, Refused):
        return found
    settings = load.settings_for(tx, project_id)
    assert not isinstance(settings, Refused)
    sentences = tuple(found.sentences())
    agents = _requesting(tx, project_id)
    raised = False
    if found.gridlocked:
        before_ms = tx.now_ms - settings.gridlock_cooldown_s * 1000
        values = {"project_id": project_id, "kind": "gridlock", "now_ms": tx.now_ms, "before_ms": before_ms}
        raised = bool(tx.do("raise_alert", **values))
        if raised:
            tx.do("count", name="gridlock_alerts", by=1)
            why = " ".join(sentences)[: 4 * change.TOLD]
            change.record(tx, "gridlock", project=project_id, agents=agents, why=why)
    return GridlockAlert(
        project_id=project_id,
        gridlocked=found.gridlocked,
        raised=raised,
        requesting_agents=agents,
        sentences=sentences,
    )


@query(project_id=inputs.optional(inputs.ident))
def requesting_agents(tx: Transaction, *, project_id: str | None = None) -> int | Refused:
    """How many different agents asked for work in the last ten minutes, whether they were given some or not."""
    refused = load.unknown_project(tx, project_id)
    return refused if refused is not None else _requesting(tx, project_id)


def _requesting(tx: Transaction, project_id: str | None) -> int:
    row = tx.one("requesting_agents", project_id=project_id, since_ms=tx.now_ms - REQUEST_WINDOW_MS)
    assert row is not None
    return int(row["n"])
