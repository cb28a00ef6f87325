"""Fixtures: a real Kanboard, a project on it, people, and a store that is connected with it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.store.sqlite import SqliteStore
from tests.boards.kanboard import Kanboard, Unavailable
from tests.boards.scene import Scene
from tests.conftest import NOT_TESTED
from tests.support import opened_on

_numbers = itertools.count(1)
# The whole counts are a command: make kanboard
FULL = os.environ.get("TENURE_BOARD_COUNTS") == "full"


def serve(data: Path, workers: int = 1) -> Kanboard:
    """A running server, or a loud skip. TENURE_NEEDS_KANBOARD=1 makes it a failure, as it is in CI."""
    try:
        return Kanboard(data, workers).start()
    except Unavailable as error:
        if os.environ.get("TENURE_NEEDS_KANBOARD"):
            raise
        # The summary of the run says it loudly (tests/conftest.py).
        pytest.skip(f"{NOT_TESTED}: {error}")


@pytest.fixture(scope="session")
def kanboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kanboard]:
    """One server for all tests of a run; every test has a project of its own on it."""
    server = serve(tmp_path_factory.mktemp("kanboard"))
    yield server
    server.stop()


# On PostgreSQL too with the whole counts; what must always be seen there is in test_postgres.py.
@pytest.fixture(params=["sqlite", "postgres"] if FULL else ["sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Any]:
    """What is seen with a board is seen on both databases."""
    opened = opened_on(request.param, tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def scene(kanboard: Kanboard, store: SqliteStore, clock: ManualClock) -> Iterator[Scene]:
    made = Scene(kanboard, store, clock, f"P{next(_numbers)}X{os.getpid()}")
    yield made
    made.close()
