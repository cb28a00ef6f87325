"""The stream: every change once and in order, whoever is slow and whatever is lost."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenure.engine import agents, claims, liveness, tasks
from tenure.store.sqlite import SqliteStore
from tests.http.serving import ANSWERS_WITHIN_S, Api, Server
from tests.support import add, ok

READERS = 50
SLOW = 5
EVENTS_PER_S = 1_000
SECONDS = 8
READ_WITHIN_S = 600
EVENT = re.compile(rb'"seq":(\d+),"at":')
PLACE = re.compile(rb"id: (\d+)")
# Bounds, not expectations. What fifty readers may cost beyond a server that nobody looks at.
GROWTH_KIB = 150 * 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "tenure.db") as started:
        yield started


def told(server: Server, after: int | None = None, last: int | None = None, **more: Any) -> Iterator[dict[str, Any]]:
    """Messages of a stream as they come: {event, id, data}."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    asked = {} if after is None else {"after": after}
    with httpx.stream(
        "GET", f"{server.url}/dashboard/stream", params=asked, headers=headers, timeout=ANSWERS_WITHIN_S, **more
    ) as response:
        assert response.status_code == 200, response.read()
        message: dict[str, Any] = {}
        for line in response.iter_lines():
            if not line:
                if message:
                    yield message
                message = {}
                continue
            name, _, value = line.partition(": ")
            message[name] = json.loads(value) if name == "data" else value


def changes(stream: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (message["data"] for message in stream if message.get("event") == "changes")


def test_stream_tells_a_change_with_its_card(server: Server) -> None:
    store = SqliteStore(server.store)
    stream = told(server)
    hello = next(stream)
    assert hello["event"] == "hello"
    add(store, "F001", title="New")
    found = next(data for data in changes(stream) if data["cards"])
    assert [card["title"] for card in found["cards"]] == ["New"]
    assert [event["kind"] for event in found["events"]] == ["task_added"]
    store.close()


def test_stream_tells_a_touch_although_it_is_no_event(server: Server) -> None:
    store = SqliteStore(server.store)
    add(store, "F001")
    ok(agents.register(store, agent_id="A1"))
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent"))
    stream = told(server)
    before = next(stream)["data"]["leases"]
    assert [row[1] for row in before] == ["F001"]
    ok(liveness.renew(store, task_id="F001", agent_id="A1"))
    moved = next(data for data in changes(stream) if data["leases"])
    assert moved["leases"][0][0] == before[0][0]
    assert moved["leases"][0][2] >= before[0][2]
    store.close()


def test_stream_goes_on_after_the_last_event_that_was_seen(server: Server) -> None:
    store = SqliteStore(server.store)
    for number in range(700):
        add(store, f"F{number}")
    stream = told(server, last=1)
    assert next(stream)["event"] == "hello"
    seen: list[int] = []
    for data in changes(stream):
        seen += [event["seq"] for event in data["events"]]
        if seen and seen[-1] >= 701:
            break
    assert seen == list(range(2, 702))
    store.close()


@pytest.mark.parametrize("after", [10_000_000])
def test_stream_from_a_place_that_is_not_there_says_so(server: Server, after: int) -> None:
    assert next(told(server, after=after))["event"] == "reset"


def test_stream_of_a_stopping_server_ends(server: Server) -> None:
    stream = told(server)
    next(stream)
    server.process.terminate()
    assert all(message for message in stream)


def resident_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0])


class Reader:
    """A page that reads, and comes back with the last number it saw when it is dropped. It looks at the bytes only:
    fifty pages that parsed everything would be slower than the server in this one process."""

    def __init__(self, port: int, after: int, until: int) -> None:
        self.port, self.last, self.until = port, after, until
        self.seen: list[int] = []
        self.times = 0

    async def read(self) -> None:
        while self.last < self.until:
            self.times += 1
            reading, writing = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
            request = f"GET /dashboard/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: {self.last}\r\n\r\n"
            writing.write(request.encode())
            try:
                await self._follow(reading)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writing.transport.abort()

    async def _follow(self, reading: asyncio.StreamReader) -> None:
        while self.last < self.until:
            message = await reading.readuntil(b"\n\n")
            for found in EVENT.finditer(message):
                number = int(found[1])
                if number > self.last:
                    self.seen.append(number)
            place = PLACE.search(message)
            if place is not None and b"event: changes" in message:
                self.last = max(self.last, int(place[1]))


def together(readers: list[Reader]) -> None:
    """Let them all read, in one loop."""

    async def all_of_them() -> None:
        await asyncio.wait_for(asyncio.gather(*(reader.read() for reader in readers)), READ_WITHIN_S)

    asyncio.run(all_of_them())


class Deaf:
    """A page that asks and then takes nothing."""

    def __init__(self, server: Server, after: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", server.port))
        request = f"GET /dashboard/stream?after={after} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        self.socket.sendall(request.encode())

    def cut_off(self) -> bool:
        """Whether the server has hung up: after what lies in the buffers comes an end, not silence."""
        self.socket.settimeout(60)
        deadline = time.monotonic() + 120
        try:
            while self.socket.recv(65536):
                if time.monotonic() > deadline:
                    return False
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        finally:
            self.socket.close()
        return True


def test_fifty_pages_at_a_thousand_events_a_second_keep_memory_bounded_and_miss_nothing(server: Server) -> None:
    with Api(server) as api:
        api.add(task_id="first")
        before = resident_kib(server.pid)
        began = api.get("/dashboard/board").json()["seq"]
    total = EVENTS_PER_S * SECONDS
    readers = [Reader(server.port, began, began + total) for _ in range(READERS - SLOW)]
    deaf = [Deaf(server, began) for _ in range(SLOW)]
    reading = threading.Thread(target=together, args=(readers,))
    reading.start()
    store = SqliteStore(server.store)
    most = before
    start = time.monotonic()
    for second in range(SECONDS):
        batch = [{"title": f"{second}.{number} " + "x" * 300} for number in range(EVENTS_PER_S)]
        for part in range(0, EVENTS_PER_S, 100):
            ok(tasks.add_tasks(store, tasks=batch[part : part + 100]))
        most = max(most, resident_kib(server.pid))
        ahead = start + second + 1 - time.monotonic()
        if ahead > 0:
            threading.Event().wait(ahead)
    store.close()
    while reading.is_alive():
        reading.join(0.2)
        most = max(most, resident_kib(server.pid))
    expected = list(range(began + 1, began + total + 1))
    assert all(reader.seen == expected for reader in readers)
    assert most - before < GROWTH_KIB, f"the server grew by {(most - before) // 1024} MiB"
    # Those who took nothing were dropped, and whoever comes back has missed nothing.
    assert all(one.cut_off() for one in deaf)
    late = Reader(server.port, began, began + total)
    together([late])
    assert late.seen == expected
    assert server.process.poll() is None
