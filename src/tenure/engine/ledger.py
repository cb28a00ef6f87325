"""Appending to the ledger, for the verbs that owe a receipt. Custody follows the phase.

An obligation belongs to the task: the first `accepted` opens it, an escalation for an expired lease marks it overdue,
later acceptances hand it on, and only a `complete` that ends the task or a terminal escalation closes it.
"""

from __future__ import annotations

from tenure.core import receipts
from tenure.core.errors import Refused, refuse
from tenure.core.ids import ulid
from tenure.core.model import Receipt
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tenure.core.model import Lease, Obligation, Task
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

SOURCE = "tenure"


class Submitted(Record):
    """A receipt as recorded, the task after it, and whether this very receipt had been recorded before."""

    receipt: Receipt
    task: Task
    lease: Lease | None = None
    repeated: bool = False


def append(
    tx: Transaction, task: Task, body: Mapping[str, Any], *, settings: Settings, lease: Lease | None
) -> tuple[Task, Receipt] | Refused:
    """Fill, check and append one receipt. The caller saves the returned task, which carries the new head."""
    row = _row(tx, task, body, settings, lease)
    if isinstance(row, Refused):
        return row
    added = tx.one("add_receipt", **row)
    assert added is not None
    row["seq"] = added["seq"]
    del row["content_key"]
    receipt = Receipt.from_row(row)
    return task.replace(receipt_count=receipt.position, receipt_hash=receipt.hash), receipt


def note(
    tx: Transaction,
    task: Task,
    body: Mapping[str, Any],
    *,
    settings: Settings,
    lease: Lease | None,
    **changes: Any,
) -> Task | Refused:
    """The same, for a caller that has no use for the receipt and so does not wait for its number.

    `changes` are fields of the task that change with it.
    """
    row = _row(tx, task, body, settings, lease)
    if isinstance(row, Refused):
        return row
    tx.do("record_receipt", **row)
    return task.replace(receipt_count=row["position"], receipt_hash=row["hash"], **changes)


def _row(
    tx: Transaction, task: Task, body: Mapping[str, Any], settings: Settings, lease: Lease | None
) -> dict[str, Any] | Refused:
    """The next receipt of a task, filled and checked, as it is written."""
    now_ms, lease_id = tx.now_ms, lease.lease_id if lease else None
    filled = receipts.fill(
        body,
        receipt_id=ulid(now_ms, tx.random(10)),
        now_ms=now_ms,
        task=task,
        attempt=task.attempts + 1,
        source=lease.agent_id if lease else SOURCE,
        lease_id=lease_id or "",
        escalation_to=settings.supervisor or task.principal_ai or settings.reserved_owner,
        started_at_ms=lease.accepted_at_ms if lease else None,
    )
    refused = receipts.check_phase(filled)
    if refused is not None:
        return refused
    receipt_id = filled["receipt_id"]
    if body.get("receipt_id") and tx.one("receipt_by_id", receipt_id=receipt_id) is not None:
        return refuse("dedupe_conflict", f"There is already a receipt {receipt_id}.", receipt_id=receipt_id)
    text = receipts.text_of(filled)
    prev_hash = task.receipt_hash or receipts.genesis(task.project_id, task.task_id)
    # A sentinel is no key: two receipts that say NA have nothing to do with each other.
    dedupe_key = body.get("dedupe_key")
    dedupe_key = dedupe_key if receipts.said(dedupe_key) else None
    return {
        "receipt_id": receipt_id,
        "project_id": task.project_id,
        "task_key": task.key,
        "task_id": task.task_id,
        "position": task.receipt_count + 1,
        "phase": filled["phase"],
        "at_ms": now_ms,
        "lease_id": lease_id,
        "dedupe_key": dedupe_key,
        "principal": filled["principal_ai"],
        "body": text,
        "prev_hash": prev_hash,
        "hash": receipts.chain_hash(prev_hash, text),
        # What a second delivery is compared by; without a key there is none.
        "content_key": receipts.content_key(filled) if dedupe_key else "",
    }


def owe(
    tx: Transaction,
    task: Task,
    body: Mapping[str, Any],
    *,
    settings: Settings,
    lease: Lease | None,
    **changes: Any,
) -> Task:
    """Append a receipt of the engine's own making, which is valid by construction."""
    noted = note(tx, task, body, settings=settings, lease=lease, **changes)
    assert not isinstance(noted, Refused), noted
    return noted


def accept(tx: Transaction, task: Task, lease: Lease, *, settings: Settings, **changes: Any) -> Task:
    """The receipt of an acceptance, and the obligation it opens or takes over."""
    body = receipts.accepted_body(task.task_id, source=lease.agent_id)
    return owe(tx, task, body, settings=settings, lease=lease, **opened(task, lease), **changes)


def escalate(
    tx: Transaction, task: Task, reason: str, *, settings: Settings, lease: Lease | None, terminal: bool = False
) -> Task:
    """The receipt of an escalation by policy, and what it does to the obligation."""
    body = receipts.escalate_body(task.task_id, reason, source=SOURCE)
    obligation: Obligation = task.obligation
    if terminal:
        obligation = "closed"
    elif obligation == "open" and reason == "lease_expired":
        obligation = "overdue"
    return owe(tx, task, body, settings=settings, lease=lease, obligation=obligation)


def opened(task: Task, lease: Lease) -> dict[str, Any]:
    """What an acceptance changes of a task: the obligation begins, or an open one is handed on."""
    if task.obligation in ("open", "overdue"):
        return {"obligation": "open"}
    return {"obligation": "open", "obligation_token": lease.token}
