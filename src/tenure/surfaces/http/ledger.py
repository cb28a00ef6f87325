"""`/receipts` and `/obligations`: the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core import receipts as rules
from tenure.core.errors import Refused, refuse
from tenure.core.times import parse_iso
from tenure.engine import receipts
from tenure.surfaces import shapes
from tenure.surfaces.http import answers
from tenure.surfaces.http.requests import json_of, node_of, page, refusal_to_speak, speaker_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def submit(request: Request) -> Response:
    """Record a receipt and do what it says; the same one again gets the first answer."""
    body = await json_of(request)
    if isinstance(body, Refused):
        return answers.problem(body)
    source = body.get("source_system") if isinstance(body, dict) else None
    refused = refusal_to_speak(request, source) if rules.said(source) else None
    if refused is not None:
        return answers.problem(refused)
    done = await node_of(request).call(
        receipts.submit_receipt,
        body=body,
        agent_id=speaker_of(request),
        project_id=request.query_params.get("project"),
    )
    if isinstance(done, Refused):
        return answers.problem(done)
    return answers.reply(shapes.receipt(done.receipt), 200 if done.repeated else 201)


async def list_receipts(request: Request) -> Response:
    """Receipts by task, phase, principal and time, a page at a time."""
    query = request.query_params
    arguments: dict[str, Any] = {
        "task_id": request.path_params.get("task_id") or query.get("task_id"),
        "project_id": query.get("project"),
        "phase": query.get("phase"),
        "principal": query.get("principal_ai"),
        **page(request),
    }
    for name in ("since", "until"):
        if query.get(name):
            moment = parse_iso(query[name])
            if moment is None:
                return answers.problem(refuse("invalid_argument", f"{name} must be an RFC 3339 time.", argument=name))
            arguments[f"{name}_ms"] = moment
    found = await node_of(request).call(receipts.list_receipts, **arguments)
    if isinstance(found, Refused):
        return answers.problem(found)
    following = found[-1].seq if len(found) == arguments["limit"] else None
    return answers.reply({"receipts": [shapes.receipt(one) for one in found], "next_after": following})


async def show(request: Request) -> Response:
    """One receipt."""
    found = await node_of(request).call(receipts.show_receipt, receipt_id=request.path_params["receipt_id"])
    return answers.problem(found) if isinstance(found, Refused) else answers.reply(shapes.receipt(found))


async def verify(request: Request) -> Response:
    """Check the chains and seals."""
    query = request.query_params
    checked = await node_of(request).call(
        receipts.verify, task_id=query.get("task_id"), project_id=query.get("project")
    )
    if isinstance(checked, Refused):
        return answers.problem(checked)
    return answers.reply({**checked.as_dict(), "intact": not checked.faults})


async def obligations(request: Request) -> Response:
    """Tasks whose obligation is open or overdue."""
    paged = page(request)
    found = await node_of(request).call(receipts.obligations, project_id=request.query_params.get("project"), **paged)
    if isinstance(found, Refused):
        return answers.problem(found)
    following = found[-1].key if len(found) == paged["limit"] else None
    return answers.reply({"obligations": [shapes.task(one) for one in found], "next_after": following})
