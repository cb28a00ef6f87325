"""The gate's side: a project that records receipts about tasks that live elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.engine import receipts as ledger
from tenure.engine.ledger import Submitted
from tenure.engine.projects import configure, create_project
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import whole
from tests.gates.support import report
from tests.support import add, ok, refused, take


@pytest.fixture
def gate(store: SqliteStore) -> SqliteStore:
    ok(create_project(store, project_id="gate", settings={"tenure": {"foreign_receipts": True}}))
    return store


def submit(store: SqliteStore, body: dict[str, Any], project_id: str | None = "gate") -> Any:
    return ledger.submit_receipt(store, body=body, project_id=project_id)


def test_record_without_the_setting_refuses_a_task_it_does_not_know(store: SqliteStore) -> None:
    before = whole(store)
    refused(submit(store, report("T-1"), None), "task_not_found")
    refused(submit(store, report("T-1"), "default"), "task_not_found")
    assert whole(store) == before


def test_record_a_foreign_receipt_appends_to_a_chain_of_its_task(gate: SqliteStore) -> None:
    first: Submitted = ok(submit(gate, report("T-1", lease_id="lease-of-theirs", principal_ai="root")))
    second: Submitted = ok(submit(gate, report("T-1", "complete")))
    other: Submitted = ok(submit(gate, report("T-2")))
    assert [one.receipt.position for one in (first, second, other)] == [1, 2, 1]
    assert second.receipt.prev_hash == first.receipt.hash
    body = json.loads(first.receipt.body)
    assert (body["lease_id"], body["principal_ai"], body["project_id"]) == ("lease-of-theirs", "root", "gate")
    ok(ledger.seal(gate))
    verified = ok(ledger.verify(gate))
    assert (verified.tasks, verified.receipts, verified.faults) == (2, 3, ())


def test_record_makes_no_task_no_obligation_and_no_event(gate: SqliteStore) -> None:
    before = whole(gate)
    ok(submit(gate, report("T-1")))
    changed = {name for name, rows in whole(gate).items() if rows != before[name]}
    assert changed - {"sqlite_sequence"} == {"receipts", "foreign_tasks"}


def test_verify_finds_a_changed_a_missing_and_an_orphaned_foreign_receipt(gate: SqliteStore) -> None:
    ok(submit(gate, report("T-1")))
    ok(submit(gate, report("T-1", "complete")))
    gate.connection.execute("SAVEPOINT whole")
    for damage in (
        "UPDATE receipts SET body = replace(body, 'success', 'failure') WHERE position = 2",
        "DELETE FROM receipts WHERE position = 2",
        "DELETE FROM receipts WHERE position = 1",
        "DELETE FROM foreign_tasks",
    ):
        gate.connection.execute(damage)
        faults = _faults(gate)
        gate.connection.execute("ROLLBACK TO whole")
        assert len(faults) == 1, damage
    gate.connection.execute("RELEASE whole")


def _faults(store: SqliteStore) -> tuple[str, ...]:
    """What verification finds, inside the transaction that did the damage."""
    from tenure.store.store import Transaction

    found = ledger.verify.body(Transaction(store.connection, store.queries, 0, store.random))
    return ok(found).faults


def test_record_the_same_receipt_again_gets_the_first_answer(gate: SqliteStore) -> None:
    body = report("T-1", receipt_id="R-1", dedupe_key="k")
    first: Submitted = ok(submit(gate, body))
    before = whole(gate)
    for again in (body, {**body, "dedupe_key": "k"}, {**report("T-1"), "dedupe_key": "k"}):
        answer: Submitted = ok(submit(gate, again))
        assert answer.repeated
        assert answer.receipt.receipt_id == first.receipt.receipt_id
    assert whole(gate) == before


OTHERS = [
    {"receipt_id": "R-1", "dedupe_key": "k", "message": "something else"},
    {"receipt_id": "R-1", "dedupe_key": "other"},
    {"receipt_id": "R-2", "dedupe_key": "k", "phase": "complete", "status": "success", "outcome_kind": "none"},
    {"receipt_id": "R-1", "dedupe_key": "k", "task_id": "T-2"},
    {"receipt_id": "R-1", "dedupe_key": "k", "source_system": "worker.w9"},
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_record_another_receipt_under_a_known_key_is_refused_and_leaves_no_trace(
    gate: SqliteStore, other: dict[str, Any]
) -> None:
    ok(submit(gate, report("T-1", receipt_id="R-1", dedupe_key="k")))
    before = whole(gate)
    refused(submit(gate, {**report("T-1"), **other}), "dedupe_conflict")
    assert {**whole(gate), "sqlite_sequence": []} == {**before, "sqlite_sequence": []}


BAD = [
    {"source_system": "NA"},
    {"source_system": None},
    {"status": "success"},
    {"phase": "complete", "status": "great"},
    {"phase": "escalate"},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_record_a_receipt_against_the_rules_is_refused_and_leaves_no_trace(
    gate: SqliteStore, bad: dict[str, Any]
) -> None:
    before = whole(gate)
    refused(submit(gate, {**report("T-1"), **bad}), "invalid_receipt")
    assert {**whole(gate), "sqlite_sequence": []} == {**before, "sqlite_sequence": []}


def test_record_in_the_name_of_another_than_the_token_is_refused(gate: SqliteStore) -> None:
    answer = ledger.submit_receipt(gate, body=report("T-1"), project_id="gate", agent_id="worker.other")
    refused(answer, "not_permitted")


def test_record_a_receipt_about_a_task_of_the_project_acts_as_always(gate: SqliteStore) -> None:
    ok(configure(gate, document={"tenure": {"foreign_receipts": True}}))
    add(gate, "F001")
    take(gate, "worker.w1", profile="worker")
    done: Submitted = ok(submit(gate, report("F001", "complete"), None))
    assert done.task.status == "done"
    assert ok(ledger.verify(gate)).faults == ()
