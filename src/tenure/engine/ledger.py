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
    tx: Transaction,
    task: Task,
    body: Mapping[str, Any],
    *,
    settings: Settings,
    lease: Lease | None,
    numbered: bool = True,
) -> tuple[Task, Receipt] | Refused:
    """Fill, check and append one receipt. The caller saves the returned task, which carries the new head.

    A caller that has no use for the receipt's `seq` does not wait for it: not `numbered`, it is 0.
    """
    filled = receipts.fill(
        body,
        receipt_id=ulid(tx.now_ms, tx.random(10)),
        now_ms=tx.now_ms,
        task=task,
        attempt=task.attempts + 1,
        source=lease.agent_id if lease else SOURCE,
        lease_id=lease.lease_id if lease else "",
        escalation_to=settings.supervisor or task.principal_ai or settings.reserved_owner,
        started_at_ms=lease.accepted_at_ms if lease else None,
    )
    refused = receipts.check_phase(filled)
    if refused is not None:
        return refused
    if body.get("receipt_id") and tx.one("receipt_by_id", receipt_id=filled["receipt_id"]) is not None:
        message = f"There is already a receipt {filled['receipt_id']}."
        return refuse("dedupe_conflict", message, receipt_id=filled["receipt_id"])
    text = receipts.canonical(filled)
    prev_hash = task.receipt_hash or receipts.genesis(task.project_id, task.task_id)
    row = {
        "receipt_id": filled["receipt_id"],
        "project_id": task.project_id,
        "task_key": task.key,
        "task_id": task.task_id,
        "position": task.receipt_count + 1,
        "phase": filled["phase"],
        "at_ms": tx.now_ms,
        "lease_id": lease.lease_id if lease else None,
        # A sentinel is no key: two receipts that say NA have nothing to do with each other.
        "dedupe_key": body["dedupe_key"] if receipts.said(body.get("dedupe_key")) else None,
        "principal": filled["principal_ai"],
        "body": text,
        "prev_hash": prev_hash,
        "hash": receipts.chain_hash(prev_hash, text),
    }
    # What a second delivery is compared by; without a key there is none.
    seq, content_key = 0, receipts.content_key(filled) if row["dedupe_key"] else ""
    if numbered:
        added = tx.one("add_receipt", **row, content_key=content_key)
        assert added is not None
        seq = added["seq"]
    else:
        tx.do("record_receipt", **row, content_key=content_key)
    receipt = Receipt(seq=seq, **row)
    return task.replace(receipt_count=receipt.position, receipt_hash=receipt.hash), receipt


def owe(tx: Transaction, task: Task, body: Mapping[str, Any], *, settings: Settings, lease: Lease | None) -> Task:
    """Append a receipt of the engine's own making, which is valid by construction."""
    appended = append(tx, task, body, settings=settings, lease=lease, numbered=False)
    assert not isinstance(appended, Refused), appended
    return appended[0]


def accept(tx: Transaction, task: Task, lease: Lease, *, settings: Settings) -> Task:
    """The receipt of an acceptance, and the obligation it opens or takes over."""
    body = receipts.accepted_body(task.task_id, source=lease.agent_id)
    return opened(owe(tx, task, body, settings=settings, lease=lease), lease)


def escalate(
    tx: Transaction, task: Task, reason: str, *, settings: Settings, lease: Lease | None, terminal: bool = False
) -> Task:
    """The receipt of an escalation by policy, and what it does to the obligation."""
    body = receipts.escalate_body(task.task_id, reason, source=SOURCE)
    task = owe(tx, task, body, settings=settings, lease=lease)
    if terminal:
        return task.replace(obligation="closed")
    overdue: Obligation = "overdue" if task.obligation == "open" and reason == "lease_expired" else task.obligation
    return task.replace(obligation=overdue)


def opened(task: Task, lease: Lease) -> Task:
    """The task after an acceptance: the obligation begins, or an open one is handed on."""
    if task.obligation in ("open", "overdue"):
        return task.replace(obligation="open")
    return task.replace(obligation="open", obligation_token=lease.token)
