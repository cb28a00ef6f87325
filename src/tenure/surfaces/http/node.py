"""One server process: the runner, the monitors, the server's own pulse, and the polls that wait.

Verbs run on the runner's threads; this class is their face in the event loop. All outcomes of one commit cross into the
loop with one call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tenure import app
from tenure.core.deadline import PULSE_EVERY_MS
from tenure.core.errors import Refused
from tenure.engine import agents
from tenure.store.store import StoreFault
from tenure.surfaces.http.polls import Polls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.engine.verb import Verb
    from tenure.store.runner import Job
    from tenure.store.store import Store, Transaction

R = TypeVar("R")

# How often a writer whose step has not been carried out looks whether the loop has ended.
CARRIED_WITHIN_S = 1.0
# Verbs that may do the work of thousands: they run on the writer's thread and keep no request waiting for the loop.
LONG = frozenset(("add_tasks", "import_records", "prune", "seal"))

log = logging.getLogger("tenure.http")


class Node:
    """The parts of a running server."""

    # Where the one client of this node works (worktree, host, branch), if it has one client and that is known.
    place: Mapping[str, str] = {}

    def __init__(self, store: Store, server_id: str | None) -> None:
        self.store = store
        # The name under which this server pulses; None where there is none (`tenure mcp` on its own).
        self.server_id = server_id
        self.stopping = False
        self._telling = False
        # Set when the server stops: streams of other surfaces wait for it.
        self.ending = asyncio.Event()
        self.polls = Polls(self)
        self._groups: dict[Callable[[Transaction], Any], _Group] = {}

    async def start(self) -> None:
        """Begin to serve: lift what was live when the last server of this name was heard, then pulse."""
        self.open()
        started = await self.call(agents.start_server, server_id=self.server_id)
        if isinstance(started, Refused):
            self.stop_waiting()
            await self.close()
            raise StoreFault(started)
        self.monitors = app.monitors(self.store)
        self.monitors.start()
        self._pulsing = asyncio.create_task(self._pulse(), name="pulse")

    def open(self) -> None:
        """Begin to run verbs, and to serve the polls that wait."""
        self._loop = asyncio.get_running_loop()
        self._written: asyncio.Future[None] = self._loop.create_future()
        self.runner = app.runner(
            self.store,
            deliver=self._deliver,
            make_future=self._loop.create_future,
            written_elsewhere=lambda: self._into_loop(self._tell),
            carry=self._carry,
        )
        self._serving = asyncio.create_task(self.polls.serve(), name="polls")

    async def close(self) -> None:
        """Finish the verbs that were accepted, then end."""
        # Not cancelled: an offer that is being made for a poll that has its answer is to be given back.
        await asyncio.gather(self._serving, return_exceptions=True)
        await asyncio.to_thread(self.runner.close)

    def hint_board(self, project_id: str, card_id: str) -> None:
        """A board says that a card was touched."""
        self.monitors.hint(project_id, card_id)

    async def reconcile(self, project_id: str | None = None) -> app.Reconciled | Refused:
        """Take back what is due, and bring boards into step. A server elsewhere is waited for beside the runner."""
        found = await asyncio.to_thread(app.reconcile, self.store, project_id)
        self._tell()
        return found

    def stop_waiting(self) -> None:
        """Answer every waiting poll with nothing and end every stream, and let no other begin."""
        self.stopping = True
        self.ending.set()
        self.polls.stop()
        self._tell()

    async def stop(self) -> None:
        """Finish what was accepted, then end."""
        self.stop_waiting()
        self._pulsing.cancel()
        await asyncio.gather(self._pulsing, return_exceptions=True)
        await asyncio.to_thread(self.monitors.stop)
        await self.close()
        self.store.close()

    # -- verbs ------------------------------------------------------------------------------------------------------

    async def call(self, verb: Verb[..., R], *, quiet: bool = False, **arguments: Any) -> R | Refused:
        """Run a verb: checked here, run by the runner, answered after its commit.

        A refusal may have written too: a recovery that it found due stands. `quiet` is for what a waiting poll tries,
        which is no news to the others who wait.
        """
        checked = verb.check(arguments)
        if isinstance(checked, Refused):
            return checked
        body = partial(verb.body, **checked)
        try:
            if verb.writes:
                answer: R | Refused = await self.runner.write(body, long=verb.name in LONG)
            else:
                answer = await self.runner.read(body)
        except StoreFault as fault:
            return fault.refusal
        if verb.writes and not (quiet and isinstance(answer, Refused)) and not self._telling:
            # Once for all the answers of a commit, which reach the loop together.
            self._telling = True
            self._loop.call_soon(self._tell)
        return answer

    async def look(self, question: Callable[[Transaction], R]) -> R:
        """Ask the store something that is no verb. A store that cannot answer raises its StoreFault."""
        answer = await self.runner.read(question)
        if isinstance(answer, Refused):
            raise StoreFault(answer)
        found: R = answer
        return found

    async def look_together(self, question: Callable[[Transaction], R]) -> R:
        """As `look`, for what many ask at once: whoever asks while such a look is under way shares the next one with
        the others who do, so that everyone is told of an instant after their question."""
        group = self._groups.setdefault(question, _Group())
        if group.coming is None:
            group.coming = asyncio.ensure_future(self._look_in_turn(group, question))
        # Shielded: one of them may give up.
        found: R = await asyncio.shield(group.coming)
        return found

    async def _look_in_turn(self, group: _Group, question: Callable[[Transaction], R]) -> R:
        async with group.turn:
            group.coming = None
            return await self.look(question)

    def _deliver(self, jobs: Sequence[Job]) -> None:
        """Called by the runner's threads: hand a whole batch to the loop at once."""
        self._into_loop(_resolve, jobs)

    def _carry(self, step: Callable[[], None], not_before: float) -> None:
        """Called by the runner's writer: run the bodies of a batch on the loop's own thread, and wait for them.

        Two threads that run Python take turns: a writer that gives the interpreter up at each of its statements would
        get it back only when the loop has no more to do, and hold the store's lock meanwhile. The batch ends after
        5 ms, so that this is how long a request may wait for it.
        """
        done = threading.Event()
        raised: list[BaseException] = []

        def carried() -> None:
            if time.monotonic() < not_before:
                # Less than a millisecond is left, which the loop's timers cannot measure: others have their turn.
                self._loop.call_soon(carried)
                return
            try:
                step()
            except BaseException as error:
                raised.append(error)
            finally:
                done.set()

        try:
            self._loop.call_soon_threadsafe(carried)
        except RuntimeError:
            step()
            return
        while not done.wait(CARRIED_WITHIN_S):
            if self._loop.is_closed():
                step()
                return
        if raised:
            raise raised[0]

    def _into_loop(self, step: Any, *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(step, *arguments)
        except RuntimeError:
            log.warning("the loop had ended before %s", step)

    async def due_in_s(self) -> float | None:
        """How soon a poll that waits must see to what is due by itself; None where monitors do."""
        return None

    async def catch_up(self) -> None:
        """Do what is due, where no monitor does."""

    # -- news -------------------------------------------------------------------------------------------------------

    @property
    def written(self) -> asyncio.Future[None]:
        """Done after the next write, here or by another process. Ask for it before reading: then none is missed."""
        return self._written

    def _tell(self) -> None:
        """Something was written."""
        self._telling = False
        self.polls.look()
        if not self._written.done():
            self._written.set_result(None)
        self._written = self._loop.create_future()

    async def _pulse(self) -> None:
        """Say that this server can hear."""
        while True:
            await asyncio.sleep(PULSE_EVERY_MS / 1000)
            refused = await self.call(agents.pulse_server, quiet=True, server_id=self.server_id)
            if isinstance(refused, Refused):
                log.warning("the server's pulse was refused: %s", refused.message)


class _Group:
    """Those who ask the same: one look is under way, and those who came later wait for the one that is coming."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.coming: asyncio.Future[Any] | None = None


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        assert job.outcome is not None
        if job.outcome.error is not None:
            job.future.set_exception(job.outcome.error)
        else:
            job.future.set_result(job.outcome.answer)
