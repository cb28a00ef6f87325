"""Fixtures of the tests that are about PostgreSQL alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tenure.store.postgres_wire import Part, Wire
from tests.postgres.support import ProbedPostgres, empty_url


@pytest.fixture
def store() -> Iterator[ProbedPostgres]:
    """An empty database, on the database's own clock."""
    opened = ProbedPostgres(empty_url())
    yield opened
    opened.close()


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of every round trip, with those that were sent ahead of it; cleared by the test where it begins to
    count. Whoever waits for what was on its way before the last wait makes none."""
    made: list[list[str]] = []
    under_way: list[Part] = []
    texts: list[str] = []
    send, answers = Wire._send, Wire.answers

    def sent(wire: Wire, statements: Any) -> Part:
        texts.extend(text for text, _ in statements)
        under_way.append(send(wire, statements))
        return under_way[-1]

    def waited(wire: Wire, part: Part) -> Any:
        if part in under_way:
            made.append(texts[:])
            texts.clear()
            under_way.clear()
        return answers(wire, part)

    monkeypatch.setattr(Wire, "_send", sent)
    monkeypatch.setattr(Wire, "answers", waited)
    return made
