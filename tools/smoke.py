"""Start `make run` as a user would, ask the server how it is, and stop it: for CI."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import urllib.request

DEADLINE_S = 60


def main() -> int:
    """Exit 0 when the server came up, answered and stopped cleanly."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["make", "--no-print-directory", "run", f"ARGS=--port 0 --store {folder}/tenure.db"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            url = listening(process)
            with urllib.request.urlopen(f"{url}/health", timeout=DEADLINE_S) as answer:
                print(f"{url}/health answers {answer.status}: {answer.read(60)!r}...")
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(DEADLINE_S)
    return 0


def listening(process: subprocess.Popen[str]) -> str:
    """The address that the server prints when it is ready."""
    assert process.stdout is not None
    while select.select([process.stdout], [], [], DEADLINE_S)[0]:
        line = process.stdout.readline()
        if not line:
            break
        print(line, end="")
        if line.startswith("Tenure listens at "):
            return line.split()[3].rstrip(",")
    raise SystemExit("the server did not say where it listens")


if __name__ == "__main__":
    sys.exit(main())
