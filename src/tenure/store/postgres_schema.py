"""The PostgreSQL store's queries and schema: the shared files, translated, and what must differ.

Migration N is the shared file of that number, translated, and then sql/postgres/N_*.sql, if there is one. All that a
database lacks runs in one transaction under an advisory lock: of many nodes that start at once one migrates, and the
others find it done. Nodes of the previous version go on meanwhile; as with SQLite, a schema that they must not write
any more says so in `oldest_writer`.
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING

from psycopg import errors

from tenure.store import queries, translate
from tenure.store.postgres_scout import best_after
from tenure.store.postgres_transaction import EXPECTING_ONE, PAIRS, expecting_one, with_timer
from tenure.store.store import fault

if TYPE_CHECKING:
    import psycopg

DIRECTORY = os.path.join(queries.HERE, "postgres")
# The last of the migrations, which the shared files and those of PostgreSQL number together: it may be one that SQLite
# has no use for.
SCHEMA_VERSION = 12
# Any constant of ours: who migrates, or lifts the numbers, holds this lock.
MIGRATION_LOCK = 0x54454E55

_TASK, _LEASE, _CARD = (f" FOR NO KEY UPDATE OF {alias}" for alias in ("t", "l", "c"))
# What a write transaction adds to a read, because it decides on the row: a query of the same name, with a lock. NO KEY:
# the rows of others may go on referring to a locked one.
LOCKING = {
    "tasks_named": _TASK,
    "task_by_key": _TASK,
    "task_by_dedupe_key": _TASK,
    "kept_for": _TASK + " SKIP LOCKED",
    "unended_of_task": _LEASE,
    "unended_of_agent": _LEASE,
    "task_of_lease": _TASK,
    "lease_with_hints": _LEASE,
    "foreign_task": " FOR NO KEY UPDATE",
    "upstream": " FOR SHARE",
    # The runs of designs: each is begun by one node.
    "next_internal": _TASK + " SKIP LOCKED",
    "handoff_by_id": " FOR NO KEY UPDATE OF h",
    "board": " FOR NO KEY UPDATE OF b",
    "board_card": _CARD,
    "board_card_of_task": _CARD,
    "board_card_named": _CARD,
}


@functools.cache
def reading() -> dict[str, str]:
    """Every query as a look asks it."""
    found = _translated()
    for name in ("best", "best_of_one", "best_after", "best_of_some", "ready", "ready_of_kind", "due_timers"):
        # A look takes no locks.
        found[name] = re.sub(r"\s+FOR NO KEY UPDATE( OF t)?( SKIP LOCKED)?", "", found[name])
    return found


@functools.cache
def deciding() -> dict[str, str]:
    """Every query as a write transaction asks it."""
    found = _translated()
    for name, lock in LOCKING.items():
        found[name] += lock
    for name in EXPECTING_ONE:
        found[name] = expecting_one(found[name])
    found["lease_by_id"] = found["lease_by_id_locked"]
    for write, (first, together) in PAIRS.items():
        # A new lease has no timer yet.
        found[together] = with_timer(found[first], found[write].partition("ON CONFLICT")[0])
    return found


def _translated() -> dict[str, str]:
    loaded = queries.load("queries.sql", os.path.join("postgres", "queries.sql"))
    found = {name: translate.query(text) for name, text in loaded.items()}
    found["best_of_one"] = best_after(found["best_after"], 0)
    return found


def migrations() -> list[tuple[int, list[str]]]:
    """Every migration's number and its scripts, in order."""
    own: dict[int, list[str]] = {}
    for filename in sorted(os.listdir(DIRECTORY)):
        number, _, rest = filename.partition("_")
        if number.isdigit() and rest.endswith(".sql"):
            with open(os.path.join(DIRECTORY, filename), encoding="utf-8") as file:
                own.setdefault(int(number), []).append(file.read())
    shared = {number: translate.migration(script) for number, script in queries.migrations()}
    return [
        (number, [*([shared[number]] if number in shared else []), *own.get(number, [])])
        for number in sorted({*shared, *own})
    ]


class Schema:
    """Brings a connection's database up to date."""

    def __init__(self, connection: psycopg.Connection, where: str) -> None:
        self._connection = connection
        self._where = where

    def prepare(self, create: bool) -> None:
        """Check the version; migrate what is older."""
        version = self._version()
        if version == SCHEMA_VERSION:
            return
        if version is not None and version > SCHEMA_VERSION:
            self._refuse_newer(version)
            return
        if version is None and not create:
            raise fault("store_unavailable", "There is no store in this database yet.", store=self._where)
        try:
            self._migrate()
        except errors.DuplicateTable as error:
            message = "The database already has tables of another program."
            raise fault("store_foreign", f"{message} ({error.diag.message_primary}).", store=self._where) from error

    def _version(self) -> int | None:
        """The schema's number, or None where there is none."""
        known = self._connection.execute(
            "SELECT to_regclass('meta') IS NOT NULL AND to_regclass('numbering') IS NOT NULL"
        )
        row = known.fetchone()
        if row is None or not row[0]:
            return None
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        return None if row is None else int(row[0])

    def _migrate(self) -> None:
        try:
            self._migrate_once()
        except errors.DuplicateTable:
            # What the catalogue showed us was older than the lock: another node had just migrated. A second look, in a
            # transaction of its own, sees its work; tables of another program have no version, and stay an error.
            if self._version() is None:
                raise
            self._migrate_once()

    def _migrate_once(self) -> None:
        with self._connection.transaction():
            # Others may be in the middle of a verb: what alters a table waits for them, and they for it, not too long.
            self._connection.execute("SET LOCAL statement_timeout = '10min'")
            self._connection.execute("SET LOCAL lock_timeout = '60s'")
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            version = self._version()
            for number, scripts in migrations():
                if version is None or number > version:
                    for script in scripts:
                        self._connection.execute(script.encode())
            if version is None or version < SCHEMA_VERSION:
                self._connection.execute(
                    "INSERT INTO meta (key, value) VALUES ('schema_version', %s)"
                    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (str(SCHEMA_VERSION),),
                )

    def _refuse_newer(self, version: int) -> None:
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'oldest_writer'").fetchone()
        if row is None or int(row[0]) > SCHEMA_VERSION:
            raise fault("store_newer", f"The store has schema {version}; this tenure knows {SCHEMA_VERSION}.")

    def lift_numbers(self) -> bool:
        """Where rows have numbers above what this cluster's next transaction would give, lift the base over them.

        So it is after a dump was restored into a younger cluster, or rows were copied from an older one. Physical
        copies (a standby, a base backup, pg_upgrade) keep the transaction ids, and need none of this.
        """
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            row = self._connection.execute(_LIFT).fetchone()
        return row is not None


_LIFT = """
    UPDATE numbering SET base = base + highest.seq / 262144 + 1
        - (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base)
    FROM (SELECT max(seq) AS seq FROM (
        (SELECT seq FROM events ORDER BY seq DESC LIMIT 1) UNION ALL
        (SELECT seq FROM receipts ORDER BY seq DESC LIMIT 1) UNION ALL
        (SELECT seq FROM messages ORDER BY seq DESC LIMIT 1)) newest) highest
    WHERE highest.seq / 262144 > pg_snapshot_xmax(pg_current_snapshot())::text::bigint + base
    RETURNING 1
"""
