"""Resources and prompts: the board, a task and the agents to read, and two ways to begin and to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused, refuse
from tenure.core.model import STATUSES
from tenure.engine import agents, explain, observe
from tenure.surfaces import shapes
from tenure.surfaces.mcp import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.surfaces.mcp.call import Call

SCHEME = "tenure://"
BOARD_SHOWN = 500
AGENTS_SHOWN = 500

RESOURCES: list[dict[str, Any]] = [
    {
        "uri": "tenure://board",
        "name": "board",
        "title": "The board",
        "description": "The tasks by status, with their holders.",
        "mimeType": "application/json",
    },
    {
        "uri": "tenure://agents",
        "name": "agents",
        "title": "The agents",
        "description": "Who is registered, and what each holds.",
        "mimeType": "application/json",
    },
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "uriTemplate": "tenure://task/{id}",
        "name": "task",
        "title": "A task",
        "description": "Everything about one task: its story so far, dependencies, decisions, artifacts, messages.",
        "mimeType": "application/json",
    },
]
PROMPTS: list[dict[str, Any]] = [
    {
        "name": "start-working",
        "title": "Start working",
        "description": "Register and work through tasks until there are none.",
        "arguments": [
            {"name": "agent_id", "description": "Who you are; made up if left out."},
            {"name": "role", "description": "What you do, such as backend developer."},
        ],
    },
    {
        "name": "hand-over",
        "title": "Hand over",
        "description": "Stop in order: leave the task so that another agent can go on.",
        "arguments": [{"name": "reason", "description": "Why you stop."}],
    },
]


async def read(call: Call, uri: str) -> str | Refused:
    """The text of a resource."""
    if uri == "tenure://board":
        return await _board(call)
    if uri == "tenure://agents":
        return await _agents(call)
    task_id = uri.removeprefix("tenure://task/")
    if task_id == uri or not task_id or "/" in task_id:
        return refuse("route_not_found", f"Resource not found: {ascii(uri)[1:-1][:200]}.", "List the resources.")
    found = await call.on_task(explain.task_context, {"task_id": task_id, "agent_id": call.agent_id})
    if isinstance(found, Refused):
        return found
    return shown.document({**shown.context(found), "handoffs": [shapes.handoff(one) for one in found.handoffs]})


async def _board(call: Call) -> str | Refused:
    """The newest tasks in progress, to do, blocked and done, each within its own bound."""
    project: dict[str, Any] = {}
    if call.agent_id is not None:
        known = await call.node.call(agents.show_agent, agent_id=call.agent_id)
        if not isinstance(known, Refused):
            project["project_id"] = known.agent.project_id
    columns: dict[str, Any] = {}
    for status in STATUSES:
        page = await call.node.call(observe.list_page, status=status, limit=BOARD_SHOWN, **project)
        if isinstance(page, Refused):
            return page
        columns[status] = [
            {
                "id": view.task.task_id,
                "name": view.task.title,
                "priority": view.task.priority,
                "progress": view.task.progress,
                "assigned_to": None if view.due else view.task.assigned_to,
                "unmet_dependencies": view.task.unmet,
            }
            for view in page.views
        ]
        if page.next_after is not None:
            columns[f"{status}_continues_after"] = page.next_after
    return shown.document({**project, "columns": columns})


async def _agents(call: Call) -> str | Refused:
    found = await call.node.call(agents.list_agents, limit=AGENTS_SHOWN)
    if isinstance(found, Refused):
        return found
    listed = []
    for agent in found:
        seen = await call.node.call(agents.show_agent, agent_id=agent.agent_id)
        if isinstance(seen, Refused):
            continue
        listed.append(
            {
                **shapes.agent(agent),
                "linked": seen.linked,
                "holds": [{"task_id": held.task_id, **shown.lease(held)} for held in seen.leases],
            }
        )
    return shown.document({"agents": listed})


def prompt(name: str, given: Mapping[str, str], agent_id: str | None) -> str | Refused:
    """The text of a prompt."""
    if name == "start-working":
        who = given.get("agent_id") or agent_id
        named = f"as {who}" if who else "under an agent_id of your own choosing, unique among agents"
        role = f" Your role: {given['role']}." if given.get("role") else ""
        return (
            f"Register with register_agent {named}.{role} Then work: request_next_task (wait_s 50), follow the "
            "instructions it gives, log decisions and artifacts, report progress about every quarter, commit often, "
            "and finish with report_task_progress status completed. Take the next task after each. Stop only when the "
            "answer says should_exit, or when you are told superseded."
        )
    if name == "hand-over":
        why = f" Reason: {given['reason']}." if given.get("reason") else ""
        return (
            f"Stop in order.{why} Commit your work on your branch. Log the decisions and artifacts that are not logged "
            "yet. Report your progress honestly with report_task_progress. Then call release_task with a message for "
            "whoever continues: what is done, what is left, what to beware of, and how to check it."
        )
    return refuse("route_not_found", f"Unknown prompt: {ascii(name)[1:-1][:80]}.", "List the prompts.")
