"""The engine's tests run on both databases from one source; what is about one of them says `sqlite_only`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tests.support import opened_on


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Any]:
    if request.param == "postgres" and request.node.get_closest_marker("sqlite_only"):
        pytest.skip("about SQLite alone")
    opened = opened_on(request.param, tmp_path, clock)
    yield opened
    opened.close()
