"""The polls that wait for work. They hold no thread and no connection.

Waiting polls are kept in groups: one project, one set of capabilities. After a write, here or by another process, each
group is looked up once; when n tasks are ready, the first n who wait are offered them, all in one commit, and the
others sleep on. A look writes nothing, so that waiting keeps nobody awake, however many wait.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused
from tenure.engine import claims, endings, waiting
from tenure.store.store import StoreFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from tenure.engine.verb import Verb
    from tenure.surfaces.http.node import Node

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# Between two looks: writes that come together are one reason to look.
PAUSE_S = 0.004
# When a look found work and an offer did not, or a look failed, the next look: sooner at first, then ever later.
AGAIN_S, AGAIN_MAX_S = 0.05, 5.0

log = logging.getLogger("tenure.http")


class Poll:
    """One poll that waits, the verb that gives it work, and the answer it waits for."""

    def __init__(self, request: dict[str, Any], answer: asyncio.Future[Any], verb: Verb[..., Any]) -> None:
        self.request = request
        self.answer = answer
        self.verb = verb


class Polls:
    """Everyone who waits for work on this server."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._groups: dict[tuple[str, tuple[str, ...] | None], dict[Poll, None]] = {}
        self._changed = asyncio.Event()
        self._again_s = AGAIN_S
        self._stopping = False

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def look(self) -> None:
        """Something was written: there may be work."""
        self._again_s = AGAIN_S
        self._changed.set()

    def _look_again(self) -> None:
        """Nobody may write again for long: a task that was passed over because another transaction had it in its hands
        (PostgreSQL skips what is locked) must not wait for that."""
        asyncio.get_running_loop().call_later(self._again_s, self._changed.set)
        self._again_s = min(2 * self._again_s, AGAIN_MAX_S)

    def stop(self) -> None:
        """Answer everyone with nothing, and let nobody else wait."""
        self._stopping = True
        self._changed.set()
        for group in self._groups.values():
            for poll in group:
                if not poll.answer.done():
                    poll.answer.set_result(None)

    async def wait(
        self,
        request: dict[str, Any],
        project_id: str,
        wait_s: float,
        receive: Receive,
        verb: Verb[..., Any] = claims.offer,
    ) -> Any:
        """Wait for an offer or a claim; None when the time is over, the server stops or the client hangs up."""
        if self._stopping:
            return None
        capabilities = request["capabilities"]
        key = (project_id, None if capabilities is None else tuple(sorted(capabilities)))
        poll = Poll(request, asyncio.get_running_loop().create_future(), verb)
        self._groups.setdefault(key, {})[poll] = None
        # Something may have come between the offer that found nothing and this place in the group.
        self._changed.set()
        hung_up = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait((poll.answer, hung_up), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            given = poll.answer.result() if poll.answer.done() else None
            if hung_up.done() and given is not None and not isinstance(given, Refused):
                await self._give_back(given)
                return None
            return given
        finally:
            # An offer that is being made for this poll finds its answer cancelled, and is given back.
            poll.answer.cancel()
            hung_up.cancel()
            del self._groups[key][poll]
            if not self._groups[key]:
                del self._groups[key]

    async def serve(self) -> None:
        """Look again whenever something was written, until the server stops."""
        while not self._stopping:
            await self._changed.wait()
            self._changed.clear()
            try:
                for key in list(self._groups):
                    await self._serve_group(*key)
            except StoreFault as fault:
                # An offer tells whoever asks meanwhile.
                log.warning("no look for waiting polls: %s", fault)
                self._look_again()
            except Exception:
                # Those who wait get their answer at the end of their wait, if not by the next look.
                log.exception("serving the waiting polls failed")
                self._look_again()
            await asyncio.sleep(PAUSE_S)

    async def _serve_group(self, project_id: str, capabilities: tuple[str, ...] | None) -> None:
        group = self._groups.get((project_id, capabilities))
        if not group:
            return
        found = await self._node.look(lambda tx: waiting.prospect(tx, project_id, capabilities, len(group)))
        chosen = dict.fromkeys(itertools.islice(group, found.ready))
        if found.kept:
            names = [poll.request["agent_id"] for poll in group]
            kept = await self._node.look(lambda tx: waiting.kept_for(tx, project_id, names))
            chosen.update(dict.fromkeys(poll for poll in group if poll.request["agent_id"] in kept))
        if not all(await asyncio.gather(*(self._offer(poll) for poll in chosen))):
            self._look_again()

    async def _offer(self, poll: Poll) -> bool:
        """Try to give a poll work; False when there was none after all."""
        if poll.answer.done():
            return True
        given = await self._node.call(poll.verb, quiet=True, **poll.request)
        if isinstance(given, Refused):
            if given.code == "nothing_ready":
                return False
            if not poll.answer.done():
                poll.answer.set_result(given)
            return True
        # An offer gives several, a claim one.
        grants = given if isinstance(given, tuple) else (given,)
        if poll.answer.done():
            await self._give_back(grants)
        else:
            poll.answer.set_result(grants)
        return True

    async def _give_back(self, grants: Iterable[claims.Grant]) -> None:
        """The client left while its answer was being made: nobody would take it up."""
        for grant in grants:
            if grant.resumed:
                # It was held before this poll, and stays so.
                continue
            await self._node.call(endings.release, lease_id=grant.lease.lease_id)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
