"""What nobody should send: refused in clear words, and nothing is written but that the caller is alive."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tenure.engine import projects
from tenure.store.sqlite import SqliteStore
from tests.http.serving import Server
from tests.mcp.clients import ERAS, Room, Talker, drive, over_http, over_stdio
from tests.support import add, dump, ok

TABLES = (
    "tasks",
    "leases",
    "decisions",
    "artifacts",
    "messages",
    "handoffs",
    "receipts",
    "events",
    "projects",
    "agents",
    "idempotency",
)
# What a sign of life changes, and what shows how a link stands.
CHANGING = {
    "agents": ("seen_at_ms",),
    "leases": (
        "expires_at_ms",
        "seen_at_ms",
        "pulsed_at_ms",
        "recover_at_ms",
        "wake_at_ms",
        "warned",
        "touches",
        "signs",
    ),
}
NOT_OF_CALLS = ("linked", "unlinked", "warning")
# Nothing falls due while the calls are made, however slow the machine is.
LONG = {"task_lease": {"default_hours": 0.9, "max_lease_hours": 24.0}}

REPORT: dict[str, Any] = {"agent_id": "A1", "task_id": "F001", "status": "in_progress", "progress": 5, "message": "Hm."}
ARTIFACT: dict[str, Any] = {"agent_id": "A1", "task_id": "F001", "filename": "a.txt"}

# case: (tool, arguments, code, what the message says)
CASES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "unknown agent asks": ("request_next_task", {"agent_id": "A404"}, "agent_not_found", "A404"),
    "unknown agent reports": ("report_task_progress", {**REPORT, "agent_id": "A404"}, "agent_not_found", "A404"),
    "unknown agent decides": (
        "log_decision",
        {"agent_id": "A404", "task_id": "F001", "decision": "Yes."},
        "agent_not_found",
        "A404",
    ),
    "another agent's task": ("report_task_progress", {**REPORT, "agent_id": "B1"}, "not_holder", "A1 holds it"),
    "another agent's task completed": (
        "report_task_progress",
        {**REPORT, "agent_id": "B1", "status": "completed", "progress": 100},
        "not_holder",
        "A1 holds it",
    ),
    "another agent's task blocked": (
        "report_blocker",
        {"agent_id": "B1", "task_id": "F001", "blocker_description": "Mine!", "severity": "high"},
        "not_holder",
        "A1 holds it",
    ),
    "another agent's task released": (
        "release_task",
        {"agent_id": "B1", "task_id": "F001"},
        "not_holder",
        "A1 holds it",
    ),
    "no such task": ("report_task_progress", {**REPORT, "task_id": "F404"}, "task_not_found", "F404"),
    "progress 101": ("report_task_progress", {**REPORT, "progress": 101}, "invalid_argument", "from 0 to 100, not 101"),
    "progress -1": ("report_task_progress", {**REPORT, "progress": -1}, "invalid_argument", "from 0 to 100"),
    "progress in words": ("report_task_progress", {**REPORT, "progress": "half"}, "invalid_argument", "whole number"),
    "progress true": ("report_task_progress", {**REPORT, "progress": True}, "invalid_argument", "whole number"),
    "progress 12.5": ("report_task_progress", {**REPORT, "progress": 12.5}, "invalid_argument", "whole number"),
    "status finished": (
        "report_task_progress",
        {**REPORT, "status": "finished"},
        "invalid_argument",
        "status must be one of in_progress, completed, blocked",
    ),
    "no status": ("report_task_progress", {**REPORT, "status": None}, "invalid_argument", "status is missing"),
    "2 MB of message": ("report_task_progress", {**REPORT, "message": "x" * 2_000_000}, "invalid_argument", "message"),
    "2 MB of decision": (
        "log_decision",
        {"agent_id": "A1", "task_id": "F001", "decision": "x" * 2_000_000},
        "invalid_argument",
        "decision",
    ),
    "blocked without a word": (
        "report_task_progress",
        {**REPORT, "status": "blocked", "message": ""},
        "invalid_argument",
        "message is empty",
    ),
    "a blocker without a word": (
        "report_blocker",
        {"agent_id": "A1", "task_id": "F001", "blocker_description": " ", "severity": "low"},
        "invalid_argument",
        "blocker_description is empty",
    ),
    "an unknown severity": (
        "report_blocker",
        {"agent_id": "A1", "task_id": "F001", "blocker_description": "Hm.", "severity": "fatal"},
        "invalid_argument",
        "severity must be one of low, medium, high",
    ),
    "binary in a filename": (
        "log_artifact",
        {**ARTIFACT, "filename": "a\x00\x1b.txt", "content": "A"},
        "invalid_argument",
        "filename",
    ),
    "a path for a filename": (
        "log_artifact",
        {**ARTIFACT, "filename": "../a.txt", "content": "A"},
        "invalid_argument",
        "filename must be a plain name",
    ),
    "a way out in a location": (
        "log_artifact",
        {**ARTIFACT, "location": "docs/../../../etc/passwd"},
        "invalid_argument",
        "location must be a URL or a path inside the project",
    ),
    "an absolute location": (
        "log_artifact",
        {**ARTIFACT, "location": "/etc/passwd"},
        "invalid_argument",
        "location must be a URL or a path inside the project",
    ),
    "a location with backslashes": (
        "log_artifact",
        {**ARTIFACT, "location": "docs\\..\\..\\secret"},
        "invalid_argument",
        "location must be a URL or a path inside the project",
    ),
    "neither content nor location": ("log_artifact", ARTIFACT, "invalid_argument", "content or location is needed"),
    "both content and location": (
        "log_artifact",
        {**ARTIFACT, "content": "A", "location": "a.txt"},
        "invalid_argument",
        "and not both",
    ),
    "2 MB of content": ("log_artifact", {**ARTIFACT, "content": "x" * 2_000_000}, "invalid_argument", "content"),
    "a wait without end": (
        "request_next_task",
        {"agent_id": "B1", "wait_s": 100_000},
        "invalid_argument",
        "wait_s must be from 0 to 300",
    ),
    "a wait in words": ("request_next_task", {"agent_id": "B1", "wait_s": "long"}, "invalid_argument", "wait_s"),
    "an agent that is a number": ("request_next_task", {"agent_id": 7}, "invalid_argument", "agent_id must be text"),
    "an agent that is a list": ("request_next_task", {"agent_id": ["A1"]}, "invalid_argument", "agent_id must be text"),
    "an agent that is a path": ("request_next_task", {"agent_id": "../A1"}, "invalid_argument", "agent_id"),
    "the reserved name": (
        "register_agent",
        {"agent_id": "Marcus", "name": "M", "role": "all", "skills": []},
        "reserved_name",
        "Marcus",
    ),
    "skills that are no list": (
        "register_agent",
        {"agent_id": "C1", "name": "C", "role": "all", "skills": "python"},
        "invalid_argument",
        "skills must be a list",
    ),
    "no such project": (
        "register_agent",
        {"agent_id": "C1", "name": "C", "role": "all", "skills": [], "project_id": "nowhere"},
        "project_not_found",
        "nowhere",
    ),
    "a word the tool does not know": (
        "log_decision",
        {"agent_id": "A1", "task_id": "F001", "decision": "Yes.", "why": "Because."},
        "invalid_argument",
        "is not an argument of log_decision",
    ),
    "a message to nobody": ("send_message", {"agent_id": "A1", "text": "Hi."}, "invalid_argument", "or to is needed"),
    "a message to a stranger": ("send_message", {"agent_id": "A1", "text": "Hi.", "to": "X9"}, "agent_not_found", "X9"),
    "an operator's tool": (
        "create_project",
        {"agent_id": "A1", "project_id": "mine"},
        "not_permitted",
        "create_project",
    ),
    "a worker's tool": ("lease", {"worker_id": "worker.1"}, "not_permitted", "lease"),
}


async def prepare(agent: Talker) -> None:
    await agent.register("A1")
    await agent.next("A1")
    await agent.register("B1")


def written(store: SqliteStore) -> dict[str, Any]:
    """All that a refused call could change: everything but when its agent was last seen, what follows from that for its
    lease, and what the client's open stream and the server's monitor write at moments of their own."""
    tables = {table: rows(store, table, CHANGING.get(table, ())) for table in TABLES}
    tables["events"] = [event for event in tables["events"] if event["kind"] not in NOT_OF_CALLS]
    return tables


def rows(store: SqliteStore, table: str, but: Collection[str]) -> list[dict[str, Any]]:
    names = [column[1] for column in store.connection.execute(f"PRAGMA table_info({table})")]
    found = [dict(zip(names, row, strict=True)) for row in dump(store, table)]
    return [{name: value for name, value in row.items() if name not in but} for row in found]


async def refuse_all(store: SqliteStore, agent: Talker) -> None:
    add(store)
    ok(projects.configure(store, project_id="default", document=LONG))
    await prepare(agent)
    before = written(store)
    for case, (tool, arguments, code, says) in CASES.items():
        told = await agent.refused(tool, code, **arguments)
        assert says in told["message"], case
        assert len(told["message"]) <= 1_000, case
        assert written(store) == before, case


@pytest.mark.parametrize("era", ERAS)
def test_bad_input_over_http_is_refused_and_writes_nothing(served: Server, era: str) -> None:
    store = SqliteStore(served.store)

    async def story() -> None:
        async with over_http(served.url, era) as agent:
            await refuse_all(store, agent)

    drive(story())
    assert "Traceback" not in served.logged()
    store.close()


def test_bad_input_over_stdio_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    real = SqliteStore(str(tmp_path / "real.db"))

    async def story() -> None:
        async with over_stdio(tmp_path / "real.db") as agent:
            await refuse_all(real, agent)

    drive(story())
    real.close()


def test_unknown_tool_is_answered_with_the_names_there_are(store: SqliteStore) -> None:
    async def story() -> None:
        async with Room(store) as room, room.client() as agent:
            answer = await agent.client.call_tool("make_tea", {})
            assert answer.is_error
            assert "Unknown tool: 'make_tea'. Use one of: register_agent, request_next_task" in str(answer.content)

    drive(story())


def test_unknown_resource_and_prompt_are_protocol_errors(store: SqliteStore) -> None:
    from mcp.shared.exceptions import MCPError

    async def story() -> None:
        async with Room(store) as room, room.client() as agent:
            for uri in ("tenure://nothing", "tenure://task/", "tenure://task/a/b", "file:///etc/passwd"):
                with pytest.raises(MCPError, match="Resource not found"):
                    await agent.client.read_resource(uri)
            with pytest.raises(MCPError, match="There is no task F404"):
                await agent.client.read_resource("tenure://task/F404")
            with pytest.raises(MCPError, match="Unknown prompt: sing"):
                await agent.client.get_prompt("sing")

    drive(story())


def test_whole_number_written_as_a_fraction_is_taken(store: SqliteStore) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as agent:
            await agent.register("A1")
            await agent.next("A1")
            kept = await agent.call(
                "report_task_progress",
                agent_id="A1",
                task_id="F001",
                status="in_progress",
                progress=15.0,
                message="",
            )
            assert kept["progress"] == 15

    drive(story())
