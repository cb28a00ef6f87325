"""`tenure worker`: any executable as a worker.

The program gets the task as JSON on standard input and tells its result on standard output: a JSON object of outcome
fields, or any text. Exit status 0 is success, any other failure, with the end of standard error as the reason. It runs
in a process group of its own, which is ended before the lease can lapse: asked first, then killed. On Linux it is also
killed when the worker itself dies; its own children are not, unless they are in their parent's hands.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, TYPE_CHECKING, Any

from tenure.core.errors import refuse
from tenure.core.receipts import LONG_TEXT_BYTES
from tenure.surfaces.cli.context import Stop
from tenure.surfaces.cli.output import Result
from tenure.surfaces.sdk.client import DEFAULT_URL
from tenure.surfaces.sdk.errors import Escalate, Failed, Refusal
from tenure.surfaces.sdk.tasks import Artifact, Outcome
from tenure.surfaces.sdk.worker import AsyncWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.surfaces.cli.context import Context
    from tenure.surfaces.sdk.tasks import AsyncContext, Task

# More than a receipt can hold, so that too much is refused and not cut in silence.
STDOUT_MAX = 4 * LONG_TEXT_BYTES
STDERR_TAIL = 4 * 1024
# How long the rest of the output of a program that has ended may take to arrive.
LAST_WORDS_S = 1.0
ESCALATION = ("escalation_class", "escalation_reason", "escalation_to")
FIELDS = frozenset(
    (
        "outcome_text",
        "artifact_location",
        "artifact_mime",
        "artifact_checksum",
        "artifact_size_bytes",
        "artifact_pointer",
        "message",
        "metadata",
        *ESCALATION,
    )
)


def work(context: Context) -> Result:
    """Work until told to stop."""
    command: list[str] = context.get("command")
    if shutil.which(command[0]) is None:
        message = f"{command[0]!a} cannot be run: there is no such executable."
        raise Stop(refuse("usage", message, "Name a program that can be run: tenure worker --kind KIND -- ./script.sh"))
    kinds = context.get("kind")
    if not kinds:
        message = "It is not clear which tasks this program does."
        raise Stop(refuse("usage", message, "Name their types: tenure worker --kind shell.run -- ./script.sh"))
    url = context.get("url") or context.environ.get("TENURE_URL") or DEFAULT_URL
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    # The transport tells of every request; the worker tells of every task.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        worker = AsyncWorker(
            context.get("type", "worker"),
            url=url,
            instance=context.get("instance"),
            capabilities=context.get("capability"),
            project=context.project_id,
            concurrency=context.get("concurrency", 1),
            drain_s=context.get("drain", 30),
        )
    except ValueError as error:
        raise Stop(refuse("usage", f"{error}.", "See: tenure worker --help")) from error
    worker.handler(*kinds)(program(command, url))
    print(f"Worker {worker.worker_id} does {', '.join(kinds)} for {url}", flush=True)
    try:
        asyncio.run(worker.run(limit=context.get("limit")))
    except Refusal as refusal:
        raise Stop(refuse("not_permitted", f"The server refuses this worker: {refusal}.", refusal.next)) from refusal
    return Result(data=None)


def program(command: Sequence[str], url: str) -> Callable[[Task, AsyncContext], Any]:
    """A handler that runs an executable."""

    async def run(task: Task, context: AsyncContext) -> Outcome:
        environment = {
            **os.environ,
            "TENURE_TASK": task.task_id,
            "TENURE_LEASE": task.lease_id,
            "TENURE_URL": url,
        }
        with tempfile.TemporaryFile() as given:
            # A file and not a pipe: a program need not read its task.
            given.write(task_json(task))
            given.seek(0)
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),
            )
        exited = _exit_of(process)
        out, err = Output(process.stdout, most=STDOUT_MAX), Output(process.stderr, last=STDERR_TAIL)
        reading = asyncio.gather(out.read(), err.read())
        try:
            # The program's end counts, not that of its output, which a child that it left behind would hold open.
            status = await asyncio.shield(exited)
            _signal_group(process.pid, signal.SIGKILL)
            await asyncio.wait({reading}, timeout=LAST_WORDS_S)
        except asyncio.CancelledError:
            if not exited.done():
                _signal_group(process.pid, signal.SIGTERM)
                await asyncio.wait({exited}, timeout=context.grace_s)
                _signal_group(process.pid, signal.SIGKILL)
                await exited
            raise
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if status != 0:
            raise Failed(_failure(command[0], status, bytes(err.kept)))
        return outcome_of(bytes(out.kept))

    return run


def outcome_of(out: bytes) -> Outcome:
    """Standard output as an outcome: an object of outcome fields, or else a text."""
    text = out.decode(errors="replace")
    try:
        told = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or not told or not told.keys() <= FIELDS:
        return Outcome(text=text.rstrip("\n"))
    if told.get("escalation_class"):
        escalation = [str(told.get(name) or "") for name in ESCALATION]
        raise Escalate(*escalation)
    location = str(told.get("artifact_location") or "")
    size, metadata = told.get("artifact_size_bytes"), told.get("metadata")
    artifact = Artifact(
        location=location,
        mime=str(told.get("artifact_mime") or ""),
        checksum=str(told.get("artifact_checksum") or ""),
        size_bytes=size if isinstance(size, int) else 0,
        pointer=str(told.get("artifact_pointer") or ""),
    )
    return Outcome(
        text=str(told.get("outcome_text") or ""),
        artifact=artifact if location else None,
        message=str(told.get("message") or ""),
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def task_json(task: Task) -> bytes:
    """The task as the program reads it: the offer's own names, and what the acceptance added."""
    told: dict[str, Any] = {
        "task_id": task.task_id,
        "task_type": task.task_type,
        "task_summary": task.summary,
        "task_body": task.body,
        "inputs": task.inputs,
        "attempt": task.attempt,
        "lease_id": task.lease_id,
        "worker_id": task.worker_id,
        "token": task.token,
        "project_id": task.project_id,
        "principal_ai": task.principal_ai,
        "payload_pointer": task.payload_pointer,
        "expected_outcome_kind": task.expected_outcome_kind,
        "expected_artifact_mime": task.expected_artifact_mime,
    }
    return json.dumps(told, ensure_ascii=False).encode() + b"\n"


class Output:
    """What is kept of a stream: its beginning (`most` bytes) or its end (`last`).

    It is read to its end in any case, so that whoever writes it never waits for us.
    """

    def __init__(self, pipe: IO[bytes] | None, *, most: int = 0, last: int = 0) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._most = most
        self._last = last
        self.kept = bytearray()

    async def read(self) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._pipe
        )
        try:
            while chunk := await reader.read(65_536):
                self.kept += chunk if self._last else chunk[: self._most - len(self.kept)]
                if self._last:
                    del self.kept[: -self._last]
        finally:
            transport.close()


def _exit_of(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """Done when the process has ended. The event loop's own way waits for the end of its output too."""
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[int] = loop.create_future()

    def tell(status: int) -> None:
        if not exited.done():
            exited.set_result(status)

    def wait() -> None:
        status = process.wait()
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, status)

    threading.Thread(target=wait, name=f"process {process.pid}", daemon=True).start()
    return exited


def _signal_group(group: int, number: signal.Signals) -> None:
    # The group's id is its first process's, and stays taken as long as one of the group is there.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _failure(name: str, status: int, err: bytes) -> str:
    ended = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"
    told = err.decode(errors="replace").strip()
    return f"{name} {ended}" + (f":\n{told}" if told else "")


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    """On Linux, let the kernel kill the program when its worker dies: nobody else could tell it that its lease ends."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    set_death_signal = 1

    def before_exec() -> None:
        prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            # The worker died before this was in force.
            os._exit(1)

    return before_exec
