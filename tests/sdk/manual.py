"""A worker's world without a network and without waiting: a clock that moves when told, and a server of a few lines."""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Callable
from typing import Any

import httpx

from tenure.surfaces.sdk.backoff import Time

TURNS = 60


class ManualTime(Time):
    """Time that stands still until it is moved; sleepers wake in their order."""

    def __init__(self) -> None:
        self.at_s = 1000.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        return self.at_s

    async def sleep(self, wait_s: float) -> None:
        self.slept.append(wait_s)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.at_s + wait_s, len(self.slept), woken))
        await woken

    async def settle(self) -> None:
        """Let everything happen that can happen without time."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def run_until(self, done: Callable[[], object], until_s: float = 100_000.0) -> None:
        """Move on from sleeper to sleeper until something is so."""
        await self.settle()
        while not done():
            self._sleepers = [sleeper for sleeper in self._sleepers if not sleeper[2].done()]
            heapq.heapify(self._sleepers)
            assert self._sleepers, "nobody sleeps, and it is not so"
            due_s, _, woken = heapq.heappop(self._sleepers)
            assert due_s <= until_s, "it did not come in time"
            self.at_s = max(self.at_s, due_s)
            woken.set_result(None)
            await self.settle()


class ManualServer:
    """Offers one task, takes receipts and heartbeats.

    `down` makes it unreachable, `hangs` lets it never answer; `answers` overrides, by the end of "METHOD /path".
    """

    def __init__(self, time: ManualTime, lease_s: float = 30.0, task_type: str = "test.work") -> None:
        self.time = time
        self.lease_s = lease_s
        self.task_type = task_type
        self.offers = 1
        self.down = False
        self.hangs = False
        self.requests: list[tuple[float, str, Any]] = []
        self.answers: dict[str, Callable[[], httpx.Response]] = {}
        # How long a poll waits before its offer is made.
        self.poll_takes_s = 0.0

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]

    def receipts(self) -> list[dict[str, Any]]:
        return [body for _, path, body in self.requests if path == "/receipts"]

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        body: Any = json.loads(request.content) if request.content else None
        self.requests.append((self.time.at_s, path, body))
        if self.down:
            raise httpx.ConnectError("down", request=request)
        if self.hangs:
            while self.hangs:
                await asyncio.sleep(0)
            raise httpx.ReadTimeout("too late", request=request)
        for end, answer in self.answers.items():
            if f"{request.method} {path}".endswith(end):
                return answer()
        if path == "/lease" and request.method == "GET":
            return httpx.Response(200, json={"leases": []})
        if path == "/lease":
            return self._offer()
        if path == "/receipts":
            return httpx.Response(201, json={**body, "attempt": 1})
        if path.endswith("/heartbeat"):
            held = {"lease_id": "lease-1", "lease_s": self.lease_s, "signals": []}
            return httpx.Response(200, json=held)
        return httpx.Response(200, json={"task_id": "T1", "status": "todo", "repeated": False})

    def _offer(self) -> httpx.Response:
        if self.offers == 0:
            return httpx.Response(204)
        self.offers -= 1
        self.time.at_s += self.poll_takes_s
        offer = {
            "lease_id": "lease-1",
            "lease_expires_at": "2026-01-04T15:45:00Z",
            "task": {"task_id": "T1", "task_type": self.task_type, "task_summary": "Work"},
        }
        return httpx.Response(200, json=offer, headers={"Tenure-Lease-S": f"{self.lease_s:g}", "Tenure-Token": "7"})


def refusal(code: str, status: int = 409) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(status, json={"code": code, "detail": code, "next": "", "facts": {}})
