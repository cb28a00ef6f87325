"""What the HTTP surface costs, against a bare ASGI application under the same server settings: `make bench-http`.

One run prints the bare requests per second, the durable `POST /lease` (each answered after its commit) and their ratio,
the whole offer, accept, heartbeat, complete cycle, and how fast a waiting worker gets new work. Client and servers are
processes of their own; the client is a few lines over raw connections, so that it is not what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from tenure.core.errors import Refused
from tenure.engine import tasks
from tenure.store.sqlite import SqliteStore

RATIO_LEAST, RATIO_AIM = 0.15, 0.30
WAKE_MOST_MS = 50.0
STARTS_WITHIN_S = 120.0

# -- the client -------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One keep-alive connection: a request, then its answer."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        status = int(head[9:12])
        length = 0
        if status != 204:
            at = head.lower().index(b"content-length:") + 15
            length = int(head[at : head.find(b"\r\n", at) if head.find(b"\r\n", at) > 0 else len(head)])
        if len(rest) < length or self._answer is None:
            return
        self._buffer = rest[length:]
        answer, self._answer = self._answer, None
        if not answer.done():
            answer.set_result((status, rest[:length]))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError())

    def close(self) -> None:
        self._transport.close()

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    async def post(self, path: str, body: dict[str, Any], expect: tuple[int, ...] = (200, 201)) -> Any:
        status, answer = await self.send(request_of(path, body))
        if status not in expect:
            raise AssertionError(f"POST {path}: {status} {answer!r}")
        return json.loads(answer) if answer else None


def request_of(path: str, body: dict[str, Any]) -> bytes:
    """The bytes of a request."""
    text = json.dumps(body, separators=(",", ":")).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return head.encode() + b"\r\n\r\n" + text


async def connected(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


class Result:
    """The rates of several turns, and how long each act took."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.latencies_s: list[float] = []

    @property
    def per_second(self) -> float:
        return statistics.median(self.rates)

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.latencies_s) * 1000

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000


async def load(
    port: int, connections: int, rounds: int, once: Callable[[Connection, int], Awaitable[None]], result: Result
) -> None:
    """So many connections, each doing one thing so many times."""
    opened = [await connected(port) for _ in range(connections)]
    # A connection costs what it costs when it is accepted; here it is the requests that are measured.
    await asyncio.gather(*(connection.send(ACCEPTED) for connection in opened))

    async def one(number: int, connection: Connection) -> None:
        for _ in range(rounds):
            begun = time.perf_counter()
            await once(connection, number)
            result.latencies_s.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(one(number, connection) for number, connection in enumerate(opened)))
    result.rates.append(connections * rounds / (time.perf_counter() - begun))
    for connection in opened:
        connection.close()


# -- what is measured -------------------------------------------------------------------------------------------------


async def poll(connection: Connection, number: int) -> None:
    """One request with an offer as its answer."""
    status, body = await connection.send(request_of("/lease", {"worker_id": f"worker.{number}"}))
    assert status == 200, (status, body)


async def cycle(connection: Connection, number: int) -> None:
    """Offer, accept, heartbeat, complete."""
    worker = f"worker.{number}"
    offer = await connection.post("/lease", {"worker_id": worker})
    about = {"task_id": offer["task"]["task_id"], "source_system": worker}
    await connection.post("/receipts", {"phase": "accepted", **about})
    await connection.post(f"/lease/{offer['lease_id']}/heartbeat", {})
    done = {"phase": "complete", "status": "success", "outcome_kind": "none", **about}
    await connection.post("/receipts", done)


async def wake(port: int, rounds: int) -> Result:
    """From the request that adds a task to the offer in the hands of a worker that waited for it."""
    waiting, adding = await connected(port), await connected(port)
    result = Result()
    for number in range(rounds):
        offer = waiting.send(request_of("/lease", {"worker_id": f"worker.idle-{number}", "wait": 30}))
        # The poll has to be waiting before the task is added: the server says how many wait.
        while (await health(adding))["waiting_polls"] == 0:
            pass
        added = time.perf_counter()
        await adding.post("/tasks", {"task_summary": "Wake up"})
        status, _ = await offer
        assert status == 200
        result.latencies_s.append(time.perf_counter() - added)
    return result


# A request that touches no store.
ACCEPTED = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def health(connection: Connection) -> Any:
    status, body = await connection.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert status == 200
    return json.loads(body)


# -- the servers ------------------------------------------------------------------------------------------------------

BODY = b'{"lease_id":"lease-01HTZQX7Y8Z9A0B1C2D3E4F5G6","lease_expires_at":"2026-01-04T15:45:00Z","task":{}}'


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """As little as an application can do: read the body, answer a fixed one."""
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", str(len(BODY)).encode()), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


def serve_bare() -> None:
    """The bare application under the settings that `tenure up` uses."""
    import socket

    import uvicorn

    from tenure.surfaces.http.server import configured

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"Bare listens at http://127.0.0.1:{listener.getsockname()[1]}, process {os.getpid()}", flush=True)
    uvicorn.Server(configured(bare)).run(sockets=[listener])


class Served:
    """A server process, from its first line to its end by signal."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.partition("http://127.0.0.1:")[2].partition(",")[0])

    async def answers(self) -> None:
        """Wait until it takes connections."""
        until = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                connection = await connected(self.port)
                # Our server imports the MCP library beside its first requests; that is a start's cost, not a request's.
                await connection.send(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                connection.close()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.02)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(STARTS_WITHIN_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def tenure(path: str) -> list[str]:
    return [os.path.join(os.path.dirname(sys.executable), "tenure"), "up", "--port", "0", "--store", path]


def fill(path: str, count: int) -> None:
    """Ready tasks, so that every poll has an offer as its answer. All but the first are copied by SQL."""
    store = SqliteStore(path)
    added = tasks.add_tasks(store, tasks=[{"task_id": "T0", "title": "Benchmark"}])
    assert not isinstance(added, Refused), added
    columns = [row[1] for row in store.connection.execute("PRAGMA table_info(tasks)") if row[1] != "key"]
    changes = {"task_id": "'T' || n.i", "rank_ms": "o.rank_ms + n.i"}
    store.connection.execute(
        f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1}) "
        f"INSERT INTO tasks ({', '.join(columns)}) "
        f"SELECT {', '.join(changes.get(name, 'o.' + name) for name in columns)} FROM n, tasks o WHERE o.task_id = 'T0'"
    )
    store.close()


# -- the run ----------------------------------------------------------------------------------------------------------


async def measured(connections: int, rounds: int, turns: int, wakes: int, directory: str) -> int:
    path = os.path.join(directory, "bench.db")
    each = max(1, rounds // turns)
    fill(path, connections * (each + max(1, each // 4)) * turns + connections * 10)
    plain, durable, whole = Result(), Result(), Result()
    # Both servers are up all the time and take turns, so that whatever else the machine does meets both.
    with Served([sys.executable, "-m", "benchmarks.http", "--serve-bare"]) as bare_one, Served(tenure(path)) as ours:
        for server in (bare_one, ours):
            await server.answers()
            await load(server.port, connections, 10, poll, Result())
        for _ in range(turns):
            await load(bare_one.port, connections, each * 4, poll, plain)
            await load(ours.port, connections, each, poll, durable)
            await load(ours.port, connections, max(1, each // 4), cycle, whole)
    show(f"bare ASGI, {connections} connections", plain)
    show("durable POST /lease", durable)
    ratio = statistics.median(ours / bare for ours, bare in zip(durable.rates, plain.rates, strict=True))
    print(f"{'ratio to bare ASGI':<34} {ratio:>10.3f}   at least {RATIO_LEAST}, aim {RATIO_AIM}")
    show("offer-accept-heartbeat-complete", whole)
    with Served(tenure(os.path.join(directory, "wake.db"))) as server:
        await server.answers()
        woken = await wake(server.port, wakes)
    show(f"idle worker gets new work, {wakes} times", woken, rate=False)
    return 1 if ratio < RATIO_LEAST or woken.p99_ms > WAKE_MOST_MS else 0


def show(name: str, result: Result, *, rate: bool = True) -> None:
    shown = f"{result.per_second:>8,.0f}/s" if rate else " " * 10
    print(f"{name:<34} {shown}   p50 {result.p50_ms:7.2f} ms   p99 {result.p99_ms:7.2f} ms", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="The HTTP surface against a bare ASGI application.")
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=200, help="requests of each connection")
    parser.add_argument("--turns", type=int, default=10, help="in how many turns with the bare application")
    parser.add_argument("--wakes", type=int, default=200, help="how often an idle worker is given work")
    parser.add_argument("--serve-bare", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.serve_bare:
        serve_bare()
        return 0
    with tempfile.TemporaryDirectory(prefix="tenure-http-") as directory:
        return uvloop.run(measured(asked.connections, asked.rounds, asked.turns, asked.wakes, directory))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
