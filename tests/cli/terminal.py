"""A program on a terminal of its own, for tests: type, wait for a text with a deadline, resize, see how it ended."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

DEADLINE_S = 120.0


def read_until(descriptor: int, wanted: bytes, seen: bytes = b"", start: int = 0) -> bytes:
    """What was seen and everything read until the wanted text stands in it after the start; fails at the deadline."""
    give_up_at = time.monotonic() + DEADLINE_S
    while wanted not in seen[start:]:
        left = give_up_at - time.monotonic()
        assert left > 0, f"{wanted!r} did not come; what came: {seen[-4000:]!r}"
        if select.select([descriptor], [], [], left)[0]:
            try:
                more = os.read(descriptor, 65_536)
            except OSError:
                # Linux's way of saying that the last program on a terminal has gone.
                more = b""
            assert more, f"the program ended before {wanted!r}; what came: {seen[-4000:]!r}"
            seen += more
    return seen


class Terminal:
    """A program on a pseudo-terminal. `seen` is everything that was read of it so far."""

    def __init__(
        self, words: Sequence[str], folder: Path, environ: Mapping[str, str], columns: int = 80, lines: int = 24
    ) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(columns, lines)
        self.modes_before = self.modes()
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env={**environ, "TERM": "xterm-256color"},
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            preexec_fn=self._take_terminal,
        )
        self.seen = b""
        self._waited = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def _take_terminal(self) -> None:
        """Make it the controlling terminal, so that Ctrl-C typed there is a signal."""
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def wait_for(self, text: str) -> str:
        """What came since the last wait, up to and with this text."""
        begun = self._waited
        self.seen = read_until(self.ours, text.encode(), self.seen, begun)
        # What came with it may be what is waited for next: a slow reader gets much at once.
        self._waited = self.seen.index(text.encode(), begun) + len(text.encode())
        return self.seen[begun : self._waited].decode(errors="replace")

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.theirs)

    def ended(self) -> int:
        """The exit status, once it has ended; what it still wrote is in `seen`."""
        status = self.process.wait(DEADLINE_S)
        while select.select([self.ours], [], [], 0)[0]:
            self.seen += os.read(self.ours, 65_536)
        return status
