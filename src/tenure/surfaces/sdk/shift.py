"""A worker's shift: poll, start a job for every offer, back off, and end in good order.

    run ── own leases of an earlier run ── poll ⇄ jobs ── drain ── done

A poll that was not answered is repeated under the same idempotency key, so that an offer whose answer was lost is found
again instead of waiting for its end. The first request to stop drains: no new work, and what runs may finish within a
grace. The second, or the end of the grace, stops: handlers are cancelled and their leases released.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.core.receipts import said
from tenure.surfaces.sdk.async_client import AsyncClient
from tenure.surfaces.sdk.backoff import ERROR_BACKOFF_S, NO_WORK_S, Backoff, Time
from tenure.surfaces.sdk.errors import Refusal, TenureError, Unavailable
from tenure.surfaces.sdk.facts import LeaseFacts, Offer, Offers, TaskFacts
from tenure.surfaces.sdk.job import Job, Start, Surroundings
from tenure.surfaces.sdk.trust import Trust

log = logging.getLogger("tenure.worker")

ANY_TYPE = "*"
# The server takes this many of each.
PREFERRED_MAX = 16
OFFERS_MAX = 100


@dataclass(frozen=True)
class Terms:
    """How a worker works. Times are seconds."""

    worker_id: str
    capabilities: Sequence[str] | None = None
    project: str | None = None
    profile: str | None = None
    concurrency: int = 1
    # A poll waits this long for work; 0 for not at all.
    wait_s: float = 30.0
    no_work_s: float = NO_WORK_S
    drain_s: float = 30.0
    margin_s: float | None = None
    patience_s: float = 900.0
    backoff: Backoff = field(default_factory=lambda: Backoff(ERROR_BACKOFF_S))
    time: Time = field(default_factory=Time)


class Shift:
    """One run of a worker, on one event loop."""

    def __init__(self, terms: Terms, client: AsyncClient, handlers: Mapping[str, Start]) -> None:
        self.terms = terms
        self.handlers = handlers
        self.draining = asyncio.Event()
        self.around = Surroundings(
            client=client,
            worker_id=terms.worker_id,
            time=terms.time,
            backoff=terms.backoff,
            run_id=uuid.uuid4().hex,
            stopping=asyncio.Event(),
            patience_s=terms.patience_s,
        )
        self._jobs: set[asyncio.Task[bool]] = set()
        self._finished = 0
        self._poll_key: str | None = None
        self._asked_tasks = 1
        self._welcome = False

    def stop(self) -> None:
        """Drain; asked again, stop at once."""
        if self.draining.is_set():
            self.around.stopping.set()
        self.draining.set()

    async def run(self, limit: int | None = None) -> None:
        """Work until asked to stop, or until so many tasks were taken and ended."""
        try:
            await self._look_for_own()
            while not self.draining.is_set():
                free = self._free(limit)
                if free > 0:
                    await self._poll(free)
                elif self._jobs:
                    await self._wait_for_a_job()
                else:
                    break
            await self._drain()
        except BaseException:
            # Cancelled, or told by the server that it will never be served: nothing may go on behind our back.
            self.draining.set()
            self.around.stopping.set()
            raise
        finally:
            if self._jobs:
                await asyncio.wait(self._jobs)

    def _free(self, limit: int | None) -> int:
        """How many more tasks may be taken now."""
        free = self.terms.concurrency - len(self._jobs)
        return free if limit is None else min(free, limit - self._finished - len(self._jobs))

    # -- polling ------------------------------------------------------------------------------------------------------

    async def _poll(self, free: int) -> None:
        """Ask once, start what is offered, and wait as long as the answer demands."""
        time = self.terms.time
        started_s = time.now_s()
        try:
            offers = await self._unless_draining(self._ask(free))
        except Unavailable as error:
            wait_s = self.terms.backoff.next_s()
            log.warning("no work to be had: %s; asking again in %.1f s", error, wait_s)
            await self._pause(wait_s)
            return
        except Refusal as refusal:
            self._poll_key = None
            if not self._welcome:
                # A wrong id, token or project: asking again would hide the mistake.
                raise
            wait_s = self.terms.backoff.next_s()
            log.error("the poll was refused: %s; asking again in %.1f s", refusal, wait_s)  # noqa: TRY400
            await self._pause(wait_s)
            return
        if offers is None:
            await self._return_offers()
            return
        self._welcome = True
        self._poll_key = None
        self.terms.backoff.reset()
        strangers = [offer for offer in offers if not self._take(offer, started_s)]
        for offer in strangers:
            await self._decline(offer)
        waited = self.terms.wait_s > 0 and time.now_s() - started_s >= self.terms.wait_s / 2
        if (not offers and not waited) or (strangers and len(strangers) == len(offers)):
            # What nobody here can do would be offered again at once, for ever.
            await self._pause(self.terms.backoff.jittered(self._no_work_s(offers)))

    def _no_work_s(self, offers: Offers) -> float:
        return self.terms.no_work_s if offers.retry_after_s is None else offers.retry_after_s

    async def _ask(self, free: int) -> Offers:
        """The poll. Repeated after an error it is the very same request, or its key would not fit."""
        if self._poll_key is None:
            self._poll_key = uuid.uuid4().hex
            self._asked_tasks = min(free, OFFERS_MAX)
        return await self.around.client.lease(
            self.terms.worker_id,
            capabilities=self.terms.capabilities,
            max_tasks=self._asked_tasks,
            preferred_kinds=[kind for kind in self.handlers if kind != ANY_TYPE][:PREFERRED_MAX],
            wait_s=self.terms.wait_s,
            profile=self.terms.profile,
            project=self.terms.project,
            idempotency_key=self._poll_key,
        )

    async def _unless_draining(self, request: Any) -> Any:
        """The answer, or None if the worker is asked to stop while it waits for it."""
        asked = asyncio.ensure_future(request)
        stop = asyncio.ensure_future(self.draining.wait())
        try:
            await asyncio.wait({asked, stop}, return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else None
        finally:
            stop.cancel()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _pause(self, wait_s: float) -> None:
        await self._unless_draining(self.terms.time.sleep(wait_s))

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _handler(self, kind: str) -> Start | None:
        return self.handlers.get(kind) or self.handlers.get(ANY_TYPE)

    def _take(self, offer: Offer, asked_at_s: float, *, resumed: bool = False) -> bool:
        """Start a job for an offer; False if nobody here can do it."""
        start = self._handler(offer.task_type)
        if start is None:
            return False
        trust = Trust(asked_at_s, offer.lease_s, self.terms.margin_s)
        job = asyncio.ensure_future(Job(self.around, offer, trust, start, resumed=resumed).run())
        self._jobs.add(job)
        job.add_done_callback(self._over)
        return True

    def _over(self, job: asyncio.Task[bool]) -> None:
        self._jobs.discard(job)
        if job.cancelled():
            return
        if job.exception() is not None:
            log.error("a job failed in a way nobody foresaw", exc_info=job.exception())
        elif job.result():
            self._finished += 1

    async def _wait_for_a_job(self) -> None:
        # A copy: a job that ends before the wait has begun leaves the set, and an empty set cannot be waited for.
        await self._unless_draining(asyncio.wait(set(self._jobs), return_when=asyncio.FIRST_COMPLETED))

    async def _decline(self, offer: Offer) -> None:
        """Give back at once what nobody here can do. If that fails, the offer ends by itself."""
        log.warning("nobody here does %r; giving %s back", offer.task_type, offer.task_id)
        await self._release(offer.lease_id, f"Released: this worker does not do {offer.task_type or 'untyped tasks'}")

    async def _release(self, lease_id: str, message: str = "") -> None:
        try:
            await self.around.client.release(lease_id, message=message)
        except TenureError as error:
            log.warning("lease %s could not be released: %s", lease_id, error)

    # -- the beginning ------------------------------------------------------------------------------------------------

    async def _look_for_own(self) -> None:
        """Whatever an earlier run under this id left: offers are given back, accepted tasks are gone on with."""
        time = self.terms.time
        while not self.draining.is_set():
            asked_at_s = time.now_s()
            try:
                for lease in await self.around.client.leases(self.terms.worker_id):
                    await self._look_at_own(lease, asked_at_s)
            except Unavailable as error:
                wait_s = self.terms.backoff.next_s()
                log.warning("%s; trying again in %.1f s", error, wait_s)
                await self._pause(wait_s)
                continue
            self.terms.backoff.reset()
            return

    async def _look_at_own(self, lease: LeaseFacts, asked_at_s: float) -> None:
        if lease["state"] == "active" and len(self._jobs) < self.terms.concurrency:
            task = await self.around.client.show_task(lease["task_id"], project=self.terms.project)
            if self._handler(task["kind"]) is not None:
                log.info("going on with %s, which an earlier run accepted", lease["task_id"])
                self._take(_offer_of(lease, task), asked_at_s, resumed=True)
                return
        await self._release(lease["lease_id"], "Released: the worker restarted")

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _return_offers(self) -> None:
        """A poll was given up while it waited: what it was offered in that moment is given back."""
        try:
            for lease in await self.around.client.leases(self.terms.worker_id):
                if lease["state"] == "offered":
                    await self._release(lease["lease_id"])
        except TenureError as error:
            log.warning("offers could not be looked for: %s", error)

    async def _drain(self) -> None:
        """Let what runs finish within the grace, then stop it."""
        if not self._jobs:
            return
        log.info("finishing %s tasks, for at most %.0f s", len(self._jobs), self.terms.drain_s)
        timer = asyncio.ensure_future(self.terms.time.sleep(self.terms.drain_s))
        stop = asyncio.ensure_future(self.around.stopping.wait())
        rest = asyncio.ensure_future(asyncio.wait(set(self._jobs)))
        await asyncio.wait({timer, stop, rest}, return_when=asyncio.FIRST_COMPLETED)
        self.around.stopping.set()
        timer.cancel()
        await asyncio.gather(stop, rest)


def _offer_of(lease: LeaseFacts, task: TaskFacts) -> Offer:
    """A lease and its task as the offer it once was. How much is left of its term is not known: a heartbeat tells."""
    told = {
        "task_id": task["task_id"],
        "task_type": task["kind"],
        "task_summary": task["title"],
        "task_body": task["body"],
        "inputs": task["inputs"],
        "progress": task["progress"],
    }
    for name in ("principal_ai", "payload_pointer", "expected_outcome_kind", "expected_artifact_mime"):
        if said(task.get(name)):
            told[name] = task[name]
    return Offer(lease["lease_id"], lease["expires_at"], told, token=lease["token"])
