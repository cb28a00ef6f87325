"""How the work goes: what was finished and what was lost in the last hours, what waits, and what waits for a person.

The past is counted from the newest events, so it reaches back as far as they do: `since_ms` says from when on.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.model import DEFAULT_PROJECT, Task
from tenure.core.record import Record
from tenure.engine import observe, outbox
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.core.gridlock import Gridlock
    from tenure.engine.observe import Statistics, TaskView
    from tenure.engine.outbox import GateView
    from tenure.store.store import Transaction

# Events looked at, ready tasks whose age is looked at, dead letters shown.
EVENTS_MAX, READY_MAX, DEAD_MAX = 50_000, 5_000, 200
COUNTED = ("completed", "recovered", "returned", "granted", "failed")


class Slice(Record):
    """What happened in one slice of time."""

    at_ms: int
    completed: int = 0
    recovered: int = 0
    returned: int = 0
    granted: int = 0
    failed: int = 0


class Waiting(Record):
    """A task that could be claimed, and since when."""

    task_id: str
    title: str
    since_ms: int


class Pace(Record):
    """The numbers of a project's operation."""

    slices: tuple[Slice, ...]
    slice_ms: int
    since_ms: int
    numbers: Statistics
    # Tasks that could be claimed now, counted up to a bound, and the one that has waited longest.
    ready: int
    oldest: Waiting | None
    gridlock: Gridlock
    gates: tuple[GateView, ...]
    dead: tuple[TaskView, ...]
    now_ms: int


@query(project_id=inputs.ident, minutes=inputs.whole(1, 7 * 24 * 60), slices=inputs.whole(1, 200))
def pace(tx: Transaction, *, project_id: str = DEFAULT_PROJECT, minutes: int = 60, slices: int = 60) -> Pace | Refused:
    """Throughput, recoveries, what waits and for how long, gridlock, external gates and dead letters of a project."""
    numbers = observe.statistics.body(tx, project_id=project_id)
    if isinstance(numbers, Refused):
        return numbers
    stuck = observe.gridlock.body(tx, project_id=project_id)
    assert not isinstance(stuck, Refused)
    gates = outbox.list_gates.body(tx, project_id=project_id)
    assert not isinstance(gates, Refused)
    ready = tx.one("count_all_ready", project_id=project_id, limit=100_000)
    assert ready is not None
    dead = tx.all("cards_of_status", project_id=project_id, status="dead", limit=DEAD_MAX)
    slice_ms = max(1, minutes * 60_000 // slices)
    since_ms = (tx.now_ms // slice_ms - slices + 1) * slice_ms
    return Pace(
        slices=_slices(tx, project_id, since_ms, slice_ms, slices),
        slice_ms=slice_ms,
        since_ms=since_ms,
        numbers=numbers,
        ready=ready["n"],
        oldest=_oldest(tx, project_id),
        gridlock=stuck,
        gates=gates,
        dead=tuple(observe.views_of(tx, [Task(**row) for row in dead])),
        now_ms=tx.now_ms,
    )


def _slices(tx: Transaction, project_id: str, since_ms: int, slice_ms: int, count: int) -> tuple[Slice, ...]:
    found = [dict.fromkeys(COUNTED, 0) for _ in range(count)]
    for row in tx.all("happenings", project_id=project_id, since_ms=since_ms, limit=EVENTS_MAX):
        index = min(count - 1, (row["at_ms"] - since_ms) // slice_ms)
        kind = "granted" if row["kind"] == "accepted" else row["kind"]
        found[index][kind] += 1
    return tuple(Slice(at_ms=since_ms + index * slice_ms, **counts) for index, counts in enumerate(found))


def _oldest(tx: Transaction, project_id: str) -> Waiting | None:
    """Of the first tasks in the queue, the one that could have been claimed for the longest time."""
    found = [
        Waiting(
            task_id=row["task_id"],
            title=row["title"],
            since_ms=max(row["created_at_ms"], row["not_before_ms"], row["retry_at_ms"]),
        )
        for row in tx.all("ready_ages", project_id=project_id, limit=READY_MAX)
    ]
    return min(found, key=lambda waiting: waiting.since_ms, default=None)
