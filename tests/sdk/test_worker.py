"""Workers against a real server process, over real sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tenure import Artifact, AsyncContext, AsyncWorker, Client, Context, Escalate, Outcome, Task, Worker
from tenure.core.times import parse_iso
from tenure.surfaces.sdk.backoff import Backoff
from tests.sdk.servers import DEADLINE_S, ServerProcess, eventually

QUICK = (0.05, 0.1, 0.2)


def worker_of(server: ServerProcess, **more: Any) -> Worker:
    return Worker("test", url=server.url, **{"instance": "one", "backoff": Backoff(QUICK), **more})


@contextmanager
def at_work(worker: Worker, *, limit: int | None = None) -> Iterator[threading.Thread]:
    """The worker in a thread; stopped at the end, and awaited."""
    thread = threading.Thread(target=worker.run, kwargs={"limit": limit}, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(DEADLINE_S)
        if thread.is_alive():
            worker.stop()
            thread.join(DEADLINE_S)
        assert not thread.is_alive()


def phases(client: Client, task_id: str) -> list[str]:
    return [receipt["phase"] for receipt in client.list_receipts(task_id=task_id)["receipts"]]


def complete_receipt(client: Client, task_id: str) -> dict[str, Any]:
    found = client.list_receipts(task_id=task_id, phase="complete")["receipts"]
    assert len(found) == 1, found
    return found[0]


def run_one(server: ServerProcess, client: Client, handler: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """One task through one handler; the task afterwards."""
    client.add_task("Work", task_id="T1", task_type="test.work", principal_ai="delegate.root", **fields)
    worker = worker_of(server)
    worker.handler("test.work")(handler)
    worker.run(limit=1, signals=False)
    return dict(client.show_task("T1"))


def test_cycle_from_offer_to_completion(server: ServerProcess, client: Client) -> None:
    seen: list[Task] = []

    def handle(task: Task, context: Context) -> str:
        seen.append(task)
        return "print('hello')"

    after = run_one(
        server,
        client,
        handle,
        task_body="Say hello",
        inputs={"language": "python"},
        payload_pointer="depotgate://artifact/1",
        expected_outcome_kind="response_text",
    )
    assert after["status"] == "done"
    task = seen[0]
    assert (task.task_id, task.task_type, task.summary, task.body) == ("T1", "test.work", "Work", "Say hello")
    assert task.inputs == {"language": "python"}
    assert (task.principal_ai, task.payload_pointer, task.attempt) == ("delegate.root", "depotgate://artifact/1", 1)
    assert (task.expected_outcome_kind, task.worker_id, task.project_id) == ("response_text", "test.one", "default")
    assert task.token is not None
    assert task.token > 0
    assert not task.resumed
    assert phases(client, "T1") == ["accepted", "complete"]
    receipt = complete_receipt(client, "T1")
    assert (receipt["status"], receipt["outcome_kind"]) == ("success", "response_text")
    assert receipt["outcome_text"] == "print('hello')"
    assert receipt["source_system"] == "test.one"


ARTIFACT = Artifact("s3://bucket/result.py", "text/x-python")


@pytest.mark.parametrize(
    ("result", "kind", "text", "location"),
    [
        (None, "none", "NA", "NA"),
        ("text", "response_text", "text", "NA"),
        (ARTIFACT, "artifact_pointer", "NA", ARTIFACT.location),
        (("text", ARTIFACT), "mixed", "text", ARTIFACT.location),
        (Outcome("text", ARTIFACT, metadata={"cost": 3}), "mixed", "text", ARTIFACT.location),
    ],
)
def test_outcome_follows_from_what_the_handler_returns(
    server: ServerProcess, client: Client, result: Any, kind: str, text: str, location: str
) -> None:
    run_one(server, client, lambda task: result)
    receipt = complete_receipt(client, "T1")
    assert (receipt["outcome_kind"], receipt["outcome_text"]) == (kind, text)
    assert receipt["artifact_location"] == location
    assert receipt["artifact_mime"] == ("text/x-python" if location != "NA" else "NA")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda task: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda task: 7, "TypeError: a handler returns None"),
        (lambda task: "x" * 200_000, "the result could not be recorded"),
    ],
)
def test_failure_carries_the_error_and_uses_an_attempt(
    server: ServerProcess, client: Client, wrong: Callable[..., Any], told: str
) -> None:
    after = run_one(server, client, wrong)
    receipt = complete_receipt(client, "T1")
    assert receipt["status"] == "failure"
    assert told in receipt["outcome_text"]
    assert told in receipt["message"]
    assert (after["status"], after["attempts"], after["queue_status"]) == ("todo", 1, "retry_pending")


def test_escalate_hands_the_task_to_someone_else(server: ServerProcess, client: Client) -> None:
    def handle(task: Task, context: Context) -> None:
        context.escalate("owner", "which of the two?", to="delegate.root")

    after = run_one(server, client, handle)
    assert after["status"] == "blocked"
    receipt = client.list_receipts(task_id="T1", phase="escalate")["receipts"][0]
    assert receipt["escalation_class"] == "owner"
    assert (receipt["escalation_reason"], receipt["escalation_to"]) == ("which of the two?", "delegate.root")


def test_escalate_to_nobody_goes_to_the_principal(server: ServerProcess, client: Client) -> None:
    def handle(task: Task) -> None:
        raise Escalate("capability", "needs a GPU")

    run_one(server, client, handle)
    receipt = client.list_receipts(task_id="T1", phase="escalate")["receipts"][0]
    assert receipt["escalation_to"] == "delegate.root"


def test_progress_is_seen_while_the_handler_runs(server: ServerProcess, client: Client) -> None:
    client.add_task("Work", task_id="T1", task_type="test.work")
    go_on = threading.Event()
    worker = worker_of(server)

    @worker.handler("test.work")
    def handle(task: Task, context: Context) -> None:
        context.progress(40, "two fifths")
        assert go_on.wait(DEADLINE_S)

    with at_work(worker, limit=1) as thread:
        eventually(lambda: client.show_task("T1")["progress"] == 40, "the progress")
        go_on.set()
        thread.join(DEADLINE_S)
    assert phases(client, "T1") == ["accepted", "complete"]


def test_unknown_type_is_released_and_costs_nothing(server: ServerProcess, client: Client) -> None:
    client.add_task("Other work", task_id="T1", task_type="other.work")
    worker = worker_of(server)
    worker.handler("test.work")(lambda task: None)
    with at_work(worker):
        eventually(lambda: client.show_task("T1")["messages"], "the release")
        shown = client.show_task("T1")
        assert (shown["status"], shown["attempts"], shown["leases"]) == ("todo", 0, [])
    assert phases(client, "T1") == []


def kept_alive(server: ServerProcess, client: Client, term_s: int) -> bool:
    """Whether a worker's heartbeats kept a lease for longer than two terms, up to its completion."""
    task_id, kind = f"T{term_s}", f"test.term-{term_s}"
    client.add_task("Work", task_id=task_id, task_type=kind, lease_duration_s=term_s)
    worker, over = worker_of(server), threading.Event()

    @worker.handler(kind)
    def handle(task: Task, context: Context) -> str:
        # Over as soon as the renewals show it.
        return "alive" if over.wait(DEADLINE_S) else "never told"

    def renewed() -> bool:
        """Whether it was extended when it was two terms old."""
        for lease in client.show_task(task_id)["leases"]:
            granted, expires = parse_iso(lease["granted_at"]), parse_iso(lease["expires_at"])
            assert granted is not None
            assert expires is not None
            if expires - granted >= 3 * term_s * 1000:
                return True
        return False

    with at_work(worker, limit=1) as thread:
        eventually(lambda: renewed() or "escalate" in phases(client, task_id) or not thread.is_alive(), "the renewals")
        over.set()
        thread.join(DEADLINE_S)
    if phases(client, task_id) != ["accepted", "complete"]:
        return False
    return bool(complete_receipt(client, task_id)["outcome_text"] == "alive")


def test_heartbeats_keep_a_short_lease_alive(server: ServerProcess, client: Client) -> None:
    # A machine that stands still for a whole term loses the lease like anybody: then longer ones are tried.
    assert any(kept_alive(server, client, term_s) for term_s in (1, 5, 25))


def test_handler_of_a_killed_server_is_cancelled_before_its_lease_lapses(server: ServerProcess, client: Client) -> None:
    client.add_task("Work", task_id="T1", task_type="test.work", lease_duration_s=6)
    worker, began, told = worker_of(server, patience_s=1), threading.Event(), threading.Event()

    @worker.handler("test.work")
    def handle(task: Task, context: Context) -> str:
        began.set()
        if context.cancelled.wait(DEADLINE_S):
            told.set()
        return "too late to count"

    with at_work(worker, limit=1):
        assert began.wait(DEADLINE_S)
        server.kill()
        assert told.wait(DEADLINE_S)
    server.start()
    assert phases(client, "T1")[0] == "accepted"
    assert "complete" not in phases(client, "T1")


def test_worker_carries_on_through_a_killed_server(server: ServerProcess, client: Client) -> None:
    client.add_task("Work", task_id="T1", task_type="test.work", lease_duration_s=600)
    worker, began, finish = worker_of(server), threading.Event(), threading.Event()
    runs: list[int] = []

    @worker.handler("test.work")
    def handle(task: Task, context: Context) -> str:
        runs.append(task.attempt)
        began.set()
        assert finish.wait(DEADLINE_S)
        return f"result of {task.task_id}"

    with at_work(worker):
        assert began.wait(DEADLINE_S)
        server.kill()
        # Finished while nobody is there to be told.
        finish.set()
        server.start()
        eventually(lambda: client.show_task("T1")["status"] == "done", "the completion")
        # It polls again by itself, too.
        client.add_task("More", task_id="T2", task_type="test.work")
        eventually(lambda: client.show_task("T2")["status"] == "done", "the next task")
    assert runs == [1, 1]
    assert phases(client, "T1") == ["accepted", "complete"]
    assert client.verify_receipts()["intact"]


def test_two_workers_and_one_task_give_one_completion(server: ServerProcess, client: Client) -> None:
    ran: list[str] = []
    workers = [worker_of(server, instance=name) for name in ("one", "two")]
    for worker in workers:
        worker.handler("test.work")(lambda task: ran.append(task.worker_id))
    with at_work(workers[0]), at_work(workers[1]):
        eventually(lambda: client.health()["waiting_polls"] == 2, "two waiting polls")
        client.add_task("Work", task_id="T1", task_type="test.work")
        eventually(lambda: client.show_task("T1")["status"] == "done", "the completion")
    assert len(ran) == 1
    assert phases(client, "T1") == ["accepted", "complete"]


def test_concurrency_runs_tasks_side_by_side(server: ServerProcess, client: Client) -> None:
    client.add_tasks([{"task_summary": f"Work {n}", "task_type": "test.work"} for n in range(8)])
    together = threading.Barrier(4, timeout=DEADLINE_S)
    worker = worker_of(server, concurrency=4)

    @worker.handler("test.work")
    def handle(task: Task) -> None:
        together.wait()

    worker.run(limit=8, signals=False)
    assert len(client.list_tasks(status="done")["tasks"]) == 8


def test_async_worker_runs_coroutines(server: ServerProcess, client: Client) -> None:
    client.add_task("Work", task_id="T1", task_type="test.work")
    worker = AsyncWorker("test", url=server.url, backoff=Backoff(QUICK))

    @worker.handler()
    async def handle(task: Task, context: AsyncContext) -> str:
        context.progress(50)
        await asyncio.sleep(0)
        return "from a coroutine"

    asyncio.run(worker.run(limit=1, signals=False))
    assert complete_receipt(client, "T1")["outcome_text"] == "from a coroutine"


def test_restarted_worker_goes_on_with_its_own_lease_once(server: ServerProcess, client: Client) -> None:
    """A first run that accepted and died leaves a live lease; so does a second. The third says that it failed."""
    client.add_task("Work", task_id="T1", task_type="test.work", task_body="Body", inputs={"n": 1})
    offer = next(iter(client.lease("test.one")))
    client.submit_accepted("T1", "test.one", lease_id=offer.lease_id)
    client.add_task("Offered only", task_id="T2", task_type="test.work")
    assert next(iter(client.lease("test.one"))).task_id == "T2"
    program = f"""
import os
from tenure import Worker
worker = Worker("test", url={server.url!r}, instance="one", concurrency=1)
@worker.handler("test.work")
def handle(task):
    assert task.task_id == "T1" and task.resumed and task.lease_id == {offer.lease_id!r}
    assert (task.body, task.inputs, task.attempt) == ("Body", {{"n": 1}}, 1)
    os._exit(9)
worker.run()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=DEADLINE_S).returncode == 9
    assert client.show_task("T2")["leases"] == []
    worker = worker_of(server)
    worker.handler("test.work")(lambda task: None)
    worker.run(limit=1, signals=False)
    receipt = complete_receipt(client, "T1")
    assert receipt["status"] == "failure"
    assert "died twice" in receipt["outcome_text"]
    assert client.show_task("T2")["status"] == "done"


DRAINING = """
import sys, threading
from tenure import Worker
worker = Worker("test", url=sys.argv[1], drain_s=60)
@worker.handler("test.work")
def handle(task, context):
    print("began", flush=True)
    sys.stdin.readline()
    return "finished in time"
worker.run()
print("drained", flush=True)
"""


@pytest.fixture
def draining(server: ServerProcess) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", DRAINING, server.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_sigterm_finishes_what_runs_and_takes_nothing_new(
    server: ServerProcess, client: Client, draining: subprocess.Popen[str]
) -> None:
    client.add_tasks([{"task_summary": "Work", "task_id": name, "task_type": "test.work"} for name in ("T1", "T2")])
    assert draining.stdin is not None
    assert draining.stdout is not None
    assert draining.stdout.readline() == "began\n"
    draining.send_signal(signal.SIGTERM)
    # The handler gets its line only after the signal, so it finishes while draining.
    draining.stdin.write("go\n")
    draining.stdin.flush()
    assert draining.stdout.readline() == "drained\n"
    assert draining.wait(DEADLINE_S) == 0
    by_status = sorted(task["status"] for task in client.list_tasks()["tasks"])
    assert by_status == ["done", "todo"]


def test_second_sigterm_stops_at_once_and_releases(
    server: ServerProcess, client: Client, draining: subprocess.Popen[str]
) -> None:
    client.add_task("Work", task_id="T1", task_type="test.work")
    assert draining.stdout is not None
    assert draining.stdout.readline() == "began\n"
    os.kill(draining.pid, signal.SIGTERM)
    eventually(lambda: _stop_again(draining), "its end")
    shown = client.show_task("T1")
    assert (shown["status"], shown["leases"]) == ("todo", [])


def _stop_again(process: subprocess.Popen[str]) -> bool:
    """Two signals of one kind that come together count as one, so the second is repeated."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.poll() is not None


def test_idle_worker_that_is_stopped_leaves_no_offer_behind(server: ServerProcess, client: Client) -> None:
    worker = worker_of(server)
    worker.handler("test.work")(lambda task: None)
    with at_work(worker):
        eventually(lambda: client.health()["waiting_polls"] == 1, "a waiting poll")
    eventually(lambda: client.health()["waiting_polls"] == 0, "the end of the poll")
    client.add_task("Work", task_id="T1", task_type="test.work")
    assert len(client.lease("test.two")) == 1


def test_handlers_are_checked_when_they_are_registered() -> None:
    async def coroutine(task: Task) -> None: ...

    worker = Worker("test")
    with pytest.raises(TypeError):
        worker.handler("test.work")(coroutine)
    with pytest.raises(TypeError):
        AsyncWorker("test").handler("test.work")(lambda task: None)
    worker.handler("test.work")(lambda task: None)
    with pytest.raises(ValueError, match="already"):
        worker.handler("test.work")(lambda task: None)
    with pytest.raises(ValueError, match="handler"):
        Worker("test").run()
    with pytest.raises(ValueError, match="pattern"):
        Worker("", instance="one")
