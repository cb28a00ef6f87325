"""Fixtures: a real Kanboard, a project on it, people, and a store that is connected with it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.store.sqlite import SqliteStore
from tests.boards.kanboard import Kanboard, Unavailable
from tests.boards.scene import Scene
from tests.conftest import NOT_TESTED

_numbers = itertools.count(1)


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


@pytest.fixture
def scene(kanboard: Kanboard, store: SqliteStore, clock: ManualClock) -> Iterator[Scene]:
    made = Scene(kanboard, store, clock, f"P{next(_numbers)}X{os.getpid()}")
    yield made
    made.close()
