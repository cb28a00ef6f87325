"""What the simulation found in the engine, each in as few steps as it takes. The seed is gone, the bug stays pinned."""

from __future__ import annotations

from tenure.clock import ManualClock
from tenure.engine import agents, claims, endings, observe, receipts, recovery, tasks
from tenure.store.sqlite import SqliteStore
from tests.simulation.dying import Doomed
from tests.support import add, join, ok, refused, take


def test_offer_that_lapses_with_its_dying_task_does_not_stop_the_monitor(
    store: SqliteStore, clock: ManualClock
) -> None:
    """The monitor found the offer's timer in the same batch, ended it a second time, and failed for ever."""
    add(store, slots=2, max_attempts=1)
    ok(claims.claim(store, task_id="F001", agent_id="w.1", profile="worker", ttl_s=10))
    ok(claims.offer(store, agent_id="w.2", ttl_s=10))
    clock.advance(11)
    assert ok(recovery.advance(store)).recovered == 1
    assert ok(observe.show_task(store, task_id="F001")).view.status == "dead"
    assert claims.leases_of(store, agent_id="w.2") == ()


def test_live_offer_that_lapses_with_its_dying_task_cannot_be_accepted(store: SqliteStore, clock: ManualClock) -> None:
    """The recovery that killed the task ended the offer, and the acceptance that had caused it went on regardless."""
    add(store, slots=2, max_attempts=1)
    ok(claims.claim(store, task_id="F001", agent_id="w.1", profile="worker", ttl_s=10))
    offered = ok(claims.offer(store, agent_id="w.2", ttl_s=100))[0]
    clock.advance(11)
    refused(claims.accept(store, lease_id=offered.lease.lease_id), "task_dead")


def test_last_attempt_lost_while_another_slot_works_leaves_the_obligation_open(
    store: SqliteStore, clock: ManualClock
) -> None:
    """It was closed by max_retries_exceeded, and then a second time by the other holder's success."""
    add(store, slots=2, max_attempts=1)
    ok(claims.claim(store, task_id="F001", agent_id="w.1", profile="worker", ttl_s=10))
    ok(claims.claim(store, task_id="F001", agent_id="w.2", profile="worker", ttl_s=100))
    clock.advance(11)
    ok(recovery.advance(store))
    assert ok(observe.show_task(store, task_id="F001")).view.task.obligation == "overdue"
    assert ok(endings.complete(store, task_id="F001", agent_id="w.2")).task.obligation == "closed"
    reasons = [row.body.count("max_retries_exceeded") for row in ok(receipts.list_receipts(store))]
    assert sum(reasons) == 0


def test_resumed_claim_repeated_with_its_key_is_never_given_another_task(
    store: SqliteStore, clock: ManualClock
) -> None:
    """What was resumed was not kept under the key, so that the retry after its end was a new claim."""
    add(store, "F001")
    add(store, "F002")
    join(store, "A1")
    held = take(store, "A1", "F001")
    asked = {"agent_id": "A1", "profile": "agent", "resume": True, "idempotency_key": "k1"}
    assert ok(claims.claim_next(store, **asked)).lease.lease_id == held.lease_id  # type: ignore[arg-type]
    clock.advance(600)
    again = ok(claims.claim_next(store, **asked))  # type: ignore[arg-type]
    assert (again.lease.lease_id, again.lease.state, again.resumed) == (held.lease_id, "expired", True)


def test_disk_that_fills_inside_an_attempt_is_told_as_a_full_disk(store: SqliteStore) -> None:
    """The savepoint had gone with the transaction, and its rollback raised an error of its own."""
    real = store.connection
    for statement in range(3, 12):
        store.connection = Doomed(real, full_at=statement, full_ends_transaction=True)  # type: ignore[assignment]
        answer = tasks.add_task(store, task_id=f"F{statement}", title="A task")
        store.connection = real
        refused(answer, "store_full")


def test_accepting_an_offer_of_a_deaf_server_sets_its_timer_too(store: SqliteStore, clock: ManualClock) -> None:
    """The lease's wake_at fell with the acceptance and its timer stayed."""
    add(store)
    join(store, "A1")
    ok(agents.start_server(store, server_id="s1"))
    offered = ok(claims.offer(store, agent_id="A1", profile="agent", server_id="s1"))[0]
    clock.advance(70)
    ok(recovery.advance(store))
    clock.advance(2)
    ok(claims.accept(store, lease_id=offered.lease.lease_id))
    kept = "SELECT l.wake_at_ms, t.wake_at_ms FROM leases l JOIN timers t ON t.ref = l.lease_id"
    wake_at, timer = store.connection.execute(kept).fetchone()
    assert wake_at == timer


def test_owned_task_with_a_time_does_not_wait(store: SqliteStore, clock: ManualClock) -> None:
    """A task in progress with its owner was kept as waiting, with a timer of its own."""
    task = add(store, assigned_to="Maria", not_before_ms=clock.wall_ms() + 60_000)
    assert (task.status, task.waiting) == ("in_progress", 0)
    assert store.connection.execute("SELECT count(*) FROM timers").fetchone()[0] == 0


def test_offer_after_a_reboot_has_a_term_and_no_grace(store: SqliteStore, clock: ManualClock) -> None:
    """A fresh term gave an offer the grace that only a holder has."""
    add(store)
    join(store, "A1")
    offered = ok(claims.offer(store, agent_id="A1", profile="agent"))[0].lease
    clock.reboot("boot-2")
    ok(recovery.advance(store))
    now = clock.wall_ms()
    fresh = ok(claims.leases_of(store, agent_id="A1"))[0]
    assert fresh.recover_at_ms == now + offered.term_ms


def test_requeue_of_a_done_task_with_a_time_ahead_is_refused(store: SqliteStore, clock: ManualClock) -> None:
    """It became todo again while its dependants stayed ready."""
    add(store, not_before_ms=clock.wall_ms() + 60_000)
    add(store, "F002", after=["F001"])
    ok(endings.complete(store, task_id="F001", force=True))
    refused(tasks.requeue_task(store, task_id="F001"), "wrong_state")
    assert ok(observe.show_task(store, task_id="F002")).view.task.unmet == 0
