"""Two connections in threads, held at chosen points: the interleavings that the locks are there for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg

from tenure.store import postgres_schema
from tenure.store.store import Store, Transaction

PATIENCE_S = 120.0


class Gate:
    """A transaction that stops before its commit until it is let go."""

    def __init__(self, store: Store, body: Callable[[Transaction], Any]) -> None:
        self._reached, self._open = threading.Event(), threading.Event()

        def held(tx: Transaction) -> Any:
            answer = body(tx)
            # Everything that waits is sent, so that its locks are held.
            tx.one("meta", key="none")
            self._reached.set()
            assert self._open.wait(PATIENCE_S)
            return answer

        self._pool = ThreadPoolExecutor(1)
        self._future: Future[Any] = self._pool.submit(store.run, held)
        assert self._reached.wait(PATIENCE_S)

    def let_go(self) -> Any:
        self._open.set()
        answer = self._future.result(PATIENCE_S)
        self._pool.shutdown()
        return answer


class Aside:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future: Future[Any] = self._pool.submit(call)

    def wait(self) -> Any:
        answer = self._future.result(PATIENCE_S)
        self._pool.shutdown()
        return answer

    @property
    def done(self) -> bool:
        return self._future.done()


@contextlib.contextmanager
def held_before(url: str, query: str, condition: str) -> Iterator[None]:
    """Whoever asks the query waits, before it looks at the condition, until the block is left: after its statement's
    snapshot was taken, and before it has locked a row."""
    queries = postgres_schema.deciding()
    text = queries[query]
    assert condition in text
    queries[query] = text.replace(condition, f"(SELECT pg_advisory_xact_lock(4242)) IS NOT NULL AND {condition}")
    try:
        with psycopg.connect(url, autocommit=True) as gate:
            gate.execute("SELECT pg_advisory_lock(4242)")
            yield
    finally:
        queries[query] = text


def await_blocked(url: str, count: int = 1) -> None:
    """Until so many connections of this database wait for a lock."""
    give_up_at = time.monotonic() + PATIENCE_S
    statement = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND state = 'active'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            row = connection.execute(statement).fetchone()
            assert row is not None
            if row[0] >= count:
                return
            assert time.monotonic() < give_up_at, "nobody waits for a lock"
            time.sleep(0.005)
