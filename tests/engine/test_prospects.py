"""What an agent is told when nothing is ready, from the real state of a store."""

from __future__ import annotations

import pytest

from tenure.clock import ManualClock
from tenure.core.prospects import Prospects
from tenure.engine import agents, claims, dependencies, endings, liveness, projects, tasks
from tenure.engine import prospects as module
from tenure.engine.prospects import prospects
from tenure.engine.touch import touch
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok, refused, take


@pytest.fixture(autouse=True)
def fleet(store: SqliteStore) -> None:
    for agent_id in ("A1", "B1"):
        join(store, agent_id)


def told(store: SqliteStore, **arguments: object) -> Prospects:
    return ok(prospects(store, **{"agent_id": "B1", **arguments}))  # type: ignore[arg-type]


def test_prospects_unknown_project_refused(store: SqliteStore) -> None:
    refused(prospects(store, project_id="nowhere", agent_id="B1"), "project_not_found")


def test_prospects_follow_a_project_from_empty_to_finished(store: SqliteStore, clock: ManualClock) -> None:
    assert told(store).outlook == "empty"
    add(store, "F001")
    add(store, "F002", after=["F001"])
    assert told(store).outlook == "ready"
    take(store, "A1")
    answer = told(store)
    assert (answer.outlook, answer.retry_after_seconds, answer.waiting_for) == ("waiting", 80, ("F001",))
    clock.advance(30)
    ok(liveness.report(store, task_id="F001", agent_id="A1", progress=50))
    answer = told(store)
    assert answer.retry_after_seconds == 30, "half in 30 s"
    assert "F002 waits for F001" in answer.retry_reason
    ok(endings.complete(store, task_id="F001", agent_id="A1"))
    assert told(store).outlook == "ready"
    take(store, "A1", "F002")
    ok(endings.complete(store, task_id="F002", agent_id="A1"))
    answer = told(store)
    assert (answer.outlook, answer.should_exit, answer.retry_after_seconds) == ("finished", True, None)


def test_prospects_dead_holder_is_asked_about_at_once(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    clock.advance(79.5)
    assert told(store).retry_after_seconds == 1
    clock.advance(10)
    assert told(store).retry_after_seconds == 1


def test_prospects_announced_silence_is_waited_for(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    ok(touch(store, agent_id="A1", expect_silence_s=250))
    answer = told(store)
    assert answer.retry_after_seconds == 250
    assert "announced silence" in answer.retry_reason


def test_prospects_linked_holder_is_not_waited_for_to_die_within_a_pulse(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store)
    take(store, "A1")
    link = ok(agents.link_up(store, agent_id="A1"))
    for _ in range(30):
        clock.advance(5)
        ok(agents.pulse(store, link_id=link.link_id))
    assert told(store).retry_after_seconds == 300, "150 s silent, alive, and believed for 450 s more"


def test_prospects_requeue_delay_and_not_before(store: SqliteStore, clock: ManualClock) -> None:
    add(store, max_attempts=5)
    take(store, "W1", profile="worker")
    lease_s = 15 * 60
    assert told(store).retry_after_seconds == 300
    clock.advance(lease_s - 10)
    assert told(store).retry_after_seconds == 40, "10 s of lease and 30 s of delay"
    clock.advance(10)
    refused(claims.claim_next(store, agent_id="B1", profile="agent"), "nothing_ready")
    answer = told(store)
    assert (answer.retry_after_seconds, answer.waiting_for) == (30, ("F001",))
    assert "waits until" in answer.retry_reason


def test_prospects_offer_lapses(store: SqliteStore, clock: ManualClock) -> None:
    add(store, lease_duration_s=20)
    ok(claims.offer(store, agent_id="W1"))
    assert told(store).retry_after_seconds == 20


def test_prospects_gridlock_exits_by_name(store: SqliteStore) -> None:
    add(store, "F001")
    add(store, "F002", after=["F001"])
    take(store, "A1")
    ok(endings.block(store, task_id="F001", agent_id="A1", reason="no key"))
    answer = told(store)
    assert (answer.outlook, answer.should_exit) == ("gridlocked", True)
    assert "F001 is blocked (“no key”) and holds up F002" in " ".join(answer.why)
    ok(dependencies.remove_dependency(store, task_id="F002", needs="F001"))
    assert told(store).outlook == "ready"
    take(store, "A1", "F002")
    ok(endings.complete(store, task_id="F002", agent_id="A1"))
    answer = told(store)
    assert (answer.outlook, answer.should_exit, answer.waiting_for) == ("blocked", True, ("F001",))


def test_prospects_what_others_have_is_no_reason_to_go(store: SqliteStore) -> None:
    add(store, "F001", requires=["gpu"])
    answer = told(store, capabilities=["cpu"])
    assert (answer.should_exit, answer.retry_after_seconds) == (False, 60)
    assert "requires gpu" in answer.retry_reason
    assert told(store).outlook == "ready", "without capabilities anything may be given"
    ok(tasks.assign_task(store, task_id="F001", assigned_to="A1"))
    assert "F001 for A1" in told(store).retry_reason
    ok(tasks.assign_task(store, task_id="F001", assigned_to="Ann"))
    assert "F001 is with Ann" in told(store).retry_reason
    ok(tasks.assign_task(store, task_id="F001", assigned_to="Marcus"))
    answer = told(store)
    assert (answer.retry_after_seconds, answer.should_exit) == (60, False)
    assert "none is up" in answer.retry_reason
    ok(agents.start_server(store, server_id="S1"))
    answer = told(store)
    assert (answer.retry_after_seconds, answer.should_exit) == (10, False)
    assert "Marcus is at work on F001 inside the server." in answer.retry_reason


def test_prospects_of_another_project_are_its_own(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other"))
    add(store, "F001")
    assert told(store, project_id="other").outlook == "empty"


def test_prospects_of_a_project_too_large_to_judge_never_send_away(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, "F001")
    add(store, "F002", after=["F001"])
    take(store, "A1")
    ok(endings.block(store, task_id="F001", agent_id="A1", reason="no key"))
    assert told(store).should_exit
    monkeypatch.setattr(module, "JUDGED_AT_MOST", 1)
    answer = told(store)
    assert (answer.should_exit, answer.retry_after_seconds) == (False, 60)


@pytest.mark.sqlite_only
@pytest.mark.parametrize("count", [3, 300])
def test_prospects_cost_the_same_statements_in_a_large_project(store: SqliteStore, count: int) -> None:
    ok(tasks.add_tasks(store, tasks=[{"task_id": f"H{n}", "title": "Held"} for n in range(count)]))
    for number in range(count):
        join(store, f"H-{number}")
        take(store, f"H-{number}", f"H{number}")
    ok(tasks.add_tasks(store, tasks=[{"task_id": f"L{n}", "title": "Later", "after": [f"H{n}"]} for n in range(count)]))
    seen: list[str] = []
    store.connection.set_trace_callback(seen.append)
    told(store)
    store.connection.set_trace_callback(None)
    assert len([statement for statement in seen if not statement.startswith("--")]) <= 17
