"""Does the cost of a verb grow with the fleet? Each verb on a small and on a large store, as ratios within one run.

    python benchmarks/scale.py

The two sides are measured in turns, a short round each, so that whatever else the machine does falls on both. Three
costs are compared, since each has its own blind spot:

    time   the wall clock, as a caller waits, with synchronous=FULL: the best round's median, since disks are noisy
    cpu    the processor time of a whole round, checkpoints included: the best round's mean
    steps  SQLite's virtual machine instructions, which repeat exactly, but do not see a page that was not in the cache

Ends with status 1 and names the rows when a ratio reaches LIMIT. The large stores are written by SQL that copies one
row made by the engine itself, because adding a million tasks by verbs would take an hour; what is copied satisfies the
engine's invariants (counts, timers, the ready index), but has no receipts.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tenure.core.errors import Refused
from tenure.engine import agents, claims, endings, projects, recovery, tasks
from tenure.engine.touch import touch
from tenure.store.sqlite import SqliteStore

LIMIT = 1.5
ROUNDS = 15
CALLS = 30
STEPS_CALLS = 20
# What both sides have to give out: enough for two comparisons of ROUNDS * CALLS + STEPS_CALLS claims.
READY = 1_000
FAR_MS = 30 * 86_400_000

Call = Callable[[], object]
# A measured call, and what puts the store back into the state it was found in.
Pair = tuple[Call, Call]


def ok(answer: Any) -> Any:
    """The answer of a verb that must not refuse."""
    assert not isinstance(answer, Refused), answer
    return answer


def must(verb: Callable[..., Any], *args: Any, **arguments: Any) -> Any:
    """Call a verb that must not refuse."""
    return ok(verb(*args, **arguments))


def nothing() -> None:
    """What restores a store that a call left as it was."""


# -- the stores -------------------------------------------------------------------------------------------------------


class Fixture:
    """A store that is filled by copying rows."""

    def __init__(self, directory: str, name: str) -> None:
        self.store = SqliteStore(os.path.join(directory, name + ".db"))
        self.random = random.Random(name)
        self.agent_ids: list[str] = []
        ok(agents.register(self.store, agent_id="template"))

    def copy(self, table: str, count: int, where: str, **changes: str) -> None:
        """Copy the one row that fits `where`; `changes` are SQL over `n.i`, which counts from 1, and the row `o`."""
        if count < 1:
            return
        names = [row[1] for row in self.store.connection.execute(f"PRAGMA table_info({table})")]
        names = [name for name in names if not (name == "key" and table == "tasks")]
        values = ", ".join(changes.get(name, f"o.{name}") for name in names)
        self.store.connection.execute(
            f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM n, {table} o WHERE {where}"
        )

    def ready(self, count: int, *, project: str = "default", prefix: str = "ready", **fields: Any) -> None:
        """Tasks that anyone may have."""
        first = ok(tasks.add_task(self.store, task_id=f"{prefix}-0", title="A task", project_id=project, **fields))
        self.copy(
            "tasks",
            count - 1,
            f"o.key = {first.key}",
            task_id=f"'{prefix}-' || n.i",
            rank_ms="o.rank_ms + n.i % 1000",
        )

    def done(self, count: int, project: str) -> None:
        """Tasks that are finished."""
        self.ready(1, project=project, prefix="done")
        claimed = ok(claims.claim(self.store, task_id="done-0", project_id=project, agent_id="template")).task
        ok(endings.complete(self.store, task_id="done-0", project_id=project, agent_id="template"))
        self.copy(
            "tasks",
            count - 1,
            f"o.key = {claimed.key}",
            task_id="'done-' || n.i",
            obligation="'none'",
            receipt_count="0",
            receipt_hash="''",
        )

    def waiting(self, count: int) -> None:
        """Tasks that wait for not_before, each with its timer."""
        later_ms = self.store.look(lambda tx: tx.now_ms) + FAR_MS
        first = ok(tasks.add_task(self.store, task_id="waiting-0", title="A later task", not_before_ms=later_ms))
        self.copy(
            "tasks",
            count - 1,
            f"o.key = {first.key}",
            task_id="'waiting-' || n.i",
            not_before_ms="o.not_before_ms + n.i",
            rank_ms="o.rank_ms + n.i",
        )
        self.store.connection.execute(
            "INSERT INTO timers (kind, ref, wake_at_ms) SELECT 'task', CAST(key AS TEXT), not_before_ms FROM tasks "
            f"WHERE waiting = 1 AND key <> {first.key}"
        )

    def held(self, count: int) -> None:
        """Live leases, each of another agent on another task, with random ids and their timers and events."""
        ok(tasks.add_task(self.store, task_id="held-0", title="A task at work"))
        lease = ok(claims.claim(self.store, task_id="held-0", agent_id="template", ttl_s=7 * 86_400)).lease
        self.copy(
            "agents", count - 1, "o.agent_id = 'template'", agent_id="'A' || hex(randomblob(8))", name="'agent-' || n.i"
        )
        execute = self.store.connection.execute
        execute(
            "CREATE TEMP TABLE holders AS SELECT row_number() OVER () AS i, agent_id FROM agents "
            "WHERE agent_id <> 'template'"
        )
        execute("CREATE UNIQUE INDEX temp.holder ON holders (i)")
        self.copy(
            "tasks",
            count - 1,
            f"o.key = {lease.task_key}",
            task_id="'held-' || n.i",
            assigned_to="(SELECT agent_id FROM holders h WHERE h.i = n.i)",
            obligation="'none'",
            receipt_count="0",
            receipt_hash="''",
        )
        self.copy(
            "leases",
            count - 1,
            f"o.lease_id = '{lease.lease_id}'",
            lease_id="'lease-' || hex(randomblob(13))",
            task_key=f"{lease.task_key} + n.i",
            task_id="'held-' || n.i",
            agent_id="(SELECT agent_id FROM holders h WHERE h.i = n.i)",
            wake_at_ms="o.wake_at_ms - n.i",
        )
        execute(
            "INSERT INTO timers (kind, ref, wake_at_ms) SELECT 'lease', lease_id, wake_at_ms FROM leases "
            f"WHERE state = 'active' AND lease_id <> '{lease.lease_id}'"
        )
        execute(
            "INSERT INTO events (at_ms, kind, project_id, task_key, task_id, lease_id, agent_id, data) "
            "SELECT granted_at_ms, 'granted', project_id, task_key, task_id, lease_id, agent_id, '{}' FROM leases"
        )
        self.agent_ids = [row[0] for row in execute("SELECT agent_id FROM holders")]

    def finish(self) -> None:
        """Put what was copied where a store that has lived has it: in the file, not in its journal."""
        self.store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def anyone(self) -> str:
        return self.random.choice(self.agent_ids) if self.agent_ids else "template"


def built(directory: str, name: str, fill: Callable[[Fixture], None]) -> Fixture:
    fixture = Fixture(directory, name)
    # The copies are not acknowledged to anybody, so they need not wait for the disk.
    fixture.store.connection.execute("PRAGMA synchronous=OFF")
    fill(fixture)
    fixture.finish()
    fixture.store.connection.execute("PRAGMA synchronous=FULL")
    return fixture


# -- the calls --------------------------------------------------------------------------------------------------------


def touching(fixture: Fixture) -> Iterator[Pair]:
    while True:
        yield partial(must, touch, fixture.store, agent_id=fixture.anyone()), nothing


def ticking(fixture: Fixture) -> Iterator[Pair]:
    def tick() -> None:
        assert ok(recovery.advance(fixture.store)).fired == 0

    while True:
        yield tick, nothing


def claiming(fixture: Fixture, project: str = "default", **wishes: Any) -> Iterator[Pair]:
    """A claim-next, then the completion of what it gave."""
    grants: list[Any] = []

    def take(agent_id: str) -> None:
        grants.append(must(claims.claim_next, fixture.store, agent_id=agent_id, project_id=project, **wishes))

    def finish() -> None:
        must(endings.complete, fixture.store, lease_id=grants.pop().lease.lease_id)

    while True:
        yield partial(take, fixture.anyone()), finish


def completing(fixture: Fixture) -> Iterator[Pair]:
    """A completion. What it needs, a claim, is made before it is handed out."""
    while True:
        grant = must(claims.claim_next, fixture.store, agent_id=fixture.anyone(), project_id="default")
        yield partial(must, endings.complete, fixture.store, lease_id=grant.lease.lease_id), nothing


def asking_in_vain(fixture: Fixture, project: str) -> Iterator[Pair]:
    def ask() -> None:
        answer = claims.claim_next(fixture.store, agent_id="template", project_id=project)
        assert isinstance(answer, Refused)
        assert answer.code == "nothing_ready", answer

    while True:
        yield ask, nothing


# -- measuring --------------------------------------------------------------------------------------------------------


class Side:
    """One side of a comparison."""

    def __init__(self, fixture: Fixture, calls: Iterator[Pair]) -> None:
        self.fixture = fixture
        self.calls = calls
        self.times: list[float] = []
        self.medians: list[float] = []
        self.cpu: list[float] = []
        self.steps = 0.0

    def round(self) -> None:
        spent = 0.0
        for _ in range(CALLS):
            call, restore = next(self.calls)
            cpu, begun = time.process_time(), time.perf_counter()
            call()
            self.times.append(time.perf_counter() - begun)
            spent += time.process_time() - cpu
            restore()
        self.medians.append(statistics.median(self.times[-CALLS:]))
        self.cpu.append(spent / CALLS)

    def count_steps(self) -> None:
        """How many instructions SQLite executes for a call."""
        connection, count = self.fixture.store.connection, 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        for _ in range(STEPS_CALLS):
            call, restore = next(self.calls)
            connection.set_progress_handler(step, 1)
            call()
            connection.set_progress_handler(None, 1)
            restore()
        self.steps = count / STEPS_CALLS

    def costs(self) -> tuple[float, float, float]:
        return min(self.medians), min(self.cpu), self.steps


HEADER = ("", "small p50", "large p50", "time", "cpu", "steps")
SHAPE = "{:<58} {:>10} {:>10} {:>6} {:>6} {:>6}"


def compare(name: str, small: Side, large: Side) -> list[str]:
    """Measure and print a row; the ratios that reach the limit are returned by name."""
    for side in (small, large):
        side.count_steps()
    for _ in range(ROUNDS):
        small.round()
        large.round()
    ratios = [costly / cheap for costly, cheap in zip(large.costs(), small.costs(), strict=True)]
    absolute = [f"{statistics.median(side.times) * 1e6:,.0f} µs" for side in (small, large)]
    print(SHAPE.format(name, *absolute, *(f"{ratio:.2f}" for ratio in ratios)), flush=True)
    return [f"{name}: {cost} {ratio:.2f}" for cost, ratio in zip(HEADER[3:], ratios, strict=True) if ratio >= LIMIT]


def leases(directory: str) -> list[str]:
    """1,000 and 100,000 live leases."""

    def fill(count: int) -> Callable[[Fixture], None]:
        def filled(fixture: Fixture) -> None:
            fixture.ready(READY)
            fixture.held(count)

        return filled

    small = built(directory, "leases-small", fill(1_000))
    large = built(directory, "leases-large", fill(100_000))
    over = []
    for name, calls in (
        ("touch", touching),
        ("claim_next", claiming),
        ("complete", completing),
        ("idle monitor tick", ticking),
    ):
        over += compare(f"{name}, 1,000 / 100,000 live leases", Side(small, calls(small)), Side(large, calls(large)))
    return over


def queue(directory: str) -> list[str]:
    """1,000 and 1,000,000 tasks of which 10,000 wait; as many that are done; 200 capability sets; 16 kinds."""
    kinds = [f"kind-{number}" for number in range(claims.KINDS_MAX)]

    def fill(count: int, waiting: int, per_set: int) -> Callable[[Fixture], None]:
        def filled(fixture: Fixture) -> None:
            for project in ("finished", "sets"):
                ok(projects.create_project(fixture.store, project_id=project))
            fixture.ready(count - waiting)
            fixture.waiting(waiting)
            fixture.done(count, "finished")
            for number in range(200):
                fixture.ready(per_set, project="sets", prefix=f"set-{number}", requires=[f"capability-{number}"])

        return filled

    small = built(directory, "queue-small", fill(1_000, 10, 5))
    large = built(directory, "queue-large", fill(1_000_000, 10_000, 1_000))
    over = []
    for name, calls in (
        ("claim_next", claiming),
        ("claim_next, 16 absent kinds", lambda side: claiming(side, preferred_kinds=kinds)),
    ):
        over += compare(f"{name}, 1,000 / 1,000,000 tasks", Side(small, calls(small)), Side(large, calls(large)))
    over += compare(
        "claim_next in vain, 1,000 / 1,000,000 done tasks",
        Side(small, asking_in_vain(small, "finished")),
        Side(large, asking_in_vain(large, "finished")),
    )
    over += compare(
        "claim_next of 200 capability sets, 1,000 / 200,000 tasks",
        Side(small, claiming(small, "sets")),
        Side(large, claiming(large, "sets")),
    )
    return over


def main() -> int:
    begun = time.monotonic()
    print(SHAPE.format(*HEADER))
    with tempfile.TemporaryDirectory(prefix="tenure-scale-") as directory:
        over = leases(directory) + queue(directory)
    print(f"\nRatios are large to small; each must stay below {LIMIT}. Took {time.monotonic() - begun:.0f} s.")
    for line in over:
        print("grows with the fleet:", line)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
