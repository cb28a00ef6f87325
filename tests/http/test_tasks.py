"""`/tasks`: adding, listing, showing in our words and in the specification's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.serving import Api, must, problem


def test_add_with_every_field_shows_every_field(api: Api) -> None:
    added = api.add(
        task_id="T-1",
        principal_ai="delegate.root",
        task_type="code.generate",
        task_summary="Generate",
        task_body="All of it",
        payload_pointer="depotgate://artifact/1",
        inputs={"language": "python"},
        expected_outcome_kind="artifact_pointer",
        expected_artifact_mime="text/x-python",
        task_priority="high",
        requires=["python", "gpu"],
        lease_duration_s=120,
        max_attempts=5,
        not_before="2020-01-01T00:00:00Z",
        dedupe_key="once",
    )
    assert added["title"] == "Generate"
    assert added["kind"] == "code.generate"
    assert added["priority"] == "high"
    assert sorted(added["requires"]) == ["gpu", "python"]
    assert (added["lease_duration_s"], added["max_attempts"]) == (120, 5)
    assert added["not_before"] == "2020-01-01T00:00:00Z"
    shown = api.task("T-1")
    assert {name: shown[name] for name in added} == added


def test_add_of_many_is_all_or_none(api: Api) -> None:
    body = {"tasks": [{"task_id": "T-1", "title": "One", "after": ["T-2"]}, {"task_id": "T-2", "title": "Two"}]}
    added = must(api.post("/tasks", body), 201)["tasks"]
    assert [task["task_id"] for task in added] == ["T-1", "T-2"]
    assert api.offer()["task"]["task_id"] == "T-2"
    twice = {"tasks": [{"task_id": "T-3", "title": "Three"}, {"task_id": "T-1", "title": "One again"}]}
    problem(api.post("/tasks", twice), 409, "task_exists")
    problem(api.get("/tasks/T-3"), 404, "task_not_found")


def test_add_of_many_names_its_project_once(api: Api) -> None:
    body = {"tasks": [{"title": "One", "project": "elsewhere"}]}
    problem(api.post("/tasks", body), 400, "invalid_argument")


def test_add_repeated_under_its_key_is_one_task(api: Api) -> None:
    first = api.add(dedupe_key="once")
    assert api.add(dedupe_key="once")["task_id"] == first["task_id"]
    refused = api.post("/tasks", {"task_summary": "Something else", "dedupe_key": "once"})
    problem(refused, 409, "dedupe_conflict")
    assert len(must(api.get("/tasks"))["tasks"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"task_summary": ""},
        {"task_summary": "x" * 501},
        {"task_summary": "x", "task_priority": "now"},
        {"task_summary": "x", "not_before": "tomorrow"},
        {"task_summary": "x", "lease_duration_s": 0},
        {"task_summary": "x", "lease_duration_s": 604_801},
        {"task_summary": "x", "max_attempts": 0},
        {"task_summary": "x", "inputs": {"a": "x" * 65_537}},
        {"task_summary": "x", "task_body": "x" * 100_001},
        {"task_summary": "x", "unheard_of": 1},
        {"tasks": {}},
        [],
        "x",
    ],
)
def test_add_of_a_bad_task_is_refused(api: Api, body: Any) -> None:
    problem(api.post("/tasks", body), 400, "invalid_argument")
    assert must(api.get("/tasks"))["tasks"] == []


def test_task_in_the_words_of_the_queue(api: Api) -> None:
    api.add(task_id="T-1")
    queued = api.task("T-1")
    assert (queued["queue_status"], queued["attempt"], queued["lease_id"]) == ("queued", 1, None)
    offer = api.offer()
    leased = api.task("T-1")
    assert (leased["queue_status"], leased["lease_id"], leased["worker_id"]) == (
        "leased",
        offer["lease_id"],
        "worker.1",
    )
    assert leased["lease_granted_at"] < leased["lease_expires_at"]
    # An offer creates no obligation: in our words the task is still to do.
    assert leased["status"] == "todo"
    api.accept("T-1")
    must(api.complete("T-1"), 201)
    assert api.task("T-1")["queue_status"] == "complete"


def test_list_is_filtered_and_paged(api: Api) -> None:
    for number in range(5):
        api.add(task_id=f"T-{number}", task_type="code.generate" if number % 2 else "data.analyze")
    api.take()
    assert len(must(api.get("/tasks", status="todo"))["tasks"]) == 4
    assert [task["task_id"] for task in must(api.get("/tasks", status="in_progress"))["tasks"]] == ["T-0"]
    assert len(must(api.get("/tasks", task_type="code.generate"))["tasks"]) == 2
    assert len(must(api.get("/tasks", assigned_to="worker.1"))["tasks"]) == 1
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = must(api.get("/tasks", limit=2, after=after))
        seen += [task["task_id"] for task in page["tasks"]]
        after = page["next_after"]
    assert seen == [f"T-{number}" for number in range(5)]


def test_unknown_task_is_not_found(api: Api) -> None:
    for path in ("/tasks/T-none", "/tasks/T-none/requeue"):
        response = api.post(path) if path.endswith("requeue") else api.get(path)
        problem(response, 404, "task_not_found")


def test_move_of_a_held_task_is_refused_until_it_says_revoke(api: Api) -> None:
    api.add(task_id="T-move")
    api.take()
    problem(api.post("/tasks/T-move/move", {"status": "todo"}), 409, "task_held")
    assert must(api.post("/tasks/T-move/move", {"status": "todo", "revoke": True, "by": "mira"}))["status"] == "todo"
    assert must(api.post("/tasks/T-move/move", {"status": "done"}))["status"] == "done"
    problem(api.post("/tasks/T-move/move", {"status": "blocked"}), 409, "wrong_state")
    problem(api.post("/tasks/T-move/move", {"status": "gone"}), 400, "invalid_argument")
