"""Bodies that come in, as types: msgspec decodes and checks them in one pass, and the OpenAPI document is made from
them. Verbs check the meaning."""

from __future__ import annotations

from typing import Any

import msgspec


class Lease(msgspec.Struct, forbid_unknown_fields=True):
    """A worker polls for work."""

    worker_id: str
    capabilities: list[str] | None = None
    max_tasks: int = 1
    preferred_kinds: list[str] = []
    wait: float | None = None
    profile: str = "worker"
    project: str | None = None
    idempotency_key: str | None = None


class Heartbeat(msgspec.Struct, forbid_unknown_fields=True):
    """A worker holds on."""

    progress: int | None = None
    message: str = ""
    expect_silence_s: int = 0


class Release(msgspec.Struct, forbid_unknown_fields=True):
    """A worker lets go."""

    message: str = ""


class NewTask(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A task, in the words of the specification's offer and in ours."""

    task_summary: str = ""
    title: str = ""
    task_id: str | None = None
    principal_ai: str = ""
    task_type: str = ""
    kind: str = ""
    task_body: str = ""
    body: str = ""
    payload_pointer: str = ""
    inputs: dict[str, Any] = {}
    expected_outcome_kind: str = ""
    expected_artifact_mime: str = ""
    task_priority: str = ""
    priority: str = ""
    complexity: str = "none"
    estimated_hours: float = 4.0
    requires: list[str] = []
    after: list[str] = []
    lease_duration_s: int | None = None
    max_attempts: int | None = None
    slots: int = 1
    not_before: str | None = None
    assigned_to: str | None = None
    dedupe_key: str | None = None
    project: str | None = None


class NewTasks(msgspec.Struct, forbid_unknown_fields=True):
    """Many tasks, added all or none."""

    tasks: list[NewTask]
    project: str | None = None


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
