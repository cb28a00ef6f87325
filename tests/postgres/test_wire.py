"""Statements and answers on one connection: many in a round trip."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tenure.store.postgres_wire import Wire
from tests.postgres.support import ProbedPostgres

ADD = "INSERT INTO meta (key, value) VALUES (%(key)s, %(value)s)"
COUNT = "SELECT count(*) AS n FROM meta WHERE key LIKE 'wire%%'"


@pytest.fixture
def wire(store: ProbedPostgres) -> Wire:
    store._connected()
    return store._wire


def adding(key: str) -> tuple[str, dict[str, Any]]:
    return ADD, {"key": f"wire {key}", "value": "x"}


def count(wire: Wire) -> int:
    return int(wire.exchange([(COUNT, None)])[0].value())


def is_idle(wire: Wire) -> bool:
    return wire.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


# -- answers ----------------------------------------------------------------------------------------------------------


def test_answers_are_each_statements_own_however_long_they_are(wire: Wire) -> None:
    long = "SELECT n AS number, repeat('x', 30000) AS text FROM generate_series(1, %(most)s) n"
    for _ in range(2):
        answers = wire.exchange(
            [(long, {"most": 3}), ("SELECT pg_sleep(0.01)", None), (long, {"most": 0}), ("SELECT 7 AS seven", None)]
        )
        assert [row["number"] for row in answers[0].rows()] == [1, 2, 3]
        assert {len(row["text"]) for row in answers[0].rows()} == {30_000}
        assert answers[2].rows() == []
        assert answers[3].rows() == [{"seven": 7}]
        assert answers[3].value() == 7


def test_answer_of_a_statement_that_has_more_columns_than_before_has_them_all(wire: Wire) -> None:
    wire.exchange([("CREATE TEMP TABLE wide (a INT)", None), ("INSERT INTO wide VALUES (1)", None)])
    text = "SELECT * FROM wide WHERE %(n)s > 0"
    assert wire.exchange([(text, {"n": 1})])[0].rows() == [{"a": 1}]
    wire.exchange([("ALTER TABLE wide ADD COLUMN b TEXT DEFAULT 'b'", None)])
    # Prepared anew, because the value is of another type.
    assert wire.exchange([(text, {"n": 1.5})])[0].rows() == [{"a": 1, "b": "b"}]


def test_error_is_the_first_statements_that_failed_and_the_others_stay_prepared(wire: Wire) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.exchange([adding("a"), ("SELECT 1 / %(n)s", {"n": 0}), ("SELECT nothing", None)])
        assert is_idle(wire)
        assert count(wire) == 0
    named = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO meta%'"
    assert wire.connection.execute(named).fetchone() == (1,)
