"""Real processes for the tests of links, and the links to them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

from tenure.core.model import Link
from tenure.engine import agents
from tenure.links.identity import of_process
from tenure.store.sqlite import SqliteStore
from tests.support import ok

DEADLINE_S = 120.0


def sleeper() -> subprocess.Popen[bytes]:
    """A process that does nothing for long enough."""
    return subprocess.Popen(["sleep", "600"])


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill and reap it."""
    process.kill()
    process.wait()


def link_to(store: SqliteStore, agent_id: str, pid: int, *, kind: str = "run", incarnation: int = 1) -> Link:
    """A link of an agent to a process of this host."""
    found = of_process(pid)
    assert found is not None
    return ok(
        agents.link_up(
            store,
            agent_id=agent_id,
            incarnation=incarnation,
            kind=kind,
            boot_id=found.boot_id,
            pid_ns=found.pid_namespace,
            pid=found.pid,
            start_ticks=found.start_ticks,
        )
    )


def until(true: Callable[[], Any], what: str) -> None:
    """Wait until that is true; fails at the deadline."""
    give_up_at = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < give_up_at, f"never: {what}"
        time.sleep(0.01)
