"""Holding the link while a program runs: pulses, and how far the lease can be trusted.

A thread with a connection of its own, so that a busy store never holds up the program's terminal. It pulses every five
seconds and asks how the leases stand. What it learns is valid until the lease's deadline as it was then known, counted
from before the question was asked; whoever runs the program stops it before that, not after.

A pulse is no sign of work. While the user vouches for the command with a time limit, the keeper also touches, and
announces no more silence than until it should touch again: whoever kills both keeper and program leaves no promise
behind that outlives them by more than that.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tenure.core.deadline import PULSE_EVERY_MS
from tenure.core.errors import Refused
from tenure.core.record import Record
from tenure.engine.agents import link_up, pulse
from tenure.engine.links import standing
from tenure.engine.liveness import renew
from tenure.engine.touch import touch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenure.core.model import Lease
    from tenure.engine.links import Standing
    from tenure.links.identity import ProcessIdentity
    from tenure.store.store import Store

PULSE_EVERY_S = PULSE_EVERY_MS / 1000
RETRY_EVERY_S = 1.0
# How long before the lease lapses the program is asked to end.
MARGIN_S = 5.0
VOUCH_EVERY_S = 10.0
VOUCHED_SILENCE_S = 60


class Run(Record):
    """Who runs: one run of an agent, and the lease it was started under, if any."""

    agent_id: str
    incarnation: int
    lease: Lease | None = None


class Keeper:
    """Keeps one link, from `start` to `stop`."""

    def __init__(
        self,
        store: Store,
        run: Run,
        process: ProcessIdentity | None,
        on_change: Callable[[], None],
        *,
        vouch_s: float = 0.0,
    ) -> None:
        self._store = store.clone()
        self._run = run
        self._process = process
        self._on_change = on_change
        self._vouch_until = time.monotonic() + vouch_s
        self._next_vouch = 0.0 if vouch_s else float("inf")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.link_id: str | None = None
        # Our own touches, which are not the program's.
        self.vouched = 0
        # Why the program should not go on, once there is a reason.
        self.lost = ""
        # Until when, by the monotonic clock, the lease is known to be held; None while nothing is at stake.
        self.trusted_until: float | None = None

    def start(self) -> None:
        """Link, and go on pulsing in the background. Linking that fails is tried again there."""
        self._pulse()
        self._thread = threading.Thread(target=self._go_on, name="tenure-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Pulse no more. The link itself is ended by whoever knows how the program ended."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._store.close()

    def _go_on(self) -> None:
        wait_s = PULSE_EVERY_S
        while not self._stopping.wait(wait_s):
            told = self.lost
            wait_s = PULSE_EVERY_S if self._pulse() else RETRY_EVERY_S
            if self.lost != told:
                self._on_change()

    def _pulse(self) -> bool:
        """One pulse and one look; False when the store could not be reached."""
        self._reach()
        began = time.monotonic()
        seen = standing(
            self._store,
            agent_id=self._run.agent_id,
            incarnation=self._run.incarnation,
            lease_id=self._run.lease.lease_id if self._run.lease else None,
        )
        if isinstance(seen, Refused):
            if seen.code == "superseded":
                self.lost = seen.message.removesuffix(".")
            return seen.code == "superseded"
        self._judge(seen, began)
        return self.link_id is not None

    def _reach(self) -> None:
        """Pulse, or link if there is no link; vouch if it is time to."""
        who: dict[str, Any] = {"agent_id": self._run.agent_id, "incarnation": self._run.incarnation}
        if self.link_id is not None:
            answer = pulse(self._store, link_id=self.link_id)
            if isinstance(answer, Refused) and answer.code == "link_not_found":
                self.link_id = None
        if self.link_id is None:
            answer = link_up(self._store, kind="run", **who, **_named(self._process))
            self.link_id = None if isinstance(answer, Refused) else answer.link_id
        now = time.monotonic()
        if self._next_vouch <= now < self._vouch_until:
            self._next_vouch = now + VOUCH_EVERY_S
            self.vouched += vouch(self._store, self._run.agent_id, self._run.incarnation)

    def _judge(self, seen: Standing, began: float) -> None:
        """Whether the run still holds what it was started for, and for how long that is certain."""
        ours = self._run.lease
        if ours is None:
            return
        held = next((lease for lease in seen.leases if lease.task_key == ours.task_key), None)
        if held is not None:
            left_s = (held.recover_at_ms - self._store.answered_at_ms) / 1000
            self.trusted_until = began + left_s - MARGIN_S
        elif seen.lease is not None and seen.lease.state in ("released", "completed"):
            # The program itself gave it back or finished it; what it does now is its own affair.
            self.trusted_until = None
        else:
            reason = seen.lease.end_reason if seen.lease is not None else ""
            self.lost = f"the lease on {ours.task_id} was lost ({reason or 'lease_expired'})"


def vouch(store: Store, agent_id: str, incarnation: int | None) -> int:
    """A touch for the agent, and a heartbeat for leases that only those extend; 1 if it counted as a call."""
    touched = touch(store, agent_id=agent_id, incarnation=incarnation, expect_silence_s=VOUCHED_SILENCE_S)
    if isinstance(touched, Refused):
        return 0
    for lease in touched.leases:
        if not lease.touch_extends:
            renew(store, agent_id=agent_id, lease_id=lease.lease_id, expect_silence_s=VOUCHED_SILENCE_S)
    return 1


def _named(process: ProcessIdentity | None) -> dict[str, Any]:
    """The process as `link_up` takes it; nothing where it cannot be told apart."""
    if process is None:
        return {}
    return {
        "boot_id": process.boot_id,
        "pid_ns": process.pid_namespace,
        "pid": process.pid,
        "start_ticks": process.start_ticks,
    }
