"""The engine's tests run on both databases from one source; what is about one of them says `sqlite_only`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.store.sqlite import SqliteStore


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Any]:
    opened: Any
    if request.param == "sqlite":
        opened = SqliteStore(str(tmp_path / "tenure.db"), clock=clock)
    else:
        if request.node.get_closest_marker("sqlite_only"):
            pytest.skip("about SQLite alone")
        from tests.postgres.support import ProbedPostgres, empty_url

        opened = ProbedPostgres(empty_url(), clock=clock)
    yield opened
    opened.close()
