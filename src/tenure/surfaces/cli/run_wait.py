"""Waiting for a task: a claimant that costs the store nothing until there is something for it.

It looks ten times a second whether anyone wrote (which reads no table), then reads whether something became ready, and
claims only then: a claim in vain would write, and wake everybody else who waits. Twice a second it looks whether a
linked process of this host is gone, so that a fleet without a server recovers too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tenure.core.errors import Refused
from tenure.engine import claims, recovery, waiting
from tenure.links.sweep import bury_the_dead

if TYPE_CHECKING:
    from typing import Any

    from tenure.store.store import Store, Transaction

LOOK_EVERY_S = 0.1
SWEEP_EVERY_S = 0.5


def claim_next(
    store: Store, wait_s: float, *, project_id: str, agent_id: str, **claimant: Any
) -> claims.Grant | Refused:
    """The best ready task, as soon as there is one, waiting at most this long."""
    until = time.monotonic() + wait_s
    while True:
        bury_the_dead(store)
        grant = claims.claim_next(store, project_id=project_id, agent_id=agent_id, **claimant)
        if not isinstance(grant, Refused) or grant.code != "nothing_ready" or time.monotonic() >= until:
            return grant
        _sleep(store, until, project_id, agent_id, claimant.get("capabilities"))


def _sleep(store: Store, until: float, project_id: str, agent_id: str, capabilities: list[str] | None) -> None:
    """Until there may be something to claim, or the time is over."""

    def promising(tx: Transaction) -> bool:
        prospect = waiting.prospect(tx, project_id, capabilities, 1)
        return bool(prospect.ready) or (prospect.kept and bool(waiting.kept_for(tx, project_id, [agent_id])))

    version, sweep_at, due_at = -1, time.monotonic() + SWEEP_EVERY_S, 0.0
    while (now := time.monotonic()) < until:
        if store.data_version() != version:
            version = store.data_version()
            if store.look(promising):
                return
            due = recovery.next_due(store)
            wait_ms = None if isinstance(due, Refused) else due.wait_ms
            due_at = float("inf") if wait_ms is None else now + wait_ms / 1000
        if now >= due_at:
            return
        if now >= sweep_at:
            if bury_the_dead(store):
                return
            sweep_at = now + SWEEP_EVERY_S
        time.sleep(min(LOOK_EVERY_S, max(0.0, min(until, due_at) - now)))
