"""Weak links: an open stream proves that its client lives while it is up, and proves nothing when it drops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from tenure.core.deadline import PULSE_EVERY_MS
from tenure.core.errors import Refused
from tenure.engine import agents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from tenure.surfaces.http.node import Node

log = logging.getLogger("tenure.mcp")


class StreamLinks:
    """The links of one open stream: one for each agent its client speaks for, pulsed until the stream ends."""

    def __init__(self, node: Node, incarnations: Callable[[], Mapping[str, int]]) -> None:
        self._node = node
        self._incarnations = incarnations
        self._links: dict[tuple[str, int], str | None] = {}
        self._changed = asyncio.Event()

    def look(self) -> None:
        """The client speaks for someone new."""
        self._changed.set()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the links up while the stream is open."""
        keeping = asyncio.create_task(self._keep(), name="stream links")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            # In a task of its own: this one may be cancelled with the stream, and the engine is to hear of its end.
            dropping = asyncio.ensure_future(self._drop())
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(dropping)

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            for key in list(self._incarnations().items()):
                await self._pulse(key)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), PULSE_EVERY_MS / 1000)

    async def _pulse(self, key: tuple[str, int]) -> None:
        agent_id, incarnation = key
        if key not in self._links:
            linked = await self._node.call(agents.link_up, agent_id=agent_id, incarnation=incarnation, kind="stream")
            # An agent that a newer connection speaks for is not linked here, nor asked for again.
            self._links[key] = None if isinstance(linked, Refused) else linked.link_id
            return
        link_id = self._links[key]
        if link_id is None:
            return
        pulsed = await self._node.call(agents.pulse, quiet=True, link_id=link_id)
        if isinstance(pulsed, Refused) and not pulsed.code.startswith("store_"):
            self._links[key] = None

    async def _drop(self) -> None:
        for link_id in self._links.values():
            if link_id is not None:
                await self._node.call(agents.link_down, link_id=link_id, died=False, detail="stream closed")
