"""Answers: JSON, problems, and the bodies that the specification fixes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from tenure.core.deadline import close_call
from tenure.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.core.errors import Refused
    from tenure.core.model import Lease, Task
    from tenure.engine.claims import Grant
    from tenure.engine.observe import TaskView

encode = msgspec.json.Encoder().encode
NO_WORK_BACKOFF_S = 5
ERROR_BACKOFF_S = 5

# Refusals whose bodies the specification prints. Everything else is a problem document.
FIXED_BODIES: dict[str, tuple[int, dict[str, str]]] = {
    "invalid_worker_id": (
        400,
        {"error": "invalid_worker_id", "detail": "must match pattern {type}.{instance}"},
    ),
    "internal_error": (500, {"error": "internal_error"}),
}
# The store cannot be reached or used: one body for all of it, as the specification says.
UNAVAILABLE = frozenset(
    ("store_unavailable", "store_busy", "store_full", "store_corrupt", "store_foreign", "store_newer", "store_shared")
)


class Reply(Response):
    """A JSON answer. Its headers are made here: Starlette's way costs more than all else that is done for it."""

    def __init__(self, body: bytes, status: int, headers: dict[str, str] | None) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        if headers is not None:
            self.raw_headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Reply(encode(value), status, headers)


def no_content(retry_after_s: int = NO_WORK_BACKOFF_S) -> Response:
    """No work: an empty body, and when to ask again."""
    return Response(status_code=204, headers={"Retry-After": str(retry_after_s)})


def problem(refusal: Refused) -> Response:
    """A refusal, as the specification fixes it or else as application/problem+json."""
    if refusal.code in UNAVAILABLE:
        return reply({"error": "database_unavailable"}, 503, {"Retry-After": str(ERROR_BACKOFF_S)})
    if refusal.code in FIXED_BODIES:
        status, fixed = FIXED_BODIES[refusal.code]
        return reply(fixed, status)
    headers = {"Retry-After": str(refusal.facts.get("retry_after_s", 1))} if refusal.http_status == 503 else None
    body: dict[str, Any] = {
        "type": f"urn:tenure:refusal:{refusal.code}",
        "title": refusal.code.replace("_", " "),
        "status": refusal.http_status,
        "detail": refusal.message,
        "code": refusal.code,
        "next": refusal.next,
        "facts": refusal.facts,
    }
    return Response(encode(body), refusal.http_status, headers, "application/problem+json")


def offered(grant: Grant) -> dict[str, Any]:
    """An offer, exactly as the specification prints it: absent optional fields are left out."""
    return {
        "lease_id": grant.lease.lease_id,
        "lease_expires_at": iso(grant.lease.expires_at_ms),
        "task": offered_task(grant.task),
    }


def offer_headers(grants: Sequence[Grant]) -> dict[str, str]:
    """What the fixed body of an offer has no place for: each lease's term (unless it began earlier) and its token."""
    headers = {"Tenure-Token": ",".join([str(grant.lease.token) for grant in grants])}
    if not any(grant.resumed for grant in grants):
        headers["Tenure-Lease-S"] = ",".join([f"{grant.lease.term_ms / 1000:g}" for grant in grants])
    return headers


def offered_task(task: Task) -> dict[str, Any]:
    """The work specification of an offer."""
    shape: dict[str, Any] = {
        "task_id": task.task_id,
        "principal_ai": task.principal_ai,
        "task_type": task.kind,
        "task_summary": task.title,
        "task_body": task.body,
        "payload_pointer": task.payload_pointer,
        "inputs": json.loads(task.inputs) if task.inputs else {},
        "expected_outcome_kind": task.expected_outcome_kind,
        "expected_artifact_mime": task.expected_artifact_mime,
    }
    return {name: value for name, value in shape.items() if value or name in ("task_id", "task_summary")}


def queued_words(view: TaskView, now_ms: int) -> dict[str, Any]:
    """A task in the words of the specification's queue."""
    task = view.task
    lease = view.leases[0] if view.leases else None
    status = {"done": "complete", "dead": "dead", "blocked": "blocked"}.get(view.status, "queued")
    if lease is not None:
        status = "leased"
    elif view.status == "todo" and task.retry_at_ms > now_ms:
        status = "retry_pending"
    return {
        "queue_status": status,
        "attempt": task.attempts + 1 if view.status in ("todo", "in_progress") else task.attempts,
        "retry_after": iso(task.retry_at_ms) if task.retry_at_ms > now_ms else None,
        "lease_id": lease.lease_id if lease else None,
        "worker_id": lease.agent_id if lease else None,
        "lease_granted_at": iso(lease.granted_at_ms) if lease else None,
        "lease_expires_at": iso(lease.expires_at_ms) if lease else None,
    }


def held(lease: Lease, now_ms: int) -> dict[str, Any]:
    """A heartbeat's answer: the new expiry, and what the holder should know."""
    return {
        "lease_id": lease.lease_id,
        "task_id": lease.task_id,
        "token": lease.token,
        "state": lease.state,
        "lease_expires_at": iso(lease.expires_at_ms),
        "recover_at": iso(lease.recover_at_ms),
        # What this heartbeat bought, counted from the server's now: the holder's clock need not be the server's.
        "lease_s": (lease.expires_at_ms - now_ms) / 1000,
        "signals": ["deadline_soon"] if close_call(lease) else [],
    }
