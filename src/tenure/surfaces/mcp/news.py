"""What changed, for clients of the newest protocol that listen: the board, the agents, single tasks.

One reader serves all open streams, and only while there are any. It looks at the events since its last look, at most a
few times a second however much is written, and names the resources that are stale; whoever cares reads them again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated

from tenure.core.errors import Refused
from tenure.engine import observe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp.server.subscriptions import ServerEvent

    from tenure.core.model import Event
    from tenure.surfaces.http.node import Node

EVENTS_AT_ONCE = 1_000
PAUSE_S = 0.25


class News(InMemorySubscriptionBus):
    """The bus between the store's events and the streams that listen."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node
        self._open = 0
        self._telling: asyncio.Task[None] | None = None

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        unsubscribe = super().subscribe(listener)
        self._open += 1
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell(), name="mcp news")

        def leave() -> None:
            unsubscribe()
            self._open -= 1
            if self._open == 0 and self._telling is not None:
                self._telling.cancel()
                self._telling = None

        return leave

    async def _tell(self) -> None:
        newest = await self._node.call(observe.newest_event)
        after = 0 if isinstance(newest, Refused) else newest
        while not self._node.stopping:
            # Asked for before reading: then no write is missed.
            written = self._node.written
            found = await self._node.call(observe.events, after=after, limit=EVENTS_AT_ONCE)
            if not isinstance(found, Refused) and found:
                after = found[-1].seq
                for uri in _stale(found):
                    await self.publish(ResourceUpdated(uri=uri))
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(written), 60)
            await asyncio.sleep(PAUSE_S)


def _stale(events: Sequence[Event]) -> list[str]:
    """The resources that these events make stale, each once."""
    tasks = dict.fromkeys(f"tenure://task/{event.task_id}" for event in events if event.task_id is not None)
    return ["tenure://board", "tenure://agents", *tasks]
