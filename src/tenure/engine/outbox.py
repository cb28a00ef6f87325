"""External gates as an operator sees them: what waits, what was refused for good, and how to have it sent again.

Sending again is asked for here and done by the monitor of gates/, in the order of our ledger and before anything newer.
The gate then gets these receipts later than their successors. Its ledger has them in the order of their arrival; what
they say, their times and ids included, is what they would have said in their turn.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT
from tenure.core.record import Record
from tenure.engine import gates, load
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.store.store import Transaction

PARKED_SHOWN = 10
# What waits is counted among so many receipts behind the cursor: whoever looks every few seconds must not read a whole
# ledger each time because a gate is down.
WAITING_MAX = 10_000


class ParkedReceipt(Record):
    """A receipt of ours that a gate refused for good, and its words."""

    receipt_id: str
    task_id: str
    phase: str
    reason: str
    at_ms: int


class GateView(Record):
    """A configured gate, and how far each ledger was carried to the other."""

    project_id: str
    gate: str
    # Cursors: the place in our ledger up to which the gate has everything but what is parked, and the place in its own.
    sent_seq: int
    read_seq: int
    # Receipts behind `sent_seq` that the gate still has to get, counted up to a bound.
    waiting: int
    # Parked receipts that are to be sent again, and those that are not.
    resending: int
    parked: int
    parked_receipts: tuple[ParkedReceipt, ...]
    # When the gate last answered, to within a minute (0: never), and what is wrong with it.
    heard_at_ms: int
    error: str
    now_ms: int

    @property
    def heard_age_s(self) -> float | None:
        """How long ago the gate last answered, by the store's clock; None if it never did."""
        return max(0, self.now_ms - self.heard_at_ms) / 1000 if self.heard_at_ms else None


@query(project_id=inputs.optional(inputs.ident))
def list_gates(tx: Transaction, *, project_id: str | None = None) -> tuple[GateView, ...] | Refused:
    """Every configured gate, or that of one project: what was sent and read, what waits, and what is parked and why."""
    refused = load.unknown_project(tx, project_id)
    return refused if refused is not None else tuple(_view(tx, name) for name in gates.configured(tx, project_id))


class Resent(Record):
    """How many parked receipts are to be sent again on account of this request, and the gate after it."""

    receipts: int
    gate: GateView


@verb(project_id=inputs.ident, receipt_id=inputs.optional(inputs.text(256, one_line=True, required=True)))
def resend_receipts(
    tx: Transaction, *, project_id: str = DEFAULT_PROJECT, receipt_id: str | None = None
) -> Resent | Refused:
    """Have the gate's parked receipts sent again, all of them or one. Asking twice sends them once."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    name = next(iter(gates.configured(tx, project_id)), None)
    if name is None:
        return refuse("gate_not_found", f"Project {project_id} names no external gate.", project_id=project_id)
    if receipt_id is None:
        return Resent(receipts=tx.do("resend_parked", **name.as_dict()), gate=_view(tx, name))
    row = tx.one("receipt_by_id", receipt_id=receipt_id)
    if row is None or row["project_id"] != project_id:
        message = f"There is no receipt {inputs.shown(receipt_id)} in project {project_id}."
        return refuse("receipt_not_found", message, receipt_id=receipt_id)
    if not tx.do("resend_receipt", **name.as_dict(), receipt_id=receipt_id, seq=row["seq"]):
        message = f"Receipt {inputs.shown(receipt_id)} is not parked at the gate."
        return refuse("receipt_not_parked", message, receipt_id=receipt_id, gate=name.gate)
    return Resent(receipts=1, gate=_view(tx, name))


def _view(tx: Transaction, name: gates.GateName) -> GateView:
    found = gates.state(tx, name)
    waiting = tx.one("count_unsent", **name.as_dict(), sent_seq=found.sent_seq, limit=WAITING_MAX)
    assert waiting is not None
    parked = tx.all("newest_parked", **name.as_dict(), limit=PARKED_SHOWN)
    return GateView(
        **name.as_dict(),
        **found.as_dict(),
        waiting=waiting["n"],
        parked_receipts=tuple(ParkedReceipt(**row) for row in parked),
        now_ms=tx.now_ms,
    )
