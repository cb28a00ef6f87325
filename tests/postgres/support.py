"""What tests on PostgreSQL share: one server and one database per test process, emptied before each test.

TENURE_TEST_POSTGRES names a database of another server, which is emptied the same way.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
from typing import Any

import psycopg

from tenure.store import postgres_batch, postgres_schema, translate
from tenure.store.postgres import PostgresStore
from tests.postgres.cluster import QUICK, Cluster


@functools.cache
def shared_cluster() -> Cluster:
    """The test process's own server: others' open transactions would hold its event streams back."""
    cluster = Cluster(**QUICK).create().start()
    atexit.register(cluster.remove)
    return cluster


@functools.cache
def shared_url() -> str:
    """The database that tests use one after the other."""
    url = os.environ.get("TENURE_TEST_POSTGRES")
    if url is None:
        cluster = shared_cluster()
        url = cluster.url(cluster.new_database())
    PostgresStore(url).close()
    return url


# Quicker than a new database or TRUNCATE, both of which make files.
_EMPTY = """
DO $$
DECLARE name text;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
    PERFORM setval(quote_ident(sequencename)::regclass, 1, false) FROM pg_sequences WHERE schemaname = current_schema();
    INSERT INTO numbering (id, base) VALUES (1, 0);
    INSERT INTO projects (project_id, name, settings, created_at_ms) VALUES ('default', 'default', '{}', 0);
    INSERT INTO meta (key, value) VALUES ('settings', '{}'), ('oldest_writer', '1'), ('schema_version', 'VERSION');
END $$
"""


def empty_url() -> str:
    """An empty store's address. What this process has seen agents ask for in the last one is forgotten."""
    from tenure.engine import claims

    claims._LAST_WANTED.clear()
    postgres_batch._GRANTED.clear()
    _cleaner().execute(_EMPTY.replace("VERSION", str(postgres_schema.SCHEMA_VERSION)).encode())
    return shared_url()


@functools.cache
def _cleaner() -> psycopg.Connection[Any]:
    connection = psycopg.connect(shared_url(), autocommit=True)
    atexit.register(connection.close)
    return connection


class ProbedPostgres(PostgresStore):
    """A store that a test may also ask in SQL, written for SQLite like everything that both databases share."""

    @property
    def connection(self) -> Probe:
        return Probe(self)

    def clone(self) -> ProbedPostgres:
        other = ProbedPostgres(self.url, clock=self.clock, random=self.random, busy_timeout_s=self.busy_timeout_s)
        other.on_recovery_callback = self.on_recovery_callback
        return other


class Probe:
    """The few things that tests do with SQLite's connection."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def execute(self, statement: str, values: Any = ()) -> psycopg.Cursor[Any]:
        if "sqlite_master" in statement:
            statement = (
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'sessions'"
            )
        if not isinstance(values, dict):
            numbers = iter(range(len(values)))
            statement = re.sub(r"\?", lambda _: f":p{next(numbers)}", statement)
            values = {f"p{number}": value for number, value in enumerate(values)}
        return self._store._connected().execute(translate.query(statement).encode(), values)

    @property
    def total_changes(self) -> int:
        """Moves with every write."""
        return self._store.data_version()
