"""Verbs of one commit see each other, whatever waits and whatever was read ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.core.errors import Refused
from tenure.engine import claims, endings, observe, projects, tasks
from tenure.engine.verb import Verb
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok

Call = tuple[Verb[..., Any], dict[str, Any]]


def together(store: SqliteStore, *calls: Call) -> list[Any]:
    """Run verbs in one commit, as a server's writer does."""

    def bodies() -> Any:
        for verb, arguments in calls:
            checked = verb.check(arguments)
            assert not isinstance(checked, Refused)
            yield lambda tx, verb=verb, checked=checked: verb.body(tx, **checked)

    taking = bodies()
    outcomes = store.run_many(lambda: next(taking, None))
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [outcome.answer for outcome in outcomes]


@pytest.fixture(autouse=True)
def no_second_run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that went wrong is run again without any of this, and its answers would hide the mistake."""

    def run_again(*_: Any) -> Any:
        raise AssertionError("the batch was run again")

    if "raises" not in request.node.name:
        monkeypatch.setattr(SqliteStore, "_run_guarded", run_again)


def poll(worker: str) -> Call:
    return claims.offer, {"agent_id": worker}


def given(answer: Any) -> str:
    assert not isinstance(answer, Refused), answer
    return str(answer[0].task.task_id)


@pytest.fixture
def filled(store: SqliteStore) -> SqliteStore:
    for number in range(20):
        add(store, f"T{number:02}")
    return store


def test_polls_of_one_commit_get_different_tasks_in_their_order(filled: SqliteStore) -> None:
    answers = together(filled, *(poll(f"w.{number}") for number in range(20)))
    assert [given(answer) for answer in answers] == [f"T{number:02}" for number in range(20)]


def test_poll_after_the_last_ready_task_finds_nothing(filled: SqliteStore) -> None:
    answers = together(filled, *(poll(f"w.{number}") for number in range(21)))
    assert isinstance(answers[20], Refused)
    assert answers[20].code == "nothing_ready"


def test_urgent_task_added_between_two_polls_is_given_first(filled: SqliteStore) -> None:
    urgent: Call = (tasks.add_task, {"task_id": "NOW", "title": "Now", "priority": "critical"})
    first, _, second, third = together(filled, poll("w.1"), urgent, poll("w.2"), poll("w.3"))
    assert [given(first), given(second), given(third)] == ["T00", "NOW", "T01"]


def test_offer_that_is_released_in_the_same_commit_is_offered_again(filled: SqliteStore) -> None:
    held = together(filled, poll("w.1"))[0][0].lease
    answers = together(filled, poll("w.2"), (endings.release, {"lease_id": held.lease_id}), poll("w.3"))
    assert [given(answers[0]), given(answers[2])] == ["T01", "T00"]


def test_offer_is_accepted_in_the_commit_in_which_it_was_made(filled: SqliteStore) -> None:
    answers = together(filled, poll("w.1"), (claims.accept, {"task_id": "T00", "agent_id": "w.1"}), poll("w.2"))
    assert answers[1].lease.state == "active"
    assert given(answers[2]) == "T01"


def test_task_offered_released_and_deleted_in_one_commit_is_gone_whole(filled: SqliteStore) -> None:
    release: Call = (endings.release, {"task_id": "T00", "agent_id": "w.1"})
    answers = together(filled, poll("w.1"), release, (tasks.delete_task, {"task_id": "T00"}), poll("w.2"))
    assert not isinstance(answers[2], Refused), answers[2]
    assert given(answers[3]) == "T01"
    assert filled.connection.execute("SELECT count(*) FROM leases WHERE task_id = 'T00'").fetchone()[0] == 0
    assert filled.integrity_faults() == []


def test_edited_task_is_offered_as_it_is_now(filled: SqliteStore) -> None:
    edit: Call = (tasks.edit_task, {"task_id": "T01", "title": "Another title"})
    answers = together(filled, poll("w.1"), edit, poll("w.2"))
    assert answers[2][0].task.title == "Another title"


def test_work_that_comes_to_be_kept_for_an_agent_is_given_to_it_first(filled: SqliteStore) -> None:
    join(filled, "w.2")
    together(filled, poll("w.1"))
    assign: Call = (tasks.assign_task, {"task_id": "T09", "assigned_to": "w.2"})
    answers = together(filled, poll("w.3"), assign, poll("w.4"), poll("w.2"))
    assert [given(answers[0]), given(answers[2]), given(answers[3])] == ["T01", "T02", "T09"]


def test_second_slot_of_a_task_goes_to_another_agent(store: SqliteStore) -> None:
    add(store, "TWICE", slots=2)
    add(store, "ONCE")
    answers = together(store, poll("w.1"), poll("w.1"), poll("w.2"))
    assert [given(answer) for answer in answers] == ["TWICE", "ONCE", "TWICE"]


def test_poll_refused_for_its_terms_leaves_the_task_to_the_next(filled: SqliteStore) -> None:
    join(filled, "w.1")
    too_much: Call = (claims.offer, {"agent_id": "w.1", "profile": "agent", "ttl_s": 60})
    answers = together(filled, too_much, poll("w.2"), poll("w.3"))
    assert isinstance(answers[0], Refused)
    assert answers[0].code == "invalid_argument"
    assert [given(answers[1]), given(answers[2])] == ["T00", "T01"]


def listed(store: SqliteStore) -> list[str]:
    """What was read ahead, the next one last."""
    return [row["task_id"] for ready in store._memory.of("ready") for row in ready]


def test_task_written_by_another_process_is_seen_by_the_next_batch(filled: SqliteStore) -> None:
    together(filled, poll("w.1"), poll("w.2"), poll("w.3"))
    assert listed(filled), "what was read ahead outlives its batch"
    other = filled.clone()
    add(other, "NOW", priority="critical")
    other.close()
    answers = together(filled, poll("w.4"), poll("w.5"))
    assert [given(answer) for answer in answers] == ["NOW", "T03"]


def test_task_written_alone_on_the_same_connection_is_seen_by_the_next_batch(filled: SqliteStore) -> None:
    together(filled, poll("w.1"), poll("w.2"), poll("w.3"))
    assert listed(filled)
    add(filled, "NOW", priority="critical")
    answers = together(filled, poll("w.4"), poll("w.5"))
    assert [given(answer) for answer in answers] == ["NOW", "T03"]


def test_listed_task_that_is_claimed_by_its_name_is_passed_over(filled: SqliteStore) -> None:
    together(filled, poll("w.1"), poll("w.2"), poll("w.3"))
    assert listed(filled) == ["T05", "T04", "T03"]
    claim: Call = (claims.claim, {"task_id": "T04", "agent_id": "w.9", "profile": "worker"})
    answers = together(filled, claim, poll("w.4"), poll("w.5"))
    assert [given(answers[1]), given(answers[2])] == ["T03", "T05"]


def test_projects_have_lists_of_their_own(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="p2"))
    for number in range(6):
        add(store, f"A{number}")
        add(store, f"B{number}", project_id="p2")
    elsewhere: Call = (claims.offer, {"agent_id": "w.2", "project_id": "p2"})
    answers = together(store, poll("w.1"), elsewhere, poll("w.3"), elsewhere)
    assert [given(answer) for answer in answers] == ["A0", "B0", "A1", "B1"]


def test_work_kept_in_one_project_is_found_there(store: SqliteStore) -> None:
    join(store, "w.2")
    ok(projects.create_project(store, project_id="p2"))
    for number in range(6):
        add(store, f"A{number}")
        add(store, f"B{number}", project_id="p2")
    ok(tasks.assign_task(store, task_id="B4", project_id="p2", assigned_to="w.2"))
    elsewhere: Call = (claims.offer, {"agent_id": "w.2", "project_id": "p2"})
    answers = together(store, poll("w.1"), elsewhere)
    assert [given(answer) for answer in answers] == ["A0", "B4"]


def test_task_whose_last_dependency_is_done_takes_its_place_in_the_list(store: SqliteStore) -> None:
    for number in range(8):
        add(store, f"T{number:02}")
    add(store, "LAST", after=["T00"], priority="critical")
    held = together(store, poll("w.1"), poll("w.2"), poll("w.3"))[0][0].lease
    together(store, (claims.accept, {"lease_id": held.lease_id}))
    together(store, poll("w.4"))
    assert listed(store)
    answers = together(store, (endings.complete, {"lease_id": held.lease_id}), poll("w.5"))
    assert given(answers[1]) == "LAST"


def test_body_that_raises_takes_only_its_own_writes_with_it(filled: SqliteStore) -> None:
    def failing(tx: Any) -> None:
        claims.offer.body(tx, agent_id="w.9")
        raise ValueError("no")

    def polling(worker: str) -> Callable[[Any], Any]:
        return lambda tx: claims.offer.body(tx, agent_id=worker)

    bodies = iter([polling("w.1"), failing, polling("w.2")])
    outcomes = filled.run_many(lambda: next(bodies, None))
    assert isinstance(outcomes[1].error, ValueError)
    # What had not been taken when it raised is the next batch's.
    outcomes += filled.run_many(lambda: next(bodies, None))
    assert [given(outcomes[0].answer), given(outcomes[2].answer)] == ["T00", "T01"]
    listed = ok(observe.list_tasks(filled, limit=50))
    assert sum(len(view.leases) for view in listed) == 2
