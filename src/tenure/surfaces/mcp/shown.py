"""What the tools answer: records in the words of the agent's world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tenure.core.handoff import recovery_info
from tenure.core.phases import phase_of
from tenure.core.times import iso
from tenure.surfaces import shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tenure.core.errors import Refused
    from tenure.core.model import Lease
    from tenure.engine.explain import TaskContext
    from tenure.engine.observe import TaskView

# An artifact's content is shown up to here; the rest is read with the resource of its task.
CONTENT_SHOWN = 20_000

_encode = msgspec.json.Encoder().encode


def result(value: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's answer: structured, and the same as text for clients that read only that."""
    text = _encode(value).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": value, "isError": False}


def refusal(refused: Refused) -> dict[str, Any]:
    """A tool's no: what happened and what to do as text, and code and facts for programs."""
    text = f"{refused.code}: {refused.message} {refused.next}"
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": problem(refused),
        "isError": True,
    }


def problem(refused: Refused) -> dict[str, Any]:
    """A refusal's code, words and facts."""
    return {
        "code": refused.code,
        "message": refused.message,
        "next": refused.next,
        "facts": dict(refused.facts),
    }


def document(value: Any) -> str:
    """A resource's text."""
    return msgspec.json.format(_encode(value), indent=2).decode()


def lease(value: Lease) -> dict[str, Any]:
    """A lease, as its holder needs it."""
    return {
        "lease_id": value.lease_id,
        "token": value.token,
        "state": value.state,
        "expires_at": iso(value.expires_at_ms),
        # The instant from which the holder counts as dead: grace and cadence are in it.
        "recover_at": iso(value.recover_at_ms),
        "phase": "fixed" if value.fixed else phase_of(value.reports, value.progress),
        "lease_s": value.term_ms / 1000,
        "grace_s": value.grace_ms / 1000,
    }


def lost(value: Lease) -> dict[str, Any]:
    """The lease an agent lost since it was last told."""
    return {
        "task_id": value.task_id,
        "lease_id": value.lease_id,
        "token": value.token,
        "reason": value.end_reason,
        "next": f"Report on {value.task_id} once more: it is yours again if nobody took it, else stop working on it.",
    }


def task(value: TaskView) -> dict[str, Any]:
    """A task as its worker needs it. `id`, `name` and `description` are what agents look for."""
    known = value.task
    return {
        "id": known.task_id,
        "name": known.title,
        "description": known.body,
        "task_id": known.task_id,
        "project_id": known.project_id,
        "kind": known.kind,
        "status": value.status,
        "priority": known.priority,
        "complexity": known.complexity,
        "estimated_hours": known.estimated_hours,
        "assigned_to": None if value.due else known.assigned_to,
        "progress": known.progress,
        "attempts": known.attempts,
        "requires": known.requires.split(),
        "blocked_reason": known.blocked_reason or None,
    }


def made(rows: Iterable[Any], *, contents: bool = False) -> list[dict[str, Any]]:
    """Decisions or artifacts, oldest first."""
    listed = []
    for row in rows:
        shape = {name: value for name, value in row.items() if name not in ("seq", "at_ms", "content")}
        shape["at"] = iso(row["at_ms"])
        text = row.get("content")
        if contents and text is not None:
            shape["content"] = text[:CONTENT_SHOWN]
            if len(text) > CONTENT_SHOWN:
                shape["content_cut"] = len(text) - CONTENT_SHOWN
        listed.append({name: value for name, value in shape.items() if value not in (None, "")})
    return listed


def dependencies(context: TaskContext) -> list[dict[str, Any]]:
    """What a task builds on: each dependency with what it decided and made."""
    return [
        {
            "task_id": one.task_id,
            "name": one.title,
            "status": one.status,
            "decisions": made(one.decisions),
            "artifacts": made(one.artifacts),
        }
        for one in context.dependencies
    ]


def assignment(held: Lease, context: TaskContext) -> dict[str, Any]:
    """The answer to request_next_task when there is one: the task, how to do it, and the lease it is held by."""
    return {
        "task": task(context.view),
        "instructions": context.text,
        "lease": {**lease(held), "phase": context.phase or "fixed"},
        "dependencies": dependencies(context),
        "recovery_info": recovery_info(context.handoffs[0]) if context.handoffs else None,
    }


def context(value: TaskContext) -> dict[str, Any]:
    """All that is known of a task."""
    return {
        "task": task(value.view),
        "instructions": value.text,
        "holders": [{"agent_id": held.agent_id, **lease(held)} for held in value.view.leases],
        "dependencies": dependencies(value),
        "dependants": [one.as_dict() for one in value.dependants],
        "decisions": made(value.decisions),
        "artifacts": made(value.artifacts, contents=True),
        "messages": [shapes.message(one) for one in value.messages],
        "recovery_info": recovery_info(value.handoffs[0]) if value.handoffs else None,
    }
