"""Every row of the reconciler's table and every reversion, once, end to end with a real Kanboard.

A person's hand is a call with that person's password; the board shows it in its activity, and shows ours not.
"""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.reconcile import SOMEONE, TABLE
from tenure.engine import boards, liveness, tasks
from tests.boards.scene import Scene
from tests.support import ok, refused

COLUMNS = {"todo": "Ready", "in_progress": "Work in progress", "done": "Done", "blocked": "Blocked"}

# (present, status, who): what the engine says afterwards (status, assigned to, owner), and who holds a lease.
AFTER: dict[tuple[bool, str, str], tuple[tuple[str, str | None, str | None], str | None]] = {
    (True, "todo", "nobody"): (("todo", None, None), None),
    (True, "todo", "same"): (("todo", None, None), None),
    (True, "todo", "agent"): (("todo", "A2", "agent"), None),
    (True, "todo", "outsider"): (("in_progress", "ann", "external"), None),
    (True, "in_progress", "nobody"): (("in_progress", SOMEONE, "external"), None),
    (True, "in_progress", "agent"): (("in_progress", "A2", "agent"), "A2"),
    (True, "in_progress", "outsider"): (("in_progress", "ann", "external"), None),
    (True, "done", "nobody"): (("done", "ann", None), None),
    (True, "done", "same"): (("done", "A1", None), None),
    (True, "done", "agent"): (("done", "A2", None), None),
    (True, "done", "outsider"): (("done", "ann", None), None),
    (True, "blocked", "nobody"): (("blocked", None, None), None),
    (True, "blocked", "same"): (("blocked", None, None), None),
    (True, "blocked", "agent"): (("blocked", None, None), None),
    (True, "blocked", "outsider"): (("blocked", None, None), None),
    (False, "todo", "agent"): (("todo", "A2", "agent"), None),
    (False, "todo", "outsider"): (("in_progress", "ann", "external"), None),
    (False, "in_progress", "nobody"): (("in_progress", SOMEONE, "external"), None),
    (False, "in_progress", "agent"): (("in_progress", "A2", "agent"), "A2"),
    (False, "in_progress", "outsider"): (("in_progress", "ann", "external"), None),
    (False, "done", "nobody"): (("done", "ann", None), None),
    (False, "done", "agent"): (("done", "A2", None), None),
    (False, "done", "outsider"): (("done", "ann", None), None),
    (False, "blocked", "nobody"): (("blocked", None, None), None),
    (False, "blocked", "agent"): (("blocked", None, None), None),
    (False, "blocked", "outsider"): (("blocked", None, None), None),
}
# The rows in which nothing happens, and those of cards that are gone, have tests of their own.
QUIET = {(True, "in_progress", "same"), (False, "todo", "nobody")}
GONE = {(True, "missing", "nobody"), (False, "missing", "nobody")}


def test_rows_that_are_tried_are_all_rows() -> None:
    assert AFTER.keys() | QUIET | GONE == TABLE.keys()


@pytest.mark.parametrize("row", AFTER, ids=lambda row: f"{'held' if row[0] else 'free'}-{row[1]}-{row[2]}")
def test_row_with_a_real_board(scene: Scene, row: tuple[bool, str, str]) -> None:
    present, status, who = row
    scene.connect()
    if present:
        card = scene.held()
    else:
        scene.add()
        scene.sync.deliver()
        card = scene.card()
    users = {"nobody": 0, "same": scene.accounts["A1"].user_id, "agent": scene.accounts["A2"].user_id}
    user = {**users, "outsider": scene.ann.user_id}[who]
    if not (present and who == "same") and not (not present and who == "nobody"):
        scene.ann.assign(card, user)
    if not (status == "in_progress" and present) and not (status == "todo" and not present):
        scene.ann.drag(card, COLUMNS[status])
    scene.sync.listen()
    assert (scene.known(), scene.holder()) == AFTER[row]
    scene.settle()
    # The person's card stays where that person put it, and says what they said.
    assert scene.known() == AFTER[row][0]
    told = scene.shown()
    assert told[0] == status
    if who == "outsider":
        assert told == (status, "ann")


def test_rows_in_which_nothing_is_to_be_done(scene: Scene) -> None:
    scene.connect()
    scene.held()
    scene.add("F002")
    scene.settle()
    versions = [scene.task(one).version for one in ("F001", "F002")]
    scene.sync.sweep()
    assert scene.known() == ("in_progress", "A1", "agent")
    assert [scene.task(one).version for one in ("F001", "F002")] == versions


@pytest.mark.parametrize("held", [True, False])
def test_row_of_a_card_that_is_gone(scene: Scene, held: bool) -> None:
    """Deleted is what the server says is not there, for that id, twice."""
    scene.connect()
    for number in range(6):
        scene.add(f"K{number}")
    scene.sync.deliver()
    card = scene.held() if held else None
    if card is None:
        scene.add()
        scene.sync.deliver()
        card = scene.card()
    assert scene.server.call("removeTask", task_id=card)
    assert scene.sync.sweep().suspected == 1
    assert scene.known()[0] == ("in_progress" if held else "todo")
    assert scene.sync.sweep().deleted == 1
    refused(liveness.report(scene.store, task_id="F001", agent_id="A1", progress=5), "task_not_found")
    scene.settle()


# case: what the person does
REVERSIONS: dict[int, tuple[str | None, str | None]] = {
    1: ("Ready", None),
    2: (None, "A2"),
    3: ("Done", "A2"),
    4: ("Blocked", ""),
}


@pytest.mark.parametrize("case", REVERSIONS)
def test_reversion_ends_the_lease_and_its_holder_is_told(scene: Scene, case: int) -> None:
    scene.connect()
    card = scene.held()
    column, name = REVERSIONS[case]
    if name is not None:
        scene.ann.assign(card, scene.accounts[name].user_id if name else 0)
    if column is not None:
        scene.ann.drag(card, column)
    found = scene.sync.sweep()
    assert found.reversions == 1
    assert scene.holder() != "A1"
    answer: Any = liveness.report(scene.store, task_id="F001", agent_id="A1", progress=50)
    assert answer.code in ("lease_lost", "task_done", "task_blocked")
    if case in (1, 2):
        assert "moved_on_board" in answer.message
    scene.settle()


def test_three_reversions_of_one_task_raise_an_alert(scene: Scene) -> None:
    scene.connect()
    card = scene.held()
    for time in range(3):
        if time:
            scene.take()
            scene.settle()
        scene.ann.drag(card, "Ready")
        scene.sync.sweep()
        assert len(scene.events("board_alert")) == (time == 2)
    assert scene.events("board_alert")[0].task_id == "F001"


def test_restored_orphan_that_never_shows_is_recovered_with_a_handoff(scene: Scene) -> None:
    from tenure.engine.recovery import advance

    scene.connect()
    scene.add()
    scene.sync.deliver()
    card = scene.card()
    scene.ann.assign(card, scene.accounts["A2"].user_id)
    scene.ann.drag(card, "Work in progress")
    assert scene.sync.sweep().restored == 1
    assert scene.holder() == "A2"
    scene.clock.advance(81)
    assert ok(advance(scene.store)).recovered == 1
    scene.settle()
    assert (scene.known(), scene.shown()) == (("todo", None, None), ("todo", None))
    assert any("Taken back from A2" in text for text in scene.comments(card))


def test_agent_that_has_no_account_holds_a_card_that_names_nobody(scene: Scene) -> None:
    scene.connect()
    card = scene.held("A9")
    assert scene.shown() == ("in_progress", None)
    scene.settle()
    assert scene.holder() == "A9"
    scene.ann.drag(card, "Backlog")
    scene.sync.listen()
    assert scene.known() == ("todo", None, None)
    scene.settle()


def test_card_of_the_reserved_owner_stays(scene: Scene) -> None:
    scene.connect()
    scene.add(assigned_to="Marcus")
    scene.settle()
    assert scene.known() == ("in_progress", "Marcus", "internal")
    assert scene.shown() == ("in_progress", None)


def test_edits_by_hand_become_edits(scene: Scene) -> None:
    scene.connect()
    scene.add()
    scene.sync.deliver()
    scene.ann.do("updateTask", id=scene.card(), title="Better", description="More\r\nof it", priority=3)
    assert scene.sync.listen() == 1
    task = scene.task()
    assert (task.title, task.body, task.priority) == ("Better", "More\nof it", "critical")
    scene.settle()


def test_comment_by_hand_goes_to_the_thread_once_and_does_not_come_back(scene: Scene) -> None:
    from tenure.engine.notes import thread

    scene.connect()
    card = scene.held()
    scene.ann.do("createComment", task_id=card, user_id=scene.ann.user_id, content="Mind the gap.")
    scene.sync.listen()
    scene.sync.listen()
    said = [message.text for message in ok(thread(scene.store, task_id="F001")) if message.sender == "ann"]
    assert said == ["Mind the gap."]
    scene.settle()
    assert scene.comments(card) == ["Mind the gap."]


def test_dependencies_go_both_ways(scene: Scene) -> None:
    from tenure.engine.dependencies import remove_dependency

    scene.connect()
    scene.add("F001")
    scene.add("F002", after=["F001"])
    scene.settle()
    one, two = scene.card("F001"), scene.card("F002")
    assert scene.api.links(str(two)) == [str(one)]
    third = scene.ann.add("by hand")
    scene.sync.sweep()
    links = {link["label"]: link["id"] for link in scene.server.call("getAllLinks")}
    scene.ann.do("createTaskLink", task_id=third, opposite_task_id=two, link_id=links["is blocked by"])
    scene.sync.listen()
    waiting = scene.task(f"KB-{third}")
    assert waiting.unmet == 1
    ok(remove_dependency(scene.store, task_id="F002", needs="F001"))
    scene.settle()
    assert scene.api.links(str(two)) == []


def test_agent_named_on_a_card_that_waits_is_refused_and_told(scene: Scene) -> None:
    scene.connect()
    scene.add("F001")
    scene.add("F002", after=["F001"])
    scene.settle()
    card = scene.card("F002")
    scene.ann.assign(card, scene.accounts["A2"].user_id)
    scene.ann.drag(card, "Work in progress")
    found = scene.sync.sweep()
    assert found.refused == 1
    assert scene.holder("F002") is None
    scene.settle()
    assert scene.shown("F002") == ("todo", "A2"), "kept for the agent, and back in its column"
    assert any("could not be done" in text for text in scene.comments(card))


def test_deleted_task_puts_its_card_away_and_it_is_not_imported_again(scene: Scene) -> None:
    scene.connect()
    scene.add()
    scene.add("F002")
    scene.settle()
    card = scene.card()
    ok(tasks.delete_task(scene.store, task_id="F001"))
    scene.settle()
    assert int(scene.server.call("getTask", task_id=card)["is_active"]) == 0
    scene.ann.do("openTask", task_id=card)
    assert scene.sync.sweep().imported == 1
    assert scene.known(f"KB-{card}")[0] == "todo"
    scene.settle()


def test_id_that_is_used_again_is_another_card(scene: Scene) -> None:
    """Kanboard gives the number of the last deleted card to the next one."""
    scene.connect()
    for number in range(6):
        scene.add(f"K{number}")
    scene.held()
    scene.settle()
    card = scene.card()
    assert scene.server.call("removeTask", task_id=card)
    # Its time of making is in seconds.
    _wait_for_the_next_second()
    assert scene.ann.add("another") == card
    scene.sync.sweep()
    assert scene.known() == ("in_progress", "A1", "agent"), "said once"
    scene.sync.sweep()
    scene.sync.sweep()
    refused(boards.show_board(scene.store, project_id="nowhere"), "project_not_found")
    assert scene.known(f"KB-{card}")[0] == "todo"
    scene.settle()


def _wait_for_the_next_second() -> None:
    import time

    now = int(time.time())
    while int(time.time()) == now:
        time.sleep(0.02)
