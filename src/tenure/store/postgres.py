"""The store on PostgreSQL: many machines, each with identical nodes.

A verb is one READ COMMITTED transaction. What it decides on it locks first, in one order: task, lease, dependants by
key; after that every statement sees what is committed, and nobody else changes those rows. Rows that are locked in
another order now and then can deadlock; PostgreSQL undoes one of the two, and it is run again here, like a verb whose
row someone else made at the same moment. The caller sees neither.

A connection that is lost is made again, to whichever host of the address takes writes, until the patience is over. A
verb that was not committed is run again. Where the connection was lost during COMMIT, the connection's own row in
`sessions` tells whether the commit took place: writing to it waits for a commit that is under way, and keeps out one
that is not so far yet.

A `PostgresStore` is one connection and is used by one thread at a time; `clone` opens another.
Not promised: that an acknowledged write survives the loss of a primary whose standby replicates asynchronously.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8Dumper

from tenure.store import postgres_schema, postgres_scout
from tenure.store.postgres_batch import Batch
from tenure.store.postgres_faults import CONSTRAINTS, CONTENTION, as_fault, is_lost
from tenure.store.postgres_transaction import NOW, PostgresTransaction
from tenure.store.postgres_wire import Wire
from tenure.store.sqlite import BatchLost, Outcome
from tenure.store.store import Store, StoreFault, Transaction, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tenure.store.postgres_scout import Reading
    from tenure.store.store import Clock

R = TypeVar("R")

CHANNEL = "tenure"
PATIENCE_S = 30.0
CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_MS = 10_000
STATEMENT_TIMEOUT_MS = 30_000
# A node that is cut off in the middle of a verb leaves its locks behind for no longer than this.
IDLE_TIMEOUT_MS = 15_000
# How often a verb whose row someone else made at the same moment is run again before that is taken for a mistake.
CONSTRAINT_TRIES = 4
# So many statements of a batch are worth sending ahead of the rest: each time costs the interpreter a little.
PUSH_AFTER = 6
# For so many verbs of a batch the server reads at once, while others are prepared or run.
READ_AT_ONCE = 2
RETRY_MIN_S, RETRY_MAX_S = 0.002, 0.25

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
BEGIN_LOOK = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# The mark of a commit, in its connection's own row. It fails in a session that was given up (GIVE_UP), and with it all
# that was to be committed.
MARK = (
    "INSERT INTO sessions (session_id, tag, at_ms) VALUES (%(session_id)s, %(tag)s, %(at_ms)s)"
    " ON CONFLICT (session_id) DO UPDATE SET"
    " tag = excluded.tag / CAST(sessions.tag <> -1 AS INTEGER), at_ms = excluded.at_ms"
)
# Waits for a commit that has set its mark, and keeps out one that has not: the server may still be at work for a
# connection that was lost long ago, and would commit after the same verb was run again.
GIVE_UP = (
    f"INSERT INTO sessions (session_id, tag, at_ms) VALUES (%(session_id)s, -1, ({NOW}))"
    " ON CONFLICT (session_id) DO UPDATE SET"
    " tag = CASE WHEN sessions.tag = %(tag)s THEN sessions.tag ELSE -1 END, at_ms = excluded.at_ms RETURNING tag"
)


class _Number(Loader):
    """Sums and averages, as Python's own numbers: SQLite gives those too."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text else int(text)


class _Again(Exception):
    """A transaction that was undone and may be run again. `lost` when its connection is gone."""

    def __init__(self, error: psycopg.Error, *, lost: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.lost = lost


class _Unknown(Exception):
    """A commit of which nobody could be asked whether it took place: what was committed must not be run again."""

    def __init__(self, fault: StoreFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class PostgresStore(Store):
    """One connection to one database."""

    held_back_s = 0.25

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        random: Callable[[int], bytes] = os.urandom,
        busy_timeout_s: float = PATIENCE_S,
        create: bool = True,
    ) -> None:
        self.url = url
        self.clock = clock
        self.random = random
        self.busy_timeout_s = busy_timeout_s
        # Whether a commit tells the listeners at once. A server's runner tells them itself, many commits at a time.
        self.announces = True
        # How long a statement waits for a lock. Whoever runs many verbs in one transaction waits for hardly any.
        self._lock_timeout_ms = LOCK_TIMEOUT_MS
        self._options = _options(url)
        self.path = _shown(self._options)
        self._session_id = random(12).hex()
        self._tag = 0
        self._busy = False
        self._connection: psycopg.Connection | None = None
        self._closed = False
        connection = self._faulting(self._connected)
        try:
            self._faulting(lambda: postgres_schema.Schema(connection, self.path).prepare(create))
        except BaseException:
            self.close()
            raise

    def clone(self) -> PostgresStore:
        other = PostgresStore(
            self.url, clock=self.clock, random=self.random, busy_timeout_s=self.busy_timeout_s, create=False
        )
        other.on_recovery_callback = self.on_recovery_callback
        other.announces = self.announces
        return other

    def be_patient(self, lock_timeout_ms: int) -> None:
        """Wait for a lock no longer than this, from now on."""
        self._lock_timeout_ms = lock_timeout_ms
        self._faulting(lambda: self._wait_for_locks(self._connected()))

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- connecting -------------------------------------------------------------------------------------------------

    def _connected(self) -> psycopg.Connection:
        if self._closed:
            raise fault("store_unavailable", "The store is closed.", store=self.path)
        if self._connection is not None and not self._connection.closed and not self._connection.broken:
            return self._connection
        self._drop()
        connection = self.connect()
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_loader("numeric", _Number)
        # Statements are prepared in postgres_wire.py; psycopg would deallocate those too after each ROLLBACK.
        connection.prepare_threshold = None
        if self._lock_timeout_ms != LOCK_TIMEOUT_MS:
            self._wait_for_locks(connection)
        self._connection = connection
        self._wire = Wire(connection)
        # A session is a connection: what an older one committed is known by its own row.
        self._session_id = self.random(12).hex()
        return connection

    def _wait_for_locks(self, connection: psycopg.Connection) -> None:
        connection.execute(f"SET lock_timeout = {self._lock_timeout_ms}".encode())

    def connect(self) -> psycopg.Connection:
        """A bare connection of its own, to whichever host takes writes."""
        return psycopg.connect(**self._options, autocommit=True)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- transactions -----------------------------------------------------------------------------------------------

    def run(self, body: Callable[[Transaction], R]) -> R:
        if self._busy:
            raise RuntimeError("a verb's body calls other bodies, never another verb: that would nest transactions")
        return self._patiently(lambda: self._run_once(body))

    def _run_once(self, body: Callable[[Transaction], R]) -> R:
        connection = self._connected()
        batch = Batch(BEGIN, eager=True)
        transaction = self._transaction(batch)
        try:
            answer = self._answer(body, transaction)
            self._commit(connection, transaction, batch)
        except _Unknown as unknown:
            raise unknown.fault from unknown
        except psycopg.Error as error:
            raise self._undone(connection, transaction, error) from error
        except BaseException:
            self._abandon(connection, transaction)
            raise
        self.tell(transaction)
        return answer

    def _answer(self, body: Callable[[Transaction], R], transaction: PostgresTransaction) -> R:
        self._busy = True
        try:
            answer = body(transaction)
        finally:
            self._busy = False
        self.answered_at_ms = transaction.now_ms
        return answer

    def run_many(self, bodies: Sequence[Callable[[Transaction], Any]], hold_s: float) -> list[Outcome]:
        """Run bodies one after the other in one transaction with one commit: all, or as many as begin within `hold_s`.

        Whatever goes wrong before the commit, be it one body's exception or a lock that is not free soon, undoes all
        of them and raises BatchLost: nothing was written, and each may be run again by itself. A commit of which
        nobody can be asked whether it took place raises a StoreFault, and must not be run again.
        """
        outcomes: list[Outcome] = []
        transactions: list[PostgresTransaction] = []
        connection: psycopg.Connection | None = None
        try:
            connection = self._connected()
            batch = Batch(BEGIN, eager=len(bodies) == 1)
            until = None
            for body, reading in zip(bodies, self._read_for(bodies, batch), strict=True):
                if until is None:
                    until = time.monotonic() + hold_s
                elif time.monotonic() >= until:
                    break
                if reading is not None and batch.written is not None:
                    reading.judge(batch.written)
                transaction = self._transaction(batch, reading=reading)
                outcomes.append(Outcome(answer=self._answer(body, transaction), at_ms=transaction.now_ms))
                transactions.append(transaction)
                transaction.leave()
                # The server begins with what was written while the next bodies are run.
                if len(batch.left) >= PUSH_AFTER and len(outcomes) < len(bodies):
                    self._wire.push(batch.take())
            self._commit(connection, transactions[-1], batch)
        except _Unknown as unknown:
            raise unknown.fault from unknown
        except BaseException as error:
            if connection is not None:
                self._undo(connection, error)
            if isinstance(error, Exception):
                raise BatchLost from error
            raise
        for transaction in transactions:
            self.tell(transaction)
        return outcomes

    def _read_for(self, bodies: Sequence[Callable[[Transaction], Any]], batch: Batch) -> Iterable[Reading | None]:
        """Ask what the bodies will ask first, before their turn. One alone is as soon done with asking itself."""
        if len(bodies) == 1:
            return [None]
        scouts = postgres_scout.Scouts(
            batch,
            scout=lambda: self._transaction(batch, scouting=True),
            queries=postgres_schema.deciding(),
            push=self._wire.push,
            answers=self._wire.answers,
            clock=(NOW, None) if self.clock is None else None,
        )
        return scouts.readings(bodies, READ_AT_ONCE)

    def _transaction(
        self, batch: Batch, *, reading: Reading | None = None, scouting: bool = False
    ) -> PostgresTransaction:
        queries = postgres_schema.deciding()
        return PostgresTransaction(
            self._wire, queries, self.clock, self.random, batch, reading=reading, scouting=scouting
        )

    def _undo(self, connection: psycopg.Connection, error: BaseException) -> None:
        if is_lost(error, connection):
            self._drop()
        else:
            self._roll_back(connection)

    def _commit(self, connection: psycopg.Connection, transaction: PostgresTransaction, batch: Batch) -> None:
        """Commit. A connection that is lost meanwhile leaves open whether that took place; its row tells."""
        if not batch.wrote:
            transaction.finish(("COMMIT", None))
            return
        self._tag += 1
        mark = {"session_id": self._session_id, "tag": self._tag, "at_ms": transaction.now_ms}
        notice = [(f"NOTIFY {CHANNEL}", None)] if self.announces else []
        session_id, tag = self._session_id, self._tag
        try:
            transaction.finish((MARK, mark), *notice, ("COMMIT", None))
        except psycopg.Error as error:
            if not is_lost(error, connection):
                raise
            # Where the connection itself still stands, it is not one to ask.
            self._drop()
            if not self._ascertained(session_id, tag):
                raise

    def _ascertained(self, session_id: str, tag: int) -> bool:
        """Whether a commit took place, asked of whoever can be reached while the patience lasts."""
        try:
            return self._patiently(lambda: self._took_place(session_id, tag))
        except StoreFault as failed:
            raise _Unknown(failed) from failed
        except psycopg.Error as error:
            raise _Unknown(fault("store_unavailable", f"The commit's fate is unknown ({error}).")) from error

    def _took_place(self, session_id: str, tag: int) -> bool:
        """Whether the commit with this tag is in the database. If it is not, it never will be."""
        try:
            row = self._connected().execute(GIVE_UP, {"session_id": session_id, "tag": tag}).fetchone()
        except psycopg.Error as error:
            if is_lost(error, self._connection):
                self._drop()
                raise _Again(error, lost=True) from error
            raise
        return row is not None and row[0] == tag

    def _undone(
        self, connection: psycopg.Connection, transaction: PostgresTransaction, error: psycopg.Error
    ) -> Exception:
        """What a database error means for the verb: another try, a fault, or a mistake of ours."""
        if is_lost(error, connection):
            self._drop()
            return _Again(error, lost=True)
        if isinstance(error, CONTENTION) or (isinstance(error, CONSTRAINTS) and self._tries < CONSTRAINT_TRIES):
            self._roll_back(connection)
            return _Again(error, lost=False)
        self._abandon(connection, transaction)
        if isinstance(error, psycopg.errors.DivisionByZero):
            return AssertionError("a lease changed under its own transaction")
        return as_fault(error, self.path) or error

    def _patiently(self, step: Callable[[], R]) -> R:
        """Run a step again after what others did, or a lost connection, undid it."""
        give_up_at = time.monotonic() + self.busy_timeout_s
        pause_s = RETRY_MIN_S
        self._tries = 0
        while True:
            self._tries += 1
            try:
                return step()
            except _Again as again:
                if time.monotonic() >= give_up_at:
                    raise as_fault(again.error, self.path) or again.error from again.error
            except psycopg.OperationalError as error:
                # There was nobody to connect to.
                self._drop()
                if time.monotonic() >= give_up_at:
                    raise as_fault(error, self.path) or error from error
            time.sleep(pause_s * (0.5 + os.urandom(1)[0] / 255))
            pause_s = min(pause_s * 2, RETRY_MAX_S)

    def look(self, body: Callable[[Transaction], R]) -> R:
        return self._patiently(lambda: self._look_once(body))

    def _look_once(self, body: Callable[[Transaction], R]) -> R:
        connection = self._connected()
        transaction = PostgresTransaction(
            self._wire, postgres_schema.reading(), self.clock, self.random, Batch(BEGIN_LOOK)
        )
        try:
            answer = body(transaction)
            self.answered_at_ms = transaction.now_ms
        except psycopg.Error as error:
            if is_lost(error, connection):
                self._drop()
                raise _Again(error, lost=True) from error
            raise as_fault(error, self.path) or error from error
        finally:
            self._roll_back(connection)
        return answer

    def _abandon(self, connection: psycopg.Connection, transaction: PostgresTransaction) -> None:
        """After an exception: keep what the verb had settled, undo the rest."""
        try:
            if transaction.rescue():
                transaction.finish(("COMMIT", None))
                self.tell(transaction)
        except psycopg.Error:
            # The store itself failed; the transaction is undone whole, and the first error is the one to report.
            pass
        finally:
            self._roll_back(connection)

    def _roll_back(self, connection: psycopg.Connection) -> None:
        if not connection.closed:
            self._wire.settle()
        if connection.closed or connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            self._drop()

    def _faulting(self, step: Callable[[], R]) -> R:
        try:
            return step()
        except psycopg.Error as error:
            raise as_fault(error, self.path) or error from error

    # -- upkeep -----------------------------------------------------------------------------------------------------

    def data_version(self) -> int:
        """Changes when anyone has written to the cluster; costs one round trip and reads no table."""
        return self._patiently(self._wal_position)

    def _wal_position(self) -> int:
        row = self._connected().execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
        assert row is not None
        return int(row[0])

    def integrity_faults(self) -> list[str]:
        """What is wrong with the tables; empty when they are sound. Damage of the files is PostgreSQL's to find."""

        def check() -> list[str]:
            return [str(row[0]) for row in self._connected().execute(FAULTS).fetchall()]

        return self._faulting(check)

    def adopt(self) -> None:
        """Nothing to adopt: time is the database's."""

    def lift_numbers(self) -> bool:
        """After rows were copied in or restored; see Schema."""
        return self._faulting(lambda: postgres_schema.Schema(self._connected(), self.path).lift_numbers())

    def schema_version(self) -> int:
        row = self._faulting(
            lambda: self._connected().execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        )
        return int(row[0]) if row is not None else 0

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 if self.clock is None else self.clock.wall_ms()

    def time_ms(self) -> int:
        """The database's own clock."""
        row = self._faulting(lambda: self._connected().execute(NOW).fetchone())
        assert row is not None
        return int(row[0])


# Counts that are kept and could be computed: where the two differ, something is wrong.
FAULTS = """
    SELECT 'task ' || t.task_id || ' counts ' || t.unmet || ' unmet dependencies and has ' || count(d.needs_id)
        FILTER (WHERE n.status IS DISTINCT FROM 'done')
    FROM tasks t LEFT JOIN dependencies d ON d.task_key = t.key LEFT JOIN tasks n ON n.key = d.needs_key
    GROUP BY t.key HAVING t.unmet <> count(d.needs_id) FILTER (WHERE n.status IS DISTINCT FROM 'done')
    UNION ALL
    SELECT 'lease ' || l.lease_id || ' has the token ' || l.token || ', above its task''s last'
    FROM leases l JOIN tasks t ON t.key = l.task_key WHERE l.token > t.last_token
    UNION ALL
    SELECT 'lease ' || l.lease_id || ' has not ended and has no timer' FROM leases l
    WHERE l.state IN ('offered', 'active')
        AND NOT EXISTS (SELECT 1 FROM timers w WHERE w.kind = 'lease' AND w.ref = l.lease_id)
"""


def _options(url: str) -> dict[str, Any]:
    """libpq's own parameters, with ours where the address is silent."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        message = " ".join(str(error).split())
        raise fault("store_unavailable", f"The store's address cannot be read ({message}).") from error
    own = f"-c lock_timeout={LOCK_TIMEOUT_MS} -c statement_timeout={STATEMENT_TIMEOUT_MS}"
    own += f" -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS} -c jit=off"
    defaults = {
        "application_name": "tenure",
        "connect_timeout": CONNECT_TIMEOUT_S,
        # Of several hosts, the one that takes writes: after a failover, the promoted standby.
        "target_session_attrs": "read-write",
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "client_encoding": "UTF8",
    }
    return {**defaults, **given, "options": f"{own} {given.get('options') or ''}".strip()}


def _shown(options: dict[str, Any]) -> str:
    """The address as it may be printed: without a password."""
    user = f"{options['user']}@" if options.get("user") else ""
    hosts, ports = str(options.get("host") or "").split(","), str(options.get("port") or "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
    return f"postgresql://{user}{places}/{options.get('dbname') or ''}"
