"""Where the parts are wired together: which store, which monitors. Nothing else knows how they are made."""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse
from tenure.core.record import Record
from tenure.store.locate import is_address, store_location
from tenure.store.store import StoreFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tenure.boards.sync import Swept
    from tenure.monitors.loop import Loop, Monitor
    from tenure.store.postgres_runner import PostgresRunner
    from tenure.store.runner import Runner
    from tenure.store.store import Clock, Store

# More than this falls due at once only after an outage; the monitors take back the rest.
DUE_AT_ONCE = 1_000


def open_store(
    location: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start: str | None = None,
    clock: Clock | None = None,
    create: bool = True,
    busy_timeout_s: float | None = None,
) -> Store | Refused:
    """Open the store a user means: the one named, else TENURE_STORE, else the repository's."""
    path = store_location(location, os.environ if environ is None else environ, start or os.getcwd())
    if path is None:
        message = "There is no store here: no repository, no .tenure folder, and TENURE_STORE is not set."
        return refuse("store_unavailable", message, "Name one with --store or TENURE_STORE, or run it in a repository.")
    patience: dict[str, Any] = {} if busy_timeout_s is None else {"busy_timeout_s": busy_timeout_s}
    try:
        if is_address(path):
            return _remote(path, clock=clock, create=create, **patience)
        from tenure.store.sqlite import SqliteStore

        return SqliteStore(path, clock=clock, create=create, **patience)
    except StoreFault as fault:
        return fault.refusal


def _remote(address: str, **options: Any) -> Store | Refused:
    """A store that is reached over a network."""
    scheme, slashes, rest = address.partition("://")
    if not slashes:
        message = "An address begins with postgresql://, with two slashes."
        return refuse("store_unavailable", message, "Name the path of an SQLite file, or postgresql://…")
    if scheme.lower() not in ("postgresql", "postgres"):
        message = f"The store {scheme}:// is not one this version can open."
        return refuse("store_unavailable", message, "Name the path of an SQLite file, or postgresql://…", store=scheme)
    try:
        from tenure.store.postgres import PostgresStore
    except ImportError:
        message = "A store on PostgreSQL needs the package psycopg, which is not installed."
        return refuse("store_unavailable", message, "Install it: pip install 'tenure[postgres]'.")
    return PostgresStore(f"{scheme.lower()}://{rest}", **options)


def runner(store: Store, **options: Any) -> Runner | PostgresRunner:
    """How a server runs many verbs at once on this kind of store."""
    from tenure.store.sqlite import SqliteStore

    if isinstance(store, SqliteStore):
        from tenure.store.runner import Runner

        return Runner(store, **options)
    from tenure.store.postgres import PostgresStore
    from tenure.store.postgres_runner import PostgresRunner

    assert isinstance(store, PostgresStore)
    return PostgresRunner(store, **options)


class Reconciled(Record):
    """What a reconciliation did: tasks taken back from dead holders, and each external board's counts by project."""

    recovered: int
    boards: Mapping[str, Swept]


def reconcile(
    store: Store, project_id: str | None = None, environ: Mapping[str, str] | None = None, *, believe: bool = False
) -> Reconciled | Refused:
    """`force_reconciliation`, of one project or of all, on a connection of its own.

    Every board is tried; the answer is a refusal if one of them could not be brought into step. What was done stands.
    """
    from tenure.boards.kinds import open_board
    from tenure.boards.port import BoardDown, BoardFault
    from tenure.boards.sync import Sync
    from tenure.core import inputs
    from tenure.core.settings import SECRETS
    from tenure.engine import boards, load, recovery

    known = inputs.optional(inputs.ident)("project_id", project_id)
    if isinstance(known, Refused):
        return known
    token = (os.environ if environ is None else environ).get(SECRETS["board_token"], "").strip()
    own = store.clone()
    try:
        refused = own.look(lambda tx: load.unknown_project(tx, project_id))
        done = refused or recovery.advance(own, limit=DUE_AT_ONCE)
        if isinstance(done, Refused):
            return done
        swept, failed = {}, {}
        for board in own.look(lambda tx: boards.connected(tx, project_id)):
            api = open_board(board, token)
            try:
                swept[board.project_id] = Sync(own, board.project_id, api).reconcile(believe=believe)
            except (BoardDown, BoardFault) as error:
                failed[board.project_id] = str(error)
            finally:
                api.close()
    except StoreFault as fault:
        return fault.refusal
    finally:
        own.close()
    if failed:
        told = "; ".join(f"{project}: {error}" for project, error in failed.items())
        return refuse("board_unavailable", f"The board of {told}.", projects=sorted(failed), recovered=done.recovered)
    return Reconciled(recovered=done.recovered, boards=swept)


def monitors(store: Store, environ: Mapping[str, str] | None = None) -> Loop:
    """The monitors of a store, not started, on connections of their own."""
    from tenure.boards.monitor import BoardLoop
    from tenure.core.settings import SECRETS
    from tenure.gates.beside import LoopWithGate
    from tenure.gates.receiptgate import ReceiptGate
    from tenure.monitors.design import DesignRunner
    from tenure.monitors.gridlock import GridlockMonitor
    from tenure.monitors.links import LinksMonitor
    from tenure.monitors.recovery import RecoveryMonitor
    from tenure.monitors.rescuer import Rescuer
    from tenure.monitors.upkeep import Upkeep

    own, gates_own, designs_own, rescuers_own, boards_own = (store.clone() for _ in range(5))
    environ = os.environ if environ is None else environ
    gate = ReceiptGate(gates_own, environ.get(SECRETS["receiptgate_token"], "").strip())
    # A process that exits wakes the loop, which is made around the monitor that watches for it.
    links = LinksMonitor(own, lambda: loop.poke())
    shared: list[Monitor] = [RecoveryMonitor(own), links, Upkeep(own), GridlockMonitor(own)]
    loop = LoopWithGate(shared, own.data_version, gate, gates_own.data_version)
    designer = DesignRunner(designs_own, environ)
    loop.also(designer, designs_own.data_version, designer.close)
    rescuer = Rescuer(rescuers_own)
    loop.also(rescuer, rescuers_own.data_version, rescuer.close)
    loop.beside(BoardLoop(boards_own, environ.get(SECRETS["board_token"], "").strip()))
    loop.owned = [links, own, gates_own, designs_own, rescuers_own, boards_own]
    return loop
