"""What the page reads. Each is one query of the engine, or two about the same thing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from tenure.core.errors import Refused
from tenure.core.model import DEFAULT_PROJECT
from tenure.engine import board as boards
from tenure.engine import boards as external
from tenure.engine import explain, fleet, neighbours, notes, observe, pace, projects, receipts, recent
from tenure.surfaces import shapes as common
from tenure.surfaces.dashboard import shapes
from tenure.surfaces.http import answers
from tenure.surfaces.http.requests import node_of, whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from tenure.surfaces.http.node import Node

RECEIPTS_SHOWN, EVENTS_SHOWN, STORY_SHOWN, AGENTS_SHOWN = 200, 200, 300, 200
# What is the same for everyone who looks is looked up once in this time, however many look.
SHARED_FOR_S = 1.0


def _project(request: Request) -> str:
    return request.query_params.get("project") or DEFAULT_PROJECT


async def _shared(request: Request, key: tuple[Any, ...], ask: Callable[[], Awaitable[Any]]) -> Response:
    """The answer to a question that every page asks, at most once a second."""
    state = request.app.state
    if not hasattr(state, "dashboard_answers"):
        state.dashboard_answers = {}
    kept: dict[tuple[Any, ...], tuple[float, asyncio.Future[Response]]] = state.dashboard_answers
    now = asyncio.get_running_loop().time()
    for old in [old for old, (at, found) in kept.items() if now - at > SHARED_FOR_S and found.done()]:
        del kept[old]
    if key not in kept:
        kept[key] = (now, asyncio.ensure_future(_answer(ask)))
    response = await asyncio.shield(kept[key][1])
    return Response(response.body, response.status_code, media_type=response.headers["content-type"])


async def _answer(ask: Callable[[], Awaitable[Any]]) -> Response:
    found = await ask()
    return answers.problem(found) if isinstance(found, Refused) else answers.reply(found)


async def board(request: Request) -> Response:
    """Every card, and where to follow from."""
    node, project = node_of(request), _project(request)

    async def ask() -> Any:
        found = await node.call(boards.board, project_id=project)
        if isinstance(found, Refused):
            return found
        told = await node.call(recent.recent_events, limit=60)
        listed = [] if isinstance(told, Refused) else [one for one in told if one.project_id in (None, project)]
        return {**shapes.board(found), "events": [shapes.event(one) for one in listed if one.seq <= found.seq]}

    return await _shared(request, ("board", project), ask)


async def agents(request: Request) -> Response:
    """The fleet of a project."""
    node, project = node_of(request), _project(request)
    after = request.query_params.get("after", "")

    async def ask() -> Any:
        found = await node.call(fleet.fleet, project_id=project, after=after, limit=AGENTS_SHOWN)
        if isinstance(found, Refused):
            return found
        return {
            "now": found.now_ms,
            "next_after": found.next_after,
            "members": [shapes.member(one) for one in found.members],
        }

    return await _shared(request, ("agents", project, after), ask)


async def agent(request: Request) -> Response:
    """One agent in time."""
    found = await node_of(request).call(fleet.timeline, agent_id=request.path_params["agent_id"])
    if isinstance(found, Refused):
        return answers.problem(found)
    return answers.reply({"now": found.now_ms, "member": shapes.member(found.member)})


async def numbers(request: Request) -> Response:
    """How the work goes."""
    node, project = node_of(request), _project(request)
    minutes = whole(request.query_params.get("minutes"))
    minutes = 60 if minutes is None else minutes

    async def ask() -> Any:
        found = await node.call(pace.pace, project_id=project, minutes=minutes)
        if isinstance(found, Refused):
            return found
        views = await node.call(external.list_boards)
        if isinstance(views, Refused):
            return views
        return {
            **shapes.pace(found),
            "boards": [shapes.external(view) for view in views if view.project_id == project],
            "monitors": [status.as_dict() for status in node.monitors.statuses()],
            "server_id": node.server_id,
        }

    return await _shared(request, ("numbers", project, minutes), ask)


async def projects_known(request: Request) -> Response:
    """The projects there are."""
    found = await node_of(request).call(projects.list_projects)
    if isinstance(found, Refused):
        return answers.problem(found)
    return answers.reply({"projects": [{"project_id": one.project_id, "name": one.name} for one in found]})


async def task(request: Request) -> Response:
    """All there is to see of one task."""
    found = await _task(node_of(request), request.path_params["task_id"], _project(request))
    return answers.problem(found) if isinstance(found, Refused) else answers.reply(found)


async def _task(node: Node, task_id: str, project: str) -> dict[str, Any] | Refused:
    named: dict[str, Any] = {"task_id": task_id, "project_id": project}
    detail = await node.call(observe.show_task, **named)
    if isinstance(detail, Refused):
        return detail
    story = await node.call(explain.why, **named, limit=STORY_SHOWN)
    text = await node.call(explain.briefing, **named)
    around = await node.call(neighbours.neighbours, **named)
    chain = await node.call(recent.recent_receipts, **named, limit=RECEIPTS_SHOWN)
    checked = await node.call(receipts.verify, **named)
    decided = await node.call(notes.decisions, **named)
    for answer in (story, text, around, chain, checked, decided):
        if isinstance(answer, Refused):
            # The task was deleted while it was looked at.
            return answer
    assert not isinstance(story, Refused)
    assert not isinstance(around, Refused)
    assert not isinstance(chain, Refused)
    assert not isinstance(checked, Refused)
    assert not isinstance(decided, Refused)
    whole_task = detail.view.task
    return {
        "now": detail.now_ms,
        **shapes.view(detail.view),
        "body": whole_task.body,
        "obligation": whole_task.obligation,
        "inputs": whole_task.inputs,
        "needs": [{"task_id": edge.needs, "missing": edge.missing} for edge in detail.needs],
        "dependants": list(detail.dependants),
        "handoffs": [shapes.handoff(one) for one in detail.handoffs],
        "messages": [{**common.message(one), "at": one.at_ms} for one in detail.messages],
        "decisions": [{"at": one.at_ms, "agent_id": one.agent_id, "decision": one.decision} for one in decided],
        "story": [{"at": line.at_ms, "text": line.text} for line in story.story],
        "conditions": [{"name": one.name, "holds": one.holds, "detail": one.detail} for one in story.conditions],
        "instructions": text,
        "graph": shapes.neighbours(around),
        "receipts": [shapes.receipt(one) for one in chain],
        "verified": {"receipts": checked.receipts, "faults": list(checked.faults)},
    }
