"""Live changes for every open page: read once, encoded once, sent to all.

One channel per project follows the events. What it finds becomes one message, and the same bytes go to every reader's
queue. Queues are short: a reader that does not keep up is dropped and comes back with the number of the last event it
saw. Then it reads the store at its own pace until it has caught up with the channel, so that it misses nothing and
nothing is kept for it in the meantime.

A touch moves a deadline without an event. The channel therefore compares the held leases with what it last sent, and
tells what moved. A reader begins with all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused
from tenure.engine import board, observe
from tenure.store.store import StoreFault
from tenure.surfaces.dashboard import shapes
from tenure.surfaces.http import answers

if TYPE_CHECKING:
    from tenure.engine.board import Changes
    from tenure.surfaces.http.node import Node

# Between two looks of a channel: what happens together is told together.
PAUSE_S = 0.2
# A channel that has nothing to tell says so, with the time: a page that hears nothing for longer is cut off.
BEAT_S = 3.0
# Events of one message; messages, and bytes of them, that wait for one reader.
EVENTS_AT_ONCE = 250
QUEUE_MAX = 48
QUEUE_BYTES = 2 << 20
# After a refusal of the store.
RETRY_S = 1.0

log = logging.getLogger("tenure.dashboard")


class Reader:
    """One open page's place in a channel."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._arrived = asyncio.Event()
        self._overrun = asyncio.Event()
        self.dropped = False
        self.ended = False

    def put(self, message: bytes) -> None:
        """Queue a message; a reader whose queue is full is dropped instead."""
        if self.dropped:
            return
        self._size += len(message)
        if len(self._waiting) >= QUEUE_MAX or (self._waiting and self._size > QUEUE_BYTES):
            self.dropped = True
            self._overrun.set()
            self._waiting.clear()
        else:
            self._waiting.append(message)
        self._arrived.set()

    def end(self) -> None:
        """No more will come."""
        self.ended = True
        self._arrived.set()

    async def overrun(self) -> None:
        """Wait until this reader is dropped, if ever."""
        await self._overrun.wait()

    async def arrived(self) -> None:
        """Wait until there is something to take, or nothing will come any more."""
        await self._arrived.wait()

    def take(self) -> list[bytes]:
        """What waits, all of it."""
        taken = list(self._waiting)
        self._waiting.clear()
        self._size = 0
        if not self.ended and not self.dropped:
            self._arrived.clear()
        return taken


class Channel:
    """What happens in one project, for those who look."""

    def __init__(self, node: Node, project_id: str) -> None:
        self._node = node
        self._project = project_id
        self._readers: set[Reader] = set()
        self._leases: dict[str, list[Any]] = {}
        self.position = 0
        self._running: asyncio.Task[None] | None = None
        self._placed: asyncio.Event = asyncio.Event()

    def __len__(self) -> int:
        return len(self._readers)

    async def join(self, reader: Reader) -> int:
        """Begin to read: everything after the returned event will come."""
        self._readers.add(reader)
        if self._running is None or self._running.done():
            self._placed.clear()
            self._running = asyncio.create_task(self._run(), name=f"dashboard {self._project}")
        await self._placed.wait()
        return self.position

    def leave(self, reader: Reader) -> None:
        """Read no more. The last to leave ends the channel."""
        self._readers.discard(reader)
        if not self._readers and self._running is not None:
            self._running.cancel()
            self._running = None

    def deadlines(self) -> list[list[Any]]:
        """Every lease that is held, as far as the channel knows."""
        return list(self._leases.values())

    async def _run(self) -> None:
        try:
            await self._begin()
            while not self._node.stopping:
                written = self._node.written
                try:
                    more = await self._look()
                except StoreFault as fault:
                    log.warning("the dashboard cannot look: %s", fault)
                    await asyncio.sleep(RETRY_S)
                    continue
                if more:
                    continue
                await asyncio.sleep(PAUSE_S)
                done, _ = await asyncio.wait((written,), timeout=BEAT_S)
                if not done:
                    await self._look(beat=True)
        except Exception:
            log.exception("the dashboard's channel failed")
        finally:
            # A channel that its last reader left may have begun anew already; those who read now are not its own.
            if self._running is asyncio.current_task():
                self._placed.set()
                for reader in self._readers:
                    reader.end()

    async def _begin(self) -> None:
        newest = await self._node.look(observe.newest_event.body)
        self.position = newest
        found = await self._changes(newest)
        self._leases = {row[0]: row for row in map(shapes.deadline, found.leases)}
        self._placed.set()

    async def _changes(self, after: int) -> Changes:
        found = await self._node.call(board.changes, project_id=self._project, after=after, limit=EVENTS_AT_ONCE)
        if isinstance(found, Refused):
            raise StoreFault(found)
        return found

    async def _look(self, *, beat: bool = False) -> bool:
        """Tell what is new; whether there is more."""
        found = await self._changes(self.position)
        rows = {row[0]: row for row in map(shapes.deadline, found.leases)}
        moved = [row for lease_id, row in rows.items() if self._leases.get(lease_id) != row]
        ended = self._leases.keys() - rows.keys()
        self._leases = rows
        if found.events or moved or ended or beat or found.seq != self.position:
            self.position = found.seq
            self._publish(message(found, moved))
        return found.more

    def _publish(self, told: bytes) -> None:
        for reader in self._readers:
            reader.put(told)


def message(found: Changes, leases: list[list[Any]]) -> bytes:
    """One message of the stream, with the number to come back with."""
    data = answers.encode(shapes.changes(found, leases))
    return b"id: %d\nevent: changes\ndata: %s\n\n" % (found.seq, data)


class Hub:
    """The channels of one server."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._channels: dict[str, Channel] = {}

    def channel(self, project_id: str) -> Channel:
        """The channel of a project."""
        found = self._channels.get(project_id)
        if found is None:
            # Projects without readers are forgotten here, so that names that somebody made up leave nothing behind.
            self._channels = {name: one for name, one in self._channels.items() if len(one)}
            found = self._channels[project_id] = Channel(self._node, project_id)
        return found

    def __len__(self) -> int:
        return sum(map(len, self._channels.values()))

    @contextlib.asynccontextmanager
    async def reading(self, project_id: str) -> Any:
        """A reader and the event from which on it is told everything."""
        channel, reader = self.channel(project_id), Reader()
        try:
            yield reader, await channel.join(reader), channel
        finally:
            channel.leave(reader)
