"""Fixtures: one server for the tests that leave it as it was, and one of its own for those that do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.serving import Api, Server, new_project

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("shared") / "tenure.db") as server:
        yield server


@pytest.fixture
def api(shared: Server) -> Iterator[Api]:
    """The shared server, in a project of this test's own."""
    with Api(shared, new_project(shared, f"P{next(_numbers)}")) as client:
        yield client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    with Server(tmp_path / "tenure.db") as started:
        yield started


@pytest.fixture
def own(server: Server) -> Iterator[Api]:
    """A client of this test's own server, in the default project."""
    with Api(server) as client:
        yield client
