"""Real processes that do the same thing at the same moment.

`race` starts each of them once; a job loops over its own rounds and meets the others at a barrier before each, because
starting an interpreter costs more than a hundred claims. Jobs live here and not in a test module, so that a child
imports no test framework.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

from tenure.clock import SystemClock
from tenure.core.errors import Refused
from tenure.engine import claims, endings, observe, recovery, tasks
from tenure.store.sqlite import SqliteStore
from tenure.store.store import StoreFault

# A bound, not an expectation: a machine that runs much else is slow.
PATIENCE_S = 600.0
_SPAWN = multiprocessing.get_context("spawn")


class LaterClock(SystemClock):
    """The machine's clocks, some seconds from now."""

    def __init__(self, seconds: int) -> None:
        self.ahead_ms = seconds * 1000

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def mono_ms(self) -> int:
        return super().mono_ms() + self.ahead_ms


class Racer(NamedTuple):
    """One process of a race."""

    rank: int
    path: str
    rounds: int
    barrier: Barrier

    def meet(self) -> None:
        """Wait until every racer is here."""
        self.barrier.wait(PATIENCE_S)


Job = Callable[[Racer], list[Any]]


def race(job: Job, path: str, *, racers: int, rounds: int) -> list[list[Any]]:
    """What each process answered, one list per process. A process that crashed fails the race with its traceback."""
    barrier = _SPAWN.Barrier(racers)
    running = []
    for rank in range(racers):
        ours, theirs = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(target=_run, args=(job, Racer(rank, path, rounds, barrier), theirs), daemon=True)
        process.start()
        theirs.close()
        running.append((process, ours))
    answers = []
    try:
        for _, pipe in running:
            assert pipe.poll(PATIENCE_S), "a racer did not finish in time"
            crashed, answer = pipe.recv()
            assert not crashed, answer
            answers.append(answer)
    finally:
        for process, pipe in running:
            pipe.close()
            process.join(0 if process.exitcode is None and len(answers) < racers else PATIENCE_S)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
    return answers


def _run(job: Job, racer: Racer, pipe: Connection) -> None:
    try:
        pipe.send((False, job(racer)))
    except BaseException:
        racer.barrier.abort()
        pipe.send((True, traceback.format_exc()))


def _said(answer: Any) -> str:
    return answer.code if isinstance(answer, Refused) else "won"


# -- jobs -------------------------------------------------------------------------------------------------------------


def claim_each(racer: Racer) -> list[str]:
    """Everyone claims the task of the round."""
    store = SqliteStore(racer.path)
    said = []
    for number in range(racer.rounds):
        racer.meet()
        said.append(_said(claims.claim(store, task_id=f"R{number:03}", agent_id=f"A{racer.rank}")))
    store.close()
    return said


def claim_next_of_one(racer: Racer) -> list[tuple[str, str]]:
    """Everyone asks for work when there is one task."""
    store = SqliteStore(racer.path)
    said = []
    for number in range(racer.rounds):
        if racer.rank == 0:
            assert not isinstance(tasks.add_task(store, task_id=f"R{number:03}", title="Next"), Refused)
        racer.meet()
        answer = claims.claim_next(store, agent_id=f"A{racer.rank}", profile="cli")
        said.append((_said(answer), "" if isinstance(answer, Refused) else answer.task.task_id))
        racer.meet()
    store.close()
    return said


def complete_own(racer: Racer) -> list[tuple[str, tuple[str, ...]]]:
    """Everyone completes its own task of the round, all of which others wait for."""
    store = SqliteStore(racer.path)
    said = []
    for number in range(racer.rounds):
        caller = {"task_id": f"R{number:03}-{racer.rank}", "agent_id": f"A{racer.rank}"}
        assert not isinstance(claims.claim(store, **caller), Refused)  # type: ignore[arg-type]
        racer.meet()
        answer = endings.complete(store, **caller)  # type: ignore[arg-type]
        said.append((_said(answer), () if isinstance(answer, Refused) else answer.unlocked))
    store.close()
    return said


def recover_due(racer: Racer) -> list[tuple[int, int]]:
    """Everyone looks at the timers when leases are due; who recovered how many, and how many its hook was told of."""
    store = SqliteStore(racer.path, clock=LaterClock(3_600))
    told: list[str] = []
    store.on_recovery_callback = lambda agent_id, task_id: told.append(task_id)
    counts = []
    for _ in range(racer.rounds):
        racer.meet()
        answer = recovery.advance(store, limit=1)
        assert not isinstance(answer, Refused)
        counts.append((answer.recovered, len(told)))
        told.clear()
    store.close()
    return counts


def claim_due(racer: Racer) -> list[str]:
    """Everyone claims a task whose holder is dead and not recovered yet."""
    store = SqliteStore(racer.path, clock=LaterClock(3_600))
    said = []
    for number in range(racer.rounds):
        racer.meet()
        said.append(_said(claims.claim(store, task_id=f"R{number:03}", agent_id=f"A{racer.rank}")))
    store.close()
    return said


def claim_with_one_key(racer: Racer) -> list[tuple[str, bool]]:
    """One request, sent twice: a client that retries before its first try was answered."""
    store = SqliteStore(racer.path)
    leases = []
    for number in range(racer.rounds):
        racer.meet()
        answer = claims.claim(store, task_id=f"R{number:03}", agent_id="A1", idempotency_key=f"key-{number}")
        assert not isinstance(answer, Refused), answer
        leases.append((answer.lease.lease_id, answer.resumed))
    store.close()
    return leases


def open_new(racer: Racer) -> list[str]:
    """Everyone opens the same new store at once and writes to it."""
    said = []
    for number in range(racer.rounds):
        racer.meet()
        try:
            store = SqliteStore(f"{racer.path}-{number}/tenure.db")
        except StoreFault as fault:
            said.append(fault.refusal.code)
            continue
        said.append(_said(tasks.add_task(store, task_id=f"T{racer.rank}", title="First")))
        racer.meet()
        store.close()
    return said


def come_and_go(racer: Racer) -> list[str]:
    """Command-line processes: each opens the store, says one thing, and closes it again, all the time."""
    said = []
    racer.meet()
    for number in range(racer.rounds):
        try:
            store = SqliteStore(racer.path)
        except StoreFault as fault:
            said.append(fault.refusal.message)
            continue
        if racer.rank % 2:
            said.append(_said(tasks.add_task(store, task_id=f"T{racer.rank}-{number}", title="Hello")))
        else:
            said.append(_said(observe.list_tasks(store, limit=1)))
        store.close()
    return said
