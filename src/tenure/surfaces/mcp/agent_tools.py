"""The agent's tools: the working loop of one agent, from register to completed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.ids import id_fault
from tenure.engine import agents, endings, explain, health, liveness, notes, observe
from tenure.store.store import StoreFault
from tenure.surfaces import shapes
from tenure.surfaces.mcp import left_behind, shown
from tenure.surfaces.mcp.tool import ANYTHING, NUMBER, OBJECT, OBJECTS, TEXT, TEXTS, WHOLE, Tool, one_of, whole_if_equal
from tenure.surfaces.mcp.waiting import next_task

if TYPE_CHECKING:
    from tenure.core.reconcile import AssignmentHealth
    from tenure.store.store import Transaction
    from tenure.surfaces.mcp.call import Call

STATUSES = ("in_progress", "completed", "blocked")
WAIT_MAX_S = 300
_STATUS = inputs.one_of(*STATUSES)
_WAIT_S = inputs.number(0, WAIT_MAX_S)

Answer = dict[str, Any] | Refused


async def register_agent(call: Call, given: dict[str, Any]) -> Answer:
    """Begin a new incarnation of the agent, or keep the one this connection was told to speak for."""
    connection = call.caller.connection
    asked = {name: given[name] for name in ("name", "role", "skills", "project_id") if given.get(name) is not None}
    asked.update(call.node.place)
    if call.agent_id is not None:
        asked["agent_id"] = call.agent_id
    # A connection that speaks for the agent already goes on as the same run, unless a newer one has begun.
    told = call.incarnation
    if told is not None:
        asked["incarnation"] = told
    agent = await call.node.call(agents.register, **asked)
    if isinstance(agent, Refused):
        return agent
    if connection is not None:
        await connection.bind(agent, began=told is None)
    touched = await call.caller.touched(agent.agent_id)
    if isinstance(touched, Refused):
        return touched
    return {**shapes.agent(agent), "holds": [held.task_id for held in touched.leases]}


async def request_next_task(call: Call, given: dict[str, Any]) -> Answer:
    """The task the agent holds, else the best one ready for it, else when to ask again."""
    speaker = call.speaker()
    if isinstance(speaker, Refused):
        return speaker
    wait_s = _WAIT_S("wait_s", given.get("wait_s") or 0)
    if isinstance(wait_s, Refused):
        return wait_s
    known = await call.node.call(agents.show_agent, agent_id=speaker["agent_id"])
    if isinstance(known, Refused):
        return known
    skills = [skill for skill in known.agent.skills.split("\n") if id_fault(skill) is None]
    asked = {
        **speaker,
        **call.node.place,
        "profile": "agent",
        "resume": True,
        "capabilities": skills or None,
        "server_id": call.node.server_id,
    }
    given_task = await next_task(call, asked, wait_s)
    if isinstance(given_task, Refused | dict):
        return given_task
    await left_behind.look(call.node, given_task)
    lease = given_task.lease
    context = await call.node.call(
        explain.task_context, task_id=lease.task_id, project_id=lease.project_id, agent_id=lease.agent_id
    )
    if isinstance(context, Refused):
        return context
    return {**shown.assignment(lease, context), **await _heard(call, lease.task_id, lease.project_id)}


async def report_task_progress(call: Call, given: dict[str, Any]) -> Answer:
    """Renew with progress, complete, or block."""
    speaker = call.speaker()
    if isinstance(speaker, Refused):
        return speaker
    status = _STATUS("status", given["status"])
    if isinstance(status, Refused):
        return status
    held = {**speaker, "task_id": given["task_id"]}
    message = given.get("message") or ""
    progress = inputs.percent("progress", whole_if_equal(given.get("progress", 100 if status == "completed" else None)))
    if isinstance(progress, Refused) and status != "blocked":
        return progress
    if status == "completed":
        return _ended(await call.on_task(endings.complete, {**held, "message": message}))
    if status == "blocked":
        return _ended(await call.on_task(endings.block, {**held, "reason": message}))
    kept = await call.on_task(
        liveness.report,
        {
            **held,
            "progress": progress,
            "message": message,
            "expect_silence_s": whole_if_equal(given.get("expect_silence_s") or 0),
            "server_id": call.node.server_id,
        },
    )
    if isinstance(kept, Refused):
        return kept
    answer = {
        "task_id": kept.task.task_id,
        "status": kept.task.status,
        "progress": kept.task.progress,
        "lease": shown.lease(kept.lease),
    }
    if kept.healed:
        answer["recreated"] = "lease not found, recreating: the task is yours again, under a new token"
    return {**answer, **await _heard(call, kept.task.task_id, kept.task.project_id)}


async def _heard(call: Call, task_id: str, project_id: str) -> dict[str, Any]:
    """What others wrote to the agent or to its task since it last heard; nothing more when there is none."""
    heard = await call.node.call(notes.hear, agent_id=call.agent_id, task_id=task_id, project_id=project_id)
    if isinstance(heard, Refused) or not heard:
        return {}
    return {"messages": [shapes.message(one) for one in heard]}


def _ended(ended: endings.Ended | Refused) -> Answer:
    if isinstance(ended, Refused):
        return ended
    return {
        "task_id": ended.task.task_id,
        "status": ended.task.status,
        "progress": ended.task.progress,
        "lease": None,
        "unlocked": list(ended.unlocked),
    }


async def report_blocker(call: Call, given: dict[str, Any]) -> Answer:
    """The holder cannot go on: this ends its lease."""
    speaker = call.speaker()
    if isinstance(speaker, Refused):
        return speaker
    asked = {**speaker, "task_id": given["task_id"], "reason": given["blocker_description"]}
    if given.get("severity") is not None:
        asked["severity"] = given["severity"]
    return _ended(await call.on_task(endings.block, asked))


async def get_task_context(call: Call, given: dict[str, Any]) -> Answer:
    """All that is known of a task."""
    asked = {"task_id": given["task_id"], "agent_id": call.agent_id}
    found = await call.on_task(explain.task_context, asked)
    return found if isinstance(found, Refused) else shown.context(found)


async def log_decision(call: Call, given: dict[str, Any]) -> Answer:
    """Note a decision."""
    speaker = call.speaker()
    if isinstance(speaker, Refused):
        return speaker
    noted = await call.on_task(
        notes.log_decision, {**speaker, "task_id": given["task_id"], "decision": given["decision"]}
    )
    return noted if isinstance(noted, Refused) else {"task_id": noted.task_id, "decision_id": noted.seq}


async def log_artifact(call: Call, given: dict[str, Any]) -> Answer:
    """Note something made."""
    speaker = call.speaker()
    if isinstance(speaker, Refused):
        return speaker
    named = ("task_id", "filename", "content", "location", "artifact_type", "description")
    asked = {name: given[name] for name in named if given.get(name) is not None}
    noted = await call.on_task(notes.log_artifact, {**speaker, **asked})
    if isinstance(noted, Refused):
        return noted
    return {"task_id": noted.task_id, "artifact_id": noted.seq, "location": noted.location}


async def send_message(call: Call, given: dict[str, Any]) -> Answer:
    """Write to a task's thread or to an agent."""
    speaker = call.speaker()
    if isinstance(speaker, Refused):
        return speaker
    asked = {name: given[name] for name in ("text", "to", "task_id") if given.get(name) is not None}
    sent = await call.on_task(notes.send_message, {"sender": speaker["agent_id"], **asked})
    return sent if isinstance(sent, Refused) else {"message_id": sent.seq}


async def release_task(call: Call, given: dict[str, Any]) -> Answer:
    """Give a task back."""
    speaker = call.speaker()
    if isinstance(speaker, Refused):
        return speaker
    message = given.get("message") or ""
    return _ended(await call.on_task(endings.release, {**speaker, "task_id": given["task_id"], "message": message}))


async def ping(call: Call, given: dict[str, Any]) -> Answer:
    """Echo, statistics of leases, assignment health: one look at the store, so that both are of one instant, and one
    for all who ask at the same time."""
    try:
        numbers, checked = await call.node.look_together(_vitals)
    except StoreFault as fault:
        return fault.refusal
    assert not isinstance(numbers, Refused)
    assert not isinstance(checked, Refused)
    return {
        "echo": given.get("echo", ""),
        "lease_statistics": numbers.as_dict(),
        "assignment_health": shapes.assignments(checked),
    }


def _vitals(tx: Transaction) -> tuple[observe.Statistics | Refused, AssignmentHealth | Refused]:
    return observe.statistics.body(tx), health.check_assignment_health.body(tx)


_TASK = {"task_id": TEXT}
_ENDED = {"task_id": TEXT, "status": TEXT, "progress": WHOLE}
_HELD = {**_ENDED, "lease": {"type": ["object", "null"]}}

TOOLS = (
    Tool(
        name="register_agent",
        summary="Say who you are, once per run.",
        takes={"name": TEXT, "role": TEXT, "skills": TEXTS, "project_id": TEXT},
        required=("agent_id", "name", "role", "skills"),
        gives={"agent_id": TEXT, "branch": TEXT, "holds": TEXTS},
        act=register_agent,
        repeatable=True,
    ),
    Tool(
        name="request_next_task",
        summary=(
            "Your task with instructions, or the one you hold. Without one: retry_after_seconds, or should_exit. "
            "wait_s (max 300) waits for work."
        ),
        takes={"wait_s": NUMBER},
        required=("agent_id",),
        gives={
            "task": {"type": ["object", "null"]},
            "instructions": TEXT,
            "lease": OBJECT,
            "dependencies": OBJECTS,
            "recovery_info": {"type": ["object", "null"]},
            "retry_after_seconds": NUMBER,
            "retry_reason": TEXT,
            "should_exit": {"type": "boolean"},
        },
        act=request_next_task,
        repeatable=True,
    ),
    Tool(
        name="report_task_progress",
        summary=(
            "Report about every quarter, and at the end. blocked gives the task up. "
            "expect_silence_s announces a long command."
        ),
        takes={
            **_TASK,
            "status": one_of(*STATUSES),
            "progress": {"type": "integer", "minimum": 0, "maximum": 100},
            "message": TEXT,
            "expect_silence_s": WHOLE,
        },
        required=("agent_id", "task_id", "status", "progress", "message"),
        gives={**_HELD, "unlocked": TEXTS},
        act=report_task_progress,
        repeatable=True,
        renamed={"reason": "message"},
    ),
    Tool(
        name="report_blocker",
        summary="You cannot go on: the task is blocked and no longer yours.",
        takes={**_TASK, "blocker_description": TEXT, "severity": one_of(*endings.SEVERITIES)},
        required=("agent_id", "task_id", "blocker_description", "severity"),
        gives=_ENDED,
        act=report_blocker,
        renamed={"reason": "blocker_description"},
    ),
    Tool(
        name="get_task_context",
        summary="All about a task: instructions, dependencies, decisions, artifacts, messages.",
        takes=_TASK,
        required=("task_id",),
        gives={"task": OBJECT, "instructions": TEXT, "artifacts": OBJECTS},
        act=get_task_context,
        reads=True,
    ),
    Tool(
        name="log_decision",
        summary="Note a choice that others must know, with its reason.",
        takes={**_TASK, "decision": TEXT},
        required=("agent_id", "task_id", "decision"),
        gives={"decision_id": WHOLE},
        act=log_decision,
    ),
    Tool(
        name="log_artifact",
        summary="Note a file others will use: its content, or its location (URL or path in the project).",
        takes={
            **_TASK,
            "filename": TEXT,
            "content": TEXT,
            "location": TEXT,
            "artifact_type": TEXT,
            "description": TEXT,
        },
        required=("task_id", "filename"),
        gives={"artifact_id": WHOLE},
        act=log_artifact,
    ),
    Tool(
        name="send_message",
        summary="Write to an agent (to), a task's thread (task_id), or both.",
        takes={"text": TEXT, "to": TEXT, **_TASK},
        required=("text",),
        gives={"message_id": WHOLE},
        act=send_message,
    ),
    Tool(
        name="release_task",
        summary="Give a task back unfinished; the message is for whoever continues.",
        takes={**_TASK, "message": TEXT},
        required=("task_id",),
        gives=_ENDED,
        act=release_task,
    ),
    Tool(
        name="ping",
        summary="Echo, lease statistics, assignment health.",
        takes={"echo": TEXT},
        gives={"echo": ANYTHING, "lease_statistics": OBJECT, "assignment_health": OBJECT},
        act=ping,
        reads=True,
    ),
)
