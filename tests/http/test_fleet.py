"""Many at once: a fleet whose server is killed, and a thousand workers that wait."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

from tests.http.fleet import Line, more_files, soak
from tests.http.serving import Api, Server, must
from tests.http.test_lease import polls

IDLE = 1_000
LOOKED_AT_S = 3.0


def test_fleet_loses_nothing_and_does_nothing_twice_through_two_kills(tmp_path: Path) -> None:
    """`make soak` runs twenty times as many."""
    assert asyncio.run(soak(tmp_path, tasks=1_000, workers=32, kills=2))["broken"] > 0


def resident_mib(server: Server) -> float:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * 4096 / 1024**2


def cpu_s(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def cpu_share(server: Server) -> float:
    """How much of a processor the server uses while nothing happens."""
    used, begun = cpu_s(server), time.monotonic()
    await asyncio.sleep(LOOKED_AT_S)
    return (cpu_s(server) - used) / (time.monotonic() - begun)


def test_a_thousand_waiting_workers_cost_next_to_nothing(tmp_path: Path) -> None:
    more_files(2 * IDLE + 200)
    with Server(tmp_path / "tenure.db") as server, Api(server) as api:
        asyncio.run(waiting_together(server, api))
        assert server.ended() == 0


async def waiting_together(server: Server, api: Api) -> None:
    # The MCP library is imported in the background; it is to be there before anything is measured.
    await asyncio.to_thread(api.post, "/mcp", {})
    before = resident_mib(server)
    alone = await cpu_share(server)
    lines = [Line(server.port) for _ in range(IDLE)]
    waiting = [
        asyncio.create_task(line.post("/lease", {"worker_id": f"worker.{number}", "wait": 300}))
        for number, line in enumerate(lines)
    ]
    while await asyncio.to_thread(polls, api) < IDLE:
        pass
    connected = resident_mib(server)
    share = await cpu_share(server)
    grown = resident_mib(server) - connected
    print(
        f"{IDLE} polls wait: {before:.0f} MiB before, {connected:.0f} with them, {grown:+.1f} later;"
        f" {alone:.1%} CPU before, {share:.1%} with them"
    )
    assert connected - before < 100
    assert grown < 2
    # Beyond what the server does for itself, of which a slow machine makes more.
    assert share - alone < 0.08
    # One task wakes one of them; the others are told at the end that there is nothing.
    await asyncio.to_thread(api.add)
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result()[0] for task in done] == [200]
    assert (await asyncio.to_thread(lambda: must(api.get("/health"))))["waiting_polls"] == IDLE - 1
    server.process.send_signal(signal.SIGTERM)
    assert {(await task)[0] for task in pending} == {204}
    for line in lines:
        line.close()
