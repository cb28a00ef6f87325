"""The operator's tools: make work, look at it, take it back. Only with `--tools all` or an operator's credential."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused
from tenure.core.times import iso
from tenure.engine import endings, explain, health, observe, projects, tasks
from tenure.surfaces import shapes
from tenure.surfaces.mcp import shown
from tenure.surfaces.mcp.tool import OBJECT, OBJECTS, OPERATOR, TEXT, TEXTS, WHOLE, Tool, one_of, whole_if_equal

if TYPE_CHECKING:
    from tenure.surfaces.mcp.call import Call

LISTED = 50
Answer = dict[str, Any] | Refused


def _some(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if given.get(name) is not None}


async def create_project(call: Call, given: dict[str, Any]) -> Answer:
    """A new namespace of tasks."""
    made = await call.node.call(projects.create_project, **_some(given, "project_id", "name", "settings"))
    return made if isinstance(made, Refused) else {"project_id": made.project_id, "name": made.name}


async def create_tasks(call: Call, given: dict[str, Any]) -> Answer:
    """Many tasks, all or none."""
    added = await call.node.call(tasks.add_tasks, **_some(given, "tasks", "project_id", "allow_missing"))
    return added if isinstance(added, Refused) else {"task_ids": [task.task_id for task in added]}


async def list_tasks(call: Call, given: dict[str, Any]) -> Answer:
    """A page of tasks."""
    filters = _some(given, "project_id", "status", "kind", "assigned_to", "text")
    page = await call.node.call(
        observe.list_page,
        **filters,
        after=whole_if_equal(given.get("after") or 0),
        limit=whole_if_equal(given.get("limit") or LISTED),
    )
    if isinstance(page, Refused):
        return page
    return {"tasks": [shown.task(view) for view in page.views], "next_after": page.next_after}


async def unassign_task(call: Call, given: dict[str, Any]) -> Answer:
    """Take a task from its holder, who is told on its next call."""
    ended = await call.on_task(
        endings.revoke,
        {
            **_some(given, "task_id", "project_id"),
            "by": call.agent_id or "operator",
            "message": given.get("reason") or "",
        },
    )
    if isinstance(ended, Refused):
        return ended
    taken_from = ended.lease.agent_id if ended.lease else None
    return {"task_id": ended.task.task_id, "status": ended.task.status, "taken_from": taken_from}


async def check_assignment_health(call: Call, given: dict[str, Any]) -> Answer:
    """Whether what is assigned, what is held and what a board shows agree."""
    checked = await call.node.call(health.check_assignment_health, **_some(given, "project_id"))
    return checked if isinstance(checked, Refused) else shapes.assignments(checked)


async def reconcile(call: Call, given: dict[str, Any]) -> Answer:
    """Do what is due now, bring boards into step, then say how assignments stand."""
    done = await call.node.reconcile(given.get("project_id"))
    if isinstance(done, Refused):
        return done
    checked = await check_assignment_health(call, given)
    if isinstance(checked, Refused):
        return checked
    swept = {project_id: found.as_dict() for project_id, found in done.boards.items()}
    return {"recovered": done.recovered, "boards": swept, **checked}


async def why(call: Call, given: dict[str, Any]) -> Answer:
    """Why a task is where it is, and who may have it."""
    found = await call.on_task(explain.why, {**_some(given, "task_id", "project_id"), **_agent(given)})
    if isinstance(found, Refused):
        return found
    return {
        "task": shapes.view(found.view),
        "conditions": [{"condition": one.name, "holds": one.holds, "detail": one.detail} for one in found.conditions],
        "story": [{"at": iso(line.at_ms), "text": line.text} for line in found.story],
    }


def _agent(given: dict[str, Any]) -> dict[str, Any]:
    """Whose chances are asked for; without a name, anyone's."""
    return {"agent_id": given["for_agent"]} if given.get("for_agent") is not None else {}


_PROJECT = {"project_id": TEXT}

TOOLS = (
    Tool(
        name="create_project",
        summary="Make a project: a namespace of tasks with settings of its own.",
        takes={**_PROJECT, "name": TEXT, "settings": OBJECT},
        required=("project_id",),
        gives={**_PROJECT, "name": TEXT},
        act=create_project,
        of=OPERATOR,
    ),
    Tool(
        name="create_tasks",
        summary=(
            "Add tasks, all or none. Each: title, and optionally task_id, body, after (ids it needs), priority, kind, "
            "requires, estimated_hours, assigned_to."
        ),
        takes={"tasks": OBJECTS, **_PROJECT, "allow_missing": {"type": "boolean"}},
        required=("tasks",),
        gives={"task_ids": TEXTS},
        act=create_tasks,
        of=OPERATOR,
    ),
    Tool(
        name="list_tasks",
        summary="Tasks in the order they were added, a page at a time; next_after begins the next page.",
        takes={
            **_PROJECT,
            "status": one_of("todo", "in_progress", "blocked", "done", "dead"),
            "kind": TEXT,
            "assigned_to": TEXT,
            "text": TEXT,
            "after": WHOLE,
            "limit": WHOLE,
        },
        gives={"tasks": OBJECTS, "next_after": {"type": ["integer", "null"]}},
        act=list_tasks,
        of=OPERATOR,
        reads=True,
    ),
    Tool(
        name="unassign_task",
        summary="Take a task from its holder; it goes back to the queue with a handoff.",
        takes={"task_id": TEXT, **_PROJECT, "reason": TEXT},
        required=("task_id",),
        gives={"task_id": TEXT, "status": TEXT, "taken_from": {"type": ["string", "null"]}},
        act=unassign_task,
        of=OPERATOR,
        renamed={"message": "reason"},
    ),
    Tool(
        name="check_assignment_health",
        summary="Compare what is assigned with what is held and with what the board shows.",
        takes=_PROJECT,
        gives={"healthy": {"type": "boolean"}, "mismatches": OBJECTS},
        act=check_assignment_health,
        of=OPERATOR,
        reads=True,
    ),
    Tool(
        name="reconcile",
        summary="Take back what dead agents hold now, bring boards into step, then compare assignments.",
        takes=_PROJECT,
        gives={"recovered": WHOLE, "boards": OBJECT, "healthy": {"type": "boolean"}, "mismatches": OBJECTS},
        act=reconcile,
        of=OPERATOR,
        repeatable=True,
    ),
    Tool(
        name="why",
        summary="Why a task is where it is, and whether for_agent (or anyone) may have it.",
        takes={"task_id": TEXT, **_PROJECT, "for_agent": TEXT},
        required=("task_id",),
        gives={"task": OBJECT, "conditions": OBJECTS, "story": OBJECTS},
        act=why,
        of=OPERATOR,
        reads=True,
    ),
)
