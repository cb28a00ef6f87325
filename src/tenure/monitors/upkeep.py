"""Upkeep: seals the ledger's new receipts into a checkpoint, and forgets events and keys past their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.errors import Refused
from tenure.engine.observe import prune
from tenure.engine.receipts import SEAL_AT_MOST, seal
from tenure.monitors.recovery import MonitorFailure

if TYPE_CHECKING:
    from tenure.store.store import Store

EVERY_S = 60.0
PRUNE_AT_ONCE = 1_000


class Upkeep:
    """A bounded amount of each per tick; sooner again while there is more."""

    name = "upkeep"
    watches_writes = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def tick(self) -> float:
        sealed = seal(self._store)
        if isinstance(sealed, Refused):
            raise MonitorFailure(sealed)
        pruned = prune(self._store, limit=PRUNE_AT_ONCE)
        if isinstance(pruned, Refused):
            raise MonitorFailure(pruned)
        more = sealed.receipts == SEAL_AT_MOST or max(pruned.events, pruned.idempotency_keys) == PRUNE_AT_ONCE
        return 1.0 if more else EVERY_S
