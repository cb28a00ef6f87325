"""The answer to an agent for whom nothing is ready, as a table: what was seen, and what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.gridlock import Node, gridlock
from tenure.core.prospects import MOST_S, Held, Locked, Prospects, Scene, finish_at_ms, prospects

NOW = 1_767_541_500_000
S = 1_000


def held(task_id: str = "F001", **fields: Any) -> Held:
    return Held(**{"task_id": task_id, "holder": "A1", "granted_at_ms": NOW - 60 * S, **fields})


def told(**seen: Any) -> Prospects:
    """What is said of a project with todo tasks and one in progress, unless the row says otherwise."""
    return prospects(Scene(**{"project_id": "p", "tasks": True, "todo": True, "in_progress": True, **seen}), NOW)


RETRIES: list[tuple[str, dict[str, Any], int, str]] = [
    ("a task became ready since the agent asked", {"ready": True}, 1, "ready now"),
    ("a project without tasks is not finished", {"tasks": False, "todo": False, "in_progress": False}, 60, "no tasks"),
    ("a holder's deadline", {"held": (held(returns_at_ms=NOW + 80 * S),)}, 80, "F001 is held by A1 and returns at"),
    ("part of a second counts whole", {"held": (held(returns_at_ms=NOW + 1_001),)}, 2, "F001"),
    ("a deadline that has passed", {"held": (held(returns_at_ms=NOW - S),)}, 1, "F001"),
    (
        "an announced silence is named",
        {"held": (held(returns_at_ms=NOW + 200 * S, announced_until_ms=NOW + 200 * S),)},
        200,
        "A1 announced silence until 2026-01-04T15:48:20Z",
    ),
    ("a requeue delay or not_before", {"waiting": {"F002": NOW + 30 * S}}, 30, "F002 waits until"),
    (
        "the nearest of several",
        {"waiting": {"F002": NOW + 90 * S}, "held": (held(returns_at_ms=NOW + 80 * S),)},
        80,
        "F001",
    ),
    ("a far instant is asked about sooner", {"waiting": {"F002": NOW + 86_400 * S}}, MOST_S, "F002"),
    (
        "a quarter in a minute means three more",
        {"held": (held(progress=25),), "locked": (Locked(task_id="F002", needs=("F001",)),)},
        180,
        "F002 waits for F001, which A1 has brought to 25%",
    ),
    (
        "the last of several needs decides",
        {
            "held": (held(progress=50), held("F009", holder="A2", progress=40)),
            "locked": (Locked(task_id="F002", needs=("F001", "F009")),),
        },
        90,
        "F009",
    ),
    (
        "an estimate never says: every second",
        {"held": (held(progress=100),), "locked": (Locked(task_id="F002", needs=("F001",)),)},
        10,
        "F001",
    ),
    (
        "no percentage, no estimate",
        {"held": (held(returns_at_ms=NOW + 70 * S),), "locked": (Locked(task_id="F002", needs=("F001",)),)},
        70,
        "returns at",
    ),
    (
        "a need that nobody works on leaves it open",
        {"held": (held(progress=50),), "locked": (Locked(task_id="F002", needs=("F001",), others=1),)},
        60,
        "held: F001",
    ),
    ("what unlocks nothing is no finish to wait for", {"held": (held(progress=99),)}, 60, "held: F001"),
    ("the server's own work is soon done", {"internal": {"D001": "Marcus"}}, 10, "Marcus is at work on D001"),
    (
        "the server's own work waits for a server",
        {"internal": {"D001": "Marcus"}, "served": False},
        60,
        "D001 is Marcus's, which a server does, and none is up",
    ),
    ("people take their time", {"external": {"F003": "Ann"}}, 60, "F003 is with Ann"),
    ("kept for another", {"kept": {"F004": "A7"}, "in_progress": False}, 60, "F004 for A7"),
    ("a capability is missing", {"lacking": {"F005": ("gpu",)}, "in_progress": False}, 60, "requires gpu"),
]


@pytest.mark.parametrize(("seen", "seconds", "words"), [row[1:] for row in RETRIES], ids=[row[0] for row in RETRIES])
def test_prospects_something_can_become_ready_says_when_and_why(seen: dict[str, Any], seconds: int, words: str) -> None:
    answer = told(**seen)
    assert not answer.should_exit
    assert answer.retry_after_seconds == seconds
    assert words in answer.retry_reason


def stuck(*nodes: Node) -> dict[str, Any]:
    return {"in_progress": False, "gridlock": gridlock(nodes)}


EXITS: list[tuple[str, dict[str, Any], str, str]] = [
    ("all done", {"todo": False, "in_progress": False}, "finished", "Every task of project p is done."),
    (
        "done but for what was given up",
        {"todo": False, "in_progress": False, "dead": {"F001": "used all 3 attempts"}},
        "finished",
        "F001 is dead (“used all 3 attempts”).",
    ),
    (
        "only blocked tasks are left",
        {"todo": False, "in_progress": False, "blocked": {"F001": "no key"}},
        "blocked",
        "F001 is blocked (“no key”).",
    ),
    (
        "a cycle",
        stuck(Node(task_id="A", status="todo", needs=("B",)), Node(task_id="B", status="todo", needs=("A",))),
        "gridlocked",
        "A needs B needs A: a cycle",
    ),
    ("a missing dependency", stuck(Node(task_id="A", status="todo", needs=("X",))), "gridlocked", "A needs X, which"),
    (
        "a blocked upstream",
        stuck(
            Node(task_id="A", status="todo", needs=("B",)), Node(task_id="B", status="blocked", blocked_reason="no key")
        ),
        "gridlocked",
        "B is blocked (“no key”) and holds up A",
    ),
]


@pytest.mark.parametrize(("seen", "outlook", "words"), [row[1:] for row in EXITS], ids=[row[0] for row in EXITS])
def test_prospects_nothing_can_become_ready_says_go_and_names_it(
    seen: dict[str, Any], outlook: str, words: str
) -> None:
    answer = told(**seen)
    assert (answer.outlook, answer.should_exit, answer.retry_after_seconds) == (outlook, True, None)
    assert any(words in line for line in (answer.retry_reason, *answer.why))


def test_prospects_gridlock_above_while_work_goes_on_stays_and_tells() -> None:
    answer = told(
        waiting={"F009": NOW + S},
        **stuck(Node(task_id="A", status="todo", needs=("X",)), Node(task_id="F009", status="todo")),
    )
    assert not answer.should_exit
    assert "A needs X" in answer.why[0]


def test_finish_is_the_speed_so_far() -> None:
    assert finish_at_ms(held(progress=0), NOW) is None
    assert finish_at_ms(held(progress=60), NOW) == NOW + 40 * S
    assert finish_at_ms(held(granted_at_ms=NOW + S, progress=60), NOW) == NOW, "a clock that was set back"


def test_prospects_hostile_names_stay_on_one_line() -> None:
    answer = told(external={"F\n1\x1b[31m": "Ann\nBob"})
    assert "\n" not in answer.retry_reason
    assert "\x1b" not in answer.retry_reason
