"""The recovery monitor: wakes at the smallest timer and does what is due.

An idle tick reads one row of the timer index, whatever the number of leases, and takes no lock. When many leases fall
due at once it recovers a bounded number per transaction and pauses in between, so that live holders get through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.errors import Refused
from tenure.engine import recovery
from tenure.engine.projects import show_settings

if TYPE_CHECKING:
    from tenure.store.store import Store

BATCH = recovery.TIMERS_AT_ONCE
# Between two batches: 32 per 0.1 s is a rate of 320 recoveries a second.
PAUSE_S = 0.1


class RecoveryMonitor:
    """Runs `recovery.advance` when the timer index says so."""

    name = "recovery"
    watches_writes = True

    def __init__(self, store: Store) -> None:
        self._store = store
        self.recovered = 0

    def tick(self) -> float:
        due = recovery.next_due(self._store)
        if isinstance(due, Refused):
            raise MonitorFailure(due)
        if due.wait_ms is None or due.wait_ms > 0:
            return self._sleep_s(due.wait_ms)
        done = recovery.advance(self._store, limit=BATCH)
        if isinstance(done, Refused):
            raise MonitorFailure(done)
        self.recovered += done.recovered
        return PAUSE_S if done.fired == BATCH else self._sleep_s(done.wait_ms)

    def _sleep_s(self, wait_ms: int | None) -> float:
        """To the next instant of interest, but never longer than check_interval."""
        settings = show_settings(self._store)
        most_s = 60.0 if isinstance(settings, Refused) else float(settings.check_interval_s)
        return most_s if wait_ms is None else min(most_s, max(0.0, wait_ms / 1000))


class MonitorFailure(Exception):
    """The store refused a monitor's verb."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(f"{refusal.code}: {refusal.message}")
