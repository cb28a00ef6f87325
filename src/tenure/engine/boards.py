"""What is kept about a project's board, and every step that changes it.

The verbs connect a project with a board and show it. The other functions are steps, not verbs: the
monitor of boards/ runs each in a transaction of its own, and talks to the board in between.

A card is *dirty* while something may be left to deliver. One runner at a time delivers a card (`busy_until_ms`), so
that no card and no comment is made twice; whoever dies in between is succeeded by the next one, which reads first. What
was read from the board is judged only if no base of that card changed since the reading began (`change_no`). Steps that
decide take their turns, project by project (`_alone`): of two servers that read the same act, one applies it.
"""

from __future__ import annotations

import json

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.core.ids import id_fault, ulid
from tenure.core.model import DEFAULT_PROJECT, Board, BoardCard, Task
from tenure.core.reconcile import REVERSIONS_ALERT, CardState, Mismatch, merge, mismatch, settled, wanted
from tenure.core.record import Record
from tenure.engine import board_acts, change, load, recovery, tasks
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tenure.store.store import Transaction

    Shown = Callable[[CardState], CardState]

KINDS = ("kanboard",)
# How long one runner has for a card; longer than the calls it makes may take.
BUSY_MS = 120_000
BACKOFF_MS = (1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
# So many failures of one write while the board answers otherwise, and it is parked.
ATTEMPTS_MAX = 6
EVENTS_AT_ONCE = 500
COMMENTS_AT_ONCE = 50
CARDS_AT_ONCE = 500
PARKED_SHOWN = 20
GONE_CERTAIN = 2


class BoardView(Record):
    """A board as it may be shown: without its tokens, with what waits."""

    project_id: str
    kind: str
    url: str
    board: str
    columns: Mapping[str, Any]
    users: Mapping[str, str]
    priorities: Mapping[str, int]
    webhook: bool
    cards: int
    pending: int
    comments: int
    parked: int
    parked_writes: tuple[str, ...]
    swept_at_ms: int
    error: str


_NAME = inputs.text(256, one_line=True, required=True)
_NAMES = inputs.each(_NAME)
# What a configuration may hold, and what each of its entries must be (boards/mapping.py says what it means).
_CONFIG = {"columns": _NAMES, "users": _NAME, "priorities": inputs.whole(-1_000, 1_000)}


def _config(name: str, value: Any) -> str | Refused:
    """Check a configuration; the board itself says whether it fits."""
    encoded: str | Refused = inputs.json_object(inputs.INPUTS_MAX)(name, value)
    if isinstance(encoded, Refused) or not encoded:
        return encoded
    for part, entries in value.items():
        if part not in _CONFIG:
            return inputs.bad(name, f"has no part {inputs.shown(part)}; there are {', '.join(_CONFIG)}")
        if not isinstance(entries, dict):
            return inputs.bad(f"{name}.{part}", f"must be an object, not {inputs.shown(entries)}")
        for key, entry in entries.items():
            good = _NAME(f"{name}.{part}", key)
            good = good if isinstance(good, Refused) else _CONFIG[part](f"{name}.{part}.{key}", entry)
            if isinstance(good, Refused):
                return good
    return encoded


@verb(
    project_id=inputs.ident,
    kind=inputs.one_of(*KINDS),
    url=inputs.text(2048, one_line=True, required=True),
    board=inputs.text(256, one_line=True, required=True),
    token=inputs.text(512, one_line=True),
    webhook_token=inputs.text(512, one_line=True),
    config=_config,
)
def connect_board(
    tx: Transaction,
    *,
    url: str,
    board: str,
    token: str = "",
    project_id: str = DEFAULT_PROJECT,
    kind: str = "kanboard",
    webhook_token: str = "",
    config: str = "",
) -> BoardView | Refused:
    """Connect a project with a board, or change how it is connected. Another board begins anew."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    _alone(tx, project_id)
    known = board_of(tx, project_id)
    values: dict[str, Any] = {
        "url": url,
        "place": board,
        "token": token,
        "webhook_token": webhook_token,
        "config": config or "{}",
    }
    if known is not None and (known.url, known.place) != (url, board):
        tx.do("delete_board", project_id=project_id)
        known = None
    if known is not None:
        tx.do("save_board", project_id=project_id, **values)
    else:
        newest = tx.one("newest_event")
        made = Board(
            project_id=project_id,
            kind=kind,
            link_id=ulid(tx.now_ms, tx.random(10))[-10:].lower(),
            event_seq=newest["seq"] if newest else 0,
            connected_at_ms=tx.now_ms,
            **values,
        )
        tx.do("add_board", **made.as_dict())
    change.record(tx, "board_connected", project=project_id, board=board, url=url)
    return _view(tx, _board(tx, project_id))


@verb(project_id=inputs.ident)
def disconnect_board(tx: Transaction, *, project_id: str = DEFAULT_PROJECT) -> BoardView | Refused:
    """Forget a project's board. Its cards stay as they are."""
    board = _connected(tx, project_id)
    if isinstance(board, Refused):
        return board
    view = _view(tx, board)
    tx.do("delete_board", project_id=project_id)
    change.record(tx, "board_disconnected", project=project_id, board=board.place)
    return view


@verb(project_id=inputs.ident)
def retry_board(tx: Transaction, *, project_id: str = DEFAULT_PROJECT) -> BoardView | Refused:
    """Try again what was parked or waits for its next attempt."""
    board = _connected(tx, project_id)
    if isinstance(board, Refused):
        return board
    tx.do("board_retry_cards", project_id=project_id)
    tx.do("board_retry_comments", project_id=project_id)
    return _view(tx, board)


@query()
def list_boards(tx: Transaction) -> tuple[BoardView, ...]:
    """Every connected board, with what waits to be delivered and what is parked."""
    return tuple(_view(tx, Board(**row)) for row in tx.all("boards"))


@query(project_id=inputs.ident)
def show_board(tx: Transaction, *, project_id: str = DEFAULT_PROJECT) -> BoardView | Refused:
    """A project's board, with what waits to be delivered and what is parked."""
    board = _connected(tx, project_id)
    return board if isinstance(board, Refused) else _view(tx, board)


def mismatches(tx: Transaction, project_id: str) -> tuple[list[Mismatch], int]:
    """Where a board's cards, as last seen, differ from what we would show; and how many are in progress there."""
    found: list[Mismatch] = []
    on_board, after = 0, 0
    registered: dict[str, bool] = {}
    while page := tx.all("board_assignments", project_id=project_id, after=after, limit=CARDS_AT_ONCE):
        after = page[-1]["card_key"]
        for row in page:
            seen = _state(row["base"])
            on_board += seen.status == "in_progress"
            if row["dirty"]:
                continue
            if seen.assignee is not None and seen.assignee not in registered:
                registered[seen.assignee] = load.agent_named(tx, seen.assignee) is not None
            fields = {**row, "title": seen.title, "body": seen.body, "priority": seen.priority, "needs": None}
            ours = wanted(fields, row["status"], seen, base_is_agent=registered.get(seen.assignee or "", False))
            # Names and columns that the board does not have are no difference: a write of ours would not show them.
            if seen.assignee is None:
                ours = ours.replace(assignee=None)
            if ours.status == "blocked" and seen.status == "todo":
                ours = ours.replace(status="todo")
            different = mismatch(row["task_id"], seen, ours)
            if different is not None:
                found.append(different)
    return found, on_board


def connected(tx: Transaction, project_id: str | None) -> list[Board]:
    """The boards of all projects, or of one."""
    return [Board(**row) for row in tx.all("boards") if project_id in (None, row["project_id"])]


def board_of(tx: Transaction, project_id: str) -> Board | None:
    row = tx.one("board", project_id=project_id)
    return None if row is None else Board(**row)


def _alone(tx: Transaction, project_id: str) -> None:
    """Decide about a project's board alone. Taken before any other lock."""
    tx.lock("board", project_id=project_id)


def _board(tx: Transaction, project_id: str) -> Board:
    board = board_of(tx, project_id)
    assert board is not None
    return board


def _connected(tx: Transaction, project_id: str) -> Board | Refused:
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    board = board_of(tx, project_id)
    if board is None:
        return refuse(
            "board_not_found", f"Project {project_id} has no board but the embedded one.", project_id=project_id
        )
    return board


def counts(tx: Transaction, board: Board) -> dict[str, int]:
    cards = tx.one("board_counts", project_id=board.project_id)
    comments = tx.one("board_comment_counts", project_id=board.project_id)
    assert cards is not None
    assert comments is not None
    return {
        "cards": cards["cards"],
        "pending": cards["pending"],
        "comments": comments["comments"],
        "parked": cards["parked"] + comments["parked"],
    }


def _view(tx: Transaction, board: Board) -> BoardView:
    config = json.loads(board.config)
    parked = tx.all("board_parked", project_id=board.project_id, limit=PARKED_SHOWN)
    return BoardView(
        project_id=board.project_id,
        kind=board.kind,
        url=board.url,
        board=board.place,
        columns=config.get("columns", {}),
        users=config.get("users", {}),
        priorities=config.get("priorities", {}),
        webhook=bool(board.webhook_token),
        **counts(tx, board),
        parked_writes=tuple(
            f"{row['task_id']} (card {row['card_id'] or 'none yet'}): {row['error']}" for row in parked
        ),
        swept_at_ms=board.swept_at_ms,
        error=board.error,
    )


# -- cards -------------------------------------------------------------------------------------------------------------


def base_of(row: BoardCard) -> CardState | None:
    """The card as last written or seen."""
    return None if row.base is None else _state(row.base)


def _state(base: str) -> CardState:
    fields = json.loads(base)
    needs = fields.pop("needs")
    return CardState(**fields, needs=None if needs is None else tuple(needs))


def wanted_card(tx: Transaction, task: Task, base: CardState | None) -> CardState:
    """The card a task should have, before the board says how much of it it can show."""
    fields = task.as_dict()
    fields["needs"] = tuple(sorted(row["needs_id"] for row in tx.all("needs_of", task_key=task.key)))
    named = base.assignee if base is not None else None
    base_is_agent = named is not None and load.agent_named(tx, named) is not None
    return wanted(fields, task.status, base, base_is_agent=base_is_agent)


def _card_row(tx: Transaction, key: int) -> BoardCard | None:
    row = tx.one("board_card", key=key)
    return None if row is None else BoardCard(**row)


def _card_alone(tx: Transaction, key: int) -> BoardCard | None:
    """A card's row, for a step that decides on it."""
    tx.lock("board_of", key=key)
    return _card_row(tx, key)


def card_named(tx: Transaction, project_id: str, card_id: str) -> BoardCard | None:
    row = tx.one("board_card_named", project_id=project_id, card_id=card_id)
    return None if row is None else BoardCard(**row)


def changes_of(tx: Transaction, project_id: str) -> int:
    """The number to remember before reading from the board."""
    board = board_of(tx, project_id)
    return board.changes if board else 0


def _save_base(tx: Transaction, row: BoardCard, base: CardState) -> None:
    if base_of(row) == base:
        tx.do("board_card_unchanged", key=row.key)
        return
    counted = tx.one("board_changed", project_id=row.project_id)
    assert counted is not None
    tx.do("board_card_seen", key=row.key, base=json.dumps(base.as_dict()), change_no=counted["changes"])


def told(tx: Transaction, project_id: str, error: str) -> None:
    """Note what is wrong with the board as a whole; empty when it answers."""
    tx.do("board_told", project_id=project_id, error=error[:500])


def tell_error(tx: Transaction, project_id: str, error: str) -> None:
    """Note an outage, and tell it once."""
    _alone(tx, project_id)
    board = board_of(tx, project_id)
    if board is not None and not board.error:
        change.record(tx, "board_down", project=project_id, error=error[: change.TOLD])
    told(tx, project_id, error)


# -- what there is to deliver ------------------------------------------------------------------------------------------


def collect(tx: Transaction, project_id: str) -> bool:
    """Look through a page of our events for tasks that changed, and note their cards. Whether there may be more."""
    _alone(tx, project_id)
    board = board_of(tx, project_id)
    if board is None:
        return False
    page = tx.all(
        "events", after=board.event_seq, limit=EVENTS_AT_ONCE, project_id=project_id, task_id=None, agent_id=None
    )
    for task_id in dict.fromkeys(row["task_id"] for row in page if row["task_id"]):
        found = tx.all("tasks_named", task_id=task_id, project_id=project_id)
        if found:
            note(tx, board, Task(**found[0]))
    if page:
        tx.do("board_looked", project_id=project_id, event_seq=page[-1]["seq"])
    _retire(tx, project_id)
    return len(page) == EVENTS_AT_ONCE


def _retire(tx: Transaction, project_id: str) -> None:
    """Cards whose task was deleted here are to be put away. A version of -1 says that this was done."""
    for row in tx.all("board_tombstones", project_id=project_id):
        tx.do("board_card_dirty", key=row["key"])


def note(tx: Transaction, board: Board, task: Task) -> None:
    """Something happened to a task: its card, made now if there is none, and its new messages are to be delivered."""
    row = tx.one("board_card_of_task", project_id=board.project_id, task_key=task.key)
    if row is None:
        made = BoardCard(key=0, project_id=board.project_id, task_key=task.key, task_id=task.task_id)
        added = tx.one("add_board_card", **made.as_dict())
        assert added is not None
        card = made.replace(key=added["key"])
    else:
        card = BoardCard(**row)
    said = _queue_comments(tx, board, card)
    changed = card.version != task.version
    if (not card.dirty and (said or changed)) or (card.parked and changed):
        tx.do("board_card_dirty", key=card.key)


def _queue_comments(tx: Transaction, board: Board, card: BoardCard) -> bool:
    rows = tx.all("messages_to_say", task_key=card.task_key, after=card.said_seq, limit=COMMENTS_AT_ONCE)
    for row in rows:
        key = f"{board.link_id}-{row['seq']:010d}-{row['at_ms']}"
        tx.do("add_board_comment", comment_key=key, card_key=card.key, text=f"{row['sender']}: {row['text']}")
    if rows:
        tx.do("board_card_said", key=card.key, said_seq=rows[-1]["seq"])
    return bool(rows)


def adopt_tasks(tx: Transaction, project_id: str, limit: int = 500) -> int:
    """Give every unfinished task that has no card yet a place in the delivery. What was said before is not repeated."""
    _alone(tx, project_id)
    board = _board(tx, project_id)
    rows = tx.all("board_untouched_tasks", project_id=project_id, limit=limit)
    for row in rows:
        task = load.task_by_key(tx, row["key"])
        last = tx.one("last_message_of", task_key=task.key)
        assert last is not None
        old = task.created_at_ms < board.connected_at_ms
        made = BoardCard(
            key=0,
            project_id=project_id,
            task_key=task.key,
            task_id=task.task_id,
            said_seq=last["seq"] if old else 0,
        )
        tx.one("add_board_card", **made.as_dict())
    return len(rows)


class Job(Record):
    """A card to deliver, taken for this runner, and its task (None: it was deleted)."""

    row: BoardCard
    task: Task | None


def due(tx: Transaction, project_id: str, limit: int) -> list[int]:
    """Cards that may be delivered now."""
    return [row["key"] for row in tx.all("board_cards_due", project_id=project_id, now_ms=tx.now_ms, limit=limit)]


def wait_ms(tx: Transaction, project_id: str) -> int | None:
    """How long until the next card may be tried; None when nothing waits."""
    row = tx.one("board_next_retry", project_id=project_id)
    return None if row is None or row["at_ms"] is None else max(0, row["at_ms"] - tx.now_ms)


def take(tx: Transaction, key: int) -> Job | None:
    """Take a card for this runner; None if another has it or nothing is left to do."""
    row = _card_alone(tx, key)
    if row is None or not row.dirty or row.parked or row.retry_at_ms > tx.now_ms:
        return None
    if not tx.do("board_card_busy", key=key, now_ms=tx.now_ms, until_ms=tx.now_ms + BUSY_MS):
        return None
    task = None if row.task_key is None else load.task_by_key(tx, row.task_key)
    return Job(row=row, task=task)


def made(tx: Transaction, key: int, card_id: str, born: str) -> bool:
    """Remember which card is this task's. False if another task has it."""
    row = _card_alone(tx, key)
    if row is None:
        return False
    other = card_named(tx, row.project_id, card_id)
    if other is not None and other.key != key:
        if other.born == born:
            return False
        # The id was used again: what had it before is gone.
        tx.do("delete_board_card", key=other.key)
    tx.do("board_card_made", key=key, card_id=card_id, born=born)
    return True


class Judged(Record):
    """What is to be written to a card and said on it now, and what somebody had done to it."""

    row: BoardCard
    version: int
    before: CardState
    writes: Mapping[str, Any]
    # Keys and texts.
    comments: tuple[tuple[str, str], ...] = ()
    acted: board_acts.Acted | None = None


def deliverable(
    tx: Transaction, key: int, card: CardState, shown: Shown, actor: str, *, fresh: bool = False
) -> Judged | None:
    """Compare a card that was just read, apply what somebody did to it, and say what is to be written.

    `fresh` is a card that we just made: what it shows is what we wrote.
    """
    row = _card_alone(tx, key)
    if row is None or row.task_key is None:
        return None
    judged = _judge(tx, row, card, shown, actor, fresh=fresh)
    if judged is not None:
        _introduce(tx, row, shown)
        said = tuple((one["comment_key"], one["text"]) for one in tx.all("board_comments_of", card_key=key))
        judged = judged.replace(comments=said)
    return judged


def _introduce(tx: Transaction, row: BoardCard, shown: Shown) -> None:
    """A card that cannot name its holder, who has no account there, says so in a comment: once for each lease."""
    assert row.task_key is not None
    task = load.task_by_key(tx, row.task_key)
    _, lease = board_acts.assignment_of(tx, task)
    ours = wanted_card(tx, task, base_of(row))
    if lease is None or ours.assignee != lease.agent_id or shown(ours).assignee is not None:
        return
    key = f"{_board(tx, row.project_id).link_id}-held-{task.key:010d}-{lease.token}"
    text = f"tenure: {lease.agent_id} holds this task now. It has no account on this board, so the card names nobody."
    tx.do("add_board_comment", comment_key=key, card_key=row.key, text=text)


def judge(
    tx: Transaction, key: int, card: CardState, shown: Shown, actor: str, *, read_at: int, taken: bool = False
) -> board_acts.Acted | None:
    """Judge a card of a listing that began when the board's count of changes was `read_at`.

    A card that changed since, or that has a write to be delivered, is left to its delivery, which reads it anew.
    """
    row = _card_alone(tx, key)
    if row is None or row.task_key is None or row.change_no > read_at:
        return None
    if row.busy_until_ms > tx.now_ms and not taken:
        return None
    task = load.task_by_key(tx, row.task_key)
    base = base_of(row)
    ours = shown(wanted_card(tx, task, base))
    if base is not None and merge(ours, base, base).writes:
        tx.do("board_card_dirty", key=key)
        return None
    judged = _judge(tx, row, card, shown, actor)
    if judged is None:
        return None
    if judged.writes:
        tx.do("board_card_dirty", key=key)
    elif not row.dirty:
        tx.do("board_card_acked", key=key, version=judged.version, dirty=0)
    return judged.acted


def _judge(
    tx: Transaction, row: BoardCard, card: CardState, shown: Shown, actor: str, *, fresh: bool = False
) -> Judged | None:
    assert row.task_key is not None
    task = load.task_by_key(tx, row.task_key)
    base = card if fresh else base_of(row)
    found = merge(shown(wanted_card(tx, task, base)), card, base)
    acted = None
    if found.acts:
        acted = board_acts.apply(tx, task, card, found.acts, actor)
        _count_reversion(tx, row, task, acted)
        for text in acted.refusals:
            change.record(tx, "board_refused", task=task, agent_id=actor, reason=text[: change.TOLD])
            recovery.post(tx, task, sender="tenure", text=f"What {actor} did on the board could not be done: {text}")
        task = load.task_by_key(tx, row.task_key)
    _save_base(tx, row, found.base)
    row = _card_row(tx, row.key) or row
    after = merge(shown(wanted_card(tx, task, found.base)), card, found.base)
    return Judged(row=row, version=task.version, before=card, writes=after.writes, acted=acted)


def _count_reversion(tx: Transaction, row: BoardCard, task: Task, acted: board_acts.Acted) -> None:
    if acted.reversion is None:
        return
    counted = tx.one("board_card_reverted", key=row.key)
    assert counted is not None
    if counted["reversions"] % REVERSIONS_ALERT == 0:
        tx.do("count", name="board_alerts", by=1)
        change.record(tx, "board_alert", task=task, reversions=counted["reversions"])


def acked(tx: Transaction, job: Judged, after: CardState, shown: Shown) -> list[str]:
    """The card was written and read again: keep what took, and say what did not."""
    row = _card_alone(tx, job.row.key)
    if row is None or row.task_key is None:
        return []
    before = job.before
    if before.needs is None:
        known = base_of(row)
        before = before.replace(needs=known.needs if known else None)
    base, failed = settled(before, job.writes, after)
    _save_base(tx, row, base)
    task = load.task_by_key(tx, row.task_key)
    ours = merge(shown(wanted_card(tx, task, base)), base, base)
    left = bool(ours.writes) or task.version != job.version or bool(tx.all("board_comments_of", card_key=row.key))
    if failed:
        return failed
    # A card that somebody changed in between is looked at again at once.
    theirs = after.replace(needs=base.needs) != base
    tx.do("board_card_acked", key=row.key, version=job.version, dirty=int(left or theirs))
    return []


def said(tx: Transaction, comment_key: str) -> None:
    """The board has this comment."""
    tx.do("delete_board_comment", comment_key=comment_key)


def not_said(tx: Transaction, comment_key: str, error: str) -> None:
    """This comment could not be posted; after some attempts it is parked and the others go on."""
    tx.do("board_comment_failed", comment_key=comment_key, error=error[:300], most=ATTEMPTS_MAX)


def failed(tx: Transaction, key: int, error: str, *, counts: bool) -> None:
    """A delivery failed. `counts`: the board answers otherwise, so that it is this write; it is parked in the end."""
    row = _card_alone(tx, key)
    if row is None:
        return
    attempts = row.attempts + 1 if counts else row.attempts
    parked = int(attempts >= ATTEMPTS_MAX)
    wait = BACKOFF_MS[min(max(attempts - 1, 0), len(BACKOFF_MS) - 1)] if counts else 0
    # A parked write is tried again when the task has changed since: its version is the one that was tried.
    tried = load.task_by_key(tx, row.task_key).version if parked and row.task_key is not None else row.version
    tx.do(
        "board_card_failed",
        key=key,
        version=tried,
        attempts=attempts,
        parked=parked,
        error=error[:300],
        retry_at_ms=tx.now_ms + wait,
    )
    if parked and row.task_key is not None:
        task = load.task_by_key(tx, row.task_key)
        change.record(tx, "board_parked", task=task, reason=error[: change.TOLD])


def retired(tx: Transaction, key: int) -> None:
    """The card of a deleted task was put away; it is remembered, so that it is not taken for a new one."""
    tx.do("board_card_acked", key=key, version=-1, dirty=0)


# -- cards of the board ------------------------------------------------------------------------------------------------


def meet(
    tx: Transaction, project_id: str, card_id: str, born: str, reference: str, state: CardState, closed: bool
) -> tuple[int | None, bool]:
    """The row of a listed card; a card nobody knows becomes a task. Also says whether the task is new.

    None: the card is none of ours (a finished one that was never ours, or the put-away card of a deleted task).
    """
    _alone(tx, project_id)
    row = card_named(tx, project_id, card_id)
    if row is not None and row.born == born:
        if row.task_key is not None:
            return row.key, False
        if closed or row.version >= 0:
            return None, False
        # Somebody opened the card of a deleted task again: it is wanted after all.
        tx.do("delete_board_card", key=row.key)
        reference = ""
    elif row is not None:
        if row.task_key is not None:
            # Another card has its id now. Whether ours is gone is settled by asking for it.
            return None, False
        tx.do("delete_board_card", key=row.key)
    task = _known_task(tx, project_id, card_id, reference)
    if task is not None:
        return _link_known(tx, project_id, task, card_id, born), False
    if state.status == "done":
        return None, False
    return _import(tx, project_id, card_id, born, reference, state), True


def _known_task(tx: Transaction, project_id: str, card_id: str, reference: str) -> Task | None:
    for task_id in (reference, f"KB-{card_id}"):
        found = tx.all("tasks_named", task_id=task_id, project_id=project_id) if task_id else []
        if found:
            return Task(**found[0])
    return None


def _link_known(tx: Transaction, project_id: str, task: Task, card_id: str, born: str) -> int | None:
    row = tx.one("board_card_of_task", project_id=project_id, task_key=task.key)
    if row is not None and row["card_id"]:
        # The task has another card already; two cards with one reference are a mistake that we leave alone.
        return None
    if row is None:
        last = tx.one("last_message_of", task_key=task.key)
        assert last is not None
        made_row = BoardCard(
            key=0, project_id=project_id, task_key=task.key, task_id=task.task_id, said_seq=last["seq"]
        )
        row = tx.one("add_board_card", **made_row.as_dict())
        assert row is not None
    tx.do("board_card_made", key=row["key"], card_id=card_id, born=born)
    return int(row["key"])


def _import(tx: Transaction, project_id: str, card_id: str, born: str, reference: str, state: CardState) -> int | None:
    task_id = reference if reference and id_fault(reference) is None else f"KB-{card_id}"
    fields: dict[str, Any] = {"title": state.title, "body": state.body, "priority": state.priority}
    task = tasks.add_task.body(tx, project_id=project_id, task_id=task_id, **fields)
    if isinstance(task, Refused):
        change.record(tx, "board_refused", agent_id=board_acts.BOARD, reason=f"card {card_id}: {task.message}"[:200])
        return None
    row = BoardCard(
        key=0,
        project_id=project_id,
        task_key=task.key,
        task_id=task_id,
        card_id=card_id,
        born=born,
        base=json.dumps(state.as_dict()),
        dirty=0,
    )
    added = tx.one("add_board_card", **row.as_dict())
    assert added is not None
    board_acts.apply(tx, task, state, {"status": state.status, "assignee": state.assignee}, board_acts.BOARD)
    task = load.task_by_key(tx, task.key)
    tx.do("board_card_acked", key=added["key"], version=task.version, dirty=0)
    return int(added["key"])


def needs_from(tx: Transaction, project_id: str, card_ids: Sequence[str]) -> tuple[str, ...]:
    """The tasks of the cards that a card waits for; cards that are no tasks are left out."""
    found = [card_named(tx, project_id, card_id) for card_id in card_ids]
    return tuple(sorted(row.task_id for row in found if row is not None and row.task_key is not None))


def cards_for(tx: Transaction, project_id: str, needs: Sequence[str]) -> dict[str, str | None]:
    """The cards of tasks; None for a task that has no card yet."""
    cards: dict[str, str | None] = {}
    for task_id in needs:
        found = tx.all("tasks_named", task_id=task_id, project_id=project_id)
        row = tx.one("board_card_of_task", project_id=project_id, task_key=found[0]["key"]) if found else None
        cards[task_id] = row["card_id"] or None if row else None
    return cards


def linked_cards(tx: Transaction, project_id: str) -> list[BoardCard]:
    """Every card of a task of ours that was made."""
    rows, after = [], 0
    while page := tx.all("board_cards", project_id=project_id, after=after, limit=1_000):
        after = page[-1]["key"]
        rows += [BoardCard(**row) for row in page if row["card_id"] and row["task_key"] is not None]
    return rows


def gone(tx: Transaction, key: int) -> bool:
    """The server said that there is no such card. Said twice, its task is deleted."""
    row = _card_alone(tx, key)
    if row is None or row.task_key is None:
        return False
    counted = tx.one("board_card_gone", key=key)
    assert counted is not None
    if counted["gone"] < GONE_CERTAIN:
        return False
    board_acts.remove(tx, load.task_by_key(tx, row.task_key))
    tx.do("delete_board_card", key=key)
    return True


class Heard(Record):
    """A comment of a person's on a card."""

    card_id: str
    author: str
    text: str


def heard(tx: Transaction, project_id: str, comments: Sequence[Heard], read_from: str, place: str) -> bool:
    """The board's activity was read from one place to another: people's words go to their tasks' threads, once.

    False: another server noted the same rows first.
    """
    _alone(tx, project_id)
    board = board_of(tx, project_id)
    if board is None or board.feed != read_from:
        return False
    for said_there in comments:
        row = card_named(tx, project_id, said_there.card_id)
        if row is not None and row.task_key is not None and board.link_id not in said_there.text:
            author = said_there.author[:128] or "someone"
            task = load.task_by_key(tx, row.task_key)
            recovery.post(tx, task, sender=author, kind="board", text=said_there.text)
            change.record(tx, "message", task=task, agent_id=author, to=None, text=said_there.text[:200])
    if place != read_from:
        tx.do("board_fed", project_id=project_id, feed=place)
    return True


def swept(tx: Transaction, project_id: str) -> None:
    """Every card was looked at."""
    tx.do("board_swept", project_id=project_id, now_ms=tx.now_ms)
    told(tx, project_id, "")
