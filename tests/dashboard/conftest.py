"""Fixtures: the browser, closed after each module so that its event loop is in nobody's way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tenure.store.sqlite import SqliteStore
from tests.dashboard.chromium import launched
from tests.http.serving import Server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    with Server(tmp_path / "tenure.db") as started:
        yield started


@pytest.fixture
def beside(server: Server) -> Iterator[SqliteStore]:
    """The server's store, as another process has it open."""
    store = SqliteStore(server.store)
    yield store
    store.close()
