"""`Client`: thin, typed methods for every route of the server.

A refusal is raised as `Refusal`, an unreachable or overloaded server as `Unavailable`. Nothing is retried here: whoever
calls knows whether repeating is right. Connections are kept and reused; close the client, or use it in a `with`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from tenure.surfaces.sdk import calls
from tenure.surfaces.sdk.backoff import Backoff
from tenure.surfaces.sdk.calls import Call
from tenure.surfaces.sdk.errors import TenureError, Unavailable, error_of
from tenure.surfaces.sdk.facts import (
    EventFacts,
    HealthFacts,
    HeldFacts,
    LeaseFacts,
    ObligationPage,
    Offers,
    ReceiptPage,
    ReleasedFacts,
    TaskFacts,
    TaskPage,
)
from tenure.surfaces.sdk.stream import RECONNECT_S, SILENCE_S, EventReader

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:7420"
# Far below the server's own time, so that a request is never sent into a connection that is being closed.
KEEP_ALIVE_S = 4.0


class Base:
    """What both clients share: where the server is, and how its answers are read."""

    def __init__(self, url: str | None = None, *, token: str | None = None, timeout_s: float = 10.0) -> None:
        self.url = (url or os.environ.get("TENURE_URL") or DEFAULT_URL).rstrip("/")
        self._token = token or os.environ.get("TENURE_TOKEN")
        self.timeout_s = timeout_s

    def _settings(self) -> dict[str, Any]:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a server's address begins with http:// or https://, not {self.url!r}")
        return {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {self._token}"} if self._token else {},
            "timeout": self._timeout(0.0),
            "limits": httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S),
            # A proxy of the environment is never meant for this machine itself.
            "trust_env": parts.hostname not in ("localhost", "127.0.0.1", "::1"),
            # Loading the certificates takes time that a plain connection has no use for.
            "verify": parts.scheme == "https",
        }

    def _timeout(self, extra_s: float) -> httpx.Timeout:
        return httpx.Timeout(self.timeout_s, read=self.timeout_s + extra_s)

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        request: dict[str, Any] = {"params": dict(call.params) or None, "timeout": self._timeout(call.extra_s)}
        if call.json is not None:
            request["json"] = call.json
        return request

    @staticmethod
    def _read(call: Call[T], response: httpx.Response) -> T:
        if not response.is_success:
            raise error_of(response)
        try:
            return call.read(response)
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable(f"{call.method} {call.path}: the answer is not Tenure's ({error!r})") from error

    def _unreachable(self, error: httpx.HTTPError) -> TenureError:
        return Unavailable(f"{self.url} cannot be reached: {str(error) or type(error).__name__}")


def event_query(project: str | None, task_id: str | None, agent_id: str | None) -> dict[str, str]:
    asked = {"project": project, "task_id": task_id, "agent_id": agent_id}
    return {name: value for name, value in asked.items() if value is not None}


class Client(Base):
    """The server's API for programs that wait for each answer."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(url, token=token, timeout_s=timeout_s)
        self._http = httpx.Client(**self._settings(), transport=transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Make one call."""
        try:
            response = self._http.request(call.method, call.path, **self._request(call))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return self._read(call, response)

    # -- the worker protocol ------------------------------------------------------------------------------------------

    def lease(
        self,
        worker_id: str,
        *,
        capabilities: Sequence[str] | None = None,
        max_tasks: int = 1,
        preferred_kinds: Sequence[str] = (),
        wait_s: float = 0.0,
        profile: str | None = None,
        project: str | None = None,
        idempotency_key: str | None = None,
    ) -> Offers:
        """Poll for work; with `wait_s`, hold the poll until there is some."""
        return self.send(
            calls.lease(worker_id, capabilities, max_tasks, preferred_kinds, wait_s, profile, project, idempotency_key)
        )

    def leases(self, worker_id: str) -> list[LeaseFacts]:
        """A worker's live leases."""
        return self.send(calls.leases(worker_id))

    def heartbeat(
        self, lease_id: str, *, progress: int | None = None, message: str = "", expect_silence_s: int = 0
    ) -> HeldFacts:
        """Extend a lease; with progress, report it too."""
        return self.send(calls.heartbeat(lease_id, progress, message, expect_silence_s))

    def release(self, lease_id: str, *, message: str = "") -> ReleasedFacts:
        """Give an offer or a task back."""
        return self.send(calls.release(lease_id, message))

    # -- receipts -----------------------------------------------------------------------------------------------------

    def submit_receipt(self, receipt: Mapping[str, Any], *, project: str | None = None) -> dict[str, Any]:
        """Record a receipt and do what it says."""
        return self.send(calls.submit(receipt, project))

    def submit_accepted(self, task_id: str, source_system: str, **fields: Any) -> dict[str, Any]:
        """Take an offer up: this creates the obligation."""
        return self.submit_receipt(calls.accepted(task_id, source_system, fields))

    def submit_progress(
        self, task_id: str, source_system: str, progress: int, message: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Record how far the work is; this renews."""
        return self.submit_receipt(calls.progress(task_id, source_system, progress, message, fields))

    def submit_complete(
        self, task_id: str, source_system: str, status: str = "success", **fields: Any
    ) -> dict[str, Any]:
        """End the attempt: success, failure or canceled."""
        return self.submit_receipt(calls.complete(task_id, source_system, status, fields))

    def submit_escalate(
        self, task_id: str, source_system: str, escalation_class: str, reason: str, to: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Hand the task to someone else."""
        return self.submit_receipt(calls.escalate(task_id, source_system, escalation_class, reason, to, fields))

    def list_receipts(
        self,
        *,
        task_id: str | None = None,
        phase: str | None = None,
        principal_ai: str | None = None,
        since: str | None = None,
        until: str | None = None,
        project: str | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> ReceiptPage:
        """Receipts in ledger order, a page at a time."""
        return self.send(calls.list_receipts(task_id, phase, principal_ai, since, until, project, after, limit))

    def show_receipt(self, receipt_id: str) -> dict[str, Any]:
        """One receipt."""
        return self.send(calls.show_receipt(receipt_id))

    def verify_receipts(self, *, task_id: str | None = None, project: str | None = None) -> dict[str, Any]:
        """Check the chains and seals."""
        return self.send(calls.verify(task_id, project))

    def obligations(
        self, *, project: str | None = None, after: int | None = None, limit: int | None = None
    ) -> ObligationPage:
        """Tasks whose obligation is open or overdue."""
        return self.send(calls.obligations(project, after, limit))

    def gates(self, *, project: str | None = None) -> dict[str, Any]:
        """The external gates: what waits for each, and what it refused for good."""
        return self.send(calls.gates(project))

    def resend_receipts(self, *, receipt_id: str | None = None, project: str | None = None) -> dict[str, Any]:
        """Have the receipts that a gate refused sent again, or one of them. For operators."""
        return self.send(calls.resend(receipt_id, project))

    # -- tasks --------------------------------------------------------------------------------------------------------

    def add_task(self, task_summary: str, **fields: Any) -> TaskFacts:
        """Add a task. A `dedupe_key` makes repeating safe."""
        return self.send(calls.add_task({"task_summary": task_summary, **fields}))

    def add_tasks(self, tasks: Sequence[Mapping[str, Any]], *, project: str | None = None) -> list[TaskFacts]:
        """Add many tasks, all or none."""
        return self.send(calls.add_tasks(tasks, project))

    def show_task(self, task_id: str, *, project: str | None = None) -> TaskFacts:
        """Everything about one task."""
        return self.send(calls.show_task(task_id, project))

    def list_tasks(
        self,
        *,
        status: str | None = None,
        task_type: str | None = None,
        assigned_to: str | None = None,
        search: str | None = None,
        project: str | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> TaskPage:
        """Tasks, a page at a time."""
        return self.send(calls.list_tasks(status, task_type, assigned_to, search, project, after, limit))

    def requeue_task(self, task_id: str, *, project: str | None = None) -> TaskFacts:
        """Give a dead, blocked or waiting task a new start."""
        return self.send(calls.requeue(task_id, project))

    def move_task(
        self,
        task_id: str,
        status: str,
        *,
        by: str = "operator",
        message: str = "",
        revoke: bool = False,
        project: str | None = None,
    ) -> TaskFacts:
        """Put a task into another column, as an operator; only `revoke` takes it from its holder."""
        return self.send(calls.move(task_id, status, by, message, revoke, project))

    def dead_tasks(self, *, project: str | None = None, after: int | None = None, limit: int | None = None) -> TaskPage:
        """The dead-letter list."""
        return self.send(calls.dead(project, after, limit))

    # -- the server ---------------------------------------------------------------------------------------------------

    def health(self) -> HealthFacts:
        """Statistics, monitors, and what waits."""
        return self.send(calls.health())

    def metrics(self) -> str:
        """The same for Prometheus."""
        return self.send(calls.metrics())

    def openapi(self) -> dict[str, Any]:
        """The description of the API."""
        return self.send(calls.openapi())

    def events(
        self,
        *,
        after: int | None = None,
        project: str | None = None,
        task_id: str | None = None,
        agent_id: str | None = None,
        reconnect: bool = True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[EventFacts]:
        """Events as they happen, from now or after a cursor. A broken stream is resumed where it was."""
        reader, backoff = EventReader(after), Backoff(RECONNECT_S)
        query = event_query(project, task_id, agent_id)
        while True:
            try:
                with self._http.stream(
                    "GET", "/events", params=query, headers=reader.headers(), timeout=self._timeout(SILENCE_S)
                ) as response:
                    if not response.is_success:
                        response.read()
                        raise error_of(response)
                    for line in response.iter_lines():
                        backoff.reset()
                        event = reader.feed(line)
                        if event is not None:
                            yield event
            except (httpx.HTTPError, Unavailable) as error:
                if not reconnect:
                    raise error if isinstance(error, Unavailable) else self._unreachable(error) from error
            if not reconnect:
                return
            sleep(backoff.next_s())
