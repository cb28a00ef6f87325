"""Where the parts are wired together: which store, which monitors. Nothing else knows how they are made."""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse
from tenure.store.locate import store_location
from tenure.store.store import StoreFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.monitors.loop import Loop, Monitor
    from tenure.store.sqlite import SqliteStore
    from tenure.store.store import Clock


def open_store(
    location: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start: str | None = None,
    clock: Clock | None = None,
    create: bool = True,
    busy_timeout_s: float | None = None,
) -> SqliteStore | Refused:
    """Open the store a user means: the one named, else TENURE_STORE, else the repository's."""
    path = store_location(location, os.environ if environ is None else environ, start or os.getcwd())
    if path is None:
        message = "There is no store here: no repository, no .tenure folder, and TENURE_STORE is not set."
        return refuse("store_unavailable", message, "Name one with --store or TENURE_STORE, or run it in a repository.")
    if "://" in path:
        message = f"The store {path.partition('://')[0]}:// is not one this version can open."
        return refuse("store_unavailable", message, "Name the path of an SQLite file.", store=path)
    from tenure.store.sqlite import SqliteStore

    try:
        if busy_timeout_s is None:
            return SqliteStore(path, clock=clock, create=create)
        return SqliteStore(path, clock=clock, create=create, busy_timeout_s=busy_timeout_s)
    except StoreFault as fault:
        return fault.refusal


def monitors(store: SqliteStore, environ: Mapping[str, str] | None = None) -> Loop:
    """The monitors of a store, not started, on connections of their own."""
    from tenure.boards.monitor import BoardLoop
    from tenure.core.settings import SECRETS
    from tenure.gates.beside import LoopWithGate
    from tenure.gates.receiptgate import ReceiptGate
    from tenure.monitors.gridlock import GridlockMonitor
    from tenure.monitors.recovery import RecoveryMonitor
    from tenure.monitors.upkeep import Upkeep

    own, gates_own, boards_own = store.clone(), store.clone(), store.clone()
    environ = os.environ if environ is None else environ
    token = environ.get(SECRETS["receiptgate_token"], "").strip()
    gate = ReceiptGate(gates_own, token)
    watched: list[Monitor] = [RecoveryMonitor(own), Upkeep(own), GridlockMonitor(own)]
    loop = LoopWithGate(watched, own.data_version, gate, gates_own.data_version)
    loop.others = [BoardLoop(boards_own, environ.get(SECRETS["board_token"], "").strip())]
    loop.owned = [own, gates_own, boards_own]
    return loop
