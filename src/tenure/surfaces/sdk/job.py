"""One task in a worker's hands: accept, run, heartbeat, tell the end.

    offer ── accept ── (heartbeat, if the poll was long) ── handler ── complete | escalate ── acknowledged
               │                                               │
            refused: forget it                    lost, may lapse or stopping: cancel, discard, release

The handler and the heartbeats run side by side. Whichever ends first decides: a result that came while the lease was
trusted is delivered until the server acknowledges it, with a dedupe_key, so that it counts once however often it is
sent. After a cancellation there is no result, whatever the handler still returns.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tenure.surfaces.sdk import calls
from tenure.surfaces.sdk.async_client import AsyncClient
from tenure.surfaces.sdk.backoff import Backoff, Time
from tenure.surfaces.sdk.errors import LOST, Cancelled, Escalate, Failed, Refusal, Unavailable
from tenure.surfaces.sdk.facts import Offer
from tenure.surfaces.sdk.tasks import Task, failure_fields, outcome_fields
from tenure.surfaces.sdk.trust import Trust

T = TypeVar("T")
log = logging.getLogger("tenure.worker")

# How long a handler that was told to stop at once may take before its lease is released all the same.
STOP_GRACE_S = 2.0


class Running(Protocol):
    """A handler at work. Cancelling asks; `done` tells when it has ended."""

    done: asyncio.Future[Any]

    def cancel(self) -> None: ...


Start = Callable[[Task, "Job"], Running]


@dataclass
class Surroundings:
    """What all jobs of a worker share."""

    client: AsyncClient
    worker_id: str
    time: Time
    backoff: Backoff
    run_id: str
    # Set when everything must end at once; before that, a draining worker lets its jobs finish.
    stopping: asyncio.Event
    # How long an end is told again and again before it is given up.
    patience_s: float = 900.0


class Job:
    """One lease, from its offer to its end."""

    def __init__(
        self, around: Surroundings, offer: Offer, trust: Trust, start: Start, *, resumed: bool = False
    ) -> None:
        self.around = around
        self.offer = offer
        self.trust = trust
        self._start = start
        self._resumed = resumed
        self._report: tuple[int, str] | None = None
        self._silent_until_s = 0.0
        self._stirred = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    # -- what the context calls, from any thread ----------------------------------------------------------------------

    def report(self, percent: int, message: str) -> None:
        """Send this progress as soon as can be."""
        self._stir(lambda: setattr(self, "_report", (percent, message)))

    def announce(self, seconds: int) -> None:
        """Ask for one long term."""
        until_s = self.around.time.now_s() + seconds
        self._stir(lambda: setattr(self, "_silent_until_s", until_s))

    def grace_s(self) -> float:
        """How long a cancelled handler has before its lease can lapse, with half of the margin in hand."""
        return self.trust.margin_s / 2

    def _stir(self, change: Callable[[], None]) -> None:
        def act() -> None:
            change()
            self._stirred.set()

        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(act)

    # -- the life of a job --------------------------------------------------------------------------------------------

    async def run(self) -> bool:
        """Do the whole of it; True if the task was accepted."""
        task = await (self._take_over() if self._resumed else self._accept())
        if task is None:
            return False
        reason = await self._make_sure()
        if reason is not None:
            await self._let_go(reason)
            return True
        await self._hold(task)
        return True

    async def _accept(self) -> Task | None:
        body = calls.accepted(self.offer.task_id, self.around.worker_id, self._names("accepted"))
        try:
            receipt = await self._insist(
                lambda: self.around.client.submit_receipt(body), self.trust.term_s or 10.0, self.trust.retry_s
            )
        except Refusal as refusal:
            log.warning("the offer of %s is gone: %s", self.offer.task_id, refusal)
            return None
        if receipt is None:
            await self._let_go("the acceptance could not be delivered")
            return None
        log.info("accepted %s, attempt %s", self.offer.task_id, receipt.get("attempt"))
        return self._task(receipt)

    async def _take_over(self) -> Task | None:
        """Go on with what an earlier run of this worker accepted, once: a task that ends its worker twice has failed.

        The receipt's key says that this lease was resumed and its content by which run, so another run is refused.
        """
        mark = {**self._names("resumed"), "metadata": {"run": self.around.run_id}}
        body = calls.progress(
            self.offer.task_id,
            self.around.worker_id,
            self.offer.task.get("progress") or 0,
            "resumed by its worker",
            mark,
        )
        try:
            receipt = await self._insist(lambda: self.around.client.submit_receipt(body))
        except Refusal as refusal:
            if refusal.code == "dedupe_conflict":
                await self._deliver(self._failure("the worker died twice while it worked on this task"))
            else:
                log.warning("%s cannot be resumed: %s", self.offer.task_id, refusal)
            return None
        return None if receipt is None else self._task(receipt)

    async def _make_sure(self) -> str | None:
        """A heartbeat before the handler starts, if the offer's own trust is unknown or used up by a third."""
        now_s = self.around.time.now_s()
        if self.trust.term_s is not None and now_s < self.trust.beat_at_s:
            return None

        async def beat() -> None:
            started_s = self.around.time.now_s()
            answer = await self.around.client.heartbeat(self.offer.lease_id)
            self.trust.renewed(started_s, answer["lease_s"])

        try:
            await self._insist(beat, self.trust.term_s or 10.0, self.trust.retry_s)
        except Refusal as refusal:
            return str(refusal)
        return None if self.trust.holds(self.around.time.now_s()) else "the lease could not be confirmed"

    async def _hold(self, task: Task) -> None:
        running = self._start(task, self)
        heart = asyncio.ensure_future(self._beat())
        stop = asyncio.ensure_future(self.around.stopping.wait())
        try:
            await asyncio.wait({running.done, heart, stop}, return_when=asyncio.FIRST_COMPLETED)
            reason = heart.result() if heart.done() else None
            if reason is None and not self.trust.holds(self.around.time.now_s()):
                # The event loop was blocked, and the heartbeats with it.
                reason = "the lease may have lapsed unnoticed"
            if reason is None and not running.done.done():
                reason = "the worker is stopping"
            if reason is None:
                await self._deliver(self._end(running.done))
            else:
                log.warning("cancelling %s: %s", task.task_id, reason)
                running.cancel()
                await self._wait_for_end(running, stop)
                await self._let_go(reason)
        finally:
            heart.cancel()
            stop.cancel()
            await asyncio.gather(heart, stop, return_exceptions=True)

    async def _wait_for_end(self, running: Running, stop: asyncio.Future[Any]) -> None:
        """A handler keeps its place among the running ones until it has really ended, or the worker must go."""
        await asyncio.wait({running.done, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done.done():
            timer = asyncio.ensure_future(self.around.time.sleep(STOP_GRACE_S))
            await asyncio.wait({running.done, timer}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
        if running.done.done() and not running.done.cancelled():
            # Looked at, so that nobody complains that it was not. There is no result after a cancellation.
            running.done.exception()

    # -- heartbeats ---------------------------------------------------------------------------------------------------

    async def _beat(self) -> str:
        """Renew until that fails for good; the reason why the handler must stop."""
        time, trust = self.around.time, self.trust
        while True:
            pressing = self._stirred.is_set() and trust.retry_at_s is None
            await self._until(time.now_s() if pressing else min(trust.beat_at_s, trust.until_s))
            if not trust.holds(time.now_s()):
                return "the lease could lapse before a heartbeat arrives"
            lost = await self._renew()
            if lost is not None:
                return lost

    async def _until(self, at_s: float) -> None:
        """Sleep until then, or until the handler has something to tell."""
        wait_s = at_s - self.around.time.now_s()
        if wait_s <= 0:
            return
        timer = asyncio.ensure_future(self.around.time.sleep(wait_s))
        waits: set[asyncio.Future[Any]] = {timer}
        if self.trust.retry_at_s is None:
            waits.add(asyncio.ensure_future(self._stirred.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _renew(self) -> str | None:
        """One heartbeat, with what there is to tell. It must be answered while the lease is trusted."""
        time, trust = self.around.time, self.trust
        started_s = time.now_s()
        told, self._report = self._report, None
        self._stirred.clear()
        silence_s = math.ceil(max(0.0, self._silent_until_s - started_s))
        percent, message = told or (None, "")
        request = asyncio.ensure_future(
            self.around.client.heartbeat(
                self.offer.lease_id, progress=percent, message=message, expect_silence_s=silence_s
            )
        )
        timer = asyncio.ensure_future(time.sleep(trust.until_s - started_s))
        try:
            await asyncio.wait({request, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                return None
            answer = request.result()
        except Unavailable as error:
            log.warning("heartbeat of %s: %s", self.offer.task_id, error)
            self._put_back(told)
            trust.missed(time.now_s())
            return None
        except Refusal as refusal:
            if refusal.code in LOST:
                return str(refusal)
            log.warning("heartbeat of %s: %s", self.offer.task_id, refusal)
            trust.missed(time.now_s())
            return None
        finally:
            timer.cancel()
            request.cancel()
        if "superseded" in answer["signals"]:
            return "superseded: a newer run of this worker holds it"
        trust.renewed(started_s, answer["lease_s"])
        return None

    def _put_back(self, told: tuple[int, str] | None) -> None:
        """What was not delivered is told with the next heartbeat, unless there is newer news by then."""
        if self._report is None:
            self._report = told
        if self._report is not None:
            self._stirred.set()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self, done: asyncio.Future[Any]) -> dict[str, Any]:
        """The receipt of what the handler did."""
        if done.cancelled():
            return self._failure("the handler was cancelled")
        error = done.exception()
        if isinstance(error, Escalate):
            names = self._names("escalate")
            return calls.escalate(
                self.offer.task_id, self.around.worker_id, error.escalation_class, error.reason, error.to, names
            )
        if isinstance(error, Cancelled):
            return self._failure("the handler stopped as if it had been cancelled")
        if error is None:
            try:
                fields = outcome_fields(done.result())
            except TypeError as wrong:
                error = wrong
            else:
                names = self._names("complete")
                return calls.complete(self.offer.task_id, self.around.worker_id, "success", {**fields, **names})
        log.warning("the handler of %s failed", self.offer.task_id, exc_info=error)
        return self._failure(_told(error))

    def _failure(self, text: str, key: str = "complete") -> dict[str, Any]:
        fields = {**failure_fields(text), **self._names(key)}
        return calls.complete(self.offer.task_id, self.around.worker_id, "failure", fields)

    async def _deliver(self, receipt: dict[str, Any]) -> None:
        """Send an end until it is acknowledged; one that the ledger cannot take becomes a failure that says so."""
        if self._report is not None and receipt.get("status") != "success":
            # What was reported last is worth keeping for whoever goes on.
            await self._renew()
        try:
            answer = await self._insist(lambda: self.around.client.submit_receipt(receipt))
        except Refusal as refusal:
            if refusal.code != "invalid_receipt" or receipt["dedupe_key"].endswith(":refused"):
                log.error("the end of %s was refused: %s", self.offer.task_id, refusal)  # noqa: TRY400
                return
            text = f"the result could not be recorded: {refusal.message}"
            await self._deliver(self._failure(text, "refused"))
            return
        if answer is None:
            log.error("the end of %s could not be delivered", self.offer.task_id)
        else:
            log.info("told the end of %s: %s %s", self.offer.task_id, receipt["phase"], receipt.get("status", ""))

    async def _let_go(self, reason: str) -> None:
        """Release what is not worked on any more. It may be lost by now, which is as good."""
        try:
            await self._insist(lambda: self.around.client.release(self.offer.lease_id, message=f"Released: {reason}"))
        except Refusal as refusal:
            log.info("%s needs no release: %s", self.offer.task_id, refusal.code)

    async def _insist(
        self,
        request: Callable[[], Awaitable[T]],
        patience_s: float | None = None,
        retry_s: Callable[[], float] | None = None,
    ) -> T | None:
        """Repeat a request that may be repeated until it is answered; None when patience or the worker ends."""
        time = self.around.time
        give_up_at_s = time.now_s() + (self.around.patience_s if patience_s is None else patience_s)
        next_s = self.around.backoff.fresh().next_s if retry_s is None else retry_s
        while True:
            try:
                return await request()
            except Unavailable as error:
                log.warning("%s: %s", self.offer.task_id, error)
            wait_s = next_s()
            if self.around.stopping.is_set() or time.now_s() + wait_s > give_up_at_s:
                return None
            timer = asyncio.ensure_future(time.sleep(wait_s))
            stop = asyncio.ensure_future(self.around.stopping.wait())
            await asyncio.wait({timer, stop}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            stop.cancel()

    def _names(self, key: str) -> dict[str, Any]:
        """Which lease a receipt is about, and the key under which it counts once."""
        return {"lease_id": self.offer.lease_id, "dedupe_key": f"{self.offer.lease_id}:{key}"}

    def _task(self, receipt: dict[str, Any]) -> Task:
        told = self.offer.task
        return Task(
            task_id=self.offer.task_id,
            task_type=self.offer.task_type,
            summary=told.get("task_summary") or "",
            body=told.get("task_body") or "",
            inputs=told.get("inputs") or {},
            attempt=receipt.get("attempt") or 1,
            lease_id=self.offer.lease_id,
            worker_id=self.around.worker_id,
            token=self.offer.token,
            project_id=receipt.get("project_id") or "",
            principal_ai=told.get("principal_ai") or "",
            payload_pointer=told.get("payload_pointer") or "",
            expected_outcome_kind=told.get("expected_outcome_kind") or "",
            expected_artifact_mime=told.get("expected_artifact_mime") or "",
            resumed=self._resumed,
        )


def _told(error: BaseException | None) -> str:
    text = str(error)
    if isinstance(error, Failed) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
