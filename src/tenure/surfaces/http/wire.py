"""Bodies that come in, as types: msgspec decodes and checks them in one pass, and the OpenAPI document is made from
them. Verbs check the meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from tenure.core.ids import ID_MAX
from tenure.core.model import COMPLEXITIES, PRIORITIES
from tenure.engine.claims import KINDS_MAX, OFFERS_MAX

WAIT_MAX_S = 300.0
# For the document; the code judges these itself, because its refusals say more (and one of them is fixed).
ID = r"^[A-Za-z0-9]([A-Za-z0-9._+@-]*[A-Za-z0-9_+@-])?$"
WORKER_ID = r"^[A-Za-z0-9][A-Za-z0-9_+@-]*\.[A-Za-z0-9_+@-]+$"


def _told(**schema: Any) -> msgspec.Meta:
    """What only the document says of a field."""
    return msgspec.Meta(extra_json_schema=schema)


Name = Annotated[str, _told(pattern=ID, maxLength=ID_MAX)]
Names = Annotated[list[Name], msgspec.Meta(max_length=100)]
Kinds = Annotated[list[Name], msgspec.Meta(max_length=KINDS_MAX)]
Key = Annotated[str, _told(minLength=1, maxLength=256)]
Text = Annotated[str, _told(maxLength=100_000)]


class Lease(msgspec.Struct, forbid_unknown_fields=True):
    """A worker polls for work."""

    worker_id: Annotated[str, _told(pattern=WORKER_ID, maxLength=ID_MAX)]
    capabilities: Names | None = None
    max_tasks: Annotated[int, msgspec.Meta(ge=1, le=OFFERS_MAX)] = 1
    preferred_kinds: Kinds = []
    wait: Annotated[float, msgspec.Meta(ge=0, le=WAIT_MAX_S)] | None = None
    profile: Name = "worker"
    project: Name | None = None
    idempotency_key: Key | None = None


class Heartbeat(msgspec.Struct, forbid_unknown_fields=True):
    """A worker holds on."""

    progress: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    message: Text = ""
    expect_silence_s: Annotated[int, _told(minimum=0)] = 0


class Release(msgspec.Struct, forbid_unknown_fields=True):
    """A worker lets go."""

    message: Text = ""


class Move(msgspec.Struct, forbid_unknown_fields=True):
    """A person moves a card."""

    status: Literal["todo", "in_progress", "blocked", "done", "dead"]
    by: Annotated[str, _told(maxLength=500)] = "operator"
    message: Text = ""
    revoke: bool = False


class Resend(msgspec.Struct, forbid_unknown_fields=True):
    """Parked receipts are to be sent again: all, or one."""

    receipt_id: Annotated[str, _told(minLength=1, maxLength=256)] | None = None


class NewTask(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A task, in the words of the specification's offer and in ours."""

    task_summary: Annotated[str, _told(maxLength=500)] = ""
    title: Annotated[str, _told(maxLength=500)] = ""
    task_id: Name | None = None
    principal_ai: str = ""
    task_type: str = ""
    kind: str = ""
    task_body: str = ""
    body: str = ""
    payload_pointer: str = ""
    inputs: dict[str, Any] = {}
    expected_outcome_kind: str = ""
    expected_artifact_mime: str = ""
    task_priority: Annotated[str, _told(enum=["", *PRIORITIES])] = ""
    priority: Annotated[str, _told(enum=["", *PRIORITIES])] = ""
    complexity: Annotated[str, _told(enum=list(COMPLEXITIES))] = "none"
    estimated_hours: float = 4.0
    requires: Names = []
    after: list[Name] = []
    lease_duration_s: Annotated[int, _told(minimum=1, maximum=604_800)] | None = None
    max_attempts: Annotated[int, _told(minimum=1, maximum=1_000)] | None = None
    slots: Annotated[int, _told(minimum=1, maximum=16)] = 1
    not_before: Annotated[str, _told(format="date-time")] | None = None
    assigned_to: Annotated[str, _told(minLength=1, maxLength=128)] | None = None
    dedupe_key: Key | None = None
    project: Name | None = None


class NewTasks(msgspec.Struct, forbid_unknown_fields=True):
    """Many tasks, added all or none."""

    tasks: list[NewTask]
    project: Name | None = None


def fields_of(task: NewTask) -> dict[str, Any] | str:
    """A task's fields under the verb's names, or what is wrong with a time."""
    from tenure.core.times import parse_iso

    fields: dict[str, Any] = {
        "title": task.task_summary or task.title,
        "body": task.task_body or task.body,
        "kind": task.task_type or task.kind,
        "priority": task.task_priority or task.priority or "medium",
        "complexity": task.complexity,
        "estimated_hours": task.estimated_hours,
        "requires": task.requires,
        "after": task.after,
        "slots": task.slots,
        "principal_ai": task.principal_ai,
        "payload_pointer": task.payload_pointer,
        "inputs": task.inputs,
        "expected_outcome_kind": task.expected_outcome_kind,
        "expected_artifact_mime": task.expected_artifact_mime,
    }
    for name in ("task_id", "lease_duration_s", "max_attempts", "assigned_to", "dedupe_key"):
        if getattr(task, name) is not None:
            fields[name] = getattr(task, name)
    if task.not_before is not None:
        moment = parse_iso(task.not_before)
        if moment is None:
            return "not_before must be an RFC 3339 time, such as 2026-01-04T15:45:00Z"
        fields["not_before_ms"] = moment
    return fields
