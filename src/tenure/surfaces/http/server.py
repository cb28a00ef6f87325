"""The ASGI application and the process around it: `tenure up`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from tenure.core.errors import refuse
from tenure.surfaces.dashboard.routes import ROUTES as DASHBOARD
from tenure.surfaces.http import answers, boards, gates, lease, ledger, operations, tasks
from tenure.surfaces.http.credentials import FAILED, Guard, Tokens
from tenure.surfaces.http.direct import Direct
from tenure.surfaces.http.node import Node
from tenure.surfaces.http.openapi import document, page
from tenure.surfaces.http.peers import PeerProtocol
from tenure.surfaces.mcp.mount import Mount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from tenure.store.store import Store

# A thread that has something to do waits no longer than this for one that is busy: the writer for the loop, when its
# COMMIT is done.
SWITCH_S = 0.0001
# For how long a connection may be idle. Clients drop theirs sooner (httpx, and with it MCP's SDK, after 5 s): with the
# same time on both sides a request is now and then sent into a connection that is being closed, and lost.
KEEP_ALIVE_S = 20
# How many new objects make the collector look.
COLLECT_EVERY = 10_000

log = logging.getLogger("tenure.http")

ROUTES = [
    Route("/lease", lease.poll, methods=["POST"]),
    Route("/lease", lease.mine, methods=["GET"]),
    Route("/lease/{lease_id}/heartbeat", lease.heartbeat, methods=["POST"]),
    Route("/lease/{lease_id}/release", lease.release, methods=["POST"]),
    Route("/receipts", ledger.submit, methods=["POST"]),
    Route("/receipts", ledger.list_receipts, methods=["GET"]),
    Route("/receipts/verify", ledger.verify, methods=["GET"]),
    Route("/receipts/{receipt_id}", ledger.show, methods=["GET"]),
    Route("/obligations", ledger.obligations, methods=["GET"]),
    Route("/tasks", tasks.add, methods=["POST"]),
    Route("/tasks", tasks.list_tasks, methods=["GET"]),
    Route("/tasks/{task_id}", tasks.show, methods=["GET"]),
    Route("/tasks/{task_id}/receipts", ledger.list_receipts, methods=["GET"]),
    Route("/tasks/{task_id}/requeue", tasks.requeue, methods=["POST"]),
    Route("/tasks/{task_id}/move", tasks.move, methods=["POST"]),
    Route("/dead", tasks.dead, methods=["GET"]),
    Route("/boards/webhook", boards.webhook, methods=["POST"]),
    Route("/gates", gates.list_gates, methods=["GET"]),
    Route("/gates/resend", gates.resend, methods=["POST"]),
    Route("/events", operations.events, methods=["GET"]),
    Route("/health", operations.health, methods=["GET"]),
    Route("/metrics", operations.metrics, methods=["GET"]),
    Route("/openapi.json", document, methods=["GET"]),
    Route("/docs", page, methods=["GET"]),
]


class Parts:
    """The parts of an application that run: the node, and the MCP server beside it. They start once.

    They start with the application's lifespan. An application that is embedded in another has none of its own: there
    the first request starts them, on the loop that serves it.
    """

    def __init__(self, store: Store, server_id: str, tools: str) -> None:
        self._store = store
        self._server_id = server_id
        self.mcp = Mount(tools)
        self.node: Node | None = None
        self._starting: asyncio.Lock | None = None

    async def start(self) -> Node:
        """The running node."""
        if self.node is None:
            self._starting = self._starting or asyncio.Lock()
            async with self._starting:
                if self.node is None:
                    node = Node(self._store, self._server_id)
                    await node.start()
                    self.mcp.start(node)
                    self.node = node
        return self.node

    async def stop(self) -> None:
        """End what runs. Whoever embeds the application may call this at its own end."""
        if self.node is not None:
            self.node.stop_waiting()
            await self.mcp.stop()
            await self.node.stop()


def build(store: Store, server_id: str, tokens: Tokens | None = None, tools: str = "agent") -> Any:
    """The application over a store. It may be mounted in another one."""
    parts = Parts(store, server_id, tools)

    @contextlib.asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        application.state.node = await parts.start()
        yield
        await parts.stop()

    application = Starlette(
        routes=[*ROUTES, *DASHBOARD, Route("/mcp", parts.mcp)],
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _internal_error},
    )
    return Guard(Direct(application, parts, _internal_error), tokens)


async def _http_error(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself (no such route, wrong method), as a problem like every other."""
    assert isinstance(error, HTTPException)
    code = {404: "route_not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_argument")
    response = answers.problem(refuse(code, f"{request.method} {request.url.path}: {error.detail}."))
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        # Starlette names the methods of the first route only.
        matching = [route for route in (*ROUTES, *DASHBOARD) if route.matches(request.scope)[0] is not Match.NONE]
        response.headers["Allow"] = ", ".join(sorted({method for route in matching for method in route.methods or ()}))
    return response


async def _internal_error(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    request.scope[FAILED] = True
    return answers.problem(refuse("internal_error", "Something unforeseen went wrong."))


class Server(uvicorn.Server):
    """Uvicorn's server, which ends waiting polls as soon as it is asked to stop."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        direct = getattr(self.config.loaded_app, "app", None)
        if isinstance(direct, Direct) and not self.should_exit:
            self._settling = asyncio.create_task(_settle(direct.parts), name="settle")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        application = self.config.loaded_app
        node = _node_within(application)
        if node is not None:
            node.stop_waiting()
        await super().shutdown(sockets)


async def _settle(parts: Parts) -> None:
    """Spare the collector what stays for good: the modules and all they made. Looking through them again and again took
    a busy server a tenth of its time, in pauses of 70 ms."""
    with contextlib.suppress(Exception):
        await parts.mcp.loaded()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, 10, 10)


def _node_within(application: Any) -> Node | None:
    """Unwrap uvicorn's and our own layers down to the application that has the node."""
    while application is not None:
        node = getattr(getattr(application, "state", None), "node", None)
        if isinstance(node, Node):
            return node
        application = getattr(application, "app", None)
    return None


def serve(
    store: Store,
    host: str,
    port: int,
    tokens: Tokens | None,
    listening: Callable[[str], None],
    tools: str = "agent",
) -> None:
    """Serve until SIGTERM or SIGINT. `listening` is told the address before the first request is taken."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    # Before the address is told: who connects at once then waits for the application instead of being refused.
    listener.listen(2048)
    bound = listener.getsockname()[1]
    config = configured(build(store, f"{socket.gethostname()}.{bound}", tokens, tools))
    listening(f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}")
    server = Server(config)
    for stop in (signal.SIGTERM, signal.SIGINT):
        # Uvicorn raises the signal that ended it once more when it is done: that is a success, not a death.
        signal.signal(stop, _stopped)
    sys.setswitchinterval(SWITCH_S)
    with contextlib.suppress(_Stopped):
        server.run(sockets=[listener])
    if not server.started:
        raise RuntimeError("the server could not start; its log says why")


class _Stopped(Exception):
    """Asked to stop."""


def _stopped(number: int, frame: Any) -> None:
    raise _Stopped


def configured(application: Any) -> uvicorn.Config:
    """How uvicorn is to serve an application: ours, and the bare one that the benchmark compares it with."""
    return uvicorn.Config(
        application,
        loop="auto",
        http=PeerProtocol,
        log_level="warning",
        access_log=False,
        lifespan="on",
        backlog=2048,
        timeout_graceful_shutdown=30,
        timeout_keep_alive=KEEP_ALIVE_S,
        server_header=False,
        # Nobody stands in front of a loopback server; behind a proxy, tokens tell who calls.
        proxy_headers=False,
    )
