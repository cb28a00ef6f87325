"""Clients of the MCP server for tests: the SDK's own, over real HTTP, over real stdio, and in one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from mcp.client import stdio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tenure.engine import projects
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.mcp.call import Caller, Connection
from tenure.surfaces.mcp.local import LocalNode
from tenure.surfaces.mcp.server import Surface
from tests.support import ok

T = TypeVar("T")

TENURE = str(Path(sys.executable).with_name("tenure"))
# A bound, not an expectation: a machine that runs much else is slow.
WITHIN_S = 300.0
# How long a client that closes leaves its server to end by itself: killed, it could not say that its agent lives.
stdio.PROCESS_TERMINATION_TIMEOUT = WITHIN_S
LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = (LEGACY, MODERN)

# Leases of a few seconds, so that silence alone shows within a test: the phases keep their proportions.
SWIFT = {
    "task_lease": {
        "default_hours": 4 / 3600,
        "min_lease_hours": 0.0003,
        "max_lease_hours": 10 / 3600,
        "grace_period_minutes": 0.02,
        "warning_hours": 0.0,
    }
}


def drive(story: Coroutine[Any, Any, T]) -> T:
    """Run an asynchronous test to its end, within a bound."""

    async def bounded() -> T:
        return await asyncio.wait_for(story, WITHIN_S)

    return asyncio.run(bounded())


class Talker:
    """One client, and what its tools answer."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a call that must succeed; its text must say the same."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def refused(self, tool: str, code: str, /, **arguments: Any) -> dict[str, Any]:
        """The refusal of a call that must be refused with this code: whole, and readable without its structure."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        problem = result.structured_content
        assert isinstance(problem, dict)
        assert problem["code"] == code, problem
        assert problem["message"]
        assert problem["next"]
        text = result.content[0].text  # type: ignore[union-attr]
        assert code in text
        assert problem["message"] in text
        assert problem["next"] in text
        return problem

    async def register(self, agent_id: str, **fields: Any) -> dict[str, Any]:
        return await self.call(
            "register_agent", **{"agent_id": agent_id, "name": agent_id, "role": "developer", "skills": [], **fields}
        )

    async def next(self, agent_id: str, wait_s: float = 0) -> dict[str, Any]:
        return await self.call("request_next_task", agent_id=agent_id, wait_s=wait_s)

    async def report(
        self, agent_id: str, task_id: str, progress: int, status: str = "in_progress", message: str = "", **more: Any
    ) -> dict[str, Any]:
        return await self.call(
            "report_task_progress",
            agent_id=agent_id,
            task_id=task_id,
            status=status,
            progress=progress,
            message=message,
            **more,
        )


@contextlib.asynccontextmanager
async def over_http(url: str, era: str = LEGACY, headers: dict[str, str] | None = None) -> AsyncIterator[Talker]:
    """A client over HTTP, which deletes its session when it closes."""
    async with create_mcp_http_client(headers=headers) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=era) as client:
            yield Talker(client)


@contextlib.asynccontextmanager
async def over_stdio(
    store: Path | str, era: str = LEGACY, *words: str, environ: dict[str, str] | None = None
) -> AsyncIterator[Talker]:
    """A client that starts `tenure mcp`: this process is its parent."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    parameters = StdioServerParameters(
        command=TENURE, args=["mcp", "--store", str(store), *words], env={**own, **(environ or {})}
    )
    async with Client(parameters, mode=era) as client:
        yield Talker(client)


class Room:
    """A node over a store on whatever clock, and clients of it in this very process, each with its own connection."""

    def __init__(self, store: SqliteStore) -> None:
        self.node = LocalNode(store.clone())

    async def __aenter__(self) -> Room:
        await self.node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.stop()

    @contextlib.asynccontextmanager
    async def client(
        self, era: str = LEGACY, *, tools: str = "agent", credential: str | None = None, connected: bool = True
    ) -> AsyncIterator[Talker]:
        connection = Connection(self.node, credential) if connected else None
        caller = Caller(self.node, connection, credential)
        async with Client(Surface(self.node, lambda context: caller, tools).server, mode=era) as client:
            yield Talker(client)


def swift(path: Path | str) -> None:
    """Short leases for a store's default project."""
    store = SqliteStore(str(path))
    try:
        ok(projects.configure(store, project_id="default", document=SWIFT))
    finally:
        store.close()
