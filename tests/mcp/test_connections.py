"""Connections: whom each speaks for, what a newer one means to an older, and what their ends say."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.server.subscriptions import ResourceUpdated

from tenure.core.errors import Refused
from tenure.core.model import Link
from tenure.engine import agents, claims
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.mcp import toolsets
from tests.http.serving import Server
from tests.mcp.clients import LEGACY, MODERN, TENURE, WITHIN_S, Room, drive, over_http, over_stdio
from tests.mcp.test_touch import ARGUMENTS
from tests.support import add, join, ok, take

HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def links_of(store: SqliteStore, agent_id: str) -> tuple[Link, ...]:
    return ok(agents.show_agent(store, agent_id=agent_id)).links


def holds(store: SqliteStore, agent_id: str) -> bool:
    held = claims.leases_of(store, agent_id=agent_id)
    return not isinstance(held, Refused) and bool(held)


def await_that(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


# -- incarnations -----------------------------------------------------------------------------------------------------


def test_newer_connection_supersedes_every_call_of_the_older(store: SqliteStore) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client(tools="all") as old, room.client() as new:
            await old.register("A1")
            first = await old.next("A1")
            # The client's new connection goes on without registering, and keeps the task.
            again = await new.next("A1")
            assert again["lease"]["lease_id"] == first["lease"]["lease_id"]
            for name, arguments in ARGUMENTS.items():
                if toolsets.EVERY[name].of == "worker":
                    # A worker's lease id or receipt says whose it is; no connection speaks for it.
                    continue
                told = await old.refused(name, "superseded", **{**arguments, "agent_id": "A1"})
                assert told["facts"]["incarnation"] == 2
            assert (await new.report("A1", "F001", 20))["progress"] == 20

    drive(story())


def test_connection_that_names_another_agent_does_not_supersede_it(store: SqliteStore) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as b:
            await a.register("A1")
            await a.next("A1")
            await b.register("B1")
            await b.call("get_task_context", task_id="F001", agent_id="A1")
            assert (await a.report("A1", "F001", 10))["progress"] == 10

    drive(story())


def test_same_connection_that_registers_again_stays_the_same_run(store: SqliteStore) -> None:
    async def story() -> None:
        async with Room(store) as room, room.client() as agent:
            assert (await agent.register("A1"))["incarnation"] == 1
            assert (await agent.register("A1", role="tester"))["incarnation"] == 1

    drive(story())


def test_registering_on_a_new_connection_begins_a_new_run_and_says_what_it_holds(store: SqliteStore) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as old, room.client() as new:
            await old.register("A1", skills=["python"])
            await old.next("A1")
            back = await new.register("A1")
            assert (back["incarnation"], back["holds"], back["skills"]) == (2, ["F001"], ["python"])

    drive(story())


def test_calls_without_connection_speak_for_the_present_run(store: SqliteStore) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client(MODERN, connected=False) as agent:
            await agent.register("A1")
            await agent.next("A1")
            await agent.report("A1", "F001", 10)
            assert ok(agents.show_agent(store, agent_id="A1")).agent.incarnation == 1
            await agent.refused("request_next_task", "agent_required")

    drive(story())


def test_incarnation_header_speaks_for_the_run_it_names(served: Server) -> None:
    store = SqliteStore(served.store)
    join(store, "A1")

    async def story() -> None:
        for era in (LEGACY, MODERN):
            async with over_http(served.url, era, {"Tenure-Incarnation": "1"}) as agent:
                await agent.call("ping", agent_id="A1", echo=era)
                assert (await agent.register("A1"))["incarnation"] == 1
        join(store, "A1")
        async with over_http(served.url, MODERN, {"Tenure-Incarnation": "1"}) as agent:
            await agent.refused("ping", "superseded", agent_id="A1", echo="?")

    drive(story())
    # The session that was deleted had begun nothing, so it ended nothing.
    assert ok(agents.show_agent(store, agent_id="A1")).agent.state == "present"
    store.close()


def test_environment_names_agent_and_run(tmp_path: Path) -> None:
    path = tmp_path / "tenure.db"
    store = SqliteStore(str(path))
    add(store)
    join(store, "A1")

    async def story() -> None:
        environ = {"TENURE_AGENT": "A1", "TENURE_INCARNATION": "1"}
        async with over_stdio(path, environ=environ) as agent:
            # Nothing is named and nothing is registered: the wrapper did both.
            given = await agent.call("request_next_task")
            assert given["task"]["assigned_to"] == "A1"
            assert (await agent.register("A1"))["incarnation"] == 1
            (link,) = links_of(store, "A1")
            assert (link.kind, link.incarnation, link.pid) == ("mcp", 1, os.getpid())
        async with over_stdio(path, environ={"TENURE_AGENT": "A1"}) as agent:
            # A name alone is who is meant; the run is this connection's own.
            await agent.call("ping", echo=1)
            assert ok(agents.show_agent(store, agent_id="A1")).agent.incarnation == 2

    drive(story())
    store.close()


# -- the parent of a stdio server --------------------------------------------------------------------------------------


def test_stdio_links_its_parent_and_pulses(tmp_path: Path) -> None:
    path = tmp_path / "tenure.db"
    store = SqliteStore(str(path))

    async def story() -> None:
        async with over_stdio(path) as agent:
            await agent.register("A1")
            (link,) = links_of(store, "A1")
            assert (link.kind, link.weak, link.pid, link.state) == ("mcp", 0, os.getpid(), "up")
            assert link.boot_id
            assert link.pid_ns
            assert link.start_ticks
            until = time.monotonic() + WITHIN_S
            while links_of(store, "A1")[0].pulsed_at_ms == link.pulsed_at_ms:
                assert time.monotonic() < until
                await asyncio.sleep(0.05)
        assert [link.state for link in links_of(store, "A1")] in ([], ["down"])

    drive(story())
    store.close()


def test_parent_that_dies_while_the_input_stays_open_is_dead(tmp_path: Path) -> None:
    """The writing end of the input is ours: the client dies, its input does not end, and its death is seen anyway."""
    path = tmp_path / "tenure.db"
    store = SqliteStore(str(path))
    add(store)
    reading, writing = os.pipe()
    start = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    words = [sys.executable, "-c", start, TENURE, "mcp", "--store", str(path)]
    parent = subprocess.Popen(words, stdin=reading, stdout=subprocess.PIPE)
    os.close(reading)
    assert parent.stdout is not None
    register = {"agent_id": "A1", "name": "A", "role": "all", "skills": []}
    lines: list[tuple[str, dict[str, Any]]] = [
        ("initialize", HANDSHAKE),
        ("tools/call", {"name": "register_agent", "arguments": register}),
        ("tools/call", {"name": "request_next_task", "arguments": {"agent_id": "A1"}}),
    ]
    for number, (method, params) in enumerate(lines):
        line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        os.write(writing, json.dumps(line).encode() + b"\n")
        assert json.loads(parent.stdout.readline())["id"] == number
    assert holds(store, "A1")
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    await_that(lambda: not holds(store, "A1"))
    # The server has written the death down and ended: nobody has the output open any more.
    assert parent.stdout.read() == b""
    os.close(writing)
    parent.stdout.close()
    store.close()


def test_signal_ends_a_stdio_server_without_a_death(tmp_path: Path) -> None:
    path = tmp_path / "tenure.db"
    process = subprocess.Popen(
        [TENURE, "mcp", "--store", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    line = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
    process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.terminate()
    assert process.wait(WITHIN_S) == 0
    process.stdin.close()
    process.stdout.close()


# -- HTTP sessions ----------------------------------------------------------------------------------------------------


class Session:
    """A session spoken by hand, so that its streams and its end are the test's to choose."""

    def __init__(self, url: str, **headers: str) -> None:
        self.http = httpx.Client(base_url=url, headers={**ACCEPT, **headers}, timeout=WITHIN_S)
        opened = self.post("initialize", HANDSHAKE)
        assert opened.status_code == 200, opened.text
        self.id = opened.headers["mcp-session-id"]
        self.http.headers["mcp-session-id"] = self.id

    def post(self, method: str, params: Any) -> httpx.Response:
        return self.http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = self.post("tools/call", {"name": tool, "arguments": arguments})
        assert answer.status_code == 200, answer.text
        (data,) = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        result: dict[str, Any] = json.loads(data)["result"]
        return result


def test_deleted_session_ends_what_it_began(served: Server) -> None:
    store = SqliteStore(served.store)
    add(store)
    session = Session(served.url)
    session.call("register_agent", agent_id="A1", name="A", role="all", skills=[])
    assert session.call("request_next_task", agent_id="A1")["structuredContent"]["task"]["id"] == "F001"
    assert holds(store, "A1")
    assert session.http.delete("/mcp").status_code == 200
    await_that(lambda: not holds(store, "A1"))
    assert ok(agents.show_agent(store, agent_id="A1")).agent.state == "departed"
    assert session.post("tools/list", {}).status_code == 404
    session.http.close()
    store.close()


def test_deleted_session_of_an_older_run_ends_nothing(served: Server) -> None:
    store = SqliteStore(served.store)
    add(store)
    old, new = Session(served.url), Session(served.url)
    for session in (old, new):
        session.call("register_agent", agent_id="A1", name="A", role="all", skills=[])
    new.call("request_next_task", agent_id="A1")
    assert old.http.delete("/mcp").status_code == 200
    assert new.call("ping", agent_id="A1", echo=1)["isError"] is False
    assert holds(store, "A1")
    for session in (old, new):
        session.http.close()
    store.close()


def test_open_stream_is_a_weak_link_and_its_drop_proves_nothing(served: Server) -> None:
    store = SqliteStore(served.store)
    add(store)
    session = Session(served.url)
    with session.http.stream("GET", "/mcp") as stream:
        assert stream.status_code == 200
        # The stream is there before anyone is known to speak through it.
        session.call("register_agent", agent_id="A1", name="A", role="all", skills=[])
        session.call("request_next_task", agent_id="A1")
        await_that(lambda: bool(links_of(store, "A1")))
        (link,) = links_of(store, "A1")
        assert (link.kind, link.weak, link.state) == ("stream", 1, "up")
        await_that(lambda: links_of(store, "A1")[0].pulsed_at_ms > link.pulsed_at_ms)
        assert ok(agents.show_agent(store, agent_id="A1")).linked
    await_that(lambda: not ok(agents.show_agent(store, agent_id="A1")).linked)
    assert holds(store, "A1")
    session.http.close()
    store.close()


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_agent_that_hangs_up_while_it_waits_is_given_nothing(served: Server, era: str) -> None:
    store = SqliteStore(served.store)
    add(store)
    join(store, "B1")
    take(store, "B1")

    async def story() -> None:
        async with over_http(served.url, era) as a:
            await a.register("A1")
            waiting = asyncio.create_task(a.next("A1", wait_s=100))
            until = time.monotonic() + WITHIN_S
            while httpx.get(f"{served.url}/health", timeout=WITHIN_S).json()["waiting_polls"] == 0:
                assert time.monotonic() < until
                await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            while httpx.get(f"{served.url}/health", timeout=WITHIN_S).json()["waiting_polls"] != 0:
                assert time.monotonic() < until
                await asyncio.sleep(0.02)
            add(store, "F002")
            async with over_http(served.url, era) as c:
                await c.register("C1")
                assert (await c.next("C1", wait_s=60))["task"]["id"] == "F002"
            assert not holds(store, "A1")

    drive(story())
    store.close()


def test_server_that_stops_does_not_wait_for_streams(tmp_path: Path) -> None:
    server = Server(tmp_path / "tenure.db")
    session = Session(server.url)
    with session.http.stream("GET", "/mcp") as stream:
        assert stream.status_code == 200
        asked_at = time.monotonic()
        assert server.end() == 0
        # Uvicorn gives an open connection 30 seconds, and says so when they are over.
        assert time.monotonic() - asked_at < 29
    assert "graceful shutdown exceeded" not in server.logged()
    session.http.close()


# -- credentials ------------------------------------------------------------------------------------------------------

ALICE, BOB, BOSS = "alice-secret-token-1", "bob-secret-token-22", "boss-secret-token-333"


@pytest.fixture
def guarded(tmp_path: Path) -> Any:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({ALICE: "alice", BOB: "bob", BOSS: "*"}))
    with Server(tmp_path / "tenure.db", "--tokens", str(tokens)) as server:
        yield server


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_mcp_without_a_valid_token_is_closed(guarded: Server) -> None:
    for headers in ({}, bearer("nonsense-nonsense-nonsense")):
        answer = httpx.post(f"{guarded.url}/mcp", json={}, headers={**ACCEPT, **headers}, timeout=WITHIN_S)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_token_speaks_for_its_agent_only(guarded: Server, era: str) -> None:
    async def story() -> None:
        async with over_http(guarded.url, era, bearer(BOB)) as bob:
            await bob.register("bob")
        async with over_http(guarded.url, era, bearer(ALICE)) as alice:
            # Who calls is known from the token, even when nothing names it.
            made = await alice.call("register_agent", name="Alice", role="developer", skills=[])
            assert made["agent_id"] == "alice"
            assert (await alice.call("request_next_task"))["task"] is None
            await alice.refused("request_next_task", "not_permitted", agent_id="bob")
            await alice.refused("register_agent", "not_permitted", agent_id="bob", name="B", role="x", skills=[])
            await alice.refused("create_tasks", "not_permitted", tasks=[{"title": "Mine"}])
            listed = await alice.client.list_tools()
            assert [tool.name for tool in listed.tools] == list(toolsets.allowed("agent"))

    drive(story())


def test_listening_stream_of_a_tokens_agent_is_a_weak_link_and_tells_what_changed(guarded: Server) -> None:
    store = SqliteStore(guarded.store)

    async def story() -> None:
        async with over_http(guarded.url, MODERN, bearer(ALICE)) as alice:
            await alice.call("register_agent", name="Alice", role="developer", skills=[])
            async with alice.client.listen(resource_subscriptions=["tenure://task/F001"]) as changes:
                until = time.monotonic() + WITHIN_S
                while not links_of(store, "alice"):
                    assert time.monotonic() < until
                    await asyncio.sleep(0.02)
                (link,) = links_of(store, "alice")
                assert (link.kind, link.weak, link.state) == ("stream", 1, "up")
                add(store, "F002")
                add(store, "F001")
                async for change in changes:
                    assert isinstance(change, ResourceUpdated)
                    assert change.uri == "tenure://task/F001"
                    break
            while ok(agents.show_agent(store, agent_id="alice")).linked:
                assert time.monotonic() < until
                await asyncio.sleep(0.02)

    drive(story())
    store.close()


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_operators_token_has_every_tool_and_speaks_for_anyone(guarded: Server, era: str) -> None:
    async def story() -> None:
        async with over_http(guarded.url, era, bearer(BOSS)) as boss:
            listed = await boss.client.list_tools()
            assert [tool.name for tool in listed.tools] == list(toolsets.EVERY)
            await boss.call("create_tasks", tasks=[{"title": "Do it", "task_id": "F001"}])
            await boss.register("anyone")
            assert (await boss.next("anyone"))["task"]["id"] == "F001"

    drive(story())


def test_session_exists_only_for_the_token_that_opened_it(guarded: Server) -> None:
    session = Session(guarded.url, **bearer(ALICE))
    session.call("register_agent", name="Alice", role="developer", skills=[])
    session.http.headers.update(bearer(BOB))
    assert session.post("tools/list", {}).status_code == 404
    assert session.http.delete("/mcp").status_code == 404
    session.http.headers.update(bearer(ALICE))
    assert session.post("tools/list", {}).status_code == 200
    session.http.close()


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Host": "127.0.0.1.evil.example"}]
)
def test_page_from_elsewhere_cannot_reach_mcp(served: Server, headers: dict[str, str]) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
    answer = httpx.post(f"{served.url}/mcp", json=body, headers={**ACCEPT, **headers}, timeout=WITHIN_S)
    assert answer.status_code == 403
