"""The loop that every monitor shares.

A monitor is a name and a `tick()` that does what is due and says in how many seconds it wants to be called again. The
loop calls each when its time has come, or earlier when another process wrote to the store or somebody pokes it. A tick
that fails is noted and tried again; it never ends the loop. Tests call `tick()` themselves and need no loop.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from tenure.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# How often the loop looks whether another process has written. The look costs microseconds.
LOOK_EVERY_S = 0.1
RETRY_AFTER_S = 1.0

log = logging.getLogger("tenure.monitors")


class Monitor(Protocol):
    """Something to be done again and again."""

    name: str
    # Whether a write by another process is a reason to tick early.
    watches_writes: bool

    def tick(self) -> float:
        """Do what is due; return in how many seconds to be called again."""


class MonitorStatus(Record):
    """What can be seen of a monitor. Ages are in seconds, from the moment of asking."""

    name: str
    ticks: int
    failures: int
    last_tick_age_s: float | None
    next_wake_in_s: float | None
    last_error: str = ""


class _Schedule:
    """A monitor with its place in time."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.next_at = 0.0
        self.last_at: float | None = None
        self.ticks = 0
        self.failures = 0
        self.last_error = ""

    def tick(self) -> None:
        try:
            wait_s = self.monitor.tick()
            self.last_error = ""
        except Exception as error:
            # Whatever went wrong, the next tick may succeed; a monitor that stops is a fleet nobody recovers.
            log.exception("monitor %s failed; trying again in %s s", self.monitor.name, RETRY_AFTER_S)
            self.failures += 1
            self.last_error = f"{type(error).__name__}: {error}"
            wait_s = RETRY_AFTER_S
        self.ticks += 1
        self.last_at = time.monotonic()
        self.next_at = self.last_at + wait_s

    def status(self) -> MonitorStatus:
        now = time.monotonic()
        return MonitorStatus(
            name=self.monitor.name,
            ticks=self.ticks,
            failures=self.failures,
            last_tick_age_s=None if self.last_at is None else round(now - self.last_at, 3),
            next_wake_in_s=None if self.last_at is None else round(max(0.0, self.next_at - now), 3),
            last_error=self.last_error,
        )


class Loop:
    """Runs monitors in one thread of their own, from `start` to `stop`.

    `data_version` tells whether the store changed since it was last asked; it must belong to a connection that only
    this loop's thread uses.
    """

    def __init__(self, monitors: Sequence[Monitor], data_version: Callable[[], int] | None = None) -> None:
        self._schedules = [_Schedule(monitor) for monitor in monitors]
        self._data_version = data_version
        self._seen_version: int | None = None
        self._poked = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start once; a second call changes nothing, so that a first request may start it lazily."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="tenure-monitors", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the tick under way and end."""
        self._stopping.set()
        self._poked.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def poke(self) -> None:
        """Let every monitor that watches writes look now."""
        self._poked.set()

    def hint(self, project_id: str, card_id: str) -> None:
        """A board says that a card was touched. Only the loop of the boards listens."""

    def statuses(self) -> list[MonitorStatus]:
        """Last tick and next wake of each monitor."""
        return [schedule.status() for schedule in self._schedules]

    def _run(self) -> None:
        while not self._stopping.is_set():
            # Noted before the ticks, so that a write they could not see any more wakes the next ones.
            self._was_written()
            now = time.monotonic()
            for schedule in self._schedules:
                if schedule.next_at <= now and not self._stopping.is_set():
                    schedule.tick()
            self._wait()

    def _wait(self) -> None:
        """Sleep to the smallest next wake, looking every 100 ms whether someone wrote."""
        until = min((schedule.next_at for schedule in self._schedules), default=time.monotonic() + LOOK_EVERY_S)
        while not self._stopping.is_set():
            remaining = until - time.monotonic()
            if remaining <= 0:
                return
            if self._poked.wait(min(LOOK_EVERY_S, remaining)) or self._was_written():
                self._poked.clear()
                for schedule in self._schedules:
                    if schedule.monitor.watches_writes:
                        schedule.next_at = 0.0
                return

    def _was_written(self) -> bool:
        if self._data_version is None:
            return False
        try:
            version = self._data_version()
        except Exception:
            # An unreadable store is found by the next tick, which reports it.
            return False
        changed = version != self._seen_version
        self._seen_version = version
        return changed
