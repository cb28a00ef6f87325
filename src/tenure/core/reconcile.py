"""A task, its card on a board, and who is right about what.

Three things are compared: what the engine *wants* the card to show, the *card* as it was just read, and the *base*, the
card as it was last written or seen. Field by field:

    card = base                ours stands; what differs from the card is to be written
    card = wanted              both say the same; the base follows
    card ≠ base, ≠ wanted      somebody acted on the board: their act is applied, our write of that field is dropped

So the board wins on status, and an act is applied once: after it the base is the card. Without a base (a card met for
the first time, or a store restored from an old copy) every field of the card counts as an act.

What an act on status or assignee means is a table over (present, status, who), made total: *present* is whether a live
lease says that an agent is at work; *who* is the card's assignee, seen from that lease. The engine wins on leases: no
row gives a lease to anyone but a registered agent, and none keeps one that the board contradicts. The specification's
six rows are in it.

The four reversions of the specification say which of these acts took a task from under its holder; they are counted,
and three of one task raise an alert.

Not promised: that an act made on the board within the moment between our read of a card and our write of it survives.
A board without conditional writes cannot promise that; its activity shows the act.
"""

from __future__ import annotations

from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    Who = Literal["nobody", "same", "agent", "outsider"]
    CardStatus = Literal["todo", "in_progress", "blocked", "done"]
    # A card's id and the time of its making.
    Name = tuple[str, str]

# What a board shows. `dead` has no column of its own: it is shown as blocked.
CARD_STATUSES = ("todo", "in_progress", "blocked", "done")
WHO = ("nobody", "same", "agent", "outsider")
REVERSIONS_ALERT = 3
# Who holds a card that is in progress and names nobody.
SOMEONE = "someone-on-the-board"


class CardState(Record):
    """What a card says, in our words. `assignee` is an agent's id or, for others, their name on the board."""

    title: str
    status: CardStatus = "todo"
    assignee: str | None = None
    body: str = ""
    priority: str = "medium"
    # Ids of the tasks it waits for, sorted; None where nobody looked.
    needs: tuple[str, ...] | None = None


FIELDS = CardState._fields


class Assignment(Record):
    """What the engine knows of a task. `holder`: the agent of its live lease. `status` is the derived one."""

    status: str
    holder: str | None = None
    owner: str | None = None
    assigned_to: str | None = None


class Merge(Record):
    """The outcome of a comparison: what somebody did, what is to be written, and the base if both are done."""

    acts: Mapping[str, Any]
    writes: Mapping[str, Any]
    base: CardState


def merge(wanted: CardState, card: CardState, base: CardState | None) -> Merge:
    """Compare three ways. Fields that one side does not know (None needs) are left alone."""
    acts: dict[str, Any] = {}
    writes: dict[str, Any] = {}
    for field in FIELDS:
        ours, theirs = getattr(wanted, field), getattr(card, field)
        before = getattr(base, field) if base is not None else None
        if field == "needs" and (theirs is None or ours is None):
            continue
        if ours == theirs:
            continue
        if base is not None and theirs == before:
            writes[field] = ours
        else:
            acts[field] = theirs
    return Merge(acts=acts, writes=writes, base=_known(card, base))


def _known(card: CardState, base: CardState | None) -> CardState:
    """The card as the new base; what was not looked at stays as it was last seen."""
    return card.replace(needs=base.needs) if card.needs is None and base is not None else card


def settled(before: CardState, writes: Mapping[str, Any], after: CardState) -> tuple[CardState, list[str]]:
    """The base after a write, and the fields whose write did not take, by what a read afterwards shows.

    A field that shows neither what it was nor what we wrote was changed by somebody in between; the base keeps what we
    wrote, so that the next comparison finds their act.
    """
    base, failed = before, []
    for field, written in writes.items():
        seen = getattr(after, field)
        if seen == getattr(before, field) and seen != written:
            failed.append(field)
        else:
            base = base.replace(**{field: written})
    return base, failed


# -- what the engine wants a card to show ------------------------------------------------------------------------------


def wanted(task: Mapping[str, Any], status: str, base: CardState | None, *, base_is_agent: bool) -> CardState:
    """The card a task should have. `task` has title, body, priority, assigned_to, owner, needs.

    Where the engine has no opinion the card stays as people left it: an outsider's card stays in its column, and an
    outsider's name on a blocked or finished card is not ours to take off.
    """
    shown: Any = "blocked" if status == "dead" else status
    assignee = task["assigned_to"] if status in ("in_progress", "todo", "done") else None
    if task["owner"] == "external":
        assignee = None if assignee == SOMEONE else assignee
        if base is not None and base.status in ("todo", "in_progress"):
            shown = base.status
    if base is not None:
        outsider = base.assignee is not None and not base_is_agent
        if (status == "done" and base.assignee is not None) or (shown == "blocked" and outsider):
            assignee = base.assignee
    return CardState(
        title=task["title"],
        status=shown,
        assignee=assignee,
        body=task["body"],
        priority=task["priority"],
        needs=task["needs"],
    )


# -- the table ---------------------------------------------------------------------------------------------------------

# What is done about a task. The engine's verbs carry it out (engine/board_acts.py).
ACTIONS = {
    "keep": "nothing: the board and the engine agree",
    "remove": "the lease is revoked (moved_on_board) and the task is on offer again",
    "keep_for": "the lease, if any, is revoked; the task is kept for the card's agent",
    "restore": "the lease of another, if any, is revoked; the card's agent gets one in its name",
    "external": "the lease, if any, is revoked; the card's holder owns the task, without a lease",
    "complete": "the task is done, by its holder",
    "complete_by": "the task is done, by whom the card names or who moved it; a lease ends as completed elsewhere",
    "block": "the lease, if any, ends with a handoff; the task is blocked",
    "free": "the task is on offer to anyone",
    "delete": "the lease, if any, is revoked (deleted); the task is deleted",
}

# (present, status, who): action. `missing` is a card that the server says is gone; nobody is then named.
TABLE: dict[tuple[bool, str, str], str] = {
    (True, "todo", "nobody"): "remove",
    (True, "todo", "same"): "remove",
    (True, "todo", "agent"): "keep_for",
    (True, "todo", "outsider"): "external",
    (True, "in_progress", "nobody"): "external",
    (True, "in_progress", "same"): "keep",
    (True, "in_progress", "agent"): "restore",
    (True, "in_progress", "outsider"): "external",
    (True, "done", "nobody"): "complete_by",
    (True, "done", "same"): "complete",
    (True, "done", "agent"): "complete_by",
    (True, "done", "outsider"): "complete_by",
    (True, "blocked", "nobody"): "block",
    (True, "blocked", "same"): "block",
    (True, "blocked", "agent"): "block",
    (True, "blocked", "outsider"): "block",
    (True, "missing", "nobody"): "delete",
    (False, "todo", "nobody"): "free",
    (False, "todo", "agent"): "keep_for",
    (False, "todo", "outsider"): "external",
    (False, "in_progress", "nobody"): "external",
    (False, "in_progress", "agent"): "restore",
    (False, "in_progress", "outsider"): "external",
    (False, "done", "nobody"): "complete_by",
    (False, "done", "agent"): "complete_by",
    (False, "done", "outsider"): "complete_by",
    (False, "blocked", "nobody"): "block",
    (False, "blocked", "agent"): "block",
    (False, "blocked", "outsider"): "block",
    (False, "missing", "nobody"): "delete",
}


def who(assignment: Assignment, assignee: str | None, is_agent: bool) -> Who:
    """The card's assignee, seen from the lease: "same" is its holder, and only a live lease has one."""
    if assignee is None:
        return "nobody"
    if assignment.holder is not None and assignee == assignment.holder:
        return "same"
    return "agent" if is_agent else "outsider"


def row(
    assignment: Assignment, card: CardState | None, *, is_agent: bool, assignee_acted: bool = True
) -> tuple[bool, str, str]:
    """The row of the table for a card that differs from its base; None is a card that is gone.

    A board may be unable to show an agent by name. Then a card that names nobody, as it did before, still means its
    holder, unless somebody took a name off it (`assignee_acted`).
    """
    present = assignment.holder is not None
    if card is None:
        return present, "missing", "nobody"
    seen = who(assignment, card.assignee, is_agent)
    if present and seen == "nobody" and not assignee_acted and card.status == "in_progress":
        seen = "same"
    return present, card.status, seen


def action(
    assignment: Assignment, card: CardState | None, *, is_agent: bool, assignee_acted: bool = True
) -> tuple[str, tuple[bool, str, str]]:
    """What is to be done, and by which row. Nothing where the engine is already as the board says."""
    key = row(assignment, card, is_agent=is_agent, assignee_acted=assignee_acted)
    chosen = TABLE[key]
    if card is not None and not key[0] and _already(assignment, card, chosen):
        chosen = "keep"
    return chosen, key


def _already(assignment: Assignment, card: CardState, chosen: str) -> bool:
    """Whether a task that nobody holds is already as the action would leave it."""
    status, named = assignment.status, assignment.assigned_to
    if chosen == "free":
        return status == "todo" and named is None
    if chosen == "keep_for":
        return status == "todo" and assignment.owner == "agent" and named == card.assignee
    if chosen == "external":
        # The reserved owner's task is in progress without a lease, and the card may be unable to name it.
        reserved = assignment.owner == "internal" and card.status == "in_progress" and card.assignee in (None, named)
        return reserved or (assignment.owner == "external" and named == (card.assignee or SOMEONE))
    if chosen == "block":
        return status in ("blocked", "dead")
    return chosen == "complete_by" and status == "done"


# -- the four reversions -----------------------------------------------------------------------------------------------

REVERSIONS = {
    1: "the card went back to todo",
    2: "the card is in progress under another name",
    3: "the card was completed by someone else",
    4: "the card is blocked and names nobody",
}


def reversion(card: CardState, worker_id: str) -> int | None:
    """Which of the specification's four cases took the task from under its holder, or None."""
    if card.status == "todo":
        return 1
    if card.status == "in_progress" and card.assignee != worker_id:
        return 2
    if card.status == "done" and card.assignee != worker_id:
        return 3
    if card.status == "blocked" and not card.assignee:
        return 4
    return None


# -- health ------------------------------------------------------------------------------------------------------------


class Mismatch(Record):
    """One task whose assignment, holding and card do not agree."""

    task_id: str
    problem: str


class AssignmentHealth(Record):
    """`check_assignment_health`: what is persisted, what the board shows, and where they differ.

    An external board's side is its cards as last seen. A difference that is still to be written is `pending`, and no
    mismatch.
    """

    healthy: bool
    # Tasks that an agent holds under a live lease, and tasks that the board shows as in progress, whoever has them.
    persisted_assignments: int
    kanban_assigned_tasks: int
    mismatches: tuple[Mismatch, ...]
    pending: int = 0
    parked: int = 0
    board: str = "embedded"
    error: str = ""


def mismatch(task_id: str, seen: CardState, shown: CardState) -> Mismatch | None:
    """How board and engine see an assignment differently, or None. `shown` is what we would show."""
    if (seen.status, seen.assignee) == (shown.status, shown.assignee):
        return None
    ours = f"{shown.status} ({shown.assignee or 'nobody'})"
    theirs = f"{seen.status} ({seen.assignee or 'nobody'})"
    return Mismatch(task_id=task_id, problem=f"{ours} here, {theirs} on the board")


def missing_cards(known: Sequence[Name], listed: Sequence[Name], *, believe: bool = False) -> list[Name] | None:
    """The known cards that a listing does not show; None when so many are missing that the listing is not believed.

    An empty listing of a board that had cards, or one that lost most of them at once, is an outage, or a board that was
    restored from an old copy, which would say of each card that there is none. Only somebody who knows better may say
    that they were deleted (`believe`).
    """
    there = set(listed)
    gone = [card for card in known if card not in there]
    if known and not believe and (not listed or len(gone) > max(3, len(known) // 2)):
        return None
    return gone
