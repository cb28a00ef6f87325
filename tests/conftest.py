"""Fixtures: a real SQLite file on a manual clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.store.sqlite import SqliteStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    opened = SqliteStore(str(tmp_path / "tenure.db"), clock=clock)
    yield opened
    opened.close()
