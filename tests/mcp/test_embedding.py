"""The monitor ticks on the live loop: from the start of a lifespan, and from the first request where there is none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tenure.clock import ManualClock
from tenure.engine import claims, observe
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.http.server import build
from tests.mcp.clients import WITHIN_S, drive
from tests.support import add, join, ok, take

ACCEPT = {"Accept": "application/json, text/event-stream"}


async def recovered(store: SqliteStore, clock: ManualClock) -> None:
    """A dead holder's task is taken back with nobody asking for it."""
    clock.advance(81)
    until = asyncio.get_running_loop().time() + WITHIN_S
    while ok(observe.statistics(store)).recoveries == 0:
        assert asyncio.get_running_loop().time() < until, "the monitor did not tick"
        await asyncio.sleep(0.05)


@pytest.fixture
def held(store: SqliteStore) -> SqliteStore:
    add(store)
    join(store, "A1")
    take(store, "A1")
    assert ok(claims.leases_of(store, agent_id="A1"))
    return store


def test_monitor_ticks_from_the_start_of_the_lifespan(held: SqliteStore, clock: ManualClock) -> None:
    async def story() -> None:
        application = build(held.clone(), "test")
        inward: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        outward: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        living = asyncio.create_task(application(scope, inward.get, outward.put))
        await inward.put({"type": "lifespan.startup"})
        assert (await outward.get())["type"] == "lifespan.startup.complete"
        await recovered(held, clock)
        await inward.put({"type": "lifespan.shutdown"})
        assert (await outward.get())["type"] == "lifespan.shutdown.complete"
        await living

    drive(story())


@pytest.mark.parametrize("route", ["/mcp", "/health"])
def test_monitor_of_an_embedded_application_starts_with_its_first_request(
    held: SqliteStore, clock: ManualClock, route: str
) -> None:
    async def story() -> None:
        application = build(held.clone(), "test")
        # What another application mounts gets requests and no lifespan.
        transport = httpx.ASGITransport(application, client=("127.0.0.1", 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=WITHIN_S) as http:
            if route == "/health":
                assert (await http.get(route)).status_code == 200
            else:
                answer = await http.post(route, json=_ping(), headers={**ACCEPT, **MODERN_HEADERS})
                assert answer.status_code == 200, answer.text
                assert json.loads(answer.text)["result"]["structuredContent"]["echo"] == "embedded"
            await recovered(held, clock)
            await asyncio.gather(*(http.get("/health") for _ in range(3)))
        # Whoever embeds it may end it.
        await application.app.parts.stop()

    drive(story())


MODERN_HEADERS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "ping"}


def _ping() -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    params = {"name": "ping", "arguments": {"echo": "embedded"}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
