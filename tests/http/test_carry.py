"""How the writer's batches run on the server's loop: not early, with their errors, and also when the loop has ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from tenure.surfaces.http.node import Node

WITHIN_S = 120.0


def node_on(loop: asyncio.AbstractEventLoop) -> Node:
    node = Node.__new__(Node)
    node._loop = loop
    return node


def carried(step: Callable[[], None], not_before: float) -> None:
    """From another thread, on a loop that runs."""

    async def serve() -> None:
        await asyncio.to_thread(node_on(asyncio.get_running_loop())._carry, step, not_before)

    asyncio.run(serve())


@pytest.mark.parametrize("ahead_s", [-1.0, 0.0, 0.001, 0.003])
def test_step_runs_on_the_loops_thread_and_not_before_its_time(ahead_s: float) -> None:
    ran: list[tuple[float, threading.Thread]] = []
    not_before = time.monotonic() + ahead_s
    carried(lambda: ran.append((time.monotonic(), threading.current_thread())), not_before)
    ((at, thread),) = ran
    assert at >= not_before
    assert thread is threading.main_thread()


def test_error_of_a_step_is_its_writers() -> None:
    def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        carried(failing, 0.0)


def test_step_that_waits_for_its_time_when_the_loop_ends_is_run_by_the_writer() -> None:
    loop = asyncio.new_event_loop()
    node, ran, begun = node_on(loop), [], threading.Event()

    def write() -> None:
        begun.set()
        node._carry(lambda: ran.append(threading.current_thread()), time.monotonic() + 3600)

    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(WITHIN_S)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    writer.join(WITHIN_S)
    assert ran == [writer]
