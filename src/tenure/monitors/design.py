"""The design runner: does the reserved owner's tasks as they become ready, one at a time, in a loop of its own.

The built-in brief is one transaction. A program of the user's (`design.command`) is a process in a session of its own,
with the prompt on its input; what it prints is the document. While it runs the runner says so in the store every few
seconds, and ends it, with everything it started, when its time is over, when its task is taken away, or when the
server stops.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, TYPE_CHECKING

from tenure.core.handoff import inline
from tenure.core.inputs import CONTENT_MAX
from tenure.core.settings import SECRETS, command_words
from tenure.engine import design

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.store.store import Store

IDLE_S = 60.0
LOOK_EVERY_S = 0.1
PULSE_EVERY_S = 5.0
TERM_WAIT_S = 2.0
# A program that prints more than can be kept is ended, not read to its end.
OUTPUT_MAX = 4 * CONTENT_MAX
TAIL_BYTES = 2_000
# The server's own credentials are nothing for a program it starts.
WITHHELD = frozenset({"TENURE_TOKEN", *SECRETS.values()})

log = logging.getLogger("tenure.design")


class DesignRunner:
    """A monitor whose tick may last as long as the user's program does: give it a loop of its own."""

    name = "design"
    watches_writes = True

    def __init__(self, store: Store, environ: Mapping[str, str] | None = None) -> None:
        self._store = store
        given = os.environ if environ is None else environ
        self._environ = {name: value for name, value in given.items() if name not in WITHHELD}
        self._stopping = threading.Event()

    def tick(self) -> float:
        due = self._store.look(design.due)
        if due.wait_ms is None or self._stopping.is_set():
            return IDLE_S
        if due.wait_ms > 0:
            return min(IDLE_S, due.wait_ms / 1000)
        run = self._store.run(design.begin)
        if run is not None:
            self._carry_out(run)
        return 0.0

    def close(self) -> None:
        """End the program under way; its run is given back."""
        self._stopping.set()

    def _carry_out(self, run: design.Run) -> None:
        try:
            document = self._document(run)
        except _Failed as failed:
            error = str(failed)
            log.warning("the design program failed for %s: %s", run.task_id, error)
            self._store.run(lambda tx: design.fail(tx, run, error))
        except _Stopped:
            self._store.run(lambda tx: design.give_back(tx, run))
        except _Lost:
            log.info("the design of %s was taken away while its program ran", run.task_id)
        else:
            self._store.run(lambda tx: design.finish(tx, run, document))

    def _document(self, run: design.Run) -> str:
        """What the program prints, or why there is none."""
        words = command_words(run.design.command) or []
        environ = {**self._environ, "TENURE_TASK": run.task_id, "TENURE_PROJECT": run.project_id}
        # Files instead of pipes: a program that reads or prints at its own pace never waits for us, nor we for it.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
            given.write(run.prompt.encode("utf-8", "replace"))
            given.seek(0)
            try:
                program = subprocess.Popen(
                    words, stdin=given, stdout=printed, stderr=said, env=environ, start_new_session=True
                )
            except OSError as error:
                raise _Failed(f"{words[0] if words else ''} cannot be started: {error.strerror}") from error
            try:
                status = self._watch(run, program, printed)
            finally:
                _end(program)
            if status:
                raise _Failed(f"it ended with {_status_words(status)}{_tail(said)}")
            return _read(printed)

    def _watch(self, run: design.Run, program: subprocess.Popen[bytes], printed: IO[bytes]) -> int:
        """Wait for the end, saying every few seconds that the run goes on."""
        began = time.monotonic()
        pulsed = began
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return program.wait(LOOK_EVERY_S)
            now = time.monotonic()
            if self._stopping.is_set():
                raise _Stopped
            if now - began > run.design.timeout_s:
                raise _Failed(f"it did not end within {run.design.timeout_s} s")
            if os.fstat(printed.fileno()).st_size > OUTPUT_MAX:
                raise _Failed(f"it printed more than {OUTPUT_MAX:,} bytes")
            if now - pulsed > PULSE_EVERY_S:
                pulsed = now
                if not self._store.run(lambda tx: design.pulse(tx, run)):
                    raise _Lost


class _Failed(Exception):
    """The program did not write a document."""


class _Stopped(Exception):
    """The server stops."""


class _Lost(Exception):
    """The task is no longer this run's."""


def _end(program: subprocess.Popen[bytes]) -> None:
    """End the program and everything in its session; what has ended already is left alone."""
    for number, wait_s in ((signal.SIGTERM, TERM_WAIT_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, number)
        try:
            program.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGTERM and _left_behind(program.pid):
            continue
        return


def _left_behind(group: int) -> bool:
    """Whether a process of the group still lives."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _status_words(status: int) -> str:
    if status > 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


def _tail(said: IO[bytes]) -> str:
    """The end of what it said about its failure."""
    size = os.fstat(said.fileno()).st_size
    said.seek(max(0, size - TAIL_BYTES))
    lines = [line for line in said.read(TAIL_BYTES).decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {inline(' / '.join(lines[-3:]), 300)}" if lines else ""


def _read(printed: IO[bytes]) -> str:
    printed.seek(0)
    content = printed.read(CONTENT_MAX + 1)
    if len(content) > CONTENT_MAX:
        raise _Failed(f"its document is larger than {CONTENT_MAX:,} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Failed(f"its document is not UTF-8 (byte {error.start + 1})") from error
    if not text.strip():
        raise _Failed("it printed no document")
    if "\x00" in text:
        raise _Failed("its document contains NUL characters")
    return text
