"""Expiry: offers return at once and leave no trace; what was accepted and fell silent is escalated and tried again."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.http.serving import ANSWERS_WITHIN_S, SWIFT, Api, must, new_project, problem
from tests.http.test_lease import after


def test_offer_that_nobody_accepts_returns_at_once(api: Api) -> None:
    api.add(task_id="T-1", lease_duration_s=1)
    offer = api.offer("worker.1")
    event = api.await_event("offer_expired", "T-1")
    assert event["lease_id"] == offer["lease_id"]
    shown = api.task("T-1")
    assert (shown["queue_status"], shown["attempts"], shown["retry_after"]) == ("queued", 0, None)
    assert api.receipts("T-1") == []
    assert api.offer("worker.2")["task"]["task_id"] == "T-1"


def test_accepted_and_silent_is_escalated_and_waits_thirty_seconds(api: Api) -> None:
    api.add(task_id="T-1", principal_ai="delegate.root")
    api.lapse(api.take()["lease_id"])
    event = api.await_event("recovered", "T-1")
    shown = api.task("T-1")
    assert (shown["status"], shown["queue_status"], shown["obligation"]) == ("todo", "retry_pending", "overdue")
    assert (shown["attempts"], shown["attempt"]) == (1, 2)
    assert after(event["at"], shown["retry_after"]) == 30_000
    receipt = api.receipts("T-1")[-1]
    assert (receipt["phase"], receipt["escalation_class"], receipt["escalation_reason"]) == (
        "escalate",
        "policy",
        "lease_expired",
    )
    assert receipt["escalation_to"] == receipt["recipient_ai"] == "delegate.root"
    assert api.poll("worker.2").status_code == 204
    # An operator need not wait for it.
    must(api.post("/tasks/T-1/requeue"))
    assert api.offer("worker.2")["task"]["task_id"] == "T-1"


def test_three_silent_attempts_make_a_dead_letter_that_can_be_requeued(api: Api) -> None:
    api.add(task_id="T-1")
    seen = 0
    for number in range(3):
        worker = f"worker.{number}"
        api.lapse(api.take(worker, profile=SWIFT, wait=60)["lease_id"])
        seen = api.await_event("recovered", "T-1", after=seen)["seq"]
    shown = api.task("T-1")
    assert (shown["status"], shown["queue_status"], shown["attempts"]) == ("dead", "dead", 3)
    assert shown["obligation"] == "closed"
    escalations = [one["escalation_reason"] for one in api.receipts("T-1") if one["phase"] == "escalate"]
    assert escalations == ["lease_expired", "lease_expired", "lease_expired", "max_retries_exceeded"]
    assert api.receipts("T-1")[-1]["escalation_class"] == "policy"
    assert [task["task_id"] for task in must(api.get("/dead"))["tasks"]] == ["T-1"]
    assert api.poll("worker.4").status_code == 204
    must(api.post("/tasks/T-1/requeue"))
    assert must(api.get("/dead"))["tasks"] == []
    assert api.task("T-1")["attempts"] == 0
    api.take("worker.4")
    must(api.complete("T-1", "worker.4"), 201)
    assert api.task("T-1")["status"] == "done"


def test_requeue_of_a_task_that_is_held_is_refused(api: Api) -> None:
    api.add(task_id="T-1")
    api.take()
    problem(api.post("/tasks/T-1/requeue"), 409, "task_held")


WORKER = """
import sys, time, httpx
url, project, within_s = sys.argv[1:]
with httpx.Client(base_url=url, timeout=float(within_s)) as http:
    offer = http.post("/lease", json={"worker_id": "worker.killed", "project": project, "wait": 60}).json()
    body = {"phase": "accepted", "task_id": offer["task"]["task_id"], "source_system": "worker.killed"}
    http.post("/receipts", json=body, params={"project": project}).raise_for_status()
    print("accepted", flush=True)
    time.sleep(600)
"""


def test_worker_killed_after_accepting_is_recovered(api: Api) -> None:
    api.add(task_id="T-1")
    words = [sys.executable, "-c", WORKER, api.server.url, str(api.project), str(ANSWERS_WITHIN_S)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "accepted\n"
        worker.send_signal(signal.SIGKILL)
    api.lapse(api.task("T-1")["leases"][0]["lease_id"])
    assert api.await_event("recovered", "T-1")["agent_id"] == "worker.killed"
    assert [receipt["phase"] for receipt in api.receipts("T-1")] == ["accepted", "escalate"]
    assert api.task("T-1")["queue_status"] == "retry_pending"


def kept_beyond(api: Api, term_s: int) -> bool:
    """Whether heartbeats kept a lease for longer than its first term, up to its completion."""
    api.add(task_id="T-1", lease_duration_s=term_s)
    api.add(task_id="T-clock", lease_duration_s=term_s + 1)
    offer = api.offer("worker.1")
    if api.receipt("accepted", "T-1", "worker.1").status_code != 201:
        return False
    # The second task's offer lapses a second after the first term: a clock that need not be slept by.
    assert api.offer("worker.2")["task"]["task_id"] == "T-clock"
    while api.task("T-clock")["queue_status"] == "leased":
        if api.heartbeat(offer["lease_id"]).status_code != 200:
            return False
    must(api.complete("T-1", "worker.1"), 201)
    return bool(api.task("T-1")["status"] == "done")


def test_heartbeats_keep_a_lease_beyond_its_first_term(api: Api) -> None:
    # A machine that stands still for a whole term loses the lease like anybody: then longer ones are tried.
    for term_s in (2, 10, 40):
        with Api(api.server, new_project(api.server, f"{api.project}-{term_s}")) as own:
            if kept_beyond(own, term_s):
                return
    raise AssertionError("no heartbeat kept a lease")
