"""What is kept about an external ReceiptGate: how far each ledger has been carried to the other, and what stays behind.

The outbox is our ledger itself: receipts are append-only and numbered, so a cursor tells what the gate still has to
get. Beside it stand the receipts that do not go there: *parked* ones, which the gate refused for good, and *taken*
ones, which came from it. A receipt that is taken is applied, marked and counted as read in one transaction, so that it
is applied once and never goes back. A parked receipt that an operator wants sent again (outbox.py) stays marked, with
its place in the ledger, until the gate has it: nothing is lost whoever is killed meanwhile, and a gate that gets it
twice knows it again.

These are steps, not verbs: no surface offers them. The monitor of gates/ runs them, each in a transaction.
"""

from __future__ import annotations

from tenure.core import receipts as rules
from tenure.core.errors import Refused
from tenure.core.ids import text_fault
from tenure.core.model import Receipt, Task
from tenure.core.record import Record
from tenure.engine import change, load
from tenure.engine.receipts import submit_receipt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

# What a worker may report to the gate instead of to us.
TAKEN_PHASES = ("accepted", "complete")
DETAIL_CHARS = 500


class GateName(Record):
    """A gate, as one project of ours sees it: `gate` is its address and its project."""

    project_id: str
    gate: str


class GateState(Record):
    """How far our ledger was sent, how far the gate's was read, and what is known of the gate besides."""

    sent_seq: int = 0
    read_seq: int = 0
    # When the gate last answered as a gate does (0: never, as far as is known), and what went wrong since.
    heard_at_ms: int = 0
    error: str = ""
    # Refused for good; and those of them that are to be sent again.
    parked: int = 0
    resending: int = 0


def configured(tx: Transaction, project_id: str | None = None) -> dict[GateName, Settings]:
    """Every gate that is to be served: one for each project that names one, or that of one project."""
    found = {}
    for project in [project_id] if project_id else [row["project_id"] for row in tx.all("projects")]:
        settings = load.settings_for(tx, project)
        if isinstance(settings, Refused) or not settings.receiptgate_url:
            continue
        place = f"{settings.receiptgate_url.rstrip('/')} {settings.receiptgate_project or project}"
        found[GateName(project_id=project, gate=place)] = settings
    return found


def state(tx: Transaction, name: GateName) -> GateState:
    """What is kept about a gate; nothing yet before its first cursor was saved."""
    row = tx.one("gate", **name.as_dict()) or {}
    counts = tx.one("count_parked", **name.as_dict())
    assert counts is not None
    return GateState(**row, **counts)


def heard(tx: Transaction, name: GateName, age_ms: int | None, error: str) -> None:
    """The gate last answered so long ago (None: it has not, to whoever tells this), and this is wrong now."""
    heard_at_ms = 0 if age_ms is None else max(0, tx.now_ms - age_ms)
    tx.do("gate_heard", **name.as_dict(), heard_at_ms=heard_at_ms, error=error[:DETAIL_CHARS], now_ms=tx.now_ms)


# -- ours, to the gate ------------------------------------------------------------------------------------------------


def to_send(tx: Transaction, name: GateName, receipts: Sequence[Receipt]) -> list[Receipt]:
    """Those of a page of our ledger that the gate should get: this project's, neither parked nor from there."""
    own = [receipt for receipt in receipts if receipt.project_id == name.project_id]
    return [one for one in own if tx.one("gate_receipt", **name.as_dict(), receipt_id=one.receipt_id) is None]


def sent(tx: Transaction, name: GateName, seq: int) -> None:
    """The gate has everything up to here, apart from what is parked. The cursor never moves back."""
    tx.do("gate_advance", **name.as_dict(), sent_seq=seq, read_seq=0)


def park(tx: Transaction, name: GateName, receipt: Receipt, reason: str) -> None:
    """The gate will never take this receipt: remember it, tell it, and go on behind it."""
    marks = {"receipt_id": receipt.receipt_id, "state": "parked", "detail": reason[:DETAIL_CHARS], "now_ms": tx.now_ms}
    if tx.do("mark_gate_receipt", **name.as_dict(), **marks):
        _tell_parked(tx, name, receipt, reason)
    sent(tx, name, receipt.seq)


def to_resend(tx: Transaction, name: GateName, limit: int) -> list[Receipt]:
    """Parked receipts that are to be sent again, in the order of our ledger."""
    return [Receipt(**row) for row in tx.all("receipts_to_resend", **name.as_dict(), limit=limit)]


def resent(tx: Transaction, name: GateName, receipt: Receipt) -> None:
    """The gate has taken a receipt that was parked. Whoever finds it forgotten already was not the first to send it."""
    if tx.do("unpark", **name.as_dict(), receipt_id=receipt.receipt_id):
        task = _task_of(tx, receipt)
        change.record(tx, "receipt_unparked", task=task, receipt_id=receipt.receipt_id, gate=name.gate)


def park_again(tx: Transaction, name: GateName, receipt: Receipt, reason: str) -> None:
    """The gate refused the receipt once more. One that another server has delivered meanwhile stays delivered."""
    marks = {"receipt_id": receipt.receipt_id, "detail": reason[:DETAIL_CHARS], "now_ms": tx.now_ms}
    if tx.do("park_again", **name.as_dict(), **marks):
        _tell_parked(tx, name, receipt, reason)


def _tell_parked(tx: Transaction, name: GateName, receipt: Receipt, reason: str) -> None:
    task, reason = _task_of(tx, receipt), reason[:DETAIL_CHARS]
    change.record(tx, "receipt_parked", task=task, receipt_id=receipt.receipt_id, gate=name.gate, reason=reason)


def _task_of(tx: Transaction, receipt: Receipt) -> Task | None:
    row = tx.one("task_by_key", key=receipt.task_key)
    return None if row is None else Task(**row)


# -- the gate's, to us ------------------------------------------------------------------------------------------------


def concerns_us(tx: Transaction, name: GateName, body: dict[str, Any]) -> Task | None:
    """The task of ours that a receipt of the gate would move, if there is one and the receipt is not ours already.

    Our own come back under their receipt_id, or, from a gate that numbers receipts itself, with it as dedupe_key.
    """
    if body.get("phase") not in TAKEN_PHASES:
        return None
    for field in ("receipt_id", "dedupe_key"):
        if tx.one("receipt_by_id", receipt_id=_ident(body, field)) is not None:
            return None
    task = load.task_named(tx, _ident(body, "task_id"), name.project_id)
    return None if isinstance(task, Refused) else task


def _ident(body: dict[str, Any], field: str) -> str:
    """An id as a database can take it; nothing at all for what is none. A gate may say anything."""
    value = body.get(field)
    return value if isinstance(value, str) and text_fault(value, 4 * rules.ID_CHARS, one_line=True) is None else ""


def take(tx: Transaction, name: GateName, seq: int, body: dict[str, Any]) -> str:
    """Apply one receipt of the gate: applied, refused (an event tells why), or ignored (someone else was faster)."""
    task = concerns_us(tx, name, body)
    if task is None or seq <= state(tx, name).read_seq:
        return "ignored"
    read(tx, name, seq)
    # A gate may add fields of its own; its project is not ours.
    told = {field: value for field, value in body.items() if field in rules.FIELDS and field != "project_id"}
    answer = submit_receipt.body(tx, body=told, project_id=name.project_id)
    if isinstance(answer, Refused):
        _tell_refused(tx, name, task, body, f"{answer.code}: {answer.message}")
        return "refused"
    marks = {"receipt_id": answer.receipt.receipt_id, "state": "taken", "detail": "", "now_ms": tx.now_ms}
    if not answer.repeated:
        tx.do("mark_gate_receipt", **name.as_dict(), **marks)
    return "applied"


def skip(tx: Transaction, name: GateName, seq: int, body: dict[str, Any], reason: str) -> None:
    """Give a receipt of the gate up that cannot even be judged, lest it hold up those behind it."""
    read(tx, name, seq)
    _tell_refused(tx, name, concerns_us(tx, name, body), body, reason)


def read(tx: Transaction, name: GateName, seq: int) -> None:
    """The gate's ledger was read up to here. The cursor never moves back."""
    tx.do("gate_advance", **name.as_dict(), sent_seq=0, read_seq=seq)


def _tell_refused(tx: Transaction, name: GateName, task: Task | None, body: dict[str, Any], reason: str) -> None:
    change.record(
        tx,
        "gate_refused",
        task=task,
        agent_id=_ident(body, "source_system") or None,
        receipt_id=_ident(body, "receipt_id"),
        phase=body.get("phase"),
        gate=name.gate,
        reason=reason[:DETAIL_CHARS],
    )
