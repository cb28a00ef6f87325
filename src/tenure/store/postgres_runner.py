"""The runner on PostgreSQL: a pool of connections, a thread each, and one listener outside the pool.

Verbs run beside each other, each in a transaction of its own; the database orders those that meet. Commits that happen
at the same time share its fsync, so that there is nothing to batch here. As on SQLite, the queue is bounded, and past
its end a caller is refused at once with `overloaded`.

Nodes wake each other by NOTIFY: one notice for all the commits of a few milliseconds, from a connection of its own,
because a notice inside a verb's transaction would let commits pass one at a time. A listener that lost its connection
looks ten times a second until it has another: a notice may have been missed, and waiting polls are looked up anyway.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from tenure.store.postgres import CHANNEL, PostgresStore
from tenure.store.runner import WAITING_MAX, Job, deliver
from tenure.store.sqlite import Outcome
from tenure.store.store import StoreFault, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.store.store import Transaction

R = TypeVar("R")

CONNECTIONS = 8
READERS = 2
# Commits that come closer together than this are told of by one notice.
NOTICE_EVERY_S = 0.01
# How often a node without a listener looks.
LOOK_EVERY_S = 0.1
SESSION_KEPT_MS = 86_400_000

log = logging.getLogger("tenure.runner")


class PostgresRunner:
    """A pool of writers and readers over one database; the interface is the Runner's."""

    def __init__(
        self,
        store: PostgresStore,
        *,
        connections: int = CONNECTIONS,
        readers: int = READERS,
        waiting_max: int = WAITING_MAX,
        deliver: Callable[[Sequence[Job]], None] = deliver,
        make_future: Callable[[], Any] = Future,
        written_elsewhere: Callable[[], None] | None = None,
        carry: Callable[[Callable[[], None], float], None] | None = None,
    ) -> None:
        """`carry` is for a writer that holds a lock which all others wait for; here nobody does."""
        self._store = store
        self._deliver = deliver
        self._make_future = make_future
        self._written_elsewhere = written_elsewhere
        self._writes: queue.Queue[Job | None] = queue.Queue(waiting_max)
        self._reads: queue.Queue[Job | None] = queue.Queue(waiting_max)
        self._closed = False
        self._stopping = threading.Event()
        self._to_tell = threading.Event()
        self._name = store.random(8).hex()
        self._counting = threading.Lock()
        self.written = 0
        store.lift_numbers()
        _forget_sessions(store)
        self._pool = [self._thread(self._work, self._writes, True, name=f"writer-{n}") for n in range(connections)]
        self._pool += [self._thread(self._work, self._reads, False, name=f"reader-{n}") for n in range(readers)]
        self._readers, self._writers = readers, connections
        self._others = [self._thread(self._tell, name="teller")]
        if written_elsewhere is not None:
            self._others.append(self._thread(self._listen, name="listener"))
        for thread in (*self._pool, *self._others):
            thread.start()

    @staticmethod
    def _thread(target: Callable[..., None], *arguments: Any, name: str) -> threading.Thread:
        return threading.Thread(target=target, args=arguments, name=f"tenure-{name}", daemon=True)

    @property
    def batches(self) -> int:
        """Commits; each verb has its own."""
        return self.written

    def write(self, body: Callable[[Transaction], R], *, long: bool = False) -> Any:
        """Queue a body for a writer; the future resolves after its commit. A `long` one delays nobody here."""
        return self._queued(self._writes, body)

    def read(self, body: Callable[[Transaction], R]) -> Any:
        """Queue a body for a reader."""
        return self._queued(self._reads, body)

    @property
    def waiting(self) -> int:
        """How many bodies wait to be run."""
        return self._writes.qsize() + self._reads.qsize()

    def close(self) -> None:
        """Run what was accepted, then end. Nothing is accepted any more."""
        self._closed = True
        for _ in range(self._writers):
            self._writes.put(None)
        for _ in range(self._readers):
            self._reads.put(None)
        for thread in self._pool:
            thread.join()
        self._stopping.set()
        self._to_tell.set()
        for thread in self._others:
            thread.join()

    def _queued(self, waiting: queue.Queue[Job | None], body: Callable[[Transaction], Any]) -> Any:
        if self._closed:
            raise fault("store_unavailable", "The server is ending.")
        job = Job(body, self._make_future())
        try:
            waiting.put_nowait(job)
        except queue.Full:
            raise fault("overloaded", f"{waiting.maxsize} requests wait already.", retry_after_s=1) from None
        return job.future

    # -- the pool ---------------------------------------------------------------------------------------------------

    def _work(self, waiting: queue.Queue[Job | None], writes: bool) -> None:
        own: PostgresStore | None = None
        # Connected before anyone waits: a connection takes longer to make than a verb to run. Where there is nobody to
        # connect to yet, the first verb tries, and hears it.
        with contextlib.suppress(StoreFault, psycopg.Error):
            own = self._connected()
        while (job := waiting.get()) is not None:
            try:
                if own is None:
                    own = self._connected()
                job.outcome = self._outcome(own.run if writes else own.look, own, job)
            except StoreFault as failed:
                job.outcome = Outcome(answer=failed.refusal, at_ms=self._store.answered_at_ms)
            except Exception as error:
                # Whatever it was, the caller gets an answer and the thread goes on.
                log.exception("a connection failed")
                job.outcome = Outcome(error=error, at_ms=self._store.answered_at_ms)
            if writes:
                with self._counting:
                    self.written += 1
                self._to_tell.set()
            self._deliver([job])
        if own is not None:
            own.close()

    def _connected(self) -> PostgresStore:
        own = self._store.clone()
        own.announces = False
        return own

    @staticmethod
    def _outcome(perform: Callable[[Callable[[Transaction], Any]], Any], own: PostgresStore, job: Job) -> Outcome:
        try:
            answer = perform(job.body)
        except StoreFault as failed:
            answer = failed.refusal
        except Exception as error:
            return Outcome(error=error, at_ms=own.answered_at_ms)
        return Outcome(answer=answer, at_ms=own.answered_at_ms)

    # -- telling the other nodes, and hearing them ------------------------------------------------------------------

    def _tell(self) -> None:
        """Tell of what was written here, once for all that came together."""
        connection: psycopg.Connection[Any] | None = None
        while True:
            self._to_tell.wait()
            if self._stopping.is_set():
                break
            self._to_tell.clear()
            try:
                if connection is None or connection.closed or connection.broken:
                    connection = self._store.connect()
                    # A notice need not survive anything.
                    connection.execute("SET synchronous_commit = off")
                connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._name))
            except psycopg.Error as error:
                # The next write tries again; who is not told finds out by looking.
                log.warning("the other nodes could not be told: %s", error)
                _close(connection)
                connection = None
            self._stopping.wait(NOTICE_EVERY_S)
        _close(connection)

    def _listen(self) -> None:
        """Hear of what other nodes and command-line processes have written."""
        assert self._written_elsewhere is not None
        while not self._stopping.is_set():
            connection: psycopg.Connection[Any] | None = None
            try:
                connection = self._store.connect()
                connection.execute(f"LISTEN {CHANNEL}".encode())
                # What was told while nobody listened is looked up now.
                self._written_elsewhere()
                self._hear(connection)
            except psycopg.Error as error:
                log.warning("the listener lost its connection: %s", error)
                self._written_elsewhere()
                self._stopping.wait(LOOK_EVERY_S)
            finally:
                _close(connection)

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        assert self._written_elsewhere is not None
        while not self._stopping.is_set():
            heard = [notice.payload for notice in connection.notifies(timeout=0.5, stop_after=1)]
            if any(payload != self._name for payload in heard):
                self._written_elsewhere()
            elif not heard:
                # Also finds out that the server is gone without a word.
                connection.execute("SELECT 1")


def _close(connection: psycopg.Connection[Any] | None) -> None:
    if connection is not None:
        with contextlib.suppress(psycopg.Error):
            connection.close()


def _forget_sessions(store: PostgresStore) -> None:
    """The rows of connections that ended long ago without a word."""
    before_ms = store.time_ms() - SESSION_KEPT_MS
    with contextlib.suppress(psycopg.Error):
        connection = store.connect()
        connection.execute("DELETE FROM sessions WHERE at_ms < %s", (before_ms,))
        connection.close()
