"""Fixtures: one server for the tests that leave it as it was, and one of its own for those that do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.serving import Api, Server, new_project

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server on each kind of store: the surface is the same on both."""
    folder = tmp_path_factory.mktemp("shared")
    if request.param == "sqlite":
        with Server(folder / "tenure.db") as server:
            yield server
        return
    from tests.postgres.support import shared_cluster

    cluster = shared_cluster()
    with Server(cluster.url(cluster.new_database()), log=folder / "log") as server:
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
