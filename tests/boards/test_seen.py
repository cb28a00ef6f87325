"""What must be seen with a real Kanboard: outages, many writers, deaths between commit and delivery, people's cards."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.boards.kanboard import Kanboard as Api
from tenure.boards.port import BoardDown, BoardFault
from tenure.boards.sync import Sync
from tenure.clock import ManualClock
from tenure.engine import boards, claims, endings, liveness, notes, observe, tasks
from tenure.engine.health import check_assignment_health
from tenure.engine.recovery import advance
from tenure.store.sqlite import SqliteStore
from tests.boards.conftest import FULL, serve
from tests.boards.kanboard import Kanboard
from tests.boards.scene import Scene
from tests.support import ok

CHANGES = 500 if FULL else 80
DEATHS = 50 if FULL else 12
PEOPLE = 200 if FULL else 60


@pytest.fixture
def own(tmp_path: Path, store: SqliteStore, clock: ManualClock) -> Iterator[Scene]:
    """A scene with a server of its own, which may be stopped."""
    server = serve(tmp_path / "kanboard")
    made = Scene(server, store, clock, "OWN")
    yield made
    made.close()
    server.stop()


def agreed(scene: Scene) -> None:
    """The board and the engine say the same of every task, by what the server has stored."""
    cards = {card.reference: card.state for card in scene.cards() if card.reference}
    for view in ok(observe.list_tasks(scene.store, limit=10_000)):
        task = view.task
        if task.task_id.startswith("KB-"):
            continue
        shown = cards[task.task_id]
        assert shown.status == ("blocked" if view.status == "dead" else view.status), task.task_id
        assert (shown.title, shown.priority, shown.body) == (task.title, task.priority, task.body)
        if view.status == "in_progress":
            assert shown.assignee == task.assigned_to


def no_duplicates(server: Kanboard) -> None:
    with sqlite3.connect(server.data / "db.sqlite", timeout=60) as database:
        twice = "SELECT reference FROM tasks WHERE reference <> '' GROUP BY project_id, reference HAVING count(*) > 1"
        assert database.execute(twice).fetchall() == []
        twice = "SELECT comment, count(*) FROM comments GROUP BY task_id, comment HAVING count(*) > 1"
        assert database.execute(twice).fetchall() == []


def every_message_was_said(scene: Scene) -> None:
    for view in ok(observe.list_tasks(scene.store, limit=10_000)):
        said = [one for one in ok(notes.thread(scene.store, task_id=view.task.task_id)) if one.kind != "board"]
        found = scene.api.find(view.task.task_id)
        assert found is not None
        comments = scene.comments(int(found.card_id))
        assert len([text for text in comments if "(tenure:" in text]) == len(said), view.task.task_id


def test_board_down_for_a_recovery_and_a_hundred_changes_agrees_afterwards(own: Scene) -> None:
    own.connect()
    own.held()
    for number in range(10):
        own.add(f"T{number}")
    own.settle()
    own.server.stop()
    own.clock.advance(81)
    assert ok(advance(own.store)).recovered == 1
    own.take("A2")
    for number in range(100):
        task_id = f"T{number % 10}"
        if number % 4 == 0:
            ok(tasks.edit_task(own.store, task_id=task_id, title=f"Title {number}"))
        elif number % 4 == 1:
            ok(notes.send_message(own.store, text=f"Note {number}", sender="A1", task_id=task_id))
        elif number % 4 == 2:
            ok(tasks.edit_task(own.store, task_id=task_id, priority="high" if number % 8 == 2 else "low"))
        else:
            own.add(f"N{number}")
        if number % 25 == 0:
            with pytest.raises(BoardDown):
                own.sync.deliver()
            with pytest.raises(BoardDown):
                own.sync.sweep()
    assert own.holder() == "A2"
    assert ok(boards.show_board(own.store)).pending >= 30
    assert ok(boards.show_board(own.store)).parked == 0, "an outage is nobody's fault"
    own.server.start()
    for _ in range(20):
        own.sync.deliver()
    own.settle()
    agreed(own)
    no_duplicates(own.server)
    every_message_was_said(own)
    assert own.shown() == ("in_progress", "A2")
    handoffs = [text for text in own.comments(own.card()) if "Taken back from A1" in text]
    assert len(handoffs) == 1


def test_many_writers_against_several_workers_agree_without_duplicates(
    tmp_path: Path, store: SqliteStore, clock: ManualClock
) -> None:
    """Eight runners on one store, and a server that answers errors for calls that did take effect."""
    server = serve(tmp_path / "kanboard", workers=4)
    scene = Scene(server, store, clock, "MANY")
    faults: list[str] = []
    try:
        scene.connect()
        errors: list[BaseException] = []

        def write(number: int) -> None:
            own = store.clone()
            api = _Noting(server.url, server.token, "MANY", {}, faults)
            sync = Sync(own, "default", api)
            try:
                for turn in range(CHANGES // 8):
                    task_id = f"W{number}-{turn % 8}"
                    if turn < 8:
                        ok(tasks.add_task(own, task_id=task_id, title="New"))
                    else:
                        ok(tasks.edit_task(own, task_id=task_id, title=f"Turn {turn}"))
                    if turn % 5 == 0:
                        ok(notes.send_message(own, text=f"Turn {turn}", sender="A1", task_id=task_id))
                    sync.deliver(0.2)
            except BaseException as error:
                errors.append(error)
            finally:
                sync.close()
                own.close()

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert errors == []
        for _ in range(40):
            clock.advance(61)
            scene.sync.deliver(30)
            if not ok(boards.show_board(store)).pending:
                break
        scene.settle()
        agreed(scene)
        no_duplicates(server)
        every_message_was_said(scene)
        print(f"{CHANGES} changes, {len(faults)} faults:", sorted(set(faults))[:3])
    finally:
        scene.close()
        server.stop()


class _Noting(Api):
    """The real client, with its server's errors written down."""

    def __init__(self, url: str, token: str, place: str, config: Any, faults: list[str]) -> None:
        super().__init__(url, token, place, config)
        call = self._call

        def noting(method: str, **params: Any) -> Any:
            try:
                return call(method, **params)
            except BoardFault as fault:
                faults.append(str(fault))
                raise

        noting.close = call.close  # type: ignore[attr-defined]
        self._call = noting  # type: ignore[assignment]


class _Locked(Api):
    """The real client of a server that answers every other write with an error, after it took effect."""

    def __init__(self, url: str, token: str, place: str) -> None:
        super().__init__(url, token, place, {})
        call, self.writes = self._call, 0

        def locked(method: str, **params: Any) -> Any:
            answer = call(method, **params)
            if method.startswith(("create", "update", "move")):
                self.writes += 1
                if self.writes % 2:
                    raise BoardFault(f"{method}: database is locked")
            return answer

        locked.close = call.close  # type: ignore[attr-defined]
        self._call = locked  # type: ignore[assignment]


def test_errors_for_calls_that_took_effect_lead_to_nothing_twice(scene: Scene) -> None:
    scene.connect()
    api = _Locked(scene.server.url, scene.server.token, scene.name)
    sync = Sync(scene.store, "default", api)
    for number in range(10):
        after = [f"L{number - 1}"] if number % 3 == 2 else []
        scene.add(f"L{number}", after=after)
        ok(notes.send_message(scene.store, text=f"About {number}", sender="A1", task_id=f"L{number}"))
    for _ in range(6):
        sync.deliver()
        scene.clock.advance(61)
    scene.take("A1", "L0")
    ok(endings.block(scene.store, task_id="L3", reason="No key.", agent_id="A1"))
    for _ in range(6):
        sync.deliver()
        scene.clock.advance(10)
        ok(liveness.report(scene.store, task_id="L0", agent_id="A1", progress=10))
    assert api.writes > 25
    assert ok(boards.show_board(scene.store)).parked == 0
    sync.close()
    scene.settle()
    agreed(scene)
    no_duplicates(scene.server)
    every_message_was_said(scene)


class _Killed(BaseException):
    """The process dies here."""


class _Dying:
    """The real client, until its process is killed at the nth call, before or after the call took effect."""

    def __init__(self, api: Api, at: int, after: bool) -> None:
        self._api, self._left, self._after = api, at, after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._api, name)
        if name in ("shown", "close"):
            return real

        def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise _Killed
            answer = real(*arguments, **named)
            if self._left == 0:
                raise _Killed
            return answer

        return call


def test_killed_between_commit_and_delivery_loses_nothing_and_does_nothing_twice(scene: Scene) -> None:
    scene.connect()
    scene.settle()
    for number in range(DEATHS):
        task_id = f"D{number}"
        scene.add(task_id)
        ok(notes.send_message(scene.store, text=f"About {number}", sender="A1", task_id=task_id))
        if number:
            before = f"D{number - 1}"
            ok(claims.claim(scene.store, task_id=before, agent_id="A1", profile="agent"))
            ok(endings.complete(scene.store, task_id=before, agent_id="A1", message="Finished."))
        dying = _Dying(scene.api, at=number % 13 + 1, after=number % 2 == 1)
        runner = Sync(scene.store, "default", dying)
        with contextlib.suppress(_Killed):
            runner.deliver()
        # Whoever comes next waits until the dead one's time for its card is over.
        scene.clock.advance(boards.BUSY_MS // 1000 + 1)
    scene.settle()
    agreed(scene)
    no_duplicates(scene.server)
    every_message_was_said(scene)


def test_connect_with_people_at_work_changes_none_of_their_cards(scene: Scene) -> None:
    columns = ("Backlog", "Ready", "Work in progress", "Blocked", "Done")
    bob = type(scene.ann)(scene.server, scene.project, "bob")
    for number in range(PEOPLE):
        who = (scene.ann, bob)[number % 2]
        owner = 0 if number % 5 == 4 and columns[number % 5] != "Done" else who.user_id
        scene.ann.add(
            f"  Card {number} of people \t",
            columns[number % len(columns)],
            owner_id=owner,
            description=f"line\r\n\r\n* {number}\n" if number % 3 else "",
            priority=number % 4,
            reference=f"EXT/{number}" if number % 7 == 0 else "",
        )
    before = scene.raw()
    comments = scene.server.call("getProjectActivity", project_id=scene.project)
    found = scene.connect()
    assert found.imported == PEOPLE - PEOPLE // 5, "finished cards are history"
    assert scene.raw() == before
    for _ in range(2):
        scene.sync.deliver()
        scene.sync.sweep()
    assert scene.raw() == before
    assert scene.server.call("getProjectActivity", project_id=scene.project) == comments
    leases = scene.store.connection.execute("SELECT count(*) FROM leases").fetchone()[0]
    assert leases == 0
    scene.settle()
    assert scene.raw() == before


def test_person_who_moves_a_card_while_our_write_is_pending_wins_once(scene: Scene) -> None:
    scene.connect()
    card = scene.held()
    ok(liveness.report(scene.store, task_id="F001", agent_id="A1", progress=60, message="On it."))
    ok(endings.complete(scene.store, task_id="F001", agent_id="A1"))
    # Ours says done and is not delivered yet; ann blocks it, and renames it.
    scene.ann.drag(card, "Blocked")
    scene.ann.do("updateTask", id=card, title="Not like this")
    # Listening or sweeping does not judge a card with a write to be delivered.
    scene.sync.sweep()
    scene.sync.deliver()
    assert scene.known()[0] == "blocked"
    assert scene.shown()[0] == "blocked"
    assert scene.task().title == "Not like this"
    acts = scene.events("board_act")
    assert len(acts) == 1
    scene.settle()
    assert len(scene.events("board_act")) == 1
    assert scene.shown()[0] == "blocked"


def test_listing_that_began_before_a_write_was_acknowledged_judges_nothing(scene: Scene) -> None:
    scene.connect()
    scene.add()
    scene.settle()

    listing = scene.api.listing

    def slow() -> Any:
        cards = listing()
        # While the listing was on its way, the task was taken and its card written.
        scene.take()
        Sync(scene.store, "default", Api(scene.server.url, scene.server.token, scene.name, {})).deliver()
        return cards

    scene.api.listing = slow  # type: ignore[method-assign]
    assert scene.sync.sweep().removed == 0
    scene.api.listing = listing  # type: ignore[method-assign]
    assert scene.holder() == "A1"
    assert scene.shown() == ("in_progress", "A1")
    scene.settle()


@pytest.mark.parametrize("kind", ["empty", "partial", "failed"])
def test_outage_that_looks_like_a_deletion_changes_nothing(scene: Scene, kind: str) -> None:
    scene.connect()
    for number in range(8):
        scene.held("A1" if number == 0 else "A2", f"H{number}") if number < 2 else scene.add(f"H{number}")
    scene.settle()
    listing = scene.api.listing
    before = scene.store.connection.execute("SELECT count(*), sum(version) FROM tasks").fetchone()

    def broken() -> Any:
        if kind == "failed":
            raise BoardFault("database is locked")
        return [] if kind == "empty" else listing()[:2]

    scene.api.listing = broken  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(BoardFault):
            scene.sync.sweep()
    scene.api.listing = listing  # type: ignore[method-assign]
    assert scene.store.connection.execute("SELECT count(*), sum(version) FROM tasks").fetchone() == before
    scene.settle()


def test_refresh_keeps_handoffs_leases_and_local_fields(scene: Scene) -> None:
    scene.connect()
    scene.add("F001", requires=["python"], estimated_hours=7.5, kind="code.generate")
    ok(claims.claim(scene.store, task_id="F001", agent_id="A1", profile="agent", capabilities=["python"]))
    ok(liveness.report(scene.store, task_id="F001", agent_id="A1", progress=40))
    scene.settle()
    scene.clock.advance(400)
    assert ok(advance(scene.store)).recovered == 1
    for _ in range(3):
        scene.settle()
    detail = ok(observe.show_task(scene.store, task_id="F001"))
    assert [one.recovered_from_agent for one in detail.handoffs] == ["A1"]
    task = detail.view.task
    assert (task.requires, task.estimated_hours, task.kind, task.progress) == ("python", 7.5, "code.generate", 40)
    lease = scene.take("A2")
    scene.settle()
    assert ok(claims.leases_of(scene.store, agent_id="A2"))[0].lease_id == lease


def test_poison_write_is_parked_and_shown_and_stops_nobody(scene: Scene) -> None:
    scene.connect()
    scene.add("BAD")
    scene.add("GOOD")
    scene.settle()
    write = scene.api.write

    def poisoned(card: Any, changes: Any) -> None:
        if card.reference == "BAD":
            raise BoardFault("updateTask: refused")
        write(card, changes)

    scene.api.write = poisoned  # type: ignore[method-assign]
    ok(tasks.edit_task(scene.store, task_id="BAD", title="No"))
    ok(tasks.edit_task(scene.store, task_id="GOOD", title="Yes"))
    for _ in range(boards.ATTEMPTS_MAX + 1):
        scene.sync.deliver()
        scene.clock.advance(61)
    view = ok(boards.show_board(scene.store))
    assert (view.parked, view.pending) == (1, 0)
    assert "BAD" in view.parked_writes[0]
    assert not ok(check_assignment_health(scene.store)).healthy
    found = scene.api.find("GOOD")
    assert found is not None
    assert found.state.title == "Yes"
    scene.sync.deliver()
    assert ok(boards.show_board(scene.store)).parked == 1
    scene.api.write = write  # type: ignore[method-assign]
    ok(boards.retry_board(scene.store))
    scene.settle()


def test_most_cards_deleted_by_people_is_believed_when_somebody_says_so(scene: Scene) -> None:
    scene.connect()
    for number in range(6):
        scene.add(f"M{number}")
    scene.settle()
    for number in range(5):
        scene.ann.do("removeTask", task_id=scene.card(f"M{number}"))
    for _ in range(3):
        with pytest.raises(BoardFault, match="tenure reconcile --believe"):
            scene.sync.sweep()
    assert len(ok(observe.list_tasks(scene.store))) == 6
    found = scene.sync.reconcile(believe=True)
    assert (found.deleted, found.suspected) == (5, 0)
    assert [view.task.task_id for view in ok(observe.list_tasks(scene.store))] == ["M5"]
    scene.settle()


def test_board_that_was_believed_lost_nothing_that_the_server_still_has(scene: Scene) -> None:
    scene.connect()
    for number in range(6):
        scene.add(f"M{number}")
    scene.settle()
    listing = scene.api.listing
    scene.api.listing = list  # type: ignore[method-assign]
    assert scene.sync.reconcile(believe=True).deleted == 0
    scene.api.listing = listing  # type: ignore[method-assign]
    scene.settle()
    assert len(ok(observe.list_tasks(scene.store))) == 6


def test_holder_without_an_account_is_named_in_a_comment_once_for_each_lease(scene: Scene) -> None:
    scene.connect()
    card = scene.held("A9")
    assert scene.shown() == ("in_progress", None)

    def introduced() -> list[str]:
        return [text.splitlines()[0] for text in scene.comments(card) if "has no account" in text]

    assert introduced() == [
        "tenure: A9 holds this task now. It has no account on this board, so the card names nobody."
    ]
    ok(tasks.edit_task(scene.store, task_id="F001", title="Another title"))
    scene.settle()
    assert scene.holder() == "A9"
    assert len(introduced()) == 1
    ok(endings.release(scene.store, task_id="F001", agent_id="A9"))
    scene.sync.deliver()
    scene.take("A1")
    scene.settle()
    assert (len(introduced()), scene.shown()) == (1, ("in_progress", "A1"))
    ok(endings.release(scene.store, task_id="F001", agent_id="A1"))
    scene.take("A9")
    scene.settle()
    assert len(introduced()) == 2
    no_duplicates(scene.server)
