"""Many agents at once over real HTTP: no call is lost. `make bench-mcp` does the same with 200 agents."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.http import Served, tenure
from benchmarks.mcp import connected, fill, fleet, kept, reopened
from tests.http.serving import Server
from tests.mcp.clients import drive

AGENTS = 12


def test_fleet_of_agents_with_sessions_and_streams_loses_no_call(tmp_path: Path) -> None:
    path = str(tmp_path / "tenure.db")
    fill(path, AGENTS)
    with Served(tenure(path)) as server:

        async def story() -> None:
            await server.answers()
            told = await fleet(server.port, AGENTS, seconds=2.0, period_s=0.5)
            assert not told.faults
            assert told.sent == told.answered == AGENTS * 4
            assert kept(path) == told.answered

        drive(story())


def test_server_that_stops_ends_its_streams_in_order(served: Server) -> None:
    async def story() -> None:
        line = await connected(served.port, modern=False)
        stream = await reopened(line)
        began = stream.send(b"")
        stream.stream()
        # The stream's head has come; its body goes on until somebody ends it.
        while b"\r\n\r\n" not in stream._buffer:
            await asyncio.sleep(0.01)
        assert not began.done()
        await asyncio.to_thread(served.end)
        status, _ = await began
        assert status == 200

    drive(story())
    assert "ASGI callable" not in served.logged()
