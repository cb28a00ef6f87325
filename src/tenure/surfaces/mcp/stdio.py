"""`tenure mcp`: one client over standard input and output, on the store itself. No server is needed.

The process that started us is the agent's: it is recorded at the start, and while it lives we pulse for every agent it
speaks for. Its end is a death, and is written down at once. The end of input alone is none: clients restart their
servers, and give them two seconds to end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from mcp.server.stdio import stdio_server

from tenure.core.deadline import PULSE_EVERY_MS
from tenure.core.errors import Refused
from tenure.engine import agents
from tenure.links import identity
from tenure.surfaces.mcp.call import Caller, Connection
from tenure.surfaces.mcp.local import LocalNode
from tenure.surfaces.mcp.server import Surface

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.core.model import Agent
    from tenure.links.identity import ProcessIdentity
    from tenure.store.store import Store

log = logging.getLogger("tenure.mcp")

# How often the parent is looked at, and how long its end is waited for after that of the input: a process that is
# killed closes its files a moment before it is gone.
LOOK_EVERY_S = 0.5
GONE_WITHIN_S = 1.0
GONE_LOOK_S = 0.01


class Parent(Connection):
    """The client of this process, seen as a process: a strong link for each agent it speaks for."""

    def __init__(self, node: LocalNode, process: ProcessIdentity | None) -> None:
        super().__init__(node)
        self._process = process
        # For each agent: the incarnation that is linked, and the link.
        self._links: dict[str, tuple[int, str]] = {}

    async def bind(self, agent: Agent, *, began: bool) -> None:
        await super().bind(agent, began=began)
        if self._process is None or self._links.get(agent.agent_id, (0, ""))[0] == agent.incarnation:
            return
        linked = await self.node.call(
            agents.link_up,
            agent_id=agent.agent_id,
            incarnation=agent.incarnation,
            kind="mcp",
            boot_id=self._process.boot_id,
            pid_ns=self._process.pid_namespace,
            pid=self._process.pid,
            start_ticks=self._process.start_ticks,
        )
        if isinstance(linked, Refused):
            log.warning("no link for %s: %s", agent.agent_id, linked.message)
            return
        self._links[agent.agent_id] = (agent.incarnation, linked.link_id)

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended. What cannot be seen is not gone."""
        return self._process is not None and identity.state(self._process) == "gone"

    async def watch(self) -> None:
        """Pulse while the process lives; return when it is gone."""
        looks = 0
        while not self.gone:
            looks += 1
            if looks * LOOK_EVERY_S * 1000 >= PULSE_EVERY_MS:
                looks = 0
                await self._pulse()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _pulse(self) -> None:
        for agent_id, (_, link_id) in list(self._links.items()):
            pulsed = await self.node.call(agents.pulse, quiet=True, link_id=link_id)
            if isinstance(pulsed, Refused) and not pulsed.code.startswith("store_"):
                # A newer run speaks for the agent now.
                self._links.pop(agent_id, None)

    async def part(self) -> None:
        """The client is done with us: its death if it is gone, and nothing more than a closed link if it is not."""
        until = asyncio.get_running_loop().time() + GONE_WITHIN_S
        while self._links and not self.gone and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(GONE_LOOK_S)
        died = self.gone
        for _, link_id in self._links.values():
            detail = "the client's process ended" if died else "end of input"
            ended = await self.node.call(agents.link_down, link_id=link_id, died=died, detail=detail)
            if isinstance(ended, Refused):
                log.warning("the link's end was not written: %s", ended.message)


def run(store: Store, environ: Mapping[str, str], tools: str, place: Mapping[str, str]) -> None:
    """Serve until the input ends, the client is gone, or a signal. `place` is where the client works."""
    parent = identity.of_process(os.getppid())
    # Standard output is the protocol's: whatever is to be said goes to standard error.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    node = LocalNode(store)
    node.place = place
    asyncio.run(_serve(node, parent, environ, tools))


async def _serve(node: LocalNode, process: ProcessIdentity | None, environ: Mapping[str, str], tools: str) -> None:
    await node.start()
    client = Parent(node, process)
    await _told(client, environ)
    caller = Caller(node, client)
    surface = Surface(node, lambda context: caller, tools)
    serving = asyncio.create_task(_speak(surface), name="stdio")
    watching = asyncio.create_task(client.watch(), name="parent")
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    asked = asyncio.create_task(told.wait(), name="signals")
    try:
        await asyncio.wait((serving, watching, asked), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        node.stop_waiting()
        await client.part()
        await node.stop()
    if serving.done() and not serving.cancelled() and serving.exception() is not None:
        raise serving.exception()  # type: ignore[misc]
    sys.stderr.flush()
    # The thread that reads standard input cannot be woken, and would keep the process: everything is written by now.
    os._exit(0)


async def _told(client: Parent, environ: Mapping[str, str]) -> None:
    """Speak for the agent that the environment names, and for the run that `tenure run` says it is."""
    agent_id = environ.get("TENURE_AGENT", "").strip()
    if not agent_id:
        return
    known = await client.node.call(agents.show_agent, agent_id=agent_id)
    if isinstance(known, Refused):
        return
    text = environ.get("TENURE_INCARNATION", "").strip()
    if text.isascii() and text.isdigit():
        await client.bind(known.agent.replace(incarnation=int(text)), began=False)
    else:
        client.agent_id = agent_id


async def _speak(surface: Surface) -> None:
    async with stdio_server() as (read, write):
        await surface.server.run(read, write, surface.server.create_initialization_options())
