"""Boards over HTTP: the webhook of an external one, and how boards and assignments stand.

A webhook is only a hint that something happened: what happened is read from the board. It proves itself with the token
that the board was connected with, in the query as Kanboard sends it, because a board has no token of ours.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT
from tenure.engine import alerts, boards, observe
from tenure.engine.health import check_assignment_health
from tenure.engine.projects import list_projects
from tenure.surfaces import shapes
from tenure.surfaces.http import answers
from tenure.surfaces.http.requests import node_of, raw_body

if TYPE_CHECKING:
    from starlette.requests import Request

    from tenure.surfaces.http.node import Node


async def webhook(request: Request) -> Response:
    """Something happened on a board."""
    node = node_of(request)
    project_id = request.query_params.get("project", DEFAULT_PROJECT)
    given = request.query_params.get("token", "")
    secret = await node.look(lambda tx: getattr(boards.board_of(tx, project_id), "webhook_token", ""))
    if not secret or not hmac.compare_digest(secret.encode(), given.encode("utf-8", "replace")):
        return answers.problem(refuse("unauthorized", "The token is not the one this board was connected with."))
    raw = await raw_body(request)
    if isinstance(raw, Refused):
        return answers.problem(raw)
    try:
        body = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return answers.problem(refuse("invalid_argument", "The body is not JSON."))
    for card_id in _cards(body):
        node.hint_board(project_id, card_id)
    return answers.reply({"status": "ok"}, 202)


def _cards(body: Any) -> list[str]:
    """The cards an event is about."""
    data = body.get("event_data") if isinstance(body, dict) else None
    if not isinstance(data, dict):
        return []
    task = data.get("task")
    found = [data.get("task_id"), task.get("id") if isinstance(task, dict) else None]
    return sorted({str(number) for number in found if isinstance(number, int | str) and str(number).isdigit()})


async def health(node: Node) -> dict[str, Any] | Refused:
    """What `/health` says of boards, assignments and gridlock."""
    views = await node.call(boards.list_boards)
    projects = await node.call(list_projects)
    if isinstance(views, Refused):
        return views
    if isinstance(projects, Refused):
        return projects
    assignments: dict[str, Any] = {}
    stuck: dict[str, Any] = {}
    for project in projects:
        found = await node.call(check_assignment_health, project_id=project.project_id)
        if not isinstance(found, Refused):
            assignments[project.project_id] = shapes.assignments(found)
        ready = await node.call(observe.ready_tasks, project_id=project.project_id, limit=1)
        if ready:
            continue
        grid = await node.call(observe.gridlock, project_id=project.project_id)
        if not isinstance(grid, Refused) and (grid.gridlocked or grid.cycles or grid.missing or grid.blocked_upstream):
            stuck[project.project_id] = {"gridlocked": grid.gridlocked, "why": grid.sentences()}
    asking = await node.call(alerts.requesting_agents)
    return {
        "boards": [view.as_dict() for view in views],
        "assignments": assignments,
        "gridlock": stuck,
        "requesting_agents": 0 if isinstance(asking, Refused) else asking,
    }
