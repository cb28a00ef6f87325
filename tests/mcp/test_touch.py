"""Any call is a touch: every registered tool, every resource and prompt, on both transports and protocols."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.model import Lease
from tenure.engine import claims
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.mcp import reading, toolsets
from tests.http.serving import Server
from tests.mcp.clients import ERAS, LEGACY, Room, Talker, drive, over_http, over_stdio
from tests.support import add, ok

# What each tool is called with by an agent that holds F001. Those that would end its lease name another's task, or
# nobody's: a refused call is a sign of life like any other.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "register_agent": {"name": "A", "role": "developer", "skills": []},
    "request_next_task": {},
    "report_task_progress": {"task_id": "F001", "status": "in_progress", "progress": 1, "message": ""},
    "report_blocker": {"task_id": "NONE", "blocker_description": "No key.", "severity": "low"},
    "get_task_context": {"task_id": "F001"},
    "log_decision": {"task_id": "F001", "decision": "So it is."},
    "log_artifact": {"task_id": "F001", "filename": "a.txt", "content": "A"},
    "send_message": {"task_id": "F001", "text": "Hello."},
    "release_task": {"task_id": "NONE"},
    "ping": {"echo": "?"},
    "create_project": {"project_id": "default"},
    "create_tasks": {"tasks": []},
    "list_tasks": {},
    "unassign_task": {"task_id": "NONE"},
    "check_assignment_health": {},
    "reconcile": {},
    "why": {"task_id": "F001"},
    "lease": {"worker_id": "worker.1"},
    "heartbeat": {"lease_id": "lease-none"},
    "submit_receipt": {"receipt": {}},
    "list_receipts": {},
}

Join = Callable[[], AbstractAsyncContextManager[Talker]]


def lease_of(store: SqliteStore, agent_id: str) -> Lease:
    (held,) = ok(claims.leases_of(store, agent_id=agent_id))
    return held


def touched(before: Lease, after: Lease) -> bool:
    return after.touches > before.touches and after.expires_at_ms >= before.expires_at_ms


def test_walk_knows_every_registered_tool() -> None:
    assert ARGUMENTS.keys() == toolsets.EVERY.keys()


async def walk(store: SqliteStore, join: Join) -> None:
    """Call everything once with a name and, where the connection stays, once without."""
    untouched = []
    async with join() as agent:
        await agent.register("A1")
        await agent.next("A1")
        for name, arguments in ARGUMENTS.items():
            before = lease_of(store, "A1")
            await agent.client.call_tool(name, {"agent_id": "A1", **arguments})
            if not touched(before, lease_of(store, "A1")):
                untouched.append(name)
    assert untouched == []


async def walk_nameless(store: SqliteStore, join: Join) -> None:
    """A call that names no agent touches its connection's agent: every tool, resource and prompt."""
    untouched = []
    async with join() as agent:
        await agent.register("A1")
        await agent.next("A1")
        # A worker's poll names its worker, and is that one's.
        for name in toolsets.EVERY.keys() - {"lease"}:
            before = lease_of(store, "A1")
            await agent.client.call_tool(name, ARGUMENTS[name])
            if not touched(before, lease_of(store, "A1")):
                untouched.append(name)
        for uri in (*(resource["uri"] for resource in reading.RESOURCES), "tenure://task/F001"):
            before = lease_of(store, "A1")
            await agent.client.read_resource(uri)
            if not touched(before, lease_of(store, "A1")):
                untouched.append(uri)
        for prompt in reading.PROMPTS:
            before = lease_of(store, "A1")
            await agent.client.get_prompt(prompt["name"])
            if not touched(before, lease_of(store, "A1")):
                untouched.append(prompt["name"])
    assert untouched == []


@pytest.mark.parametrize("era", ERAS)
def test_every_call_over_http_extends_the_lease(tmp_path: Path, era: str) -> None:
    with Server(tmp_path / "tenure.db", "--tools", "all") as server:
        store = SqliteStore(server.store)
        add(store)
        drive(walk(store, lambda: over_http(server.url, era)))
        if era == LEGACY:
            drive(walk_nameless(store, lambda: over_http(server.url, era)))
        store.close()


@pytest.mark.parametrize("era", ERAS)
def test_every_call_over_stdio_extends_the_lease(tmp_path: Path, era: str) -> None:
    path = tmp_path / "tenure.db"
    store = SqliteStore(str(path))
    add(store)
    drive(walk(store, lambda: over_stdio(path, era, "--tools", "all")))
    drive(walk_nameless(store, lambda: over_stdio(path, era, "--tools", "all")))
    store.close()


def test_touch_extends_by_the_present_phase_exactly(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as agent:
            await agent.register("A1")
            await agent.next("A1")
            clock.advance(59)
            await agent.call("ping", echo=1)
            held = lease_of(store, "A1")
            assert held.expires_at_ms == clock.wall_ms() + 60_000
            assert held.recover_at_ms == clock.wall_ms() + 80_000

    drive(story())


def test_call_of_one_agent_touches_no_other(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as b:
            await a.register("A1")
            await a.next("A1")
            held = lease_of(store, "A1")
            await b.register("B1")
            clock.advance(5)
            await b.call("ping", echo=1)
            await b.call("get_task_context", task_id="F001")
            assert lease_of(store, "A1") == held

    drive(story())


def test_call_without_any_agent_touches_nobody(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as stranger:
            await a.register("A1")
            await a.next("A1")
            held = lease_of(store, "A1")
            clock.advance(5)
            await stranger.call("ping", echo=1)
            await stranger.refused("request_next_task", "agent_required")
            assert lease_of(store, "A1") == held

    drive(story())


def test_announced_silence_ends_with_the_next_call(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a:
            await a.register("A1")
            await a.next("A1")
            await a.report("A1", "F001", 10, expect_silence_s=1_000)
            assert lease_of(store, "A1").recover_at_ms == clock.wall_ms() + 1_000_000
            await a.call("ping", echo=1)
            assert lease_of(store, "A1").recover_at_ms == clock.wall_ms() + 120_000

    drive(story())
