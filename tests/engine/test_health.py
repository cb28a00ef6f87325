"""Assignment health: the counts of both sides, and what differs."""

from __future__ import annotations

from tenure.clock import ManualClock
from tenure.engine import endings, projects, recovery
from tenure.engine.health import check_assignment_health
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok, refused, take


def test_assignment_health_counts_both_sides_and_names_a_dead_holder(store: SqliteStore, clock: ManualClock) -> None:
    ok(projects.create_project(store, project_id="other"))
    for number in range(3):
        join(store, f"A{number}")
        add(store, f"F{number}")
        take(store, f"A{number}", f"F{number}")
    add(store, "D1", assigned_to="Ann")
    add(store, "X1", project_id="other")
    ok(endings.complete(store, task_id="F2", agent_id="A2"))
    found = ok(check_assignment_health(store))
    assert (found.persisted_assignments, found.kanban_assigned_tasks, found.healthy) == (2, 3, True)
    found = ok(check_assignment_health(store, project_id="other"))
    assert (found.persisted_assignments, found.kanban_assigned_tasks) == (0, 0)
    clock.advance(3_600)
    found = ok(check_assignment_health(store))
    assert found.persisted_assignments == 0
    assert [one.task_id for one in found.mismatches] == ["F0", "F1"]
    assert "A0 is dead" in found.mismatches[0].problem
    ok(recovery.advance(store))
    assert ok(check_assignment_health(store)).healthy
    refused(check_assignment_health(store, project_id="nowhere"), "project_not_found")


def test_assignment_health_names_damage_from_outside(store: SqliteStore) -> None:
    join(store, "A1")
    for task_id in ("F1", "F2"):
        add(store, task_id)
    take(store, "A1", "F1")
    store.connection.execute("UPDATE tasks SET status = 'done' WHERE task_id = 'F1'")
    store.connection.execute("UPDATE tasks SET status = 'in_progress', assigned_to = 'A1' WHERE task_id = 'F2'")
    problems = {one.task_id: one.problem for one in ok(check_assignment_health(store)).mismatches}
    assert problems == {"F1": "held by A1 and shown as done", "F2": "in progress for A1, who holds no lease"}
