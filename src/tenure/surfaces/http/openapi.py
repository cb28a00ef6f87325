"""The OpenAPI document, made from the table of operations and the types of `wire.py`, and a page that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import HTMLResponse

from tenure import __version__
from tenure.core.receipts import FIELDS, PHASES
from tenure.surfaces.http import answers, wire

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_PAGED = ("after", "limit")
# method and path: (summary, body type, query parameters, success statuses)
OPERATIONS: dict[tuple[str, str], tuple[str, str | None, tuple[str, ...], tuple[int, ...]]] = {
    ("post", "/lease"): ("Poll for work.", "Lease", (), (200, 204)),
    ("get", "/lease"): ("A worker's live leases.", None, ("worker_id",), (200,)),
    ("post", "/lease/{lease_id}/heartbeat"): ("Extend a lease.", "Heartbeat", (), (200,)),
    ("post", "/lease/{lease_id}/release"): ("Give a lease back.", "Release", (), (200,)),
    ("post", "/receipts"): ("Record a receipt.", "Receipt", ("project",), (200, 201)),
    ("get", "/receipts"): (
        "Receipts, in ledger order.",
        None,
        ("task_id", "phase", "principal_ai", "since", "until", "project", *_PAGED),
        (200,),
    ),
    ("get", "/receipts/verify"): ("Check the ledger.", None, ("task_id", "project"), (200,)),
    ("get", "/receipts/{receipt_id}"): ("One receipt.", None, (), (200,)),
    ("get", "/obligations"): ("Open and overdue obligations.", None, ("project", *_PAGED), (200,)),
    ("post", "/tasks"): ("Add a task, or many.", "NewTaskOrMany", ("project",), (201,)),
    ("get", "/tasks"): (
        "Tasks.",
        None,
        ("project", "status", "task_type", "assigned_to", "search", *_PAGED),
        (200,),
    ),
    ("get", "/tasks/{task_id}"): ("One task.", None, ("project",), (200,)),
    ("get", "/tasks/{task_id}/receipts"): ("A task's receipts.", None, ("project", *_PAGED), (200,)),
    ("post", "/tasks/{task_id}/requeue"): (
        "A new start for a dead, blocked or waiting task.",
        None,
        ("project",),
        (200,),
    ),
    ("get", "/dead"): ("The dead-letter list.", None, ("project", *_PAGED), (200,)),
    ("get", "/events"): ("A stream of events (SSE).", None, ("project", "task_id", "agent_id", "after"), (200,)),
    ("get", "/health"): ("Statistics and monitors.", None, (), (200,)),
    ("get", "/metrics"): ("The same for Prometheus.", None, (), (200,)),
}
_CONTENT = {"/metrics": "text/plain", "/events": "text/event-stream"}


def openapi() -> dict[str, Any]:
    """The whole document."""
    types = (wire.Lease, wire.Heartbeat, wire.Release, wire.NewTask, wire.NewTasks)
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    components["NewTaskOrMany"] = {
        "anyOf": [{"$ref": "#/components/schemas/NewTask"}, {"$ref": "#/components/schemas/NewTasks"}]
    }
    components["Receipt"] = _receipt()
    components["Problem"] = {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "next"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"type": "string"},
            "next": {"type": "string"},
            "facts": {"type": "object"},
        },
    }
    components["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string"}, "detail": {"type": "string"}},
    }
    paths: dict[str, Any] = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method] = _operation(path, *operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenure", "version": __version__, "description": "Work that survives the agent holding it."},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(
    path: str, summary: str, body: str | None, query: tuple[str, ...], statuses: tuple[int, ...]
) -> dict[str, Any]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    operation: dict[str, Any] = {
        "summary": summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            *({"name": name, "in": "query", "schema": _query_schema(name)} for name in query),
        ],
        "responses": {str(status): _success(path, status) for status in statuses},
    }
    for status in ("4XX", "5XX"):
        operation["responses"][status] = {
            "description": "A refusal.",
            "content": {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
                "application/json": {"schema": {"$ref": "#/components/schemas/Error"}},
            },
        }
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body}"}
        operation["requestBody"] = {
            "required": body not in ("Heartbeat", "Release"),
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _query_schema(name: str) -> dict[str, Any]:
    if name in _PAGED:
        return {
            "type": "integer",
            "minimum": 0 if name == "after" else 1,
            "maximum": 10_000 if name == "limit" else 2**53,
        }
    return {"type": "string"}


def _success(path: str, status: int) -> dict[str, Any]:
    if status == 204:
        return {"description": "No work.", "headers": {"Retry-After": {"schema": {"type": "string"}}}}
    content_type = _CONTENT.get(path, "application/json")
    schema: dict[str, Any] = {"type": "string"} if path in _CONTENT else {"type": "object"}
    return {"description": "Success.", "content": {content_type: {"schema": schema}}}


def _receipt() -> dict[str, Any]:
    types = {"object": {"type": ["object", "null"]}, "flag": {"type": ["boolean", "null"]}}
    whole = {"type": ["integer", "null"]}
    properties: dict[str, Any] = {
        name: types.get(kind, whole if kind in ("integer", "number", "percent") else {"type": ["string", "null"]})
        for name, (kind, _, _) in FIELDS.items()
    }
    properties["phase"] = {"type": "string", "enum": list(PHASES)}
    return {"type": "object", "required": ["phase"], "properties": properties, "additionalProperties": False}


_DOCUMENT = answers.encode(openapi())


async def document(request: Request) -> Response:
    """`/openapi.json`."""
    from starlette.responses import Response as Plain

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
