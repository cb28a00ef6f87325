"""Looking: derived status, pages, what is ready, what is in the way, what happened, and why."""

from __future__ import annotations

import pytest

from tenure.clock import ManualClock
from tenure.engine import agents, claims, dependencies, endings, explain, notes, observe, projects, tasks
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import done, feel, report, shown, tick, whole
from tests.support import add, join, ok, refused, take


@pytest.fixture(autouse=True)
def fleet(store: SqliteStore) -> None:
    for name in ("A1", "A2"):
        join(store, name)


def listed(store: SqliteStore, **filters: object) -> list[str]:
    return [view.task.task_id for view in ok(observe.list_tasks(store, **filters))]


def ready(store: SqliteStore, **filters: object) -> list[str]:
    return [view.task.task_id for view in ok(observe.ready_tasks(store, **filters))]  # type: ignore[arg-type]


# -- lists -------------------------------------------------------------------------------------------------------------


def test_list_tasks_by_what_they_are(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other"))
    add(store, "F001", kind="code")
    add(store, "F002", title="100% _sure_")
    add(store, "F003", assigned_to="Bob")
    add(store, "F004", project_id="other")
    assert listed(store) == ["F001", "F002", "F003", "F004"]
    assert listed(store, project_id="other") == ["F004"]
    assert listed(store, kind="code") == ["F001"]
    assert listed(store, assigned_to="Bob") == ["F003"]
    assert listed(store, text="f00") == ["F001", "F002", "F003", "F004"]
    assert listed(store, text="100% _") == ["F002"], "% and _ are themselves"
    assert listed(store, text="%") == ["F002"]
    assert listed(store, status="in_progress") == ["F003"]


def test_list_tasks_by_page_misses_none(store: SqliteStore) -> None:
    names = [f"F{number:03}" for number in range(7)]
    for name in names:
        add(store, name)
    found: list[str] = []
    after = 0
    while page := ok(observe.list_tasks(store, after=after, limit=3)):
        found += [view.task.task_id for view in page]
        after = page[-1].task.key
    assert found == names


def test_list_tasks_shows_a_dead_holders_task_as_todo_and_due(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    assert (listed(store, status="in_progress"), listed(store, status="todo")) == (["F001"], [])
    clock.advance(80)
    before = whole(store)
    assert (listed(store, status="in_progress"), listed(store, status="todo")) == ([], ["F001"])
    view = shown(store)
    assert (view.status, view.due, view.leases) == ("todo", True, ())
    assert whole(store) == before
    tick(store)
    assert (shown(store).status, shown(store).due) == ("todo", False)


def test_list_agents_by_page(store: SqliteStore) -> None:
    first = ok(agents.list_agents(store, limit=1))
    assert [agent.agent_id for agent in first] == ["A1"]
    rest = ok(agents.list_agents(store, after=first[-1].agent_id))
    assert [agent.agent_id for agent in rest] == ["A2"]


def test_show_agent_tells_its_links(store: SqliteStore, clock: ManualClock) -> None:
    ok(agents.link_up(store, agent_id="A1", incarnation=1, kind="mcp"))
    assert ok(agents.show_agent(store, agent_id="A1")).linked
    clock.advance(15)
    assert ok(agents.show_agent(store, agent_id="A1")).linked
    clock.advance(0.001)
    assert not ok(agents.show_agent(store, agent_id="A1")).linked, "not pulsed for 15 s: unknown, never up"


def test_show_task_tells_what_it_needs_and_who_needs_it(store: SqliteStore) -> None:
    add(store, "F001")
    add(store, "F002", after=["F001", "gone"], allow_missing=True)
    add(store, "F003", after=["F002"])
    detail = ok(observe.show_task(store, task_id="F002"))
    assert [(edge.needs, edge.missing) for edge in detail.needs] == [("F001", False), ("gone", True)]
    assert detail.dependants == ("F003",)


# -- what is ready -----------------------------------------------------------------------------------------------------


def test_list_ready_tasks_is_what_a_claim_would_be_given_in_order(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "low", priority="low")
    add(store, "high", priority="high")
    add(store, "gpu", requires=["gpu"])
    add(store, "waits", not_before_ms=clock.wall + 5_000)
    add(store, "needs", after=["low"])
    add(store, "kept", assigned_to="A1")
    add(store, "external", assigned_to="Bob")
    add(store, "blocked")
    ok(endings.block(store, task_id="blocked", reason="x"))
    add(store, "offered", priority="critical")
    ok(claims.offer(store, agent_id="w.1"))
    assert ready(store) == ["high", "gpu", "low"]
    assert ready(store, limit=1) == ["high"]
    refused(observe.ready_tasks(store, project_id="nowhere"), "project_not_found")


def test_list_ready_tasks_includes_waits_that_are_over(store: SqliteStore, clock: ManualClock) -> None:
    """With nothing running in between, and writing nothing."""
    add(store, "waits", not_before_ms=clock.wall + 5_000)
    clock.advance(4.999)
    assert ready(store) == []
    clock.advance(0.001)
    before = whole(store)
    assert ready(store) == ["waits"]
    assert whole(store) == before


@pytest.mark.parametrize(
    ("profile", "seconds", "expected", "because"),
    [
        ("agent", 79.999, [], "live"),
        ("agent", 80, ["F001"], "a dead agent's task is back at once"),
        ("cli", 900, ["F001"], "so is a command line's"),
        ("worker", 900, [], "a worker's task will wait 30 s first"),
    ],
)
def test_list_ready_tasks_includes_what_recovery_will_return_now(
    store: SqliteStore, clock: ManualClock, profile: str, seconds: float, expected: list[str], because: str
) -> None:
    add(store)
    take(store, "A1", profile=profile)
    clock.advance(seconds)
    before = whole(store)
    assert ready(store) == expected, because
    assert whole(store) == before
    if expected:
        assert shown(store).due


def test_list_ready_tasks_leaves_out_what_recovery_will_quarantine(store: SqliteStore, clock: ManualClock) -> None:
    ok(projects.configure(store, document={"tenure": {"quarantine_after": 1}}))
    add(store)
    take(store, "A1")
    clock.advance(80)
    assert ready(store) == []


def test_list_ready_tasks_leaves_out_a_dead_holders_task_that_waits_again(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store, "F000")
    add(store, "F001", after=["F000"])
    take(store, "A1", "F000")
    done(store, "A1", "F000")
    take(store, "A1")
    ok(tasks.reopen_task(store, task_id="F000"))
    clock.advance(80)
    assert ready(store) == ["F000"]


def test_list_ready_tasks_includes_an_offer_that_ran_out(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    ok(claims.offer(store, agent_id="w.1"))
    assert ready(store) == []
    clock.advance(900)
    assert ready(store) == ["F001"]


# -- gridlock ----------------------------------------------------------------------------------------------------------


def test_judge_gridlock_names_what_is_in_the_way(store: SqliteStore) -> None:
    add(store, "F001")
    add(store, "F002", after=["F001"])
    add(store, "F003", after=["gone"], allow_missing=True)
    assert not ok(observe.gridlock(store)).gridlocked, "F001 can be taken"
    ok(endings.block(store, task_id="F001", reason="no keys"))
    found = ok(observe.gridlock(store))
    assert found.gridlocked
    assert found.blocked["F002"] == ("F001",)
    assert found.missing == {"F003": ("gone",)}
    assert found.blocked_upstream == {"F002": ("F001",)}
    refused(observe.gridlock(store, project_id="nowhere"), "project_not_found")


def test_judge_gridlock_by_derived_status(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "F001")
    add(store, "F002", after=["F001"])
    take(store, "A1")
    assert ok(observe.gridlock(store)).in_progress == 1
    clock.advance(80)
    found = ok(observe.gridlock(store))
    assert (found.in_progress, found.gridlocked) == (0, False), "a dead holder's task can be taken"


# -- events ------------------------------------------------------------------------------------------------------------


def test_follow_events_since_a_number_misses_none(store: SqliteStore) -> None:
    add(store)
    take(store, "A1")
    last = ok(observe.events(store))[-1].seq
    report(store, "A1", 10)
    done(store, "A1")
    new = ok(observe.events(store, after=last))
    assert [event.kind for event in new] == ["reported", "completed"]
    assert [event.kind for event in ok(observe.events(store, after=last, limit=1))] == ["reported"]
    assert ok(observe.events(store, after=new[-1].seq)) == ()
    assert {event.task_id for event in ok(observe.events(store, task_id="F001"))} == {"F001"}
    assert {event.agent_id for event in ok(observe.events(store, agent_id="A1"))} == {"A1"}
    refused(observe.events(store, project_id="nowhere"), "project_not_found")


# -- why ---------------------------------------------------------------------------------------------------------------


def verdicts(store: SqliteStore, agent_id: str | None = "A2", task_id: str = "F001") -> dict[str, bool]:
    told = ok(explain.why(store, task_id=task_id, agent_id=agent_id, capabilities=["python"]))
    return {condition.name: condition.holds for condition in told.conditions}


def test_explain_ready_task_passes_every_condition(store: SqliteStore) -> None:
    add(store)
    assert set(verdicts(store).values()) == {True}
    assert len(verdicts(store)) == 7


def test_explain_task_nobody_gets_names_every_failed_condition(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "F000")
    add(store, after=["F000"], not_before_ms=clock.wall + 5_000, requires=["gpu"], assigned_to="A1")
    failed = {name for name, holds in verdicts(store).items() if not holds}
    assert failed == {"assigned_to", "dependencies", "not_before", "capabilities"}
    assert {name for name, holds in verdicts(store, "A1").items() if not holds} == failed - {"assigned_to"}


def test_explain_held_task_names_the_holder_and_its_time(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    clock.advance(10)
    feel(store, "A1")
    told = ok(explain.why(store, task_id="F001", agent_id="A2"))
    assert not verdicts(store)["lease"]
    assert told.story[-1].text == "A1 called once; counts as dead in 80 s without a sign of life"


def test_explain_due_task_says_what_a_claim_would_find(store: SqliteStore, clock: ManualClock) -> None:
    """The holder is dead and nobody has recovered it: a claim now would succeed, so `why` must not say otherwise."""
    add(store)
    take(store, "A1")
    clock.advance(80)
    before = whole(store)
    failed = {name for name, holds in verdicts(store).items() if not holds} - {"capabilities"}
    assert failed == set()
    assert whole(store) == before
    take(store, "A2")


def test_explain_due_worker_task_says_that_it_will_wait(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "w.1", profile="worker")
    clock.advance(900)
    assert {name for name, holds in verdicts(store).items() if not holds} == {"not_before"}


def test_explain_story_is_in_order_and_bounded(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    clock.advance(10)
    report(store, "A1", 40, message="half")
    ok(endings.release(store, task_id="F001", agent_id="A1", message="tired"))
    story = [line.text for line in ok(explain.why(store, task_id="F001")).story]
    assert story[0] == "added"
    assert story[1].startswith("claimed by A1 (agent, token ")
    assert story[2:] == [
        "receipt 1: accepted (from A1)",
        "A1 reports 40%: half",
        "released by A1: tired",
        "receipt 2: escalate to Marcus: released (from tenure)",
        "A1 called once in all, this one last",
    ]
    assert len(ok(explain.why(store, task_id="F001", limit=1)).story) == 1
    refused(explain.why(store, task_id="F404"), "task_not_found")


def test_brief_holder_has_decisions_of_what_it_depends_on(store: SqliteStore) -> None:
    from tenure.engine.notes import log_decision

    add(store, "F000", title="Choose a parser")
    take(store, "A1", "F000")
    ok(log_decision(store, task_id="F000", agent_id="A1", decision="We use pandas."))
    done(store, "A1", "F000")
    add(store, after=["F000"], body="Use what F000 chose.")
    take(store, "A2")
    text = ok(explain.briefing(store, task_id="F001", agent_id="A2"))
    assert "Use what F000 chose." in text
    assert "> We use pandas." in text
    ok(dependencies.remove_dependency(store, task_id="F001", needs="F000"))
    assert "We use pandas." not in ok(explain.briefing(store, task_id="F001", agent_id="A2"))


def test_brief_holder_has_its_unread_letters_and_its_branch(store: SqliteStore) -> None:
    add(store)
    take(store, "A2")
    ok(notes.send_message(store, sender="A1", to="A2", text="Call me."))
    ok(notes.send_message(store, sender="A1", task_id="F001", to="A2", text="In the thread."))
    ok(notes.send_message(store, sender="A1", to="A1", text="Not yours."))
    text = ok(explain.briefing(store, task_id="F001", agent_id="A2"))
    assert "From A1 to you at" in text
    assert text.count("> In the thread.") == 1
    assert "Not yours." not in text
    assert "Commit often on your branch marcus/A2" in text
    ok(notes.inbox(store, agent_id="A2"))
    assert "Call me." not in ok(explain.briefing(store, task_id="F001", agent_id="A2")), "read is read"


@pytest.mark.parametrize(
    ("settings", "phase"),
    [
        ({}, "Phase unproven: the lease runs 60 s plus 20 s of grace"),
        ({"enable_adaptive": False}, "The lease runs 90 s plus 30 s of grace"),
        ({"default_hours": 2, "max_lease_hours": 8}, "The lease runs 14400 s plus 30 s of grace"),
    ],
)
def test_brief_holder_names_a_phase_only_where_phases_apply(
    store: SqliteStore, settings: dict[str, object], phase: str
) -> None:
    ok(projects.configure(store, project_id="default", document={"task_lease": settings}))
    add(store)
    take(store, "A2")
    assert phase in ok(explain.briefing(store, task_id="F001", agent_id="A2"))
