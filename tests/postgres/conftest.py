"""Fixtures of the tests that are about PostgreSQL alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.support import ProbedPostgres, empty_url


@pytest.fixture
def store() -> Iterator[ProbedPostgres]:
    """An empty database, on the database's own clock."""
    opened = ProbedPostgres(empty_url())
    yield opened
    opened.close()
