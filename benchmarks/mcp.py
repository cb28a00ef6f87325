"""What the MCP surface costs, against a bare server of the same SDK, and how it bears a fleet: `make bench-mcp`.

One run prints, for the newest protocol and for sessions of the older ones, the calls per second of a tool that does
nothing on a bare server of the SDK and of `ping` on ours, in turns, and the ratio of the two medians; it fails when one
ratio is below 0.7. Our server has as many agents at work as there are connections, each with a lease, while it is
measured. The calls that touch, each answered after its commit, are printed beside them. Then so many agents connect,
each with a session and an open stream, and call a tool every second: every call must be answered and every answered one
must be found in the store. Clients and servers are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import uvloop

from benchmarks.http import Connection, Result, Served, show, tenure
from tenure.engine import tasks
from tenure.store.sqlite import SqliteStore

RATIO_LEAST = 0.7
# How many agents of a fleet arrive at the same time.
CONNECTING = 16
NEWEST, OLDER = "2026-07-28", "2025-11-25"
ABOUT_CLIENT = {"name": "bench", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientInfo": ABOUT_CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}

# -- the client -------------------------------------------------------------------------------------------------------


class Line(Connection):
    """A keep-alive connection whose answers may come in chunks, as event streams do."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self.session = ""
        self.closed = False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        if b"chunked" in head.lower():
            if not rest.endswith(b"0\r\n\r\n"):
                return
            body = b"".join(_chunks(rest))
        else:
            at = head.lower().find(b"content-length:")
            length = int(head[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
            if len(rest) < length:
                return
            body = rest[:length]
        at = head.lower().find(b"mcp-session-id:")
        if at >= 0:
            self.session = head[at + 15 :].partition(b"\r\n")[0].decode().strip()
        self._buffer = b""
        answer, self._answer = self._answer, None
        if not answer.done():
            answer.set_result((int(head[9:12]), body))

    def stream(self) -> None:
        """Hold the session's own stream open on this connection; what comes on it is not read."""
        self._transport.write(
            f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nMcp-Session-Id: {self.session}\r\n"
            f"MCP-Protocol-Version: {OLDER}\r\n\r\n".encode()
        )


def _chunks(rest: bytes) -> list[bytes]:
    found = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            break
        found.append(rest[:length])
        rest = rest[length + 2 :]
    return found


def message_of(body: bytes) -> Any:
    """The JSON-RPC message of an answer, plain or as an event."""
    if body.startswith(b"{"):
        return json.loads(body)
    lines = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
    return json.loads(lines[-1])


def request_of(line: Line, method: str, params: dict[str, Any], *, modern: bool, number: int | None = 1) -> bytes:
    """The bytes of one JSON-RPC request."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if number is not None:
        message["id"] = number
    headers = ["Host: 127.0.0.1", "Content-Type: application/json", "Accept: application/json, text/event-stream"]
    headers.append(f"MCP-Protocol-Version: {NEWEST if modern else OLDER}")
    if modern:
        params["_meta"] = META
        headers.append(f"Mcp-Method: {method}")
        if "name" in params:
            headers.append(f"Mcp-Name: {params['name']}")
    elif line.session:
        headers.append(f"Mcp-Session-Id: {line.session}")
    text = json.dumps(message, separators=(",", ":")).encode()
    headers.append(f"Content-Length: {len(text)}")
    return ("POST /mcp HTTP/1.1\r\n" + "\r\n".join(headers) + "\r\n\r\n").encode() + text


async def connected(port: int, *, modern: bool) -> Line:
    """A connection that may call tools: as it is in the newest protocol, with a session in the older ones."""
    line = await _opened(port)
    if not modern:
        about = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": ABOUT_CLIENT}
        status, body = await line.send(request_of(line, "initialize", about, modern=False))
        assert status == 200, (status, body)
        assert line.session
        status, body = await line.send(request_of(line, "notifications/initialized", {}, modern=False, number=None))
        assert status == 202, (status, body)
    return line


async def reopened(line: Line) -> Line:
    """Another connection of the same session."""
    opened = await _opened(line.port)
    opened.session = line.session
    return opened


async def _opened(port: int) -> Line:
    _, line = await asyncio.get_running_loop().create_connection(Line, "127.0.0.1", port)
    line.port = port
    return line


async def call(line: Line, tool: str, *, modern: bool, **arguments: Any) -> Any:
    """The structured answer of a tool that must not refuse."""
    status, body = await line.send(
        request_of(line, "tools/call", {"name": tool, "arguments": arguments}, modern=modern)
    )
    assert status == 200, (status, body)
    result = message_of(body)["result"]
    assert not result.get("isError"), result
    return result.get("structuredContent")


def cpu_s(pid: int) -> float:
    """The processor time a process has used so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measured(Result):
    """Rates and latencies of calls to one server, and the processor time it spent on them."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid
        self._spent_s = 0.0

    async def turn(self, lines: list[Line], rounds: int, once: Callable[[Line, int], Awaitable[object]]) -> None:
        before = cpu_s(self._pid)
        await load(lines, rounds, once, self)
        self._spent_s += cpu_s(self._pid) - before

    @property
    def cpu_ms(self) -> float:
        return self._spent_s / len(self.latencies_s) * 1000


async def load(lines: list[Line], rounds: int, once: Callable[[Line, int], Awaitable[object]], result: Result) -> None:
    """Every connection does one thing so many times. One that the server closed while others had their turn is opened
    again."""
    lines[:] = [await reopened(line) if line.closed else line for line in lines]

    async def one(number: int, line: Line) -> None:
        for _ in range(rounds):
            begun = time.perf_counter()
            await once(line, number)
            result.latencies_s.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(one(number, line) for number, line in enumerate(lines)))
    result.rates.append(len(lines) * rounds / (time.perf_counter() - begun))


# -- a fleet ----------------------------------------------------------------------------------------------------------


class Fleet:
    """What became of the calls of many agents."""

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0
        self.faults: list[str] = []
        self.result = Result()


async def fleet(port: int, agents: int, seconds: float, period_s: float) -> Fleet:
    """So many agents, each with a session, an open stream and a task, each calling a tool once a period."""
    told = Fleet()
    gate = asyncio.Semaphore(CONNECTING)

    async def arrive(number: int) -> tuple[Line, Line]:
        async with gate:
            line = await connected(port, modern=False)
            stream = await reopened(line)
            stream.stream()
            about = {"agent_id": f"agent-{number}", "name": "Bench", "role": "dev", "skills": []}
            await call(line, "register_agent", modern=False, **about)
            await call(line, "request_next_task", modern=False, agent_id=about["agent_id"])
            return line, stream

    arrived = await asyncio.gather(*(arrive(number) for number in range(agents)))
    # A server closes connections that were idle while others arrived; a client opens another one.
    lines = [await reopened(line) if line.closed else line for line, _ in arrived]
    streams = [stream for _, stream in arrived]

    async def one(number: int, line: Line) -> None:
        # Spread over the period, as agents that know nothing of each other are.
        due = time.perf_counter() + period_s * number / agents
        until = due + seconds
        while due < until:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            line = await reopened(line) if line.closed else line
            begun = time.perf_counter()
            told.sent += 1
            try:
                await call(line, "log_decision", modern=False, **_decision(number, told.sent))
            except Exception as error:
                told.faults.append(f"{type(error).__name__}: {error}"[:300])
                return
            told.answered += 1
            told.result.latencies_s.append(time.perf_counter() - begun)
            due += period_s

    await asyncio.gather(*(one(number, line) for number, line in enumerate(lines)))
    for line in (*lines, *streams):
        line.close()
    return told


def _decision(number: int, sent: int) -> dict[str, str]:
    # On the task of its number, whoever was given that one: a decision is kept, and its writer is touched, in any case.
    return {"agent_id": f"agent-{number}", "task_id": f"T{number}", "decision": f"decision {sent}"}


def kept(path: str) -> int:
    """How many of the decisions are in the store."""
    store = SqliteStore(path)
    row = store.connection.execute("SELECT count(*) FROM decisions").fetchone()
    store.close()
    return int(row[0])


def fill(path: str, count: int) -> None:
    """A task for each agent."""
    store = SqliteStore(path)
    tasks.add_tasks(store, tasks=[{"task_id": f"T{number}", "title": "Benchmark"} for number in range(count)])
    store.close()


# -- the bare server --------------------------------------------------------------------------------------------------


def serve_bare() -> None:
    """The SDK's own server with one tool that does nothing, under the settings that `tenure up` uses."""
    import contextlib
    import socket
    from collections.abc import AsyncIterator

    import mcp_types as types
    import uvicorn
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.routing import Route

    from tenure.surfaces.http.server import configured

    schema = {"type": "object", "properties": {"echo": {"type": "string"}}}
    listed = types.ListToolsResult(tools=[types.Tool(name="ping", input_schema=schema)])

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return listed

    async def call_tool(context: Any, params: Any) -> types.CallToolResult:
        answer = {"echo": (params.arguments or {}).get("echo", "")}
        content = [types.TextContent(text=json.dumps(answer))]
        return types.CallToolResult(content=list(content), structured_content=answer)

    server: Any = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)
    manager = StreamableHTTPSessionManager(server)

    class Endpoint:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await manager.handle_request(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    application = Starlette(routes=[Route("/mcp", Endpoint())], lifespan=lifespan)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"Bare listens at http://127.0.0.1:{listener.getsockname()[1]}, process {os.getpid()}", flush=True)
    uvicorn.Server(configured(application)).run(sockets=[listener])


# -- the run ----------------------------------------------------------------------------------------------------------


async def costs(connections: int, rounds: int, turns: int, directory: str) -> bool:
    """Our server beside the bare one, both up all the time and taking turns; whether the ratios suffice."""
    path = os.path.join(directory, "bench.db")
    fill(path, connections * 2)
    each, well = max(1, rounds // turns), True
    words = [sys.executable, "-m", "benchmarks.mcp", "--serve-bare"]
    with Served(words) as bare_one, Served(tenure(path)) as ours:
        for server in (bare_one, ours):
            await server.answers()
        for modern in (True, False):
            well &= await _compared(bare_one, ours, modern, connections, each, turns)
    return well


async def _compared(bare: Served, ours: Served, modern: bool, connections: int, each: int, turns: int) -> bool:
    era = f"protocol {NEWEST}" if modern else f"sessions of {OLDER}"

    async def opened(server: Served) -> list[Line]:
        return [await connected(server.port, modern=modern) for _ in range(connections)]

    async def idle(line: Line, number: int) -> None:
        await call(line, "ping", modern=modern, echo="x")

    async def touching(line: Line, number: int) -> None:
        await call(line, "ping", modern=modern, echo="x", agent_id=f"{era[:1]}{number}")

    # Those who are at work have connections of their own: a call on them would be a touch.
    agents = await opened(ours)
    for number, line in enumerate(agents):
        about = {"agent_id": f"{era[:1]}{number}", "name": "Bench", "role": "dev", "skills": []}
        await call(line, "register_agent", modern=modern, **about)
        await call(line, "request_next_task", modern=modern, agent_id=about["agent_id"])
    theirs, own = await opened(bare), await opened(ours)
    turn_takers = (
        ("  bare server, no-op tool", theirs, idle, Measured(bare.process.pid)),
        ("  tenure, ping", own, idle, Measured(ours.process.pid)),
        ("  tenure, ping that touches", agents, touching, Measured(ours.process.pid)),
    )
    for _, lines, once, _ in turn_takers:
        await load(lines, 3, once, Result())
    for _ in range(turns):
        for _, lines, once, result in turn_takers:
            await result.turn(lines, each, once)
    print(f"{era}, {connections} connections")
    for name, _, _, result in turn_takers:
        show(name, result)
        print(f"{'':<34} {result.cpu_ms:>7.2f} ms of processor time per call")
    plain, ping = (median(result.rates) for _, _, _, result in turn_takers[:2])
    print(f"{'  ping, ratio to the bare server':<34} {ping / plain:>10.3f}   at least {RATIO_LEAST}")
    for line in (*theirs, *own, *agents):
        line.close()
    return ping / plain >= RATIO_LEAST


async def borne(agents: int, seconds: float, directory: str) -> bool:
    """A fleet of agents that call every second; whether no call was lost."""
    path = os.path.join(directory, "fleet.db")
    fill(path, agents)
    with Served(tenure(path)) as server:
        await server.answers()
        told = await fleet(server.port, agents, seconds, 1.0)
    found = kept(path)
    print(f"{agents} agents, a call each per second for {seconds:g} s")
    print(f"  sent {told.sent:,}, answered {told.answered:,}, found in the store {found:,}")
    for fault in told.faults[:5]:
        print(f"  lost: {fault}")
    show("  log_decision", told.result, rate=False)
    return told.sent == told.answered == found


async def everything(asked: argparse.Namespace, directory: str) -> int:
    well = True
    if asked.only in ("", "costs"):
        well &= await costs(asked.connections, asked.rounds, asked.turns, directory)
    if asked.only in ("", "fleet"):
        well &= await borne(asked.agents, asked.seconds, directory)
    return 0 if well else 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="The MCP surface against a bare server of the same SDK.")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=90, help="calls of each connection")
    parser.add_argument("--turns", type=int, default=9, help="in how many turns with the bare server")
    parser.add_argument("--agents", type=int, default=200, help="how many agents call once a second")
    parser.add_argument("--seconds", type=float, default=30, help="for how long they do")
    parser.add_argument("--only", choices=("", "costs", "fleet"), default="", help="only one of the two parts")
    parser.add_argument("--serve-bare", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.serve_bare:
        serve_bare()
        return 0
    with tempfile.TemporaryDirectory(prefix="tenure-mcp-") as directory:
        return uvloop.run(everything(asked, directory))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
