"""Fixtures of the tests that are about PostgreSQL alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tenure.store import postgres_transaction
from tests.postgres.support import ProbedPostgres, empty_url


@pytest.fixture
def store() -> Iterator[ProbedPostgres]:
    """An empty database, on the database's own clock."""
    opened = ProbedPostgres(empty_url())
    yield opened
    opened.close()


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of every round trip; cleared by the test where it begins to count."""
    made: list[list[str]] = []
    send = postgres_transaction._send

    def counted(wire: Any, statements: Any) -> Any:
        made.append([text for text, _ in statements])
        return send(wire, statements)

    monkeypatch.setattr(postgres_transaction, "_send", counted)
    return made
