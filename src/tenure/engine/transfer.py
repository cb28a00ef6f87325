"""Moving records between stores: pages of them out, and what is not there yet in.

Leases do not travel: a task that an agent held arrives as todo. An assignment does, where it means something: to the
reserved owner, to a person, or to an agent that is registered here. Receipts go out for reading and never come in,
because a ledger is appended to by its own store alone.
"""

from __future__ import annotations

import json

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT
from tenure.core.times import iso, parse_iso
from tenure.engine import change, load, projects, tasks
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenure.store.store import Transaction

KINDS = ("project", "task", "message", "decision", "artifact", "receipt")
_TASK_FIELDS = (
    "task_id",
    "title",
    "body",
    "kind",
    "priority",
    "complexity",
    "estimated_hours",
    "lease_duration_s",
    "max_attempts",
    "slots",
    "principal_ai",
    "payload_pointer",
    "expected_outcome_kind",
    "expected_artifact_mime",
    "dedupe_key",
)
# Words that people use for a field.
_ALIASES = {"id": "task_id", "depends_on": "after", "blocked_by": "after", "description": "body"}
# All that a task's line may have; what is not read says something about the store it came from.
TASK_KEYS = frozenset(
    (
        *_TASK_FIELDS,
        *("record", "project_id", "requires", "inputs", "after", "not_before", "assigned_to", "owner"),
        *("status", "progress", "blocked_reason", "done_at", "attempts", "outcome", "created_at"),
    )
)


@query(kind=inputs.one_of(*KINDS), after=inputs.cursor, limit=inputs.limit, project_id=inputs.optional(inputs.ident))
def export_page(
    tx: Transaction, *, kind: str, after: int = 0, limit: int = 500, project_id: str | None = None
) -> list[dict[str, Any]]:
    """A page of one kind of record, each with the `cursor` after which the next page begins."""
    rows = tx.all(f"export_{kind}", after=after, limit=limit, project_id=project_id)
    return [_exported(tx, kind, row) for row in rows]


def _exported(tx: Transaction, kind: str, row: dict[str, Any]) -> dict[str, Any]:
    if kind == "project":
        row["settings"] = json.loads(row["settings"])
        # A program of this machine is nothing for another one, and an import would refuse it.
        row["settings"].get("design", {}).pop("command", None)
    elif kind == "receipt":
        return {"cursor": row["cursor"], **json.loads(row["body"]), "hash": row["hash"]}
    elif kind == "task":
        row["requires"] = row["requires"].split()
        row["inputs"] = json.loads(row["inputs"]) if row["inputs"] else {}
        row["after"] = [edge["needs_id"] for edge in tx.all("needs_of", task_key=row["cursor"])]
        row["not_before"] = iso(row.pop("not_before_ms")) if row["not_before_ms"] else None
        row.pop("not_before_ms", None)
    for name in [name for name in row if name.endswith("_at_ms") or name == "at_ms"]:
        value = row.pop(name)
        row[name.removesuffix("_ms")] = None if value is None else iso(value)
    return row


def _records(name: str, value: Any) -> Any:
    if not isinstance(value, list) or len(value) > inputs.MANY_MAX:
        return inputs.bad(name, f"must be a list of at most {inputs.MANY_MAX} records")
    for index, record in enumerate(value):
        if not isinstance(record, dict) or record.get("record") not in KINDS:
            message = f"must be an object whose record is one of {', '.join(KINDS)}"
            return inputs.bad(f"{name}[{index}]", message, index=index)
    return value


@verb(records=_records, project_id=inputs.optional(inputs.ident))
def import_records(
    tx: Transaction, *, records: list[dict[str, Any]], project_id: str | None = None
) -> dict[str, int] | Refused:
    """Add records that are not there yet, all or none. `project_id` puts them into that project.

    A refusal has the `index` of the record it is about.
    """
    counts: dict[str, int] = {}

    def run() -> dict[str, int] | Refused:
        for index, record in enumerate(records):
            where = inputs.ident("project_id", project_id or record.get("project_id", DEFAULT_PROJECT))
            outcome = where if isinstance(where, Refused) else _IMPORTS[record["record"]](tx, record, where)
            if isinstance(outcome, Refused):
                return outcome.replace(facts={**outcome.facts, "index": index})
            counts[outcome] = counts.get(outcome, 0) + 1
        return counts

    return tx.attempt(run)


def _project(tx: Transaction, record: dict[str, Any], project_id: str) -> str | Refused:
    checked = projects.create_project.check(
        {"project_id": project_id, "name": record.get("name", ""), "settings": record.get("settings")}
    )
    if isinstance(checked, Refused):
        return checked
    if tx.one("project", project_id=project_id) is not None:
        return "projects_skipped"
    made = projects.create_project.body(tx, **checked)
    return made if isinstance(made, Refused) else "projects"


def _task(tx: Transaction, record: dict[str, Any], project_id: str) -> str | Refused:
    """A task with its state; one that was held starts again with its progress kept."""
    named = _renamed(record)
    if isinstance(named, Refused):
        return named
    record = named
    fields = {name: record[name] for name in (*_TASK_FIELDS, "requires", "inputs", "after") if record.get(name)}
    if record.get("not_before"):
        fields["not_before_ms"] = parse_iso(record["not_before"])
    if record.get("assigned_to") and not _only_held(tx, record):
        fields["assigned_to"] = record["assigned_to"]
    checked = tasks.add_task.check({**fields, "project_id": project_id})
    if isinstance(checked, Refused):
        return checked
    if "title" not in checked:
        return inputs.bad("title", "is missing")
    if checked.get("task_id") and tx.all("tasks_named", task_id=checked["task_id"], project_id=project_id):
        return "tasks_skipped"
    added = tasks.add_task.body(tx, allow_missing=True, **checked)
    if isinstance(added, Refused):
        return added
    status, progress = record.get("status", "todo"), record.get("progress", 0)
    reason = record.get("blocked_reason") or ""
    for name, value, check in (
        ("status", status, inputs.status),
        ("progress", progress, inputs.percent),
        ("blocked_reason", reason, inputs.body),
    ):
        good = check(name, value)
        if isinstance(good, Refused):
            return good
    if status in ("done", "dead", "blocked") or progress:
        state = status if status in ("done", "dead", "blocked") else added.status
        done_at = parse_iso(record.get("done_at")) or tx.now_ms if state == "done" else None
        restored = added.replace(status=state, progress=progress, blocked_reason=reason[:500], done_at_ms=done_at)
        change.save_task(tx, restored, unended=0)
        if state == "done":
            tx.do("unlock_dependants", task_key=added.key)
    return "tasks"


def _renamed(record: dict[str, Any]) -> dict[str, Any] | Refused:
    """The record under the vocabulary's names; a key that says nothing to us is refused rather than lost."""
    named: dict[str, Any] = {}
    for key, value in record.items():
        name = _ALIASES.get(key, key)
        if name not in TASK_KEYS:
            from tenure.core.settings import nearest

            meant = nearest(name, TASK_KEYS)
            hint = f"; did you mean {meant}?" if meant else ""
            message = f"{inputs.shown(key)} is not a field of a task{hint}"
            return refuse("invalid_argument", message.removesuffix(".") + ("" if meant else "."), argument=key)
        if name in named:
            return inputs.bad(key, f"says again what {name} says")
        named[name] = [value] if name == "after" and isinstance(value, str) else value
    return named


def _only_held(tx: Transaction, record: dict[str, Any]) -> bool:
    """Whether the name is only a holder's, or that of an agent this store does not know: nobody's to wait for.

    Whoever completed a task stays named.
    """
    if record.get("owner") != "agent" or record.get("status") == "done":
        return False
    known = isinstance(record["assigned_to"], str) and load.agent_named(tx, record["assigned_to"]) is not None
    return record.get("status") != "todo" or not known


def _said(table: str, text_field: str) -> Callable[[Transaction, dict[str, Any], str], str | Refused]:
    """An importer of what agents said: a line that is already there, at its time and place, is skipped."""

    def run(tx: Transaction, record: dict[str, Any], project_id: str) -> str | Refused:
        task_id = inputs.ident("task_id", record.get("task_id"))
        text = inputs.text(inputs.CONTENT_MAX)(text_field, record.get(text_field) or "")
        sender = inputs.text(128, one_line=True)("agent_id", record.get("agent_id") or record.get("sender") or "")
        for good in (task_id, text, sender):
            if isinstance(good, Refused):
                return good
        task = load.task_named(tx, str(task_id), project_id)
        if isinstance(task, Refused):
            return task
        at_ms = parse_iso(record.get("at"))
        if at_ms is None:
            return refuse("invalid_argument", f"A {table} record needs its time, at.", argument="at")
        values = _values(record, table, task.key, at_ms, str(sender), str(text))
        if isinstance(values, Refused):
            return values
        if tx.one(f"same_{table}", **values) is not None:
            return f"{table}s_skipped"
        if table == "message":
            tx.do("add_message", **values, project_id=project_id, task_id=task.task_id, recipient=None, kind="note")
        else:
            tx.one(f"add_{table}", **values)
        return f"{table}s"

    return run


def _values(
    record: dict[str, Any], table: str, task_key: int, at_ms: int, sender: str, text: str
) -> dict[str, Any] | Refused:
    if table == "message":
        return {"task_key": task_key, "at_ms": at_ms, "sender": sender, "text": text}
    common = {"task_key": task_key, "at_ms": at_ms, "agent_id": sender, "lease_id": None}
    if table == "decision":
        return {**common, "text": text}
    line = inputs.text(4096, one_line=True)
    for name in ("filename", "artifact_type", "description", "location"):
        good = (inputs.body if name == "description" else line)(name, record.get(name) or "")
        if isinstance(good, Refused):
            return good
        common[name] = good
    # An artifact has content or a place, and the other is null.
    content = None if record.get("content") is None else text
    return {**common, "location": common["location"] or None, "content": content}


def _receipt(tx: Transaction, record: dict[str, Any], project_id: str) -> str | Refused:
    return "receipts_left_out"


_IMPORTS: dict[str, Callable[[Transaction, dict[str, Any], str], str | Refused]] = {
    "project": _project,
    "task": _task,
    "message": _said("message", "text"),
    "decision": _said("decision", "decision"),
    "artifact": _said("artifact", "content"),
    "receipt": _receipt,
}
