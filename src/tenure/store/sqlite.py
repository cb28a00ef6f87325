"""The embedded store: one SQLite file, many processes of one machine.

WAL with `synchronous=FULL`: an acknowledged write survives power loss (NORMAL was measured to lose some). The write
lock is taken with BEGIN IMMEDIATE at the start of every verb, by our own retry every 1-4 ms with jitter: SQLite's own
handler backs off to 100 ms and starves under a busy writer.

A `SqliteStore` is one connection and is used by one thread at a time; `clone` opens another on the same file.
Not promised: safety on network file systems, where SQLite's locks and shared memory do not work.
"""

from __future__ import annotations

import os
import sqlite3
import time

from tenure.clock import SystemClock
from tenure.store import anchor, queries
from tenure.store.faults import as_fault
from tenure.store.store import Memory, Store, StoreFault, Transaction, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from tenure.store.batch import Batching
    from tenure.store.store import Clock

    R = TypeVar("R")

SCHEMA_VERSION = 11
# In the file's header: "TENU". A file of another program is refused instead of being filled with our tables.
APPLICATION_ID = 0x54454E55
RETRY_MIN_S = 0.001
RETRY_SPREAD_S = 0.003
BUSY_TIMEOUT_S = 30.0
CACHE_KIB = 16_000


class Outcome:
    """What became of one body of a batch: its answer, or the exception that undid it."""

    __slots__ = ("answer", "at_ms", "error")

    def __init__(self, *, at_ms: int, answer: Any = None, error: Exception | None = None) -> None:
        self.at_ms = at_ms
        self.answer = answer
        self.error = error


class BatchLost(Exception):
    """A batch whose transaction was closed by an error: none of its bodies took effect."""


class _BodyFailed(Exception):
    """A body raised; its batch is to be run again with savepoints."""


class SqliteStore(Store):
    """One connection to one file."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        random: Callable[[int], bytes] = os.urandom,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        create: bool = True,
    ) -> None:
        self.path = path
        self.clock = SystemClock() if clock is None else clock
        self.random = random
        self.busy_timeout_s = busy_timeout_s
        self.queries = queries.load("queries.sql")
        # What the bodies of this connection's batches share, and as of which foreign write it is known.
        self._memory = Memory(queries.FORGETS)
        self._memory_version = -1
        self._batching: Batching | None = None
        self.connection = self._faulting(lambda: self._connect(create))
        try:
            self._faulting(self._prepare)
        except BaseException:
            self.close()
            raise

    def clone(self) -> SqliteStore:
        """Another connection to the same file, for another thread."""
        other = SqliteStore(
            self.path, clock=self.clock, random=self.random, busy_timeout_s=self.busy_timeout_s, create=False
        )
        other.on_recovery_callback = self.on_recovery_callback
        return other

    def close(self) -> None:
        self.connection.close()

    # -- connecting -------------------------------------------------------------------------------------------------

    def _connect(self, create: bool) -> sqlite3.Connection:
        if self.path != ":memory:":
            _prepare_file(self.path, create)
        return sqlite3.connect(
            self.path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256
        )

    def _prepare(self) -> None:
        """Set the connection up, patiently: while the last process to close the store removes its log, or the first to
        open it after a crash recovers that log, even the first read finds the file locked."""
        self._patiently("PRAGMA synchronous=FULL")
        self._patiently("PRAGMA foreign_keys=ON")
        # What a savepoint may have to put back would otherwise go through a temporary file.
        self._patiently("PRAGMA temp_store=MEMORY")
        # SQLite's own 2 MB hold fewer pages than a claim seeks among 200 capability sets; they are used only as needed.
        self._patiently(f"PRAGMA cache_size=-{CACHE_KIB}")
        version = self._patiently("PRAGMA user_version").fetchone()[0]
        if self._patiently("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            self._refuse_foreign()
        if version == SCHEMA_VERSION:
            return
        if version > SCHEMA_VERSION:
            self._refuse_newer(version)
            return
        self._migrate()

    def _migrate(self) -> None:
        if self.path != ":memory:":
            self._patiently("PRAGMA journal_mode=WAL")
        self._begin()
        try:
            version = self.connection.execute("PRAGMA user_version").fetchone()[0]
            self.connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            for number, script in queries.migrations():
                if number > version:
                    for statement in _statements(script):
                        self.connection.execute(statement)
                    self.connection.execute(f"PRAGMA user_version={number}")
            self._now()
            self.connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _refuse_foreign(self) -> None:
        """A file without our mark must be empty: otherwise it is another program's.

        Another process may be making the store just now: it writes mark and tables in one transaction, so whoever sees
        its tables sees its mark when asking again.
        """
        if not self._patiently("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        if self._patiently("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise fault("store_foreign", "The file is a database of another program.", path=self.path)

    def _refuse_newer(self, version: int) -> None:
        """A newer binary may share the store with this one only while its schema says so."""
        oldest = self.connection.execute(self.queries["meta"], {"key": "oldest_writer"}).fetchone()
        if oldest is None or int(oldest[0]) > SCHEMA_VERSION:
            raise fault("store_newer", f"The store has schema {version}; this tenure knows {SCHEMA_VERSION}.")

    # -- transactions -----------------------------------------------------------------------------------------------

    def run(self, body: Callable[[Transaction], R]) -> R:
        if self.connection.in_transaction:
            raise RuntimeError("a verb's body calls other bodies, never another verb: that would nest transactions")
        transaction: Transaction | None = None
        try:
            self._begin()
            transaction = Transaction(self.connection, self.queries, self._now(), self.random)
            self.answered_at_ms = transaction.now_ms
            # What batches of this connection remember does not see what is written here.
            self._memory.clear()
            answer = body(transaction)
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._abandon(transaction)
            raise as_fault(error, self.path) or error from error
        except BaseException:
            self._abandon(transaction)
            raise
        self.tell(transaction)
        return answer

    def run_many(
        self,
        take: Callable[[], Callable[[Transaction], Any] | None],
        carry: Callable[[Callable[[], None]], None] | None = None,
    ) -> list[Outcome]:
        """Run the bodies that `take` hands out, until it hands out None, in one transaction with one commit.

        `carry` runs a step on another thread and waits for it: there the lock is taken and the bodies run. The commit,
        which waits for the disk, is always made here.

        An exception undoes the body that raised it alone, and is its outcome. For that the batch is rolled back and
        run again with a savepoint around each body: a savepoint copies every page that its body changes, which would
        cost a third of the work if all had one for the sake of an exception that hardly ever comes.

        An error that closes the transaction (a full disk does) loses the whole batch and raises BatchLost: nothing was
        written, and the bodies may be run again one by one. A store that does not even let it begin raises its
        StoreFault, and no body has been taken.
        """
        bodies: list[Callable[[Transaction], Any]] = []

        def noting() -> Callable[[Transaction], Any] | None:
            body = take()
            if body is not None:
                bodies.append(body)
            return body

        try:
            return self._batch(noting, self._run_bare, carry)
        except _BodyFailed:
            again = iter(bodies)
            return self._batch(lambda: next(again, None), self._run_guarded)

    def _batch(
        self,
        take: Callable[[], Callable[[Transaction], Any] | None],
        run_one: Callable[[Callable[[Transaction], Any], int, list[Transaction]], Outcome],
        carry: Callable[[Callable[[], None]], None] | None = None,
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        transactions: list[Transaction] = []

        if self._batching is None:
            # Imported here because only a server's writer has batches.
            from tenure.store.batch import Batching

            self._batching = Batching(self.queries, self._memory)
        self._batching.cursor = self.connection

        def bodies() -> None:
            # One instant for all: it was read after the lock was taken, and the lock is held for milliseconds.
            now_ms = self._batch_now()
            while (body := take()) is not None:
                outcomes.append(run_one(body, now_ms, transactions))
            self._write_what_waits()

        def begun() -> None:
            if self._begin_at_once():
                bodies()

        if carry is not None:
            self._or_lost(lambda: carry(begun))
        if not self.connection.in_transaction:
            # Waiting for another process's lock happens here, where it keeps nobody else from working.
            self._faulting(self._begin)
            self._or_lost(bodies if carry is None else lambda: carry(bodies))
        self._or_lost(lambda: self.connection.execute("COMMIT"))
        for transaction in transactions:
            self.tell(transaction)
        return outcomes

    def _or_lost(self, step: Callable[[], Any]) -> None:
        """Run a step of a batch; if it fails the batch is undone, and a fault of the store loses it."""
        try:
            step()
        except (sqlite3.Error, StoreFault) as error:
            self._forgetting_roll_back()
            raise BatchLost from error
        except BaseException:
            self._forgetting_roll_back()
            raise

    def _batch_now(self) -> int:
        """The store's time for a batch; what the connection remembers is checked here against others' writes."""
        version = self.connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._memory_version:
            self._memory.clear()
            self._memory_version = version
        try:
            return anchor.read_now(self.connection, self.queries, self.clock)
        except anchor.Stale:
            self._memory.clear()
            return anchor.re_anchor(self.connection, self.queries, self.clock)

    def _forgetting_roll_back(self) -> None:
        self._memory.clear()
        if self._batching is not None:
            self._batching.drop()
        self._roll_back()

    def _run_bare(self, body: Callable[[Transaction], Any], now_ms: int, transactions: list[Transaction]) -> Outcome:
        assert self._batching is not None
        transaction = self._batching.transaction(now_ms, self.random)
        transactions.append(transaction)
        try:
            return Outcome(answer=body(transaction), at_ms=now_ms)
        except Exception as error:
            raise (_BodyFailed if self.connection.in_transaction else BatchLost) from error

    def _write_what_waits(self) -> None:
        assert self._batching is not None
        try:
            self._batching.write_all()
        except Exception as error:
            raise (_BodyFailed if self.connection.in_transaction else BatchLost) from error

    def _run_guarded(self, body: Callable[[Transaction], Any], now_ms: int, transactions: list[Transaction]) -> Outcome:
        transaction = Transaction(self.connection, self.queries, now_ms, self.random, self._memory)
        self.connection.execute("SAVEPOINT verb")
        try:
            outcome = Outcome(answer=body(transaction), at_ms=transaction.now_ms)
            transactions.append(transaction)
        except Exception as error:
            if not self.connection.in_transaction:
                raise BatchLost from error
            if transaction.rescue():
                transactions.append(transaction)
            else:
                self.connection.execute("ROLLBACK TO verb")
                self._memory.clear()
            known = as_fault(error, self.path) if isinstance(error, sqlite3.Error) else None
            outcome = Outcome(error=known or error, at_ms=transaction.now_ms)
        self.connection.execute("RELEASE verb")
        return outcome

    def look(self, body: Callable[[Transaction], R]) -> R:
        return self._faulting(lambda: self._look(body))

    def _look(self, body: Callable[[Transaction], R]) -> R:
        self._begin_look()
        try:
            try:
                now_ms = anchor.read_now(self.connection, self.queries, self.clock)
            except anchor.Stale:
                now_ms = self._now_for_reader()
            self.answered_at_ms = now_ms
            return body(Transaction(self.connection, self.queries, now_ms, self.random))
        finally:
            self._roll_back()

    def _now_for_reader(self) -> int:
        """Let a write transaction re-anchor before the snapshot is taken; where that is refused, advise anyway."""
        self._roll_back()
        try:  # noqa: SIM105 - contextlib would have to be imported for every touch
            self.run(lambda transaction: None)
        except StoreFault:
            pass
        self._begin_look()
        return anchor.advised_now(self.connection, self.queries, self.clock)

    def _now(self) -> int:
        try:
            return anchor.read_now(self.connection, self.queries, self.clock)
        except anchor.Stale:
            return anchor.re_anchor(self.connection, self.queries, self.clock)

    def _begin(self) -> None:
        self._patiently("BEGIN IMMEDIATE")

    def _begin_at_once(self) -> bool:
        """Take the lock if it is free."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            # Whatever it is, the patient way meets it again and tells it.
            return False
        return True

    def _begin_look(self) -> None:
        """Begin a read. BEGIN alone takes no lock; the first read does, and may find the store locked for a moment."""
        self._retrying(self._snapshot)

    def _snapshot(self) -> None:
        self.connection.execute("BEGIN")
        try:
            self.connection.execute(self.queries["clock"])
        except BaseException:
            self._roll_back()
            raise

    def _patiently(self, statement: str) -> sqlite3.Cursor:
        """Run a statement that may find the store locked."""
        return self._retrying(lambda: self.connection.execute(statement))

    def _retrying(self, step: Callable[[], R]) -> R:
        """Run a step that may find the store locked, trying again every few milliseconds."""
        give_up_at = None
        while True:
            try:
                return step()
            except sqlite3.OperationalError as error:
                if (getattr(error, "sqlite_errorname", None) or "").partition("_")[2].partition("_")[0] not in (
                    "BUSY",
                    "LOCKED",
                ):
                    raise
                now = time.monotonic()
                give_up_at = now + self.busy_timeout_s if give_up_at is None else give_up_at
                if now >= give_up_at:
                    raise
            time.sleep(RETRY_MIN_S + RETRY_SPREAD_S * os.urandom(1)[0] / 255)

    def _abandon(self, transaction: Transaction | None) -> None:
        """After an exception: keep what the verb had settled, undo the rest."""
        try:
            if self.connection.in_transaction and transaction is not None and transaction.rescue():
                self.connection.execute("COMMIT")
                self.tell(transaction)
        except sqlite3.Error:
            # The store itself failed; the transaction is undone whole, and the first error is the one to report.
            pass
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _faulting(self, step: Callable[[], R]) -> R:
        """Run a step with SQLite's errors turned into faults."""
        try:
            return step()
        except sqlite3.Error as error:
            raise as_fault(error, self.path) or error from error

    # -- upkeep -----------------------------------------------------------------------------------------------------

    def data_version(self) -> int:
        """Changes when another connection has written; costs microseconds, so the monitor can look often."""
        return int(self._faulting(lambda: self._patiently("PRAGMA data_version").fetchone()[0]))

    def schema_version(self) -> int:
        return int(self._faulting(lambda: self._patiently("PRAGMA user_version").fetchone()[0]))

    def wall_ms(self) -> int:
        return self.clock.wall_ms()

    def integrity_faults(self) -> list[str]:
        """What SQLite's own check finds wrong; empty when the file is sound."""
        return self._faulting(self._integrity_faults)

    def _integrity_faults(self) -> list[str]:
        found = [str(row[0]) for row in self._patiently("PRAGMA integrity_check")]
        orphans = [f"foreign key of {row[0]} row {row[1]}" for row in self._patiently("PRAGMA foreign_key_check")]
        return [row for row in found if row != "ok"] + orphans

    def adopt(self) -> None:
        """The way out of store_shared: this machine keeps the file. Every lease gets a fresh term under this boot."""
        self._faulting(self._adopt)

    def _adopt(self) -> None:
        self._begin()
        try:
            self.connection.execute(self.queries["forget_boot"], {"boot_id": self.clock.boot_id()})
            anchor.re_anchor(self.connection, self.queries, self.clock)
            self.connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise


def _prepare_file(path: str, create: bool) -> None:
    """Make the file private before SQLite opens it: its journal files take over the mode."""
    directory = os.path.dirname(path)
    if not create and not os.path.exists(path):
        raise fault("store_unavailable", "There is no store here yet.", path=path)
    try:
        if directory and not os.path.isdir(directory):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        if not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        elif os.path.getsize(path) == 0:
            os.chmod(path, 0o600)
    except OSError as error:
        raise fault("store_unavailable", f"The store cannot be created ({error.strerror}).", path=path) from error


def _statements(script: str) -> list[str]:
    """A migration's statements. `executescript` would commit the transaction that must hold them all together."""
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements
