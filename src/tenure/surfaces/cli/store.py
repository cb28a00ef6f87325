"""`tenure store ...`: moving a whole store between SQLite and PostgreSQL, and checking one."""

from __future__ import annotations

import sys

from tenure.core.errors import Refused, refuse
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, counted, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.store.store import Store
    from tenure.surfaces.cli.context import Context


def copy(context: Context) -> Result:
    """Copy a store into an empty one, count, and verify the ledger there."""
    from tenure.engine.receipts import verify
    from tenure.store import copying
    from tenure.store.store import StoreFault

    source = _opened(context, context.get("from"), create=False)
    try:
        target = _opened(context, context.get("to"), create=True)
        try:
            with _Bar() as bar:
                counts = copying.copy(source, target, bar.told)
            checked = must(verify(target))
            where, from_where = target.path, source.path
        except StoreFault as fault:
            raise Stop(fault.refusal) from fault
        finally:
            target.close()
    finally:
        source.close()
    if checked.faults:
        raise Stop(refuse("store_corrupt", f"The copied ledger does not verify: {checked.faults[0]}"))
    rows = [(name, str(count)) for name, count in counts.items() if count]
    lines = [f"Copied {from_where} to {where}", *table(rows, ("TABLE", "ROWS"))]
    lines.append(f"The ledger verifies: {counted(checked.receipts, 'receipt')} of {counted(checked.tasks, 'task')}.")
    data = {"from": from_where, "to": where, "rows": counts, "receipts": checked.receipts}
    return Result(data=data, lines=lines, next=[f"tenure up --store {where}"])


def check(context: Context) -> Result:
    """Check a store's tables and its ledger."""
    from tenure.engine.receipts import verify

    store = context.store
    faults = store.integrity_faults()
    checked = must(verify(store))
    faults += checked.faults
    data = {
        "store": store.path,
        "schema": store.schema_version(),
        "tasks": checked.tasks,
        "receipts": checked.receipts,
        "seals": checked.seals,
        "faults": faults,
    }
    lines = [f"{store.path}, schema {data['schema']}"]
    lines += faults or [f"Sound: {counted(checked.receipts, 'receipt')} in {counted(checked.seals, 'seal')} verified."]
    refusal = refuse("unhealthy", f"{counted(len(faults), 'fault')} found.", "Restore a backup.") if faults else None
    return Result(data=data, lines=lines, refusal=refusal)


def _opened(context: Context, location: str, *, create: bool) -> Store:
    from tenure.app import open_store

    opened = open_store(location, environ={}, start=context.folder, clock=context.clock, create=create)
    if isinstance(opened, Refused):
        raise Stop(opened)
    return opened


class _Bar:
    """A bar on a terminal; elsewhere silent."""

    def __enter__(self) -> _Bar:
        self._progress = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
            self._bars: dict[str, object] = {}
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    @property
    def told(self) -> Callable[[str, int, int], None]:
        return self._told

    def _told(self, name: str, done: int, total: int) -> None:
        if self._progress is None:
            return
        bar = self._bars.get(name)
        if bar is None:
            bar = self._bars[name] = self._progress.add_task(name, total=total)
        self._progress.update(bar, completed=done)  # type: ignore[arg-type]
