"""Taking work: every condition of the filter through a real claim, the order of the queue, what is kept for whom."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenure.clock import ManualClock
from tenure.core.assignment import MAX_REQUIREMENT_SETS
from tenure.engine import agents, claims, endings, projects, tasks
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import done, events, receipts, shown, sql, task
from tests.support import add, join, ok, refused, take

DAY_S = 86_400


def next_id(store: SqliteStore, agent_id: str = "A1", **more: object) -> str:
    """The task that claim_next gives."""
    arguments: dict[str, object] = {"profile": "agent", **more}
    return ok(claims.claim_next(store, agent_id=agent_id, **arguments)).task.task_id  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def fleet(store: SqliteStore) -> None:
    for name in ("A1", "A2", "A3"):
        join(store, name)


def test_claim_ready_task_gives_a_lease_and_marks_the_task(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    grant = ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent"))
    assert (grant.lease.state, grant.lease.agent_id, grant.lease.granted_at_ms) == ("active", "A1", clock.wall)
    assert (grant.task.status, grant.task.assigned_to, grant.task.owner) == ("in_progress", "A1", "agent")
    assert grant.lease.token == grant.task.last_token >= clock.wall
    assert not grant.resumed
    assert [event.kind for event in events(store, "granted")] == ["granted"]
    assert [receipt.phase for receipt in receipts(store)] == ["accepted"]
    assert grant.task.obligation == "open"


def _held(store: SqliteStore) -> None:
    take(store, "A2")


def _offered(store: SqliteStore) -> None:
    ok(claims.offer(store, agent_id="w.1"))


def _held_by_yourself(store: SqliteStore) -> None:
    take(store, "A1")


def _done(store: SqliteStore) -> None:
    take(store, "A2")
    done(store, "A2")


def _blocked(store: SqliteStore) -> None:
    ok(endings.block(store, task_id="F001", reason="no credentials"))


def _dead(store: SqliteStore) -> None:
    sql(store, "UPDATE tasks SET status = 'dead', open_slots = 0")


def _kept(store: SqliteStore) -> None:
    ok(tasks.assign_task(store, task_id="F001", assigned_to="A2"))


def _external(store: SqliteStore) -> None:
    ok(tasks.assign_task(store, task_id="F001", assigned_to="Bob"))


def _internal(store: SqliteStore) -> None:
    ok(tasks.assign_task(store, task_id="F001", assigned_to="Marcus"))


def _waiting(store: SqliteStore) -> None:
    ok(tasks.edit_task(store, task_id="F001", not_before_ms=1 << 50))


def _unmet(store: SqliteStore) -> None:
    ok(tasks.add_task(store, task_id="F000", title="first", assigned_to="Bob"))
    from tenure.engine.dependencies import add_dependency

    ok(add_dependency(store, task_id="F001", needs="F000"))


def _demanding(store: SqliteStore) -> None:
    ok(tasks.edit_task(store, task_id="F001", requires=["gpu"]))


def _elsewhere(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other"))
    sql(store, "UPDATE tasks SET project_id = 'other'")


@pytest.mark.parametrize(
    ("prepare", "code", "exit_status", "because"),
    [
        (_held, "already_claimed", 4, "someone else holds it"),
        (_held_by_yourself, "already_claimed", 4, "you hold it: two windows under one id must not both win"),
        (_offered, "already_claimed", 4, "it is offered to a worker"),
        (_done, "task_done", 7, "it is done"),
        (_blocked, "task_blocked", 7, "it is blocked"),
        (_dead, "task_dead", 7, "it is dead"),
        (_kept, "task_assigned", 4, "it is kept for another agent"),
        (_external, "task_assigned", 4, "a person has it on the board"),
        (_internal, "task_assigned", 4, "the reserved owner handles it"),
        (_waiting, "task_waiting", 7, "its time has not come"),
        (_unmet, "dependencies_unmet", 7, "a dependency is not done"),
        (_demanding, "capabilities_missing", 7, "it requires what this agent does not have"),
    ],
)
def test_claim_task_that_is_not_ready_is_refused_and_next_passes_it_over(
    store: SqliteStore, prepare: Callable[[SqliteStore], None], code: str, exit_status: int, because: str
) -> None:
    add(store)
    prepare(store)
    asked = claims.claim(store, task_id="F001", agent_id="A1", profile="agent", capabilities=["python"])
    assert refused(asked, code).exit_status == exit_status, because
    refused(claims.claim_next(store, agent_id="A1", profile="agent", capabilities=["python"]), "nothing_ready")
    refused(claims.offer(store, agent_id="w.9", capabilities=["python"]), "nothing_ready")


def test_next_in_another_project_finds_nothing(store: SqliteStore) -> None:
    add(store)
    _elsewhere(store)
    refused(claims.claim_next(store, agent_id="A1", profile="agent"), "nothing_ready")
    sql(store, "INSERT INTO requirement_sets VALUES ('other', '')")
    assert next_id(store, project_id="other") == "F001"


def test_claim_unknown_names_are_refused(store: SqliteStore) -> None:
    add(store)
    refused(claims.claim(store, task_id="F404", agent_id="A1", profile="agent"), "task_not_found")
    refused(claims.claim(store, task_id="F001", agent_id="A404", profile="agent"), "agent_not_found")
    refused(claims.claim(store, task_id="F001", agent_id="A1", profile="agnet"), "invalid_argument")
    refused(claims.claim_next(store, agent_id="A1", profile="agent", project_id="nowhere"), "project_not_found")
    refused(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", incarnation=9), "invalid_argument")
    assert shown(store).status == "todo"


def test_claim_same_task_id_in_two_projects_needs_the_project(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other"))
    add(store)
    add(store, project_id="other", title="the other")
    no = refused(claims.claim(store, task_id="F001", agent_id="A1", profile="agent"), "ambiguous_task")
    assert no.facts["projects"] == ["default", "other"]
    grant = ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", project_id="other"))
    assert grant.task.title == "the other"
    mine = ok(claims.claim(store, task_id="F001", agent_id="A2", profile="agent", project_id="default"))
    assert mine.task.title == "Task F001"


def test_next_serves_by_priority(store: SqliteStore) -> None:
    for priority in ("low", "medium", "critical", "high"):
        add(store, f"T-{priority}", priority=priority)
    order = [next_id(store) for _ in range(4)]
    assert order == ["T-critical", "T-high", "T-medium", "T-low"]


def test_next_serves_equals_in_the_order_they_came(store: SqliteStore, clock: ManualClock) -> None:
    for name in ("one", "two", "three"):
        add(store, name)
        clock.advance(0.001)
    assert [next_id(store) for _ in range(3)] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("priority", "head_start_days"),
    [("critical", 30), ("high", 7), ("medium", 1)],
)
def test_next_prefers_old_low_work_once_its_head_start_is_over(
    store: SqliteStore, clock: ManualClock, priority: str, head_start_days: int
) -> None:
    """Urgent first, and nothing starves: a head start is worth days, not for ever."""
    add(store, "old", priority="low")
    clock.advance(head_start_days * DAY_S - 1)
    add(store, "just-before", priority=priority)
    clock.advance(2)
    add(store, "just-after", priority=priority)
    assert [next_id(store) for _ in range(3)] == ["just-before", "old", "just-after"]


def test_next_ranks_a_task_from_the_end_of_its_wait(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "waited", not_before_ms=clock.wall + 10_000)
    clock.advance(5)
    add(store, "later-added")
    clock.advance(4.999)
    assert next_id(store) == "later-added"
    refused(claims.claim_next(store, agent_id="A2", profile="agent"), "nothing_ready")
    clock.advance(0.001)
    assert next_id(store, "A2") == "waited", "the boundary instant is ready, with no monitor running"


def test_nothing_ready_says_when_that_may_change(store: SqliteStore, clock: ManualClock) -> None:
    assert refused(claims.claim_next(store, agent_id="A1", profile="agent"), "nothing_ready").facts == {
        "project_id": "default",
        "next_change_ms": None,
    }
    add(store, not_before_ms=clock.wall + 10_000)
    no = refused(claims.claim_next(store, agent_id="A1", profile="agent"), "nothing_ready")
    assert (no.facts["next_change_ms"], no.exit_status) == (10_000, 5)


def test_requeue_waiting_task_runs_it_now_and_ranks_it_now(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "waits", not_before_ms=clock.wall + 10 * DAY_S * 1000)
    clock.advance(1)
    ok(tasks.requeue_task(store, task_id="waits"))
    clock.advance(1)
    add(store, "new")
    assert next_id(store) == "waits"


def test_next_gives_preferred_kinds_first_and_any_kind_after(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "plain", priority="critical")
    add(store, "refactor", kind="code.refactor")
    add(store, "generate", kind="code.generate", priority="low")
    wanted = ["code.generate", "code.refactor"]
    assert [next_id(store, preferred_kinds=wanted) for _ in range(3)] == ["generate", "refactor", "plain"]


def test_next_gives_what_is_kept_for_the_agent_before_all_else(store: SqliteStore) -> None:
    add(store, "urgent", priority="critical", kind="code.generate")
    add(store, "mine", priority="low", assigned_to="A2")
    assert next_id(store, "A2", preferred_kinds=["code.generate"]) == "mine"
    assert next_id(store, "A2") == "urgent"


def test_claim_task_kept_for_yourself_is_given(store: SqliteStore) -> None:
    add(store, assigned_to="A2")
    assert shown(store).status == "todo"
    assert take(store, "A2").agent_id == "A2"


@pytest.mark.parametrize(
    ("requires", "capabilities", "given", "because"),
    [
        ([], None, True, "neither side speaks"),
        ([], ["python"], True, "the task requires nothing"),
        (["python"], None, True, "the claimant says nothing, so it is not filtered"),
        (["python"], ["rust", "python"], True, "the claimant has it"),
        (["python"], ["rust"], False, "the claimant lacks it"),
        (["python", "rust"], ["rust"], False, "the claimant lacks one of two"),
        (["python"], [], False, "the claimant says it has none"),
    ],
)
def test_next_filters_by_capabilities_where_both_sides_speak(
    store: SqliteStore, requires: list[str], capabilities: list[str] | None, given: bool, because: str
) -> None:
    add(store, requires=requires)
    answer = claims.claim_next(store, agent_id="A1", profile="agent", capabilities=capabilities)
    if given:
        assert ok(answer).task.task_id == "F001", because
    else:
        refused(answer, "nothing_ready")


def test_next_with_capabilities_still_serves_by_rank_across_sets(store: SqliteStore) -> None:
    add(store, "any")
    add(store, "rust", requires=["rust"], priority="high")
    add(store, "gpu", requires=["gpu"], priority="critical")
    add(store, "both", requires=["rust", "python"], priority="critical")
    assert [next_id(store, capabilities=["python", "rust"]) for _ in range(3)] == ["both", "rust", "any"]


def test_add_task_with_one_capability_set_too_many_is_refused(store: SqliteStore) -> None:
    many = [
        {"task_id": f"C{number}", "title": "T", "requires": [f"c{number}"]} for number in range(MAX_REQUIREMENT_SETS)
    ]
    ok(tasks.add_tasks(store, tasks=many))
    answer = tasks.add_task(store, task_id="F001", title="T", requires=["new"])
    refused(answer, "too_many_requirement_sets")
    assert add(store, requires=["c7"]).requires == "c7", "a known set is no new one"
    assert add(store, "F002").requires == "", "a task that requires nothing is never one too many"
    ok(tasks.delete_task(store, task_id="C0"))
    assert add(store, "F003", requires=["new"]).requires == "new", "a set that no task has any more makes room"


def test_next_with_resume_gives_back_what_the_agent_holds(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    add(store, "F002")
    held = take(store, "A1")
    clock.advance(10)
    join(store, "A1")
    again = ok(claims.claim_next(store, agent_id="A1", profile="agent", incarnation=2, resume=True))
    assert (again.resumed, again.lease.lease_id, again.lease.incarnation) == (True, held.lease_id, 2)
    assert again.lease.expires_at_ms == clock.wall + 60_000, "asking is a sign of life"
    other = ok(claims.claim_next(store, agent_id="A1", profile="agent"))
    assert (other.resumed, other.task.task_id) == (False, "F002"), "without resume it is given another"


def test_next_with_resume_and_nothing_held_takes_a_new_task(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    clock.advance(1_000)
    grant = ok(claims.claim_next(store, agent_id="A1", profile="agent", resume=True))
    assert not grant.resumed, "a lease that is not live is not held"
    assert [handoff.recovered_from_agent for handoff in grant.handoffs] == ["A1"]


def test_claim_by_an_older_incarnation_is_superseded(store: SqliteStore) -> None:
    add(store)
    join(store, "A1")
    refused(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", incarnation=1), "superseded")
    refused(claims.claim_next(store, agent_id="A1", profile="agent", incarnation=1), "superseded")
    assert task(store).status == "todo"


def test_claim_reads_the_thread_to_the_claimant_once(store: SqliteStore) -> None:
    from tenure.engine.notes import send_message

    add(store)
    ok(send_message(store, text="Mind the BOM.", sender="ann", task_id="F001"))
    grant = ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent"))
    assert [message.text for message in grant.messages] == ["Mind the BOM."]
    ok(endings.release(store, task_id="F001", agent_id="A1"))
    again = ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent"))
    assert "Mind the BOM." not in [message.text for message in again.messages]


def test_list_leases_of_an_agent_shows_the_live_ones(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    held = take(store, "A1")
    assert [lease.lease_id for lease in ok(claims.leases_of(store, agent_id="A1"))] == [held.lease_id]
    assert ok(agents.show_agent(store, agent_id="A1")).leases[0].lease_id == held.lease_id
    clock.advance(80)
    assert ok(claims.leases_of(store, agent_id="A1")) == ()
    refused(claims.leases_of(store, agent_id="A404"), "agent_not_found")
