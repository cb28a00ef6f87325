"""A server spares the collector what stays for good, once everything that stays has been loaded."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx._config import DEFAULT_LIMITS

from tenure.store.sqlite import SqliteStore
from tenure.surfaces.http import server
from tenure.surfaces.http.direct import Direct
from tenure.surfaces.sdk.client import KEEP_ALIVE_S


@pytest.fixture
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Parts:
    """Parts whose MCP library is loaded when the test says so."""

    def __init__(self) -> None:
        self.mcp = self
        self.there = asyncio.Event()

    async def loaded(self) -> None:
        await self.there.wait()


@pytest.mark.usefixtures("collector")
def test_what_was_loaded_is_kept_from_the_collector_when_all_is_there() -> None:
    async def settle() -> tuple[int, int]:
        parts: Any = Parts()
        settling = asyncio.create_task(server._settle(parts))
        await asyncio.sleep(0)
        before = gc.get_freeze_count()
        parts.there.set()
        await settling
        return before, gc.get_freeze_count()

    before, after = asyncio.run(settle())
    assert after > before
    assert gc.get_threshold()[0] == server.COLLECT_EVERY


def test_server_finds_the_parts_it_waits_for(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "tenure.db"))
    config = server.configured(server.build(store, "here.1"))
    config.load()
    assert isinstance(getattr(config.loaded_app, "app", None), Direct)
    store.close()


def test_server_keeps_idle_connections_for_longer_than_clients_do(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "tenure.db"))
    config = server.configured(server.build(store, "here.1"))
    assert config.timeout_keep_alive > 2 * max(KEEP_ALIVE_S, DEFAULT_LIMITS.keepalive_expiry or 0)
    store.close()
