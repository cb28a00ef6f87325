"""The rules of boards as tables: the three-way merge, every combination of the reconciler, the four reversions."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tenure.core.reconcile import (
    ACTIONS,
    CARD_STATUSES,
    REVERSIONS,
    SOMEONE,
    TABLE,
    WHO,
    Assignment,
    CardState,
    Mismatch,
    action,
    merge,
    mismatch,
    missing_cards,
    reversion,
    row,
    settled,
    wanted,
)

BASE = CardState(title="T", status="in_progress", assignee="A1")


def card(status: Any = "todo", assignee: str | None = None, **more: Any) -> CardState:
    return CardState(title="T", status=status, assignee=assignee, **more)


# -- three ways --------------------------------------------------------------------------------------------------------

TODO, DOING, DONE = (card(status) for status in ("todo", "in_progress", "done"))

# what we want, what the card shows, what it was: (what somebody did, what is to be written)
MERGES = [
    ("all agree", TODO, TODO, TODO, {}, {}),
    ("ours changed and stands", DOING, TODO, TODO, {}, {"status": "in_progress"}),
    ("theirs changed and is applied", TODO, DOING, TODO, {"status": "in_progress"}, {}),
    ("both changed to the same", DONE, DONE, TODO, {}, {}),
    ("both changed: the person wins and our write is dropped", DONE, DOING, TODO, {"status": "in_progress"}, {}),
    ("a card never seen before: the board is right", TODO, DOING, None, {"status": "in_progress"}, {}),
    ("a card never seen before that agrees", TODO, TODO, None, {}, {}),
    (
        "they renamed it while we moved it: both are kept",
        DOING,
        TODO.replace(title="New"),
        TODO,
        {"title": "New"},
        {"status": "in_progress"},
    ),
    (
        "they took the name off while we finished it",
        card("done", "A1"),
        card("in_progress", None),
        card("in_progress", "A1"),
        {"assignee": None},
        {"status": "done"},
    ),
    ("links nobody looked at are left alone", TODO.replace(needs=("B",)), TODO, TODO.replace(needs=()), {}, {}),
    (
        "a new dependency of ours",
        TODO.replace(needs=("B",)),
        TODO.replace(needs=()),
        TODO.replace(needs=()),
        {},
        {"needs": ("B",)},
    ),
    (
        "a dependency they drew",
        TODO.replace(needs=()),
        TODO.replace(needs=("B",)),
        TODO.replace(needs=()),
        {"needs": ("B",)},
        {},
    ),
]


@pytest.mark.parametrize(("why", "ours", "seen", "base", "acts", "writes"), MERGES, ids=[row[0] for row in MERGES])
def test_merge(why: str, ours: CardState, seen: CardState, base: CardState | None, acts: Any, writes: Any) -> None:
    found = merge(ours, seen, base)
    assert (dict(found.acts), dict(found.writes)) == (acts, writes)
    assert found.base == (seen if seen.needs is not None or base is None else seen.replace(needs=base.needs))


def test_merge_after_an_act_was_applied_finds_nothing_more() -> None:
    """An act is applied once: with the card as the base and the engine as the card, all agree."""
    states = [card(status, name) for status, name in product(CARD_STATUSES, (None, "A1", "ann"))]
    for ours, seen, base in product(states, states, [None, *states]):
        first = merge(ours, seen, base)
        after = ours.replace(**first.acts)
        again = merge(after, seen, first.base)
        assert again.acts == {}
        # What is left to write is what we wanted all along and nobody contradicted.
        assert again.writes == first.writes
        written = seen.replace(**first.writes)
        assert merge(after, written, written).writes == {}


SETTLED = [
    ("it took", {"status": "done"}, DONE, DONE, []),
    ("it did not take", {"status": "done"}, TODO, TODO, ["status"]),
    ("somebody moved it in between: the base is ours, their act is found next", {"status": "done"}, DOING, DONE, []),
    ("another field was changed in between", {"status": "done"}, DONE.replace(title="New"), DONE, []),
    ("half of it took", {"status": "done", "title": "New"}, DONE, DONE, ["title"]),
]


@pytest.mark.parametrize(("why", "writes", "after", "base", "failed"), SETTLED, ids=[row[0] for row in SETTLED])
def test_settled(why: str, writes: Any, after: CardState, base: CardState, failed: list[str]) -> None:
    assert settled(TODO, writes, after) == (base, failed)


# -- the reconciler's table --------------------------------------------------------------------------------------------

# The specification's own six rows: (present, board status, board assignee), what it says, and our action.
SPECIFIED = [
    (True, "todo", "nobody", "Remove assignment (task was reverted)", "remove"),
    (True, "done", "agent", "Remove assignment (finished by someone else)", "complete_by"),
    (True, "in_progress", "same", "Keep: valid assignment", "keep"),
    (True, "in_progress", "agent", "Remove assignment (reassigned)", "restore"),
    (False, "in_progress", "agent", "Restore: orphaned in-progress task", "restore"),
    (True, "missing", "nobody", "Remove assignment (task deleted)", "delete"),
]


@pytest.mark.parametrize(("present", "status", "who", "says", "chosen"), SPECIFIED, ids=[row[3] for row in SPECIFIED])
def test_table_has_the_rows_of_the_specification(present: bool, status: str, who: str, says: str, chosen: str) -> None:
    assert TABLE[present, status, who] == chosen


def test_table_is_total() -> None:
    combinations = {(True, status, who) for status, who in product(CARD_STATUSES, WHO)}
    # Without a live lease nobody is the same as its holder.
    combinations |= {(False, status, who) for status, who in product(CARD_STATUSES, WHO) if who != "same"}
    combinations |= {(present, "missing", "nobody") for present in (True, False)}
    assert TABLE.keys() == combinations
    assert set(TABLE.values()) <= ACTIONS.keys()


def test_table_gives_a_lease_only_to_a_registered_agent() -> None:
    assert {key[2] for key, chosen in TABLE.items() if chosen in ("restore", "keep_for")} == {"agent"}
    for (present, status, who), chosen in TABLE.items():
        if present and who in ("agent", "outsider"):
            assert chosen != "keep", (status, who)


def test_table_never_moves_a_card_that_an_outsider_holds() -> None:
    for (_, status, who), chosen in TABLE.items():
        if who == "outsider" and status in ("todo", "in_progress"):
            assert chosen == "external"


def test_row_of_every_engine_state_and_card_exists() -> None:
    engine = [
        Assignment(status="in_progress", holder="A1", owner="agent", assigned_to="A1"),
        Assignment(status="todo"),
        Assignment(status="todo", owner="agent", assigned_to="A2"),
        Assignment(status="in_progress", owner="external", assigned_to="ann"),
        Assignment(status="in_progress", owner="internal", assigned_to="Marcus"),
        *(Assignment(status=status) for status in ("blocked", "dead", "done")),
    ]
    cards = [None, *(card(status, name) for status, name in product(CARD_STATUSES, (None, "A1", "A2", "ann")))]
    for known, seen, acted in product(engine, cards, (True, False)):
        is_agent = seen is not None and seen.assignee in ("A1", "A2")
        chosen, key = action(known, seen, is_agent=is_agent, assignee_acted=acted)
        assert key in TABLE
        assert chosen in (TABLE[key], "keep")


HELD = Assignment(status="in_progress", holder="A1", owner="agent", assigned_to="A1")


def test_row_of_a_holder_that_the_board_cannot_name_is_the_same_until_somebody_takes_a_name_off() -> None:
    nameless = card("in_progress")
    assert row(HELD, nameless, is_agent=False, assignee_acted=False)[2] == "same"
    assert row(HELD, nameless, is_agent=False, assignee_acted=True)[2] == "nobody"
    # To put the card back to todo is an act, whoever's name it carries.
    assert action(HELD, card("todo"), is_agent=False, assignee_acted=False)[0] == "remove"


ALREADY = [
    (Assignment(status="todo"), card("todo")),
    (Assignment(status="todo", owner="agent", assigned_to="A2"), card("todo", "A2")),
    (Assignment(status="in_progress", owner="external", assigned_to="ann"), card("todo", "ann")),
    (Assignment(status="in_progress", owner="external", assigned_to="ann"), card("in_progress", "ann")),
    (Assignment(status="in_progress", owner="external", assigned_to=SOMEONE), card("in_progress")),
    (Assignment(status="in_progress", owner="internal", assigned_to="Marcus"), card("in_progress")),
    (Assignment(status="blocked"), card("blocked", "ann")),
    (Assignment(status="dead"), card("blocked")),
    (Assignment(status="done", assigned_to="A1"), card("done", "A1")),
    (Assignment(status="done", assigned_to="A1"), card("done", "ann")),
]


@pytest.mark.parametrize(("known", "seen"), ALREADY)
def test_action_for_a_task_that_is_already_so_is_nothing(known: Assignment, seen: CardState) -> None:
    assert action(known, seen, is_agent=seen.assignee in ("A1", "A2"))[0] == "keep"


# -- the four reversions -----------------------------------------------------------------------------------------------

CASES = [
    ("todo", None, 1),
    ("todo", "A1", 1),
    ("todo", "A2", 1),
    ("in_progress", "A1", None),
    ("in_progress", "A2", 2),
    ("in_progress", None, 2),
    ("done", "A1", None),
    ("done", "A2", 3),
    ("done", None, 3),
    ("blocked", None, 4),
    ("blocked", "A1", None),
    ("blocked", "A2", None),
]


@pytest.mark.parametrize(("status", "assignee", "case"), CASES)
def test_reversion_is_the_specification_case_for_case(status: str, assignee: str | None, case: int | None) -> None:
    assert reversion(card(status, assignee), "A1") == case
    assert case is None or case in REVERSIONS


# -- what a card should show -------------------------------------------------------------------------------------------


def task(**more: Any) -> dict[str, Any]:
    return {"title": "T", "body": "", "priority": "medium", "assigned_to": None, "owner": None, "needs": (), **more}


WANTED = [
    ("held by an agent", task(assigned_to="A1", owner="agent"), "in_progress", None, ("in_progress", "A1")),
    ("kept for an agent", task(assigned_to="A1", owner="agent"), "todo", None, ("todo", "A1")),
    ("free", task(), "todo", card("in_progress", "A1"), ("todo", None)),
    ("dead shows as blocked", task(), "dead", None, ("blocked", None)),
    (
        "an outsider's card stays in todo",
        task(assigned_to="ann", owner="external"),
        "in_progress",
        card("todo", "ann"),
        ("todo", "ann"),
    ),
    (
        "an outsider's card in progress",
        task(assigned_to="ann", owner="external"),
        "in_progress",
        None,
        ("in_progress", "ann"),
    ),
    (
        "somebody's card names nobody",
        task(assigned_to=SOMEONE, owner="external"),
        "in_progress",
        card("in_progress"),
        ("in_progress", None),
    ),
    ("an outsider's name on a blocked card stays", task(), "blocked", card("blocked", "ann"), ("blocked", "ann")),
    ("an agent's name on a blocked card goes", task(), "blocked", card("in_progress", "A1"), ("blocked", None)),
    (
        "whoever stands on a finished card stays",
        task(assigned_to="A1"),
        "done",
        card("in_progress", "A2"),
        ("done", "A2"),
    ),
]


@pytest.mark.parametrize(("why", "known", "status", "base", "shown"), WANTED, ids=[row[0] for row in WANTED])
def test_wanted(why: str, known: Any, status: str, base: CardState | None, shown: tuple[str, str | None]) -> None:
    is_agent = base is not None and base.assignee in ("A1", "A2")
    found = wanted(known, status, base, base_is_agent=is_agent)
    assert (found.status, found.assignee) == shown


# -- listings and health -----------------------------------------------------------------------------------------------

A, B, C, D, E, F, G, H = ((letter, "1") for letter in "ABCDEFGH")
LISTINGS = [
    ("nothing is missing", [A, B], [B, A], []),
    ("one of several is", [A, B, C, D, E], [A, B, C, D], [E]),
    ("an empty listing is an outage", [A], [], None),
    ("most of the cards gone at once is an outage", [A, B, C, D, E, F, G, H], [A, B, C], None),
    ("nothing was known", [], [], []),
    ("the id is there, and it is another card", [A, B], [("A", "2"), B], [A]),
]


@pytest.mark.parametrize(("why", "known", "listed", "missing"), LISTINGS, ids=[row[0] for row in LISTINGS])
def test_missing_cards(why: str, known: Any, listed: Any, missing: Any) -> None:
    assert missing_cards(known, listed) == missing


def test_mismatch_names_both_sides() -> None:
    said = mismatch("F001", card("todo"), card("in_progress", "A1"))
    assert said == Mismatch(task_id="F001", problem="in_progress (A1) here, todo (nobody) on the board")
    assert mismatch("F001", card("todo"), card("todo")) is None
