"""A server process and a client of it, as the tests of the HTTP surface use them."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from tenure import app
from tenure.engine import liveness, projects
from tests.support import ok

TENURE = str(Path(sys.executable).with_name("tenure"))
# Bounds, not expectations: a machine that runs much else is slow.
STARTS_WITHIN_S = 180.0
ANSWERS_WITHIN_S = 180.0
ENDS_WITHIN_S = 180.0
SWIFT = "swift"
SWIFT_S = 600


class Server:
    """`tenure up`, from the line that says where it listens to its end by signal."""

    def __init__(self, store: Path | str, *words: str, port: int = 0, log: Path | None = None) -> None:
        self.store = str(store)
        self._log_path = log or Path(f"{store}.log")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        self.log = open(self._log_path, "a+", encoding="utf-8")  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [TENURE, "up", "--port", str(port), "--store", self.store, *words],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            text=True,
        )
        try:
            self.url = self._address()
        except BaseException:
            self.kill()
            raise
        self.port = int(self.url.rpartition(":")[2])

    def _address(self) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(STARTS_WITHIN_S), "the server said nothing"
        line = self.process.stdout.readline()
        assert " listens at http://" in line, line + self.logged()
        return line.partition(" listens at ")[2].partition(",")[0]

    def logged(self) -> str:
        """What the server has written to its standard error."""
        return self._log_path.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> int:
        """Ask it to end, and wait for that; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """End it without asking."""
        self.process.kill()
        self.ended()

    def ended(self) -> int:
        """Wait for its end; its exit status."""
        try:
            status = self.process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.log.close()
        return status

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


class Api:
    """A client of one server, in one project."""

    def __init__(self, server: Server, project: str | None = None, **headers: str) -> None:
        self.server = server
        self.project = project
        self.http = httpx.Client(base_url=server.url, timeout=ANSWERS_WITHIN_S, headers=headers)
        self._parameters = {} if project is None else {"project": project}

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return self.http.get(path, params={**self._parameters, **parameters})

    def post(self, path: str, body: object = None, **headers: str) -> httpx.Response:
        parameters = {} if path.startswith("/lease") else self._parameters
        if body is None:
            return self.http.post(path, params=parameters, headers=headers)
        return self.http.post(path, params=parameters, json=body, headers=headers)

    def add(self, **fields: Any) -> dict[str, Any]:
        """A task that must be added."""
        return must(self.post("/tasks", {"task_summary": "Do something", **fields}), 201)

    def poll(self, worker: str = "worker.1", **asked: Any) -> httpx.Response:
        body = {"worker_id": worker, **asked}
        if self.project is not None:
            body.setdefault("project", self.project)
        return self.post("/lease", body)

    def offer(self, worker: str = "worker.1", **asked: Any) -> dict[str, Any]:
        """An offer that must be made."""
        return must(self.poll(worker, **asked))

    def receipt(self, phase: str, task_id: str, worker: str = "worker.1", **fields: Any) -> httpx.Response:
        return self.post("/receipts", {"phase": phase, "task_id": task_id, "source_system": worker, **fields})

    def accept(self, task_id: str, worker: str = "worker.1", **fields: Any) -> dict[str, Any]:
        return must(self.receipt("accepted", task_id, worker, **fields), 201)

    def take(self, worker: str = "worker.1", **asked: Any) -> dict[str, Any]:
        """An offer, accepted."""
        offer = self.offer(worker, **asked)
        self.accept(offer["task"]["task_id"], worker)
        return offer

    def complete(
        self, task_id: str, worker: str = "worker.1", status: str = "success", **fields: Any
    ) -> httpx.Response:
        return self.receipt("complete", task_id, worker, **{"status": status, "outcome_kind": "none", **fields})

    def heartbeat(self, lease_id: str, body: object = None, **headers: str) -> httpx.Response:
        return self.post(f"/lease/{lease_id}/heartbeat", body, **headers)

    def lapse(self, lease_id: str) -> None:
        """Let a lease that is held run out within a second. Until then it is long, so that no test need be quick."""
        store = ok(app.open_store(self.server.store))
        try:
            ok(liveness.renew(store, lease_id=lease_id, ttl_s=1))
        finally:
            store.close()

    def task(self, task_id: str) -> dict[str, Any]:
        return must(self.get(f"/tasks/{task_id}"))

    def receipts(self, task_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = must(self.get(f"/tasks/{task_id}/receipts"))["receipts"]
        return found

    def events(self, after: int = 0, **filters: str) -> Iterator[dict[str, Any]]:
        """Events as they come, from this one on."""
        headers = {"Last-Event-ID": str(after)}
        with self.http.stream("GET", "/events", params={**self._parameters, **filters}, headers=headers) as stream:
            assert stream.status_code == 200
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def await_event(self, kind: str, task_id: str, after: int = 0) -> dict[str, Any]:
        """The first such event of a task after a sequence number, when it comes."""
        stream = self.events(after, task_id=task_id)
        until = time.monotonic() + ANSWERS_WITHIN_S
        try:
            for event in stream:
                if event["kind"] == kind:
                    return event
                assert time.monotonic() < until
        finally:
            stream.close()  # type: ignore[attr-defined]
        raise AssertionError(f"the stream ended without {kind}")


def must(response: httpx.Response, status: int = 200) -> dict[str, Any]:
    """The body of a response that must have this status."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    body: dict[str, Any] = response.json()
    return body


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document of a refusal, which must be whole."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code, body
    assert body["status"] == status
    assert body["type"] == f"urn:tenure:refusal:{code}"
    assert body["title"]
    assert body["detail"]
    assert body["next"]
    return body


def new_project(server: Server, project: str) -> str:
    """A project of its own, with a profile `swift`: the worker's rules, but a term of its own and no delay."""
    rules = {"base": "worker", "ttl_s": SWIFT_S, "requeue_delay_s": 0}
    store = ok(app.open_store(server.store))
    try:
        ok(projects.create_project(store, project_id=project, settings={"profiles": {SWIFT: rules}}))
    finally:
        store.close()
    return project


def raw(server: Server, data: bytes, *, until: bytes | None = None) -> bytes:
    """What the server answers to bytes that no client library would send."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=ANSWERS_WITHIN_S) as connection:
        connection.sendall(data)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
            if until is not None and until in received:
                break
        return received
