"""The rules of time: backoff, trust, and cancellation before a lease can lapse. No real time passes here."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tenure import AsyncContext, AsyncWorker, Refusal, Task
from tenure.surfaces.sdk.backoff import Backoff
from tenure.surfaces.sdk.trust import Trust
from tests.sdk.manual import ManualServer, ManualTime, refusal


def worker_of(server: ManualServer, **more: Any) -> AsyncWorker:
    quiet = Backoff(random=lambda: 0.0)
    options: dict[str, Any] = {"instance": "one", "backoff": quiet, "long_poll": False, **more}
    return AsyncWorker("test", time=server.time, transport=server.transport, **options)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await scene()

    asyncio.run(bounded())


# -- pure rules -------------------------------------------------------------------------------------------------------


def test_backoff_after_errors_is_exactly_the_specifications() -> None:
    backoff = Backoff(random=lambda: 0.0)
    assert [backoff.next_s() for _ in range(7)] == [5, 10, 20, 40, 60, 60, 60]
    backoff.reset()
    assert backoff.next_s() == 5


def test_backoff_jitter_only_shortens_and_by_a_fifth_at_most() -> None:
    most = Backoff(random=lambda: 1.0)
    assert [most.next_s() for _ in range(6)] == [4, 8, 16, 32, 48, 48]
    drawn = Backoff()
    for step in (5, 10, 20, 40, 60, 60) * 50:
        if drawn.errors == 6:
            drawn.reset()
        assert 0.8 * step <= drawn.next_s() <= step


@pytest.mark.parametrize(
    ("term_s", "margin_s", "until_s"),
    [
        (900, None, 890),  # A tenth, but ten seconds at most.
        (30, None, 27),
        (1, None, 0.9),
        (900, 60, 840),  # The user's own margin,
        (10, 60, 5),  # but never more than half of the term.
    ],
)
def test_trust_ends_a_margin_before_the_term_counted_from_the_requests_start(
    term_s: float, margin_s: float | None, until_s: float
) -> None:
    trust = Trust(0.0, term_s, margin_s)
    assert trust.until_s == until_s
    assert trust.holds(until_s - 0.001)
    assert not trust.holds(until_s)
    assert trust.beat_at_s == pytest.approx(term_s / 3)


def test_trust_after_a_missed_heartbeat_tries_again_sooner_for_shorter_terms() -> None:
    for term_s, retry_s in ((900, 5), (30, 2.5), (1, 0.25)):
        trust = Trust(0.0, term_s)
        trust.missed(100.0)
        assert trust.beat_at_s == 100 + retry_s
        trust.renewed(100.0, term_s)
        assert trust.beat_at_s == 100 + term_s / 3


# -- polling ----------------------------------------------------------------------------------------------------------


def test_poll_of_an_unreachable_server_backs_off_as_specified() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime())
        server.offers = 0
        worker = worker_of(server)
        worker.handler("test.work")(_never)
        running = asyncio.ensure_future(worker.run(signals=False))
        await server.time.settle()
        server.down = True
        server.requests.clear()
        await server.time.run_until(lambda: len(server.requests) >= 8)
        waits = [after[0] - before[0] for before, after in itertools.pairwise(server.requests)]
        assert waits[:7] == [5, 10, 20, 40, 60, 60, 60]
        worker.stop()
        await running

    play(scene)


async def _never(task: Task, context: AsyncContext) -> None:
    await asyncio.Event().wait()


def test_poll_repeated_after_an_error_is_the_same_request() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime())
        server.offers = 0
        server.answers["POST /lease"] = lambda: httpx.Response(503, json={"error": "database_unavailable"})
        worker = worker_of(server)
        worker.handler("test.work")(_never)
        running = asyncio.ensure_future(worker.run(signals=False))
        await server.time.run_until(lambda: len(server.requests) >= 4)
        assert len({body["idempotency_key"] for _, _, body in server.requests[1:4]}) == 1
        server.answers.clear()
        await server.time.run_until(lambda: len(server.requests) >= 6)
        # The fifth was answered, so the sixth is another poll.
        assert len({body["idempotency_key"] for _, _, body in server.requests[1:6]}) == 2
        worker.stop()
        await running

    play(scene)


@pytest.mark.parametrize(("header", "wait_s"), [({}, 5), ({"Retry-After": "9"}, 9)])
def test_poll_without_work_and_without_long_polling_waits(header: dict[str, str], wait_s: int) -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime())
        server.offers = 0
        worker = worker_of(server)
        worker.handler("test.work")(_never)
        running = asyncio.ensure_future(worker.run(signals=False))
        server.answers["POST /lease"] = lambda: httpx.Response(204, headers=header)
        await server.time.run_until(lambda: len(server.requests) >= 3)
        assert server.requests[2][0] - server.requests[1][0] == wait_s  # The first looks for leases
        worker.stop()
        await running

    play(scene)


def test_poll_that_is_refused_from_the_start_ends_the_worker() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime())
        worker = worker_of(server)
        worker.handler("test.work")(_never)
        server.answers["POST /lease"] = refusal("unauthorized", 401)
        with pytest.raises(Refusal) as raised:
            await worker.run(signals=False)
        assert raised.value.code == "unauthorized"

    play(scene)


def test_offer_of_an_unknown_type_is_released_and_not_asked_for_at_once() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), task_type="other.work")
        server.offers = 3
        worker = worker_of(server, long_poll=True)
        worker.handler("test.work")(_never)
        running = asyncio.ensure_future(worker.run(signals=False))
        await server.time.run_until(lambda: server.paths().count("/lease/lease-1/release") == 3)
        polls = [at for at, path, body in server.requests if path == "/lease" and body]
        assert [round(after - before) for before, after in itertools.pairwise(polls)][:2] == [5, 5]
        assert server.receipts() == []
        worker.stop()
        await running

    play(scene)


# -- heartbeats and cancellation --------------------------------------------------------------------------------------


class Watched:
    """A handler that works until it is cancelled, and notes when that was."""

    def __init__(self, time: ManualTime) -> None:
        self.time = time
        self.began_s: float | None = None
        self.cancelled_s: float | None = None
        self.flag_was_set = False

    @property
    def ended(self) -> bool:
        return self.cancelled_s is not None

    async def __call__(self, task: Task, context: AsyncContext) -> None:
        self.began_s = self.time.at_s
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled_s = self.time.at_s
            self.flag_was_set = context.cancelled.is_set()
            raise


def watched(worker: AsyncWorker, time: ManualTime) -> Watched:
    watch = Watched(time)

    async def handle(task: Task, context: AsyncContext) -> None:
        await watch(task, context)

    worker.handler("test.work")(handle)
    return watch


def test_heartbeat_comes_at_a_third_of_the_term() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=30)
        worker = worker_of(server)
        watched(worker, server.time)
        running = asyncio.ensure_future(worker.run(signals=False, limit=1))
        await server.time.run_until(lambda: server.paths().count("/lease/lease-1/heartbeat") == 4)
        beats = [at for at, path, _ in server.requests if path.endswith("/heartbeat")]
        assert beats == [1010, 1020, 1030, 1040]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    play(scene)


@pytest.mark.parametrize("fault", ["down", "hangs"])
def test_handler_of_a_lost_server_is_cancelled_before_the_lease_can_lapse(fault: str) -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=30)
        worker = worker_of(server)
        watch = watched(worker, server.time)
        running = asyncio.ensure_future(worker.run(signals=False, limit=1))
        await server.time.run_until(lambda: server.paths().count("/lease/lease-1/heartbeat") == 1)
        # The heartbeat at 1010 was answered: the lease cannot lapse before 1040, and is trusted until 1037.
        setattr(server, fault, True)
        await server.time.run_until(lambda: watch.cancelled_s is not None)
        assert watch.cancelled_s == 1037
        assert watch.flag_was_set
        setattr(server, fault, False)
        await server.time.run_until(running.done)
        assert [body["phase"] for body in server.receipts()] == ["accepted"]
        assert "/lease/lease-1/release" in server.paths()

    play(scene)


@pytest.mark.parametrize("code", ["lease_lost", "superseded", "task_done"])
def test_heartbeat_that_is_refused_stops_the_handler(code: str) -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=30)
        worker = worker_of(server)
        watch = watched(worker, server.time)
        server.answers["/heartbeat"] = refusal(code)
        await server.time.run_until(asyncio.ensure_future(worker.run(signals=False, limit=1)).done)
        assert watch.cancelled_s == 1010
        assert [body["phase"] for body in server.receipts()] == ["accepted"]

    play(scene)


def test_offer_after_a_long_poll_is_confirmed_before_the_handler_starts() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=5)
        server.poll_takes_s = 20
        worker = worker_of(server, long_poll=True)
        watch = watched(worker, server.time)
        running = asyncio.ensure_future(worker.run(signals=False, limit=1))
        await server.time.run_until(lambda: watch.began_s is not None)
        paths = server.paths()
        assert paths[-2:] == ["/receipts", "/lease/lease-1/heartbeat"]
        server.down = True
        await server.time.run_until(lambda: watch.cancelled_s is not None)
        assert watch.cancelled_s == 1020 + 5 - 0.5
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    play(scene)


def test_result_that_comes_after_the_cancellation_is_discarded() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=30)
        worker = worker_of(server)

        @worker.handler("test.work")
        async def stubborn(task: Task, context: AsyncContext) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "I finished all the same"
            return ""

        server.answers["/heartbeat"] = refusal("lease_lost")
        await server.time.run_until(asyncio.ensure_future(worker.run(signals=False, limit=1)).done)
        assert [body["phase"] for body in server.receipts()] == ["accepted"]

    play(scene)


def test_completion_is_repeated_under_one_key_until_it_is_acknowledged() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=900)
        worker = worker_of(server)

        @worker.handler("test.work")
        async def quick(task: Task, context: AsyncContext) -> str:
            server.down = True
            return "done"

        running = asyncio.ensure_future(worker.run(signals=False, limit=1))
        await server.time.run_until(lambda: len(server.receipts()) == 4)
        server.down = False
        await server.time.run_until(running.done)
        ends = [(at, body) for at, path, body in server.requests if path == "/receipts"][1:]
        assert [at - 1000 for at, _ in ends] == [0, 5, 15, 35]
        assert len({body["dedupe_key"] for _, body in ends}) == 1
        assert all(body["outcome_text"] == "done" for _, body in ends)

    play(scene)


def test_completion_that_is_never_acknowledged_is_given_up_in_the_end() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=900)
        worker = worker_of(server, patience_s=100)

        @worker.handler("test.work")
        async def quick(task: Task, context: AsyncContext) -> None:
            server.down = True

        running = asyncio.ensure_future(worker.run(signals=False, limit=1))
        await server.time.run_until(running.done)
        assert server.time.at_s <= 1100

    play(scene)


def test_progress_and_announced_silence_go_with_a_heartbeat_at_once() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=30)
        worker = worker_of(server)

        @worker.handler("test.work")
        async def telling(task: Task, context: AsyncContext) -> None:
            context.expect_silence(120)
            context.progress(10)
            context.progress(20, "a fifth")
            await asyncio.Event().wait()

        running = asyncio.ensure_future(worker.run(signals=False, limit=1))
        await server.time.run_until(lambda: server.paths().count("/lease/lease-1/heartbeat") == 2)
        beats = [(at, body) for at, path, body in server.requests if path.endswith("/heartbeat")]
        first = {"progress": 20, "message": "a fifth", "expect_silence_s": 120}
        assert beats == [(1000, first), (1010, {"expect_silence_s": 110})]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    play(scene)


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_stop_lets_the_handler_finish_and_the_second_stop_does_not() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=900)
        worker = worker_of(server)
        watch = watched(worker, server.time)
        running = asyncio.ensure_future(worker.run(signals=False))
        await server.time.run_until(lambda: watch.began_s is not None)
        worker.stop()
        await server.time.settle()
        assert not watch.ended
        worker.stop()
        await server.time.run_until(running.done)
        assert watch.cancelled_s == 1000
        assert server.paths()[-1] == "/lease/lease-1/release"

    play(scene)


def test_stop_cancels_and_releases_at_the_end_of_the_grace() -> None:
    async def scene() -> None:
        server = ManualServer(ManualTime(), lease_s=900)
        worker = worker_of(server, drain_s=12)
        watch = watched(worker, server.time)
        running = asyncio.ensure_future(worker.run(signals=False))
        await server.time.run_until(lambda: watch.began_s is not None)
        worker.stop()
        await server.time.run_until(running.done)
        assert watch.cancelled_s == 1012
        assert server.paths()[-1] == "/lease/lease-1/release"
        assert server.paths().count("/lease") == 2

    play(scene)
