"""Many agents at once over real HTTP: no call is lost. `make bench-mcp` does the same with 200 agents."""

from __future__ import annotations

from pathlib import Path

from benchmarks.http import Served, tenure
from benchmarks.mcp import fill, fleet, kept
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
