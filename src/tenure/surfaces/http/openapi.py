"""The OpenAPI document, made from the table of operations, the types of `wire.py` and the shapes of `schemas.py`, and a
page that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import HTMLResponse
from starlette.responses import Response as Plain

from tenure import __version__
from tenure.core.ids import ID_MAX
from tenure.core.model import STATUSES
from tenure.core.receipts import PHASES
from tenure.surfaces.http import answers, schemas, wire

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_PAGED = ("after", "limit")
_SSE, _PLAIN = "text/event-stream", "text/plain"
# method and path: (summary, body, query parameters, {status: shape of the answer, or its content type, or None})
Operation = tuple[str, str | None, tuple[str, ...], dict[int, str | None]]
OPERATIONS: dict[tuple[str, str], Operation] = {
    ("post", "/lease"): ("Poll for work.", "Lease", (), {200: "OfferOrOffers", 204: None}),
    ("get", "/lease"): ("A worker's live leases.", None, ("worker_id",), {200: "HeldLeases"}),
    ("post", "/lease/{lease_id}/heartbeat"): ("Extend a lease.", "Heartbeat", (), {200: "Held"}),
    ("post", "/lease/{lease_id}/release"): ("Give a lease back.", "Release", (), {200: "Released"}),
    ("post", "/receipts"): (
        "Record a receipt; one that is known already is answered with 200.",
        "Receipt",
        ("project",),
        {200: "RecordedReceipt", 201: "RecordedReceipt"},
    ),
    ("get", "/receipts"): (
        "Receipts, in ledger order.",
        None,
        ("task_id", "phase", "principal_ai", "since", "until", "project", *_PAGED),
        {200: "Receipts"},
    ),
    ("get", "/receipts/verify"): ("Check the ledger.", None, ("task_id", "project"), {200: "Verified"}),
    ("get", "/receipts/{receipt_id}"): ("One receipt.", None, (), {200: "RecordedReceipt"}),
    ("get", "/obligations"): ("Open and overdue obligations.", None, ("project", *_PAGED), {200: "Obligations"}),
    ("post", "/tasks"): ("Add a task, or many.", "NewTaskOrMany", ("project",), {201: "TaskOrTasks"}),
    ("get", "/tasks"): (
        "Tasks.",
        None,
        ("project", "status", "task_type", "assigned_to", "search", *_PAGED),
        {200: "SeenTasks"},
    ),
    ("get", "/tasks/{task_id}"): ("One task.", None, ("project",), {200: "TaskDetail"}),
    ("get", "/tasks/{task_id}/receipts"): ("A task's receipts.", None, ("project", *_PAGED), {200: "Receipts"}),
    ("post", "/tasks/{task_id}/requeue"): (
        "A new start for a dead, blocked or waiting task.",
        None,
        ("project",),
        {200: "Task"},
    ),
    ("post", "/tasks/{task_id}/move"): (
        "Put a task into another column by hand; a live lease is taken away only with revoke.",
        "Move",
        ("project",),
        {200: "Task"},
    ),
    ("get", "/dead"): ("The dead-letter list.", None, ("project", *_PAGED), {200: "SeenTasks"}),
    ("get", "/events"): ("A stream of events.", None, ("project", "task_id", "agent_id", "after"), {200: _SSE}),
    ("post", "/boards/webhook"): (
        "What a board calls when something happened on it.",
        "BoardEvent",
        ("project", "token"),
        {202: "Noted"},
    ),
    ("get", "/gates"): (
        "External gates: what was sent, what waits, what is parked and why.",
        None,
        ("project",),
        {200: "Gates"},
    ),
    ("post", "/gates/resend"): (
        "Have a gate's parked receipts sent again, all or one.",
        "Resend",
        ("project",),
        {200: "Resent"},
    ),
    ("get", "/health"): ("Statistics and monitors.", None, (), {200: "Health"}),
    ("get", "/metrics"): ("The same for Prometheus.", None, (), {200: _PLAIN}),
}


def openapi() -> dict[str, Any]:
    """The whole document."""
    types = (wire.Lease, wire.Heartbeat, wire.Release, wire.NewTask, wire.NewTasks, wire.Move, wire.Resend)
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    components["NewTaskOrMany"] = {"anyOf": [schemas.ref("NewTask"), schemas.ref("NewTasks")]}
    components["Receipt"] = schemas.receipt()
    components.update(schemas.components())
    paths: dict[str, Any] = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method] = _operation(path, *operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenure", "version": __version__, "description": "Work that survives the agent holding it."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        # With --tokens every request needs one; without, none does.
        "security": [{}, {"token": []}],
    }


def _operation(
    path: str, summary: str, body: str | None, query: tuple[str, ...], answered: dict[int, str | None]
) -> dict[str, Any]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    operation: dict[str, Any] = {
        "summary": summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            *(
                {"name": name, "in": "query", "required": name == "worker_id", "schema": _query_schema(name)}
                for name in query
            ),
        ],
        "responses": {str(status): _success(shape) for status, shape in answered.items()},
    }
    for status in ("4XX", "5XX"):
        operation["responses"][status] = {
            "description": "A refusal.",
            "content": {
                "application/problem+json": {"schema": schemas.ref("Problem")},
                "application/json": {"schema": schemas.ref("Error")},
            },
        }
    if body is not None:
        operation["requestBody"] = {
            "required": body not in ("Heartbeat", "Release", "Resend"),
            "content": {"application/json": {"schema": schemas.ref(body)}},
        }
    return operation


def _query_schema(name: str) -> dict[str, Any]:
    if name in _PAGED:
        return {
            "type": "integer",
            "minimum": 0 if name == "after" else 1,
            "maximum": 10_000 if name == "limit" else 2**53,
        }
    if name == "worker_id":
        return {"type": "string", "pattern": wire.WORKER_ID, "maxLength": ID_MAX}
    if name in ("status", "phase"):
        return schemas.one_of(STATUSES if name == "status" else PHASES)
    return {"type": "string", "format": "date-time"} if name in ("since", "until") else {"type": "string"}


def _success(shape: str | None) -> dict[str, Any]:
    if shape is None:
        return {
            "description": "No work.",
            "headers": {"Retry-After": {"required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}}},
        }
    if "/" in shape:
        return {"description": "Success.", "content": {shape: {"schema": {"type": "string"}}}}
    return {"description": "Success.", "content": {"application/json": {"schema": schemas.ref(shape)}}}


_DOCUMENT = answers.encode(openapi())


async def document(request: Request) -> Response:
    """`/openapi.json`."""
    return Plain(_DOCUMENT, media_type="application/json")


async def page(request: Request) -> Response:
    """A readable page for the document, without any script."""
    rows = []
    for (method, path), (summary, body, query, _) in OPERATIONS.items():
        takes = ", ".join(filter(None, (f"body {body}" if body else "", *query)))
        rows.append(
            f"<tr><td><b>{method.upper()}</b></td><td><code>{path}</code></td><td>{summary}</td><td>{takes}</td></tr>"
        )
    style = "body{font:16px/1.5 system-ui;margin:2rem;max-width:70rem}"
    style += "td{padding:.3rem .8rem;border-bottom:1px solid #8884}"
    return HTMLResponse(
        f"<!doctype html><meta charset=utf-8><title>Tenure</title>"
        f"<style>:root{{color-scheme:light dark}}{style}</style>"
        f"<h1>Tenure {__version__}</h1><p>The whole description is <a href=/openapi.json>/openapi.json</a>.</p>"
        f"<table>{''.join(rows)}</table>"
    )
