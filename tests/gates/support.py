"""What the tests of the gates share: a second Tenure server as the gate, a faulty one, and our side of the link."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tenure.core.model import Lease
from tenure.engine import claims, endings
from tenure.engine.projects import configure
from tenure.engine.receipts import list_receipts
from tenure.gates.client import GateClient, GateDown
from tenure.gates.receiptgate import ReceiptGate
from tenure.store.sqlite import SqliteStore
from tests.support import add, ok, take

WORKER = "worker.w1"
URL = re.compile(r"http://[\d.]+:\d+")
# A bound, not an expectation: a machine that runs much else is slow.
WITHIN_S = 120.0


class Server:
    """A `tenure up` process on the loopback, over a store of its own, that can be killed and started again."""

    def __init__(self, path: Path, **tenure: Any) -> None:
        self.path = path
        with contextlib.closing(SqliteStore(str(path))) as store:
            ok(configure(store, document={"tenure": tenure}))
        self.port = 0
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        command = [str(Path(sys.executable).parent / "tenure"), "up", "--store", str(self.path)]
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environ,
        )
        assert self.process.stdout is not None
        found = URL.search(self.process.stdout.readline())
        assert found is not None, "the server did not say where it listens"
        self.url = found.group()
        # Started again, it is found where it was.
        self.port = int(self.url.rpartition(":")[2])
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        """The line comes a moment before the first connection is taken."""
        end = time.monotonic() + WITHIN_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", timeout=WITHIN_S).status_code == 200:
                    return
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def post(self, path: str, body: dict[str, Any], status: int = 201, **params: str) -> dict[str, Any]:
        response = httpx.post(self.url + path, json=body, params=params, timeout=WITHIN_S)
        assert response.status_code == status, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        response = httpx.get(self.url + path, params=params, timeout=WITHIN_S)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def receipts(self) -> list[dict[str, Any]]:
        """Everything in its ledger, in order."""
        found: list[dict[str, Any]] = self.get("/receipts", limit=1_000)["receipts"]
        return found

    def ids(self) -> list[str]:
        return [receipt["receipt_id"] for receipt in self.receipts()]


@contextlib.contextmanager
def serving(path: Path, **tenure: Any) -> Iterator[Server]:
    server = Server(path, **tenure)
    try:
        yield server
    finally:
        server.kill()


class FakeGate:
    """NOT a gate: a tiny HTTP server for the faults that a real gate cannot be made to produce.

    `answer` is called with the method, the path and the body, and returns a status and a body, or None to close the
    connection without an answer.
    """

    def __init__(self, answer: Callable[[str, str, Any], tuple[int, Any] | None]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def do_GET(self) -> None:
                self.reply(None)

            def reply(self, body: Any) -> None:
                fake.asked.append((self.command, self.path))
                fake.headers.append(dict(self.headers))
                answer = fake.answer(self.command, self.path, body)
                if answer is None:
                    self.close_connection = True
                    return
                content = json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def faking(answer: Callable[[str, str, Any], tuple[int, Any] | None]) -> Iterator[FakeGate]:
    fake = FakeGate(answer)
    try:
        yield fake
    finally:
        fake.close()


class Seconds:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Ours:
    """Our side: a store whose project `default` names a gate, and the monitor, ticked by hand."""

    def __init__(self, store: SqliteStore, url: str, answer_s: float = WITHIN_S, **more: Any) -> None:
        self.store = store
        # How long it waits for an answer of the gate.
        self.answer_s = answer_s
        self.seconds = Seconds()
        self.clients: list[GateClient] = []
        if url:
            ok(configure(store, document={"tenure": {"receiptgate_url": url}}))
        self.gate = self.monitor(**more)

    def monitor(self, token: str = "", wrap: Callable[[GateClient], Any] | None = None) -> ReceiptGate:
        """A monitor as a restarted process would have it: with nothing in memory."""

        def connect(url: str, project: str, token: str) -> Any:
            client = GateClient(url, project, token, answer_s=self.answer_s)
            self.clients.append(client)
            return client if wrap is None else wrap(client)

        return ReceiptGate(self.store, token, connect=connect, monotonic=self.seconds)

    def restart(self, **more: Any) -> None:
        self.gate.close()
        self.gate = self.monitor(**more)

    def tick(self) -> float:
        return self.gate.tick()

    def later(self, seconds: float = 60.0) -> float:
        """Let time pass, then tick until there is nothing left to do at once."""
        self.seconds.now += seconds
        for _ in range(100):
            wait_s = self.gate.tick()
            if wait_s > 0:
                return wait_s
        raise AssertionError("the monitor never comes to rest")

    def facts(self) -> dict[str, Any]:
        (link,) = self.gate.facts()
        return link

    def offer(self, worker_id: str = WORKER) -> Lease:
        """An offer of the next task to a worker."""
        return ok(claims.offer(self.store, agent_id=worker_id))[0].lease

    def close(self) -> None:
        self.gate.close()
        for client in self.clients:
            client.close()


def ledger(store: SqliteStore) -> list[str]:
    """The ids of our receipts, in order."""
    return [receipt.receipt_id for receipt in ok(list_receipts(store, limit=1_000))]


def work(store: SqliteStore, *task_ids: str) -> None:
    """Two receipts for each task: accepted, complete."""
    for task_id in task_ids:
        add(store, task_id)
        take(store, WORKER, task_id, profile="worker")
        ok(endings.complete(store, task_id=task_id, agent_id=WORKER))


def report(task_id: str, phase: str = "accepted", source: str = WORKER, **more: Any) -> dict[str, Any]:
    outcome = {"status": "success", "outcome_kind": "none"} if phase == "complete" else {}
    return {"phase": phase, "task_id": task_id, "source_system": source, **outcome, **more}


def until(what: Any, seconds: float = WITHIN_S) -> Any:
    """Wait for something that two other processes do."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


class Deaf:
    """A client whose every answer to a receipt is lost after the gate has recorded it."""

    def __init__(self, client: GateClient) -> None:
        self.client = client

    def submit(self, body: dict[str, Any]) -> str | None:
        self.client.submit(body)
        raise GateDown("the answer was lost")

    def after(self, seq: int) -> list[tuple[int, dict[str, Any]]]:
        return self.client.after(seq)

    def close(self) -> None:
        self.client.close()
