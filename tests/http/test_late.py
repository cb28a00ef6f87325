"""What a worker can still do after its lease has ended: the matrix of late completions.

The only act that counts is a success for a task whose obligation is still open. Everything else is recorded and changes
nothing.
"""

from __future__ import annotations

import pytest

from tests.http.serving import SWIFT, Api, must, problem


def expired(api: Api, task_id: str = "T-1", worker: str = "worker.1") -> str:
    """A worker accepts a task and falls silent; its lease id."""
    lease_id: str = api.take(worker, profile=SWIFT)["lease_id"]
    api.lapse(lease_id)
    while api.await_event("recovered", task_id)["lease_id"] != lease_id:
        pass
    return lease_id


def phases(api: Api) -> list[str]:
    return [receipt["phase"] for receipt in api.receipts("T-1")]


@pytest.mark.parametrize("named", [True, False])
def test_late_success_before_anyone_else_took_it_completes_the_task(api: Api, named: bool) -> None:
    api.add(task_id="T-1")
    lease_id = expired(api)
    must(api.complete("T-1", **({"lease_id": lease_id} if named else {})), 201)
    shown = api.task("T-1")
    assert (shown["status"], shown["obligation"]) == ("done", "closed")
    assert phases(api) == ["accepted", "escalate", "complete"]
    assert api.poll("worker.2").status_code == 204


def test_late_success_after_someone_else_accepted_completes_it_and_revokes_the_newer_lease(api: Api) -> None:
    api.add(task_id="T-1")
    expired(api)
    newer = api.take("worker.2")
    must(api.complete("T-1"), 201)
    assert api.task("T-1")["status"] == "done"
    event = api.await_event("revoked", "T-1")
    assert (event["lease_id"], event["data"]["reason"]) == (newer["lease_id"], "completed_elsewhere")
    problem(api.heartbeat(newer["lease_id"]), 409, "task_done")
    # The newer worker's own success is recorded; the obligation is closed once.
    must(api.complete("T-1", "worker.2"), 201)
    assert phases(api).count("complete") == 2
    assert api.task("T-1")["assigned_to"] == "worker.1"


def test_late_success_after_someone_else_was_offered_it_completes_it(api: Api) -> None:
    api.add(task_id="T-1")
    expired(api)
    newer = api.offer("worker.2")
    must(api.complete("T-1"), 201)
    assert api.task("T-1")["status"] == "done"
    problem(api.receipt("accepted", "T-1", "worker.2", lease_id=newer["lease_id"]), 409, "lease_lost")


def test_late_failure_before_anyone_else_took_it_is_only_recorded(api: Api) -> None:
    api.add(task_id="T-1")
    expired(api)
    before = api.task("T-1")
    must(api.complete("T-1", status="failure"), 201)
    shown = api.task("T-1")
    assert (shown["status"], shown["attempts"]) == ("todo", before["attempts"])
    assert phases(api) == ["accepted", "escalate", "complete"]
    assert api.offer("worker.2")["task"]["task_id"] == "T-1"


def test_late_failure_after_someone_else_took_it_does_not_disturb_them(api: Api) -> None:
    api.add(task_id="T-1")
    expired(api)
    newer = api.take("worker.2")
    must(api.complete("T-1", "worker.1", status="failure"), 201)
    assert api.task("T-1")["assigned_to"] == "worker.2"
    must(api.heartbeat(newer["lease_id"]))
    must(api.complete("T-1", "worker.2"), 201)
    assert api.task("T-1")["status"] == "done"


def test_late_success_after_another_completed_it_is_only_recorded(api: Api) -> None:
    api.add(task_id="T-1")
    expired(api)
    api.take("worker.2")
    must(api.complete("T-1", "worker.2"), 201)
    must(api.complete("T-1", "worker.1"), 201)
    shown = api.task("T-1")
    assert (shown["status"], shown["assigned_to"]) == ("done", "worker.2")
    assert api.await_event("late", "T-1")["data"]["status"] == "success"


@pytest.mark.parametrize("status", ["success", "failure"])
def test_late_completion_after_the_task_is_dead_is_only_recorded(api: Api, status: str) -> None:
    api.add(task_id="T-1", max_attempts=1)
    expired(api)
    assert api.task("T-1")["status"] == "dead"
    must(api.complete("T-1", status=status), 201)
    assert api.task("T-1")["status"] == "dead"
    assert [task["task_id"] for task in must(api.get("/dead"))["tasks"]] == ["T-1"]


def test_late_completion_sent_twice_is_recorded_once(api: Api) -> None:
    api.add(task_id="T-1")
    expired(api)
    assert api.complete("T-1", dedupe_key="d-1").status_code == 201
    assert api.complete("T-1", dedupe_key="d-1").status_code == 200
    assert phases(api) == ["accepted", "escalate", "complete"]


def test_late_completion_of_an_offer_that_was_never_accepted_is_refused(api: Api) -> None:
    api.add(task_id="T-1", lease_duration_s=1)
    api.offer("worker.1")
    api.await_event("offer_expired", "T-1")
    problem(api.complete("T-1"), 409, "lease_lost")
    assert phases(api) == []


def test_late_acceptance_and_progress_are_refused(api: Api) -> None:
    api.add(task_id="T-1")
    lease_id = expired(api)
    problem(api.receipt("accepted", "T-1"), 409, "lease_lost")
    problem(api.receipt("progress", "T-1", progress=50, lease_id=lease_id), 409, "lease_lost")
    assert phases(api) == ["accepted", "escalate"]
