"""Many verbs in one commit: what they share, and what becomes of each when one of them goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import psycopg
import pytest

from tenure.core.errors import Refused
from tenure.engine import claims, endings, liveness, observe, projects, receipts, tasks
from tenure.engine.verb import Verb
from tenure.store import postgres, postgres_runner
from tenure.store.postgres import PostgresStore
from tenure.store.postgres_runner import BATCH_MAX, JOIN_AT, PostgresRunner, Turns
from tenure.store.runner import Job, deliver
from tenure.store.sqlite import BatchLost
from tenure.store.store import StoreFault, Transaction
from tests.postgres.proxy import Proxy
from tests.postgres.races import PATIENCE_S, Gate
from tests.postgres.support import ProbedPostgres
from tests.support import add, join, ok, refused, take

HOLD_S = 30.0
# How long a verb that is run by itself waits for a lock here: whoever waits behind it is not answered within patience.
ALONE_MS = int(PATIENCE_S * 5_000)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes all that waits together, and nobody gives a lock up, however slow the machine is."""
    monkeypatch.setattr(postgres_runner, "HOLD_S", PATIENCE_S)
    for module in (postgres, postgres_runner):
        monkeypatch.setattr(module, "LOCK_TIMEOUT_MS", ALONE_MS)
    for name in ("STATEMENT_TIMEOUT_MS", "IDLE_TIMEOUT_MS"):
        monkeypatch.setattr(postgres, name, ALONE_MS)


@pytest.fixture
def runner(store: ProbedPostgres) -> Iterator[PostgresRunner]:
    made = PostgresRunner(store, writers=1)
    yield made
    made.close()


def body(verb: Verb[..., Any], **arguments: Any) -> Callable[[Transaction], Any]:
    checked = verb.check(arguments)
    assert not isinstance(checked, Refused), checked
    return partial(verb.body, **checked)


def names(store: ProbedPostgres) -> list[str]:
    return sorted(view.task.task_id for view in ok(observe.list_tasks(store)))


def together(runner: PostgresRunner, *bodies: Callable[[Transaction], Any]) -> list[Any]:
    """The futures of bodies that wait in the queue together, while the only writer is kept busy."""
    free = threading.Event()
    first = runner.write(lambda tx: free.wait(PATIENCE_S))
    while runner.waiting:
        pass
    futures = [runner.write(body) for body in bodies]
    free.set()
    assert first.result(PATIENCE_S)
    return futures


class HeldUp:
    """A body that says when it is at work, and works until it is free; its answer is the thread that ran it."""

    def __init__(self) -> None:
        self.at_work, self.free = threading.Event(), threading.Event()

    def __call__(self, tx: Transaction) -> int:
        # A scout goes no further.
        tx.one("meta", key="none")
        self.at_work.set()
        assert self.free.wait(PATIENCE_S)
        return threading.get_ident()


# -- what a batch costs -----------------------------------------------------------------------------------------------


def test_batch_of_verbs_reads_once_and_writes_once(store: ProbedPostgres, trips: list[list[str]]) -> None:
    for number in range(4):
        add(store, f"T{number}")
        join(store, f"A{number}")
    held = [ok(claims.claim_next(store, agent_id=f"A{number}")).lease.lease_id for number in range(4)]
    trips.clear()
    store.run_many([body(endings.complete, lease_id=lease_id) for lease_id in held], HOLD_S)
    assert len(trips) == 2, trips
    assert sum(texts.count("COMMIT") for texts in trips) == 1
    assert {view.task.status for view in ok(observe.list_tasks(store))} == {"done"}
    assert ok(receipts.verify(store)).faults == ()


def test_runner_puts_what_waits_together_into_one_commit_and_a_lone_verb_into_its_own(
    store: ProbedPostgres, runner: PostgresRunner
) -> None:
    ok(runner.write(body(tasks.add_task, title="t")).result(PATIENCE_S))
    assert (runner.written, runner.batches) == (1, 1)
    futures = together(runner, *(body(tasks.add_task, title="t") for _ in range(BATCH_MAX + 2)))
    assert [ok(future.result(PATIENCE_S)).title for future in futures] == ["t"] * len(futures)
    # The one that kept the writer busy, a full batch, and the rest.
    assert runner.batches == 4
    assert len(ok(observe.list_tasks(store))) == BATCH_MAX + 3


def test_batch_gives_each_claim_a_task_of_its_own(store: ProbedPostgres, runner: PostgresRunner) -> None:
    for number in range(5):
        add(store, f"T{number}")
    futures = together(runner, *(body(claims.claim_next, agent_id=f"A{number}") for number in range(6)))
    given = [future.result(PATIENCE_S) for future in futures]
    assert sorted(grant.task.task_id for grant in given[:5]) == [f"T{number}" for number in range(5)]
    refused(given[5], "nothing_ready")


def test_verb_of_a_batch_is_judged_by_a_time_after_its_own_locks(store: ProbedPostgres) -> None:
    seen: list[int] = []

    def timed(tx: Transaction) -> None:
        seen.append(tx.now_ms)
        tx.one("meta", key="none")
        time.sleep(0.002)

    store.run_many([timed] * 3, HOLD_S)
    assert seen == sorted(set(seen))


def test_batch_that_has_lasted_long_enough_leaves_the_rest(store: ProbedPostgres) -> None:
    outcomes = store.run_many([lambda tx: 1, lambda tx: 2], 0.0)
    assert [outcome.answer for outcome in outcomes] == [1]


# -- whose turn it is -------------------------------------------------------------------------------------------------


def test_what_a_batch_leaves_over_is_done_while_others_have_the_turn(
    store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_runner, "HOLD_S", 0.0)
    runner = PostgresRunner(store, writers=3)
    for _ in range(5):
        futures = [runner.write(body(tasks.add_task, title="t")) for _ in range(3 * BATCH_MAX)]
        assert all(ok(future.result(PATIENCE_S)) for future in futures)
    runner.close()
    assert runner.written == 15 * BATCH_MAX


def test_another_writer_joins_in_where_the_one_at_work_is_held_up(store: ProbedPostgres) -> None:
    runner = PostgresRunner(store, writers=2)
    held_up = HeldUp()
    first = runner.write(held_up)
    assert held_up.at_work.wait(PATIENCE_S)
    ok(runner.write(body(tasks.add_task, title="t")).result(PATIENCE_S))
    assert not first.done()
    held_up.free.set()
    assert first.result(PATIENCE_S)
    runner.close()


def test_one_writer_takes_all_while_few_wait(store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_runner, "HELD_UP_S", PATIENCE_S)
    runner = PostgresRunner(store, writers=3)
    futures = together(runner, *(body(tasks.add_task, title="t") for _ in range(JOIN_AT - 1)))
    assert all(ok(future.result(PATIENCE_S)) for future in futures)
    # The one that was kept busy, and all the others in one.
    assert runner.batches == 2
    runner.close()


def test_writer_keeps_its_turn_from_batch_to_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one's connection would know nothing of what this one's does, and somebody would be woken each time."""
    monkeypatch.setattr(postgres_runner, "HELD_UP_S", PATIENCE_S)
    turns = Turns(lambda: 1)
    turns.wait()
    other = threading.Thread(target=turns.wait)
    other.start()
    for _ in range(3):
        turns.begin()
        turns.rest()
        assert turns._leader == threading.get_ident()
        turns.wait()
    turns.give_up()
    other.join(PATIENCE_S)
    assert turns._leader == other.ident


def test_writer_that_was_held_up_leaves_its_turn_to_the_one_who_took_it(store: ProbedPostgres) -> None:
    runner = PostgresRunner(store, writers=2)
    held_up = HeldUp()
    first = runner.write(held_up)
    assert held_up.at_work.wait(PATIENCE_S)
    other = runner.write(lambda tx: threading.get_ident()).result(PATIENCE_S)
    held_up.free.set()
    assert first.result(PATIENCE_S) != other
    assert {runner.write(lambda tx: threading.get_ident()).result(PATIENCE_S) for _ in range(5)} == {other}
    runner.close()


def test_writer_that_is_held_up_in_what_its_batch_left_over_keeps_nobody_from_the_queue(
    store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_runner, "HOLD_S", 0.0)
    runner = PostgresRunner(store, writers=2)
    held_up = HeldUp()
    monkeypatch.setattr(postgres_runner, "HELD_UP_S", PATIENCE_S)
    done, left = together(runner, body(tasks.add_task, title="t"), held_up)
    ok(done.result(PATIENCE_S))
    assert held_up.at_work.wait(PATIENCE_S)
    ok(runner.write(body(tasks.add_task, title="t")).result(PATIENCE_S))
    assert not left.done()
    held_up.free.set()
    assert left.result(PATIENCE_S)
    runner.close()


def test_caller_who_has_given_up_waiting_stops_nobodys_work(store: ProbedPostgres) -> None:
    runner = PostgresRunner(store, writers=1, connections=1)
    free = threading.Event()
    first = runner.write(lambda tx: free.wait(PATIENCE_S))
    gone = runner.write(body(tasks.add_task, title="t"))
    assert gone.cancel()
    free.set()
    assert first.result(PATIENCE_S)
    ok(runner.write(body(tasks.add_task, title="t")).result(PATIENCE_S))
    ok(runner.write(body(tasks.add_task, title="t"), long=True).result(PATIENCE_S))
    runner.close()
    assert len(ok(observe.list_tasks(store))) == 3


def test_answers_that_cannot_be_handed_over_stop_nobodys_work(store: ProbedPostgres) -> None:
    failing = [True]

    def fails_once(jobs: Sequence[Job]) -> None:
        if failing:
            failing.clear()
            raise OSError
        deliver(jobs)

    runner = PostgresRunner(store, writers=1, deliver=fails_once)
    runner.write(body(tasks.add_task, title="t"))
    while failing:
        pass
    ok(runner.write(body(tasks.add_task, title="t")).result(PATIENCE_S))
    runner.close()


def test_writer_that_nobody_watches_any_more_is_watched_again_when_it_is_at_work(
    store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_runner, "IDLE_LOOKS", 1)
    runner = PostgresRunner(store, writers=2)
    for _ in range(3):
        ok(runner.write(body(tasks.add_task, title="t")).result(PATIENCE_S))
        while runner._turns._watched:
            pass
        held_up = HeldUp()
        first = runner.write(held_up)
        assert held_up.at_work.wait(PATIENCE_S)
        ok(runner.write(body(tasks.add_task, title="t")).result(PATIENCE_S))
        held_up.free.set()
        assert first.result(PATIENCE_S)
    runner.close()


# -- what its verbs share ---------------------------------------------------------------------------------------------


def test_batch_sees_what_an_earlier_verb_of_it_changed(store: ProbedPostgres) -> None:
    """Settings and capability sets are read once for all, until one of them writes."""
    first, second, third = store.run_many(
        [
            body(claims.claim_next, agent_id="A1", capabilities=["gpu"]),
            body(tasks.add_task, task_id="T1", title="t", requires=["gpu"]),
            body(claims.claim_next, agent_id="A1", capabilities=["gpu"]),
        ],
        HOLD_S,
    )
    refused(first.answer, "nothing_ready")
    ok(second.answer)
    assert ok(third.answer).task.task_id == "T1"


def test_next_batch_sees_what_another_node_changed(store: ProbedPostgres) -> None:
    store.run_many([body(claims.claim_next, agent_id="A1", profile="worker")] * 2, HOLD_S)
    other = store.clone()
    add(other, "T1", requires=["gpu"], kind="code")
    ok(projects.configure(other, document={"task_types": {"code": {"lease_duration_s": 77}}}))
    other.close()
    (outcome,) = store.run_many([body(claims.claim_next, agent_id="A1", profile="worker", capabilities=["gpu"])], 1.0)
    assert ok(outcome.answer).lease.term_ms == 77_000


# -- what goes wrong in it --------------------------------------------------------------------------------------------


def test_exception_of_one_verb_is_its_own_and_the_others_are_done_once(
    store: ProbedPostgres, runner: PostgresRunner
) -> None:
    tries: list[int] = []

    def broken(tx: Transaction) -> None:
        body(tasks.add_task, task_id="NEVER", title="t")(tx)
        tries.append(1)
        raise ValueError("broken")

    before, bad, after = together(
        runner, body(tasks.add_task, task_id="T1", title="t"), broken, body(tasks.add_task, task_id="T2", title="t")
    )
    with pytest.raises(ValueError, match="broken"):
        bad.result(PATIENCE_S)
    assert [ok(future.result(PATIENCE_S)).task_id for future in (before, after)] == ["T1", "T2"]
    assert len(tries) == 2
    assert names(store) == ["T1", "T2"]


def test_verb_that_had_settled_something_before_it_failed_keeps_that(
    store: ProbedPostgres, runner: PostgresRunner
) -> None:
    def settles_then_fails(tx: Transaction) -> None:
        body(tasks.add_task, task_id="KEPT", title="t")(tx)
        tx.settle()
        body(tasks.add_task, task_id="NEVER", title="t")(tx)
        raise ValueError("broken")

    good, bad = together(runner, body(tasks.add_task, task_id="T1", title="t"), settles_then_fails)
    ok(good.result(PATIENCE_S))
    with pytest.raises(ValueError, match="broken"):
        bad.result(PATIENCE_S)
    assert names(store) == ["KEPT", "T1"]


def test_settlements_of_two_verbs_of_a_batch_do_not_meet(store: ProbedPostgres) -> None:
    def settles(task_id: str, tx: Transaction) -> None:
        for part in ("a", "b"):
            ok(body(tasks.add_task, task_id=task_id + part, title="t")(tx))
            tx.settle()
            # It reaches the server.
            tx.one("meta", key="none")

    store.run_many([partial(settles, "T1"), partial(settles, "T2")], HOLD_S)
    assert names(store) == ["T1a", "T1b", "T2a", "T2b"]


def test_constraint_that_one_verb_breaks_undoes_the_batch(store: ProbedPostgres) -> None:
    def twice(tx: Transaction) -> None:
        tx.do("add_project", project_id="default", name="again", settings="{}", created_at_ms=tx.now_ms)

    with pytest.raises(BatchLost):
        store.run_many([body(tasks.add_task, task_id="T1", title="t"), twice, body(tasks.add_task, title="t")], HOLD_S)
    assert ok(observe.list_tasks(store)) == ()
    # The connection is fit for the next.
    store.run_many([body(tasks.add_task, task_id="T1", title="t")], HOLD_S)


def test_row_that_somebody_keeps_delays_only_the_verb_that_wants_it(
    store: ProbedPostgres, runner: PostgresRunner
) -> None:
    add(store, "T1")
    lease = take(store, "A1", "T1", "cli")
    other = store.clone()
    gate = Gate(other, lambda tx: tx.one("lease_by_id", lease_id=lease.lease_id))
    before, wants, after = together(
        runner,
        body(tasks.add_task, task_id="T2", title="t"),
        body(liveness.renew, lease_id=lease.lease_id),
        body(tasks.add_task, task_id="T3", title="t"),
    )
    assert [ok(future.result(PATIENCE_S)).task_id for future in (before, after)] == ["T2", "T3"]
    # Those that come later are not held up either.
    assert ok(runner.write(body(tasks.add_task, task_id="T4", title="t")).result(PATIENCE_S)).task_id == "T4"
    assert not wants.done()
    gate.let_go()
    assert ok(wants.result(PATIENCE_S)).lease.lease_id == lease.lease_id
    other.close()


def test_batches_that_lock_two_tasks_in_opposite_order_both_end_truthfully_and_soon(store: ProbedPostgres) -> None:
    leases = []
    for number in (1, 2):
        add(store, f"T{number}")
        leases.append(take(store, f"A{number}", f"T{number}", "cli").lease_id)
    meeting = threading.Barrier(2)
    nodes = [PostgresRunner(store, writers=1) for _ in range(2)]

    def renews(lease_id: str, met: list[int], tx: Transaction) -> Any:
        """In the batch, one of them waits here until the other node, too, has locked its first task."""
        if met:
            met.clear()
            tx.one("meta", key="none")
            meeting.wait(PATIENCE_S)
        return body(liveness.renew, lease_id=lease_id)(tx)

    waiting = [
        future
        for node, (first, second) in zip(nodes, (leases, reversed(leases)), strict=True)
        for future in together(node, partial(renews, first, []), partial(renews, second, [1]))
    ]
    # Within patience: nobody waited for a lock as long as one that is run alone may.
    answers = [ok(future.result(PATIENCE_S)) for future in waiting]
    assert [answer.lease.lease_id for answer in answers] == [*leases, *reversed(leases)]
    # Each renewal took effect once, whichever batch was undone.
    assert [ok(claims.leases_of(store, agent_id=f"A{number}"))[0].renewals for number in (1, 2)] == [2, 2]
    for node in nodes:
        node.close()


def test_long_verb_has_a_commit_of_its_own_and_holds_nobody_up(store: ProbedPostgres, runner: PostgresRunner) -> None:
    free = threading.Event()
    slow = runner.write(lambda tx: free.wait(PATIENCE_S), long=True)
    assert ok(runner.write(body(tasks.add_task, task_id="T1", title="t")).result(PATIENCE_S)).task_id == "T1"
    assert not slow.done()
    free.set()
    assert slow.result(PATIENCE_S) is True


def test_runner_that_is_closed_finishes_what_its_writers_could_not_do_together(store: ProbedPostgres) -> None:
    runner = PostgresRunner(store, writers=1)

    def broken(tx: Transaction) -> None:
        raise ValueError("broken")

    futures = together(runner, body(tasks.add_task, task_id="T1", title="t"), broken)
    runner.close()
    assert ok(futures[0].result(0)).task_id == "T1"
    assert isinstance(futures[1].exception(0), ValueError)


# -- a connection that is lost ----------------------------------------------------------------------------------------


@pytest.fixture
def proxy(store: ProbedPostgres) -> Iterator[Proxy]:
    port = psycopg.conninfo.conninfo_to_dict(store.url).get("port")
    made = Proxy(int(port or 5432))
    yield made
    made.close()


def far(store: ProbedPostgres, proxy: Proxy, **options: Any) -> PostgresStore:
    parts = psycopg.conninfo.conninfo_to_dict(store.url)
    return PostgresStore(f"postgresql://tenure@127.0.0.1:{proxy.port}/{parts['dbname']}", **options)


def claims_of(count: int) -> list[Callable[[Transaction], Any]]:
    return [body(claims.claim_next, agent_id=f"A{number}") for number in range(count)]


def test_batch_whose_commit_is_not_answered_is_found_to_have_taken_place(store: ProbedPostgres, proxy: Proxy) -> None:
    for number in range(4):
        add(store, f"T{number}")
    there = far(store, proxy)
    proxy.lose_answer = True
    given = [ok(outcome.answer).lease.lease_id for outcome in there.run_many(claims_of(2), HOLD_S)]
    assert proxy.lost == 1
    # Run again they would have taken the other two.
    found = [ok(claims.leases_of(store, agent_id=f"A{number}"))[0].lease_id for number in range(2)]
    assert found == given
    assert ok(receipts.verify(store)).receipts == 2
    there.close()


def test_batch_whose_commit_never_arrived_is_lost(store: ProbedPostgres, proxy: Proxy) -> None:
    for number in range(4):
        add(store, f"T{number}")
    there = far(store, proxy)
    proxy.lose_commit = True
    with pytest.raises(BatchLost):
        there.run_many(claims_of(2), HOLD_S)
    assert proxy.lost == 1
    assert ok(receipts.verify(store)).receipts == 0
    assert len(there.run_many(claims_of(2), HOLD_S)) == 2
    assert ok(receipts.verify(store)).receipts == 2
    there.close()


def test_batch_whose_commit_nobody_can_be_asked_about_is_not_run_again(store: ProbedPostgres, proxy: Proxy) -> None:
    add(store, "T1")
    there = far(store, proxy, busy_timeout_s=0.3)
    ran: list[int] = []

    def last(tx: Transaction) -> None:
        # A scout gets no further.
        tx.one("meta", key="none")
        ran.append(1)
        proxy.lose_answer = True
        # From here on nobody else is connected either.
        proxy.refuse = True

    with pytest.raises(StoreFault) as raised:
        there.run_many([*claims_of(1), last], HOLD_S)
    assert raised.value.refusal.code == "store_unavailable"
    assert ran == [1]
    # It did take place.
    assert len(ok(claims.leases_of(store, agent_id="A0"))) == 1
    there.close()


def test_runner_whose_connections_are_cut_does_everything_once(store: ProbedPostgres, proxy: Proxy) -> None:
    there = far(store, proxy)
    runner = PostgresRunner(there, writers=1)
    ok(runner.write(body(tasks.add_task, title="t")).result(PATIENCE_S))
    proxy.hang_up()
    futures = together(runner, *(body(tasks.add_task, task_id=f"T{number}", title="t") for number in range(4)))
    assert [ok(future.result(PATIENCE_S)).task_id for future in futures] == [f"T{number}" for number in range(4)]
    assert len(ok(observe.list_tasks(store))) == 5
    runner.close()
    there.close()
