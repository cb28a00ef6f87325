"""Verbs in orders that nobody planned: what a review found by combining them."""

from __future__ import annotations

import pytest

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import agents, claims, endings, liveness, notes, observe, projects, receipts, recovery, tasks, touch
from tenure.store.sqlite import SqliteStore
from tests.support import add, dump, join, ok, refused, take

SUCCESS = {"phase": "complete", "status": "success", "outcome_kind": "none"}


def complete_by_receipt(store: SqliteStore, lease_id: str, **more: object) -> receipts.Submitted | Refused:
    return receipts.submit_receipt(store, body={**SUCCESS, "lease_id": lease_id, **more})


def status(store: SqliteStore, task_id: str = "F001") -> str:
    return ok(observe.show_task(store, task_id=task_id)).view.status


# -- a late success is for what it accepted, once ----------------------------------------------------------------------


def test_complete_sent_again_after_a_reopening_takes_nothing_from_the_new_holder(store: SqliteStore) -> None:
    add(store)
    first = take(store, "worker.a", profile="worker")
    ok(complete_by_receipt(store, first.lease_id))
    ok(tasks.reopen_task(store, task_id="F001"))
    second = take(store, "worker.b", profile="worker")
    ok(complete_by_receipt(store, first.lease_id))
    assert status(store) == "in_progress"
    assert ok(claims.leases_of(store, agent_id="worker.b"))[0].lease_id == second.lease_id


def test_complete_with_success_after_its_own_failure_changes_nothing(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    first = take(store, "worker.a", profile="worker")
    ok(complete_by_receipt(store, first.lease_id, status="failure"))
    clock.advance(30)
    take(store, "worker.b", profile="worker")
    ok(complete_by_receipt(store, first.lease_id))
    assert status(store) == "in_progress"


def test_complete_late_of_an_obligation_that_was_closed_since_is_only_recorded(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store)
    lapsed = take(store, "worker.a", profile="worker")
    clock.advance(930)
    ok(recovery.advance(store))
    clock.advance(30)
    second = take(store, "worker.b", profile="worker")
    ok(complete_by_receipt(store, second.lease_id))
    ok(tasks.reopen_task(store, task_id="F001"))
    take(store, "worker.c", profile="worker")
    ok(complete_by_receipt(store, lapsed.lease_id))
    assert status(store) == "in_progress"


def test_complete_late_of_the_open_obligation_still_finishes_the_task(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    lapsed = take(store, "worker.a", profile="worker")
    clock.advance(930)
    ok(recovery.advance(store))
    clock.advance(30)
    take(store, "worker.b", profile="worker")
    ok(complete_by_receipt(store, lapsed.lease_id))
    assert status(store) == "done"


# -- blocking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["Marcus", "a person"])
def test_block_of_a_task_that_has_an_owner_needs_force(store: SqliteStore, owner: str) -> None:
    add(store, assigned_to=owner)
    refused(endings.block(store, task_id="F001", agent_id="anyone", reason="mine now"), "task_assigned")
    assert ok(observe.show_task(store, task_id="F001")).view.task.assigned_to == owner
    assert ok(endings.block(store, task_id="F001", reason="stop", force=True)).task.status == "blocked"


def test_block_of_a_free_task_by_the_holder_that_lost_it_is_refused(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    join(store, "A1")
    take(store, "A1")
    clock.advance(80)
    ok(recovery.advance(store))
    refused(endings.block(store, task_id="F001", agent_id="A1", reason="stuck"), "lease_lost")
    assert status(store) == "todo"


@pytest.mark.parametrize("verb", [endings.release, endings.complete])
def test_force_by_a_superseded_run_is_refused(store: SqliteStore, verb: object) -> None:
    add(store)
    join(store, "A1")
    join(store, "A1")
    take(store, "A1")
    assert callable(verb)
    refused(verb(store, task_id="F001", agent_id="A1", incarnation=1, force=True), "superseded")
    assert status(store) == "in_progress"


def test_complete_by_a_stranger_who_knows_an_ended_lease_is_refused(store: SqliteStore) -> None:
    add(store)
    lease = take(store, "A1", profile="cli")
    ok(endings.complete(store, task_id="F001", agent_id="A1"))
    join(store, "B1")
    refused(endings.complete(store, task_id="F001", agent_id="B1", lease_id=lease.lease_id), "not_holder")


# -- counts start anew -------------------------------------------------------------------------------------------------


def test_reopen_forgets_silent_recoveries_of_the_life_before(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    for _ in range(2):
        join(store, "A1")
        take(store, "A1")
        clock.advance(80)
        ok(recovery.advance(store))
    ok(endings.complete(store, task_id="F001", force=True))
    ok(tasks.reopen_task(store, task_id="F001"))
    take(store, "A1")
    clock.advance(80)
    ok(recovery.advance(store))
    assert status(store) == "todo"


def test_artifacts_of_those_who_do_not_hold_the_task_are_no_evidence_of_work(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store)
    join(store, "stranger")
    for number in range(3):
        ok(notes.log_artifact(store, task_id="F001", agent_id="stranger", filename=f"{number}.md", content="x"))
        join(store, "A1")
        take(store, "A1")
        clock.advance(80)
        ok(recovery.advance(store))
    assert status(store) == "blocked"


# -- claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.sqlite_only
def test_claim_next_with_thousands_due_elsewhere_stays_within_its_bound(store: SqliteStore, clock: ManualClock) -> None:
    ok(projects.create_project(store, project_id="other"))
    ok(tasks.add_tasks(store, project_id="other", tasks=[{"task_id": f"T{n}", "title": "t"} for n in range(1_000)]))
    for number in range(1_000):
        ok(claims.claim(store, task_id=f"T{number}", agent_id=f"cli-{number}"))
    clock.advance(900)
    join(store, "A1")
    seen: list[str] = []
    store.connection.set_trace_callback(seen.append)
    refused(claims.claim_next(store, agent_id="A1"), "nothing_ready")
    store.connection.set_trace_callback(None)
    assert len(seen) < 4 * 32 * 30


def test_claim_next_in_vain_registers_nobody(store: SqliteStore) -> None:
    refused(claims.claim_next(store, agent_id="typo"), "nothing_ready")
    assert dump(store, "agents") == []


def test_claim_next_resumed_through_another_server_is_heard_by_that_one(store: SqliteStore, clock: ManualClock) -> None:
    for server_id in ("s1", "s2"):
        ok(agents.start_server(store, server_id=server_id))
    add(store)
    join(store, "A1")
    ok(claims.claim_next(store, agent_id="A1", profile="agent", server_id="s1"))
    again = ok(claims.claim_next(store, agent_id="A1", profile="agent", server_id="s2", resume=True))
    assert (again.resumed, again.lease.server_id) == (True, "s2")


def test_accept_of_an_offer_in_profile_agent_begins_its_term(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    join(store, "A1")
    (offered,) = ok(claims.offer(store, agent_id="A1", profile="agent"))
    clock.advance(59)
    accepted = ok(claims.accept(store, lease_id=offered.lease.lease_id)).lease
    assert accepted.recover_at_ms - store.answered_at_ms == 80_000


@pytest.mark.parametrize("verb", [claims.claim, claims.claim_next, liveness.report, notes.log_decision])
def test_call_without_a_required_argument_is_refused(store: SqliteStore, verb: object) -> None:
    assert callable(verb)
    refused(verb(store), "invalid_argument")


# -- incarnations ------------------------------------------------------------------------------------------------------


def test_link_down_of_an_older_run_does_not_kill_what_the_newer_one_has_touched(store: SqliteStore) -> None:
    add(store)
    join(store, "A1")
    link = ok(agents.link_up(store, agent_id="A1", incarnation=1))
    take(store, "A1")
    join(store, "A1")
    ok(touch.touch(store, agent_id="A1", incarnation=2))
    ok(agents.link_down(store, link_id=link.link_id, died=True))
    assert status(store) == "in_progress"


def test_register_again_keeps_what_is_not_said(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="p"))
    first = ok(agents.register(store, agent_id="A1", project_id="p", profile="cli", branch="feature"))
    second = ok(agents.register(store, agent_id="A1"))
    assert (second.project_id, second.profile, second.branch) == (first.project_id, first.profile, "feature")
    refused(agents.register(store, agent_id="nobody", incarnation=7), "agent_not_found")


# -- one bad row -------------------------------------------------------------------------------------------------------


def test_advance_with_a_row_it_cannot_read_recovers_the_others(
    store: SqliteStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for task_id in ("BAD", "GOOD"):
        add(store, task_id)
        take(store, f"holder-of-{task_id}", task_id, profile="cli")
    store.connection.execute("UPDATE leases SET mark_gaps = 'not a number' WHERE task_id = 'BAD'")
    clock.advance(900)
    done = ok(recovery.advance(store))
    assert (done.recovered, done.failed) == (1, 1)
    assert (status(store, "GOOD"), ok(observe.show_task(store, task_id="BAD")).view.due) == ("todo", True)
    assert ok(claims.claim_next(store, agent_id="next")).task.task_id == "GOOD"
    assert "timer of lease" in caplog.text


def test_handoff_names_the_branch_that_the_agent_works_on(store: SqliteStore) -> None:
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", branch="feature/login"))
    ok(endings.block(store, task_id="F001", agent_id="A1", reason="no key"))
    ok(tasks.unblock_task(store, task_id="F001"))
    handoff = ok(claims.claim(store, task_id="F001", agent_id="B1")).handoffs[0]
    assert handoff.previous_agent_branch == "feature/login"
    assert "git merge feature/login --no-edit" in handoff.instructions
