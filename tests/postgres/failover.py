"""A primary is killed under load and its standby promoted: what was acknowledged, and how long nobody was served.

    python -m tests.postgres.failover --tasks 1000
    python -m tests.postgres.failover --asynchronous --tasks 1000

With a synchronous standby nothing that was acknowledged is lost. With an asynchronous one that has fallen behind, the
last acknowledged writes may be, but no (task, token) is ever issued twice and nothing is damaged.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from tenure.core.errors import Refused
from tenure.engine import claims, endings, receipts, tasks
from tenure.store.postgres import PostgresStore
from tests.postgres.cluster import QUICK, Cluster
from tests.postgres.proxy import Proxy
from tests.postgres.support import ProbedPostgres
from tests.support import ok

PATIENCE_S = 180.0


@dataclass
class Load:
    """Workers in threads, and everything they were told."""

    url: str
    workers: int
    granted: list[tuple[str, int, str]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(self.workers)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a worker hangs"

    def await_count(self, count: int) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while len(self.completed) < count:
            assert not self.failures, self.failures
            assert time.monotonic() < give_up_at, "the load stands still"
            time.sleep(0.01)

    def _work(self, number: int) -> None:
        store = PostgresStore(self.url, busy_timeout_s=PATIENCE_S)
        try:
            turn = 0
            while not self.stop.is_set():
                turn += 1
                self._turn(store, f"W{number}", f"T{number}-{turn}")
        except BaseException as error:
            self.failures.append(error)
        finally:
            store.close()

    def _turn(self, store: PostgresStore, agent_id: str, task_id: str) -> None:
        """Add, claim, complete; each is known by its answer alone."""
        if self._refused(tasks.add_task(store, task_id=task_id, title="t")):
            return
        given = claims.claim(store, task_id=task_id, agent_id=agent_id)
        if self._refused(given):
            return
        assert not isinstance(given, Refused)
        self.granted.append((task_id, given.lease.token, given.lease.lease_id))
        if not self._refused(endings.complete(store, lease_id=given.lease.lease_id)):
            self.completed.append(task_id)
            self.at.append(time.monotonic())

    def _refused(self, answer: object) -> bool:
        if isinstance(answer, Refused):
            self.refused[answer.code] += 1
        return isinstance(answer, Refused)

    def outage_s(self) -> float:
        """The longest time in which nothing was completed."""
        times = sorted(self.at)
        return max(after - before for before, after in itertools.pairwise(times))


@dataclass
class Outcome:
    """What a failover did."""

    granted: int
    completed: int
    lost: int
    outage_s: float
    refused: Counter[str]


def fail_over(*, synchronous: bool, workers: int = 8, before: int = 100, after: int = 100) -> Outcome:
    """Kill the primary when so many tasks are completed, promote the standby, and go on for so many more."""
    primary = Cluster(**QUICK).create().start()
    wire = Proxy(primary.port)
    standby = primary.standby(port=wire.port, **QUICK).start()
    try:
        database = primary.new_database()
        PostgresStore(primary.url(database)).close()
        if synchronous:
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
        _await_caught_up(primary, "sync" if synchronous else "async")
        url = f"postgresql://tenure@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{database}"
        load = Load(url, workers)
        load.start()
        load.await_count(before)
        if not synchronous:
            # The standby falls behind; the primary does not care.
            wire.stop_forwarding()
            load.await_count(len(load.completed) + before)
        primary.kill()
        wire.close()
        standby.promote()
        load.await_count(len(load.completed) + after)
        load.end()
        return _judged(standby.url(database), load)
    finally:
        wire.close()
        standby.remove()
        primary.remove()


def _await_caught_up(primary: Cluster, sync_state: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while primary.execute("SELECT state, sync_state FROM pg_stat_replication") != [("streaming", sync_state)]:
        assert time.monotonic() < give_up_at, "the standby does not follow"
        time.sleep(0.05)


def _judged(url: str, load: Load) -> Outcome:
    """What the promoted standby has of what was acknowledged; nothing may be there twice, and nothing damaged."""
    assert load.failures == []
    store = ProbedPostgres(url)
    leases = dict(store.connection.execute("SELECT lease_id, token FROM leases").fetchall())
    done = {row[0] for row in store.connection.execute("SELECT task_id FROM tasks WHERE status = 'done'").fetchall()}
    lost = sum(leases.get(lease_id) != token for _, token, lease_id in load.granted)
    lost += sum(task_id not in done for task_id in load.completed)
    # Tokens that the database has and nobody was told of count too.
    told = {(task_id, token): lease_id for task_id, token, lease_id in load.granted}
    assert len(told) == len(load.granted), "a (task, token) was issued twice"
    for task_id, token, lease_id in store.connection.execute("SELECT task_id, token, lease_id FROM leases").fetchall():
        assert told.get((task_id, token), lease_id) == lease_id, "a (task, token) was issued twice"
    assert store.integrity_faults() == []
    assert ok(receipts.verify(store)).faults == ()
    store.close()
    return Outcome(len(load.granted), len(load.completed), lost, load.outage_s(), load.refused)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Kill a primary under load and promote its standby.")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=1_000, help="completed before the kill, and after it")
    asked = parser.parse_args(arguments)
    found = fail_over(synchronous=not asked.asynchronous, workers=asked.workers, before=asked.tasks, after=asked.tasks)
    kind = "asynchronous, behind" if asked.asynchronous else "synchronous"
    print(
        f"standby {kind}: {found.granted:,} leases and {found.completed:,} completions acknowledged, {found.lost} of"
        f" them lost; no token twice, ledger intact; no completion for {found.outage_s:.2f} s;"
        f" refused: {dict(found.refused)}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
