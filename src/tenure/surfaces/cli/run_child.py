"""The program that `tenure run` runs, and the conversation with it: what it prints, how it is stopped, how it ends.

Without a terminal it writes into pipes, which are copied on as they are. On a terminal it gets one of its own
(run_terminal.py). Either way the copy keeps the end of the output.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tenure.core.record import Record
from tenure.links.watch import exit_descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tenure.surfaces.cli.run_output import Tail

# Without a descriptor that tells of the exit, how often to ask for it.
ASK_EVERY_S = 0.05
# How long the rest of the output of a program that has ended may take to arrive.
LAST_OUTPUT_S = 0.5
CHUNK = 65_536


class Ending(Record):
    """How a program ended: by itself with a status, by a signal, or unseen (both None)."""

    status: int | None = None
    signal: int | None = None

    @property
    def code(self) -> int:
        """The exit status as a shell would tell it."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.status is None else self.status

    @property
    def words(self) -> str:
        """The ending as the second half of a sentence."""
        if self.signal is not None:
            return f"was ended by {signal_name(self.signal)}"
        return "is gone" if self.status is None else f"exited with {self.status}"


def signal_name(number: int) -> str:
    """SIGTERM for 15."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Signals:
    """The signals that came since the last look; while in force, none of them ends this process."""

    NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, signal.SIGCHLD)

    def __init__(self) -> None:
        self._came: list[int] = []
        self.wake_in, self._wake_out = os.pipe()
        for descriptor in (self.wake_in, self._wake_out):
            os.set_blocking(descriptor, False)

    def __enter__(self) -> Signals:
        self._before = {
            number: signal.signal(number, lambda came, _: self._came.append(came)) for number in self.NUMBERS
        }
        self._wakeup_before = signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.wake_in)
        os.close(self._wake_out)

    def wake(self) -> None:
        """Let the conversation look up, from another thread."""
        with contextlib.suppress(OSError):
            os.write(self._wake_out, b"\0")

    def take(self) -> list[int]:
        """What came since this was last asked."""
        came, self._came = self._came, []
        return came


class Child:
    """A running program. `attend` is called again and again until it says how the program ended."""

    pid: int
    # Whether it has a process group of its own, which the keyboard's signals to ours do not reach.
    apart = True

    def __init__(self, signals: Signals, tail: Tail) -> None:
        self._selector = selectors.DefaultSelector()
        self._tail = tail
        self._wake = signals.wake_in
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)

    def release(self) -> None:
        """Let the program begin; what begins by itself needs nothing."""

    def attend(self, timeout_s: float) -> Ending | None:
        """Copy what there is to copy, wait at most this long for more; the ending once there is one."""
        for key, mask in self._selector.select(timeout_s):
            act: Callable[[int], None] = key.data
            if key.fileobj in self._selector.get_map():
                act(mask)
        return self._ending()

    def resized(self) -> None:
        """Our terminal has another size now."""

    def signal(self, number: int) -> None:
        """Send it a signal, with all that it started in its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.apart:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def say(self, text: str) -> None:
        """A line of our own, where the user looks."""
        with contextlib.suppress(OSError, ValueError):
            print(f"tenure: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self._selector.close()

    def _ending(self) -> Ending | None:
        raise NotImplementedError

    def _woken(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _drain(self, sources: Callable[[], bool]) -> None:
        """Copy the rest of the output; a grandchild that holds it open is not waited for."""
        until = time.monotonic() + LAST_OUTPUT_S
        while sources() and (left_s := until - time.monotonic()) > 0:
            if not self._selector.select(min(left_s, ASK_EVERY_S)):
                return
            self.attend_output()

    def attend_output(self) -> None:
        """Copy what can be read now."""
        for key, mask in self._selector.select(0):
            if key.fileobj in self._selector.get_map():
                key.data(mask)


class Piped(Child):
    """A program without a terminal: its standard output and error are copied to ours, its input is ours."""

    def __init__(
        self,
        command: Sequence[str],
        signals: Signals,
        tail: Tail,
        *,
        folder: str,
        environ: Mapping[str, str],
        stdout: int = 1,
    ) -> None:
        super().__init__(signals, tail)
        # With a terminal on its input it must stay in our group, or reading the keyboard would stop it.
        self.apart = not os.isatty(0)
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environ,
            start_new_session=self.apart,
            preexec_fn=_hang_up_with(os.getpid()),
            bufsize=0,
        )
        self.pid = self._process.pid
        self._open = 0
        for pipe, target in ((self._process.stdout, stdout), (self._process.stderr, 2)):
            assert pipe is not None
            self._open += 1
            self._selector.register(pipe, selectors.EVENT_READ, self._copier(pipe, target))
        self._exit = exit_descriptor(self.pid)
        if self._exit is not None:
            self._selector.register(self._exit, selectors.EVENT_READ, self._exited)

    def attend(self, timeout_s: float) -> Ending | None:
        return super().attend(timeout_s if self._exit is not None else min(timeout_s, ASK_EVERY_S))

    def close(self) -> None:
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._exit is not None:
            os.close(self._exit)
        super().close()

    def _copier(self, pipe: Any, target: int) -> Callable[[int], None]:
        def copy(_: int) -> None:
            data = os.read(pipe.fileno(), CHUNK)
            self._tail.add(data)
            # A reader of ours that is gone is a reader of the program that is gone: it is told by its next write.
            if not data or not write_all(target, data):
                self._selector.unregister(pipe)
                pipe.close()
                self._open -= 1

        return copy

    def _exited(self, _: int) -> None:
        assert self._exit is not None
        self._selector.unregister(self._exit)

    def _ending(self) -> Ending | None:
        status = self._process.poll()
        if status is None:
            return None
        self._drain(lambda: self._open > 0)
        return Ending(signal=-status) if status < 0 else Ending(status=status)


def write_all(descriptor: int, data: bytes) -> bool:
    """Write everything; False when nobody takes it any more."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return False
    return True


def _hang_up_with(parent: int) -> Callable[[], None] | None:
    """On Linux: when this wrapper is killed, the program hears what it would hear from a closed terminal."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    set_death_signal = 1

    def before_exec() -> None:
        prctl(set_death_signal, signal.SIGHUP)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec
