"""Design tasks: who does them, what is left of them, and what their failure does not hold up."""

from __future__ import annotations

from functools import partial

import pytest

from tenure.clock import ManualClock
from tenure.engine import agents, claims, design, endings, explain, notes, observe, projects, tasks, transfer
from tenure.engine.design import RUN_ALIVE_MS, Run
from tenure.engine.prospects import prospects
from tenure.engine.receipts import verify
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok, refused, take


@pytest.fixture(autouse=True)
def fleet(store: SqliteStore) -> None:
    join(store, "A1")
    add(store, "D1", title="Design it", assigned_to="Marcus", kind="design")
    add(store, "F001", title="Parser", after=["D1"])
    add(store, "F002", title="Store", after=["F001"])


def command(store: SqliteStore, **changes: object) -> None:
    ok(projects.configure(store, document={"design": {"command": "designer -v", **changes}}))


def begin(store: SqliteStore) -> Run:
    run = store.run(design.begin)
    assert run is not None
    return run


def status(store: SqliteStore, task_id: str = "D1") -> str:
    return ok(observe.show_task(store, task_id=task_id)).view.status


def kinds(store: SqliteStore) -> list[str]:
    return [event.kind for event in ok(observe.events(store, task_id="D1"))]


def test_design_task_is_given_to_no_agent(store: SqliteStore) -> None:
    refused(claims.claim_next(store, agent_id="A1", profile="agent"), "nothing_ready")
    refused(claims.claim(store, task_id="D1", agent_id="A1", profile="agent"), "task_assigned")
    refused(agents.register(store, agent_id="Marcus"), "reserved_name")
    answer = ok(prospects(store, agent_id="A1"))
    assert (answer.should_exit, answer.retry_after_seconds, answer.waiting_for) == (False, 60, ("D1",))
    # A server does it soon; without one nobody can say when.
    ok(agents.start_server(store, server_id="s1"))
    assert ok(prospects(store, agent_id="A1")).retry_after_seconds == 10


def test_design_without_a_command_is_a_brief_and_done_at_once(store: SqliteStore) -> None:
    assert store.look(design.due).wait_ms == 0
    assert store.run(design.begin) is None
    assert store.look(design.due).wait_ms is None
    assert status(store) == "done"
    (artifact,) = ok(notes.artifacts(store, task_id="D1"))
    assert (artifact.agent_id, artifact.filename, artifact.artifact_type) == ("Marcus", "design-D1.md", "design")
    assert "**F001** Parser" in (artifact.content or "")
    assert "F001 “Parser” → F002 “Store”" in (artifact.content or "")
    assert store.run(design.begin) is None, "once"
    assert len(ok(notes.artifacts(store, task_id="D1"))) == 1
    assert not ok(verify(store)).faults
    assert ok(claims.claim_next(store, agent_id="A1", profile="agent")).task.task_id == "F001"
    text = ok(explain.briefing(store, task_id="F001", agent_id="A1"))
    assert "design-D1.md (design)" in text
    assert "get_task_context(D1)" in text


def test_design_without_dependants_is_about_the_open_tasks_of_its_project(store: SqliteStore) -> None:
    store.run(design.begin)
    ok(projects.create_project(store, project_id="other"))
    add(store, "X001", project_id="other", title="Elsewhere")
    add(store, "D2", assigned_to="Marcus", project_id="other")
    store.run(design.begin)
    content = ok(notes.artifacts(store, task_id="D2"))[0].content or ""
    assert "X001" in content
    assert "F001" not in content


def test_design_waits_for_what_it_needs(store: SqliteStore) -> None:
    store.run(design.begin)
    add(store, "Q1", title="Ask people")
    add(store, "D2", assigned_to="Marcus", after=["Q1"])
    add(store, "F009", after=["D2"])
    take(store, "A1", "F001")
    ok(endings.complete(store, task_id="F001", agent_id="A1"))
    assert store.look(design.due).wait_ms is None
    ok(endings.block(store, task_id="Q1", reason="nobody answers", force=True))
    take(store, "A1", "F002")
    ok(endings.complete(store, task_id="F002", agent_id="A1"))
    answer = ok(prospects(store, agent_id="A1"))
    assert (answer.outlook, answer.should_exit) == ("gridlocked", True), "nobody is at work on D2"
    ok(tasks.unblock_task(store, task_id="Q1"))
    take(store, "A1", "Q1")
    ok(endings.complete(store, task_id="Q1", agent_id="A1"))
    assert store.look(design.due).wait_ms == 0


def test_run_writes_what_the_program_printed(store: SqliteStore) -> None:
    command(store)
    run = begin(store)
    assert (run.task_id, run.attempt, run.design.command) == ("D1", 1, "designer -v")
    assert "Design it" in run.prompt
    assert store.run(design.begin) is None, "one run at a time"
    assert store.run(lambda tx: design.finish(tx, run, "# The design\n"))
    assert status(store) == "done"
    assert [artifact.content for artifact in ok(notes.artifacts(store, task_id="D1"))] == ["# The design\n"]
    assert not store.run(lambda tx: design.finish(tx, run, "again"))
    assert len(ok(notes.artifacts(store, task_id="D1"))) == 1


def test_run_of_a_killed_server_is_begun_again_and_its_late_words_are_lost(
    store: SqliteStore, clock: ManualClock
) -> None:
    command(store)
    first = begin(store)
    clock.advance(RUN_ALIVE_MS / 1000 - 1)
    assert store.run(lambda tx: design.pulse(tx, first))
    clock.advance(RUN_ALIVE_MS / 1000 - 1)
    assert store.run(design.begin) is None
    clock.advance(1)
    second = begin(store)
    assert (second.attempt, second.token > first.token) == (2, True)
    assert not store.run(lambda tx: design.pulse(tx, first))
    assert not store.run(lambda tx: design.give_back(tx, first))
    assert not store.run(lambda tx: design.finish(tx, first, "late"))
    assert not store.run(lambda tx: design.fail(tx, first, "late"))
    assert store.run(lambda tx: design.finish(tx, second, "good"))
    assert [artifact.content for artifact in ok(notes.artifacts(store, task_id="D1"))] == ["good"]


def test_run_that_fails_is_repeated_then_the_brief_stands_in_and_dependants_go_on(
    store: SqliteStore, clock: ManualClock
) -> None:
    command(store, retries=1)
    run = begin(store)
    assert store.run(lambda tx: design.fail(tx, run, "status 3: no model"))
    assert status(store) == "in_progress"
    (fault,) = ok(design.design_faults(store))
    assert (fault.task_id, fault.error, fault.substituted) == ("D1", "status 3: no model", False)
    assert store.look(design.due).wait_ms == 5_000
    assert store.run(design.begin) is None
    clock.advance(5)
    again = begin(store)
    assert again.attempt == 2
    assert store.run(lambda tx: design.fail(tx, again, "status 3: no model"))
    assert status(store) == "done"
    content = ok(notes.artifacts(store, task_id="D1"))[0].content or ""
    assert "The design program failed (status 3: no model); this brief was made" in content
    assert kinds(store).count("design_failed") == 2
    assert "design_substituted" in kinds(store)
    story = " ".join(line.text for line in ok(explain.why(store, task_id="D1")).story)
    assert "the design program failed (attempt 2 of 2): status 3: no model" in story
    assert "program failed" in ok(notes.thread(store, task_id="D1"))[-1].text
    (fault,) = ok(design.design_faults(store))
    assert fault.substituted
    assert ok(claims.claim_next(store, agent_id="A1", profile="agent")).task.task_id == "F001"
    clock.advance(2 * 86_400)
    assert not ok(design.design_faults(store)), "yesterday's news"


def test_run_cut_off_by_every_server_ends_with_the_brief(store: SqliteStore, clock: ManualClock) -> None:
    command(store, retries=1)
    for attempt in (1, 2):
        assert begin(store).attempt == attempt
        clock.advance(RUN_ALIVE_MS / 1000)
    assert store.run(design.begin) is None
    assert status(store) == "done"
    assert "its server died" in (ok(notes.artifacts(store, task_id="D1"))[0].content or "")


def test_run_given_back_by_a_stopping_server_costs_nothing(store: SqliteStore) -> None:
    command(store, retries=0)
    for _ in range(3):
        run = begin(store)
        assert run.attempt == 1
        assert store.run(partial(design.give_back, run=run))
    assert store.look(design.due).wait_ms == 0


@pytest.mark.parametrize("taken", ["nobody", "Ann", "done", "deleted"])
def test_run_whose_task_was_taken_away_writes_nothing(store: SqliteStore, taken: str) -> None:
    command(store)
    run = begin(store)
    if taken == "done":
        ok(endings.complete(store, task_id="D1", force=True))
    elif taken == "deleted":
        ok(tasks.delete_task(store, task_id="D1", force=True))
    else:
        ok(tasks.assign_task(store, task_id="D1", assigned_to=None if taken == "nobody" else taken))
    assert not store.run(lambda tx: design.pulse(tx, run))
    assert not store.run(lambda tx: design.finish(tx, run, "late"))
    if taken != "deleted":
        assert not ok(notes.artifacts(store, task_id="D1"))


def test_faults_name_a_design_that_no_server_does(store: SqliteStore, clock: ManualClock) -> None:
    assert not ok(design.design_faults(store)), "it may be done any moment"
    clock.advance(60)
    (fault,) = ok(design.design_faults(store))
    assert "no server is up" in fault.error
    ok(agents.start_server(store, server_id="s1"))
    assert not ok(design.design_faults(store))


def test_command_comes_neither_with_a_new_project_nor_with_an_import(store: SqliteStore) -> None:
    harm = {"design": {"command": "rm -rf /"}}
    refused(projects.create_project(store, project_id="evil", settings=harm), "invalid_settings")
    record = {"record": "project", "project_id": "evil", "name": "x", "settings": harm}
    refused(transfer.import_records(store, records=[record]), "invalid_settings")
    ok(projects.configure(store, project_id="default", document={"design": {"command": "designer", "retries": 1}}))
    (exported,) = ok(transfer.export_page(store, kind="project"))
    assert exported["settings"] == {"design": {"retries": 1}}


@pytest.mark.parametrize("command_line", ["'open", '"', " "])
def test_command_whose_quotes_do_not_close_is_refused(store: SqliteStore, command_line: str) -> None:
    answer = projects.configure(store, document={"design": {"command": command_line}})
    assert refused(answer, "invalid_settings").facts["setting"] == "design.command"


def test_a_renamed_reserved_owner_does_the_designs(store: SqliteStore) -> None:
    store.run(design.begin)
    ok(projects.configure(store, document={"tenure": {"reserved_owner": "Architect"}}))
    add(store, "D2", assigned_to="Architect")
    store.run(design.begin)
    assert ok(notes.artifacts(store, task_id="D2"))[0].agent_id == "Architect"
