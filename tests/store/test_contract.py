"""Every store, run through the contract. A new database adds a function to DATABASES."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.store.sqlite import SqliteStore
from tests.store.contract import Database, StoreContract


def sqlite_database(directory: Path) -> Database:
    clock = ManualClock()
    return Database(
        connect=lambda: SqliteStore(str(directory / "tenure.db"), clock=clock),
        lapse=clock.advance,
        integrity_error=sqlite3.IntegrityError,
    )


def postgres_database(directory: Path) -> Database:
    import psycopg

    from tests.postgres.support import ProbedPostgres, empty_url

    clock, url = ManualClock(), empty_url()
    return Database(
        connect=lambda: ProbedPostgres(url, clock=clock),
        lapse=clock.advance,
        integrity_error=psycopg.IntegrityError,
    )


DATABASES = {"sqlite": sqlite_database, "postgres": postgres_database}


@pytest.fixture(params=list(DATABASES))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    made = DATABASES[request.param](tmp_path)
    yield made
    made.close()


class TestStore(StoreContract):
    """Inherits every promise."""
