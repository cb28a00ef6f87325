"""What many ask at once is looked up once for those who waited, and never before they asked."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.errors import refuse
from tenure.store.sqlite import SqliteStore
from tenure.store.store import StoreFault, Transaction
from tests.mcp.clients import Room, drive
from tests.support import add


def test_those_who_ask_during_a_look_share_the_next_one(store: SqliteStore) -> None:
    looks = 0

    def question(tx: Transaction) -> int:
        nonlocal looks
        looks += 1
        return looks

    async def story() -> None:
        async with Room(store) as room:
            first = asyncio.ensure_future(room.node.look_together(question))
            # Its look is under way once the others ask.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            others = [asyncio.ensure_future(room.node.look_together(question)) for _ in range(20)]
            others[3].cancel()
            answers = await asyncio.gather(first, *others, return_exceptions=True)
            assert answers[0] == 1
            assert isinstance(answers.pop(4), asyncio.CancelledError)
            assert set(answers[1:]) == {2}
            assert await room.node.look_together(question) == 3

    drive(story())


def test_ping_counts_what_was_written_before_it(store: SqliteStore) -> None:
    async def story() -> None:
        async with Room(store) as room, room.client(tools="all") as operator:
            pings = []
            for number in range(1, 20):
                await operator.call("create_tasks", tasks=[{"title": f"Task {number}"}])
                asked = asyncio.ensure_future(operator.call("ping"))
                pings.append((number, asked))
                await asyncio.sleep(0)
            for number, asked in pings:
                assert (await asked)["lease_statistics"]["tasks"]["todo"] >= number

    drive(story())


def test_store_that_cannot_be_read_is_told_to_all_who_asked(store: SqliteStore) -> None:
    add(store)

    def question(tx: Transaction) -> int:
        raise StoreFault(refuse("store_unavailable", "The disk is gone."))

    async def story() -> None:
        async with Room(store) as room:
            asked = [room.node.look_together(question) for _ in range(3)]
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(answer, StoreFault)
            with pytest.raises(StoreFault):
                await room.node.look_together(question)

    drive(story())
