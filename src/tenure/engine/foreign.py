"""Receipts about tasks that live elsewhere: how this store serves other systems as their ReceiptGate.

A project with the setting `foreign_receipts` records a receipt about a task it does not have, and does nothing else:
there is no lease to take up and no task to finish. Everything that makes a ledger holds for it as for our own: append
only, the rules of the phases, a chain per task under the seals, and each receipt once, by its receipt_id and by its
dedupe_key. Receipts about the project's own tasks act as they always do.

Two systems that send to one project share its task ids; give each a project of its own.
"""

from __future__ import annotations

import json

from tenure.core import inputs
from tenure.core import receipts as rules
from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT, Receipt, Task
from tenure.engine import ledger, load
from tenure.engine.ledger import Submitted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.settings import Settings
    from tenure.store.store import Transaction


def record(
    tx: Transaction, body: dict[str, Any], project_id: str | None, agent_id: str | None = None
) -> Submitted | Refused | None:
    """Record a receipt that belongs to no task and no lease of ours, if the project takes such. None: it does not."""
    project = project_id or DEFAULT_PROJECT
    settings = load.settings_for(tx, project)
    if isinstance(settings, Refused) or not settings.foreign_receipts or not rules.said(body.get("task_id")):
        return None
    named = load.task_named(tx, body["task_id"], project_id)
    if not isinstance(named, Refused) or named.code != "task_not_found":
        return None
    if not rules.said(body.get("source_system")):
        message = "Receipt field source_system is missing; it tells who is accountable for a task that lives elsewhere."
        return refuse("invalid_receipt", message, field="source_system")
    if agent_id is not None and agent_id != body["source_system"]:
        return refuse("not_permitted", f"This token speaks for {agent_id}, not for another source_system.")
    # A receipt that is refused leaves no trace, also not the name of its task.
    return tx.attempt(lambda: _recorded(tx, body, project, settings))


def _recorded(tx: Transaction, body: dict[str, Any], project_id: str, settings: Settings) -> Submitted | Refused:
    names = {"project_id": project_id, "task_id": body["task_id"]}
    head = tx.one("foreign_task", **names) or tx.one("add_foreign_task", **names)
    assert head is not None
    # A stand-in that knows nothing about itself, so that whatever the receipt says stands.
    count, last_hash = head["receipt_count"], head["receipt_hash"]
    task = Task(key=-head["key"], **names, title="", receipt_count=count, receipt_hash=last_hash)
    first = _first(tx, body, project_id)
    if first is not None:
        return _repeated(body, task, first)
    appended = ledger.append(tx, task, body, settings=settings, lease=None)
    if isinstance(appended, Refused):
        return appended
    task, receipt = appended
    tx.do("save_foreign_task", key=-task.key, receipt_count=task.receipt_count, receipt_hash=task.receipt_hash)
    return Submitted(receipt=receipt, task=task)


def _first(tx: Transaction, body: dict[str, Any], project_id: str) -> Receipt | None:
    """The receipt that was recorded under this receipt_id, else under this dedupe_key."""
    row = None
    if rules.said(body.get("receipt_id")):
        row = tx.one("receipt_by_id", receipt_id=body["receipt_id"])
    if row is None and rules.said(body.get("dedupe_key")):
        row = tx.one("receipt_by_dedupe_key", project_id=project_id, dedupe_key=body["dedupe_key"])
    return None if row is None else Receipt(**row)


def _repeated(body: dict[str, Any], task: Task, first: Receipt) -> Submitted | Refused:
    """The first answer to the same receipt; a refusal if this one says something else."""
    filled = rules.fill(body, receipt_id=first.receipt_id, now_ms=first.at_ms, task=task, source=ledger.SOURCE)
    if first.task_key == task.key and rules.content_key(filled) == rules.content_key(json.loads(first.body)):
        return Submitted(receipt=first, task=task, repeated=True)
    message = f"Receipt {inputs.shown(first.receipt_id)} has this receipt_id or dedupe_key and says something else."
    return refuse("dedupe_conflict", message, receipt_id=first.receipt_id)
