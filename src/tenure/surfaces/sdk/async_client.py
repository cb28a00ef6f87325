"""`AsyncClient`: the same methods as `Client`, for an event loop. A test holds the two against each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx

from tenure.surfaces.sdk import calls
from tenure.surfaces.sdk.backoff import Backoff
from tenure.surfaces.sdk.calls import Call
from tenure.surfaces.sdk.client import Base, event_query
from tenure.surfaces.sdk.errors import Unavailable, error_of
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


class AsyncClient(Base):
    """The server's API for programs on an event loop."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout_s: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(url, token=token, timeout_s=timeout_s)
        self._http = httpx.AsyncClient(**self._settings(), transport=transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Make one call."""
        try:
            response = await self._http.request(call.method, call.path, **self._request(call))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return self._read(call, response)

    # -- the worker protocol ------------------------------------------------------------------------------------------

    async def lease(
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
        return await self.send(
            calls.lease(worker_id, capabilities, max_tasks, preferred_kinds, wait_s, profile, project, idempotency_key)
        )

    async def leases(self, worker_id: str) -> list[LeaseFacts]:
        """A worker's live leases."""
        return await self.send(calls.leases(worker_id))

    async def heartbeat(
        self, lease_id: str, *, progress: int | None = None, message: str = "", expect_silence_s: int = 0
    ) -> HeldFacts:
        """Extend a lease; with progress, report it too."""
        return await self.send(calls.heartbeat(lease_id, progress, message, expect_silence_s))

    async def release(self, lease_id: str, *, message: str = "") -> ReleasedFacts:
        """Give an offer or a task back."""
        return await self.send(calls.release(lease_id, message))

    # -- receipts -----------------------------------------------------------------------------------------------------

    async def submit_receipt(self, receipt: Mapping[str, Any], *, project: str | None = None) -> dict[str, Any]:
        """Record a receipt and do what it says."""
        return await self.send(calls.submit(receipt, project))

    async def submit_accepted(self, task_id: str, source_system: str, **fields: Any) -> dict[str, Any]:
        """Take an offer up: this creates the obligation."""
        return await self.submit_receipt(calls.accepted(task_id, source_system, fields))

    async def submit_progress(
        self, task_id: str, source_system: str, progress: int, message: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Record how far the work is; this renews."""
        return await self.submit_receipt(calls.progress(task_id, source_system, progress, message, fields))

    async def submit_complete(
        self, task_id: str, source_system: str, status: str = "success", **fields: Any
    ) -> dict[str, Any]:
        """End the attempt: success, failure or canceled."""
        return await self.submit_receipt(calls.complete(task_id, source_system, status, fields))

    async def submit_escalate(
        self, task_id: str, source_system: str, escalation_class: str, reason: str, to: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Hand the task to someone else."""
        return await self.submit_receipt(calls.escalate(task_id, source_system, escalation_class, reason, to, fields))

    async def list_receipts(
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
        return await self.send(calls.list_receipts(task_id, phase, principal_ai, since, until, project, after, limit))

    async def show_receipt(self, receipt_id: str) -> dict[str, Any]:
        """One receipt."""
        return await self.send(calls.show_receipt(receipt_id))

    async def verify_receipts(self, *, task_id: str | None = None, project: str | None = None) -> dict[str, Any]:
        """Check the chains and seals."""
        return await self.send(calls.verify(task_id, project))

    async def obligations(
        self, *, project: str | None = None, after: int | None = None, limit: int | None = None
    ) -> ObligationPage:
        """Tasks whose obligation is open or overdue."""
        return await self.send(calls.obligations(project, after, limit))

    async def gates(self, *, project: str | None = None) -> dict[str, Any]:
        """The external gates: what waits for each, and what it refused for good."""
        return await self.send(calls.gates(project))

    async def resend_receipts(self, *, receipt_id: str | None = None, project: str | None = None) -> dict[str, Any]:
        """Have the receipts that a gate refused sent again, or one of them. For operators."""
        return await self.send(calls.resend(receipt_id, project))

    # -- tasks --------------------------------------------------------------------------------------------------------

    async def add_task(self, task_summary: str, **fields: Any) -> TaskFacts:
        """Add a task. A `dedupe_key` makes repeating safe."""
        return await self.send(calls.add_task({"task_summary": task_summary, **fields}))

    async def add_tasks(self, tasks: Sequence[Mapping[str, Any]], *, project: str | None = None) -> list[TaskFacts]:
        """Add many tasks, all or none."""
        return await self.send(calls.add_tasks(tasks, project))

    async def show_task(self, task_id: str, *, project: str | None = None) -> TaskFacts:
        """Everything about one task."""
        return await self.send(calls.show_task(task_id, project))

    async def list_tasks(
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
        return await self.send(calls.list_tasks(status, task_type, assigned_to, search, project, after, limit))

    async def requeue_task(self, task_id: str, *, project: str | None = None) -> TaskFacts:
        """Give a dead, blocked or waiting task a new start."""
        return await self.send(calls.requeue(task_id, project))

    async def move_task(
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
        return await self.send(calls.move(task_id, status, by, message, revoke, project))

    async def dead_tasks(
        self, *, project: str | None = None, after: int | None = None, limit: int | None = None
    ) -> TaskPage:
        """The dead-letter list."""
        return await self.send(calls.dead(project, after, limit))

    # -- the server ---------------------------------------------------------------------------------------------------

    async def health(self) -> HealthFacts:
        """Statistics, monitors, and what waits."""
        return await self.send(calls.health())

    async def metrics(self) -> str:
        """The same for Prometheus."""
        return await self.send(calls.metrics())

    async def openapi(self) -> dict[str, Any]:
        """The description of the API."""
        return await self.send(calls.openapi())

    async def events(
        self,
        *,
        after: int | None = None,
        project: str | None = None,
        task_id: str | None = None,
        agent_id: str | None = None,
        reconnect: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> AsyncIterator[EventFacts]:
        """Events as they happen, from now or after a cursor. A broken stream is resumed where it was."""
        reader, backoff = EventReader(after), Backoff(RECONNECT_S)
        query = event_query(project, task_id, agent_id)
        while True:
            try:
                async with self._http.stream(
                    "GET", "/events", params=query, headers=reader.headers(), timeout=self._timeout(SILENCE_S)
                ) as response:
                    if not response.is_success:
                        await response.aread()
                        raise error_of(response)
                    async for line in response.aiter_lines():
                        backoff.reset()
                        event = reader.feed(line)
                        if event is not None:
                            yield event
            except (httpx.HTTPError, Unavailable) as error:
                if not reconnect:
                    raise error if isinstance(error, Unavailable) else self._unreachable(error) from error
            if not reconnect:
                return
            await sleep(backoff.next_s())
