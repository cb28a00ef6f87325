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
import sys
from typing import TYPE_CHECKING, Any

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
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.ensure_future(_feed(process.stdin, task))
        reading = asyncio.gather(_head(process.stdout, STDOUT_MAX), _tail(process.stderr, STDERR_TAIL))
        try:
            # The program's end counts, not that of its output, which a child it left behind may hold open.
            status = await process.wait()
            _end_group(process.pid, signal.SIGKILL)
            out, err = await reading
        except asyncio.CancelledError:
            await _end(process, context.grace_s)
            raise
        finally:
            _end_group(process.pid, signal.SIGKILL)
            feeding.cancel()
            reading.cancel()
            await asyncio.gather(feeding, reading, return_exceptions=True)
        if status != 0:
            raise Failed(_failure(command[0], status, err))
        return outcome_of(out)

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


async def _feed(stdin: asyncio.StreamWriter, task: Task) -> None:
    # A program need not read its task.
    with contextlib.suppress(ConnectionError):
        stdin.write(task_json(task))
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _head(stream: asyncio.StreamReader, limit: int) -> bytes:
    """The beginning of a stream that is read to its end, so that whoever writes it never waits for us."""
    kept = bytearray()
    while chunk := await stream.read(65_536):
        kept += chunk[: max(0, limit - len(kept))]
    return bytes(kept)


async def _tail(stream: asyncio.StreamReader, limit: int) -> bytes:
    """The end of a stream."""
    kept = b""
    while chunk := await stream.read(65_536):
        kept = (kept + chunk)[-limit:]
    return kept


async def _end(process: asyncio.subprocess.Process, grace_s: float) -> None:
    """Ask the group to end; whatever is left of it after the grace is killed by the caller."""
    _end_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await process.wait()


def _end_group(group: int, number: signal.Signals) -> None:
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
