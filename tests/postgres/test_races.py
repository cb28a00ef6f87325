"""The races that the lock order prevents, each with its interleaving made certain, and fleets that race at random."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.core.reconcile import CardState
from tenure.engine import (
    agents,
    boards,
    claims,
    dependencies,
    design,
    endings,
    handoffs,
    liveness,
    notes,
    observe,
    projects,
    receipts,
    recovery,
    tasks,
    touch,
)
from tenure.store import postgres_schema, postgres_transaction
from tenure.store.postgres_scout import best_after
from tests.postgres.races import Aside, Gate, await_blocked, held_before
from tests.postgres.support import ProbedPostgres, empty_url
from tests.support import add, join, ok, refused, take


@pytest.fixture
def connect(clock: ManualClock) -> Iterator[Callable[[], ProbedPostgres]]:
    url = empty_url()
    opened: list[ProbedPostgres] = []

    def connection() -> ProbedPostgres:
        opened.append(ProbedPostgres(url, clock=clock))
        return opened[-1]

    yield connection
    for store in opened:
        store.close()


Connect = Callable[[], ProbedPostgres]


def body(verb: Any, **arguments: Any) -> Callable[[Any], Any]:
    return lambda tx: verb.body(tx, **arguments)


def unmet(store: ProbedPostgres, task_id: str) -> int:
    return ok(observe.show_task(store, task_id=task_id)).view.task.unmet


# -- dependencies -----------------------------------------------------------------------------------------------------


def test_add_dependency_while_its_upstream_completes_counts_right(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "UP")
    add(one, "DOWN")
    take(one, "A1", "UP", "cli")
    completing = Gate(one, body(endings.complete, task_id="UP", agent_id="A1"))
    adding = Aside(lambda: dependencies.add_dependency(other, task_id="DOWN", needs="UP"))
    await_blocked(other.url)
    completing.let_go()
    ok(adding.wait())
    assert unmet(one, "DOWN") == 0
    assert one.integrity_faults() == []


def test_complete_while_a_dependant_is_added_unlocks_it(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "UP")
    add(one, "DOWN")
    take(one, "A1", "UP", "cli")
    adding = Gate(other, body(dependencies.add_dependency, task_id="DOWN", needs="UP"))
    completing = Aside(lambda: endings.complete(one, task_id="UP", agent_id="A1"))
    await_blocked(one.url)
    adding.let_go()
    assert ok(completing.wait()).unlocked == ("DOWN",)
    assert unmet(one, "DOWN") == 0


def test_remove_dependency_while_its_upstream_completes_counts_once(connect: Connect) -> None:
    one, other = connect(), connect()
    for name in ("UP", "UP2"):
        add(one, name)
    add(one, "DOWN", after=["UP", "UP2"])
    take(one, "A1", "UP", "cli")
    completing = Gate(one, body(endings.complete, task_id="UP", agent_id="A1"))
    removing = Aside(lambda: dependencies.remove_dependency(other, task_id="DOWN", needs="UP"))
    await_blocked(other.url)
    completing.let_go()
    ok(removing.wait())
    assert unmet(one, "DOWN") == 1
    assert one.integrity_faults() == []


def test_complete_while_a_dependant_lets_go_of_it_counts_once(connect: Connect) -> None:
    one, other = connect(), connect()
    for name in ("UP", "UP2"):
        add(one, name)
    add(one, "DOWN", after=["UP", "UP2"])
    take(one, "A1", "UP", "cli")
    removing = Gate(other, body(dependencies.remove_dependency, task_id="DOWN", needs="UP"))
    completing = Aside(lambda: endings.complete(one, task_id="UP", agent_id="A1"))
    await_blocked(one.url)
    removing.let_go()
    ok(completing.wait())
    assert unmet(one, "DOWN") == 1
    assert one.integrity_faults() == []


def test_complete_by_lease_while_a_dependant_is_added_unlocks_it(connect: Connect) -> None:
    """Whether a task has dependants is read with its lease, and by then no more of them can come."""
    one, other = connect(), connect()
    add(one, "UP")
    add(one, "DOWN")
    lease = take(one, "A1", "UP", "cli")
    adding = Gate(other, body(dependencies.add_dependency, task_id="DOWN", needs="UP"))
    completing = Aside(lambda: endings.complete(one, lease_id=lease.lease_id))
    await_blocked(one.url)
    adding.let_go()
    assert ok(completing.wait()).unlocked == ("DOWN",)
    assert unmet(one, "DOWN") == 0


def test_complete_two_with_common_dependants_at_once_unlocks_each_once(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "L")
    add(one, "R")
    for number in range(20):
        add(one, f"D{number}", after=["L", "R"] if number % 2 else ["R", "L"])
    take(one, "A1", "L", "cli")
    take(one, "A2", "R", "cli")
    left = Gate(one, body(endings.complete, task_id="L", agent_id="A1"))
    right = Aside(lambda: endings.complete(other, task_id="R", agent_id="A2"))
    await_blocked(other.url)
    assert left.let_go().unlocked == ()
    assert len(ok(right.wait()).unlocked) == 20
    assert one.integrity_faults() == []


def test_add_dependency_in_both_directions_at_once_refuses_one_as_a_cycle(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "A")
    add(one, "B")
    first = Gate(one, body(dependencies.add_dependency, task_id="A", needs="B"))
    second = Aside(lambda: dependencies.add_dependency(other, task_id="B", needs="A"))
    await_blocked(other.url)
    first.let_go()
    refused(second.wait(), "cycle")
    assert [edge.task_id for edge in ok(dependencies.graph(one))] == ["A"]


def test_add_dependencies_far_apart_at_once_refuses_the_one_that_closes_a_cycle(connect: Connect) -> None:
    """No task is common to the two; only together with older edges do they make a cycle."""
    one, other = connect(), connect()
    add(one, "A")
    add(one, "C")
    add(one, "B", after=["C"])
    add(one, "D", after=["A"])
    first = Gate(one, body(dependencies.add_dependency, task_id="A", needs="B"))
    second = Aside(lambda: dependencies.add_dependency(other, task_id="C", needs="D"))
    await_blocked(other.url)
    first.let_go()
    refused(second.wait(), "cycle")


def test_add_task_after_one_that_completes_meanwhile_is_ready(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "UP")
    take(one, "A1", "UP", "cli")
    completing = Gate(one, body(endings.complete, task_id="UP", agent_id="A1"))
    adding = Aside(lambda: tasks.add_task(other, task_id="DOWN", title="t", after=["UP"]))
    await_blocked(other.url)
    completing.let_go()
    ok(adding.wait())
    assert unmet(one, "DOWN") == 0
    assert one.integrity_faults() == []


def test_add_task_while_an_edge_to_its_name_is_added_resolves_it(connect: Connect) -> None:
    one, other = connect(), connect()
    first = Gate(one, body(tasks.add_task, task_id="DOWN", title="t", after=["UP"], allow_missing=True))
    second = Aside(lambda: tasks.add_task(other, task_id="UP", title="t"))
    await_blocked(other.url)
    first.let_go()
    ok(second.wait())
    assert [edge.missing for edge in ok(dependencies.graph(one))] == [False]
    take(one, "A1", "UP", "cli")
    assert ok(endings.complete(one, task_id="UP", agent_id="A1")).unlocked == ("DOWN",)


# -- leases -----------------------------------------------------------------------------------------------------------


def test_touch_that_waited_for_a_lock_is_judged_by_the_time_it_got_it(connect: Connect, clock: ManualClock) -> None:
    """While it waits, its lease runs out: it must not be extended from a time before that."""
    one, other = connect(), connect()
    join(one, "A1")
    add(one)
    lease = take(one, "A1", profile="cli")
    # Somebody writes the same lease and takes very long.
    slow = Gate(one, lambda tx: tx.all("unended_of_agent", agent_id="A1"))
    touching = Aside(lambda: touch.touch(other, agent_id="A1"))
    await_blocked(other.url)
    clock.advance(lease.term_ms / 1000 + 1)
    slow.let_go()
    answer = ok(touching.wait())
    assert answer.leases == ()
    assert answer.lost is not None


def test_artifacts_logged_at_once_are_both_counted(connect: Connect) -> None:
    """The task is read and written whole: whoever decides on it must hold it from its first read."""
    one, other = connect(), connect()
    join(one, "A1")
    add(one)
    take(one, "A1", profile="cli")
    about = {"task_id": "F001", "agent_id": "A1", "content": "text"}
    first = Gate(one, body(notes.log_artifact, filename="a.md", **about))
    second = Aside(lambda: notes.log_artifact(other, filename="b.md", **about))  # type: ignore[arg-type]
    await_blocked(other.url)
    first.let_go()
    ok(second.wait())
    assert ok(observe.show_task(one, task_id="F001")).view.task.artifact_count == 2


def test_renew_by_lease_while_the_task_is_edited_keeps_the_edit(connect: Connect) -> None:
    one, other = connect(), connect()
    join(one, "A1")
    add(one)
    lease = take(one, "A1", profile="cli")
    editing = Gate(one, body(tasks.edit_task, task_id="F001", title="Better said"))
    reporting = Aside(lambda: liveness.report(other, lease_id=lease.lease_id, progress=50))
    await_blocked(other.url)
    edited = editing.let_go()
    ok(reporting.wait())
    task = ok(observe.show_task(one, task_id="F001")).view.task
    assert (task.title, task.progress, task.version) == ("Better said", 50, edited.version + 1)


def test_renew_by_lease_while_its_holder_touches_counts_both(connect: Connect) -> None:
    """A touch writes the lease and holds no task."""
    one, other = connect(), connect()
    join(one, "A1")
    add(one)
    lease = take(one, "A1", profile="cli")
    touching = Gate(one, body(touch.touch, agent_id="A1"))
    renewing = Aside(lambda: liveness.renew(other, lease_id=lease.lease_id))
    await_blocked(other.url)
    (touched,) = touching.let_go().leases
    ok(renewing.wait())
    (row,) = one.look(lambda tx: tx.all("unended_of_agent", agent_id="A1"))
    assert (touched.touches, row["touches"], row["renewals"]) == (lease.touches + 1, lease.touches + 2, 1)


def test_lease_that_ends_while_it_is_asked_for_is_shown_ended(connect: Connect) -> None:
    one, other = connect(), connect()
    join(one, "A1")
    add(one)
    lease = take(one, "A1", profile="cli")
    completing = Gate(one, body(endings.complete, lease_id=lease.lease_id))
    asking = Aside(lambda: other.run(lambda tx: tx.one("lease_by_id", lease_id=lease.lease_id)))
    await_blocked(other.url)
    completing.let_go()
    assert asking.wait()["state"] == "completed"


def test_lease_that_is_made_between_its_task_and_itself_is_not_there_yet(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task would not be locked."""
    one, other = connect(), connect()
    join(one, "A1")
    add(one)
    text = postgres_schema.deciding()["lease_with_hints"]
    made: list[Any] = []
    send = postgres_transaction._send

    def between(wire: Any, statements: Any) -> Any:
        at = next((n for n, (sent, _) in enumerate(statements) if sent == text), None)
        if at is None or made:
            return send(wire, statements)
        answers = send(wire, statements[:at])
        made.append(None)
        take(one, "A1", profile="cli")
        one.connection.execute("UPDATE leases SET lease_id = 'L1'")
        return [*answers, *send(wire, statements[at:])]

    monkeypatch.setattr(postgres_transaction, "_send", between)
    refused(endings.complete(other, lease_id="L1"), "lease_not_found")
    ok(endings.complete(other, lease_id="L1"))


def test_recovery_while_the_holder_touches_finds_it_alive(connect: Connect, clock: ManualClock) -> None:
    one, other = connect(), connect()
    join(one, "A1")
    add(one)
    lease = take(one, "A1", profile="cli")
    clock.advance(lease.term_ms / 1000 - 1)
    touching = Gate(one, body(touch.touch, agent_id="A1"))
    clock.advance(2)
    claiming = Aside(lambda: claims.claim(other, task_id="F001", agent_id="A2"))
    await_blocked(other.url)
    assert touching.let_go().leases
    refused(claiming.wait(), "already_claimed")


def test_recover_from_two_nodes_at_once_happens_once(connect: Connect, clock: ManualClock) -> None:
    one, other = connect(), connect()
    for number in range(10):
        add(one, f"T{number}")
        take(one, f"A{number}", f"T{number}", "cli")
    clock.advance(3_600)
    first = Gate(one, body(recovery.advance, limit=4))
    # The others are passed over, not waited for.
    assert ok(recovery.advance(other, limit=10)).recovered == 6
    assert first.let_go().recovered == 4
    assert ok(recovery.advance(one)).recovered == 0
    assert ok(observe.statistics(one)).recoveries == 10


def test_claim_next_beside_another_takes_the_next_without_waiting(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "T1")
    add(one, "T2")
    first = Gate(one, body(claims.claim_next, agent_id="A1"))
    assert ok(claims.claim_next(other, agent_id="A2")).task.task_id == "T2"
    assert first.let_go().task.task_id == "T1"


def test_claim_next_tries_every_capability_set_before_it_finds_nothing(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "T1", requires=["gpu"])
    add(one, "T2")
    first = Gate(one, body(claims.claim_next, agent_id="A1", capabilities=["gpu"]))
    assert ok(claims.claim_next(other, agent_id="A2", capabilities=["gpu"])).task.task_id == "T2"
    assert first.let_go().task.task_id == "T1"


# How a claim is made to ask each query, and the condition in it before which it is held.
SEEKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "ready-of-one-set": ("best_of_one", {}, "r.open_slots > 0"),
    "ready-of-many-sets": ("best", {"capabilities": ["gpu"]}, "t.open_slots > 0"),
    "ready-of-a-preferred-kind": ("ready_of_kind", {"preferred_kinds": ["test"]}, "t.open_slots > 0"),
    "ready-of-no-preferred-kind": ("ready", {"preferred_kinds": ["docs"]}, "t.open_slots > 0"),
    "kept-of-one-set": ("best_of_one", {}, "k.unmet = 0"),
    "kept-of-many-sets": ("best", {"capabilities": ["gpu"]}, "k.unmet = 0"),
}


@pytest.mark.parametrize("seek", SEEKS)
def test_claim_next_of_a_task_that_is_edited_meanwhile_is_given_and_keeps_the_edit(seek: str, connect: Connect) -> None:
    """The edit is committed between the snapshot of the claim's statement, and its lock."""
    one, other = connect(), connect()
    query, arguments, condition = SEEKS[seek]
    # An agent of its own: what one wanted last is asked ahead, as it was.
    agent_id = seek
    join(one, agent_id)
    if query != "best_of_one":
        add(one, "GPU", requires=["gpu"], priority="low")
    add(one, "T1", kind="test", priority="high", assigned_to=agent_id if seek.startswith("kept") else None)
    with held_before(one.url, query, condition):
        claiming = Aside(lambda: claims.claim_next(other, agent_id=agent_id, **arguments))
        await_blocked(other.url)
        edited = ok(tasks.edit_task(one, task_id="T1", title="Better said", priority="critical"))
    taken = ok(claiming.wait()).task
    kept = ok(observe.show_task(one, task_id="T1")).view.task
    for task in (taken, kept):
        assert (task.task_id, task.title, task.priority) == ("T1", "Better said", "critical")
        assert task.status == "in_progress"
        assert task.version == edited.version + 1, "every write is counted"


def test_claim_next_of_a_task_that_is_taken_meanwhile_passes_it_over(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "T1")
    add(one, "T2")
    with held_before(one.url, "best_of_one", "r.open_slots > 0"):
        claiming = Aside(lambda: claims.claim_next(other, agent_id="A2"))
        await_blocked(other.url)
        take(one, "A1", "T1", "cli")
    assert ok(claiming.wait()).task.task_id == "T2"


def test_claim_next_of_a_kept_task_that_is_edited_meanwhile_locks_no_other(connect: Connect) -> None:
    one, other = connect(), connect()
    join(one, "KEEPER")
    add(one, "T1", assigned_to="KEEPER")
    add(one, "T2")
    with held_before(one.url, "best_of_one", "k.unmet = 0"):
        claiming = Aside(lambda: Gate(other, body(claims.claim_next, agent_id="KEEPER")))
        await_blocked(other.url)
        ok(tasks.edit_task(one, task_id="T1", title="Better said"))
    claimed = claiming.wait()
    assert ok(claims.claim_next(one, agent_id="A2")).task.task_id == "T2"
    assert claimed.let_go().task.task_id == "T1"


def test_best_after_some_passes_over_as_many_that_are_ready(connect: Connect) -> None:
    one = connect()
    join(one, "A1")
    for name in ("T1", "T2", "T3"):
        add(one, name)
    asked = {"agent_id": "A1", "project_id": "default", "requires": ""}

    def best(connection: psycopg.Connection, skipped: int) -> Any:
        text = best_after(postgres_schema.deciding()["best_after"], skipped)
        row = connection.cursor(row_factory=dict_row).execute(text.encode(), asked).fetchone()
        return row and row["task_id"]

    with psycopg.connect(one.url) as first, psycopg.connect(one.url) as second:
        assert [best(first, n) for n in range(4)] == ["T1", "T2", "T3", None]
        first.rollback()
        assert best(first, 1) == "T2"
        assert best(second, 0) == "T3", "those that were passed over are locked too"
        first.rollback()
        second.rollback()
        ok(tasks.assign_task(one, task_id="T3", assigned_to="A1"))
        assert best(first, 5) == "T3", "what is kept for the agent is not counted"


def test_claim_retried_while_its_first_try_is_under_way_gets_the_same_lease(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "T1")
    add(one, "T2")
    first = Gate(one, body(claims.claim_next, agent_id="A1", idempotency_key="k"))
    again = Aside(lambda: claims.claim_next(other, agent_id="A1", idempotency_key="k"))
    await_blocked(other.url)
    made = first.let_go()
    found = ok(again.wait())
    assert found.lease.lease_id == made.lease.lease_id
    assert found.resumed


def test_register_twice_at_once_begins_two_incarnations(connect: Connect) -> None:
    one, other = connect(), connect()
    first = Gate(one, body(agents.register, agent_id="A1"))
    second = Aside(lambda: agents.register(other, agent_id="A1"))
    await_blocked(other.url)
    assert [first.let_go().incarnation, ok(second.wait()).incarnation] == [1, 2]


def test_add_task_of_one_name_twice_at_once_refuses_one(connect: Connect) -> None:
    one, other = connect(), connect()
    first = Gate(one, body(tasks.add_task, task_id="T1", title="t"))
    second = Aside(lambda: tasks.add_task(other, task_id="T1", title="t"))
    await_blocked(other.url)
    first.let_go()
    refused(second.wait(), "task_exists")


# -- what is read on from a cursor ------------------------------------------------------------------------------------


def test_events_resumed_across_commits_out_of_order_misses_none(connect: Connect) -> None:
    one, two, reader = connect(), connect(), connect()
    add(one, "BEFORE")
    seen = [event.task_id for event in ok(observe.events(reader))]
    slow = Gate(one, body(tasks.add_task, task_id="SLOW", title="t"))
    add(two, "QUICK")
    after = max(event.seq for event in ok(observe.events(reader)))
    seen += [event.task_id for event in ok(observe.events(reader)) if event.task_id not in seen]
    slow.let_go()
    seen += [event.task_id for event in ok(observe.events(reader, after=after))]
    assert sorted(name for name in seen if name) == ["BEFORE", "QUICK", "SLOW"]


def test_seal_beside_an_open_transaction_leaves_no_hole(connect: Connect) -> None:
    one, two, three = connect(), connect(), connect()
    add(one, "SLOW")
    add(one, "QUICK")
    slow = Gate(one, body(claims.claim, task_id="SLOW", agent_id="A1"))
    take(two, "A2", "QUICK", "cli")
    ok(receipts.seal(three))
    slow.let_go()
    ok(receipts.seal(three))
    checked = ok(receipts.verify(three))
    assert (checked.receipts, checked.unsealed, checked.faults) == (2, 0, ())


def test_seal_twice_at_once_seals_once(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one)
    take(one, "A1", profile="cli")
    first = Gate(one, body(receipts.seal))
    second = Aside(lambda: receipts.seal(other))
    await_blocked(other.url)
    assert first.let_go().receipts == 1
    assert ok(second.wait()).receipts == 0
    assert ok(receipts.verify(one)).faults == ()


def test_messages_to_one_agent_from_two_are_read_both(connect: Connect) -> None:
    one, other, reader = connect(), connect(), connect()
    join(one, "A1")
    slow = Gate(one, body(notes.send_message, sender="B", to="A1", text="first"))
    second = Aside(lambda: notes.send_message(other, sender="C", to="A1", text="second"))
    await_blocked(other.url)
    assert ok(notes.inbox(reader, agent_id="A1")) == ()
    slow.let_go()
    ok(second.wait())
    assert [message.text for message in ok(notes.inbox(reader, agent_id="A1"))] == ["first", "second"]


# -- at random --------------------------------------------------------------------------------------------------------


def test_fleet_of_threads_on_a_graph_completes_each_task_once(connect: Connect) -> None:
    """Claims, completions of common dependencies, touches and recoveries, all at once: nothing raises, counts hold."""
    graph: list[dict[str, Any]] = []
    for layer in range(6):
        for number in range(8):
            after = [f"L{layer - 1}-{n}" for n in range(8) if (n + number) % 2] if layer else []
            graph.append({"task_id": f"L{layer}-{number}", "title": "t", "after": after})
    first = connect()
    ok(tasks.add_tasks(first, tasks=graph))
    done: Counter[str] = Counter()
    failures: list[object] = []
    counting = threading.Lock()

    def work(store: ProbedPostgres, name: str) -> None:
        try:
            while sum(done.values()) < len(graph):
                given = claims.claim_next(store, agent_id=name)
                if isinstance(given, Refused):
                    assert given.code == "nothing_ready", given
                    continue
                ok(touch.touch(store, agent_id=name))
                ok(recovery.advance(store))
                ok(endings.complete(store, lease_id=given.lease.lease_id))
                with counting:
                    done[given.task.task_id] += 1
        except BaseException as error:
            failures.append(error)
            done["failed"] = len(graph)
            raise

    threads = [threading.Thread(target=work, args=(connect(), f"A{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert failures == []
    assert done == Counter(task["task_id"] for task in graph)
    assert first.integrity_faults() == []
    assert ok(receipts.verify(first)).faults == ()


# -- boards -----------------------------------------------------------------------------------------------------------


def connected(store: ProbedPostgres) -> None:
    ok(boards.connect_board(store, url="http://board.invalid", board="B"))


def test_card_that_two_servers_list_at_once_becomes_one_task(connect: Connect) -> None:
    one, other = connect(), connect()
    connected(one)

    def met(tx: Any) -> Any:
        return boards.meet(tx, "default", "7", "1", "", CardState(title="By hand"), False)

    meeting = Gate(one, met)
    aside = Aside(lambda: other.run(met))
    await_blocked(other.url)
    key, new = meeting.let_go()
    assert (new, aside.wait()) == (True, (key, False))
    assert [view.task.task_id for view in ok(observe.list_tasks(one))] == ["KB-7"]


def test_comment_that_two_servers_read_at_once_is_noted_once(connect: Connect) -> None:
    one, other = connect(), connect()
    connected(one)
    one.run(lambda tx: boards.meet(tx, "default", "7", "1", "", CardState(title="By hand"), False))
    said = [boards.Heard(card_id="7", author="ann", text="Mind the gap.")]

    def heard(tx: Any) -> bool:
        return boards.heard(tx, "default", said, "", "12")

    hearing = Gate(one, heard)
    aside = Aside(lambda: other.run(heard))
    await_blocked(other.url)
    assert (hearing.let_go(), aside.wait()) == (True, False)
    assert [message.text for message in ok(notes.thread(one, task_id="KB-7"))] == ["Mind the gap."]


def test_act_that_two_servers_read_at_once_is_applied_once(connect: Connect) -> None:
    one, other = connect(), connect()
    connected(one)
    join(one, "A1")
    met, _ = one.run(lambda tx: boards.meet(tx, "default", "7", "1", "", CardState(title="By hand"), False))
    key = int(met or 0)
    take(one, "A1", "KB-7")
    card = CardState(title="By hand", status="in_progress", assignee="A1")
    one.run(lambda tx: boards.judge(tx, key, card, lambda state: state, "ann", read_at=10**9))
    reverted = CardState(title="By hand", status="blocked")

    def judged(tx: Any) -> Any:
        return boards.deliverable(tx, key, reverted, lambda state: state, "ann")

    judging = Gate(one, judged)
    aside = Aside(lambda: other.run(judged))
    await_blocked(other.url)
    assert judging.let_go().acted.action == "block"
    assert aside.wait().acted is None
    assert one.connection.execute("SELECT reversions FROM board_cards").fetchone() == (1,)


# -- what every node's monitors do ------------------------------------------------------------------------------------


def test_begin_a_design_on_two_nodes_at_once_makes_one_run(connect: Connect) -> None:
    one, other = connect(), connect()
    ok(projects.configure(one, document={"design": {"command": "designer"}}))
    ok(tasks.add_task(one, task_id="D1", title="Design", assigned_to="Marcus", kind="design"))
    begun: list[Any] = []

    def beside(tx: Any) -> Any:
        run = design.begin(tx)
        # Before the first has committed: the other passes over what is being begun.
        begun.append(other.run(design.begin))
        return run

    first = one.run(beside)
    assert first is not None
    assert first.attempt == 1
    assert begun == [None]
    assert other.run(design.begin) is None, "and afterwards it finds it begun"


def test_attach_facts_to_one_handoff_at_once_loses_none(connect: Connect) -> None:
    one, other = connect(), connect()
    add(one, "T1")
    lease = take(one, "A1", "T1", "cli")
    ok(endings.release(one, lease_id=lease.lease_id, message="Over to you."))
    handoff = ok(observe.show_task(one, task_id="T1")).handoffs[0]

    # The body takes facts as their check leaves them: as text.
    gate = Gate(one, body(handoffs.attach_facts, handoff_id=handoff.handoff_id, facts='{"output_tail": "one"}'))
    aside = Aside(lambda: handoffs.attach_facts(other, handoff_id=handoff.handoff_id, facts={"exited": "two"}))
    await_blocked(one.url)
    ok(gate.let_go())
    ok(aside.wait())
    git = ok(handoffs.handoffs_named(one, handoff_ids=[handoff.handoff_id]))[0].handoff.git or ""
    assert "one" in git
    assert "two" in git
