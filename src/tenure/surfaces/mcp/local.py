"""A node without a server: verbs on the store, polls that wait, and nothing that runs when nobody asks.

`tenure mcp` needs no server and no monitor. What is due is done by whoever asks next: before an agent is given work,
linked processes of this host that are gone are written down as dead, and the claim recovers what they held. While an
agent waits for work here, its poll wakes for that look and at the next instant at which some may come free, and does
what a monitor would.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tenure.core.errors import Refused
from tenure.engine import agents, links, recovery
from tenure.links import identity, sweep
from tenure.surfaces.http.node import Node

if TYPE_CHECKING:
    from tenure.store.store import Store

log = logging.getLogger("tenure.mcp")

# How often an agent that waits looks for processes that are gone, and for deaths that others have written down.
LOOK_EVERY_S = 0.5


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
        due = await self._due_in_s()
        return LOOK_EVERY_S if due is None else min(LOOK_EVERY_S, due)

    async def catch_up(self) -> None:
        await self._bury_the_dead()
        # A look first: of many processes that wait, only the first finds something to write.
        if await self._due_in_s() == 0.0:
            await self.call(recovery.advance)

    async def _due_in_s(self) -> float | None:
        due = await self.call(recovery.next_due)
        if isinstance(due, Refused):
            log.warning("what is due could not be read: %s", due.message)
            return None
        return None if due.wait_ms is None else max(0.0, due.wait_ms / 1000)

    async def _bury_the_dead(self) -> None:
        """Nobody else may have noticed that a process of this host is gone. What the store refuses is left to the next
        look."""
        boot_id, namespace = identity.here()
        if not namespace:
            return
        found = await self.call(links.watched_links, boot_id=boot_id, pid_ns=namespace)
        for link in () if isinstance(found, Refused) else sweep.gone_among(found):
            await self.call(agents.link_down, link_id=link.link_id, died=True, detail=sweep.DETAIL)
