"""The assignment filter one condition at a time, the order of the queue, and the slots that are open."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.assignment import (
    DAY_MS,
    conditions,
    open_slots,
    rank_ms,
    ready_from_ms,
    requirement_set,
    satisfies,
)
from tenure.core.model import Lease, Task

NOW = 1_000_000
TASK = Task(key=1, project_id="default", task_id="F001", title="T")
LEASE = Lease(
    lease_id="lease-1",
    task_key=1,
    project_id="default",
    task_id="F001",
    agent_id="A1",
    incarnation=1,
    token=1,
    profile="agent",
    state="active",
    granted_at_ms=0,
    term_ms=1,
    expires_at_ms=2 * NOW,
    seen_at_ms=0,
    recover_at_ms=2 * NOW,
    wake_at_ms=2 * NOW,
)
KEPT = {"assigned_to": "A1", "owner": "agent"}
INTERNAL = {"assigned_to": "Marcus", "owner": "internal", "status": "in_progress"}
EXTERNAL = {"assigned_to": "Bob", "owner": "external", "status": "in_progress"}
TAKEN = {"assigned_to": "A1", "owner": "agent", "status": "in_progress"}


def failed(
    changes: dict[str, Any],
    *,
    agent_id: str | None = "A2",
    capabilities: list[str] | None = None,
    unmet: tuple[str, ...] = (),
    held: tuple[Lease, ...] = (),
) -> list[tuple[str, str]]:
    """The conditions that fail, with the code a claim would be told."""
    found = conditions(
        TASK.replace(**changes),
        agent_id=agent_id,
        capabilities=capabilities,
        reserved_owner="Marcus",
        unmet=unmet,
        live_leases=held,
        now_ms=NOW,
    )
    assert [condition.name for condition in found] == [
        "reserved_owner",
        "lease",
        "status",
        "assigned_to",
        "dependencies",
        "not_before",
        "capabilities",
    ]
    assert all(condition.detail for condition in found), "why shows every condition with its reason"
    assert not any(condition.holds and condition.refusal for condition in found)
    return [
        (condition.name, condition.refusal.code if condition.refusal else "")
        for condition in found
        if not condition.holds
    ]


@pytest.mark.parametrize(
    ("changes", "situation", "expected", "because"),
    [
        ({}, {}, [], "a plain ready task is for anyone"),
        ({}, {"agent_id": None}, [], "also when nobody in particular asks"),
        (
            INTERNAL,
            {},
            [("reserved_owner", "task_assigned"), ("assigned_to", "")],
            "the server's own work is off limits",
        ),
        (
            TAKEN,
            {"held": (LEASE,)},
            [("lease", "already_claimed"), ("assigned_to", "task_assigned")],
            "held by another",
        ),
        (TAKEN, {"held": (LEASE,), "agent_id": "A1"}, [("lease", "already_claimed")], "held by yourself: the same no"),
        ({}, {"held": (LEASE.replace(state="offered"),)}, [("lease", "already_claimed")], "offered to another"),
        ({"status": "done"}, {}, [("status", "task_done")], "done"),
        ({"status": "dead"}, {}, [("status", "task_dead")], "dead"),
        ({"status": "blocked", "blocked_reason": "no keys"}, {}, [("status", "task_blocked")], "blocked"),
        (KEPT, {}, [("assigned_to", "task_assigned")], "kept for another agent"),
        (KEPT, {"agent_id": "A1"}, [], "kept for you"),
        (KEPT, {"agent_id": None}, [("assigned_to", "task_assigned")], "kept for someone is not for anyone"),
        (EXTERNAL, {}, [("assigned_to", "task_assigned")], "a person has it on the board"),
        ({"unmet": 1}, {"unmet": ("F000",)}, [("dependencies", "dependencies_unmet")], "a dependency is not done"),
        ({"not_before_ms": NOW + 1, "waiting": 1}, {}, [("not_before", "task_waiting")], "its time has not come"),
        ({"not_before_ms": NOW, "waiting": 1}, {}, [], "its time has come: the boundary instant is ready"),
        ({"not_before_ms": NOW + 1}, {}, [], "once ready it stays ready, although the clock was set back"),
        ({"retry_at_ms": NOW + 1, "waiting": 1}, {}, [("not_before", "task_waiting")], "it waits for its retry"),
        ({"requires": "gpu"}, {"capabilities": ["python"]}, [("capabilities", "capabilities_missing")], "cannot do it"),
        ({"requires": "gpu"}, {"capabilities": ["gpu", "python"]}, [], "can do more than it needs"),
        ({"requires": "gpu"}, {"capabilities": None}, [], "a claimant that says nothing is not filtered"),
        (
            {"requires": "gpu"},
            {"capabilities": []},
            [("capabilities", "capabilities_missing")],
            "one that says none is",
        ),
        ({}, {"capabilities": ["python"]}, [], "a task that requires nothing is for anyone"),
        ({**TAKEN, "slots": 2}, {"held": (LEASE,)}, [], "a second slot is open"),
        (
            {**TAKEN, "slots": 2},
            {"held": (LEASE,), "agent_id": "A1"},
            [("lease", "already_claimed")],
            "but not for the agent that holds the first",
        ),
        (
            {**TAKEN, "slots": 2},
            {"held": (LEASE, LEASE.replace(agent_id="A3", slot=1)), "agent_id": "A2"},
            [("lease", "already_claimed")],
            "no third holder for two slots",
        ),
        ({**KEPT, "slots": 2}, {}, [("assigned_to", "task_assigned")], "kept for another agent, slots or not"),
        ({**EXTERNAL, "slots": 2}, {}, [("assigned_to", "task_assigned")], "a person's card, slots or not"),
    ],
)
def test_filter_task(
    changes: dict[str, Any], situation: dict[str, Any], expected: list[tuple[str, str]], because: str
) -> None:
    assert failed(changes, **situation) == expected, because


def test_filter_task_names_what_stands_in_the_way() -> None:
    found = conditions(
        TASK.replace(unmet=2, requires="gpu rust"),
        agent_id="A2",
        capabilities=["rust"],
        reserved_owner="Marcus",
        unmet=["F000", "F009"],
        live_leases=[],
        now_ms=NOW,
    )
    refusals = {condition.name: condition.refusal for condition in found if condition.refusal}
    assert refusals["dependencies"].facts == {"task_id": "F001", "unmet": ["F000", "F009"]}
    assert refusals["capabilities"].facts == {"task_id": "F001", "missing": ["gpu"]}


@pytest.mark.parametrize(
    ("changes", "unended", "slots", "because"),
    [
        ({}, 0, 1, "a free task"),
        ({}, 1, 0, "offered: no slot is left"),
        ({"slots": 2}, 0, 2, "two slots, both free"),
        ({"slots": 2}, 1, 1, "two slots, one offered"),
        ({**TAKEN, "slots": 2}, 1, 1, "two slots, one at work"),
        ({**TAKEN, "slots": 2}, 2, 0, "two slots, both at work"),
        (TAKEN, 1, 0, "one slot, at work"),
        (KEPT, 0, 0, "kept for one agent: none for the others"),
        ({**KEPT, "slots": 2}, 0, 0, "kept for one agent, slots or not"),
        (INTERNAL, 0, 0, "the server's own"),
        ({**EXTERNAL, "slots": 2}, 0, 0, "a person's"),
        ({"status": "blocked"}, 0, 0, "blocked"),
        ({"status": "done"}, 0, 0, "done"),
        ({"status": "dead"}, 0, 0, "dead"),
    ],
)
def test_count_open_slots(changes: dict[str, Any], unended: int, slots: int, because: str) -> None:
    assert open_slots(TASK.replace(**changes), unended) == slots, because


@pytest.mark.parametrize(
    ("earlier", "later", "because"),
    [
        ({"priority": "critical"}, {"priority": "high"}, "critical before high"),
        ({"priority": "high"}, {"priority": "medium"}, "high before medium"),
        ({"priority": "medium"}, {"priority": "low"}, "medium before low"),
        ({"created_at_ms": 0}, {"created_at_ms": 1}, "of equals the older first"),
        (
            {"priority": "low", "created_at_ms": 0},
            {"priority": "high", "created_at_ms": 7 * DAY_MS + 1},
            "a low task a week old goes before a high one: nothing starves",
        ),
        (
            {"priority": "high", "created_at_ms": 7 * DAY_MS - 1},
            {"priority": "low", "created_at_ms": 0},
            "but not a moment sooner",
        ),
        (
            {"priority": "low", "created_at_ms": 0},
            {"priority": "critical", "created_at_ms": 30 * DAY_MS + 1},
            "even critical work gives way after a month",
        ),
        ({"created_at_ms": 5}, {"created_at_ms": 0, "not_before_ms": 9}, "a wait begins the queueing when it ends"),
        ({"created_at_ms": 9, "not_before_ms": 5}, {"created_at_ms": 10}, "a wait over before it was added is none"),
    ],
)
def test_rank_tasks(earlier: dict[str, Any], later: dict[str, Any], because: str) -> None:
    assert rank_ms(TASK.replace(**earlier)) < rank_ms(TASK.replace(**later)), because


def test_wait_for_the_later_of_not_before_and_retry() -> None:
    assert ready_from_ms(TASK.replace(not_before_ms=5, retry_at_ms=9)) == 9
    assert ready_from_ms(TASK.replace(not_before_ms=9, retry_at_ms=5)) == 9


WORDS = st.lists(st.sampled_from(["gpu", "python", "rust", "c++"]))


@given(WORDS)
def test_name_requirement_set_ignores_order_and_repetition(words: list[str]) -> None:
    assert requirement_set(words) == requirement_set([*reversed(words), *words])


@given(WORDS, WORDS)
def test_satisfy_requirements_means_having_them_all(required: list[str], offered: list[str]) -> None:
    assert satisfies(requirement_set(required), offered) == (set(required) <= set(offered))
    assert satisfies(requirement_set(required), None)
