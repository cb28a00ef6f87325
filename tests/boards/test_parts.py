"""Boards without a server: mappings, the embedded board, outages and their backoff, gridlock alerts."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.boards.embedded import EmbeddedBoard
from tenure.boards.kinds import OPENED_BY
from tenure.boards.mapping import parse, tidy_text, tidy_title
from tenure.boards.monitor import BACKOFF_S, AssignmentMonitor, BoardDelivery, BoardFeed, Boards
from tenure.boards.port import BoardDown, BoardFault
from tenure.clock import ManualClock
from tenure.engine import alerts, boards, claims, observe
from tenure.engine.dependencies import add_dependency
from tenure.engine.endings import block
from tenure.engine.health import check_assignment_health
from tenure.monitors.gridlock import GridlockMonitor
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok, refused, take

USUAL = ["Backlog", "Ready", "Work in progress", "Done"]

MAPPINGS: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("the usual names need no words", {}, USUAL, []),
    ("a name that says nothing", {}, [*USUAL, "Zoo"], ["the column 'Zoo' has no status"]),
    ("said with words", {"columns": {"blocked": ["Zoo"]}}, [*USUAL, "Zoo"], []),
    ("a column that is not there", {"columns": {"todo": ["Nope"]}}, USUAL, ["the board has no column 'Nope'"]),
    ("a status that is none", {"columns": {"paused": ["Ready"]}}, USUAL, ["paused is not a status"]),
    ("a column twice", {"columns": {"todo": ["Done"], "done": ["Done"]}}, USUAL, ["'Done' is mapped twice"]),
    ("no place for work", {}, ["Done"], ["no column means todo", "no column means in_progress"]),
    ("two priorities on one number", {"priorities": {"low": 1}}, USUAL, ["two priorities have the same number"]),
    ("a priority that is none", {"priorities": {"huge": 9}}, USUAL, ["huge is not a priority"]),
    ("one agent behind two names", {"users": {"a": "A1", "b": "A1"}}, USUAL, ["the agent A1 has two accounts"]),
]


@pytest.mark.parametrize(("why", "config", "columns", "wrong"), MAPPINGS, ids=[row[0] for row in MAPPINGS])
def test_mapping(why: str, config: dict[str, Any], columns: list[str], wrong: list[str]) -> None:
    _, found = parse(config, columns)
    assert len(found) == len(wrong), found
    for text, said in zip(wrong, found, strict=True):
        assert text in said


def test_mapping_of_names_and_numbers() -> None:
    fit, _ = parse({"users": {"build-bot": "A1"}}, USUAL)
    assert (fit.agent_of("build-bot"), fit.agent_of("ann")) == ("A1", "ann")
    assert (fit.user_of("A1", ["build-bot"]), fit.user_of("A2", ["build-bot"])) == ("build-bot", None)
    assert [fit.priority_of(number) for number in (-1, 0, 1, 2, 3, 9)] == [
        "low",
        "low",
        "medium",
        "high",
        "critical",
        "critical",
    ]
    assert (fit.column_for("todo"), fit.column_for("blocked")) == ("Backlog", None)


def test_texts_of_people_are_made_into_texts_of_tasks() -> None:
    assert tidy_title("  a\tb\nc\x00 ") == "a b c"
    assert tidy_title("") == "(no title)"
    assert len(tidy_title("é" * 600).encode()) <= 500
    assert tidy_text("a\r\nb\x1b[31m\n\n") == "a\nb[31m"


@pytest.mark.parametrize(
    "config",
    [{"columns": 5}, {"columns": {"todo": "Ready"}}, {"users": {"a": 1}}, {"priorities": {"low": "x"}}, {"zoo": {}}],
)
def test_connect_with_a_configuration_of_the_wrong_shape_is_refused(store: SqliteStore, config: Any) -> None:
    refused(boards.connect_board(store, url="http://b", board="B", config=config), "invalid_argument")
    assert ok(boards.list_boards(store)) == ()


def test_embedded_board_is_the_store_and_always_healthy(store: SqliteStore) -> None:
    add(store, "F001")
    join(store, "A1")
    take(store, "A1")
    board = EmbeddedBoard(store)
    (card,) = board.listing()
    assert (card.card_id, card.state.status, card.state.assignee) == ("F001", "in_progress", "A1")
    assert board.card("F404") is None
    health = ok(check_assignment_health(store))
    assert (health.healthy, health.board, health.persisted_assignments) == (True, "embedded", 1)


def test_kinds_of_boards_are_the_ones_that_can_be_connected() -> None:
    assert set(OPENED_BY) == set(boards.KINDS)


def test_connect_with_another_board_begins_anew(store: SqliteStore) -> None:
    ok(boards.connect_board(store, url="http://b", board="B", token="one"))
    first = store.connection.execute("SELECT link_id FROM boards").fetchone()
    ok(boards.connect_board(store, url="http://b", board="B", token="two"))
    assert store.connection.execute("SELECT link_id FROM boards").fetchone() == first
    ok(boards.connect_board(store, url="http://b", board="C", token="two"))
    assert store.connection.execute("SELECT link_id FROM boards").fetchone() != first


class Down:
    """A board that cannot be reached."""

    def __init__(self) -> None:
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name == "close":
                return None
            self.asked += 1
            raise BoardDown("ConnectError: nobody listens")

        return call


def test_board_that_is_down_is_asked_ever_more_rarely_and_told_once(store: SqliteStore) -> None:
    ok(boards.connect_board(store, url="http://b", board="B"))
    down, now = Down(), [0.0]
    links = Boards(store, opened=lambda board: down, monotonic=lambda: now[0])
    monitor = AssignmentMonitor(links)
    waits = []
    for _ in range(7):
        wait = monitor.tick()
        waits.append(wait)
        # Nobody asks earlier than that, whoever ticks.
        BoardFeed(links).tick()
        BoardDelivery(store, links).tick()
        now[0] += wait
    assert waits == [*BACKOFF_S, BACKOFF_S[-1], BACKOFF_S[-1]]
    assert down.asked == 7
    assert ok(boards.show_board(store)).error == "ConnectError: nobody listens"
    assert len([event for event in ok(observe.events(store)) if event.kind == "board_down"]) == 1
    assert not ok(check_assignment_health(store)).healthy
    assert links.facts()[0]["failures"] == 7
    links.close()


class Unbelievable(Down):
    """A board that answers, and whose listing fails."""

    def changed(self, cursor: str) -> Any:
        self.asked += 1
        return [], "1"

    def listing(self) -> Any:
        raise BoardFault("a listing that is not believed")


def test_listing_that_fails_keeps_nobody_from_a_board_that_answers(store: SqliteStore) -> None:
    ok(boards.connect_board(store, url="http://b", board="B"))
    board, now = Unbelievable(), [0.0]
    links = Boards(store, opened=lambda row: board, monotonic=lambda: now[0])
    assert AssignmentMonitor(links).tick() == 5.0
    (link, _) = links.links()[0]
    link.reconciled = True
    asked = board.asked
    BoardFeed(links).tick()
    assert board.asked == asked + 1
    for _ in range(3):
        AssignmentMonitor(links).tick()
        BoardFeed(links).tick()
    # It is told once, and shown until a listing succeeds.
    assert len([event for event in ok(observe.events(store)) if event.kind == "board_down"]) == 1
    assert ok(boards.show_board(store)).error == "a listing that is not believed"
    board.listing = list  # type: ignore[method-assign]
    AssignmentMonitor(links).tick()
    assert (ok(boards.show_board(store)).error, links.facts()[0]["error"]) == ("", "")
    links.close()


# -- gridlock ----------------------------------------------------------------------------------------------------------


def test_gridlock_alert_is_raised_with_names_and_again_after_its_cool_down(
    store: SqliteStore, clock: ManualClock
) -> None:
    join(store, "A1")
    join(store, "A2")
    add(store, "F001")
    add(store, "F002", after=["F001"])
    monitor = GridlockMonitor(store)
    monitor.tick()
    assert raised(store) == []
    ok(block(store, task_id="F001", reason="No key.", agent_id="A1"))
    for agent in ("A1", "A2", "A1", "A1"):
        refused(claims.claim_next(store, agent_id=agent, profile="agent"), "nothing_ready")
    monitor.tick()
    monitor.tick()
    (first,) = raised(store)
    assert "F001 is blocked" in first.data
    assert '"agents":2' in first.data, "how often they ask does not count"
    clock.advance(599)
    monitor.tick()
    assert len(raised(store)) == 1
    clock.advance(1)
    monitor.tick()
    assert len(raised(store)) == 2


def test_gridlock_of_a_project_with_work_in_progress_is_none(store: SqliteStore) -> None:
    join(store, "A1")
    add(store, "F001")
    add(store, "F002", after=["F001"])
    take(store, "A1")
    assert not ok(alerts.alert_gridlock(store)).gridlocked
    ok(add_dependency(store, task_id="F002", needs="F404", allow_missing=True))
    found = ok(alerts.alert_gridlock(store))
    assert (found.gridlocked, found.raised) == (False, False)
    assert any("F404" in sentence for sentence in found.sentences)


def test_requesting_agents_are_counted_once_each_and_for_ten_minutes(store: SqliteStore, clock: ManualClock) -> None:
    for agent in ("A1", "A2", "A3"):
        join(store, agent)
    add(store, "F001")
    take(store, "A1")
    for _ in range(3):
        refused(claims.claim_next(store, agent_id="A2", profile="agent"), "nothing_ready")
    assert ok(alerts.requesting_agents(store)) == 2
    refused(claims.claim_next(store, agent_id="nobody-knows", profile="cli"), "nothing_ready")
    assert ok(alerts.requesting_agents(store)) == 2
    clock.advance(601)
    assert ok(alerts.requesting_agents(store)) == 0


def raised(store: SqliteStore) -> list[Any]:
    return [event for event in ok(observe.events(store, limit=1000)) if event.kind == "gridlock"]
