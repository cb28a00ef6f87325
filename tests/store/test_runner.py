"""The runner: many verbs in one commit, each answered after it and each with the truth about its own."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import claims, load, projects, tasks
from tenure.store.runner import GAP_S, Job, Runner, deliver
from tenure.store.sqlite import SqliteStore
from tenure.store.store import StoreFault, Transaction
from tests.support import add, dump, join, ok, take

WITHIN_S = 60.0


@pytest.fixture
def runner(store: SqliteStore) -> Iterator[Runner]:
    made = Runner(store)
    yield made
    made.close()


@pytest.fixture
def other(store: SqliteStore) -> Iterator[SqliteStore]:
    """Another connection to the same file."""
    opened = store.clone()
    yield opened
    opened.close()


def adding(task_id: str, **fields: Any) -> Callable[[Transaction], Any]:
    checked = tasks.add_task.check({"task_id": task_id, "title": f"Task {task_id}", **fields})
    assert not isinstance(checked, Refused)
    return lambda tx: tasks.add_task.body(tx, **checked)


def result(future: Any) -> Any:
    return future.result(WITHIN_S)


def stored(store: SqliteStore) -> set[str]:
    return {str(row[0]) for row in store.connection.execute("SELECT task_id FROM tasks")}


class Held:
    """Holds the writer inside a first body, so that what is queued meanwhile is one batch."""

    def __init__(self, runner: Runner) -> None:
        self._entered, self._leave = threading.Event(), threading.Event()
        self.future = runner.write(self._body)
        assert self._entered.wait(WITHIN_S)

    def _body(self, tx: Transaction) -> None:
        self._entered.set()
        assert self._leave.wait(WITHIN_S)

    def let_go(self) -> None:
        self._leave.set()
        result(self.future)


# -- nothing is answered before the commit ----------------------------------------------------------------------------


def test_answer_comes_after_the_commit(runner: Runner, other: SqliteStore) -> None:
    for number in range(50):
        result(runner.write(adding(f"T-{number}")))
        assert f"T-{number}" in stored(other)


def test_no_answer_is_delivered_while_its_data_is_invisible(
    store: SqliteStore, other: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.runner.HOLD_S", WITHIN_S)
    seen: list[bool] = []

    def watching(jobs: Any) -> None:
        visible = stored(other)
        seen.extend(job.outcome.answer.task_id in visible for job in jobs if job.outcome.answer is not None)
        deliver(jobs)

    runner = Runner(store, deliver=watching)
    held = Held(runner)
    futures = [runner.write(adding(f"T-{number}")) for number in range(200)]
    held.let_go()
    for future in futures:
        result(future)
    runner.close()
    assert seen == [True] * 200
    assert runner.batches < 200


def test_bodies_that_wait_together_share_a_commit(
    runner: Runner, other: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take longer for three bodies than a batch may last.
    monkeypatch.setattr("tenure.store.runner.HOLD_S", WITHIN_S)
    held = Held(runner)
    before = runner.batches
    futures = [runner.write(adding(f"T-{number}")) for number in range(3)]
    assert not any(future.done() for future in futures)
    held.let_go()
    for future in futures:
        result(future)
    assert stored(other) == {"T-0", "T-1", "T-2"}
    # They come in the batch that was held open, or in the next one.
    assert runner.batches - before <= 2


# -- each verb for itself ---------------------------------------------------------------------------------------------


def test_exception_of_one_body_undoes_that_body_alone(runner: Runner, other: SqliteStore) -> None:
    def failing(tx: Transaction) -> None:
        adding("T-bad")(tx)
        raise ZeroDivisionError

    first, bad, last = runner.write(adding("T-1")), runner.write(failing), runner.write(adding("T-2"))
    with pytest.raises(ZeroDivisionError):
        result(bad)
    assert result(first).task_id == "T-1"
    assert result(last).task_id == "T-2"
    assert stored(other) == {"T-1", "T-2"}


def test_mistake_in_a_statement_is_an_exception_and_no_fault_of_the_store(runner: Runner) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        result(
            runner.write(lambda tx: tx.do("add_project", project_id="default", name="", settings="", created_at_ms=0))
        )


def test_refusal_keeps_what_was_written_with_it(runner: Runner, store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    join(store, "A1")
    take(store, "A1", profile="cli")
    join(store, "A2")
    clock.advance(3600)
    checked = claims.claim_next.check({"agent_id": "A2", "profile": "cli", "capabilities": []})
    assert not isinstance(checked, Refused)
    grant = result(runner.write(lambda tx: claims.claim_next.body(tx, **checked)))
    assert grant.lease.agent_id == "A2"


def test_settled_recovery_survives_the_exception_that_follows_it(
    runner: Runner, store: SqliteStore, other: SqliteStore, clock: ManualClock
) -> None:
    add(store)
    join(store, "A1")
    take(store, "A1", profile="cli")
    clock.advance(3600)
    checked = claims.claim_next.check({"agent_id": "A2", "profile": "cli"})
    assert not isinstance(checked, Refused)

    def claim_and_fail(tx: Transaction) -> None:
        claims.claim_next.body(tx, **checked)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        result(runner.write(claim_and_fail))
    states = [row[0] for row in other.connection.execute("SELECT state FROM leases")]
    # The recovery stands; the claim that failed does not.
    assert states == ["expired"]
    assert [row[0] for row in other.connection.execute("SELECT status FROM tasks")] == ["todo"]


# -- a store that fails -----------------------------------------------------------------------------------------------


def page_count(store: SqliteStore, most: int | None = None) -> int:
    if most is not None:
        store.connection.execute(f"PRAGMA max_page_count={most}")
    return int(store.connection.execute("PRAGMA page_count").fetchone()[0])


def test_full_disk_in_a_batch_answers_every_body_truthfully(tmp_path: Path, clock: ManualClock) -> None:
    store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock)
    other = store.clone()
    # Room for some of the bodies: SQLite then says that the disk is full.
    page_count(store, page_count(store) + 40)
    runner = Runner(store)
    held = Held(runner)
    futures = {f"T-{number}": runner.write(adding(f"T-{number}", body="x" * 20_000)) for number in range(20)}
    held.let_go()
    answers = {task_id: outcome(future) for task_id, future in futures.items()}
    runner.close()
    done = {task_id for task_id, answer in answers.items() if not isinstance(answer, Refused)}
    assert 0 < len(done) < 20
    assert {answer.code for answer in answers.values() if isinstance(answer, Refused)} == {"store_full"}
    assert stored(other) == done
    assert other.integrity_faults() == []
    page_count(store, 1_000_000)
    assert ok(tasks.add_task(store, task_id="T-more", title="x" * 100, body="y" * 20_000)).task_id == "T-more"
    other.close()
    store.close()


def outcome(future: Any) -> Any:
    """A body's answer; a fault of the store as the refusal that it carries."""
    try:
        return result(future)
    except StoreFault as failed:
        return failed.refusal


class LostBatch(SqliteStore):
    """A store whose next commit of a batch fails as a full disk makes it: the transaction is gone with the error."""

    lose = 0

    def run_many(self, take: Callable[[], Callable[[Transaction], Any] | None], carry: Any = None) -> Any:
        if not self.lose:
            return super().run_many(take, carry)
        self.lose -= 1

        def taking() -> Callable[[Transaction], Any] | None:
            body = take()
            if body is None:
                self.connection.execute("ROLLBACK")
            return body

        return super().run_many(taking, carry)


def test_batch_whose_transaction_was_closed_is_run_again_body_by_body(tmp_path: Path, clock: ManualClock) -> None:
    store = LostBatch(str(tmp_path / "tenure.db"), clock=clock)
    runner = Runner(store)
    runs: list[str] = []

    def failing(tx: Transaction) -> None:
        runs.append("failing")
        raise ZeroDivisionError

    held = Held(runner)
    store.lose = 2
    first, bad, last = runner.write(adding("T-1")), runner.write(failing), runner.write(adding("T-2"))
    held.let_go()
    assert result(first).task_id == "T-1"
    with pytest.raises(ZeroDivisionError):
        result(bad)
    assert result(last).task_id == "T-2"
    assert stored(store) == {"T-1", "T-2"}
    assert len(runs) <= 2
    runner.close()
    store.close()


def test_store_that_cannot_be_written_refuses_everyone_who_waits_at_once(tmp_path: Path, clock: ManualClock) -> None:
    store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock, busy_timeout_s=0.2)
    runner = Runner(store)
    blocker = sqlite3.connect(store.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    answers = [result(runner.write(adding(f"T-{number}"))) for number in range(1)]
    futures = [runner.write(adding(f"T-{number}")) for number in range(100)]
    answers += [result(future) for future in futures]
    assert {answer.code for answer in answers} == {"store_busy"}
    blocker.execute("ROLLBACK")
    blocker.close()
    assert result(runner.write(adding("T-after"))).task_id == "T-after"
    assert stored(store) == {"T-after"}
    runner.close()
    store.close()


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_queue_that_is_full_refuses_with_overloaded(store: SqliteStore, other: SqliteStore) -> None:
    runner = Runner(store, waiting_max=3)
    held = Held(runner)
    accepted = [runner.write(adding(f"T-{number}")) for number in range(3)]
    with pytest.raises(StoreFault) as refused:
        runner.write(adding("T-too-many"))
    assert refused.value.refusal.code == "overloaded"
    assert refused.value.refusal.facts["retry_after_s"] == 1
    held.let_go()
    for future in accepted:
        result(future)
    assert stored(other) == {"T-0", "T-1", "T-2"}
    runner.close()


def test_readers_do_not_wait_for_the_writer(runner: Runner) -> None:
    held = Held(runner)
    assert result(runner.read(lambda tx: tx.one("project", project_id="default")))["project_id"] == "default"
    held.let_go()


def test_reader_that_fails_gets_its_error_and_goes_on(runner: Runner) -> None:
    def failing(tx: Transaction) -> None:
        raise ZeroDivisionError

    for _ in range(4):
        with pytest.raises(ZeroDivisionError):
            result(runner.read(failing))
    assert result(runner.read(lambda tx: tx.now_ms)) > 0


def test_close_runs_what_was_accepted_and_nothing_more(store: SqliteStore, other: SqliteStore) -> None:
    runner = Runner(store)
    futures = [runner.write(adding(f"T-{number}")) for number in range(100)]
    futures += [runner.read(lambda tx: tx.now_ms) for _ in range(20)]
    runner.close()
    assert all(future.done() for future in futures)
    assert len(stored(other)) == 100
    with pytest.raises(StoreFault):
        runner.write(adding("T-late"))


def test_writer_tells_what_others_write_and_not_its_own(store: SqliteStore, other: SqliteStore) -> None:
    told = threading.Semaphore(0)
    runner = Runner(store, written_elsewhere=told.release)
    for number in range(20):
        result(runner.write(adding(f"T-{number}")))
    assert not told.acquire(timeout=0.1)
    add(other, "T-elsewhere")
    assert told.acquire(timeout=WITHIN_S)
    runner.close()


def test_future_is_made_by_whom_the_caller_names(store: SqliteStore) -> None:
    made: list[Future[Any]] = []

    def make() -> Future[Any]:
        made.append(Future())
        return made[-1]

    runner = Runner(store, make_future=make)
    future = runner.write(lambda tx: tx.now_ms)
    assert result(future) > 0
    assert made == [future]
    runner.close()
    assert Job(lambda tx: None, future).outcome is None


# -- others get through -----------------------------------------------------------------------------------------------


def verb_of_a_process(path: str, name: str) -> None:
    """What a command does: one verb on a connection of its own."""
    store = SqliteStore(path)
    ok(tasks.add_task(store, task_id=name, title="From a process of its own"))
    store.close()


def test_processes_are_not_starved_by_a_saturated_runner(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "tenure.db"))
    runner = Runner(store)
    stop = threading.Event()
    written: list[Any] = []

    def saturate() -> None:
        number = 0
        while not stop.is_set():
            futures = [runner.write(adding(f"T-{number + offset}")) for offset in range(200)]
            number += 200
            written.extend(result(future) for future in futures)

    saturating = threading.Thread(target=saturate)
    saturating.start()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=verb_of_a_process, args=(store.path, f"P-{number}")) for number in range(16)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(5 * WITHIN_S)
    # Those that came to their end did so while the runner was busy all the time.
    stop.set()
    saturating.join()
    runner.close()
    assert [process.exitcode for process in processes] == [0] * 16
    assert {f"P-{number}" for number in range(16)} <= stored(store)
    assert len(written) >= 200
    assert len(dump(store, "tasks")) == len(written) + 16
    store.close()


# -- carried bodies ---------------------------------------------------------------------------------------------------


class Carrier:
    """Runs steps on a thread of its own and waits for them, as a server's loop does."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="carrier")
        self.carried = 0
        self.not_before: list[float] = []

    def __call__(self, step: Callable[[], None], not_before: float) -> None:
        self.carried += 1
        self.not_before.append(not_before)
        time.sleep(max(0.0, not_before - time.monotonic()))
        self._pool.submit(step).result(WITHIN_S)


def thread_of(tx: Transaction) -> str:
    return threading.current_thread().name


@pytest.fixture
def carrier() -> Carrier:
    return Carrier()


@pytest.fixture
def carried(store: SqliteStore, carrier: Carrier) -> Iterator[Runner]:
    made = Runner(store, carry=carrier)
    yield made
    made.close()


def test_carried_bodies_run_on_the_carriers_thread_and_long_ones_on_the_writers(carried: Runner) -> None:
    assert result(carried.write(thread_of)).startswith("carrier")
    assert result(carried.write(thread_of, long=True)) == "tenure-writer"


def test_carried_batch_is_told_to_leave_the_lock_free_after_the_one_before(carried: Runner, carrier: Carrier) -> None:
    written: list[float] = []
    for number in range(3):
        result(carried.write(adding(f"T-{number}")))
        written.append(time.monotonic())
    for earlier, later in zip(carrier.not_before, carrier.not_before[1:], strict=False):
        assert later - earlier >= GAP_S
    # The gap begins with the commit, which was before its answer.
    assert all(told <= then + GAP_S for then, told in zip(written, carrier.not_before[1:], strict=False))


def test_carried_long_body_in_the_middle_keeps_the_order(carried: Runner, store: SqliteStore) -> None:
    seen: list[int] = []

    def noting(number: int) -> Callable[[Transaction], None]:
        return lambda tx: seen.append(number)

    held = Held(carried)
    futures = [carried.write(noting(number), long=number % 3 == 1) for number in range(9)]
    held.let_go()
    for future in futures:
        result(future)
    assert seen == list(range(9))


def test_carried_batch_waits_for_another_process_on_the_writers_thread(
    carried: Runner, carrier: Carrier, other: SqliteStore
) -> None:
    other.connection.execute("BEGIN IMMEDIATE")
    waiting = carried.write(adding("T-1"))
    # The carrier came back without the lock: it is free for others while the writer waits.
    deadline = time.monotonic() + WITHIN_S
    while carrier.carried < 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert carrier.carried == 1
    assert not waiting.done()
    other.connection.execute("ROLLBACK")
    result(waiting)
    assert stored(other) == {"T-1"}


def test_carried_body_that_raises_is_undone_alone(carried: Runner, other: SqliteStore) -> None:
    def failing(tx: Transaction) -> None:
        adding("T-bad")(tx)
        raise ZeroDivisionError

    held = Held(carried)
    first, bad, last = carried.write(adding("T-1")), carried.write(failing), carried.write(adding("T-2"))
    held.let_go()
    with pytest.raises(ZeroDivisionError):
        result(bad)
    result(first), result(last)
    assert stored(other) == {"T-1", "T-2"}


# -- what a connection remembers --------------------------------------------------------------------------------------


def reserved_owner(tx: Transaction) -> str:
    settings = load.settings_for(tx, "default")
    assert not isinstance(settings, Refused)
    return settings.reserved_owner


def naming(owner: str) -> Callable[[Transaction], Any]:
    checked = projects.configure.check({"document": {"tenure": {"reserved_owner": owner}}})
    assert not isinstance(checked, Refused)
    return lambda tx: projects.configure.body(tx, **checked)


def test_remembered_settings_follow_a_write_of_the_same_batch_and_of_another_process(
    runner: Runner, other: SqliteStore
) -> None:
    assert result(runner.write(reserved_owner)) == "Marcus"
    held = Held(runner)
    before, change, after = runner.write(reserved_owner), runner.write(naming("Mona")), runner.write(reserved_owner)
    held.let_go()
    result(change)
    assert (result(before), result(after)) == ("Marcus", "Mona")
    ok(projects.configure(other, document={"tenure": {"reserved_owner": "Otto"}}))
    assert result(runner.write(reserved_owner)) == "Otto"


def test_remembered_settings_are_forgotten_with_the_body_that_changed_them(runner: Runner) -> None:
    def changing_in_vain(tx: Transaction) -> None:
        naming("Mona")(tx)
        assert reserved_owner(tx) == "Mona"
        raise ZeroDivisionError

    held = Held(runner)
    bad, after = runner.write(changing_in_vain), runner.write(reserved_owner)
    held.let_go()
    with pytest.raises(ZeroDivisionError):
        result(bad)
    assert result(after) == "Marcus"
