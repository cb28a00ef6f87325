"""The rescuer: looks at the worktrees of lost holders on this machine, and attaches what git shows to their handoffs.

It has a loop of its own, because git may take seconds on a large repository, and recovery must not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.errors import Refused
from tenure.monitors.recovery import MonitorFailure
from tenure.worktree.attach import attach_waiting

if TYPE_CHECKING:
    from tenure.store.store import Store

EVERY_S = 60.0
AT_ONCE = 8
# A holder that is refused again and again is looked at no more often than the engine allows: look again then.
SOON_S = 5.0


class Rescuer:
    """Looks when something was written that may have lost a holder."""

    name = "rescuer"
    watches_writes = True

    def __init__(self, store: Store, host: str | None = None) -> None:
        self._store = store
        self._host = host
        self._closing = False
        self.looked = 0

    def tick(self) -> float:
        before = self.looked
        # One at a time, so that a server that stops waits for one look at most.
        while not self._closing and self.looked < before + AT_ONCE:
            done = attach_waiting(self._store, host=self._host, limit=1, patient=True)
            if isinstance(done, Refused):
                raise MonitorFailure(done)
            if not done:
                return SOON_S if self.looked > before else EVERY_S
            self.looked += done
        return 0.0

    def close(self) -> None:
        """End the tick under way after the look that it is at."""
        self._closing = True
