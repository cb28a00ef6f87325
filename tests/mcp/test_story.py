"""The whole story: register, request, decide, report, die, recover, and the next agent continues from 15 %."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.engine import claims, liveness
from tenure.store.sqlite import SqliteStore
from tests.http.serving import Server
from tests.mcp.clients import ERAS, LEGACY, Room, Talker, drive, over_http, over_stdio, swift
from tests.support import add, ok

ROOT = Path(__file__).parents[2]
# The lease of 15 % has 90 s and a grace of 30: silence alone would take longer.
SILENCE_S = 100

# A process that is an agent: it works up to 15 %, says so, and waits to be killed.
AGENT = """
import asyncio, sys
from tests.mcp.clients import over_http, over_stdio

async def work(agent):
    await agent.register("Agent-A")
    given = await agent.next("Agent-A")
    task_id = given["task"]["id"]
    await agent.call("log_decision", agent_id="Agent-A", task_id=task_id, decision="Parse with the csv module.")
    await agent.report("Agent-A", task_id, 15, message="Reader is written.")
    print("working", flush=True)
    await asyncio.Event().wait()

async def main():
    how, where, era = sys.argv[1:]
    async with (over_http if how == "http" else over_stdio)(where, era) as agent:
        await work(agent)

asyncio.run(main())
"""


def start_agent(how: str, where: str, era: str) -> subprocess.Popen[str]:
    """An agent in a process of its own, at the moment at which it has reported 15 %."""
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, how, where, era],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if line != "working\n":
        process.kill()
        process.wait()
        raise AssertionError(f"the agent said {line!r}")
    return process


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the agent itself and nothing else: what it started sees its end."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def kill_with_its_server(process: subprocess.Popen[str]) -> None:
    """Kill the `tenure mcp` that an agent started and then the agent, so that nobody is left who saw its end."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    os.kill(int(children[0]), signal.SIGKILL)
    kill(process)


async def continues(agent: Talker, reason: str, wait_s: float = 100) -> None:
    """The next agent gets the task as soon as it is free, with all that it needs to go on."""
    await agent.register("Agent-B")
    given = await agent.next("Agent-B", wait_s)
    assert given["task"]["id"] == "F001"
    assert given["task"]["progress"] == 15
    told = given["recovery_info"]
    assert told["recovered_from_agent"] == "Agent-A"
    assert told["previous_progress"] == 15
    assert told["recovery_reason"] == reason
    text = given["instructions"]
    assert text.startswith("# Task F001")
    assert "RECOVERY ADDENDUM — recovered from Agent-A" in text
    assert "git merge marcus/Agent-A --no-edit" in text
    assert "git log marcus/Agent-A" in text
    assert "Previous agent reached 15%" in text
    assert "Reader is written." in text
    assert "Parse with the csv module." in text
    assert text.index("RECOVERY ADDENDUM") < text.index("The body of it.")
    assert given["lease"]["phase"] == "unproven"
    done = await agent.report("Agent-B", "F001", 100, "completed", "Continued and finished.")
    assert done["status"] == "done"
    assert done["lease"] is None


def with_task(path: str) -> None:
    store = SqliteStore(path)
    try:
        add(store, body="The body of it.")
    finally:
        store.close()


def leave_seconds(path: str) -> None:
    """From now on leases last for seconds, and so does the agent's: while it lived it need not be quick."""
    swift(path)
    store = SqliteStore(path)
    try:
        ok(liveness.report(store, task_id="F001", agent_id="Agent-A", progress=15, message="Reader is written."))
    finally:
        store.close()


@pytest.mark.parametrize("era", ERAS)
def test_story_over_http_with_a_killed_agent(served: Server, era: str) -> None:
    with_task(served.store)
    agent = start_agent("http", served.url, era)
    kill(agent)
    leave_seconds(served.store)

    async def story() -> None:
        async with over_http(served.url, era) as successor:
            # A dropped stream proves nothing: the task comes free by the rule of silence, in the server's monitor.
            await continues(successor, "lease_expired")

    drive(story())


@pytest.mark.parametrize("era", ERAS)
def test_story_over_stdio_with_a_killed_agent(tmp_path: Path, era: str) -> None:
    path = str(tmp_path / "tenure.db")
    with_task(path)
    agent = start_agent("stdio", path, era)
    killed_at = time.monotonic()
    kill(agent)

    async def story() -> None:
        async with over_stdio(path, era) as successor:
            # With no server and the leases of a minute, the process that was seen to end is what frees the task.
            await continues(successor, "process_exited")

    drive(story())
    assert time.monotonic() - killed_at < SILENCE_S


@pytest.mark.parametrize("era", ERAS)
def test_agent_that_died_with_its_server_is_found_dead_by_the_next_request(tmp_path: Path, era: str) -> None:
    path = str(tmp_path / "tenure.db")
    with_task(path)
    agent = start_agent("stdio", path, era)
    kill_with_its_server(agent)

    async def story() -> None:
        async with over_stdio(path, era) as successor:
            # It does not wait: its request itself looks for processes that are gone.
            await continues(successor, "process_exited", wait_s=0)

    drive(story())


def test_agent_that_dies_with_its_server_is_found_dead_by_one_who_waits(tmp_path: Path) -> None:
    path = str(tmp_path / "tenure.db")
    with_task(path)
    agent = start_agent("stdio", path, LEGACY)

    async def story() -> None:
        async with over_stdio(path) as successor:
            await successor.register("Agent-B")
            assert (await successor.next("Agent-B"))["task"] is None
            waiting = asyncio.create_task(continues(successor, "process_exited", wait_s=100))
            await asyncio.sleep(0)
            await asyncio.to_thread(kill_with_its_server, agent)
            begun = time.monotonic()
            await waiting
            assert time.monotonic() - begun < SILENCE_S

    drive(story())


@pytest.mark.parametrize("era", ERAS)
def test_story_to_the_second(store: SqliteStore, clock: ManualClock, era: str) -> None:
    """The specification's trace on its own clock: calls at 0, 15, 40 and 55 s, and death at 175 s, not before."""
    add(store, body="The body of it.")

    async def story() -> None:
        async with Room(store) as room, room.client(era) as a, room.client(era) as b:
            await a.register("Agent-A")
            given = await a.next("Agent-A")
            assert (given["lease"]["lease_s"], given["lease"]["grace_s"], given["lease"]["phase"]) == (
                60,
                20,
                "unproven",
            )
            assert given["recovery_info"] is None
            clock.advance(15)
            await a.call("log_decision", agent_id="Agent-A", task_id="F001", decision="Parse with the csv module.")
            clock.advance(25)
            kept = await a.report("Agent-A", "F001", 15, message="Reader is written.")
            assert (kept["lease"]["lease_s"], kept["lease"]["grace_s"], kept["lease"]["phase"]) == (90, 30, "working")
            clock.advance(15)
            await a.call("ping", echo="still here")
            clock.advance(119.999)
            await b.register("Agent-B")
            waiting = await b.next("Agent-B")
            assert waiting["task"] is None
            assert waiting["should_exit"] is False
            assert waiting["retry_after_seconds"] >= 1
            clock.advance(0.001)
            await continues(b, "lease_expired")

    drive(story())


def test_agent_that_returns_gets_its_free_task_back(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a:
            await a.register("A1")
            first = await a.next("A1")
            clock.advance(81)
            # The touch of the same call finds the lease gone; the report takes the task back.
            again = await a.report("A1", "F001", 40)
            assert "lease not found, recreating" in again["recreated"]
            assert again["lease"]["token"] > first["lease"]["token"]
            assert again["progress"] == 40

    drive(story())


def test_report_inside_grace_is_honoured(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a:
            await a.register("A1")
            first = await a.next("A1")
            clock.advance(79.999)
            kept = await a.report("A1", "F001", 10)
            assert kept["lease"]["token"] == first["lease"]["token"]
            assert "recreated" not in kept

    drive(story())


def test_agent_that_returns_too_late_stops(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as b:
            await a.register("A1")
            await a.next("A1")
            clock.advance(81)
            await b.register("B1")
            assert (await b.next("B1"))["task"]["id"] == "F001"
            held = ok(claims.leases_of(store, agent_id="B1"))
            told = await a.refused(
                "report_task_progress",
                "lease_lost",
                agent_id="A1",
                task_id="F001",
                status="completed",
                progress=100,
                message="All done.",
            )
            assert told["facts"]["holder"] == "B1"
            assert ok(claims.leases_of(store, agent_id="B1")) == held
            # Its news reaches whoever holds the task now.
            heard = await b.report("B1", "F001", 5)
            assert any("All done." in message["text"] for message in heard["messages"])

    drive(story())


def test_first_call_after_a_loss_tells_it_once(store: SqliteStore, clock: ManualClock) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a:
            await a.register("A1")
            await a.next("A1")
            clock.advance(81)
            lost = (await a.call("ping", echo="?"))["lost_lease"]
            assert lost["task_id"] == "F001"
            assert lost["reason"] == "lease_expired"
            assert lost["next"]

    drive(story())


def test_end_of_input_alone_is_no_death(tmp_path: Path) -> None:
    path = str(tmp_path / "tenure.db")
    with_task(path)

    async def story() -> dict[str, Any]:
        async with over_stdio(path, LEGACY) as agent:
            await agent.register("A1")
            first = await agent.next("A1")
        # The client closed its server, which had two seconds to end, and starts another.
        async with over_stdio(path, LEGACY) as agent:
            again = await agent.next("A1")
            assert again["lease"]["lease_id"] == first["lease"]["lease_id"]
            assert again["recovery_info"] is None
            return again

    assert drive(story())["task"]["id"] == "F001"


@pytest.mark.parametrize("era", ERAS)
def test_waiting_agent_is_given_what_another_process_adds(tmp_path: Path, era: str) -> None:
    path = str(tmp_path / "tenure.db")
    with_task(path)

    async def story() -> None:
        async with over_stdio(path, era) as first, over_stdio(path, era) as second:
            await first.register("A1")
            # While it is worked on, more may come: its successor waits.
            assert (await first.next("A1"))["task"]["id"] == "F001"
            await second.register("A2")
            waiting = asyncio.create_task(second.next("A2", wait_s=100))
            # The wait has begun once the agent's own poll was written down.
            await asyncio.sleep(0)
            store = SqliteStore(path)
            add(store, "F002")
            store.close()
            assert (await waiting)["task"]["id"] == "F002"

    drive(story())


def test_waiting_agent_is_sent_home_when_all_is_done(store: SqliteStore) -> None:
    add(store)

    async def story() -> None:
        async with Room(store) as room, room.client() as a, room.client() as b:
            await a.register("A1")
            await a.next("A1")
            await b.register("B1")
            waiting = asyncio.create_task(b.next("B1", wait_s=100))
            await a.report("A1", "F001", 100, "completed")
            answer = await waiting
            assert answer["task"] is None
            assert answer["should_exit"] is True
            assert answer["retry_reason"]

    drive(story())
