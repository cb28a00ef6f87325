"""A node without a server: verbs on the store, polls that wait, and nothing that runs when nobody asks.

`tenure mcp` needs no server and no monitor. What is due is done by whoever asks next; and while an agent waits for work
here, its poll wakes at the next instant at which some may come free, and does what a monitor would.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tenure.core.errors import Refused
from tenure.engine import recovery
from tenure.surfaces.http.node import Node

if TYPE_CHECKING:
    from tenure.store.store import Store

log = logging.getLogger("tenure.mcp")


class LocalNode(Node):
    """The parts of a node that one client's process needs."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, None)

    async def start(self) -> None:
        self.open()

    async def stop(self) -> None:
        self.stop_waiting()
        await self.close()
        self.store.close()

    async def due_in_s(self) -> float | None:
        due = await self.call(recovery.next_due)
        if isinstance(due, Refused):
            log.warning("what is due could not be read: %s", due.message)
            return None
        return None if due.wait_ms is None else max(0.0, due.wait_ms / 1000)

    async def catch_up(self) -> None:
        # A look first: of many processes that wait, only the first finds something to write.
        if await self.due_in_s() == 0.0:
            await self.call(recovery.advance)
