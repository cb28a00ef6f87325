"""`/dashboard/stream`: one page's stream of changes, from where it was to what is new.

Server-Sent Events:

    hello     the time, and every lease that is held
    changes   events with the cards they were about, leases that moved, counts; its id is what to come back with
    reset     the reader's place is not there any more: look at the board again

A page that was cut off comes back with the last id it saw (Last-Event-ID, or `after`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused
from tenure.core.model import DEFAULT_PROJECT
from tenure.engine import board, observe
from tenure.surfaces.dashboard import hub
from tenure.surfaces.http import answers
from tenure.surfaces.http.credentials import TRANSPORT
from tenure.surfaces.http.requests import node_of, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from tenure.surfaces.dashboard.hub import Hub, Reader
    from tenure.surfaces.http.node import Node

log = logging.getLogger("tenure.dashboard")

# Pages that may be open at once on one server: each costs a connection and a short queue.
READERS_MAX = 500
# A page that takes nothing for so long is dropped, however little there is to tell.
STALLED_S = 20.0


def hub_of(request: Request) -> Hub:
    """The hub of the server that serves this request; made with the first page."""
    state = request.app.state
    if not hasattr(state, "dashboard"):
        state.dashboard = hub.Hub(state.node)
    found: Hub = state.dashboard
    return found


async def stream(request: Request) -> Response | Stream:
    """Begin a stream, or go on with one."""
    project = request.query_params.get("project") or DEFAULT_PROJECT
    after = whole(request.headers.get("last-event-id") or request.query_params.get("after"))
    node, channels = node_of(request), hub_of(request)
    if len(channels) >= READERS_MAX:
        from tenure.core.errors import refuse

        return answers.problem(refuse("overloaded", f"{READERS_MAX} pages are open already.", retry_after_s=5))
    if after is None:
        newest = await node.call(observe.newest_event)
        after = 0 if isinstance(newest, Refused) else newest
    first = await node.call(board.changes, project_id=project, after=after, limit=1)
    if isinstance(first, Refused):
        if first.code != "events_lost":
            return answers.problem(first)
        return Stream(_reset())
    return Stream(_told(node, channels, project, after))


async def _reset() -> AsyncIterator[bytes]:
    yield b"event: reset\ndata: {}\n\n"


async def _told(node: Node, channels: Hub, project: str, after: int) -> AsyncIterator[bytes | Reader]:
    """What one page is told. The reader itself comes first: whoever sends must know when it is dropped."""
    async with channels.reading(project) as (reader, start, channel):
        yield reader
        now = await node.call(board.changes, project_id=project, after=start, limit=1)
        if isinstance(now, Refused):
            return
        hello = {"now": now.now_ms, "leases": channel.deadlines(), "numbers": now.numbers.as_dict()}
        yield b"retry: 1000\nid: %d\nevent: hello\ndata: %s\n\n" % (after, answers.encode(hello))
        # From the store, at the reader's own pace, up to where the channel took over.
        while after < start and not reader.dropped:
            found = await node.call(board.changes, project_id=project, after=after, limit=hub.EVENTS_AT_ONCE)
            if isinstance(found, Refused):
                return
            yield hub.message(found, [])
            if found.seq == after:
                break
            after = found.seq
        while True:
            await reader.arrived()
            for told in reader.take():
                yield told
            if reader.dropped or reader.ended:
                return


class Stream:
    """An answer that goes on until its reader leaves, is dropped for being slow, or the server stops."""

    def __init__(self, told: AsyncIterator[Any]) -> None:
        self._told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.ensure_future(self._send(send))
        hung_up = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait((sending, hung_up), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not sending.cancelled() and sending.result() is False:
                # Its buffers are full, so that no last word would reach it.
                transport = scope.get(TRANSPORT)
                if transport is not None:
                    transport.abort()
                    await hung_up
        finally:
            hung_up.cancel()
            sending.cancel()
            await asyncio.gather(sending, hung_up, return_exceptions=True)

    async def _send(self, send: Send) -> bool:
        """Send everything; False when the reader was too slow."""
        reader: Reader | None = None
        overrun: asyncio.Future[None] | None = None
        try:
            async for told in self._told:
                if not isinstance(told, bytes):
                    reader, overrun = told, asyncio.ensure_future(told.overrun())
                    continue
                one = asyncio.ensure_future(send({"type": "http.response.body", "body": told, "more_body": True}))
                waited = (one, overrun) if overrun else (one,)
                await asyncio.wait(waited, timeout=STALLED_S, return_when=asyncio.FIRST_COMPLETED)
                if not one.done():
                    one.cancel()
                    log.info("a page that did not keep up was dropped")
                    return False
                one.result()
            if reader is not None and reader.dropped:
                log.info("a page that did not keep up was dropped")
                return False
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return True
        finally:
            if overrun is not None:
                overrun.cancel()
            await self._told.aclose()  # type: ignore[attr-defined]


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
