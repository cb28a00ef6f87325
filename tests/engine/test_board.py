"""What a person sees of a project, and moving a task by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.model import Lease
from tenure.core.signs import carried_by, extension_of, health, signs_of
from tenure.engine import agents, board, claims, endings, fleet, liveness, neighbours, observe, pace, recovery, tasks
from tenure.engine.touch import touch
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok, refused, take


def put(store: SqliteStore, task_id: str, state: str) -> None:
    """A task in a state: held, or one of the columns."""
    add(store, task_id)
    join(store, "A1")
    if state == "held":
        take(store, "A1", task_id)
    elif state == "in_progress":
        ok(tasks.assign_task(store, task_id=task_id, assigned_to="somebody"))
    elif state == "blocked":
        ok(endings.block(store, task_id=task_id, reason="No key."))
    elif state == "done":
        ok(endings.complete(store, task_id=task_id, force=True))
    elif state == "dead":
        ok(claims.claim(store, task_id=task_id, agent_id="w.1", profile="worker"))
        from tenure.engine.receipts import submit_receipt

        body = {"phase": "complete", "task_id": task_id, "source_system": "w.1", "status": "canceled"}
        ok(submit_receipt(store, body={**body, "outcome_kind": "none"}))


# (from, to): the event that tells what was done; None: refused.
MOVES = {
    ("held", "todo"): "revoked",
    ("held", "blocked"): "blocked",
    ("held", "done"): "completed",
    ("held", "in_progress"): None,
    ("held", "dead"): None,
    ("todo", "blocked"): "blocked",
    ("todo", "done"): "completed",
    ("todo", "in_progress"): None,
    ("todo", "dead"): None,
    ("in_progress", "todo"): "assigned",
    ("in_progress", "blocked"): "blocked",
    ("in_progress", "done"): "completed",
    ("in_progress", "dead"): None,
    ("blocked", "todo"): "unblocked",
    ("blocked", "done"): "completed",
    ("blocked", "in_progress"): None,
    ("blocked", "dead"): None,
    ("done", "todo"): "reopened",
    ("done", "blocked"): None,
    ("done", "in_progress"): None,
    ("done", "dead"): None,
    ("dead", "todo"): "requeued",
    ("dead", "done"): "completed",
    ("dead", "blocked"): None,
    ("dead", "in_progress"): None,
}


@pytest.mark.parametrize(("state", "to"), MOVES)
def test_move_task_does_what_the_column_means(store: SqliteStore, state: str, to: Any) -> None:
    put(store, "F001", state)
    told = MOVES[state, to]
    before = ok(observe.newest_event(store))
    answer = board.move_task(store, task_id="F001", status=to, revoke=True, by="mira", message="On the board.")
    if told is None:
        refused(answer, "wrong_state")
        return
    assert ok(answer).status == to
    assert told in [event.kind for event in ok(observe.events(store, after=before))]
    assert ok(observe.show_task(store, task_id="F001")).view.status == to


@pytest.mark.parametrize("to", ["todo", "blocked", "done"])
def test_move_task_of_a_live_holder_needs_to_be_told_so(store: SqliteStore, to: Any) -> None:
    put(store, "F001", "held")
    answer = refused(board.move_task(store, task_id="F001", status=to), "task_held")
    assert answer.facts["holder"] == "A1"
    assert ok(observe.show_task(store, task_id="F001")).view.status == "in_progress"


def test_move_task_to_where_it_is_does_nothing(store: SqliteStore) -> None:
    put(store, "F001", "done")
    before = ok(observe.newest_event(store))
    assert ok(board.move_task(store, task_id="F001", status="done")).status == "done"
    assert ok(observe.newest_event(store)) == before


def test_move_task_of_a_dead_holder_recovers_first(store: SqliteStore, clock: ManualClock) -> None:
    put(store, "F001", "held")
    clock.advance(3_600)
    assert ok(board.move_task(store, task_id="F001", status="done")).status == "done"


def test_board_shows_needs_holders_and_what_was_left(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "F001")
    add(store, "F002", after=["F001"])
    join(store, "A1")
    take(store, "A1", "F001")
    ok(liveness.report(store, task_id="F001", agent_id="A1", progress=40))
    clock.advance(600)
    ok(recovery.advance(store))
    seen = {card.view.task.task_id: card for card in ok(board.board(store)).cards}
    assert seen["F001"].left is not None
    assert seen["F001"].left.agent_id == "A1"
    assert [(need.task_id, need.done) for need in seen["F002"].needs] == [("F001", False)]


def test_changes_of_every_page_add_up_to_all_events(store: SqliteStore) -> None:
    for number in range(25):
        add(store, f"F{number}")
    ok(tasks.delete_task(store, task_id="F3"))
    after, seen = 0, []
    while True:
        page = ok(board.changes(store, after=after, limit=7))
        seen += [event.seq for event in page.events]
        after = page.seq
        if not page.more:
            break
    assert seen == [event.seq for event in ok(observe.events(store))]
    assert len(seen) == 26
    assert page.gone == ("F3",)


def test_changes_after_what_was_forgotten_says_so(store: SqliteStore, clock: ManualClock) -> None:
    for number in range(5):
        add(store, f"F{number}")
    old = [event.seq for event in ok(observe.events(store))]
    refused(board.changes(store, after=old[-1] + 99), "events_lost")
    clock.advance(365 * 86_400)
    add(store, "F9")
    ok(observe.prune(store))
    refused(board.changes(store, after=old[1]), "events_lost")
    newest = ok(observe.events(store))[-1].seq
    assert ok(board.changes(store, after=newest)).seq == newest
    if isinstance(store, SqliteStore):
        # Where numbers have no gaps, who had read all that was forgotten lost nothing.
        assert ok(board.changes(store, after=old[-1])).seq == newest


def test_touch_leaves_a_sign_with_its_gap_and_what_was_allowed(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    join(store, "A1")
    take(store, "A1")
    for gap in (10, 20):
        clock.advance(gap)
        ok(touch(store, agent_id="A1"))
    span = ok(fleet.timeline(store, agent_id="A1")).member.spans[0]
    assert [(sign.gap_ms, sign.allowed_ms) for sign in signs_of(span.lease)] == [(10_000, 80_000), (20_000, 80_000)]
    assert [sign.at_ms for sign in signs_of(span.lease)] == [clock.wall - 20_000, clock.wall]


def test_signs_are_kept_up_to_a_bound(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    join(store, "A1")
    take(store, "A1")
    for _ in range(100):
        clock.advance(1)
        ok(touch(store, agent_id="A1"))
    lease = ok(fleet.timeline(store, agent_id="A1")).member.spans[0].lease
    assert len(signs_of(lease)) == 64


def test_fleet_tells_links_health_and_the_end_of_each_lease(store: SqliteStore, clock: ManualClock) -> None:
    for agent_id in ("A1", "A2", "A3"):
        join(store, agent_id)
    ok(agents.link_up(store, agent_id="A2", kind="run"))
    ok(agents.depart(store, agent_id="A3"))
    add(store, "F001")
    add(store, "F002")
    take(store, "A1", "F001")
    ok(endings.complete(store, task_id="F001", agent_id="A1"))
    take(store, "A1", "F002")
    clock.advance(600)
    ok(recovery.advance(store))
    ok(liveness.report(store, task_id="F002", agent_id="A1", progress=10))
    members = {member.agent.agent_id: member for member in ok(fleet.fleet(store)).members}
    assert [members[name].link for name in ("A1", "A2", "A3")] == ["unlinked", "unlinked", "departed"]
    assert members["A1"].health == 75
    assert members["A2"].health is None
    ended = next(span for span in members["A1"].spans if span.lease.state == "expired")
    assert ended.lease.returned_at_ms is not None
    assert any("recovered from A1" in told.text for told in ended.told)


def test_extension_is_named_by_what_reaches_furthest() -> None:
    base: dict[str, Any] = {
        "lease_id": "L1", "task_key": 1, "project_id": "default", "task_id": "F001", "agent_id": "A1", "incarnation": 1,
        "token": 1, "profile": "agent", "state": "active", "granted_at_ms": 0, "term_ms": 60_000, "grace_ms": 20_000,
        "expires_at_ms": 60_000, "seen_at_ms": 0, "wake_at_ms": 0,
    }  # fmt: skip
    plain = Lease(**base, recover_at_ms=80_000)
    assert extension_of(plain) == ""
    assert [carried_by(plain, at) for at in (0, 60_000, 79_999, 80_000)] == ["term", "grace", "grace", "nothing"]
    slow = Lease(**base, recover_at_ms=120_000, cadence_ms=120_000)
    assert (extension_of(slow), carried_by(slow, 90_000)) == ("cadence", "cadence")
    assert extension_of(Lease(**base, recover_at_ms=95_000, pulsed_at_ms=80_000)) == "link"
    assert extension_of(Lease(**base, recover_at_ms=300_000, silent_until_ms=300_000)) == "announcement"
    assert health([plain]) is None


def test_pace_counts_what_was_finished_and_names_the_oldest_ready_task(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "F001")
    clock.advance(60)
    add(store, "F002", priority="critical")
    ok(endings.complete(store, task_id="F002", force=True))
    clock.advance(60)
    found = ok(pace.pace(store))
    assert sum(one.completed for one in found.slices) == 1
    assert found.ready == 1
    assert found.oldest is not None
    assert (found.oldest.task_id, found.now_ms - found.oldest.since_ms) == ("F001", 120_000)
    assert not found.gridlock.gridlocked


def test_neighbours_go_both_ways_and_name_what_is_missing(store: SqliteStore) -> None:
    add(store, "F001")
    add(store, "F002", after=["F001"])
    add(store, "F003", after=["F002"])
    ok(tasks.add_task(store, task_id="F004", title="Four", after=["F003", "F404"], allow_missing=True))
    found = ok(neighbours.neighbours(store, task_id="F003"))
    assert {node.task_id: node.status for node in found.nodes} == {
        "F001": "todo", "F002": "todo", "F003": "todo", "F004": "todo", "F404": None,
    }  # fmt: skip
    assert ("F003", "F002") in found.edges
    assert not found.cut
