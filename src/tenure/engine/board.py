"""The board as a person looks at it: cards in columns, what changes on them, and moving one by hand.

A card is a task without its long texts. `changes` is what a reader that follows events needs besides them: the cards
that the events were about, as they are now, and the leases that are held, because a touch moves a deadline and leaves
no event.
"""

from __future__ import annotations

import json

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT, STATUSES, Event, Lease, Task
from tenure.core.record import Record
from tenure.engine import endings, load, observe, recovery, tasks
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.core.model import Status
    from tenure.engine.observe import Statistics, TaskView
    from tenure.store.store import Transaction

# Cards of a column, of the done column, leases looked at, kinds named.
CARDS_MAX, DONE_MAX, LEASES_MAX, KINDS_MAX = 10_000, 500, 10_000, 200


class Need(Record):
    """A dependency of a card: missing when no such task exists."""

    task_id: str
    done: bool
    missing: bool


class Left(Record):
    """Whom a card was taken from last, while the next holder is to know."""

    agent_id: str
    at_ms: int
    reason: str


class Card(Record):
    """A task as a board shows it; the long texts of its task are empty here."""

    view: TaskView
    needs: tuple[Need, ...] = ()
    left: Left | None = None


class Board(Record):
    """The columns' cards, how many tasks there are in all, and the newest event: changes after it are news."""

    project_id: str
    cards: tuple[Card, ...]
    numbers: Statistics
    kinds: tuple[str, ...]
    seq: int
    now_ms: int


@query(project_id=inputs.ident, limit=inputs.limit)
def board(tx: Transaction, *, project_id: str = DEFAULT_PROJECT, limit: int = CARDS_MAX) -> Board | Refused:
    """The cards of every column: best first, and of the done the newest."""
    numbers = observe.statistics.body(tx, project_id=project_id)
    if isinstance(numbers, Refused):
        return numbers
    rows = []
    for status in STATUSES:
        if status == "done":
            newest = min(limit, DONE_MAX)
            rows += tx.all("newest_cards_of_status", project_id=project_id, status=status, limit=newest)
        else:
            rows += tx.all("cards_of_status", project_id=project_id, status=status, limit=limit)
    return Board(
        project_id=project_id,
        cards=tuple(_cards(tx, [Task(**row) for row in rows])),
        numbers=numbers,
        kinds=tuple(row["kind"] for row in tx.all("kinds", project_id=project_id, limit=KINDS_MAX)),
        seq=observe.newest_event.body(tx),
        now_ms=tx.now_ms,
    )


def _cards(tx: Transaction, found: Sequence[Task]) -> list[Card]:
    keys = json.dumps([task.key for task in found])
    needs: dict[int, list[Need]] = {}
    for row in tx.all("needs_of_tasks", keys=keys):
        need = Need(task_id=row["needs_id"], done=row["status"] == "done", missing=row["status"] is None)
        needs.setdefault(row["task_key"], []).append(need)
    left = {
        row["task_key"]: Left(
            agent_id=row["recovered_from_agent"], at_ms=row["recovered_at_ms"], reason=row["recovery_reason"]
        )
        for row in tx.all("open_handoffs_of_tasks", keys=keys, now_ms=tx.now_ms)
    }
    return [
        Card(view=view, needs=tuple(needs.get(view.task.key, ())), left=left.get(view.task.key))
        for view in observe.views_of(tx, found)
    ]


class Changes(Record):
    """What happened after an event: the events, the cards they were about as they are now, the ids of those that are
    gone, every lease that is held, and the counts."""

    events: tuple[Event, ...]
    cards: tuple[Card, ...]
    gone: tuple[str, ...]
    leases: tuple[Lease, ...]
    numbers: Statistics
    # The last event that was looked at, whichever project it was of; and whether there may be more.
    seq: int
    more: bool
    now_ms: int


@query(project_id=inputs.ident, after=inputs.cursor, limit=inputs.limit)
def changes(
    tx: Transaction, *, project_id: str = DEFAULT_PROJECT, after: int = 0, limit: int = 200
) -> Changes | Refused:
    """Everything that is new after an event, a page at a time. A reader that goes on from `seq` misses nothing.

    A reader whose place was forgotten (`events_lost`) has to look at the whole board again. Where numbers have gaps, as
    on PostgreSQL, this is also said when nothing after that place was forgotten: it cannot be told apart.
    """
    numbers = observe.statistics.body(tx, project_id=project_id)
    if isinstance(numbers, Refused):
        return numbers
    oldest, newest = tx.one("oldest_event"), observe.newest_event.body(tx)
    if after > newest or (after and oldest is not None and oldest["seq"] > after + 1):
        return refuse("events_lost", f"The events after {after} are not there any more.", after=after, newest=newest)
    found = observe.events.body(tx, after=after, limit=limit)
    assert not isinstance(found, Refused)
    told = tuple(event for event in found if event.project_id in (None, project_id))
    names = list(dict.fromkeys(event.task_id for event in told if event.task_id is not None))
    rows = tx.all("cards_named", project_id=project_id, task_ids=json.dumps(names)) if names else []
    here = {row["task_id"] for row in rows}
    held = tx.all("unended_of_project", project_id=project_id, limit=LEASES_MAX)
    return Changes(
        events=told,
        cards=tuple(_cards(tx, [Task(**row) for row in rows])),
        gone=tuple(name for name in names if name not in here),
        leases=tuple(Lease(**row) for row in held),
        numbers=numbers,
        seq=found[-1].seq if found else after,
        more=len(found) == limit,
        now_ms=tx.now_ms,
    )


@verb(
    task_id=inputs.ident,
    project_id=inputs.optional(inputs.ident),
    status=inputs.status,
    by=inputs.line,
    message=inputs.body,
    revoke=inputs.flag,
)
def move_task(
    tx: Transaction,
    *,
    task_id: str,
    status: Status,
    project_id: str | None = None,
    by: str = "operator",
    message: str = "",
    revoke: bool = False,
) -> Task | Refused:
    """Put a task into another column by hand: the verb that this means is done, and refuses where it would refuse.

    A live lease is taken away only with `revoke`. Nobody is moved into in_progress or dead: agents get there by what
    they do.
    """
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    task, held = recovery.recover_due(tx, task)
    if held and not revoke:
        message = f"Task {task_id} is held by {held[0].agent_id}."
        return refuse("task_held", message, task_id=task_id, holder=held[0].agent_id)
    if task.status == status and not held:
        return task
    step = _STEPS.get(("held" if held else task.status, status))
    if step is None:
        words = f"{'in_progress' if held else task.status} to {status}"
        return refuse("wrong_state", f"A task is not moved from {words} by hand.", task_id=task_id, status=task.status)
    answer = step(tx, {"task_id": task_id, "project_id": task.project_id}, by, message)
    return answer.task if isinstance(answer, endings.Ended) else answer


def _revoke(tx: Transaction, task: Mapping[str, str], by: str, message: str) -> endings.Ended | Refused:
    return endings.revoke.body(tx, **task, reason="moved_on_board", by=by, message=message)


def _complete(tx: Transaction, task: Mapping[str, str], by: str, message: str) -> endings.Ended | Refused:
    return endings.complete.body(tx, **task, agent_id=by, message=message, force=True)  # type: ignore[arg-type]


def _block(tx: Transaction, task: Mapping[str, str], by: str, message: str) -> endings.Ended | Refused:
    reason = message or "blocked on the board"
    return endings.block.body(tx, **task, agent_id=by, reason=reason, force=True)  # type: ignore[arg-type]


def _unblock(tx: Transaction, task: Mapping[str, str], by: str, message: str) -> Task | Refused:
    return tasks.unblock_task.body(tx, **task, by=by, note=message)


def _reopen(tx: Transaction, task: Mapping[str, str], by: str, message: str) -> Task | Refused:
    return tasks.reopen_task.body(tx, **task, by=by, note=message)


def _requeue(tx: Transaction, task: Mapping[str, str], by: str, message: str) -> Task | Refused:
    return tasks.requeue_task.body(tx, **task, by=by)


def _take_back(tx: Transaction, task: Mapping[str, str], by: str, message: str) -> Task | Refused:
    return tasks.assign_task.body(tx, **task, assigned_to=None, by=by)


# (status, or "held" under a live lease; the column it is put into): the verb this means.
_STEPS: dict[tuple[str, str], Callable[..., Task | endings.Ended | Refused]] = {
    ("held", "todo"): _revoke,
    ("held", "blocked"): _block,
    ("held", "done"): _complete,
    ("todo", "blocked"): _block,
    ("todo", "done"): _complete,
    ("in_progress", "todo"): _take_back,
    ("in_progress", "blocked"): _block,
    ("in_progress", "done"): _complete,
    ("blocked", "todo"): _unblock,
    ("blocked", "done"): _complete,
    ("dead", "todo"): _requeue,
    ("dead", "done"): _complete,
    ("done", "todo"): _reopen,
}
