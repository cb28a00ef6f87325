"""The runner on PostgreSQL: three writers that put many verbs into one commit, and connections for the verbs that wait.

A writer takes what waits in the queue, at most BATCH_MAX verbs, and runs them one after the other in one transaction
(PostgresStore.run_many): they cost two round trips and one fsync, and the interpreter is not fought for by a thread per
verb. A verb that is alone in the queue runs at once, alone in its transaction. Nothing is answered before its commit.

One writer is enough while few verbs wait, and it is always the same one: two batches beside each other cost more than
one of both. Another joins in where JOIN_AT or more are left when it has taken its batch, or where it has been at a
batch for HELD_UP_S, because a lock is not free or the database is far away.

A batch is optimistic. Its verbs lock their tasks in whatever order they came, so that two batches, of this node or of
two, can each hold what the other wants, and a verb may want a row that somebody keeps for long. Therefore a batch waits
for a lock no longer than LOCK_WAIT_MS, which is shorter than PostgreSQL takes to look for a deadlock. Whatever goes
wrong in it (a lock, one verb's exception, a constraint, a lost connection), the whole batch is undone, and each of its
verbs is run again by itself, on one of a few more connections, with all patience: there its outcome is its own. Verbs
that are long by nature begin there. So nobody keeps the writers from working for longer than a batch may last. After a
batch that was undone a writer takes fewer at a time, and one more after each that was not.

All verbs of a batch were waiting before it began. What one of them reads of tables that change rarely, the others may
take over, because no change that was answered before their own request can be missing in it.

As on SQLite, the queue is bounded, and past its end a caller is refused at once with `overloaded`.

Nodes wake each other by NOTIFY: one notice for all the commits of a few milliseconds, from a connection of its own,
because a notice inside a verb's transaction would let commits pass one at a time. A listener that lost its connection
looks ten times a second until it has another: a notice may have been missed, and waiting polls are looked up anyway.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from tenure.store.postgres import CHANNEL, LOCK_TIMEOUT_MS, PostgresStore
from tenure.store.runner import WAITING_MAX, Job, deliver
from tenure.store.sqlite import BatchLost, Outcome
from tenure.store.store import StoreFault, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.store.store import Transaction

R = TypeVar("R")

WRITERS = 3
# For verbs that are run by themselves.
CONNECTIONS = 5
READERS = 2
# A batch: how many verbs, for how long they may go on beginning, and how long one may wait for a lock.
BATCH_MAX = 16
HOLD_S = 0.02
LOCK_WAIT_MS = 50
# When another writer joins in: so many verbs are left over, or the one at work has been at it for so long.
JOIN_AT = 8
HELD_UP_S = 0.005
# After so many looks at a writer that has no work nobody watches it any more, until it has.
IDLE_LOOKS = 200
# Commits that come closer together than this are told of by one notice.
NOTICE_EVERY_S = 0.01
# How often a node without a listener looks.
LOOK_EVERY_S = 0.1
SESSION_KEPT_MS = 86_400_000

log = logging.getLogger("tenure.runner")


class Turns:
    """Whose turn it is to take what waits: one writer's, who keeps it from batch to batch, unless one lasts too long.

    So the same thread and the same process of the server are at work all the time, and nobody else is woken for it.
    """

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._waiting = waiting
        self._changed = threading.Condition()
        # The thread whose turn it is, and since when it has been at work; it may be waiting for some.
        self._leader: int | None = None
        self._since: float | None = None
        # Somebody looks up from time to time whether the leader is held up.
        self._watched = False

    def wait(self) -> None:
        """Until it is the caller's turn, or the leader is held up while verbs wait: then it is the caller's."""
        own = threading.get_ident()
        with self._changed:
            while self._leader not in (None, own):
                if self._watched or not self._watch():
                    self._changed.wait()
            self._leader, self._since = own, None

    def _watch(self) -> bool:
        """Look after the leader: True where the turn can be taken, False where it has had no work for a while."""
        self._watched = True
        idle = 0
        while self._leader is not None and idle < IDLE_LOOKS:
            left_s = HELD_UP_S
            if self._since is None:
                idle += 1
            else:
                idle = 0
                left_s = self._since + HELD_UP_S - time.monotonic()
                if left_s <= 0 and self._waiting():
                    self._leader = None
                    break
            self._changed.wait(left_s if left_s > 0 else HELD_UP_S)
        self._watched = False
        return self._leader is None

    def begin(self) -> None:
        """The leader has taken what there was, and goes to work."""
        with self._changed:
            if self._leader == threading.get_ident():
                self._since = time.monotonic()
                if not self._watched:
                    self._changed.notify()

    def rest(self) -> None:
        """The leader is done, and will take what comes next."""
        with self._changed:
            if self._leader == threading.get_ident():
                self._since = None

    def give_up(self) -> None:
        """The leader ends, or leaves enough for another."""
        with self._changed:
            if self._leader == threading.get_ident():
                self._leader = self._since = None
                self._changed.notify()


class PostgresRunner:
    """Writers, connections for single verbs, and readers over one database; the interface is the Runner's."""

    def __init__(
        self,
        store: PostgresStore,
        *,
        writers: int = WRITERS,
        connections: int = CONNECTIONS,
        readers: int = READERS,
        waiting_max: int = WAITING_MAX,
        deliver: Callable[[Sequence[Job]], None] = deliver,
        make_future: Callable[[], Any] = Future,
        written_elsewhere: Callable[[], None] | None = None,
        carry: Callable[[Callable[[], None], float], None] | None = None,
    ) -> None:
        """`carry` is for a writer that holds a lock which all others wait for. Here nobody does, and a round trip
        would keep the event loop waiting."""
        self._store = store
        self._deliver = deliver
        self._make_future = make_future
        self._written_elsewhere = written_elsewhere
        self._writes: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        # What is run by itself: long verbs, and those of a batch that was undone, which were accepted already.
        self._singles: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._waiting_max = waiting_max
        self._closed = False
        self._stopping = threading.Event()
        self._to_tell = threading.Event()
        self._name = store.random(8).hex()
        self._counting = threading.Lock()
        self.written = 0
        # Commits; each holds many verbs.
        self.batches = 0
        self._turns = Turns(self._writes.qsize)
        store.lift_numbers()
        _forget_sessions(store)
        self._writers = [self._thread(self._write_on, name=f"writer-{n}") for n in range(writers)]
        self._others = [self._thread(self._work, self._singles, True, name=f"single-{n}") for n in range(connections)]
        self._readers = [self._thread(self._work, self._reads, False, name=f"reader-{n}") for n in range(readers)]
        self._tellers = [self._thread(self._tell, name="teller")]
        if written_elsewhere is not None:
            self._tellers.append(self._thread(self._listen, name="listener"))
        for thread in (*self._writers, *self._others, *self._readers, *self._tellers):
            thread.start()

    @staticmethod
    def _thread(target: Callable[..., None], *arguments: Any, name: str) -> threading.Thread:
        return threading.Thread(target=target, args=arguments, name=f"tenure-{name}", daemon=True)

    def write(self, body: Callable[[Transaction], R], *, long: bool = False) -> Any:
        """Queue a body for a writer; the future resolves after its commit. A `long` one has a commit of its own."""
        return self._queued(self._singles if long else self._writes, body)

    def read(self, body: Callable[[Transaction], R]) -> Any:
        """Queue a body for a reader."""
        return self._queued(self._reads, body)

    @property
    def waiting(self) -> int:
        """How many bodies wait to be run."""
        return self._writes.qsize() + self._singles.qsize() + self._reads.qsize()

    def close(self) -> None:
        """Run what was accepted, then end. Nothing is accepted any more."""
        self._closed = True
        # In this order: what a writer could not do together is still to be done by itself.
        for waiting, threads in (
            (self._writes, self._writers),
            (self._singles, self._others),
            (self._reads, self._readers),
        ):
            for _ in threads:
                waiting.put(None)
            for thread in threads:
                thread.join()
        self._stopping.set()
        self._to_tell.set()
        for thread in self._tellers:
            thread.join()

    def _queued(self, waiting: queue.SimpleQueue[Job | None], body: Callable[[Transaction], Any]) -> Any:
        if self._closed:
            raise fault("store_unavailable", "The server is ending.")
        # What a writer could not do is still waiting, elsewhere.
        queued = waiting.qsize() if waiting is self._reads else self._writes.qsize() + self._singles.qsize()
        if queued >= self._waiting_max:
            raise fault("overloaded", f"{self._waiting_max} requests wait already.", retry_after_s=1)
        job = Job(body, self._make_future())
        waiting.put(job)
        return job.future

    # -- many verbs in one commit -----------------------------------------------------------------------------------

    def _write_on(self) -> None:
        own = self._connected_early(LOCK_WAIT_MS)
        jobs: list[Job] = []
        most = BATCH_MAX
        ended = False
        while not ended or jobs:
            if not ended:
                ended = self._take(jobs, most)
            if not jobs:
                continue
            try:
                if own is None:
                    own = self._connected(LOCK_WAIT_MS)
                outcomes = own.run_many([job.body for job in jobs], HOLD_S)
                most = min(BATCH_MAX, most + 1)
            except (BatchLost, psycopg.Error) as error:
                log.debug("%d verbs are run again one by one: %r", len(jobs), error.__cause__ or error)
                most = max(1, most // 2)
                for job in jobs:
                    self._singles.put(job)
                outcomes, jobs = [], []
            except StoreFault as failed:
                outcomes = [Outcome(answer=failed.refusal, at_ms=self._store.answered_at_ms)] * len(jobs)
            except Exception as error:
                # Whatever it was, every caller gets an answer and the writer goes on.
                log.exception("a batch failed")
                outcomes = [Outcome(error=error, at_ms=self._store.answered_at_ms)] * len(jobs)
            done, jobs = jobs[: len(outcomes)], jobs[len(outcomes) :]
            if jobs:
                # It goes on with these, and takes nothing meanwhile.
                self._turns.give_up()
            else:
                self._turns.rest()
            for job, outcome in zip(done, outcomes, strict=True):
                job.outcome = outcome
            if done:
                self._finished(done)
        if own is not None:
            own.close()

    def _take(self, jobs: list[Job], most: int) -> bool:
        """Take what waits, and wait for the first. What an earlier batch left over comes before. True at the end."""
        if jobs:
            return False
        self._turns.wait()
        try:
            first = self._writes.get()
            if first is None:
                self._turns.give_up()
                return True
            jobs.append(first)
            while len(jobs) < most:
                job = self._writes.get_nowait()
                if job is None:
                    self._turns.give_up()
                    return True
                jobs.append(job)
        except queue.Empty:
            pass
        if self._writes.qsize() >= JOIN_AT:
            self._turns.give_up()
        else:
            self._turns.begin()
        return False

    def _finished(self, jobs: list[Job]) -> None:
        """Answer jobs whose transaction is over, and let the other nodes be told."""
        with self._counting:
            self.batches += 1
            self.written += len(jobs)
        self._answer(jobs)
        self._to_tell.set()

    def _answer(self, jobs: list[Job]) -> None:
        """Hand the outcomes over. Who cannot be told, because it does not wait any more, stops nobody's work."""
        try:
            self._deliver(jobs)
        except Exception:
            log.exception("%d answers could not be handed over", len(jobs))

    # -- one verb at a time -----------------------------------------------------------------------------------------

    def _work(self, waiting: queue.SimpleQueue[Job | None], writes: bool) -> None:
        own = self._connected_early(LOCK_TIMEOUT_MS)
        while (job := waiting.get()) is not None:
            try:
                if own is None:
                    own = self._connected(LOCK_TIMEOUT_MS)
                job.outcome = self._outcome(own.run if writes else own.look, own, job)
            except StoreFault as failed:
                job.outcome = Outcome(answer=failed.refusal, at_ms=self._store.answered_at_ms)
            except Exception as error:
                # Whatever it was, the caller gets an answer and the thread goes on.
                log.exception("a connection failed")
                job.outcome = Outcome(error=error, at_ms=self._store.answered_at_ms)
            if writes:
                self._finished([job])
            else:
                self._answer([job])
        if own is not None:
            own.close()

    def _connected_early(self, lock_timeout_ms: int) -> PostgresStore | None:
        """A connection before anyone waits for it: it takes longer to make than a verb to run. Where there is nobody to
        connect to yet, the first verb tries, and hears it."""
        with contextlib.suppress(StoreFault, psycopg.Error):
            return self._connected(lock_timeout_ms)
        return None

    def _connected(self, lock_timeout_ms: int) -> PostgresStore:
        own = self._store.clone()
        own.announces = False
        if lock_timeout_ms != LOCK_TIMEOUT_MS:
            own.be_patient(lock_timeout_ms)
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
        told = True
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
                told = True
            except psycopg.Error as error:
                # The next write tries again; who is not told finds out by looking.
                if told:
                    log.warning("the other nodes are not told of what is written, and look themselves: %s", error)
                told = False
                _close(connection)
                connection = None
            self._stopping.wait(NOTICE_EVERY_S)
        _close(connection)

    def _listen(self) -> None:
        """Hear of what other nodes and command-line processes have written."""
        assert self._written_elsewhere is not None
        lost = False
        while not self._stopping.is_set():
            connection: psycopg.Connection[Any] | None = None
            try:
                connection = self._store.connect()
                connection.execute(f"LISTEN {CHANNEL}".encode())
                if lost:
                    log.warning("the listener has a connection again")
                lost = False
                # What was told while nobody listened is looked up now.
                self._written_elsewhere()
                self._hear(connection)
            except psycopg.Error as error:
                if not lost:
                    log.warning("the listener lost its connection, and looks ten times a second: %s", error)
                lost = True
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
