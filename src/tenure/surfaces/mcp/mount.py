"""`/mcp` of `tenure up`: sessions of the older protocols, single calls of the newest, both on one endpoint.

The SDK takes half a second to import, so it is imported in the background while the rest of the server answers already;
whoever calls `/mcp` meanwhile waits for it. Who may talk to the server at all is decided outside, as for every route.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any

from tenure.engine import agents
from tenure.surfaces.http.requests import whole
from tenure.surfaces.mcp.call import Caller, Connection
from tenure.surfaces.mcp.streams import StreamLinks

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tenure.core.model import Agent
    from tenure.surfaces.http.node import Node

log = logging.getLogger("tenure.mcp")

SESSION_HEADER = b"mcp-session-id"
CALLER = "tenure.mcp.caller"
# Sessions that nobody has used for this long are forgotten; the SDK has ended them before.
FORGET_AFTER_S = 3_600.0
FORGET_FROM = 1_000


class Session(Connection):
    """One session of an older protocol: it may have a stream open."""

    def __init__(self, node: Node, credential: str | None) -> None:
        super().__init__(node, credential)
        self.used_at = time.monotonic()
        self.streams: set[StreamLinks] = set()

    async def bind(self, agent: Agent, *, began: bool) -> None:
        await super().bind(agent, began=began)
        for stream in self.streams:
            stream.look()

    async def end(self) -> None:
        """The client deleted the session: the incarnations it began are over, unless newer ones have begun."""
        for agent_id in self.began:
            incarnation = self.incarnations[agent_id]
            await self.node.call(agents.depart, agent_id=agent_id, incarnation=incarnation, reason="session deleted")


class Mount:
    """The ASGI application of `/mcp`."""

    def __init__(self, tools: str = "agent") -> None:
        self._tools = tools
        self._sessions: dict[str, Session] = {}
        self._running: asyncio.Task[None] | None = None

    # -- its life ---------------------------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        """Begin to import the SDK; requests wait until it is there."""
        self._node = node
        self._over = asyncio.Event()
        self._ready: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(), name="mcp")

    async def loaded(self) -> None:
        """Wait until the SDK is there."""
        await asyncio.shield(self._ready)

    async def stop(self) -> None:
        """End every session. The node's end has been announced already."""
        if self._running is not None:
            self._over.set()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        try:
            server = await asyncio.to_thread(importlib.import_module, "tenure.surfaces.mcp.server")
            surface = server.Surface(self._node, _caller_of, self._tools)
            manager = server.manager(surface)
            async with manager.run():
                self._ready.set_result(manager.handle_request)
                await self._node.ending.wait()
                surface.listening.close()
                # Calls that were accepted are answered before their sessions end.
                await self._over.wait()
        except Exception as error:
            log.exception("the MCP server ended")
            if not self._ready.done():
                self._ready.set_exception(error)
                # Whoever asked is told; nobody may have.
                self._ready.exception()
            raise

    # -- requests ---------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        application = await asyncio.shield(self._ready)
        # Blanks around a header's value are no part of it, and not every HTTP parser takes them away.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        credential = scope.get("state", {}).get("credential")
        session_id = headers.get(SESSION_HEADER, b"").decode("latin-1")
        session = self._sessions.get(session_id)
        if session is not None and session.credential != credential:
            # To anyone else's token the session does not exist.
            await _not_found(send)
            return
        request = _Request(self, scope, receive, send, credential)
        incarnation = whole(headers.get(b"tenure-incarnation", b"").decode("latin-1"))
        scope[CALLER] = Caller(self._node, session, credential, incarnation, request.hung_up)
        if session is None:
            await application(scope, request.receive, request.send)
            return
        session.used_at = time.monotonic()
        if scope["method"] == "GET":
            await self._stream(session, application, request)
        else:
            await application(scope, request.receive, request.send)
        if scope["method"] == "DELETE" and request.status == 200:
            self._sessions.pop(session_id, None)
            await session.end()

    async def _stream(self, session: Session, application: ASGIApp, request: _Request) -> None:
        links = StreamLinks(self._node, lambda: session.incarnations)
        session.streams.add(links)
        try:
            async with links.held():
                await application(request.scope, request.receive, request.send)
            await request.finish()
        finally:
            session.streams.discard(links)

    def opened(self, session_id: str, credential: str | None) -> None:
        """The SDK made a session for an initialize request."""
        if session_id in self._sessions:
            return
        if len(self._sessions) >= FORGET_FROM:
            now = time.monotonic()
            for known, old in list(self._sessions.items()):
                if now - old.used_at > FORGET_AFTER_S and not old.streams:
                    del self._sessions[known]
        self._sessions[session_id] = Session(self._node, credential)


class _Request:
    """One request on its way through: notes the answer's status and session, and when the client hangs up."""

    def __init__(self, mount: Mount, scope: Scope, receive: Receive, send: Send, credential: str | None) -> None:
        self.scope = scope
        self.hung_up = asyncio.Event()
        self.status = 0
        self._open = False
        self._mount = mount
        self._receive = receive
        self._send = send
        self._credential = credential

    async def receive(self) -> Message:
        """What comes in. A server that stops hangs up on its streams by itself, for they would never end."""
        node = self._mount._node
        if self.scope["method"] != "GET":
            message = await self._receive()
        else:
            ending = asyncio.ensure_future(node.ending.wait())
            coming = asyncio.ensure_future(self._receive())
            try:
                await asyncio.wait((ending, coming), return_when=asyncio.FIRST_COMPLETED)
                message = {"type": "http.disconnect"} if not coming.done() else coming.result()
            finally:
                ending.cancel()
                coming.cancel()
        if message["type"] == "http.disconnect":
            self.hung_up.set()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            session_id = dict(message.get("headers", ())).get(SESSION_HEADER)
            if session_id is not None and self.status == 200:
                self._mount.opened(session_id.decode("latin-1"), self._credential)
        self._open = message["type"] == "http.response.start" or bool(message.get("more_body"))
        await self._send(message)

    async def finish(self) -> None:
        """End an answer that was begun. The SDK leaves its streams open when it is told that the client is gone, and so
        it was told when it is the server that goes: the HTTP server would call that a fault of the application."""
        if self._open:
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})


def _caller_of(context: Any) -> Caller:
    caller: Caller = context.request.scope[CALLER]
    return caller


async def _not_found(send: Send) -> None:
    """As the SDK answers for a session that it does not know."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(error).encode()})
