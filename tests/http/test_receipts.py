"""`/receipts` and `/obligations`: the ledger, as the specification prints it and by the rules of each phase."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.serving import Api, must, problem

LONG = 100 * 1024


def test_receipts_as_printed_accept_and_complete(own: Api) -> None:
    own.add(task_id="T-123", expected_outcome_kind="artifact_pointer", expected_artifact_mime="text/x-python")
    offer = own.offer("worker.codegen-123")
    accepted = must(
        own.post(
            "/receipts",
            {
                "phase": "accepted",
                "task_id": "T-123",
                "recipient_ai": "worker.codegen",
                "source_system": "worker.codegen-123",
            },
        ),
        201,
    )
    assert accepted["lease_id"] == offer["lease_id"]
    assert accepted["recipient_ai"] == "worker.codegen"
    assert accepted["attempt"] == 1
    assert own.task("T-123")["queue_status"] == "leased"
    assert own.task("T-123")["status"] == "in_progress"
    done = must(
        own.post(
            "/receipts",
            {
                "phase": "complete",
                "task_id": "T-123",
                "status": "success",
                "outcome_kind": "artifact_pointer",
                "artifact_location": "s3://bucket/result.py",
            },
        ),
        201,
    )
    assert done["source_system"] == "worker.codegen-123"
    assert done["artifact_mime"] == "text/x-python"
    assert done["completed_at"]
    assert own.task("T-123")["status"] == "done"
    assert must(own.get("/lease", worker_id="worker.codegen-123")) == {"leases": []}


def test_accepted_receipt_is_filled_with_sentinels(api: Api) -> None:
    api.add(task_id="T-1", principal_ai="delegate.root", task_type="code.generate", inputs={"a": 1})
    api.offer()
    receipt = api.accept("T-1")
    assert len(receipt["receipt_id"]) == 26
    assert receipt["status"] == receipt["outcome_kind"] == receipt["artifact_location"] == "NA"
    assert receipt["escalation_class"] == receipt["escalation_reason"] == receipt["escalation_to"] == "NA"
    assert receipt["completed_at"] is None
    assert receipt["artifact_size_bytes"] == 0
    assert receipt["metadata"] == {}
    assert receipt["inputs"] == {"a": 1}
    assert receipt["principal_ai"] == "delegate.root"
    assert receipt["task_type"] == "code.generate"
    assert receipt["created_at"] == receipt["started_at"] or receipt["started_at"] is None


def test_accepted_receipt_needs_a_live_offer(api: Api) -> None:
    api.add(task_id="T-1")
    problem(api.receipt("accepted", "T-1"), 403, "not_holder")
    api.take()
    problem(api.receipt("accepted", "T-1"), 409, "already_accepted")
    problem(api.receipt("accepted", "T-1", "worker.2"), 403, "not_holder")
    problem(api.receipt("accepted", "T-nowhere"), 404, "task_not_found")
    assert len(api.receipts("T-1")) == 1


def test_complete_receipt_without_acceptance_is_refused(api: Api) -> None:
    api.add(task_id="T-1")
    api.offer()
    problem(api.complete("T-1"), 409, "not_accepted")
    problem(api.receipt("progress", "T-1", progress=1), 409, "not_accepted")
    assert api.receipts("T-1") == []


def test_progress_receipt_renews_and_is_recorded(api: Api) -> None:
    api.add(task_id="T-1", lease_duration_s=60)
    offer = api.take()
    receipt = must(api.receipt("progress", "T-1", progress=60, message="Most of it"), 201)
    assert receipt["progress"] == 60
    shown = api.task("T-1")
    assert shown["progress"] == 60
    assert shown["lease_expires_at"] > offer["lease_expires_at"]


def test_complete_with_failure_uses_an_attempt_and_requeues(api: Api) -> None:
    api.add(task_id="T-1")
    api.take()
    must(api.complete("T-1", status="failure", message="It broke"), 201)
    shown = api.task("T-1")
    assert (shown["status"], shown["queue_status"], shown["attempts"]) == ("todo", "retry_pending", 1)
    assert shown["attempt"] == 2
    assert shown["retry_after"]


def test_complete_canceled_ends_the_task(api: Api) -> None:
    api.add(task_id="T-1")
    api.take()
    must(api.complete("T-1", status="canceled"), 201)
    assert api.task("T-1")["status"] == "dead"


def test_escalate_receipt_hands_the_task_over(api: Api) -> None:
    api.add(task_id="T-1", principal_ai="delegate.root")
    api.take()
    fields = {"escalation_class": "capability", "escalation_reason": "needs a GPU"}
    receipt = must(api.receipt("escalate", "T-1", **fields), 201)
    assert receipt["escalation_to"] == receipt["recipient_ai"] == "delegate.root"
    assert api.task("T-1")["status"] == "blocked"


RULES: dict[str, tuple[str, dict[str, Any], str]] = {
    "accepted with a status": ("accepted", {"status": "success"}, "status"),
    "accepted with a completion time": ("accepted", {"completed_at": "2026-01-04T15:45:00Z"}, "completed_at"),
    "accepted with an outcome": ("accepted", {"outcome_kind": "none"}, "outcome_kind"),
    "accepted with an artifact": ("accepted", {"artifact_location": "s3://a"}, "artifact_location"),
    "accepted with an escalation": ("accepted", {"escalation_class": "owner"}, "escalation_class"),
    "progress beyond a hundred": ("progress", {"progress": 101}, "progress"),
    "complete without a status": ("complete", {"outcome_kind": "none"}, "status"),
    "complete with another status": ("complete", {"status": "done", "outcome_kind": "none"}, "status"),
    "complete without an outcome": ("complete", {"status": "success"}, "outcome_kind"),
    "complete with another outcome": ("complete", {"status": "success", "outcome_kind": "x"}, "outcome_kind"),
    "a pointer without a location": (
        "complete",
        {"status": "success", "outcome_kind": "artifact_pointer"},
        "artifact_location",
    ),
    "mixed without a text": (
        "complete",
        {"status": "success", "outcome_kind": "mixed", "artifact_location": "s3://a"},
        "outcome_text",
    ),
    "a text without one": ("complete", {"status": "success", "outcome_kind": "response_text"}, "outcome_text"),
    "complete with an escalation": (
        "complete",
        {"status": "failure", "escalation_reason": "why not"},
        "escalation_reason",
    ),
    "escalate without a class": ("escalate", {"escalation_reason": "x"}, "escalation_class"),
    "escalate with another class": (
        "escalate",
        {"escalation_class": "x", "escalation_reason": "x"},
        "escalation_class",
    ),
    "escalate without a reason": ("escalate", {"escalation_class": "owner"}, "escalation_reason"),
    "escalate to one and for another": (
        "escalate",
        {
            "escalation_class": "owner",
            "escalation_reason": "x",
            "escalation_to": "a.b",
            "recipient_ai": "c.d",
        },
        "recipient_ai",
    ),
    "inputs over 64 K": ("accepted", {"inputs": {"a": "x" * 65_537}}, "inputs"),
    "metadata over 16 K": ("accepted", {"metadata": {"a": "x" * 16_385}}, "metadata"),
    "a body over 100 K": ("accepted", {"task_body": "x" * (LONG + 1)}, "task_body"),
    "an outcome over 100 K": (
        "complete",
        {"status": "success", "outcome_kind": "response_text", "outcome_text": "x" * (LONG + 1)},
        "outcome_text",
    ),
    "an unknown field": ("accepted", {"colour": "red"}, "colour"),
    "a number for a text": ("accepted", {"message": 1}, "message"),
    "a nested monster": ("accepted", {"metadata": {"a": {"b": [[[[[[]]]]]]}}, "inputs": []}, "inputs"),
}


@pytest.mark.parametrize("case", RULES)
def test_receipt_that_breaks_a_rule_is_refused_and_leaves_no_trace(api: Api, case: str) -> None:
    phase, fields, field = RULES[case]
    api.add(task_id="T-1")
    if phase == "accepted":
        api.offer()
    else:
        api.take()
    before = api.receipts("T-1"), api.task("T-1")
    refused = problem(api.receipt(phase, "T-1", **fields), 422, "invalid_receipt")
    assert refused["facts"]["field"] == field
    assert (api.receipts("T-1"), api.task("T-1")) == before


def test_receipt_of_the_largest_sizes_is_taken(api: Api) -> None:
    api.add(task_id="T-1")
    api.take()
    text, metadata = "x" * LONG, {"a": "x" * (16_384 - 8)}
    receipt = must(api.complete("T-1", outcome_kind="response_text", outcome_text=text, metadata=metadata), 201)
    assert len(receipt["outcome_text"]) == LONG


def test_receipt_sent_twice_gets_the_first_answer(api: Api) -> None:
    api.add(task_id="T-1")
    api.take()
    first = api.complete("T-1", dedupe_key="d-1", message="Done")
    assert first.status_code == 201
    again = api.complete("T-1", dedupe_key="d-1", message="Done")
    assert again.status_code == 200
    assert again.json()["receipt_id"] == first.json()["receipt_id"]
    assert len(api.receipts("T-1")) == 2


def test_receipt_with_a_known_key_and_other_content_is_refused(api: Api) -> None:
    api.add(task_id="T-1")
    api.take()
    must(api.complete("T-1", dedupe_key="d-1", message="Done"), 201)
    problem(api.complete("T-1", dedupe_key="d-1", message="Something else"), 409, "dedupe_conflict")
    assert len(api.receipts("T-1")) == 2


def test_receipt_for_another_workers_lease_is_refused(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.offer("worker.1")
    problem(api.receipt("accepted", "T-1", "worker.2", lease_id=offer["lease_id"]), 403, "not_holder")
    problem(api.receipt("accepted", "T-1", lease_id="lease-nowhere"), 404, "lease_not_found")


def test_list_of_receipts_is_filtered_and_paged(api: Api) -> None:
    for number in range(3):
        api.add(task_id=f"T-{number}", principal_ai=f"delegate.{number % 2}")
        api.take()
        must(api.complete(f"T-{number}"), 201)
    every = must(api.get("/receipts"))["receipts"]
    assert [receipt["phase"] for receipt in every] == ["accepted", "complete"] * 3
    assert [receipt["chain"]["seq"] for receipt in every] == sorted(receipt["chain"]["seq"] for receipt in every)
    assert len(must(api.get("/receipts", phase="complete"))["receipts"]) == 3
    assert len(must(api.get("/receipts", principal_ai="delegate.0"))["receipts"]) == 4
    assert len(must(api.get("/receipts", task_id="T-1"))["receipts"]) == 2
    assert must(api.get("/receipts", since="2200-01-01T00:00:00Z"))["receipts"] == []
    assert must(api.get("/receipts", until="2000-01-01T00:00:00Z"))["receipts"] == []
    pages: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = must(api.get("/receipts", limit=4, after=after))
        pages.append(page["receipts"])
        after = page["next_after"]
    assert [len(page) for page in pages] == [4, 2]
    assert [receipt["receipt_id"] for page in pages for receipt in page] == [one["receipt_id"] for one in every]


@pytest.mark.parametrize(
    "query", [{"phase": "begun"}, {"since": "yesterday"}, {"limit": 0}, {"limit": "x"}, {"after": -1}]
)
def test_list_of_receipts_with_a_bad_filter_is_refused(api: Api, query: dict[str, Any]) -> None:
    problem(api.get("/receipts", **query), 400, "invalid_argument")


def test_one_receipt_is_shown_or_not_found(api: Api) -> None:
    api.add(task_id="T-1")
    api.offer()
    receipt = api.accept("T-1")
    shown = must(api.get(f"/receipts/{receipt['receipt_id']}"))
    # The number in the whole ledger is known only after the commit.
    assert {**shown, "chain": None} == {**receipt, "chain": None}
    assert shown["chain"]["hash"] == receipt["chain"]["hash"]
    problem(api.get("/receipts/01HTZQX7Y8Z9A0B1C2D3E4F5G6"), 404, "receipt_not_found")


def test_obligations_open_and_close(api: Api) -> None:
    api.add(task_id="T-1")
    api.offer()
    assert must(api.get("/obligations"))["obligations"] == []
    api.accept("T-1")
    assert [task["task_id"] for task in must(api.get("/obligations"))["obligations"]] == ["T-1"]
    must(api.complete("T-1"), 201)
    assert must(api.get("/obligations"))["obligations"] == []


def test_verify_finds_the_ledger_intact(api: Api) -> None:
    api.add(task_id="T-1")
    api.take()
    must(api.complete("T-1"), 201)
    of_task = must(api.get("/receipts/verify", task_id="T-1"))
    assert of_task["intact"] is True
    assert of_task["receipts"] == 2
    assert must(api.get("/receipts/verify"))["faults"] == []


def test_verify_finds_one_changed_byte(own: Api) -> None:
    import sqlite3

    own.add(task_id="T-1")
    own.take()
    must(own.complete("T-1", message="paid 100"), 201)
    connection = sqlite3.connect(own.server.store)
    with connection:
        connection.execute("UPDATE receipts SET body = replace(body, 'paid 100', 'paid 900') WHERE phase = 'complete'")
    connection.close()
    verified = must(own.get("/receipts/verify"))
    assert verified["intact"] is False
    assert "T-1" in verified["faults"][0]
