"""Recovery through the verbs: anyone may run it, it happens once, and nothing of it is lost."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.engine import agents, claims, endings, explain, notes, observe, projects, recovery, tasks
from tenure.engine.verb import verb
from tenure.store.sqlite import SqliteStore
from tenure.store.store import Transaction
from tests.engine.scene import (
    events,
    feel,
    handoffs,
    lease,
    report,
    said,
    shown,
    task,
    thread,
    tick,
    whole,
)
from tests.support import add, dump, join, ok, refused, take

HOUR_S = 3_600


@pytest.fixture(autouse=True)
def fleet(store: SqliteStore) -> None:
    for name in ("A1", "A2", "A3", "A4"):
        join(store, name)


def lose(store: SqliteStore, clock: ManualClock, agent_id: str, progress: int | None = None) -> None:
    """An agent takes the task, perhaps reports, and is never heard of again; somebody recovers."""
    take(store, agent_id)
    if progress is not None:
        report(store, agent_id, progress)
    clock.advance(200)
    assert tick(store).recovered == 1


# -- anyone may run it -------------------------------------------------------------------------------------------------


def test_refused_claim_that_found_a_due_lease_leaves_the_recovery_behind(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store, requires=["gpu"])
    lost = take(store, "A1")
    clock.advance(80)
    answer = claims.claim(store, task_id="F001", agent_id="A2", profile="agent", capabilities=["python"])
    refused(answer, "capabilities_missing")
    assert (lease(store, lost.lease_id).state, task(store).status) == ("expired", "todo")
    assert [handoff.recovered_from_agent for handoff in handoffs(store)] == ["A1"]
    assert said(store) == ["accepted", "escalate/lease_expired"]
    assert len(events(store, "recovered")) == 1
    assert any("Taken back from A1" in text for text in thread(store))
    assert task(store).obligation == "overdue"


def test_claim_that_fails_after_recovering_keeps_the_recovery(store: SqliteStore, clock: ManualClock) -> None:
    """An exception undoes what followed the recovery, never the recovery."""

    @verb()
    def stumble(tx: Transaction) -> None:
        """Recovers, writes, and raises."""
        from tenure.engine import load

        task_ = load.task_named(tx, "F001", None)
        recovery.recover_due(tx, task_)  # type: ignore[arg-type]
        tx.do("count", name="stumbles", by=1)
        raise RuntimeError("our mistake")

    from tenure.engine.verb import VERBS

    del VERBS["stumble"]
    add(store)
    take(store, "A1")
    clock.advance(80)
    told: list[tuple[str, str]] = []
    store.on_recovery_callback = lambda agent_id, task_id: told.append((agent_id, task_id))
    with pytest.raises(RuntimeError):
        stumble(store)
    assert (task(store).status, told) == ("todo", [("A1", "F001")])
    assert "stumbles" not in [row[0] for row in dump(store, "counters")]


@pytest.mark.parametrize(
    "verb_name", ["claim", "claim_next", "report", "block", "assign", "delete", "revoke", "advance"]
)
def test_recover_due_lease_by_whoever_comes_first_happens_once(
    store: SqliteStore, clock: ManualClock, verb_name: str
) -> None:
    add(store)
    take(store, "A1")
    clock.advance(80)
    runs: dict[str, Any] = {
        "claim": lambda: claims.claim(store, task_id="F001", agent_id="A2", profile="agent"),
        "claim_next": lambda: claims.claim_next(store, agent_id="A2", profile="agent"),
        "report": lambda: recovery_by_report(store),
        "block": lambda: endings.block(store, task_id="F001", reason="x"),
        "assign": lambda: tasks.assign_task(store, task_id="F001", assigned_to="Bob"),
        "delete": lambda: tasks.delete_task(store, task_id="F001"),
        "revoke": lambda: endings.revoke(store, task_id="F001"),
        "advance": lambda: recovery.advance(store),
    }
    runs[verb_name]()
    assert len(events(store, "recovered")) == 1
    assert tick(store).recovered == 0, "a second runner finds nothing"
    assert ok(observe.statistics(store)).recoveries == 1


def recovery_by_report(store: SqliteStore) -> None:
    from tenure.engine.liveness import report as report_verb

    refused(report_verb(store, task_id="F001", agent_id="A2", progress=1), "not_holder")


def test_advance_is_bounded_and_goes_on_where_it_stopped(store: SqliteStore, clock: ManualClock) -> None:
    for number in range(7):
        add(store, f"F00{number}")
        take(store, "A1", f"F00{number}")
    clock.advance(100)
    found = [ok(recovery.advance(store, limit=3)).recovered for _ in range(4)]
    assert found == [3, 3, 1, 0]


def test_advance_tells_how_long_to_sleep(store: SqliteStore, clock: ManualClock) -> None:
    assert (tick(store).fired, tick(store).wait_ms, ok(recovery.next_due(store)).wait_ms) == (0, None, None)
    add(store)
    take(store, "A1")
    assert (tick(store).wait_ms, ok(recovery.next_due(store)).wait_ms) == (24_000, 24_000), "the warning"
    clock.advance(24)
    found = tick(store)
    assert (found.warned, found.wait_ms) == (1, 56_000), "then the deadline"
    clock.advance(56)
    assert tick(store).recovered == 1
    assert tick(store).wait_ms is None


def test_advance_after_a_touch_sets_the_timer_anew(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    clock.advance(20)
    feel(store, "A1")
    clock.advance(4)
    found = tick(store)
    assert (found.fired, found.warned, found.recovered, found.wait_ms) == (1, 0, 0, 20_000)


def test_advance_promotes_a_task_whose_time_has_come(store: SqliteStore, clock: ManualClock) -> None:
    add(store, not_before_ms=clock.wall + 5_000)
    assert (tick(store).promoted, task(store).waiting) == (0, 1)
    clock.advance(5)
    assert (tick(store).promoted, task(store).waiting) == (1, 0)


def test_call_recovery_callback_after_the_commit(store: SqliteStore, clock: ManualClock) -> None:
    seen: list[tuple[str, str, str]] = []

    def callback(agent_id: str, task_id: str) -> None:
        other = store.clone()
        status = other.connection.execute("SELECT status FROM tasks WHERE task_id = ?", (task_id,)).fetchone()[0]
        other.close()
        seen.append((agent_id, task_id, status))

    store.on_recovery_callback = callback
    add(store)
    take(store, "A1")
    clock.advance(80)
    tick(store)
    assert seen == [("A1", "F001", "todo")], "another process already sees it"


def test_call_recovery_callback_that_fails_changes_nothing(
    store: SqliteStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def callback(agent_id: str, task_id: str) -> None:
        raise RuntimeError("the embedder's mistake")

    store.on_recovery_callback = callback
    add(store)
    take(store, "A1")
    clock.advance(80)
    with caplog.at_level(logging.ERROR, logger="tenure"):
        assert tick(store).recovered == 1
    assert task(store).status == "todo"
    assert "F001" in caplog.text


def test_read_due_lease_writes_nothing(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    clock.advance(80)
    before = whole(store)
    assert shown(store).due
    ok(observe.list_tasks(store))
    ok(observe.ready_tasks(store))
    ok(observe.statistics(store))
    ok(observe.gridlock(store))
    ok(explain.why(store, task_id="F001", agent_id="A2"))
    ok(explain.briefing(store, task_id="F001", agent_id="A2"))
    ok(agents.show_agent(store, agent_id="A1"))
    assert whole(store) == before


# -- attempts and quarantine -------------------------------------------------------------------------------------------


def test_recover_silent_agents_three_times_quarantines_the_task(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    for name in ("A1", "A2", "A3"):
        lose(store, clock, name)
    assert (task(store).status, task(store).silent_recoveries) == ("blocked", 3)
    assert "quarantined after 3 recoveries" in task(store).blocked_reason
    assert said(store)[-2:] == ["escalate/lease_expired", "escalate/quarantined"]
    assert refused(claims.claim(store, task_id="F001", agent_id="A4", profile="agent"), "task_blocked").exit_status == 7
    clock.advance(30 * 24 * HOUR_S)
    tick(store)
    refused(claims.claim_next(store, agent_id="A4", profile="agent"), "nothing_ready")
    assert task(store).status == "blocked", "it stays quarantined"


def test_unblock_quarantined_task_starts_the_count_anew(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    for name in ("A1", "A2", "A3"):
        lose(store, clock, name)
    ok(tasks.unblock_task(store, task_id="F001"))
    for name in ("A1", "A2"):
        lose(store, clock, name)
    assert task(store).status == "todo"
    lose(store, clock, "A3")
    assert task(store).status == "blocked"


def test_recover_agent_that_made_progress_resets_the_count(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    lose(store, clock, "A1")
    lose(store, clock, "A2")
    lose(store, clock, "A3", progress=10)
    assert (task(store).status, task(store).silent_recoveries) == ("todo", 0)
    lose(store, clock, "A1")
    lose(store, clock, "A2")
    assert task(store).status == "todo"
    lose(store, clock, "A3", progress=10)
    assert task(store).status == "blocked", "the same 10 % again is no progress"


def test_recover_agent_that_made_an_artifact_resets_the_count(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    lose(store, clock, "A1")
    lose(store, clock, "A2")
    take(store, "A3")
    ok(notes.log_artifact(store, task_id="F001", agent_id="A3", filename="out.csv", content="1,2"))
    clock.advance(200)
    tick(store)
    assert (task(store).status, task(store).silent_recoveries) == ("todo", 0)


def test_quarantine_after_another_number_of_recoveries(store: SqliteStore, clock: ManualClock) -> None:
    ok(projects.configure(store, document={"tenure": {"quarantine_after": 1}}))
    add(store)
    lose(store, clock, "A1")
    assert task(store).status == "blocked"


def lose_worker(store: SqliteStore, clock: ManualClock, worker: str) -> None:
    take(store, worker, profile="worker")
    clock.advance(900)
    assert tick(store).recovered == 1


def test_recover_worker_waits_thirty_seconds(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    lose_worker(store, clock, "w.1")
    refused(claims.claim(store, task_id="F001", agent_id="w.2", profile="worker"), "task_waiting")
    clock.advance(29.999)
    refused(claims.offer(store, agent_id="w.2"), "nothing_ready")
    clock.advance(0.001)
    assert ok(claims.offer(store, agent_id="w.2"))[0].task.task_id == "F001"


def test_recover_worker_three_times_makes_the_task_dead_until_requeued(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    for worker in ("w.1", "w.2", "w.3"):
        lose_worker(store, clock, worker)
        clock.advance(30)
    assert (task(store).status, task(store).attempts, task(store).obligation) == ("dead", 3, "closed")
    assert said(store).count("escalate/lease_expired") == 3
    assert said(store)[-1] == "escalate/max_retries_exceeded"
    assert said(store).count("escalate/max_retries_exceeded") == 1
    clock.advance(30 * 24 * HOUR_S)
    tick(store)
    refused(claims.claim(store, task_id="F001", agent_id="w.4", profile="worker"), "task_dead")
    ok(tasks.requeue_task(store, task_id="F001"))
    assert task(store).attempts == 0
    lose_worker(store, clock, "w.4")
    assert task(store).status == "todo", "with all its attempts"


def test_recover_worker_with_the_tasks_own_limit(store: SqliteStore, clock: ManualClock) -> None:
    add(store, max_attempts=1)
    lose_worker(store, clock, "w.1")
    assert task(store).status == "dead"


def test_recover_cli_agent_returns_at_once_without_limit(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    for _ in range(6):
        take(store, "A1", profile="cli")
        clock.advance(900)
    assert take(store, "A2", profile="cli").agent_id == "A2"
    assert task(store).attempts == 6


# -- handoffs ----------------------------------------------------------------------------------------------------------


def test_hand_over_progress_of_the_task_not_of_the_last_holder(store: SqliteStore, clock: ManualClock) -> None:
    """A successor that dies unreported hands over the last known percentage, not 0."""
    add(store)
    lose(store, clock, "A1", progress=60)
    lose(store, clock, "A2")
    grant = ok(claims.claim(store, task_id="F001", agent_id="A3", profile="agent"))
    assert [(handoff.recovered_from_agent, handoff.previous_progress) for handoff in grant.handoffs] == [
        ("A2", 60),
        ("A1", 60),
    ]
    text = ok(explain.briefing(store, task_id="F001", agent_id="A3"))
    assert "recovered from A2" in text
    assert "Agents before it may have left work" in text
    assert "A1 reached 60%" in text


def test_hand_over_expires_after_a_day(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    lose(store, clock, "A1", progress=60)
    clock.advance(24 * HOUR_S - 0.001)
    assert len(handoffs(store)) == 1
    clock.advance(0.001)
    assert handoffs(store) == (), "the instant of expiry is expired"
    assert ok(claims.claim(store, task_id="F001", agent_id="A2", profile="agent")).handoffs == ()
    assert any("Taken back from A1" in text for text in thread(store)), "the thread keeps it"


def test_hand_over_survives_a_restart(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    lose(store, clock, "A1", progress=60)
    other = store.clone()
    grant = ok(claims.claim(other, task_id="F001", agent_id="A2", profile="agent"))
    assert [handoff.previous_progress for handoff in grant.handoffs] == [60]
    other.close()


def test_hand_over_is_closed_when_the_task_is_done(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    lose(store, clock, "A1", progress=60)
    take(store, "A2")
    ok(endings.complete(store, task_id="F001", agent_id="A2"))
    assert handoffs(store) == ()
