"""Offers are transient, acceptance creates obligation; speculative tasks have more than one slot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenure.clock import ManualClock
from tenure.engine import claims, endings, liveness, tasks
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import done, events, feel, handoffs, lease, receipts, report, said, shown, task, thread, tick
from tests.support import add, dump, join, ok, refused, take


def offer(store: SqliteStore, worker: str = "w.1") -> claims.Grant:
    return ok(claims.offer(store, agent_id=worker))[0]


def test_offer_reserves_a_task_without_any_obligation(store: SqliteStore) -> None:
    add(store)
    offered = offer(store)
    assert (offered.lease.state, offered.lease.accepted_at_ms, offered.lease.profile) == ("offered", None, "worker")
    view = shown(store)
    assert (view.status, view.due, view.leases[0].agent_id) == ("todo", False, "w.1"), "todo, with a holder pending"
    assert (task(store).obligation, task(store).assigned_to) == ("none", None)
    assert receipts(store) == []
    refused(claims.claim(store, task_id="F001", agent_id="A2"), "already_claimed")


def test_accept_offer_creates_obligation_and_receipt(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    offered = offer(store)
    clock.advance(10)
    accepted = ok(claims.accept(store, lease_id=offered.lease.lease_id))
    assert (accepted.lease.state, accepted.lease.accepted_at_ms) == ("active", clock.wall)
    assert accepted.lease.expires_at_ms == offered.lease.expires_at_ms, "accepting is no heartbeat"
    assert (accepted.task.status, accepted.task.assigned_to, accepted.task.obligation) == ("in_progress", "w.1", "open")
    assert said(store) == ["accepted"]


def test_accept_twice_is_refused(store: SqliteStore) -> None:
    add(store)
    offered = offer(store)
    ok(claims.accept(store, lease_id=offered.lease.lease_id))
    refused(claims.accept(store, lease_id=offered.lease.lease_id), "already_accepted")
    assert said(store) == ["accepted"]


def test_accept_by_another_worker_is_refused(store: SqliteStore) -> None:
    add(store)
    offer(store)
    add(store, "F002")
    offer(store, "w.2")
    refused(claims.accept(store, task_id="F001", agent_id="w.2"), "not_holder")
    refused(claims.accept(store, lease_id="lease-nobody"), "lease_not_found")
    assert task(store).status == "todo"


def test_ignore_offer_returns_the_task_at_once_and_costs_nothing(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    offered = offer(store)
    clock.advance(899.999)
    refused(claims.offer(store, agent_id="w.2"), "nothing_ready")
    clock.advance(0.001)
    refused(claims.accept(store, lease_id=offered.lease.lease_id), "lease_lost")
    again = offer(store, "w.2")
    assert again.task.task_id == "F001", "no 30 s delay: nothing was lost"
    assert (again.task.attempts, again.task.obligation) == (0, "none")
    assert (receipts(store), handoffs(store), thread(store)) == ([], (), [])
    assert lease(store, offered.lease.lease_id).end_reason == "not_accepted"
    assert again.lease.token > offered.lease.token


def test_advance_past_an_ignored_offer_counts_it_apart_from_recoveries(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    offer(store)
    clock.advance(900)
    found = tick(store)
    assert (found.offers_expired, found.recovered) == (1, 0)
    assert [event.kind for event in events(store, "offer_expired", "recovered")] == ["offer_expired"]


@pytest.mark.parametrize("verb", ["renew", "report", "complete", "submit"])
def test_act_on_an_offer_before_accepting_is_refused(store: SqliteStore, verb: str) -> None:
    from tenure.engine.receipts import submit_receipt

    add(store)
    lease_id = offer(store).lease.lease_id
    body = {"phase": "complete", "lease_id": lease_id, "status": "success", "outcome_kind": "none"}
    answers: dict[str, Callable[[], object]] = {
        "renew": lambda: liveness.renew(store, lease_id=lease_id),
        "report": lambda: liveness.report(store, lease_id=lease_id, progress=10),
        "complete": lambda: endings.complete(store, lease_id=lease_id),
        "submit": lambda: submit_receipt(store, body=body),
    }
    refused(answers[verb](), "not_accepted")
    assert (task(store).status, task(store).progress) == ("todo", 0)


def test_release_offer_returns_the_task_without_a_trace(store: SqliteStore) -> None:
    add(store)
    offered = offer(store)
    ok(endings.release(store, lease_id=offered.lease.lease_id))
    assert (receipts(store), handoffs(store), task(store).attempts) == ([], (), 0)
    assert offer(store, "w.2").task.task_id == "F001"


def test_offer_several_gives_as_many_as_there_are(store: SqliteStore) -> None:
    for number in range(3):
        add(store, f"F00{number}")
    grants = ok(claims.offer(store, agent_id="w.1", max_tasks=5))
    assert [grant.task.task_id for grant in grants] == ["F000", "F001", "F002"]
    assert len({grant.lease.lease_id for grant in grants}) == 3
    refused(claims.offer(store, agent_id="w.1", max_tasks=5), "nothing_ready")


def test_offer_two_of_three_leaves_one(store: SqliteStore) -> None:
    for number in range(3):
        add(store, f"F00{number}")
    assert len(ok(claims.offer(store, agent_id="w.1", max_tasks=2))) == 2
    assert offer(store, "w.2").task.task_id == "F002"


def test_accept_offer_after_its_task_was_taken_away_is_refused(store: SqliteStore) -> None:
    add(store)
    offered = offer(store)
    ok(endings.revoke(store, task_id="F001"))
    refused(claims.accept(store, lease_id=offered.lease.lease_id), "lease_lost")


# -- speculative tasks: two slots --------------------------------------------------------------------------------------


@pytest.fixture
def speculative(store: SqliteStore) -> SqliteStore:
    for name in ("A1", "A2", "A3"):
        join(store, name)
    add(store, slots=2)
    return store


def test_claim_speculative_task_gives_two_holders_and_no_third(speculative: SqliteStore) -> None:
    one, two = take(speculative, "A1"), take(speculative, "A2")
    assert {one.slot, two.slot} == {0, 1}
    refused(claims.claim(speculative, task_id="F001", agent_id="A3", profile="agent"), "already_claimed")
    refused(claims.claim_next(speculative, agent_id="A3", profile="agent"), "nothing_ready")
    assert [held.agent_id for held in shown(speculative).leases] == ["A1", "A2"]


def test_claim_speculative_task_twice_by_one_agent_is_refused(speculative: SqliteStore) -> None:
    take(speculative, "A1")
    refused(claims.claim(speculative, task_id="F001", agent_id="A1", profile="agent"), "already_claimed")
    refused(claims.claim_next(speculative, agent_id="A1", profile="agent"), "nothing_ready")
    assert ok(claims.claim_next(speculative, agent_id="A2", profile="agent")).lease.slot == 1


def test_complete_speculative_task_first_wins_and_the_other_is_told(speculative: SqliteStore) -> None:
    take(speculative, "A1")
    loser = take(speculative, "A2")
    ended = done(speculative, "A1")
    assert (ended.task.status, ended.task.obligation) == ("done", "closed")
    assert (lease(speculative, loser.lease_id).state, lease(speculative, loser.lease_id).end_reason) == (
        "revoked",
        "completed_elsewhere",
    )
    told = feel(speculative, "A2").lost
    assert told is not None
    assert told.lease_id == loser.lease_id
    refused(liveness.report(speculative, task_id="F001", agent_id="A2", progress=50), "task_done")
    assert done(speculative, "A2").repeated, "the same outcome is a success"
    assert said(speculative) == ["accepted", "accepted", "complete/success", "escalate/superseded"]


def test_lose_one_of_two_holders_keeps_the_task_in_progress(speculative: SqliteStore, clock: ManualClock) -> None:
    take(speculative, "A1")
    take(speculative, "A2")
    clock.advance(40)
    report(speculative, "A2", 30)
    clock.advance(40)
    assert tick(speculative).recovered == 1
    view = shown(speculative)
    assert (view.status, view.due, view.task.assigned_to) == ("in_progress", False, "A2")
    assert take(speculative, "A3").slot == 0, "its slot is open again"


def test_lose_both_holders_of_a_task_on_its_last_attempt_closes_the_obligation_once(
    store: SqliteStore, clock: ManualClock
) -> None:
    """While one of them is at work there is nothing to give up."""
    add(store, slots=2, max_attempts=1)
    take(store, "w.1", profile="worker")
    clock.advance(10)
    take(store, "w.2", profile="worker")
    clock.advance(890)
    assert tick(store).recovered == 1
    assert shown(store).status == "in_progress"
    assert task(store).obligation != "closed"
    clock.advance(10)
    assert tick(store).recovered == 1
    assert (task(store).status, task(store).obligation) == ("dead", "closed")
    assert said(store).count("escalate/max_retries_exceeded") == 1


def test_resume_does_not_take_an_offer_for_a_holding(store: SqliteStore) -> None:
    add(store)
    ok(claims.offer(store, agent_id="w.1"))
    refused(claims.claim_next(store, agent_id="w.1", profile="worker", resume=True), "nothing_ready")
    assert task(store).obligation == "none"


def test_release_one_of_two_slots_opens_it_again(speculative: SqliteStore) -> None:
    take(speculative, "A1")
    take(speculative, "A2")
    ok(endings.release(speculative, task_id="F001", agent_id="A1"))
    assert task(speculative).assigned_to == "A2"
    assert take(speculative, "A1").slot == 0


def test_revoke_speculative_task_takes_it_from_all_its_holders(speculative: SqliteStore) -> None:
    take(speculative, "A1")
    take(speculative, "A2")
    ok(endings.revoke(speculative, task_id="F001", reason="preempted"))
    assert (shown(speculative).leases, task(speculative).status) == ((), "todo")
    assert {row[0] for row in dump(speculative, "leases")} == {
        event.lease_id for event in events(speculative, "revoked")
    }


def test_claim_speculative_task_kept_for_another_agent_is_refused(speculative: SqliteStore) -> None:
    """By id as by rank: a second slot is nobody's business while the task is kept for one agent."""
    ok(tasks.assign_task(speculative, task_id="F001", assigned_to="A1"))
    refused(claims.claim_next(speculative, agent_id="A2", profile="agent"), "nothing_ready")
    refused(claims.claim(speculative, task_id="F001", agent_id="A2", profile="agent"), "task_assigned")
