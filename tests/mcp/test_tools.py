"""What the tools do, one by one. The SDK's client checks every structured answer against its tool's output schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types import TextContent

from tenure.clock import ManualClock
from tenure.engine import observe, projects, tasks
from tenure.store.sqlite import SqliteStore
from tests.mcp.clients import ERAS, Room, drive
from tests.support import add, ok

RECOVERY_INFO = [
    "recovered_at",
    "recovered_from_agent",
    "previous_progress",
    "time_spent_minutes",
    "recovery_reason",
    "previous_agent_branch",
    "instructions",
    "recovery_expires_at",
]


def text_of(content: object) -> str:
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("era", ERAS)
def test_answer_says_the_same_as_text(store: SqliteStore, era: str) -> None:
    async def story() -> None:
        async with Room(store) as room, room.client(era) as agent:
            result = await agent.client.call_tool("ping", {"echo": "häh"})
            assert json.loads(text_of(result.content[0])) == result.structured_content

    drive(story())


def test_request_gives_what_dependencies_made_and_a_lease(store: SqliteStore) -> None:
    add(store, "D1", title="Design the reader")
    add(store, "F001", title="Write the reader", body="Read CSV.", after=["D1"])
    add(store, "F002", title="Use the reader", after=["F001"])

    async def story() -> None:
        async with Room(store) as room, room.client() as a:
            await a.register("A1")
            assert (await a.next("A1"))["task"]["id"] == "D1"
            await a.call("log_decision", agent_id="A1", task_id="D1", decision="One row is one dict.")
            await a.call(
                "log_artifact",
                agent_id="A1",
                task_id="D1",
                filename="design.md",
                content="# Reader",
                artifact_type="design",
                description="How it reads.",
            )
            done = await a.report("A1", "D1", 100, "completed")
            assert done["unlocked"] == ["F001"]
            given = await a.next("A1")
            assert given["task"]["id"] == "F001"
            (dependency,) = given["dependencies"]
            assert dependency["task_id"] == "D1"
            assert dependency["decisions"][0]["decision"] == "One row is one dict."
            assert dependency["artifacts"][0]["filename"] == "design.md"
            lease = given["lease"]
            assert lease["lease_id"]
            assert lease["token"] > 0
            assert lease["expires_at"].endswith("Z")
            assert lease["phase"] == "unproven"
            text = given["instructions"]
            layers = ["# Write the reader", "Read CSV.", "lease runs 60 s plus 20 s", "One row is one dict.", "F002"]
            assert [text.index(part) for part in layers] == sorted(text.index(part) for part in layers)
            # Asked again, it is the same one, and not another.
            assert (await a.next("A1"))["lease"]["lease_id"] == lease["lease_id"]
            context = await a.call("get_task_context", task_id="D1")
            assert context["artifacts"][0]["content"] == "# Reader"
            assert context["dependants"][0]["task_id"] == "F001"

    drive(story())


def test_handed_over_task_has_the_eight_keys(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as b:
            await a.register("A1")
            await a.next("A1")
            await a.report("A1", "F001", 30)
            clock.advance(600)
            await b.register("B1")
            assert list((await b.next("B1"))["recovery_info"]) == RECOVERY_INFO

    drive(story())


def test_blocker_ends_the_lease_and_says_so(store: SqliteStore) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a:
            await a.register("A1")
            await a.next("A1")
            blocked = await a.call(
                "report_blocker", agent_id="A1", task_id="F001", blocker_description="No key.", severity="high"
            )
            assert blocked["status"] == "blocked"
            answer = await a.next("A1")
            assert answer["task"] is None
            assert answer["should_exit"] is True
            assert any("F001" in line for line in answer["why"])
            add(store, "F002", after=["F001"])
            answer = await a.next("A1")
            assert (answer["task"], answer["should_exit"]) == (None, True)
            gridlock = " ".join([answer["retry_reason"], *answer["why"]])
            assert "F001 is blocked" in gridlock
            assert "F002" in gridlock

    drive(story())


def test_report_blocked_and_release_give_the_task_up(store: SqliteStore) -> None:
    add(store)
    add(store, "F002")

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as b:
            await a.register("A1")
            await a.next("A1")
            assert (await a.report("A1", "F001", 0, "blocked", "No key."))["status"] == "blocked"
            await a.next("A1")
            freed = await a.call("release_task", agent_id="A1", task_id="F002", message="Half is in a.py.")
            assert freed["status"] == "todo"
            await b.register("B1")
            given = await b.next("B1")
            assert given["task"]["id"] == "F002"
            assert "Half is in a.py." in given["instructions"]

    drive(story())


def test_message_reaches_an_agent_once(store: SqliteStore) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as b:
            await a.register("A1")
            await a.next("A1")
            await b.register("B1")
            await b.call("send_message", agent_id="B1", to="A1", text="Use UTF-8.")
            await b.call("send_message", agent_id="B1", task_id="F001", text="And tabs.")
            heard = await a.report("A1", "F001", 5)
            assert [message["text"] for message in heard["messages"]] == ["Use UTF-8.", "And tabs."]
            assert "messages" not in await a.report("A1", "F001", 6)

    drive(story())


def test_skills_let_an_agent_have_what_requires_them(store: SqliteStore) -> None:
    add(store, requires=["rust"])

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as b:
            await a.register("A1", skills=["python"])
            assert (await a.next("A1"))["task"] is None
            await b.register("B1", skills=["rust", "some long words about it"])
            assert (await b.next("B1"))["task"]["id"] == "F001"

    drive(story())


def test_task_of_the_same_name_elsewhere_is_not_meant(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="web"))
    add(store)
    ok(tasks.add_task(store, task_id="F001", title="Elsewhere", project_id="web"))

    async def story() -> None:
        async with Room(store) as room, room.client() as a:
            await a.register("A1", project_id="web")
            assert (await a.next("A1"))["task"]["project_id"] == "web"
            await a.call("log_decision", agent_id="A1", task_id="F001", decision="Here.")
            assert (await a.report("A1", "F001", 100, "completed"))["status"] == "done"
        (here, there) = ok(observe.list_tasks(store))
        assert (here.task.project_id, here.status, there.task.project_id, there.status) == (
            "default",
            "todo",
            "web",
            "done",
        )

    drive(story())


def test_design_task_is_never_offered(store: SqliteStore) -> None:
    add(store, "D1", assigned_to="Marcus")

    async def story() -> None:
        async with Room(store) as room, room.client() as a:
            await a.register("A1")
            answer = await a.next("A1")
            assert answer["task"] is None
            assert answer["should_exit"] is False

    drive(story())


def test_ping_tells_statistics_and_assignment_health(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as other:
            await a.register("A1")
            await a.next("A1")
            told = await other.call("ping", echo={"any": ["thing"]})
            assert told["echo"] == {"any": ["thing"]}
            assert told["lease_statistics"]["active"] == 1
            assert {"expiring_soon", "expired", "stuck", "average_renewals", "max_renewals"} <= told[
                "lease_statistics"
            ].keys()
            health = told["assignment_health"]
            assert (health["persisted_assignments"], health["kanban_assigned_tasks"], health["healthy"]) == (1, 1, True)
            clock.advance(81)
            (mismatch,) = (await other.call("ping"))["assignment_health"]["mismatches"]
            assert mismatch["task_id"] == "F001"

    drive(story())


def test_operator_makes_lists_takes_back_and_explains(store: SqliteStore, clock: ManualClock) -> None:
    async def story() -> None:
        async with Room(store) as room, room.client(tools="all") as boss, room.client() as a:
            await boss.call("create_project", project_id="web", name="The web")
            made = await boss.call(
                "create_tasks",
                project_id="web",
                tasks=[{"title": "One", "task_id": "W1"}, {"title": "Two", "task_id": "W2", "after": ["W1"]}],
            )
            assert made["task_ids"] == ["W1", "W2"]
            await a.register("A1", project_id="web")
            await a.next("A1")
            listed = await boss.call("list_tasks", project_id="web", status="in_progress")
            assert [task["id"] for task in listed["tasks"]] == ["W1"]
            taken = await boss.call("unassign_task", task_id="W1", reason="Something else first.")
            assert (taken["status"], taken["taken_from"]) == ("todo", "A1")
            told = await a.refused(
                "report_task_progress",
                "lease_lost",
                agent_id="A1",
                task_id="W1",
                status="in_progress",
                progress=1,
                message="",
            )
            assert "ended" in told["message"]
            why = await boss.call("why", task_id="W2")
            assert any(not condition["holds"] and "W1" in condition["detail"] for condition in why["conditions"])
            assert why["story"]
            assert (await boss.call("check_assignment_health"))["healthy"] is True
            await a.next("A1")
            clock.advance(81)
            mended = await boss.call("reconcile", project_id="web")
            assert (mended["recovered"], mended["healthy"]) == (1, True)

    drive(story())


def test_worker_leases_accepts_beats_and_completes(store: SqliteStore) -> None:
    add(store, "T1", kind="code.generate", principal_ai="delegate.root")

    async def story() -> None:
        async with Room(store) as room, room.client(tools="worker") as worker:
            listed = await worker.client.list_tools()
            assert [tool.name for tool in listed.tools] == ["lease", "heartbeat", "submit_receipt", "list_receipts"]
            await worker.refused("lease", "invalid_worker_id", worker_id="nodots")
            offer = await worker.call("lease", worker_id="worker.1", capabilities=["python"], max_tasks=1)
            assert offer["task"]["task_id"] == "T1"
            assert offer["task"]["task_type"] == "code.generate"
            await worker.refused("heartbeat", "not_accepted", lease_id=offer["lease_id"])
            receipt = {"task_id": "T1", "source_system": "worker.1"}
            accepted = await worker.call("submit_receipt", receipt={"phase": "accepted", **receipt})
            assert accepted["receipt"]["phase"] == "accepted"
            beat = await worker.call("heartbeat", lease_id=offer["lease_id"], progress=50)
            assert beat["lease_id"] == offer["lease_id"]
            await worker.call(
                "submit_receipt",
                receipt={"phase": "complete", "status": "success", "outcome_kind": "none", **receipt},
            )
            found = await worker.call("list_receipts", task_id="T1")
            phases = [one["phase"] for one in found["receipts"]]
            assert (phases[0], phases[-1]) == ("accepted", "complete")
            nothing = await worker.call("lease", worker_id="worker.1")
            assert (nothing["leases"], nothing["retry_after_seconds"]) == ([], 5)
            await worker.refused("ping", "not_permitted", echo=1)

    drive(story())


@pytest.mark.parametrize("era", ERAS)
def test_resources_and_prompts_are_listed_and_read(store: SqliteStore, era: str) -> None:
    add(store, body="The body of it.")

    async def read(agent: Any, uri: str) -> Any:
        (contents,) = (await agent.client.read_resource(uri)).contents
        assert contents.mime_type == "application/json"
        return json.loads(contents.text)

    async def story() -> None:
        async with Room(store) as room, room.client(era) as a:
            await a.register("A1")
            await a.next("A1")
            listed = await a.client.list_resources()
            assert [str(one.uri) for one in listed.resources] == ["tenure://board", "tenure://agents"]
            templates = await a.client.list_resource_templates()
            assert [one.uri_template for one in templates.resource_templates] == ["tenure://task/{id}"]
            board = await read(a, "tenure://board")
            assert board["columns"]["in_progress"][0]["id"] == "F001"
            task = await read(a, "tenure://task/F001")
            assert task["task"]["description"] == "The body of it."
            (agent,) = (await read(a, "tenure://agents"))["agents"]
            assert (agent["agent_id"], agent["holds"][0]["task_id"]) == ("A1", "F001")
            prompts = await a.client.list_prompts()
            assert [one.name for one in prompts.prompts] == ["start-working", "hand-over"]
            started = await a.client.get_prompt("start-working", {"agent_id": "A7", "role": "tester"})
            assert "A7" in text_of(started.messages[0].content)
            ended = await a.client.get_prompt("hand-over", {"reason": "Out of budget"})
            assert "release_task" in text_of(ended.messages[0].content)

    drive(story())
