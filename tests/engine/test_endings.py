"""Letting go: release, complete, block, revoke, reopen, requeue, delete, depart; and what follows for dependants."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tenure.clock import ManualClock
from tenure.engine import agents, claims, dependencies, endings, liveness, observe, tasks
from tenure.engine.receipts import verify
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import (
    data,
    done,
    events,
    feel,
    handoffs,
    lease,
    receipts,
    report,
    said,
    shown,
    task,
    thread,
    tick,
    whole,
)
from tests.support import add, dump, join, ok, refused, take


@pytest.fixture(autouse=True)
def fleet(store: SqliteStore) -> None:
    for name in ("A1", "A2"):
        join(store, name)
    add(store)


# -- release -----------------------------------------------------------------------------------------------------------


def test_release_gives_the_task_back_with_a_handoff_and_a_note(store: SqliteStore) -> None:
    held = take(store, "A1")
    report(store, "A1", 30)
    ended = ok(endings.release(store, task_id="F001", agent_id="A1", message="Context is full; see notes.md"))
    assert (ended.task.status, ended.task.assigned_to, ended.task.owner) == ("todo", None, None)
    assert lease(store, held.lease_id).state == "released"
    grant = ok(claims.claim(store, task_id="F001", agent_id="A2", profile="agent"))
    assert [(made.recovery_reason, made.previous_progress) for made in grant.handoffs] == [("released", 30)]
    assert "Context is full; see notes.md" in [message.text for message in grant.messages]
    assert grant.task.attempts == 0, "giving back is no lost attempt"
    assert said(store) == ["accepted", "escalate/released", "accepted"]


def test_release_repeated_by_its_lease_is_the_same_answer(store: SqliteStore) -> None:
    held = take(store, "A1")
    ok(endings.release(store, lease_id=held.lease_id))
    before = whole(store)
    again = ok(endings.release(store, lease_id=held.lease_id))
    assert (again.repeated, whole(store)) == (True, before)


def test_release_by_another_is_refused_and_by_an_operator_is_recorded(store: SqliteStore) -> None:
    held = take(store, "A1")
    assert refused(endings.release(store, task_id="F001", agent_id="A2"), "not_holder").exit_status == 8
    assert shown(store).status == "in_progress"
    ok(endings.release(store, task_id="F001", agent_id="ann", force=True, message="needed elsewhere"))
    assert (lease(store, held.lease_id).state, lease(store, held.lease_id).end_reason) == ("revoked", "operator")
    (event,) = events(store, "revoked")
    assert (event.agent_id, data(event)["by"]) == ("A1", "ann")
    assert said(store)[-1] == "escalate/revoked"
    refused(endings.release(store, agent_id="ann", force=True), "invalid_argument")
    refused(endings.release(store, task_id="F001", agent_id="ann", force=True), "wrong_state")


# -- complete ----------------------------------------------------------------------------------------------------------


def test_complete_closes_lease_obligation_and_task(store: SqliteStore, clock: ManualClock) -> None:
    held = take(store, "A1")
    clock.advance(5)
    ended = done(store, "A1", outcome_text="It works.", artifact_location="s3://b/x.py")
    assert (ended.task.status, ended.task.progress, ended.task.outcome) == ("done", 100, "success")
    assert (ended.task.obligation, ended.task.done_at_ms, ended.task.assigned_to) == ("closed", clock.wall, "A1")
    assert lease(store, held.lease_id).state == "completed"
    body = json.loads(receipts(store)[-1].body)
    assert (body["status"], body["outcome_kind"], body["outcome_text"]) == ("success", "mixed", "It works.")
    assert tick(store).wait_ms is None, "no timer is left"


def test_complete_unlocks_dependants_in_the_same_transaction(store: SqliteStore) -> None:
    add(store, "F002", after=["F001"])
    add(store, "F003", after=["F001", "F002"])
    take(store, "A1")
    ended = done(store, "A1")
    assert ended.unlocked == ("F002",)
    assert (task(store, "F002").unmet, task(store, "F003").unmet) == (0, 1)
    assert ok(claims.claim_next(store, agent_id="A2", profile="agent")).task.task_id == "F002"


def test_complete_twice_is_a_success_without_a_second_receipt(store: SqliteStore) -> None:
    take(store, "A1")
    done(store, "A1")
    before = whole(store)
    assert done(store, "A1").repeated
    assert whole(store) == before


def test_complete_by_another_is_refused_and_by_an_operator_is_recorded(store: SqliteStore) -> None:
    held = take(store, "A1")
    refused(endings.complete(store, task_id="F001", agent_id="A2"), "not_holder")
    ended = ok(endings.complete(store, task_id="F001", agent_id="ann", force=True))
    assert (ended.task.status, ended.task.assigned_to, ended.task.obligation) == ("done", "ann", "closed")
    assert lease(store, held.lease_id).end_reason == "completed_elsewhere"
    told = feel(store, "A1").lost
    assert told is not None
    assert told.lease_id == held.lease_id
    assert json.loads(receipts(store)[1].body)["source_system"] == "ann"
    assert ok(endings.complete(store, task_id="F001", agent_id="ann", force=True)).repeated


def test_complete_by_force_of_a_task_nobody_ever_held_opens_no_obligation(store: SqliteStore) -> None:
    ended = ok(endings.complete(store, task_id="F001", force=True))
    assert (ended.task.status, ended.task.obligation, said(store)) == ("done", "none", ["complete/success"])


# -- block -------------------------------------------------------------------------------------------------------------


def test_block_by_the_holder_ends_the_lease_and_keeps_the_handoff(store: SqliteStore) -> None:
    held = take(store, "A1")
    report(store, "A1", 30)
    ended = ok(endings.block(store, task_id="F001", agent_id="A1", reason="No API\nkeys", severity="high"))
    assert (ended.task.status, ended.task.assigned_to, ended.task.blocked_reason) == ("blocked", None, "No API keys")
    assert (lease(store, held.lease_id).state, lease(store, held.lease_id).end_reason) == ("released", "blocked")
    assert [made.recovery_reason for made in handoffs(store)] == ["blocked"]
    assert data(events(store, "blocked")[0])["severity"] == "high"
    refused(claims.claim(store, task_id="F001", agent_id="A2", profile="agent"), "task_blocked")
    ok(tasks.unblock_task(store, task_id="F001", by="ann", note="Keys are in the vault."))
    grant = ok(claims.claim(store, task_id="F001", agent_id="A2", profile="agent"))
    assert grant.handoffs[0].previous_progress == 30
    assert "Keys are in the vault." in [message.text for message in grant.messages]


def test_block_free_task_by_anyone(store: SqliteStore) -> None:
    ended = ok(endings.block(store, task_id="F001", agent_id="ann", reason="wait for legal"))
    assert (ended.task.status, ended.lease) == ("blocked", None)
    refused(endings.block(store, task_id="F001", reason="again"), "wrong_state")


def test_block_held_task_by_another_needs_force(store: SqliteStore) -> None:
    held = take(store, "A1")
    refused(endings.block(store, task_id="F001", agent_id="A2", reason="mine"), "not_holder")
    assert shown(store).status == "in_progress"
    ended = ok(endings.block(store, task_id="F001", agent_id="ann", reason="stop it", force=True))
    assert (ended.task.status, lease(store, held.lease_id).state) == ("blocked", "revoked")
    refused(liveness.report(store, task_id="F001", agent_id="A1", progress=1), "task_blocked")


@pytest.mark.parametrize("status", ["blocked", "done"])
def test_unblock_what_is_not_blocked_and_reopen_what_is_not_done_are_refused(store: SqliteStore, status: str) -> None:
    if status == "done":
        ok(endings.complete(store, task_id="F001", force=True))
        refused(tasks.unblock_task(store, task_id="F001"), "wrong_state")
        refused(tasks.requeue_task(store, task_id="F001"), "wrong_state")
        refused(tasks.assign_task(store, task_id="F001", assigned_to="Bob"), "wrong_state")
    else:
        ok(endings.block(store, task_id="F001", reason="x"))
        refused(tasks.reopen_task(store, task_id="F001"), "wrong_state")
        assert ok(tasks.requeue_task(store, task_id="F001")).status == "todo"


# -- revoke ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", endings.REVOKE_REASONS)
def test_revoke_takes_the_task_away_and_the_holder_is_told(store: SqliteStore, reason: str) -> None:
    held = take(store, "A1")
    report(store, "A1", 30)
    ok(endings.revoke(store, task_id="F001", reason=reason, by="board", message="moved"))
    assert (task(store).status, task(store).attempts) == ("todo", 0)
    assert (lease(store, held.lease_id).state, lease(store, held.lease_id).end_reason) == ("revoked", reason)
    assert [made.recovery_reason for made in handoffs(store)] == [reason]
    assert "moved" in thread(store)
    assert feel(store, "A1").lost is not None
    refused(liveness.report(store, task_id="F001", agent_id="A1", progress=40), "lease_lost")
    assert task(store).status == "todo", "what was taken away is not healed"


def test_revoke_what_nobody_holds_is_refused(store: SqliteStore) -> None:
    refused(endings.revoke(store, task_id="F001"), "wrong_state")
    refused(endings.revoke(store, task_id="F404"), "task_not_found")


# -- reopen, requeue ---------------------------------------------------------------------------------------------------


def test_reopen_locks_dependants_again(store: SqliteStore) -> None:
    add(store, "F002", after=["F001"])
    take(store, "A1")
    done(store, "A1")
    assert task(store, "F002").unmet == 0
    reopened = ok(tasks.reopen_task(store, task_id="F001", by="ann", note="The tests are red."))
    assert (reopened.status, reopened.progress, reopened.done_at_ms, reopened.outcome) == ("todo", 0, None, "")
    assert task(store, "F002").unmet == 1
    refused(claims.claim(store, task_id="F002", agent_id="A2", profile="agent"), "dependencies_unmet")
    grant = ok(claims.claim(store, task_id="F001", agent_id="A2", profile="agent"))
    assert "The tests are red." in [message.text for message in grant.messages]
    assert done(store, "A2").unlocked == ("F002",)
    assert said(store).count("complete/success") == 2


def test_requeue_held_or_ready_task_is_refused(store: SqliteStore) -> None:
    refused(tasks.requeue_task(store, task_id="F001"), "wrong_state")
    take(store, "A1")
    refused(tasks.requeue_task(store, task_id="F001"), "task_held")
    refused(tasks.assign_task(store, task_id="F001", assigned_to="A2"), "task_held")


def test_requeue_waiting_retry_runs_it_now(store: SqliteStore, clock: ManualClock) -> None:
    take(store, "w.1", profile="worker")
    clock.advance(900)
    tick(store)
    refused(claims.claim(store, task_id="F001", agent_id="w.2", profile="worker"), "task_waiting")
    ok(tasks.requeue_task(store, task_id="F001"))
    assert ok(claims.offer(store, agent_id="w.2"))[0].task.task_id == "F001"


# -- delete ------------------------------------------------------------------------------------------------------------


def test_delete_free_task_removes_it_and_keeps_its_receipts(store: SqliteStore) -> None:
    take(store, "A1")
    ok(endings.release(store, task_id="F001", agent_id="A1"))
    before = dump(store, "receipts")
    ok(tasks.delete_task(store, task_id="F001"))
    refused(observe.show_task(store, task_id="F001"), "task_not_found")
    kept = dump(store, "receipts")
    assert kept[:-1] == before
    # The obligation that was still open is closed with a word.
    assert '"escalation_reason":"revoked"' in str(kept[-1])
    assert ok(verify(store)).faults == ()
    assert dump(store, "leases") == dump(store, "timers") == []


def test_delete_held_task_needs_force(store: SqliteStore) -> None:
    held = take(store, "A1")
    refused(tasks.delete_task(store, task_id="F001"), "task_held")
    ok(tasks.delete_task(store, task_id="F001", by="ann", force=True))
    assert feel(store, "A1").leases == ()
    refused(liveness.report(store, task_id="F001", agent_id="A1", progress=1), "task_not_found")
    refused(liveness.renew(store, lease_id=held.lease_id), "lease_not_found")


@pytest.mark.parametrize("finished", [False, True], ids=["unfinished", "done"])
def test_delete_task_with_dependants_leaves_them_waiting_for_its_name(store: SqliteStore, finished: bool) -> None:
    add(store, "F002", after=["F001"])
    if finished:
        ok(endings.complete(store, task_id="F001", force=True))
    no = refused(tasks.delete_task(store, task_id="F001"), "has_dependants")
    assert no.facts["dependants"] == ["F002"]
    ok(tasks.delete_task(store, task_id="F001", force=True))
    assert task(store, "F002").unmet == 1
    waits = refused(claims.claim(store, task_id="F002", agent_id="A1", profile="agent"), "dependencies_unmet")
    assert waits.facts["unmet"] == ["F001"]
    assert ok(observe.show_task(store, task_id="F002")).needs[0].missing
    assert ok(observe.gridlock(store)).missing == {"F002": ("F001",)}


def test_add_deleted_task_again_resolves_the_name_and_tokens_keep_growing(store: SqliteStore) -> None:
    add(store, "F002", after=["F001"])
    first = take(store, "A1")
    ok(tasks.delete_task(store, task_id="F001", force=True))
    add(store)
    assert not ok(observe.show_task(store, task_id="F002")).needs[0].missing
    second = take(store, "A1")
    assert second.token > first.token
    assert done(store, "A1").unlocked == ("F002",)


def test_remove_missing_dependency_frees_the_task(store: SqliteStore) -> None:
    add(store, "F002", after=["F001"])
    ok(tasks.delete_task(store, task_id="F001", force=True))
    ok(dependencies.remove_dependency(store, task_id="F002", needs="F001"))
    assert take(store, "A1", "F002").task_id == "F002"
    refused(dependencies.remove_dependency(store, task_id="F002", needs="F001"), "dependency_not_found")


# -- dependencies ------------------------------------------------------------------------------------------------------


def test_add_dependency_that_closes_a_cycle_is_refused_with_its_path(store: SqliteStore) -> None:
    add(store, "F002", after=["F001"])
    add(store, "F003", after=["F002"])
    before = whole(store)
    no = refused(dependencies.add_dependency(store, task_id="F001", needs="F003"), "cycle")
    assert set(no.facts["cycle"]) == {"F001", "F002", "F003"}
    refused(dependencies.add_dependency(store, task_id="F001", needs="F001"), "cycle")
    refused(tasks.add_task(store, task_id="F009", title="T", after=["F009"]), "cycle")
    loop = [{"task_id": "X", "title": "X", "after": ["Y"]}, {"task_id": "Y", "title": "Y", "after": ["X"]}]
    refused(tasks.add_tasks(store, tasks=loop), "cycle")
    assert whole(store) == before, "nothing is half written"


def test_add_dependency_on_a_missing_name_needs_leave(store: SqliteStore) -> None:
    refused(dependencies.add_dependency(store, task_id="F001", needs="F404"), "task_not_found")
    waits = ok(dependencies.add_dependency(store, task_id="F001", needs="F404", allow_missing=True))
    assert waits.unmet == 1
    again = ok(dependencies.add_dependency(store, task_id="F001", needs="F404", allow_missing=True))
    assert again.unmet == 1, "the same edge twice is one edge"


def test_add_many_tasks_in_any_order_is_all_or_nothing(store: SqliteStore) -> None:
    good: list[dict[str, object]] = [{"task_id": "B", "title": "B", "after": ["A"]}, {"task_id": "A", "title": "A"}]
    assert [made.unmet for made in ok(tasks.add_tasks(store, tasks=good))] == [1, 0]
    before = whole(store)
    refused(tasks.add_tasks(store, tasks=[{"title": "new"}, {"task_id": "A", "title": "A"}]), "task_exists")
    lost: list[dict[str, object]] = [{"title": "new"}, {"title": "x", "after": ["nope"]}]
    refused(tasks.add_tasks(store, tasks=lost), "task_not_found")
    assert whole(store) == before


def test_add_task_again_with_its_dedupe_key_returns_the_first(store: SqliteStore) -> None:
    first = add(store, "F010", dedupe_key="d1")
    assert ok(tasks.add_task(store, title="Task F010", dedupe_key="d1")).key == first.key
    refused(tasks.add_task(store, title="another", dedupe_key="d1"), "dedupe_conflict")


def test_show_graph_of_a_project_and_around_a_task(store: SqliteStore) -> None:
    add(store, "F002", after=["F001"])
    add(store, "F003", after=["F002"])
    add(store, "F100", after=["gone"], allow_missing=True)
    edges = [(edge.task_id, edge.needs, edge.missing) for edge in ok(dependencies.graph(store))]
    assert edges == [("F002", "F001", False), ("F003", "F002", False), ("F100", "gone", True)]
    around = ok(dependencies.graph(store, task_id="F001"))
    assert [edge.task_id for edge in around] == ["F002", "F003"]


# -- depart ------------------------------------------------------------------------------------------------------------


def test_depart_puts_what_the_agent_holds_on_offer_at_once(store: SqliteStore) -> None:
    take(store, "A1")
    assert ok(agents.depart(store, agent_id="A1", reason="shift is over")).state == "departed"
    assert shown(store).due
    grant = ok(claims.claim_next(store, agent_id="A2", profile="agent"))
    assert [made.recovery_reason for made in grant.handoffs] == ["departed"]
    assert ok(observe.statistics(store)).agents == 1
    refused(agents.depart(store, agent_id="A404"), "agent_not_found")


Operation = Callable[[SqliteStore], object]


@pytest.mark.parametrize(
    "operation",
    [
        lambda store: endings.revoke(store, task_id="F001"),
        lambda store: endings.complete(store, task_id="F001", force=True),
        lambda store: endings.block(store, task_id="F001", reason="x", force=True),
        lambda store: tasks.delete_task(store, task_id="F001", force=True),
    ],
    ids=["revoke", "complete", "block", "delete"],
)
def test_end_lease_leaves_no_timer_behind(store: SqliteStore, operation: Operation) -> None:
    take(store, "A1")
    operation(store)
    assert dump(store, "timers") == []
