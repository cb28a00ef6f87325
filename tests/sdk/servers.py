"""A real server process for tests: started, killed, restarted at the same address, always ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# A bound, not an expectation: a machine that runs much else is slow.
DEADLINE_S = 120.0
TENURE = Path(sys.executable).with_name("tenure")


class ServerProcess:
    """`tenure up` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "tenure.db"
        self.port = 0
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start, at the same port as before if there was one; returns when it listens."""
        command = [str(TENURE), "up", "--port", str(self.port), "--store", str(self.store)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TERM": "dumb"})
        assert self.process.stdout is not None
        ready = select.select([self.process.stdout], [], [], DEADLINE_S)[0]
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("Tenure listens at "), f"the server did not start: {line!r}"
        self.url = line.split()[3].rstrip(",")
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self._gone()

    def end(self) -> None:
        """Stop it in good order, or else by force."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._gone()

    def _gone(self) -> None:
        if self.process is not None:
            self.process.wait(DEADLINE_S)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


def eventually(look: Callable[[], T | None], what: str) -> T:
    """The first answer that is something; looks until the deadline."""
    give_up_at = time.monotonic() + DEADLINE_S
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up_at, f"waited in vain for {what}"
        time.sleep(0.01)
