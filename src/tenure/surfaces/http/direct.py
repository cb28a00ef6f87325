"""The short way to the worker protocol.

A worker's poll, heartbeat, release and receipt are nearly all of a busy server's requests. Starlette's middlewares,
router and body stream cost them more than everything else that is done on the event loop, so these four are matched
here, and so are the calls of agents to the MCP server; every other request, and every other method, goes on to
Starlette. The handlers are the same: Starlette has its routes to them too, for an application that is mounted under a
path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request

from tenure.surfaces.http import lease, ledger
from tenure.surfaces.http.requests import NODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from tenure.surfaces.http.server import Parts

    Handler = Callable[[Request], Awaitable[Response]]

WHOLE_PATHS: dict[str, Handler] = {"/lease": lease.poll, "/receipts": ledger.submit}
OF_A_LEASE: dict[str, Handler] = {"heartbeat": lease.heartbeat, "release": lease.release}


class Direct:
    """Answers the worker protocol's writes; passes everything else on. Sees to it that the parts run before that."""

    def __init__(
        self, app: Starlette, parts: Parts, failed: Callable[[Request, Exception], Awaitable[Response]]
    ) -> None:
        self.app = app
        self.parts = parts
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.parts.node is None:
            self.app.state.node = await self.parts.start()
        scope[NODE] = self.parts.node
        posted = scope["method"] == "POST"
        if posted and scope["path"] == "/mcp" and not scope.get("root_path"):
            await self._call_mcp(scope, receive, send)
            return
        handler = _handler(scope) if posted else None
        if handler is None:
            await self.app(scope, receive, send)
            return
        scope["app"] = self.app
        request = Request(scope, receive, send)
        try:
            response = await handler(request)
        except ClientDisconnect:
            # Nobody is there to be answered.
            return
        except Exception as error:
            response = await self._failed(request, error)
        await response(scope, receive, send)

    async def _call_mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.parts.mcp(scope, receive, send)
        except Exception as error:
            response = await self._failed(Request(scope, receive, send), error)
            try:
                await response(scope, receive, send)
            except RuntimeError:
                # Its answer had begun: all that is left is to hang up.
                raise error from None


def _handler(scope: Any) -> Handler | None:
    """The handler of a path, with what the path says put into the scope."""
    path: str = scope["path"]
    handler = WHOLE_PATHS.get(path)
    if scope.get("root_path"):
        return None
    if handler is not None:
        scope["path_params"] = {}
        return handler
    if path.startswith("/lease/"):
        lease_id, _, act = path[7:].partition("/")
        handler = OF_A_LEASE.get(act)
        if handler is not None and lease_id:
            scope["path_params"] = {"lease_id": lease_id}
            return handler
    return None
