"""Measure the store on PostgreSQL: against the bare statement, against other queues, and at a million tasks.

    python -m benchmarks.postgres [--quick] [--others PYTHON]

One server, made for this, with the settings a server has that nobody has tuned: every commit waits for the disk.
`--others` names the interpreter of an environment with PgQueuer and Procrastinate (`make bench-postgres` makes it).
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import uvloop

from tenure.core.errors import Refused
from tenure.engine import claims, endings, tasks, touch
from tenure.engine.verb import Verb
from tenure.store.postgres import PostgresStore
from tenure.store.postgres_runner import PostgresRunner
from tenure.store.runner import Job, deliver
from tests.postgres.cluster import Cluster

# How often each queue is measured, in turns with the others: a busy machine is so for all of them, and speed drifts.
TURNS = 21
WORKERS = 8
MANY = 32
# The statement that any queue on PostgreSQL comes down to, on a table of three columns made for it.
BARE = """
UPDATE bare SET state = 1 WHERE id = (
    SELECT id FROM bare WHERE state = 0 ORDER BY rank LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;
"""
# The same on this store's own table of tasks: what a claim would cost that decided nothing, and wrote no lease, timer,
# receipt and event.
BARE_TASK = """
UPDATE tasks SET status = 'in_progress', assigned_to = 'one', owner = 'agent', open_slots = 0,
    last_token = last_token + 1, updated_at_ms = 1700000000001, version = version + 1 WHERE key = (
    SELECT key FROM tasks
    WHERE project_id = 'default' AND requires = '' AND open_slots > 0 AND unmet = 0 AND waiting = 0
    ORDER BY rank_ms, key LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *;
"""


def must(answer: object) -> object:
    assert not isinstance(answer, Refused), answer
    return answer


def rate(step: Callable[[int], object], count: int) -> float:
    begun = time.perf_counter()
    for number in range(count):
        must(step(number))
    return count / (time.perf_counter() - begun)


def fill(cluster: Cluster, database: str, first: int, last: int) -> None:
    """Ready tasks, written as the engine writes them, all at once."""
    cluster.execute("INSERT INTO requirement_sets VALUES ('default', '') ON CONFLICT DO NOTHING", database)
    cluster.execute(
        "INSERT INTO tasks (project_id, task_id, title, status, priority, complexity, estimated_hours, progress,"
        " attempts, silent_recoveries, evidence, unmet, slots, open_slots, waiting, not_before_ms, retry_at_ms,"
        " rank_ms, last_token, created_at_ms, updated_at_ms)"
        " SELECT 'default', 'B' || n, 'A task', 'todo', 'medium', 'none', 4, 0, 0, 0, '0|0|', 0, 1, 1, 0, 0, 0,"
        f" 1700000000000 + n, 0, 1700000000000, 1700000000000 FROM generate_series({first}, {last}) n",
        database,
    )
    cluster.execute("VACUUM ANALYZE tasks", database)


def bare_table(cluster: Cluster) -> str:
    """A new database with 300,000 rows to claim."""
    database = cluster.new_database()
    cluster.execute("CREATE TABLE bare (id BIGINT PRIMARY KEY, state INT NOT NULL, rank BIGINT NOT NULL)", database)
    cluster.execute("INSERT INTO bare SELECT n, 0, n FROM generate_series(1, 300000) n", database)
    cluster.execute("CREATE INDEX bare_ready ON bare (rank) WHERE state = 0", database)
    cluster.execute("VACUUM ANALYZE bare", database)
    return database


def task_table(cluster: Cluster) -> str:
    """A new database of this store with 60,000 ready tasks."""
    database = cluster.new_database()
    PostgresStore(cluster.url(database)).close()
    fill(cluster, database, 1, 60_000)
    return database


def bare_claims(cluster: Cluster, database: str, text: str, clients: int, seconds: int) -> float:
    """pgbench, running one statement."""
    script = cluster.directory / "claim.sql"
    script.write_text(text)
    words = ["-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-T", str(seconds), "-f", str(script)]
    done = cluster.tool("pgbench", *words, "-h", "127.0.0.1", "-p", str(cluster.port), "-U", "tenure", database)
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


def single_claims(
    cluster: Cluster, database: str, clients: int, who: str, own: Callable[[], float], count: int, part: int
) -> None:
    """This store's claims beside pgbench's, in turns: a machine that is busy with other things is so for all."""
    rates: list[tuple[float, float, float]] = []
    for turn in range(5):
        seconds = max(1, 3 // part)
        bare = bare_claims(cluster, bare_table(cluster), BARE, clients, seconds)
        task = bare_claims(cluster, task_table(cluster), BARE_TASK, clients, seconds)
        first = (clients * 10 + turn) * 1_000_000
        fill(cluster, database, first, first + count - 1)
        rates.append((bare, task, own()))
    bare, task, claimed = (statistics.median(found) for found in zip(*rates, strict=True))
    label = f"pgbench, {clients} client{'s' if clients > 1 else ''}"
    print(f"{'bare claim, ' + label:<36}{bare:7.0f} /s")
    print(f"{'on the tasks, ' + label:<36}{task:7.0f} /s")
    print(f"{'single claims, ' + who:<36}{claimed:7.0f} /s   {claimed / bare:.2f} and {claimed / task:.2f} of those")


def commit_wait_ms(cluster: Cluster) -> float:
    """How long a commit waits for the disk: on this, more than on anything else, depends who is quickest."""
    database = cluster.new_database()
    cluster.execute("CREATE TABLE one (n BIGINT)", database)
    cluster.execute("INSERT INTO one VALUES (0)", database)
    medians = []
    with psycopg.connect(cluster.url(database), autocommit=True) as connection:
        for durable in ("on", "off"):
            connection.execute(f"SET synchronous_commit = {durable}".encode())
            times = []
            for _ in range(300):
                begun = time.perf_counter()
                connection.execute("UPDATE one SET n = n + 1")
                times.append((time.perf_counter() - begun) * 1000)
            medians.append(statistics.median(times))
    return medians[0] - medians[1]


def claim_costs_ms(cluster: Cluster, *queued: int) -> list[float]:
    """What a claim costs with so many tasks queued, measured in turns: a busy machine is so for all of them."""
    stores = []
    for count in queued:
        database = cluster.new_database()
        stores.append(PostgresStore(cluster.url(database)))
        stores[-1].announces = False
        fill(cluster, database, 1, count)
    times: list[list[float]] = [[] for _ in stores]
    for number in range(340):
        for store, taken in zip(stores, times, strict=True):
            begun = time.perf_counter()
            must(claims.claim_next(store, agent_id=f"agent{number % 20}"))
            taken.append((time.perf_counter() - begun) * 1000)
    for store in stores:
        store.close()
    return [statistics.median(taken[40:]) for taken in times]


def hot_ratio(cluster: Cluster, database: str, store: PostgresStore, beats: int) -> float:
    """How many of the heartbeats' updates stayed on their page."""
    names = [f"hot{number}" for number in range(100)]
    for name in names:
        must(claims.claim_next(store, agent_id=name))
    cluster.execute("SELECT pg_stat_reset()", database)
    for number in range(beats):
        must(touch.touch(store, agent_id=names[number % len(names)]))
    # Counts are told to the collector when a connection has been idle for a moment.
    store._connected().execute("SELECT pg_stat_force_next_flush()")
    query = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'leases'"
    updated, hot = cluster.execute(query, database)[0]
    assert updated >= beats * 0.9, (updated, beats)
    return float(hot) / float(updated)


class Other:
    """Another queue, in a process of its own, that does cycles when it is told to."""

    def __init__(self, python: str, name: str, url: str, workers: int) -> None:
        script = str(Path(__file__).with_name("postgres_others.py"))
        self._process = subprocess.Popen(
            [python, script, name, url, str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def rate(self, count: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(count, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=60)


class Own:
    """This engine's cycle, as a node does it: workers in an event loop, whose verbs the node's runner does."""

    def __init__(self, store: PostgresStore, workers: int) -> None:
        self._workers = workers
        self._done = 0
        self._loop = uvloop.new_event_loop()
        self._runner = PostgresRunner(store, deliver=self._deliver, make_future=self._loop.create_future)

    def _deliver(self, jobs: Sequence[Job]) -> None:
        self._loop.call_soon_threadsafe(deliver, jobs)

    def rate(self, count: int) -> float:
        each = max(1, count // self._workers)
        begun = time.perf_counter()
        self._loop.run_until_complete(self._all(each))
        taken_s = time.perf_counter() - begun
        self._done += each
        return each * self._workers / taken_s

    async def _all(self, count: int) -> None:
        await asyncio.gather(*(self._work(number, count) for number in range(self._workers)))

    async def _work(self, number: int, count: int) -> None:
        agent_id = f"cycle{number}"
        for turn in range(self._done, self._done + count):
            must(await self._call(tasks.add_task, task_id=f"C{number}-{turn}", title="A task", priority="critical"))
            while isinstance(given := await self._call(claims.claim_next, agent_id=agent_id), Refused):
                # Another worker has taken it, and left its own to this one a moment later.
                assert given.code == "nothing_ready", given
            must(await self._call(endings.complete, lease_id=given.lease.lease_id))

    async def _call(self, verb: Verb[..., Any], **arguments: Any) -> Any:
        checked = verb.check(arguments)
        assert not isinstance(checked, Refused), checked
        return await self._runner.write(partial(verb.body, **checked))

    def close(self) -> None:
        self._runner.close()
        self._loop.close()


class OwnClaims(Own):
    """The same node, of which workers only ask for one task after the other."""

    async def _work(self, number: int, count: int) -> None:
        for _ in range(count):
            must(await self._call(claims.claim_next, agent_id=f"many{number}"))


def cycles(cluster: Cluster, python: str | None, workers: int, count: int) -> None:
    """The full cycle, by this engine and the others in turns, each on a database of its own that is empty."""
    store = PostgresStore(cluster.url(cluster.new_database()))
    queues: dict[str, Own | Other] = {"tenure": Own(store, workers)}
    for name in ("pgqueuer", "procrastinate") if python is not None else ():
        queues[name] = Other(str(python), name, cluster.url(cluster.new_database()), workers)
    rates: dict[str, list[float]] = {name: [] for name in queues}
    for queue in queues.values():
        queue.rate(60 * workers)
    for turn in range(TURNS):
        # Not always in the same order.
        for name in sorted(queues, reverse=bool(turn % 2)):
            rates[name].append(queues[name].rate(count))
    for name, found in rates.items():
        label = f"full cycle, {workers} at once, {name}"
        told = f"{label:<36}{statistics.median(found):7.0f} /s   from {min(found):.0f} to {max(found):.0f}"
        if name != "tenure":
            # Of each turn, and not of the medians, which may be from different minutes.
            ratio = statistics.median(own / other for own, other in zip(rates["tenure"], found, strict=True))
            told += f", tenure {ratio:.2f} times that"
        print(told)
    for queue in queues.values():
        queue.close()
    store.close()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure the store on PostgreSQL.")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--others", metavar="PYTHON", help="an interpreter with PgQueuer and Procrastinate")
    asked = parser.parse_args(arguments)
    part = 10 if asked.quick else 1
    cluster = Cluster(deadlock_timeout="1s", autovacuum_naptime="60s").create().start()
    try:
        measure(cluster, part, asked.others)
    finally:
        cluster.remove()


def measure(cluster: Cluster, part: int, python: str | None) -> None:
    print(f"a commit's wait for the disk       {commit_wait_ms(cluster):8.2f} ms")
    database = cluster.new_database()
    store = PostgresStore(cluster.url(database))
    # A server's runner tells the other nodes itself, many commits at a time.
    store.announces = False
    count = 2_000 // part

    def one_by_one() -> float:
        return rate(lambda n: claims.claim_next(store, agent_id=f"one{n % 50}"), count // 3)

    fill(cluster, database, 1, 2 * count)
    one_by_one()
    single_claims(cluster, database, 1, "1 connection", one_by_one, count, part)
    together = OwnClaims(store, WORKERS)
    fill(cluster, database, 9_000_000, 9_000_000 + count)
    together.rate(count // 3)
    single_claims(
        cluster, database, WORKERS, f"{WORKERS} at once, 1 node", lambda: together.rate(count // 2), count, part
    )
    together.close()
    fill(cluster, database, 20_000_000, 20_000_000 + 100 * 30 - 1)
    batched = 100 * rate(lambda n: claims.offer(store, agent_id="batch", max_tasks=100), 30 // part)
    print(f"claims in batches of 100           {batched:8.0f} /s")

    for workers in (1, WORKERS, MANY):
        cycles(cluster, python, workers, 200 // part)
    print(f"heartbeats that are HOT updates    {hot_ratio(cluster, database, store, 2_000 // part):8.3f}")
    few_ms, many_ms = claim_costs_ms(cluster, 1_000, 1_000_000 // part)
    print(f"claim at 1,000 queued              {few_ms:8.2f} ms")
    print(f"claim at {1_000_000 // part:>9,} queued          {many_ms:8.2f} ms   {many_ms / few_ms:.2f} times that")
    store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
