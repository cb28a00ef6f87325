"""Projects and their settings: the specification's document as printed, overrides, contradictions by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.settings import DEFAULTS
from tenure.engine import claims, observe, projects
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import events, shown, whole
from tests.support import add, join, ok, refused, take

# The configuration document of the specification, exactly as it is printed there.
PRINTED = """
{ "task_lease": { "default_hours": 0.025, "max_renewals": 10, "warning_hours": 0.01, "grace_period_minutes": 0.5,
"renewal_decay_factor": 0.9, "min_lease_hours": 0.0167, "max_lease_hours": 0.0833, "stuck_threshold_renewals": 5,
"silence_multiplier": 1.5, "enable_adaptive": true, "priority_multipliers": { "critical": 0.5, "high": 0.75,
"medium": 1.0, "low": 1.5 }, "complexity_multipliers": { "simple": 0.5, "complex": 1.5, "research": 2.0, "epic": 3.0
} } }
"""
SLOW = {"task_lease": {"default_hours": 0.05, "grace_period_minutes": 1.0}}


def test_configure_the_printed_document_is_the_defaults(store: SqliteStore) -> None:
    assert ok(projects.show_settings(store)) == DEFAULTS, "starting with no configuration"
    assert ok(projects.configure(store, document=json.loads(PRINTED))) == DEFAULTS
    assert ok(projects.show_settings(store)) == DEFAULTS


def test_configure_store_holds_for_every_project(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other"))
    ok(projects.configure(store, document=SLOW))
    for project_id in ("default", "other"):
        assert ok(projects.show_settings(store, project_id=project_id)).task_lease.default_hours == 0.05


def test_configure_project_overrides_the_store_key_by_key(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other", settings={"task_lease": {"silence_multiplier": 2.0}}))
    ok(projects.configure(store, document=SLOW))
    ok(projects.configure(store, project_id="other", document={"task_lease": {"silence_multiplier": 3.0}}))
    found = ok(projects.show_settings(store, project_id="other")).task_lease
    assert (found.default_hours, found.silence_multiplier) == (0.05, 3.0)
    assert ok(projects.show_settings(store)).task_lease.silence_multiplier == 1.5


def test_configure_project_changes_the_leases_of_its_tasks(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="slow", settings=SLOW))
    join(store, "A1")
    add(store, "F001")
    add(store, "F002", project_id="slow")
    fast, slow = take(store, "A1"), take(store, "A1", "F002")
    assert (fast.term_ms, fast.grace_ms) == (60_000, 20_000)
    assert (slow.term_ms, slow.grace_ms) == (120_000, 40_000)


def test_configure_changes_nothing_for_a_lease_already_given(store: SqliteStore, clock: ManualClock) -> None:
    """A lease carries its own terms: every process judges it alike, whatever settings it has read."""
    join(store, "A1")
    add(store)
    held = take(store, "A1")
    ok(projects.configure(store, document=SLOW))
    assert shown(store).leases[0] == held
    clock.advance(80)
    assert shown(store).due


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"task_lease": {"min_lease_hours": 0.1}}, ["min_lease_hours", "max_lease_hours"]),
        ({"task_lease": {"default_hours": 1.0}}, ["default_hours", "max_lease_hours"]),
        ({"task_lease": {"default_hours": 0.001}}, ["default_hours", "min_lease_hours"]),
        ({"task_lease": {"grace_period_minutes": 10}}, ["grace_period_minutes", "default_hours"]),
        ({"task_lease": {"warning_hours": 1}}, ["warning_hours", "max_lease_hours"]),
        ({"task_lease": {"stuck_threshold_renewals": 11}}, ["stuck_threshold_renewals", "max_renewals"]),
        ({"task_lease": {"default_hour": 1}}, ["default_hour", "default_hours"]),
        ({"task_lease": {"hung_after_s": 60}}, ["task_lease.hung_after_s", "tenure.hung_after_s"]),
        ({"tenure": {"nonsense": 1}}, ["tenure.nonsense"]),
        ({"tasklease": {}}, ["tasklease", "task_lease"]),
        ({"task_lease": {"enable_adaptive": "yes"}}, ["enable_adaptive"]),
        ({"tenure": {"reserved_owner": "-x"}}, ["reserved_owner"]),
        ({"profiles": {"cli": {"base": "cli"}}}, ["profiles.cli"]),
        ({"profiles": {"p": {"ttl_s": 5}}}, ["profiles.p.base"]),
        ({"profiles": {"p": {"base": "agent", "ttl_s": 5}}}, ["profiles.p.ttl_s", "profiles.p.fixed"]),
        ({"task_types": {"code": {"lease_duration_s": 0}}}, ["task_types.code.lease_duration_s"]),
        ([], ["settings"]),
    ],
)
def test_configure_contradictory_or_unknown_settings_are_refused_by_name(
    store: SqliteStore, document: Any, named: list[str]
) -> None:
    ok(projects.create_project(store, project_id="other"))
    before = whole(store)
    for answer in (
        projects.configure(store, document=document),
        projects.configure(store, project_id="other", document=document),
        projects.create_project(store, project_id="new", settings=document),
    ):
        no = refused(answer, "invalid_settings")
        assert no.exit_status == 2
        for name in named:
            assert name in no.message
    assert whole(store) == before, "the settings in force are unchanged"


def test_configure_store_that_would_contradict_a_project_is_refused_with_its_name(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other", settings={"task_lease": {"max_lease_hours": 0.05}}))
    before = whole(store)
    no = refused(projects.configure(store, document={"task_lease": {"default_hours": 0.06}}), "invalid_settings")
    assert no.facts["project_id"] == "other"
    assert whole(store) == before


def test_configure_leaves_an_event(store: SqliteStore) -> None:
    ok(projects.configure(store, document=SLOW))
    assert len(events(store, "configured")) == 1


def test_create_project_twice_is_refused(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other", name="The other"))
    refused(projects.create_project(store, project_id="other"), "project_exists")
    refused(projects.create_project(store, project_id="default"), "project_exists")
    assert [(found.project_id, found.name) for found in ok(projects.list_projects(store))] == [
        ("default", "default"),
        ("other", "The other"),
    ]


def test_use_project_that_does_not_exist_is_refused(store: SqliteStore) -> None:
    refused(projects.configure(store, project_id="nowhere", document={}), "project_not_found")
    refused(projects.show_settings(store, project_id="nowhere"), "project_not_found")


def test_claim_next_works_in_the_agents_own_project(store: SqliteStore) -> None:
    from tenure.engine.agents import register

    ok(projects.create_project(store, project_id="other"))
    add(store, "F001")
    add(store, "F002", project_id="other")
    ok(register(store, agent_id="A1", project_id="other"))
    assert ok(claims.claim_next(store, agent_id="A1", profile="agent")).task.task_id == "F002"
    refused(claims.claim_next(store, agent_id="A1", profile="agent"), "nothing_ready")
    assert ok(observe.statistics(store, project_id="other")).active == 1
    assert ok(observe.statistics(store, project_id="default")).active == 0
