"""The server as a process: how it begins, what it does when its store fails, how it ends, and what survives."""

from __future__ import annotations

import itertools
import resource
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tenure.store.sqlite import SqliteStore
from tests.http.serving import STARTS_WITHIN_S, TENURE, Api, Server, must, raw
from tests.http.test_lease import Waiting, polls
from tests.support import dump

UNAVAILABLE = {"error": "database_unavailable"}


# -- errors whose bodies are fixed ------------------------------------------------------------------------------------


@contextmanager
def full_disk(server: Server) -> Iterator[None]:
    """No file of the server's can grow, as on a full disk."""
    wal = Path(server.store + "-wal")
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (wal.stat().st_size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


def test_store_that_cannot_be_written_is_told_as_printed_and_nothing_is_half_done(own: Api) -> None:
    own.add(task_id="T-1")
    with full_disk(own.server):
        for refused in (own.post("/tasks", {"task_summary": "x"}), own.poll(), own.poll(wait=60)):
            assert refused.status_code == 503
            assert refused.headers["content-type"] == "application/json"
            assert refused.headers["retry-after"] == "5"
            assert refused.json() == UNAVAILABLE
        # What only reads goes on.
        assert [task["task_id"] for task in must(own.get("/tasks"))["tasks"]] == ["T-1"]
    assert own.task("T-1")["queue_status"] == "queued"
    assert own.offer()["task"]["task_id"] == "T-1"


def test_disk_that_fills_under_many_requests_answers_each_truthfully(own: Api) -> None:
    answers: dict[str, int] = {}

    relieved = threading.Event()

    def add(name: str) -> None:
        with Api(own.server) as client:
            more = 5
            for number in itertools.count():
                task_id = f"T-{name}-{number}"
                body = {"task_id": task_id, "task_summary": "x" * 400, "task_body": "y" * 4_000}
                answers[task_id] = client.post("/tasks", body).status_code
                # They go on until the disk has been full, however long that takes to be seen here.
                more -= relieved.is_set()
                if not more:
                    return

    threads = [threading.Thread(target=add, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    try:
        while sum(status == 201 for status in answers.copy().values()) < 20:
            assert all(thread.is_alive() for thread in threads)
        with full_disk(own.server):
            while 503 not in answers.copy().values():
                assert all(thread.is_alive() for thread in threads)
    finally:
        relieved.set()
    for thread in threads:
        thread.join()
    assert set(answers.values()) == {201, 503}
    stored = {task["task_id"] for task in must(own.get("/tasks", limit=10_000))["tasks"]}
    assert stored == {task_id for task_id, status in answers.items() if status == 201}


def test_mistake_of_ours_is_told_as_printed(own: Api) -> None:
    own.add(task_id="T-1", inputs={"a": 1})
    connection = sqlite3.connect(own.server.store)
    with connection:
        connection.execute("UPDATE tasks SET inputs = 'not JSON'")
    connection.close()
    response = own.get("/tasks")
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"error": "internal_error"}
    assert must(own.get("/health"))["status"] == "ok"
    assert "GET /tasks failed" in own.server.logged()


# -- beginning --------------------------------------------------------------------------------------------------------


def refused_to_start(*words: str) -> str:
    run = subprocess.run([TENURE, "up", *words], capture_output=True, text=True, timeout=STARTS_WITHIN_S)
    assert run.returncode != 0
    assert run.stdout == ""
    return run.stderr


def test_up_beyond_the_loopback_without_tokens_is_refused(tmp_path: Path) -> None:
    said = refused_to_start("--host", "0.0.0.0", "--port", "0", "--store", str(tmp_path / "t.db"))
    assert "without tokens" in said
    assert not (tmp_path / "t.db").exists()


def test_up_on_a_port_that_is_taken_is_refused(server: Server, tmp_path: Path) -> None:
    said = refused_to_start("--port", str(server.port), "--store", str(tmp_path / "other.db"))
    assert "Cannot listen" in said


def test_up_on_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"not a database, by any means" * 100)
    said = refused_to_start("--port", "0", "--store", str(tmp_path / "other.db"))
    assert "Error:" in said


def test_up_with_a_bad_token_file_is_refused(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    for text in ("", "[]", '{"short": "worker.1"}', '{"long-enough-for-a-token": 1}'):
        tokens.write_text(text)
        said = refused_to_start("--tokens", str(tokens), "--port", "0", "--store", str(tmp_path / "t.db"))
        assert "token file" in said


# -- ending -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_stop_answers_waiting_polls_and_ends_with_success(server: Server, own: Api, stop: signal.Signals) -> None:
    waiting = [Waiting(own, f"worker.{number}", wait=300) for number in range(5)]
    server.process.send_signal(stop)
    for poll in waiting:
        poll.join()
        assert poll.response.status_code == 204
        assert poll.response.headers["retry-after"] == "5"
    assert server.ended() == 0


def test_stop_ends_streams(server: Server, own: Api) -> None:
    own.add(task_id="T-1")
    stream = own.events(0)
    assert next(event["kind"] for event in stream if event["task_id"]) == "task_added"
    server.process.send_signal(signal.SIGTERM)
    assert list(stream) == []
    assert server.ended() == 0


def hammer(server: Server, acknowledged: list[str], name: str) -> None:
    """Add tasks until the server is gone; what it acknowledged is noted."""
    with Api(server) as client:
        try:
            for number in range(100_000):
                response = client.post("/tasks", {"task_id": f"{name}-{number}", "task_summary": "x"})
                assert response.status_code == 201
                acknowledged.append(f"{name}-{number}")
        except httpx.TransportError:
            return


@pytest.fixture
def starting() -> Iterator[Callable[[Server], Server]]:
    """Servers that a test ends itself; whatever it leaves running is ended."""
    with ExitStack() as servers:
        yield servers.enter_context


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_acknowledged_survives_the_end(
    tmp_path: Path, starting: Callable[[Server], Server], stop: signal.Signals
) -> None:
    server = starting(Server(tmp_path / "tenure.db"))
    acknowledged: list[str] = []
    threads = [threading.Thread(target=hammer, args=(server, acknowledged, f"T{number}")) for number in range(8)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 50:
        assert any(thread.is_alive() for thread in threads)
    server.process.send_signal(stop)
    status = server.ended()
    assert status == (0 if stop == signal.SIGTERM else -signal.SIGKILL)
    for thread in threads:
        thread.join()
    store = SqliteStore(server.store)
    stored = {str(row[0]) for row in store.connection.execute("SELECT task_id FROM tasks")}
    assert set(acknowledged) <= stored
    assert store.integrity_faults() == []
    store.close()


def test_stop_sends_the_answers_of_what_was_accepted(server: Server) -> None:
    """Verbs that wait for the write lock, which another process holds, when the signal comes are run and answered."""
    head = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    answered: list[bytes] = []

    def add(number: int) -> None:
        body = b'{"task_id": "T-%d", "task_summary": "x"}' % number
        answered.append(raw(server, head % len(body) + body))

    with Api(server) as client:
        # A server that is still starting would wait for the lock itself.
        must(client.get("/health"))
    blocker = sqlite3.connect(server.store, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    requests = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for request in requests:
        request.start()
    with Api(server) as client:
        # One is in the writer's hands; among the others may be the server's own pulse.
        while must(client.get("/health"))["queued_verbs"] < 7:
            assert all(request.is_alive() for request in requests)
    server.process.send_signal(signal.SIGTERM)
    blocker.execute("ROLLBACK")
    blocker.close()
    for request in requests:
        request.join()
    assert server.ended() == 0
    done = [answer for answer in answered if answer.startswith(b"HTTP/1.1 201")]
    assert len(done) >= 7
    store = SqliteStore(server.store)
    assert len(dump(store, "tasks")) == len(done)
    store.close()


# -- what survives ----------------------------------------------------------------------------------------------------


def test_after_a_kill_everything_is_as_it_was(tmp_path: Path, starting: Callable[[Server], Server]) -> None:
    server = starting(Server(tmp_path / "tenure.db"))
    with Api(server) as api:
        for number in range(4):
            api.add(task_id=f"T-{number}")
        held, offered = api.take("worker.1"), api.offer("worker.2")
        api.take("worker.3")
        must(api.complete("T-2", "worker.3", dedupe_key="d-1"), 201)
        last = api.offer("worker.4")
        tasks_before = must(api.get("/tasks"))["tasks"]
        receipts_before = must(api.get("/receipts"))["receipts"]
        poll = Waiting(api, "worker.9", wait=300)
        server.kill()
        poll.join()
    with Server(tmp_path / "tenure.db", port=server.port) as again, Api(again) as api:
        assert polls(api) == 0
        shown = must(api.get("/tasks"))["tasks"]
        # The time that nobody could hear is given back: deadlines may have moved, and nothing else.
        assert [unhurried(task) for task in shown] == [unhurried(task) for task in tasks_before]
        assert must(api.get("/receipts"))["receipts"] == receipts_before
        must(api.heartbeat(held["lease_id"]))
        must(api.complete("T-0", "worker.1"), 201)
        api.accept(offered["task"]["task_id"], "worker.2")
        assert api.complete("T-2", "worker.3", dedupe_key="d-1").status_code == 200
        assert must(api.get("/lease", worker_id="worker.4"))["leases"][0]["lease_id"] == last["lease_id"]
        assert must(api.get("/receipts/verify"))["intact"] is True


def unhurried(task: dict[str, object]) -> dict[str, object]:
    leases = task["leases"]
    assert isinstance(leases, list)
    return {
        **{name: value for name, value in task.items() if name != "lease_expires_at"},
        "leases": [{name: lease[name] for name in ("lease_id", "state", "token")} for lease in leases],
    }
