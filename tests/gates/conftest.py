"""Fixtures: a real gate, and our side linked to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.store.sqlite import SqliteStore
from tests.gates.support import Ours, Server, serving


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Server]:
    """A second Tenure server, whose project `default` keeps the receipts of others."""
    with serving(tmp_path / "gate.db", foreign_receipts=True) as server:
        yield server


@pytest.fixture
def ours(store: SqliteStore, gate: Server) -> Iterator[Ours]:
    side = Ours(store, gate.url)
    yield side
    side.close()
