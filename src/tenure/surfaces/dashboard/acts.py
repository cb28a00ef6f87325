"""What the page writes: each act is one verb of the engine, called like everyone else calls it.

A write must prove that it comes from the page of this very server (sessions.py), with tokens or without: another
program on this machine may serve pages too. An operator may do everything; a token that speaks for one agent may write
messages in its name and nothing else here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT
from tenure.engine import board, boards, notes, outbox, tasks
from tenure.surfaces import shapes
from tenure.surfaces.dashboard import example, sessions
from tenure.surfaces.dashboard import shapes as own
from tenure.surfaces.http import answers
from tenure.surfaces.http.credentials import TOKENS
from tenure.surfaces.http.requests import json_of, node_of, speaker_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

# act: (verb, the fields it takes from the page)
ACTS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "move": (board.move_task, ("task_id", "status", "message", "revoke")),
    "requeue": (tasks.requeue_task, ("task_id",)),
    "retry": (boards.retry_board, ()),
    "resend": (outbox.resend_receipts, ()),
    "add": (tasks.add_task, ("title", "body", "kind", "priority", "after")),
    "message": (notes.send_message, ("task_id", "text")),
    "example": (tasks.add_tasks, ()),
}


async def act(request: Request) -> Response:
    """Do one thing that a person asked for."""
    name = request.path_params["act"]
    headers: dict[bytes, bytes] = dict(request.scope["headers"])
    if not sessions.from_own_page(headers):
        return answers.problem(refuse("not_permitted", "Only the dashboard's own page may do this."))
    if name not in ACTS:
        return answers.problem(refuse("route_not_found", f"There is no act {ascii(name)[:60]}."))
    body = await json_of(request)
    if isinstance(body, Refused):
        return answers.problem(body)
    if not isinstance(body, dict):
        return answers.problem(refuse("invalid_argument", "The body must be an object.", argument="body"))
    speaker = speaker_of(request)
    if speaker is not None and name != "message":
        return answers.problem(refuse("not_permitted", f"This token speaks for {speaker}, not for an operator."))
    verb, fields = ACTS[name]
    unknown = [field for field in body if field not in (*fields, "project", "by")]
    if unknown:
        return answers.problem(
            refuse("invalid_argument", f"{ascii(unknown[0])[:60]} is not expected.", argument="body")
        )
    arguments = {field: body[field] for field in fields if field in body}
    arguments["project_id"] = body.get("project") or DEFAULT_PROJECT
    person = speaker or body.get("by") or "operator"
    if name == "message":
        arguments["sender"] = person
    elif name == "example":
        arguments["tasks"] = example.tasks()
    elif name in ("move", "requeue"):
        arguments["by"] = person
    done = await node_of(request).call(verb, **arguments)
    if isinstance(done, Refused):
        return answers.problem(done)
    if name == "message":
        return answers.reply(shapes.message(done), 201)
    if name == "example":
        return answers.reply({"tasks": [task.task_id for task in done]}, 201)
    if name == "resend":
        return answers.reply(own.gate(done.gate))
    return answers.reply(own.external(done) if name == "retry" else shapes.task(done))


# -- sessions ---------------------------------------------------------------------------------------------------------


async def session(request: Request) -> Response:
    """Whether this server needs a token, and whether the browser has shown one."""
    tokens = request.scope.get(TOKENS)
    if tokens is None:
        return answers.reply({"needed": False, "speaks_for": "*"})
    headers: dict[bytes, bytes] = dict(request.scope["headers"])
    known = sessions.cookie_of(headers)
    agent = tokens.agent_of_session(known) if known else None
    return answers.reply({"needed": True, "speaks_for": agent})


async def sign_in(request: Request) -> Response:
    """A token becomes a session."""
    tokens = request.scope.get(TOKENS)
    headers: dict[bytes, bytes] = dict(request.scope["headers"])
    if not sessions.from_own_page(headers):
        return answers.problem(refuse("not_permitted", "Only the dashboard's own page may do this."))
    body = await json_of(request)
    if isinstance(body, Refused):
        return answers.problem(body)
    token = body.get("token") if isinstance(body, dict) else None
    agent = tokens.agent_of(token) if tokens is not None and isinstance(token, str) else None
    if agent is None or not isinstance(token, str):
        return answers.problem(refuse("unauthorized", "This server does not know that token."))
    made = sessions.issue(token, int(time.time()))
    cookie = sessions.set_cookie(made, secure=request.url.scheme == "https")
    return answers.reply({"needed": True, "speaks_for": agent}, 200, {"Set-Cookie": cookie})


async def sign_out(request: Request) -> Response:
    """The browser forgets its session."""
    headers: dict[bytes, bytes] = dict(request.scope["headers"])
    if not sessions.from_own_page(headers):
        return answers.problem(refuse("not_permitted", "Only the dashboard's own page may do this."))
    cookie = sessions.set_cookie("", secure=request.url.scheme == "https")
    return answers.reply(
        {"needed": request.scope.get(TOKENS) is not None, "speaks_for": None}, 200, {"Set-Cookie": cookie}
    )
