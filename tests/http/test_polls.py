"""The polls that wait, without a network: what they do when a look and an offer disagree."""

from __future__ import annotations

import asyncio
from typing import Any

from tenure.core.errors import refuse
from tenure.core.record import Record
from tenure.surfaces.http.polls import Polls

WITHIN_S = 120.0


class Prospect(Record):
    ready: int
    kept: bool = False


class Node:
    """A node whose offers pass the only task over so many times, as PostgreSQL does with one that is locked."""

    def __init__(self, passed_over: int, failing_looks: int = 0) -> None:
        self.offers = 0
        self._passed_over = passed_over
        self._failing_looks = failing_looks

    async def look(self, question: Any) -> Prospect:
        if self._failing_looks:
            self._failing_looks -= 1
            raise ConnectionError("the look failed")
        return Prospect(ready=1)

    async def call(self, verb: Any, *, quiet: bool = False, **request: Any) -> Any:
        self.offers += 1
        return refuse("nothing_ready", "Nothing.") if self.offers <= self._passed_over else ("the task",)


async def connected() -> Any:
    await asyncio.Event().wait()


async def waited(node: Any) -> Any:
    polls = Polls(node)
    serving = asyncio.create_task(polls.serve())
    try:
        # Nobody writes after this: only a look of the polls' own can find the task again.
        return await polls.wait({"agent_id": "A1", "capabilities": None}, "default", WITHIN_S, connected)
    finally:
        polls.stop()
        await serving


def test_waiting_poll_whose_task_was_passed_over_is_offered_it_without_another_write() -> None:
    node = Node(passed_over=2)
    assert asyncio.run(waited(node)) == ("the task",)
    assert node.offers == 3


def test_waiting_poll_whose_look_failed_is_looked_up_again() -> None:
    assert asyncio.run(waited(Node(passed_over=0, failing_looks=2))) == ("the task",)
