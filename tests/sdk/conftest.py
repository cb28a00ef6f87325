"""What the tests of the SDK share: a server process, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import Client
from tests.sdk.servers import DEADLINE_S, ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    started = ServerProcess(tmp_path)
    yield started
    started.end()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url, timeout_s=DEADLINE_S) as opened:
        yield opened
