"""Copying a whole store into an empty one, row for row, between SQLite and PostgreSQL in either direction.

The source is read in one snapshot; the target is written in one transaction, or not at all. Everything travels: tasks,
live leases with their deadlines, the ledger and its seals, events and their numbers. Only what describes a machine
stays behind (clock anchors, connections). The tables, and the order in which rows may be inserted, are those of the
shared migrations: a table refers only to ones made before it.

Not promised: what is written to the source after the snapshot. Stop its servers first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from tenure.core.errors import refuse
from tenure.store import queries
from tenure.store.sqlite import SqliteStore
from tenure.store.store import Store, StoreFault, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tenure.store.postgres import PostgresStore

# What describes the machine that the store is on.
LOCAL = ("clock", "boots")
# What every new store has, and a copied one brings with it.
INITIAL = ("projects", "meta")
ROWS_AT_ONCE = 1_000

Row = tuple[Any, ...]


def tables() -> list[str]:
    """The tables that are copied, each after those it refers to."""
    scripts = "\n".join(script for _, script in queries.migrations())
    named = re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", scripts)
    gone = set(re.findall(r"DROP TABLE (?:IF EXISTS )?(\w+)", scripts))
    return [name for name in named if name not in LOCAL and name not in gone]


class Side(Protocol):
    """One of the two stores, as tables."""

    def begin(self, *, writes: bool) -> None: ...
    def commit(self) -> None: ...
    def roll_back(self) -> None: ...
    def columns(self, table: str) -> list[str]: ...
    def count(self, table: str) -> int: ...
    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]: ...
    def clear(self, table: str) -> None: ...
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None: ...
    def settle(self) -> None: ...


class SqliteSide:
    """SQLite, as tables."""

    def __init__(self, store: SqliteStore) -> None:
        self._connection = store.connection

    def begin(self, *, writes: bool) -> None:
        self._connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]

    def count(self, table: str) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        cursor = self._connection.execute(f"SELECT {', '.join(columns)} FROM {table}")
        while page := cursor.fetchmany(ROWS_AT_ONCE):
            yield page

    def clear(self, table: str) -> None:
        self._connection.execute(f"DELETE FROM {table}")

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        places = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)

    def settle(self) -> None:
        """New rows are numbered above the copied ones by SQLite itself."""


class PostgresSide:
    """PostgreSQL, as tables."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._connection = store.connect()

    def begin(self, *, writes: bool) -> None:
        self._connection.execute("BEGIN" if writes else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._connection.execute("SET LOCAL statement_timeout = 0")
        self._connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        self._connection.close()

    def columns(self, table: str) -> list[str]:
        query = (
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum"
        )
        return [row[0] for row in self._connection.execute(query, (table,))]

    def count(self, table: str) -> int:
        source = f"SELECT 1 FROM {table}"
        if table == "counters":
            source = "SELECT DISTINCT split_part(name, '#', 1) FROM counters"
        elif table == "meta":
            source = "SELECT 1 FROM meta WHERE key <> 'schema_version'"
        row = self._connection.execute(f"SELECT count(*) FROM ({source}) found".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        query = f"SELECT {', '.join(columns)} FROM {table}"
        if table == "counters":
            # Each is spread over several rows here.
            query = (
                "SELECT split_part(name, '#', 1) AS name, CAST(sum(value) AS BIGINT) AS value FROM counters GROUP BY 1"
            )
        elif table == "meta":
            query += " WHERE key <> 'schema_version'"
        with self._connection.cursor(name=f"copy_{table}") as cursor:
            cursor.execute(query.encode())
            while page := cursor.fetchmany(ROWS_AT_ONCE):
                yield page

    def clear(self, table: str) -> None:
        kept = " WHERE key <> 'schema_version'" if table == "meta" else ""
        self._connection.execute(f"DELETE FROM {table}{kept}".encode())

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()) as copy,
        ):
            for row in rows:
                copy.write_row(row)

    def settle(self) -> None:
        """New rows are numbered above the copied ones."""
        found = self._connection.execute(
            "SELECT c.relname, a.attname, pg_get_serial_sequence(quote_ident(c.relname), a.attname)"
            " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE a.attidentity <> '' AND c.relnamespace = current_schema()::regnamespace"
        ).fetchall()
        for table, column, sequence in found:
            statement = (
                f"SELECT setval('{sequence}', greatest(1, max({column})), max({column}) IS NOT NULL) FROM {table}"
            )
            self._connection.execute(statement.encode())

    def close(self) -> None:
        self._connection.close()
        self._store.lift_numbers()


def side_of(store: Store) -> Side:
    """A store, as tables."""
    if isinstance(store, SqliteStore):
        return SqliteSide(store)
    from tenure.store.postgres import PostgresStore

    assert isinstance(store, PostgresStore)
    return PostgresSide(store)


def copy(source: Store, target: Store, told: Callable[[str, int, int], None]) -> dict[str, int]:
    """Copy everything; `told` hears of (table, rows so far, rows in all). Answers how many rows each table has."""
    old, new = side_of(source), side_of(target)
    counts: dict[str, int] = {}
    old.begin(writes=False)
    new.begin(writes=True)
    try:
        names = [name for name in tables() if old.columns(name)]
        _must_be_empty(new, names, target.path)
        for name in reversed(names):
            new.clear(name)
        for name in names:
            columns = [column for column in new.columns(name) if column in set(old.columns(name))]
            total, done = old.count(name), 0
            for page in old.rows(name, columns):
                new.insert(name, columns, page)
                done += len(page)
                told(name, done, total)
            counts[name] = new.count(name)
            if counts[name] != total:
                raise fault("store_corrupt", f"Of {total} rows of {name}, {counts[name]} arrived.", table=name)
        new.settle()
        new.commit()
    except BaseException:
        new.roll_back()
        raise
    finally:
        old.roll_back()
        for side in (old, new):
            if isinstance(side, PostgresSide) and side is new:
                side.close()
    return counts


def _must_be_empty(new: Side, names: Sequence[str], where: str) -> None:
    for name in names:
        if name not in INITIAL and new.columns(name) and new.count(name):
            message = f"The store that would be copied to is not empty: it has {name}."
            hint = "Name a new file or an empty database to copy to."
            raise StoreFault(refuse("store_foreign", message, hint, store=where, table=name))
