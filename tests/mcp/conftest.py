"""Fixtures: a server of this test's own, and its store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.serving import Server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "tenure.db") as server:
        yield server
