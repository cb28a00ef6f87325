"""Three nodes on one PostgreSQL and a fleet of workers, while nodes are killed at random and started again.

    python -m tests.postgres.fleet --tasks 20000 --workers 48 --nodes 3 --kills 12

Each worker talks to one node and knows nothing of the kills, as in tests/http/fleet.py.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tenure.engine import receipts
from tests.http.fleet import Fleet, Line, more_files
from tests.http.serving import Server
from tests.postgres.cluster import Cluster
from tests.postgres.support import ProbedPostgres
from tests.support import ok


class ManyNodes(Fleet):
    """Workers that are spread over the nodes."""

    def __init__(self, ports: list[int], workers: int, tasks: int) -> None:
        super().__init__(ports[0], workers, tasks)
        self._ports = ports

    def _line(self, number: int) -> Line:
        return Line(self._ports[number % len(self._ports)])


class Nodes:
    """Identical nodes of one store, each on a port of its own."""

    def __init__(self, url: str, directory: Path, count: int) -> None:
        self._url = url
        self._directory = directory
        self.servers = [self._start(number) for number in range(count)]

    def _start(self, number: int, port: int = 0) -> Server:
        return Server(self._url, port=port, log=self._directory / f"node-{number}.log")

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    def kill(self, number: int) -> None:
        self.servers[number].kill()

    def again(self, number: int) -> None:
        self.servers[number] = self._start(number, self.servers[number].port)

    def end(self) -> list[int]:
        return [server.end() for server in self.servers]


def checked(url: str, tasks: int) -> None:
    """Each task was completed exactly once, and the ledger says so."""
    store = ProbedPostgres(url)
    rows = store.connection.execute("SELECT phase, count(*), count(DISTINCT task_key) FROM receipts GROUP BY phase")
    found = {row[0]: row[1:] for row in rows.fetchall()}
    assert found["complete"] == (tasks, tasks), found
    assert store.connection.execute("SELECT DISTINCT status FROM tasks").fetchall() == [("done",)]
    twice = store.connection.execute("SELECT task_key, token FROM leases GROUP BY 1, 2 HAVING count(*) > 1").fetchall()
    assert twice == []
    assert store.integrity_faults() == []
    assert ok(receipts.verify(store)).faults == ()
    store.close()


async def soak(
    url: str, directory: Path, *, tasks: int, workers: int, nodes: int, kills: int, seed: int
) -> dict[str, Any]:
    """Run a fleet through so many kills of its nodes; what happened, already checked."""
    draw = random.Random(seed)
    fleet_nodes = await asyncio.to_thread(Nodes, url, directory, nodes)
    fleet = ManyNodes(fleet_nodes.ports, workers, tasks)
    running = asyncio.create_task(fleet.fill())
    try:
        await running
        begun = time.monotonic()
        running = asyncio.create_task(fleet.run())
        for number in range(kills):
            await fleet.reached(tasks * (number + 1) // (kills + 2))
            victim = draw.randrange(nodes)
            fleet_nodes.kill(victim)
            await asyncio.to_thread(fleet_nodes.again, victim)
        await running
        seconds = time.monotonic() - begun
    finally:
        running.cancel()
        statuses = await asyncio.to_thread(fleet_nodes.end)
    assert statuses == [0] * nodes
    assert fleet.unexpected == {}, fleet.unexpected
    assert fleet.completed == dict.fromkeys((f"T-{number}" for number in range(tasks)), 1)
    checked(url, tasks)
    return {"broken": fleet.broken, "seconds": seconds}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Run a fleet on PostgreSQL while its nodes are killed.")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=48)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    more_files(4_096)
    cluster = Cluster().create().start()
    try:
        with tempfile.TemporaryDirectory(prefix="tenure-fleet-") as directory:
            url = cluster.url(cluster.new_database())
            found = asyncio.run(soak(url, Path(directory), **vars(asked)))
    finally:
        cluster.remove()
    print(
        f"{asked.tasks:,} tasks by {asked.workers} workers on {asked.nodes} nodes through {asked.kills} kills: none"
        f" lost, none done twice, ledger intact; {found['broken']} broken requests, {found['seconds']:.1f} s,"
        f" {asked.tasks / found['seconds']:.0f} tasks/s"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
