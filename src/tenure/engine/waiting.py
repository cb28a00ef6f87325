"""What a server asks on behalf of polls that wait: is there anything for them? Looks only: an offer decides.

A poll that finds nothing writes that its worker is alive. A server that tried an offer for each waiting poll after each
write would therefore keep itself awake; these questions leave no trace. They are no verbs: nobody but a server asks
them, about requests that its verbs have checked already.
"""

from __future__ import annotations

from tenure.core.record import Record
from tenure.engine import claims

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenure.store.store import Transaction


class Prospect(Record):
    """How many tasks could be offered to such a worker, up to the limit, and whether some are kept for someone."""

    ready: int
    kept: bool


def prospect(tx: Transaction, project_id: str, capabilities: Sequence[str] | None, limit: int) -> Prospect:
    """What there is for workers of a project that have these capabilities."""
    sets = claims.fitting_sets(tx, project_id, capabilities)
    row = tx.one("count_ready", project_id=project_id, sets=sets, limit=limit)
    assert row is not None
    return Prospect(ready=row["n"], kept=tx.one("any_kept", project_id=project_id) is not None)


def kept_for(tx: Transaction, project_id: str, agent_ids: Iterable[str]) -> frozenset[str]:
    """Those of these agents for whom a ready task is kept."""
    # Identifiers, so that plain quoting is JSON.
    names = "[" + ",".join(f'"{agent_id}"' for agent_id in agent_ids) + "]"
    return frozenset(row["agent_id"] for row in tx.all("kept_for_agents", project_id=project_id, agent_ids=names))
