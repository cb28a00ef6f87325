"""`/lease`: the worker protocol, as the specification prints it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from typing import Any

import httpx
import pytest

from tenure.clock import ManualClock
from tenure.core.deadline import PULSE_EVERY_MS
from tenure.core.times import iso, parse_iso
from tenure.engine import liveness
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.http import answers
from tests.http.serving import SWIFT, SWIFT_S, TENURE, Api, must, problem, raw
from tests.support import add, ok, take

PRINTED_POLL = {
    "worker_id": "worker.codegen-aws-i-1234567",
    "capabilities": ["python", "rust", "code-generation"],
    "max_tasks": 1,
    "preferred_kinds": ["code.generate", "code.refactor"],
}
PRINTED_TASK: dict[str, Any] = {
    "task_id": "T-01HTZQ8S3C8Y8Y1QJQ5Y8Z9F6G",
    "principal_ai": "delegate.root",
    "task_type": "code.generate",
    "task_summary": "Generate Python function for CSV parsing",
    "task_body": "Create a function that reads CSV...",
    "payload_pointer": "depotgate://artifact/01HTZQ8S3C8Y8Y1QJQ5Y8Z9F6G",
    "inputs": {"language": "python", "framework": "pandas"},
    "expected_outcome_kind": "artifact_pointer",
    "expected_artifact_mime": "text/x-python",
}


def test_poll_as_printed_gets_the_offer_as_printed(own: Api) -> None:
    own.add(**PRINTED_TASK)
    response = own.post("/lease", PRINTED_POLL)
    assert response.headers["content-type"] == "application/json"
    offer = must(response)
    assert offer.keys() == {"lease_id", "lease_expires_at", "task"}
    assert offer["task"] == PRINTED_TASK
    assert offer["lease_id"].startswith("lease-")
    assert len(offer["lease_id"]) == len("lease-01HTZQX7Y8Z9A0B1C2D3E4F5G6")
    granted = own.task(PRINTED_TASK["task_id"])
    assert granted["lease_expires_at"] == offer["lease_expires_at"]
    assert after(granted["lease_granted_at"], offer["lease_expires_at"]) == 900_000


def after(first: str, second: str) -> int:
    """Milliseconds from one time to another."""
    begun, ended = parse_iso(first), parse_iso(second)
    assert begun is not None
    assert ended is not None
    return ended - begun


def test_poll_with_only_a_worker_id_gets_an_offer(own: Api) -> None:
    own.add(task_id="T-1")
    assert own.offer()["task"] == {"task_id": "T-1", "task_summary": "Do something"}


def test_poll_without_work_gets_no_content_and_when_to_ask_again(api: Api) -> None:
    response = api.poll()
    assert response.status_code == 204
    assert response.content == b""
    assert response.headers["retry-after"] == "5"
    assert "content-type" not in response.headers


def test_poll_for_many_gets_a_list_even_of_one(api: Api) -> None:
    for number in range(3):
        api.add(task_id=f"T-{number}")
    first = must(api.poll(max_tasks=2))
    assert first.keys() == {"leases"}
    assert [offer["task"]["task_id"] for offer in first["leases"]] == ["T-0", "T-1"]
    assert len({offer["lease_id"] for offer in first["leases"]}) == 2
    second = must(api.poll(max_tasks=100))
    assert [offer["task"]["task_id"] for offer in second["leases"]] == ["T-2"]
    assert api.poll(max_tasks=2).status_code == 204


@pytest.mark.parametrize(
    "worker_id", ["", "worker", ".1", "worker.", "wor ker.1", "wörker.1", "worker..1", "a/b.c", "NA"]
)
def test_poll_with_a_bad_worker_id_gets_the_body_as_printed(api: Api, worker_id: str) -> None:
    response = api.poll(worker_id)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"error": "invalid_worker_id", "detail": "must match pattern {type}.{instance}"}
    assert api.get("/lease", worker_id=worker_id).json() == response.json()


def test_poll_prefers_the_kinds_it_names_and_takes_what_there_is(api: Api) -> None:
    api.add(task_id="T-analyze", task_type="data.analyze")
    api.add(task_id="T-generate", task_type="code.generate")
    assert api.offer(preferred_kinds=["code.generate"])["task"]["task_id"] == "T-generate"
    assert api.offer(preferred_kinds=["code.generate"])["task"]["task_id"] == "T-analyze"


def test_poll_with_capabilities_gets_only_what_they_satisfy(api: Api) -> None:
    api.add(task_id="T-rust", requires=["rust"])
    assert api.poll(capabilities=["python"]).status_code == 204
    assert api.offer(capabilities=["python", "rust"])["task"]["task_id"] == "T-rust"


def test_poll_without_capabilities_may_get_anything(api: Api) -> None:
    api.add(task_id="T-rust", requires=["rust"])
    assert api.offer()["task"]["task_id"] == "T-rust"


def test_poll_gets_urgent_work_first(api: Api) -> None:
    api.add(task_id="T-low", task_priority="low")
    api.add(task_id="T-critical", task_priority="critical")
    assert api.offer()["task"]["task_id"] == "T-critical"


def test_poll_repeated_under_its_key_gets_the_same_lease(api: Api) -> None:
    api.add(task_id="T-1")
    api.add(task_id="T-2")
    first = api.offer(idempotency_key="k-1")
    assert api.offer(idempotency_key="k-1")["lease_id"] == first["lease_id"]
    body = {"worker_id": "worker.1", "project": api.project}
    assert must(api.post("/lease", body, **{"Idempotency-Key": "k-1"}))["lease_id"] == first["lease_id"]
    problem(api.poll(idempotency_key="k-1", max_tasks=2), 409, "idempotency_conflict")
    assert api.offer(idempotency_key="k-2")["task"]["task_id"] == "T-2"


def test_poll_under_another_profile_gets_its_terms(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.offer(profile=SWIFT)
    shown = api.task("T-1")
    assert after(shown["lease_granted_at"], offer["lease_expires_at"]) == SWIFT_S * 1000


@pytest.mark.parametrize(
    ("asked", "code", "status"),
    [
        ({"profile": "nobody"}, "invalid_argument", 400),
        ({"project": "nowhere"}, "project_not_found", 404),
        ({"max_tasks": 0}, "invalid_argument", 400),
        ({"max_tasks": 101}, "invalid_argument", 400),
        ({"wait": -1}, "invalid_argument", 400),
        ({"wait": 301}, "invalid_argument", 400),
        ({"capabilities": "python"}, "invalid_argument", 400),
        ({"unheard_of": 1}, "invalid_argument", 400),
    ],
)
def test_poll_with_a_bad_argument_is_refused(api: Api, asked: dict[str, Any], code: str, status: int) -> None:
    problem(api.poll(**asked), status, code)


# -- waiting ----------------------------------------------------------------------------------------------------------


class Waiting(threading.Thread):
    """A poll that waits, on a connection of its own."""

    def __init__(self, api: Api, worker: str = "worker.waits", **asked: Any) -> None:
        super().__init__()
        self._api = Api(api.server, api.project)
        self._asked = (worker, asked)
        waited = polls(api)
        self.start()
        # Nothing may be added before the poll waits. Who waits briefly may have been answered before we look.
        while polls(api) == waited and self.is_alive():
            pass

    def run(self) -> None:
        with self._api:
            worker, asked = self._asked
            headers = asked.pop("headers", {})
            body = {"worker_id": worker, "project": self._api.project, **asked}
            # A server that is killed answers nobody.
            with contextlib.suppress(httpx.TransportError):
                self.response = self._api.post("/lease", body, **headers)

    def offer(self) -> Any:
        self.join()
        return must(self.response)


def polls(api: Api) -> int:
    waiting: int = must(api.get("/health"))["waiting_polls"]
    return waiting


def test_poll_that_waits_gets_work_added_over_http(api: Api) -> None:
    poll = Waiting(api, wait=60)
    api.add(task_id="T-1")
    assert poll.offer()["task"]["task_id"] == "T-1"


def test_poll_that_prefers_to_wait_does(api: Api) -> None:
    poll = Waiting(api, headers={"Prefer": "respond-async, wait=60"})
    api.add(task_id="T-1")
    assert poll.offer()["task"]["task_id"] == "T-1"


def test_preference_said_on_the_first_of_two_lines_is_heard(api: Api) -> None:
    body = json.dumps({"worker_id": "worker.1", "project": api.project})
    head = "POST /lease HTTP/1.1\r\nHost: 127.0.0.1\r\nPrefer: wait=-1\r\nPrefer: respond-async\r\nConnection: close"
    answer = raw(api.server, f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    assert answer.startswith(b"HTTP/1.1 400 "), "an impossible wait was not even read"


def test_poll_that_waits_gets_work_added_by_another_process(api: Api) -> None:
    poll = Waiting(api, wait=60)
    words = [TENURE, "task", "add", "From the command line", "--store", api.server.store, "--project", str(api.project)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    assert poll.offer()["task"]["task_summary"] == "From the command line"


def test_poll_that_waits_gets_what_another_worker_lets_go(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.offer("worker.1")
    poll = Waiting(api, wait=60)
    must(api.post(f"/lease/{offer['lease_id']}/release"))
    assert poll.offer()["task"]["task_id"] == "T-1"


def test_poll_that_waits_gets_what_a_dead_worker_was_offered(api: Api) -> None:
    api.add(task_id="T-1", lease_duration_s=1)
    api.offer("worker.1")
    assert Waiting(api, wait=60).offer()["task"]["task_id"] == "T-1"


def test_poll_that_waits_gets_a_task_whose_time_has_come(api: Api) -> None:
    now = parse_iso(api.add(task_id="T-0")["created_at"])
    assert now is not None
    api.offer()
    api.add(task_id="T-later", not_before=iso(now + 2_000))
    assert Waiting(api, wait=60).offer()["task"]["task_id"] == "T-later"


def test_polls_that_wait_share_what_comes(api: Api) -> None:
    waiting = [Waiting(api, f"worker.{number}", wait=60) for number in range(4)]
    must(api.post("/tasks", {"tasks": [{"task_id": f"T-{number}", "title": "One"} for number in range(4)]}), 201)
    assert {poll.offer()["task"]["task_id"] for poll in waiting} == {"T-0", "T-1", "T-2", "T-3"}


def test_poll_that_waits_gets_what_is_kept_for_its_worker(api: Api) -> None:
    first, second = Waiting(api, "worker.first", wait=60), Waiting(api, "worker.second", wait=60)
    api.add(task_id="T-kept", assigned_to="worker.second")
    assert second.offer()["task"]["task_id"] == "T-kept"
    api.add(task_id="T-free")
    assert first.offer()["task"]["task_id"] == "T-free"


def test_poll_that_waits_for_capabilities_it_lacks_is_left_waiting(api: Api) -> None:
    lacking = Waiting(api, "worker.lacks", wait=60, capabilities=["python"])
    able = Waiting(api, "worker.able", wait=60, capabilities=["rust"])
    api.add(task_id="T-rust", requires=["rust"])
    assert able.offer()["task"]["task_id"] == "T-rust"
    api.add(task_id="T-python", requires=["python"])
    assert lacking.offer()["task"]["task_id"] == "T-python"


def test_poll_that_waited_in_vain_gets_no_content(api: Api) -> None:
    response = api.poll(wait=0.2)
    assert response.status_code == 204
    assert response.content == b""
    assert response.headers["retry-after"] == "5"


def test_waiting_writes_nothing(api: Api) -> None:
    def commits() -> float:
        lines = api.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("tenure_commits_total ")).split()[1])

    poll = Waiting(api, wait=2)
    begun, before = time.monotonic(), commits()
    poll.join()
    written = commits() - before
    # The server's own pulses may fall between: one, and another for each of its periods that this took.
    assert written <= 1 + (time.monotonic() - begun) * 1000 // PULSE_EVERY_MS


def test_work_for_a_worker_that_hung_up_goes_to_another(api: Api) -> None:
    body = f'{{"worker_id":"worker.gone","project":"{api.project}","wait":60}}'
    head = f"POST /lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    waited = polls(api)
    with socket.create_connection(("127.0.0.1", api.server.port)) as connection:
        connection.sendall(f"{head}\r\n\r\n{body}".encode())
        while polls(api) == waited:
            pass
    while polls(api) > waited:
        pass
    api.add(task_id="T-1")
    assert api.offer("worker.2")["task"]["task_id"] == "T-1"


# -- holding ----------------------------------------------------------------------------------------------------------


def test_heartbeat_extends_to_now_and_the_lease_duration(api: Api) -> None:
    api.add(task_id="T-1", lease_duration_s=120)
    offer = api.take()
    kept = must(api.heartbeat(offer["lease_id"]))
    assert kept["lease_id"] == offer["lease_id"]
    assert kept["task_id"] == "T-1"
    assert kept["state"] == "active"
    assert kept["lease_s"] == 120
    assert kept["signals"] == []
    assert after(offer["lease_expires_at"], kept["lease_expires_at"]) > 0
    assert api.task("T-1")["lease_expires_at"] == kept["lease_expires_at"]


def test_heartbeat_with_progress_reports_it(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.take()
    must(api.heartbeat(offer["lease_id"], {"progress": 40, "message": "Half of it", "expect_silence_s": 10}))
    assert api.task("T-1")["progress"] == 40
    # A heartbeat is coordination: it leaves no receipt.
    assert [receipt["phase"] for receipt in api.receipts("T-1")] == ["accepted"]


def test_heartbeat_at_once_of_a_short_lease_signals_nothing(api: Api) -> None:
    api.add(task_id="T-1", lease_duration_s=30)
    assert must(api.heartbeat(api.take()["lease_id"]))["signals"] == []


@pytest.mark.parametrize(("after_s", "signals"), [(1, []), (19, []), (21, ["deadline_soon"]), (29, ["deadline_soon"])])
def test_heartbeat_that_was_nearly_late_signals_that_the_deadline_was_soon(
    store: SqliteStore, clock: ManualClock, after_s: int, signals: list[str]
) -> None:
    add(store, "T-1", lease_duration_s=30)
    lease = take(store, "worker.1", "T-1", profile="worker")
    clock.advance(after_s)
    kept = ok(liveness.renew(store, lease_id=lease.lease_id)).lease
    answer = answers.held(kept, kept.seen_at_ms)
    assert (answer["lease_s"], answer["signals"]) == (30, signals)


def test_heartbeat_on_an_offer_is_refused(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.offer()
    problem(api.heartbeat(offer["lease_id"]), 409, "not_accepted")
    problem(api.heartbeat(offer["lease_id"], {"progress": 10}), 409, "not_accepted")


def test_heartbeat_that_is_late_is_refused(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.take()
    api.lapse(offer["lease_id"])
    api.await_event("recovered", "T-1")
    problem(api.heartbeat(offer["lease_id"]), 409, "lease_lost")
    problem(api.heartbeat(offer["lease_id"], {"progress": 99}), 409, "lease_lost")


def test_heartbeat_after_someone_else_took_it_names_the_holder(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.take(profile=SWIFT)
    api.lapse(offer["lease_id"])
    api.await_event("recovered", "T-1")
    api.offer("worker.2", wait=60)
    assert problem(api.heartbeat(offer["lease_id"]), 409, "lease_lost")["facts"]["holder"] == "worker.2"


def test_heartbeat_of_an_older_run_is_told_that_it_is_superseded(api: Api) -> None:
    worker = f"worker.older-{api.project}"
    api.add(task_id="T-1")
    offer = api.take(worker)
    must(api.heartbeat(offer["lease_id"], **{"Tenure-Incarnation": "1"}))
    words = [TENURE, "join", "--id", worker, "--store", api.server.store, "--project", str(api.project)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    problem(api.heartbeat(offer["lease_id"], **{"Tenure-Incarnation": "1"}), 409, "superseded")
    must(api.heartbeat(offer["lease_id"], **{"Tenure-Incarnation": "2"}))


def test_heartbeat_on_an_unknown_lease_is_refused(api: Api) -> None:
    problem(api.heartbeat("lease-01HTZQX7Y8Z9A0B1C2D3E4F5G6"), 404, "lease_not_found")


def test_release_of_an_offer_puts_the_task_back_without_a_trace(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.offer()
    assert must(api.post(f"/lease/{offer['lease_id']}/release")) == {
        "task_id": "T-1",
        "status": "todo",
        "repeated": False,
    }
    assert api.receipts("T-1") == []
    assert api.task("T-1")["queue_status"] == "queued"
    assert must(api.post(f"/lease/{offer['lease_id']}/release"))["repeated"] is True
    assert api.offer("worker.2")["task"]["task_id"] == "T-1"


def test_release_of_an_accepted_task_escalates(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.take()
    must(api.post(f"/lease/{offer['lease_id']}/release", {"message": "Out of memory"}))
    assert [receipt["phase"] for receipt in api.receipts("T-1")] == ["accepted", "escalate"]
    assert api.receipts("T-1")[1]["escalation_reason"] == "released"


def test_a_restarted_worker_finds_its_leases(api: Api) -> None:
    worker = f"worker.restarts-{api.project}"
    assert must(api.get("/lease", worker_id=worker)) == {"leases": []}
    api.add(task_id="T-1")
    api.add(task_id="T-2")
    accepted, offered = api.take(worker), api.offer(worker)
    found = must(api.get("/lease", worker_id=worker))["leases"]
    assert [(lease["lease_id"], lease["task_id"], lease["state"]) for lease in found] == [
        (accepted["lease_id"], "T-1", "active"),
        (offered["lease_id"], "T-2", "offered"),
    ]
