"""The board of a store on PostgreSQL, from connect to reconcile. `make kanboard` runs everything else on it too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.clock import ManualClock
from tenure.engine import boards, notes
from tenure.engine.health import check_assignment_health
from tenure.engine.recovery import advance
from tests.boards.kanboard import Kanboard
from tests.boards.scene import Scene
from tests.boards.test_seen import agreed, no_duplicates
from tests.postgres.support import ProbedPostgres, empty_url
from tests.support import ok


@pytest.fixture
def there(kanboard: Kanboard, clock: ManualClock) -> Iterator[Scene]:
    store = ProbedPostgres(empty_url(), clock=clock)
    made = Scene(kanboard, store, clock, "PG")  # type: ignore[arg-type]
    yield made
    made.close()
    store.close()


def test_board_of_a_store_on_postgresql_is_kept_in_step(there: Scene) -> None:
    by_hand = there.ann.add("By hand", "Work in progress", owner_id=there.ann.user_id)
    there.add("F002", after=[there.add("F001").task_id])
    found = there.connect()
    assert (found.imported, found.delivered) == (1, 2)
    assert there.known(f"KB-{by_hand}") == ("in_progress", "ann", "external")
    there.take()
    ok(notes.send_message(there.store, text="Begun.", sender="A1", task_id="F001"))
    there.settle()
    assert there.shown() == ("in_progress", "A1")
    assert there.api.links(str(there.card("F002"))) == [str(there.card())]
    there.clock.advance(3_600)
    assert ok(advance(there.store)).recovered == 1
    there.ann.drag(there.card("F002"), "Blocked")
    there.ann.do("createComment", task_id=there.card(), user_id=there.ann.user_id, content="Who is next?")
    told = there.sync.reconcile()
    assert told.blocked == 1
    assert there.known() == ("todo", None, None)
    assert [one.text for one in ok(notes.thread(there.store, task_id="F001")) if one.kind == "board"] == [
        "Who is next?"
    ]
    there.settle()
    agreed(there)
    no_duplicates(there.server)
    view = ok(boards.show_board(there.store))
    health = ok(check_assignment_health(there.store))
    for number in (view.pending, view.parked, view.comments, view.cards, health.pending, health.kanban_assigned_tasks):
        assert type(number) is int, "what is rendered as JSON"
    assert len([text for text in there.comments(there.card()) if "Taken back from A1" in text]) == 1
