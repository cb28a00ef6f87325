"""The shapes of answers, as JSON Schema: what `/openapi.json` promises and the tests hold the server to.

A field is written as its kind: `text`, `count`, `whole`, `number`, `flag`, `time`, `object`, `texts`; a question mark
after it lets it be null. Every field is always there unless the shape says otherwise.
"""

from __future__ import annotations

from typing import Any

from tenure.core.model import COMPLEXITIES, PRIORITIES, STATUSES
from tenure.core.receipts import COMPLETE_STATUSES, FIELDS, OUTCOME_KINDS, PHASES

_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "count": {"type": "integer", "minimum": 0},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "time": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z$"},
    "object": {"type": "object"},
    "texts": {"type": "array", "items": {"type": "string"}},
}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def many(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def one_of(words: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


def _of(kind: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, dict):
        return kind
    schema = dict(_KINDS[kind.removesuffix("?")])
    if kind.endswith("?"):
        schema["type"] = [schema["type"], "null"]
    return schema


def shape(fields: dict[str, str | dict[str, Any]], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "required": [name for name in fields if name not in optional],
        "properties": {name: _of(kind) for name, kind in fields.items()},
        "additionalProperties": False,
    }


LEASE_STATES = ("offered", "active", "released", "completed", "expired", "revoked")
QUEUE_STATUSES = ("queued", "leased", "retry_pending", "complete", "dead", "blocked")

_LEASE: dict[str, str | dict[str, Any]] = {
    **dict.fromkeys(("task_id", "agent_id", "lease_id", "profile"), "text"),
    **dict.fromkeys(("token", "incarnation", "renewals", "progress"), "count"),
    "state": one_of(LEASE_STATES),
    **dict.fromkeys(("granted_at", "expires_at", "recover_at", "seen_at"), "time"),
    **dict.fromkeys(("silent_until", "accepted_at", "ended_at"), "time?"),
    **dict.fromkeys(("lease_s", "grace_s"), "number"),
    "stuck": "flag",
    "end_reason": "text?",
}
_TASK: dict[str, str | dict[str, Any]] = {
    **dict.fromkeys(("task_id", "project_id", "title", "body", "kind"), "text"),
    "status": one_of(STATUSES),
    "priority": one_of(PRIORITIES),
    "complexity": one_of(COMPLEXITIES),
    "obligation": one_of(("none", "open", "overdue", "closed")),
    "estimated_hours": "number",
    **dict.fromkeys(("progress", "attempts", "unmet", "slots"), "count"),
    **dict.fromkeys(("max_attempts", "lease_duration_s"), "whole?"),
    "requires": "texts",
    "inputs": "object",
    **dict.fromkeys(
        (
            "assigned_to",
            "owner",
            "blocked_reason",
            "principal_ai",
            "payload_pointer",
            "expected_outcome_kind",
            "expected_artifact_mime",
        ),
        "text?",
    ),
    **dict.fromkeys(("created_at", "updated_at"), "time"),
    **dict.fromkeys(("not_before", "retry_at", "done_at"), "time?"),
}
_SEEN: dict[str, str | dict[str, Any]] = {
    **_TASK,
    "due": "flag",
    "leases": many(ref("HeldLease")),
    # The words of the specification's queue.
    "queue_status": one_of(QUEUE_STATUSES),
    "attempt": "count",
    **dict.fromkeys(("lease_id", "worker_id"), "text?"),
    **dict.fromkeys(("retry_after", "lease_granted_at", "lease_expires_at"), "time?"),
}
_OFFERED_TASK = (
    "task_id",
    "principal_ai",
    "task_type",
    "task_summary",
    "task_body",
    "payload_pointer",
    "expected_outcome_kind",
    "expected_artifact_mime",
)


def _receipt_field(name: str) -> dict[str, Any]:
    kind, limit, _ = FIELDS[name]
    if name == "phase":
        return one_of(PHASES)
    if kind == "object":
        return {"type": ["object", "null"]}
    if kind == "boolean":
        return {"type": ["boolean", "null"]}
    if kind == "integer":
        return {"type": ["integer", "null"], "minimum": 0, "maximum": 100 if name == "progress" else limit}
    if kind == "time":
        return {"type": ["string", "null"], "format": "date-time"}
    examples = {"status": list(COMPLETE_STATUSES), "outcome_kind": list(OUTCOME_KINDS)}.get(name)
    schema: dict[str, Any] = {"type": ["string", "null"], "maxLength": limit}
    return {**schema, "examples": examples} if examples else schema


def receipt() -> dict[str, Any]:
    """A receipt as it comes in: only the phase is always needed, and a null is an absent field."""
    properties = {name: _receipt_field(name) for name in FIELDS}
    return {"type": "object", "required": ["phase"], "properties": properties, "additionalProperties": False}


def components() -> dict[str, dict[str, Any]]:
    """Every shape that an answer can have, by name."""
    chain = shape({"seq": "count", "position": "count", "prev_hash": "text", "hash": "text"})
    offered = shape(
        {**dict.fromkeys(_OFFERED_TASK, "text"), "inputs": "object"},
        optional=(*(name for name in _OFFERED_TASK if name not in ("task_id", "task_summary")), "inputs"),
    )
    return {
        "Offer": shape({"lease_id": "text", "lease_expires_at": "time", "task": offered}),
        "Offers": shape({"leases": many(ref("Offer"))}),
        "OfferOrOffers": {"anyOf": [ref("Offer"), ref("Offers")]},
        "HeldLease": shape(_LEASE),
        "HeldLeases": shape({"leases": many(ref("HeldLease"))}),
        "Held": shape(
            {
                **dict.fromkeys(("lease_id", "task_id", "state"), "text"),
                "token": "count",
                **dict.fromkeys(("lease_expires_at", "recover_at"), "time"),
                "lease_s": "number",
                "signals": many(one_of(("deadline_soon",))),
            }
        ),
        "Released": shape({"task_id": "text", "status": one_of(STATUSES), "repeated": "flag"}),
        "RecordedReceipt": shape({**{name: _recorded(name) for name in FIELDS}, "chain": chain}),
        "Receipts": shape({"receipts": many(ref("RecordedReceipt")), "next_after": "whole?"}),
        "Verified": shape(
            {
                **dict.fromkeys(("tasks", "receipts", "seals", "unsealed"), "count"),
                "faults": "texts",
                "intact": "flag",
            }
        ),
        "Task": shape(_TASK),
        "Tasks": shape({"tasks": many(ref("Task"))}),
        "TaskOrTasks": {"anyOf": [ref("Task"), ref("Tasks")]},
        "Obligations": shape({"obligations": many(ref("Task")), "next_after": "whole?"}),
        "SeenTask": shape(_SEEN),
        "SeenTasks": shape({"tasks": many(ref("SeenTask")), "next_after": "whole?"}),
        "TaskDetail": shape(
            {
                **_SEEN,
                "needs": many(shape({"task_id": "text", "missing": "flag"})),
                "dependants": "texts",
                "handoffs": many({"type": "object"}),
                "messages": many({"type": "object"}),
            }
        ),
        "Health": shape(
            {
                "status": one_of(("ok",)),
                "server_id": "text",
                "statistics": "object",
                "monitors": many({"type": "object", "required": ["name", "last_tick_age_s", "next_wake_in_s"]}),
                "waiting_polls": "count",
                "queued_verbs": "count",
                "boards": many({"type": "object", "required": ["project_id", "pending", "parked", "error"]}),
                "assignments": "object",
                "gridlock": "object",
                "requesting_agents": "count",
                "gates": many(ref("Gate")),
            }
        ),
        "Gate": shape(
            {
                **dict.fromkeys(("project_id", "gate", "error"), "text"),
                **dict.fromkeys(("sent_seq", "read_seq", "waiting", "resending", "parked"), "count"),
                "parked_receipts": many(
                    shape(
                        {
                            **dict.fromkeys(("receipt_id", "task_id", "reason"), "text"),
                            "phase": one_of(PHASES),
                            "parked_at": "time",
                        }
                    )
                ),
                "last_exchange_at": "time?",
            }
        ),
        "Gates": shape({"gates": many(ref("Gate"))}),
        "Resent": shape({"receipts": "count", "gate": ref("Gate")}),
        "BoardEvent": {"type": "object", "properties": {"event_name": {"type": "string"}}},
        "Noted": shape({"status": one_of(("ok",))}),
        "Problem": shape(
            {
                **dict.fromkeys(("type", "title", "detail", "code", "next"), "text"),
                "status": "whole",
                "facts": "object",
            }
        ),
        "Error": shape({"error": "text", "detail": "text"}, optional=("detail",)),
    }


def _recorded(name: str) -> dict[str, Any]:
    """A field of a recorded receipt: always there, a sentinel where it says nothing."""
    kind = FIELDS[name][0]
    return _of({"object": "object", "boolean": "flag", "integer": "count", "time": "text?"}.get(kind, "text"))
