"""`/tasks` and `/dead`: adding and looking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT
from tenure.engine import board, observe
from tenure.engine import tasks as engine
from tenure.surfaces import shapes
from tenure.surfaces.http import answers, wire
from tenure.surfaces.http.requests import body_of, json_of, node_of, page, speaker_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def add(request: Request) -> Response:
    """Add one task, or many at once."""
    body = await json_of(request)
    if isinstance(body, Refused):
        return answers.problem(body)
    many = isinstance(body, dict) and "tasks" in body
    new: wire.NewTasks | wire.NewTask
    try:
        new = msgspec.convert(body, wire.NewTasks) if many else msgspec.convert(body, wire.NewTask)
    except msgspec.ValidationError as error:
        return answers.problem(refuse("invalid_argument", f"The body is not valid: {error}.", argument="body"))
    listed = new.tasks if isinstance(new, wire.NewTasks) else [new]
    if isinstance(new, wire.NewTasks) and any(task.project not in (None, new.project) for task in listed):
        message = "Tasks that are added together belong to one project: name it once, beside the list."
        return answers.problem(refuse("invalid_argument", message, argument="project"))
    fields = [wire.fields_of(task) for task in listed]
    wrong = next((fault for fault in fields if isinstance(fault, str)), None)
    if wrong is not None:
        return answers.problem(refuse("invalid_argument", wrong, argument="not_before"))
    project = new.project or request.query_params.get("project") or DEFAULT_PROJECT
    added = await node_of(request).call(engine.add_tasks, tasks=fields, project_id=project)
    if isinstance(added, Refused):
        return answers.problem(added)
    made = [shapes.task(task) for task in added]
    return answers.reply({"tasks": made} if many else made[0], 201)


async def list_tasks(request: Request) -> Response:
    """Tasks, a page at a time."""
    query, paged = request.query_params, page(request)
    arguments: dict[str, Any] = {
        "project_id": query.get("project"),
        "status": query.get("status"),
        "kind": query.get("task_type") or query.get("kind"),
        "assigned_to": query.get("assigned_to"),
        "text": query.get("search"),
        **paged,
    }
    return await _listed(request, arguments)


async def dead(request: Request) -> Response:
    """The dead-letter list."""
    return await _listed(
        request, {"project_id": request.query_params.get("project"), "status": "dead", **page(request)}
    )


async def _listed(request: Request, arguments: dict[str, Any]) -> Response:
    found = await node_of(request).call(observe.list_page, **arguments)
    if isinstance(found, Refused):
        return answers.problem(found)
    shown = [{**shapes.view(view), **answers.queued_words(view, found.now_ms)} for view in found.views]
    return answers.reply({"tasks": shown, "next_after": found.next_after})


async def show(request: Request) -> Response:
    """One task, in our words and in the specification's."""
    found = await node_of(request).call(
        observe.show_task, task_id=request.path_params["task_id"], project_id=request.query_params.get("project")
    )
    if isinstance(found, Refused):
        return answers.problem(found)
    return answers.reply({**shapes.detail(found), **answers.queued_words(found.view, found.now_ms)})


async def requeue(request: Request) -> Response:
    """Give a dead, blocked or waiting task a new start."""
    task = await node_of(request).call(
        engine.requeue_task, task_id=request.path_params["task_id"], project_id=request.query_params.get("project")
    )
    return answers.problem(task) if isinstance(task, Refused) else answers.reply(shapes.task(task))


async def move(request: Request) -> Response:
    """Put a task into another column by hand: for operators, since it may take the task from its holder."""
    speaker = speaker_of(request)
    if speaker is not None:
        return answers.problem(refuse("not_permitted", f"This token speaks for {speaker}, not for an operator."))
    body = await body_of(request, wire.Move)
    if isinstance(body, Refused):
        return answers.problem(body)
    task = await node_of(request).call(
        board.move_task,
        task_id=request.path_params["task_id"],
        project_id=request.query_params.get("project"),
        status=body.status,
        by=body.by,
        message=body.message,
        revoke=body.revoke,
    )
    return answers.problem(task) if isinstance(task, Refused) else answers.reply(shapes.task(task))
