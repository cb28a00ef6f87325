"""Fence: what a guarded resource asks before it lets a holder in. It changes nothing and extends nothing."""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.deadline import live
from tenure.core.errors import Refused, refuse
from tenure.core.model import Lease
from tenure.engine import load
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.store.store import Transaction


@query(
    token=inputs.optional(inputs.whole(1, 2**63 - 1)),
    lease_id=inputs.optional(inputs.ident),
    task_id=inputs.optional(inputs.ident),
    project_id=inputs.optional(inputs.ident),
)
def fence(
    tx: Transaction,
    *,
    token: int | None = None,
    lease_id: str | None = None,
    task_id: str | None = None,
    project_id: str | None = None,
) -> Lease | Refused:
    """The live, accepted lease that a token or a lease id belongs to, narrowed by its task where one is named."""
    if token is None and lease_id is None:
        return inputs.bad("token", "or lease_id is needed")
    task = load.task_named(tx, task_id, project_id) if task_id is not None else None
    unknown = task if isinstance(task, Refused) else load.unknown_project(tx, project_id)
    if unknown is not None:
        return unknown
    if lease_id is not None:
        known = load.lease_by_id(tx, lease_id)
        found = [] if known is None else [known]
    else:
        found = [Lease(**row) for row in tx.all("unended_with_token", token=token)]
    for lease in found:
        meant = token in (None, lease.token) and task_id in (None, lease.task_id)
        meant = meant and project_id in (None, lease.project_id)
        if meant and lease.state == "active" and live(lease, tx.now_ms):
            return lease
    proof = f"Token {token}" if lease_id is None else f"Lease {lease_id}"
    where = f" on {task_id}" if task_id is not None else ""
    message = f"{proof} is not of a live lease{where}."
    return refuse("lease_lost", message, token=token, lease_id=lease_id, task_id=task_id)
