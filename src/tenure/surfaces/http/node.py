"""One server process: the runner, the monitors, the server's own pulse, and the polls that wait.

Verbs run on the runner's threads; this class is their face in the event loop. All outcomes of one commit cross into the
loop with one call. Waiting polls hold no thread and no connection: when something was written, here or by another
process, the node tries again on behalf of those who wait, one distinct request at a time, so that n ready tasks are
given to n waiters and the others sleep on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from tenure import app
from tenure.core.deadline import PULSE_EVERY_MS
from tenure.core.errors import Refused
from tenure.engine import agents
from tenure.store.runner import Runner
from tenure.store.store import StoreFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.engine.verb import Verb
    from tenure.store.runner import Job
    from tenure.store.sqlite import SqliteStore

R = TypeVar("R")

# How often to look whether another process has written, while somebody waits for that.
LOOK_EVERY_S = 0.02
log = logging.getLogger("tenure.http")


class Waiter:
    """A poll that waits for work."""

    def __init__(self, request: dict[str, Any], answer: asyncio.Future[Any]) -> None:
        self.request = request
        self.answer = answer

    def leave(self) -> None:
        """Wait no longer."""
        if not self.answer.done():
            self.answer.set_result(None)

    @property
    def wants(self) -> tuple[Any, ...]:
        """Waiters that want the same are tried together: where one gets nothing, none of them would."""
        asked = {**self.request, "agent_id": "", "idempotency_key": ""}
        return tuple(sorted((name, str(value)) for name, value in asked.items()))


class Node:
    """The parts of a running server."""

    def __init__(self, store: SqliteStore, server_id: str) -> None:
        self.store = store
        self.server_id = server_id
        self.stopping = asyncio.Event()
        self.changed = asyncio.Event()
        self._waiters: list[Waiter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._watch = store.clone()

    async def start(self) -> None:
        """Begin to serve: lift what was live when the last server of this name was heard, then pulse."""
        self._loop = asyncio.get_running_loop()
        self.runner = Runner(self.store, deliver=self._deliver, make_future=self._loop.create_future)
        started = await self.call(agents.start_server, server_id=self.server_id)
        if isinstance(started, Refused):
            raise StoreFault(started)
        self.monitors = app.monitors(self.store)
        self.monitors.start()
        self._seen_version = self._watch.data_version()
        self._tasks = [
            asyncio.create_task(self._pulse(), name="pulse"),
            asyncio.create_task(self._serve_waiters(), name="waiters"),
            asyncio.create_task(self._look_for_writes(), name="writes"),
        ]

    def stop_waiting(self) -> None:
        """Answer every waiting poll with nothing, and let no other begin."""
        self.stopping.set()
        self.changed.set()
        for waiter in self._waiters:
            waiter.leave()

    async def stop(self) -> None:
        """Finish what was accepted, then end."""
        self.stop_waiting()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self.monitors.stop)
        await asyncio.to_thread(self.runner.close)
        self._watch.close()
        self.store.close()

    # -- verbs ------------------------------------------------------------------------------------------------------

    async def call(self, verb: Verb[..., R], **arguments: Any) -> R | Refused:
        """Run a verb: checked here, run by the runner, answered after its commit."""
        checked = verb.check(arguments)
        if isinstance(checked, Refused):
            return checked
        queue = self.runner.write if verb.writes else self.runner.read
        try:
            answer: R | Refused = await queue(lambda tx: verb.body(tx, **checked))
        except StoreFault as fault:
            return fault.refusal
        if verb.writes and not isinstance(answer, Refused):
            self.changed.set()
        return answer

    def _deliver(self, jobs: Sequence[Job]) -> None:
        """Called by the runner's threads: hand a whole batch to the loop at once."""
        try:
            self._loop.call_soon_threadsafe(_resolve, jobs)
        except RuntimeError:
            log.warning("%s answers came after the loop had ended", len(jobs))

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def wait_for_work(self, request: dict[str, Any], wait_s: float, gone: asyncio.Future[None]) -> Any:
        """Wait until an offer can be made for this request; None when the time is over or the server stops.

        `gone` is done when the worker hangs up. An offer that was made in that very moment is given back.
        """
        if self.stopping.is_set():
            return None
        waiter = Waiter(request, self._loop.create_future())
        self._waiters.append(waiter)
        gone.add_done_callback(lambda _: waiter.leave())
        # Something may have come between the poll that found nothing and this waiter's place in the list.
        self.changed.set()
        try:
            async with asyncio.timeout(wait_s):
                answer = await waiter.answer
        except TimeoutError:
            return waiter.answer.result() if waiter.answer.done() and not waiter.answer.cancelled() else None
        finally:
            self._waiters.remove(waiter)
        if gone.done() and answer is not None and not isinstance(answer, Refused):
            await self._give_back(answer)
            return None
        return answer

    @property
    def waiting(self) -> int:
        """How many polls wait."""
        return len(self._waiters)

    async def _serve_waiters(self) -> None:
        """Whenever something was written, try again for those who wait."""
        while not self.stopping.is_set():
            await self.changed.wait()
            self.changed.clear()
            try:
                await self._try_waiters()
            except Exception:
                # Those who wait get their answer at the end of their wait; the next write tries again.
                log.exception("serving the waiting polls failed")

    async def _try_waiters(self) -> None:
        from tenure.engine.claims import offer

        hopeless: set[tuple[Any, ...]] = set()
        for waiter in list(self._waiters):
            if waiter.answer.done() or waiter.wants in hopeless:
                continue
            answer = await self.call(offer, **waiter.request)
            if isinstance(answer, Refused) and answer.code == "nothing_ready":
                hopeless.add(waiter.wants)
            elif not waiter.answer.done():
                waiter.answer.set_result(answer)
            elif not isinstance(answer, Refused):
                await self._give_back(answer)

    async def _give_back(self, grants: Any) -> None:
        """The waiter left while its offer was being made: nobody will accept it."""
        from tenure.engine.endings import release

        for grant in grants:
            await self.call(release, lease_id=grant.lease.lease_id)

    # -- loops ------------------------------------------------------------------------------------------------------

    async def _pulse(self) -> None:
        """Say that this server can hear."""
        while True:
            await asyncio.sleep(PULSE_EVERY_MS / 1000)
            refused = await self.call(agents.pulse_server, server_id=self.server_id)
            if isinstance(refused, Refused):
                log.warning("the server's pulse was refused: %s", refused.message)

    async def _look_for_writes(self) -> None:
        """Notice what other processes write. The look costs microseconds, and is made only while somebody waits."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                version = self._watch.data_version()
            except StoreFault:
                continue
            if version != self._seen_version:
                self._seen_version = version
                self.changed.set()


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        assert job.outcome is not None
        if job.outcome.error is not None:
            job.future.set_exception(job.outcome.error)
        else:
            job.future.set_result(job.outcome.answer)
