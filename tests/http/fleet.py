"""A fleet of workers that runs tasks while its server is killed: nothing is lost and nothing is done twice.

    python -m tests.http.fleet --tasks 20000 --workers 32 --kills 2

The workers know nothing of the kills. They hold plain connections, repeat a request whose answer they did not get, and
rely on what the protocol gives them for that: an idempotency key for each poll, a dedupe_key for each receipt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tenure.store.sqlite import SqliteStore
from tests.http.serving import Server

WAIT_S = 2
AGAIN_AFTER_S = 0.05


class Line:
    """A worker's connection, opened again as often as it breaks."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.broken = 0

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Send until there is an answer. Whatever is sent may be sent twice."""
        while True:
            try:
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                return await self._once(*self._streams, path, json.dumps(body).encode())
            except (OSError, asyncio.IncompleteReadError):
                self.broken += 1
                self.close()
                await asyncio.sleep(AGAIN_AFTER_S)

    async def _once(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
    ) -> tuple[int, Any]:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        length = next((int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0)
        answer = await reader.readexactly(length)
        if "connection: close" in lines:
            self.close()
        return int(lines[0].split()[1]), json.loads(answer) if answer else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Fleet:
    """So many workers, and what became of the tasks they ran."""

    def __init__(self, port: int, workers: int, tasks: int) -> None:
        self.workers = workers
        self.tasks = tasks
        self.completed: Counter[str] = Counter()
        self.unexpected: Counter[str] = Counter()
        self.broken = 0
        self._port = port
        self._progress = asyncio.Condition()

    async def fill(self) -> None:
        line = Line(self._port)
        for first in range(0, self.tasks, 1_000):
            names = range(first, min(self.tasks, first + 1_000))
            status, answer = await line.post("/tasks", {"tasks": [{"task_id": f"T-{n}", "title": "x"} for n in names]})
            assert status == 201, answer
        line.close()

    async def run(self) -> None:
        """Work until everything is done."""
        await asyncio.gather(*(self._work(number) for number in range(self.workers)))

    async def reached(self, count: int) -> None:
        """Wait until so many tasks are completed."""
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.completed) >= count)

    def _line(self, number: int) -> Line:
        """A worker's way to its server."""
        return Line(self._port)

    async def _work(self, number: int) -> None:
        worker, line, polls = f"worker.{number}", self._line(number), 0
        while len(self.completed) < self.tasks:
            polls += 1
            poll = {"worker_id": worker, "wait": WAIT_S, "idempotency_key": f"{worker}-{polls}"}
            status, offer = await line.post("/lease", poll)
            if status == 200:
                await self._do(worker, line, offer)
            elif status != 204:
                self.unexpected[f"poll {status} {offer}"] += 1
                await asyncio.sleep(AGAIN_AFTER_S)
        self.broken += line.broken
        line.close()

    async def _do(self, worker: str, line: Line, offer: dict[str, Any]) -> None:
        about = {"task_id": offer["task"]["task_id"], "lease_id": offer["lease_id"], "source_system": worker}
        ends = {"phase": "complete", "status": "success", "outcome_kind": "none"}
        for body in ({"phase": "accepted"}, ends):
            key = f"{offer['lease_id']}-{body['phase']}"
            status, answer = await line.post("/receipts", {**about, **body, "dedupe_key": key})
            if status not in (200, 201):
                self.unexpected[f"{body['phase']} {status} {answer.get('code')}"] += 1
                return
        async with self._progress:
            self.completed[about["task_id"]] += 1
            self._progress.notify_all()


async def soak(directory: Path, tasks: int, workers: int, kills: int) -> dict[str, Any]:
    """Run a fleet through so many kills of its server; what happened, already checked."""
    server = Server(directory / "fleet.db")
    fleet = Fleet(server.port, workers, tasks)
    running = asyncio.create_task(fleet.fill())
    try:
        await running
        begun = time.monotonic()
        running = asyncio.create_task(fleet.run())
        for number in range(kills):
            await fleet.reached(tasks * (number + 1) // (kills + 1))
            server.kill()
            server = await asyncio.to_thread(Server, directory / "fleet.db", port=server.port)
        await running
        seconds = time.monotonic() - begun
    finally:
        running.cancel()
        status = await asyncio.to_thread(server.end)
    assert status == 0
    assert fleet.unexpected == {}, fleet.unexpected
    # Each task was completed by one worker's word, once.
    assert fleet.completed == dict.fromkeys((f"T-{number}" for number in range(tasks)), 1)
    store = SqliteStore(server.store)
    rows = store.connection.execute("SELECT phase, count(*), count(DISTINCT task_key) FROM receipts GROUP BY phase")
    assert {row[0]: row[1:] for row in rows} == {"accepted": (tasks, tasks), "complete": (tasks, tasks)}
    assert store.connection.execute("SELECT DISTINCT status FROM tasks").fetchall() == [("done",)]
    assert store.connection.execute("SELECT DISTINCT state FROM leases").fetchall() == [("completed",)]
    assert store.integrity_faults() == []
    store.close()
    return {"tasks": tasks, "workers": workers, "kills": kills, "broken": fleet.broken, "seconds": seconds}


def more_files(count: int) -> None:
    """Let this process, and the servers it starts, hold so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Run a fleet while its server is killed.")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--kills", type=int, default=2)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tenure-fleet-") as directory:
        found = asyncio.run(soak(Path(directory), asked.tasks, asked.workers, asked.kills))
    print(
        f"{found['tasks']:,} tasks by {found['workers']} workers through {found['kills']} kills: none lost, none done"
        f" twice; {found['broken']} broken requests, {found['seconds']:.1f} s, {found['tasks'] / found['seconds']:.0f}"
        " tasks/s"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
