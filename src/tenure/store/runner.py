"""The runner: how a server puts many verbs into one commit.

One thread writes. It takes the write lock, runs the verbs that wait for at most 5 ms, and commits them together: one
fsync for all of them. Nothing is answered before the commit. Then it leaves the lock free for at least 2 ms, so that
command-line processes, which retry every 1-4 ms, are not starved. An error that closes the transaction (a full disk
does) loses the batch, which is then run again verb by verb, so that every caller gets the truth about its own.

With `carry(step, not_before)` the bodies of a batch run on another thread, an event loop's, and not sooner than that
time: two threads that both run Python take turns, and a writer that gives the interpreter up at each statement would
get it back only when the loop is idle, with the store's lock in its hands. Waiting for the lock and for the disk stays
here.

Reads run on connections of their own and never wait for the writer. The queue is bounded: past its end a caller is
refused at once with `overloaded`, which costs it less than waiting for an answer that comes too late.

The writer also tells when somebody else has written: its own connection sees the others' commits and not its own.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.store.sqlite import BatchLost, Outcome, SqliteStore
from tenure.store.store import StoreFault, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.store.store import Transaction

R = TypeVar("R")

HOLD_S = 0.005
# What a verb leaves to be written at the end of its batch (store/batch.py) takes about this long, and is part of it.
LEFT_S = 0.00002
GAP_S = 0.002
# How long before the end of the gap the next batch is handed to its carrier.
EARLY_S = 0.001
WAITING_MAX = 4_096
READERS = 2
# How often an idle writer looks whether another process has written. The look costs microseconds.
LOOK_EVERY_S = 0.02

log = logging.getLogger("tenure.runner")


class Job:
    """A body that waits for its outcome."""

    __slots__ = ("body", "future", "long", "outcome")

    def __init__(self, body: Callable[[Transaction], Any], future: Any, long: bool = False) -> None:
        self.body = body
        self.future = future
        self.long = long
        self.outcome: Outcome | None = None


def deliver(jobs: Sequence[Job]) -> None:
    """Resolve the futures of finished jobs, in the runner's own thread."""
    for job in jobs:
        assert job.outcome is not None
        if job.future.done():
            # Its caller has given up waiting.
            continue
        if job.outcome.error is not None:
            job.future.set_exception(job.outcome.error)
        else:
            job.future.set_result(job.outcome.answer)


class Runner:
    """One writer and a few readers over one SQLite file.

    `deliver` is called with each batch's finished jobs, after its commit; an event loop hands all of them over at once.
    `written_elsewhere` is called by the writer's thread after another connection has written.
    """

    def __init__(
        self,
        store: SqliteStore,
        *,
        readers: int = READERS,
        waiting_max: int = WAITING_MAX,
        deliver: Callable[[Sequence[Job]], None] = deliver,
        make_future: Callable[[], Any] = Future,
        written_elsewhere: Callable[[], None] | None = None,
        carry: Callable[[Callable[[], None], float], None] | None = None,
    ) -> None:
        self._store = store
        self._deliver = deliver
        self._make_future = make_future
        self._written_elsewhere = written_elsewhere
        self._carry = carry
        self._seen_version = store.data_version()
        # Until then the lock is left free.
        self._free_until = 0.0
        self._waiting_max = waiting_max
        self._writes: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closed = False
        self.batches = 0
        self.written = 0
        self._threads = [threading.Thread(target=self._write_on, name="tenure-writer", daemon=True)]
        for number in range(readers):
            own = store.clone()
            self._threads.append(
                threading.Thread(target=self._read_on, args=(own,), name=f"tenure-reader-{number}", daemon=True)
            )
        self._readers = readers
        for thread in self._threads:
            thread.start()

    def write(self, body: Callable[[Transaction], R], *, long: bool = False) -> Any:
        """Queue a body for the writer; the future resolves after its commit. A `long` one is never carried."""
        return self._queued(self._writes, body, long)

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
        self._writes.put(None)
        for _ in range(self._readers):
            self._reads.put(None)
        for thread in self._threads:
            thread.join()

    def _queued(
        self, waiting: queue.SimpleQueue[Job | None], body: Callable[[Transaction], Any], long: bool = False
    ) -> Any:
        if self._closed:
            raise fault("store_unavailable", "The server is ending.")
        if waiting.qsize() >= self._waiting_max:
            raise fault("overloaded", f"{self._waiting_max} requests wait already.", retry_after_s=1)
        job = Job(body, self._make_future(), long)
        waiting.put(job)
        return job.future

    # -- the writer -------------------------------------------------------------------------------------------------

    def _write_on(self) -> None:
        first = self._first()
        while first is not None:
            batch = _Batch(self._writes, first, self._carry is not None)
            self._run(batch)
            self._free_until = time.monotonic() + GAP_S
            self._deliver(batch.jobs)
            self.batches += 1
            self.written += len(batch.jobs)
            if batch.ended:
                return
            self._look_elsewhere()
            first = batch.left_over or self._first()

    def _first(self) -> Job | None:
        """The first job of the next batch, or None at the end."""
        if self._written_elsewhere is None:
            return self._writes.get()
        while True:
            try:
                return self._writes.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                self._look_elsewhere()

    def _look_elsewhere(self) -> None:
        if self._written_elsewhere is None:
            return
        try:
            version = self._store.data_version()
        except StoreFault:
            # The next verb meets the same fault and tells its caller.
            return
        if version != self._seen_version:
            self._seen_version = version
            self._written_elsewhere()

    def _run(self, batch: _Batch) -> None:
        carry = None if batch.long else self._carry
        # Whoever carries the batch may be busy, and begins when it can; on this thread it begins when the gap is over.
        time.sleep(max(0.0, self._free_until - time.monotonic() - (0.0 if carry is None else EARLY_S)))
        try:
            outcomes = self._store.run_many(batch.take, carry and (lambda step: carry(step, self._free_until)))
        except BatchLost:
            outcomes = [self._alone(self._store.run, job) for job in batch.all_taken()]
        except StoreFault as failed:
            # The store let nobody begin, which may have taken long to find out: whoever waits is told at once.
            outcome = Outcome(answer=failed.refusal, at_ms=self._store.answered_at_ms)
            outcomes = [outcome] * len(batch.all_waiting())
        except Exception as error:
            # Whatever it was, every caller gets an answer and the writer goes on.
            log.exception("a batch failed")
            outcomes = [Outcome(error=error, at_ms=self._store.answered_at_ms)] * len(batch.all_taken())
        for job, outcome in zip(batch.jobs, outcomes, strict=True):
            job.outcome = outcome

    def _alone(self, run: Callable[[Callable[[Transaction], Any]], Any], job: Job) -> Outcome:
        """One body in a transaction of its own; a fault of the store is its answer."""
        try:
            answer = run(job.body)
        except StoreFault as failed:
            return Outcome(answer=failed.refusal, at_ms=self._store.answered_at_ms)
        except Exception as error:
            return Outcome(error=error, at_ms=self._store.answered_at_ms)
        return Outcome(answer=answer, at_ms=self._store.answered_at_ms)

    # -- the readers ------------------------------------------------------------------------------------------------

    def _read_on(self, own: SqliteStore) -> None:
        while True:
            job = self._reads.get()
            if job is None:
                own.close()
                return
            job.outcome = self._alone(own.look, job)
            self._deliver([job])


class _Batch:
    """The jobs of one commit, taken from the queue while the lock may be held."""

    def __init__(self, waiting: queue.SimpleQueue[Job | None], first: Job, apart: bool) -> None:
        self._waiting = waiting
        self._next: Job | None = first
        self._until: float | None = None
        # Whether a long job has a batch of its own.
        self._apart = apart
        self.long = first.long
        self.jobs: list[Job] = []
        # The job that the next batch begins with.
        self.left_over: Job | None = None
        self.ended = False

    def take(self) -> Callable[[Transaction], Any] | None:
        """The next body, or None when the time is over or nothing waits."""
        now = time.monotonic()
        if self._until is None:
            # The first take happens with the lock in hand: the hold is counted from here.
            self._until = now + HOLD_S
        if self._next is None and self.left_over is None and now + LEFT_S * len(self.jobs) < self._until:
            try:
                self._next = self._waiting.get_nowait()
            except queue.Empty:
                return None
            self.ended = self._next is None
        if self._next is None:
            return None
        if self.jobs and self._apart and (self.long or self._next.long):
            self.left_over, self._next = self._next, None
            return None
        job, self._next = self._next, None
        self.jobs.append(job)
        return job.body

    def all_waiting(self) -> list[Job]:
        """Every job of this batch and every other that waits now."""
        self.all_taken()
        while not self.ended:
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self.ended = True
            else:
                self.jobs.append(job)
        return self.jobs

    def all_taken(self) -> list[Job]:
        """Every job this batch has taken from the queue, one that could not even begin included."""
        if self._next is not None:
            self.jobs.append(self._next)
            self._next = None
        return self.jobs
