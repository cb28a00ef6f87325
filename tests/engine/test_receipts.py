"""The ledger's verbs: the bodies of the specification as printed, binding, deduplication, obligations, late endings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core import receipts as rules
from tenure.core.errors import Refused
from tenure.engine import claims, endings, liveness, projects, tasks
from tenure.engine import receipts as ledger
from tenure.engine.receipts import Submitted, submit_receipt
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import data, events, feel, lease, receipts, row, said, shown, task, tick
from tests.support import add, dump, ok, refused, take

WORKER = "worker.codegen-123"
# The bodies printed in the specification, without their "...".
ACCEPTED = {
    "phase": "accepted",
    "task_id": "T-123",
    "recipient_ai": "worker.codegen",
    "source_system": "worker.codegen-123",
}
COMPLETE = {
    "phase": "complete",
    "task_id": "T-123",
    "status": "success",
    "outcome_kind": "artifact_pointer",
    "artifact_location": "s3://bucket/result.py",
}
PROGRESS = {"phase": "progress", "task_id": "T-123", "progress": 40}
FAILURE = {"phase": "complete", "task_id": "T-123", "status": "failure"}


def submit(store: SqliteStore, body: dict[str, Any], source: str | None = WORKER, **more: Any) -> Submitted:
    return ok(submit_receipt(store, body=body if source is None else {**body, "source_system": source}, **more))


def body_of(store: SqliteStore, position: int = -1) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(receipts(store, "T-123")[position].body)
    return loaded


@pytest.fixture(autouse=True)
def job(store: SqliteStore) -> None:
    add(store, "T-123", title="Generate Python function", principal_ai="delegate.root", kind="code.generate")


def offered(store: SqliteStore, worker: str = WORKER) -> str:
    return ok(claims.offer(store, agent_id=worker))[0].lease.lease_id


def accepted(store: SqliteStore, worker: str = WORKER) -> str:
    """A worker that was offered the task and has accepted it."""
    lease_id = offered(store, worker)
    submit(store, ACCEPTED, worker)
    return lease_id


# -- as printed --------------------------------------------------------------------------------------------------------


def test_submit_the_printed_bodies_runs_the_whole_protocol(store: SqliteStore, clock: ManualClock) -> None:
    lease_id = offered(store)
    first = submit(store, ACCEPTED, None)
    assert (first.task.status, first.task.obligation) == ("in_progress", "open")
    clock.advance(600)
    second = submit(store, PROGRESS)
    assert (second.task.progress, second.lease and second.lease.expires_at_ms) == (40, clock.wall + 900_000)
    clock.advance(600)
    third = submit(store, COMPLETE, None)
    assert (third.task.status, third.task.obligation, third.task.outcome) == ("done", "closed", "success")
    assert lease(store, lease_id).state == "completed"
    assert said(store, "T-123") == ["accepted", "progress", "complete/success"]
    assert ok(ledger.verify(store)).faults == ()


def test_submit_fills_ids_times_and_sentinels(store: SqliteStore) -> None:
    lease_id = accepted(store)
    body = body_of(store)
    assert set(body) == set(rules.FIELDS), "every field is always present"
    assert body["recipient_ai"] == "worker.codegen", "the caller's word stands"
    assert (body["lease_id"], body["principal_ai"], body["task_summary"], body["attempt"]) == (
        lease_id,
        "delegate.root",
        "Generate Python function",
        1,
    )
    assert (body["status"], body["escalation_to"], body["completed_at"]) == ("NA", "NA", None)


def test_submit_without_source_binds_to_the_one_who_holds_it(store: SqliteStore) -> None:
    accepted(store)
    for source in ("NA", "", "TBD", None):
        assert submit(store, {**PROGRESS, "source_system": source}, None).task.progress == 40
    assert body_of(store)["source_system"] == WORKER


def test_submit_by_one_who_holds_nothing_is_refused(store: SqliteStore) -> None:
    accepted(store)
    before = row(store, "tasks", task_id="T-123")
    refused(submit_receipt(store, body={**PROGRESS, "source_system": "worker.other"}), "not_holder")
    refused(submit_receipt(store, body={**COMPLETE, "source_system": "worker.other"}), "not_holder")
    refused(submit_receipt(store, body=COMPLETE, agent_id="worker.other"), "not_holder")
    assert row(store, "tasks", task_id="T-123") == before


def test_submit_binds_by_lease_and_checks_what_else_it_says(store: SqliteStore) -> None:
    lease_id = accepted(store)
    submit(store, {"phase": "progress", "lease_id": lease_id, "progress": 1}, None)
    cases = [
        ({"lease_id": "lease-nobody"}, "lease_not_found"),
        ({"lease_id": lease_id, "task_id": "T-999"}, "invalid_receipt"),
        ({"lease_id": lease_id, "source_system": "worker.other"}, "not_holder"),
        ({"task_id": "T-999"}, "task_not_found"),
        ({}, "invalid_receipt"),
    ]
    for more, code in cases:
        refused(submit_receipt(store, body={"phase": "progress", "progress": 2, **more}), code)
    assert task(store, "T-123").progress == 1


def test_submit_by_a_superseded_run_is_refused(store: SqliteStore) -> None:
    from tenure.engine.agents import register

    accepted(store)
    ok(register(store, agent_id=WORKER, profile="worker"))
    refused(submit_receipt(store, body={**COMPLETE, "source_system": WORKER}, incarnation=1), "superseded")
    assert shown(store, "T-123").status == "in_progress"


def test_submit_acceptance_without_an_offer_is_refused(store: SqliteStore) -> None:
    refused(submit_receipt(store, body=ACCEPTED), "not_holder")
    accepted(store)
    refused(submit_receipt(store, body=ACCEPTED), "already_accepted")
    assert said(store, "T-123") == ["accepted"]


def test_submit_in_the_ledger_never_names_grants_or_heartbeats(store: SqliteStore, clock: ManualClock) -> None:
    lease_id = offered(store)
    clock.advance(900)
    ok(claims.offer(store, agent_id="worker.b"))
    assert dump(store, "receipts") == [], "offers, polls and expired offers leave nothing"
    submit(store, ACCEPTED, "worker.b")
    for _ in range(3):
        clock.advance(10)
        ok(liveness.renew(store, task_id="T-123", agent_id="worker.b"))
        feel(store, "worker.b")
        liveness.report(store, task_id="T-123", agent_id="worker.b", progress=10)
    assert said(store, "T-123") == ["accepted"]
    assert lease_id not in str(dump(store, "receipts"))


# -- dedupe_key --------------------------------------------------------------------------------------------------------


def test_submit_twice_with_a_dedupe_key_gives_the_first_answer(store: SqliteStore, clock: ManualClock) -> None:
    offered(store)
    printed: list[dict[str, Any]] = [ACCEPTED, PROGRESS, COMPLETE]
    bodies = [{**body, "dedupe_key": f"d{number}"} for number, body in enumerate(printed)]
    for body in bodies:
        first = submit(store, body)
        clock.advance(1)
        before = dump(store, "receipts"), row(store, "tasks", task_id="T-123")
        again = submit(store, body)
        assert (again.receipt.receipt_id, again.repeated) == (first.receipt.receipt_id, True)
        assert (dump(store, "receipts"), row(store, "tasks", task_id="T-123")) == before
    for body in bodies:
        assert submit(store, body).repeated, "long after, too"


def test_submit_other_content_under_a_dedupe_key_is_refused(store: SqliteStore) -> None:
    accepted(store)
    submit(store, {**PROGRESS, "dedupe_key": "d1"})
    no = refused(
        submit_receipt(store, body={**COMPLETE, "source_system": WORKER, "dedupe_key": "d1"}), "dedupe_conflict"
    )
    assert no.exit_status == 7
    assert shown(store, "T-123").status == "in_progress"


@pytest.mark.parametrize("nothing", ["NA", "TBD", "", None])
def test_submit_with_a_dedupe_key_that_says_nothing_is_not_deduplicated(
    store: SqliteStore, nothing: str | None
) -> None:
    accepted(store)
    submit(store, {**PROGRESS, "dedupe_key": nothing})
    again = submit(store, {**PROGRESS, "progress": 50, "dedupe_key": nothing})
    assert (again.repeated, again.task.progress) == (False, 50)


def test_submit_with_a_receipt_id_that_exists_is_refused(store: SqliteStore) -> None:
    accepted(store)
    submit(store, {**PROGRESS, "receipt_id": "r1"})
    refused(submit_receipt(store, body={**PROGRESS, "source_system": WORKER, "receipt_id": "r1"}), "dedupe_conflict")


def test_submit_sentinel_message_is_no_message(store: SqliteStore) -> None:
    lease_id = accepted(store)
    submit(store, {**PROGRESS, "message": "half"})
    submit(store, {**PROGRESS, "message": "NA"})
    assert lease(store, lease_id).message == "half"


# -- endings -----------------------------------------------------------------------------------------------------------


def test_submit_failure_uses_an_attempt_and_requeues(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "T-124", after=["T-123"])
    for attempt in (1, 2):
        accepted(store)
        assert body_of(store)["attempt"] == attempt
        ended = submit(store, {**FAILURE, "message": "out of memory"})
        assert (ended.task.status, ended.task.attempts, ended.task.obligation) == ("todo", attempt, "open")
        assert task(store, "T-124").unmet == 1, "dependants stay locked"
        refused(claims.offer(store, agent_id=WORKER), "nothing_ready")
        clock.advance(30)
    accepted(store)
    ended = submit(store, FAILURE)
    assert (ended.task.status, ended.task.obligation) == ("dead", "closed")
    assert said(store, "T-123")[-2:] == ["complete/failure", "escalate/max_retries_exceeded"]
    assert task(store, "T-124").unmet == 1


def test_submit_cancellation_makes_the_task_dead(store: SqliteStore) -> None:
    add(store, "T-124", after=["T-123"])
    accepted(store)
    ended = submit(store, {"phase": "complete", "task_id": "T-123", "status": "canceled"})
    assert (ended.task.status, ended.task.outcome, ended.task.obligation) == ("dead", "canceled", "closed")
    assert task(store, "T-124").unmet == 1
    refused(claims.claim(store, task_id="T-123", agent_id="A2"), "task_dead")
    assert ok(tasks.requeue_task(store, task_id="T-123")).status == "todo"


def test_submit_escalation_hands_the_task_to_someone_else(store: SqliteStore) -> None:
    lease_id = accepted(store)
    body = {"phase": "escalate", "task_id": "T-123", "escalation_class": "capability", "escalation_reason": "no GPU"}
    ended = submit(store, body)
    assert (ended.task.status, ended.task.obligation) == ("blocked", "open")
    assert ended.task.blocked_reason == "escalated to delegate.root: no GPU"
    assert lease(store, lease_id).state == "released"
    assert body_of(store)["recipient_ai"] == "delegate.root"


@pytest.mark.parametrize(
    ("supervisor", "principal", "to"),
    [("", "delegate.root", "delegate.root"), ("chief", "delegate.root", "chief"), ("", "", "Marcus")],
    ids=["principal", "supervisor", "nobody named"],
)
def test_escalate_goes_to_the_supervisor_else_to_the_principal(
    store: SqliteStore, clock: ManualClock, supervisor: str, principal: str, to: str
) -> None:
    ok(projects.configure(store, document={"tenure": {"supervisor": supervisor}}))
    ok(tasks.edit_task(store, task_id="T-123", principal_ai=principal))
    accepted(store)
    clock.advance(900)
    tick(store)
    body = body_of(store)
    assert (body["escalation_class"], body["escalation_reason"]) == ("policy", "lease_expired")
    assert (body["escalation_to"], body["recipient_ai"]) == (to, to)


# -- late endings ------------------------------------------------------------------------------------------------------


def lost(store: SqliteStore, clock: ManualClock) -> str:
    """A worker that accepted the task and let its lease run out; it has been recovered."""
    lease_id = accepted(store)
    clock.advance(900)
    assert tick(store).recovered == 1
    assert task(store, "T-123").obligation == "overdue"
    return lease_id


@pytest.mark.parametrize("recovered", [True, False], ids=["recovered", "not recovered yet"])
def test_submit_late_success_completes_the_free_task(store: SqliteStore, clock: ManualClock, recovered: bool) -> None:
    if recovered:
        lost(store, clock)
    else:
        accepted(store)
        clock.advance(900)
    ended = submit(store, COMPLETE)
    assert (ended.task.status, ended.task.obligation) == ("done", "closed")
    assert said(store, "T-123") == ["accepted", "escalate/lease_expired", "complete/success"]


def test_submit_late_success_after_another_took_it_revokes_the_newer_lease(
    store: SqliteStore, clock: ManualClock
) -> None:
    lost(store, clock)
    clock.advance(30)
    newer = accepted(store, "worker.b")
    ended = submit(store, COMPLETE)
    assert (ended.task.status, ended.task.obligation, ended.task.assigned_to) == ("done", "closed", WORKER)
    assert (lease(store, newer).state, lease(store, newer).end_reason) == ("revoked", "completed_elsewhere")
    told = feel(store, "worker.b").lost
    assert told is not None
    again = submit(store, COMPLETE, "worker.b")
    assert again.task.status == "done"
    assert data(events(store, "late")[0])["status"] == "success", "the loser's own success is only recorded"
    assert ok(ledger.verify(store)).faults == ()


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
@pytest.mark.parametrize("status", ["failure", "canceled"])
def test_submit_late_failure_is_only_recorded(store: SqliteStore, clock: ManualClock, taken: bool, status: str) -> None:
    lost(store, clock)
    clock.advance(30)
    newer = accepted(store, "worker.b") if taken else None
    before = task(store, "T-123")
    leases = dump(store, "leases")
    ended = submit(store, {**FAILURE, "status": status})
    assert said(store, "T-123")[-1] == f"complete/{status}"
    assert (ended.task.status, ended.task.attempts, ended.task.obligation) == (
        before.status,
        before.attempts,
        before.obligation,
    )
    assert dump(store, "leases") == leases
    if newer:
        assert submit(store, COMPLETE, "worker.b").task.status == "done"


def test_submit_late_success_after_the_task_is_dead_is_only_recorded(store: SqliteStore, clock: ManualClock) -> None:
    ok(tasks.edit_task(store, task_id="T-123", max_attempts=1))
    accepted(store)
    clock.advance(900)
    tick(store)
    assert task(store, "T-123").status == "dead"
    ended = submit(store, COMPLETE)
    assert (ended.task.status, ended.task.obligation) == ("dead", "closed")


def test_submit_late_success_of_an_agent_is_refused(store: SqliteStore, clock: ManualClock) -> None:
    """The exception is the worker profile's. An agent's late completion is healed or refused, never just taken."""
    take(store, "A1", "T-123", profile="cli")
    clock.advance(900)
    take(store, "A2", "T-123", profile="cli")
    before = row(store, "tasks", task_id="T-123")
    refused(submit_receipt(store, body={**COMPLETE, "source_system": "A1"}), "lease_lost")
    assert row(store, "tasks", task_id="T-123") == before


@pytest.mark.parametrize(
    "body",
    [
        ACCEPTED,
        PROGRESS,
        {"phase": "escalate", "escalation_class": "other", "escalation_reason": "x", "task_id": "T-123"},
    ],
    ids=lambda body: str(body["phase"]),
)
def test_submit_other_late_receipts_are_refused(store: SqliteStore, clock: ManualClock, body: dict[str, Any]) -> None:
    lost(store, clock)
    before = dump(store, "receipts")
    assert refused(submit_receipt(store, body={"source_system": WORKER, **body}), "lease_lost").exit_status == 6
    assert dump(store, "receipts") == before


# -- the obligation ----------------------------------------------------------------------------------------------------


def test_follow_obligation_opens_is_overdue_is_handed_on_and_closes_once(
    store: SqliteStore, clock: ManualClock
) -> None:
    def owed() -> list[tuple[str, str]]:
        return [(found.task_id, found.obligation) for found in ok(ledger.obligations(store))]

    assert owed() == []
    accepted(store)
    assert owed() == [("T-123", "open")]
    clock.advance(900)
    assert owed() == [("T-123", "open")], "a read writes nothing"
    tick(store)
    assert owed() == [("T-123", "overdue")]
    clock.advance(30)
    accepted(store, "worker.b")
    assert owed() == [("T-123", "open")], "handed on"
    submit(store, COMPLETE, "worker.b")
    assert owed() == []
    submit(store, COMPLETE, WORKER)
    ok(endings.complete(store, task_id="T-123", force=True))
    assert (owed(), task(store, "T-123").obligation) == ([], "closed")


def test_list_receipts_by_what_they_say(store: SqliteStore, clock: ManualClock) -> None:
    accepted(store)
    clock.advance(10)
    submit(store, PROGRESS)
    add(store, "T-200")
    take(store, "A1", "T-200", profile="cli")

    def found(**filters: Any) -> list[tuple[str, str]]:
        return [(receipt.task_id, receipt.phase) for receipt in ok(ledger.list_receipts(store, **filters))]

    assert found() == [("T-123", "accepted"), ("T-123", "progress"), ("T-200", "accepted")]
    assert found(task_id="T-123", phase="progress") == [("T-123", "progress")]
    assert found(principal="delegate.root", limit=1) == [("T-123", "accepted")]
    assert found(since_ms=clock.wall) == [("T-123", "progress"), ("T-200", "accepted")]
    assert found(until_ms=clock.wall) == [("T-123", "accepted")]
    last = ok(ledger.list_receipts(store, limit=2))[-1]
    assert found(after=last.seq) == [("T-200", "accepted")]
    assert ok(ledger.show_receipt(store, receipt_id=last.receipt_id)).hash == last.hash
    assert isinstance(ledger.show_receipt(store, receipt_id="r404"), Refused)


def test_submit_answers_with_the_receipt_as_it_is_stored(store: SqliteStore) -> None:
    offered(store)
    for body in (ACCEPTED, PROGRESS, {**COMPLETE, "dedupe_key": "key-1"}):
        told = submit(store, body).receipt
        assert told == ok(ledger.show_receipt(store, receipt_id=told.receipt_id))
