"""`Worker` and `AsyncWorker`: handlers by task type, run under leases.

What is promised: a handler runs only while its lease is trusted and is told to stop before the lease can lapse; a
result is delivered until the server acknowledges it, and counts once; a worker carries on by itself when its server
goes away and comes back.

What is not: a handler can run more than once (after a crash, or when its lease was lost), so it should be safe to
repeat. A thread cannot be stopped from outside: a handler in a thread has to look at `context.cancelled`. A coroutine
that blocks the event loop blocks its own heartbeats.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.core.ids import ID_MAX, worker_id_is_valid
from tenure.surfaces.sdk.async_client import AsyncClient
from tenure.surfaces.sdk.backoff import ERROR_BACKOFF_S, NO_WORK_S, Backoff, Time
from tenure.surfaces.sdk.shift import ANY_TYPE, Shift, Terms
from tenure.surfaces.sdk.tasks import AsyncContext, Context, Result, Task

if TYPE_CHECKING:
    import httpx

    from tenure.surfaces.sdk.job import Job, Running, Start

Handler = Callable[[Task, Context], Result]
AsyncHandler = Callable[[Task, AsyncContext], Awaitable[Result]]
H = TypeVar("H", bound=Callable[..., Any])
WAIT_MAX_S = 300.0


class _Base:
    """What both workers share: who they are, where the server is, and their handlers."""

    def __init__(
        self,
        worker_type: str,
        *,
        url: str | None = None,
        token: str | None = None,
        instance: str | None = None,
        capabilities: Sequence[str] | None = None,
        project: str | None = None,
        profile: str | None = None,
        concurrency: int = 1,
        long_poll: bool = True,
        wait_s: float = 30.0,
        no_work_s: float = NO_WORK_S,
        drain_s: float = 30.0,
        margin_s: float | None = None,
        patience_s: float = 900.0,
        timeout_s: float = 10.0,
        backoff: Backoff | None = None,
        time: Time | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.worker_id = f"{worker_type}.{instance or default_instance()}"[:ID_MAX]
        if not worker_id_is_valid(self.worker_id):
            raise ValueError(f"{self.worker_id!r} is no worker id; it must match the pattern {{type}}.{{instance}}")
        if concurrency < 1:
            raise ValueError("concurrency must be 1 or more")
        if not 0 < wait_s <= WAIT_MAX_S:
            raise ValueError(f"wait_s must be above 0 and at most {WAIT_MAX_S:g}")
        self._terms = Terms(
            worker_id=self.worker_id,
            capabilities=capabilities,
            project=project,
            profile=profile,
            concurrency=concurrency,
            wait_s=wait_s if long_poll else 0.0,
            no_work_s=no_work_s,
            drain_s=drain_s,
            margin_s=margin_s,
            patience_s=patience_s,
            backoff=backoff or Backoff(ERROR_BACKOFF_S),
            time=time or Time(),
        )
        self._connection: dict[str, Any] = {
            "url": url,
            "token": token,
            "timeout_s": timeout_s,
            "transport": transport,
        }
        self._handlers: dict[str, Start] = {}
        self._shift: Shift | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_asked = False

    def _register(self, task_types: tuple[str, ...], function: Callable[..., Any], start: Start) -> None:
        for task_type in task_types or (ANY_TYPE,):
            if task_type in self._handlers:
                raise ValueError(f"there is a handler for {task_type!r} already")
            self._handlers[task_type] = start

    def stop(self) -> None:
        """Ask the worker to finish what it has and end; asked again, to stop at once. From any thread."""
        shift, loop = self._shift, self._loop
        if shift is None or loop is None:
            self._stop_asked = True
        elif not loop.is_closed():
            loop.call_soon_threadsafe(shift.stop)

    async def _work(self, limit: int | None, signals: bool) -> None:
        if not self._handlers:
            raise ValueError("a worker needs a handler: decorate a function with @worker.handler(task_type)")
        if self._shift is not None:
            raise RuntimeError("this worker is running already")
        async with AsyncClient(**self._connection) as client:
            self._loop = asyncio.get_running_loop()
            self._shift = shift = Shift(self._terms, client, self._handlers)
            if self._stop_asked:
                shift.stop()
            try:
                with _stopped_by_signals(self._loop, shift, signals):
                    await shift.run(limit)
            finally:
                self._shift, self._loop, self._stop_asked = None, None, False


class Worker(_Base):
    """A worker whose handlers are plain functions, each run in a thread of its own."""

    def handler(self, *task_types: str) -> Callable[[H], H]:
        """Register a function `(task, context)` for task types; without any, for every type."""

        def register(function: H) -> H:
            if inspect.iscoroutinefunction(function):
                raise TypeError("a coroutine function needs an AsyncWorker")
            self._register(task_types, function, _in_thread(_with_context(function)))
            return function

        return register

    def run(self, *, limit: int | None = None, signals: bool = True) -> None:
        """Work until SIGTERM, SIGINT or `stop`; with `limit`, until so many tasks were taken and ended.

        Signals are taken over in the main thread only, and given back at the end.
        """
        asyncio.run(self._work(limit, signals))


class AsyncWorker(_Base):
    """A worker whose handlers are coroutine functions, run on the caller's event loop."""

    def handler(self, *task_types: str) -> Callable[[H], H]:
        """Register a coroutine function `(task, context)` for task types; without any, for every type."""

        def register(function: H) -> H:
            if not inspect.iscoroutinefunction(function):
                raise TypeError("a plain function needs a Worker")
            self._register(task_types, function, _on_loop(_with_context(function)))
            return function

        return register

    async def run(self, *, limit: int | None = None, signals: bool = True) -> None:
        """Work until SIGTERM, SIGINT or `stop`; with `limit`, until so many tasks were taken and ended."""
        await self._work(limit, signals)


def default_instance() -> str:
    """This host and process, in the characters that an id may have."""
    host = re.sub(r"[^A-Za-z0-9._+@-]|\.\.+", "-", socket.gethostname())[:80].strip(".-")
    return f"{host or 'host'}-{os.getpid()}"


def _with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Handlers that have no use for a context need not take one."""
    parameters = inspect.signature(function).parameters.values()
    several = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if several or len(places) >= 2:
        return function
    return lambda task, context: function(task)


class _Thread:
    """A handler in a thread. The thread is a daemon: one that ignores its cancellation must not keep the process."""

    def __init__(self, handler: Handler, task: Task, job: Job) -> None:
        self.context = Context(job.report, job.announce, job.grace_s)
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self._loop.create_future()
        threading.Thread(target=self._body, args=(handler, task), name=f"task {task.task_id}", daemon=True).start()

    def _body(self, handler: Handler, task: Task) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = handler(task, self.context)
        except StopIteration as stop:
            # A future cannot carry this one.
            error = RuntimeError(f"the handler raised {stop!r}")
        except BaseException as raised:
            error = raised
        # A thread that outlives its worker finds the loop closed, and has nobody to tell.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, result, error)

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(result)
        else:
            self.done.set_exception(error)

    def cancel(self) -> None:
        self.context.cancelled.set()


class _Coroutine:
    """A handler on the event loop."""

    def __init__(self, handler: AsyncHandler, task: Task, job: Job) -> None:
        self.context = AsyncContext(job.report, job.announce, job.grace_s)
        self.done: asyncio.Future[Any] = asyncio.ensure_future(handler(task, self.context))

    def cancel(self) -> None:
        self.context.cancelled.set()
        self.done.cancel()


def _in_thread(handler: Handler) -> Start:
    def start(task: Task, job: Job) -> Running:
        return _Thread(handler, task, job)

    return start


def _on_loop(handler: AsyncHandler) -> Start:
    def start(task: Task, job: Job) -> Running:
        return _Coroutine(handler, task, job)

    return start


@contextmanager
def _stopped_by_signals(loop: asyncio.AbstractEventLoop, shift: Shift, wanted: bool) -> Iterator[None]:
    """SIGTERM and SIGINT stop the shift, where a signal can be had: in the main thread."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, shift.stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
