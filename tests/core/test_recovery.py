"""What the end of a lease does to its task, as a table over profiles, attempts and evidence."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.model import Lease, Task
from tenure.core.profiles import BUILT_IN
from tenure.core.recovery import after_failure, after_recovery, evidence_of, numbers

NOW = 1_000_000
TASK = Task(key=1, project_id="default", task_id="F001", title="T", status="in_progress", owner="agent")


@pytest.mark.parametrize(
    ("profile", "changes", "expected", "because"),
    [
        ("agent", {}, {"status": "todo", "attempts": 1, "retry_at_ms": 0, "silent_recoveries": 1}, "back at once"),
        ("agent", {"silent_recoveries": 1}, {"status": "todo", "silent_recoveries": 2}, "the second silence in a row"),
        (
            "agent",
            {"silent_recoveries": 2},
            {"status": "blocked", "escalation": "quarantined", "terminal": False, "silent_recoveries": 3},
            "the third puts it into quarantine",
        ),
        (
            "agent",
            {"silent_recoveries": 2, "progress": 5},
            {"status": "todo", "silent_recoveries": 0, "evidence": "5|0|"},
            "a moved percentage is a sign of work",
        ),
        (
            "agent",
            {"silent_recoveries": 2, "artifact_count": 1},
            {"status": "todo", "silent_recoveries": 0, "evidence": "0|1|"},
            "an artifact is a sign of work",
        ),
        (
            "agent",
            {"silent_recoveries": 2, "progress": 50, "evidence": "50|0|"},
            {"status": "blocked", "escalation": "quarantined"},
            "work that was already there at the last recovery is none of this holder's",
        ),
        ("agent", {"attempts": 99}, {"status": "todo", "attempts": 100}, "attempts alone never stop an agent's task"),
        ("agent", {"max_attempts": 1}, {"status": "dead", "terminal": True}, "unless the task itself sets a limit"),
        ("cli", {}, {"status": "todo", "retry_at_ms": 0}, "no delay"),
        ("cli", {"attempts": 99, "silent_recoveries": 99}, {"status": "todo"}, "no limit and no quarantine"),
        ("worker", {}, {"status": "todo", "attempts": 1, "retry_at_ms": NOW + 30_000}, "30 s before the retry"),
        ("worker", {"attempts": 1}, {"status": "todo", "attempts": 2}, "a second retry"),
        (
            "worker",
            {"attempts": 2},
            {"status": "dead", "escalation": "max_retries_exceeded", "terminal": True, "retry_at_ms": 0},
            "the third used attempt is the last",
        ),
        ("worker", {"attempts": 2, "max_attempts": 5}, {"status": "todo"}, "the task's own limit goes first"),
        ("worker", {"silent_recoveries": 99}, {"status": "todo"}, "workers are counted, not quarantined"),
    ],
)
def test_recover_task(profile: str, changes: dict[str, Any], expected: dict[str, Any], because: str) -> None:
    verdict = after_recovery(TASK.replace(**changes), BUILT_IN[profile], NOW)
    assert {name: getattr(verdict, name) for name in expected} == expected, because
    assert bool(verdict.blocked_reason) == (verdict.status != "todo"), "a stopped task says why"
    assert bool(verdict.escalation) == (verdict.status != "todo"), "and to whom it is passed"


def test_recover_task_with_a_moved_branch_is_a_sign_of_work() -> None:
    moved = after_recovery(TASK.replace(silent_recoveries=2), BUILT_IN["agent"], NOW, branch_head="abc")
    assert (moved.status, moved.silent_recoveries, moved.evidence) == ("todo", 0, "0|0|abc")


def test_recover_task_without_a_look_at_the_branch_keeps_the_last_known_head() -> None:
    verdict = after_recovery(TASK.replace(silent_recoveries=2, evidence="0|0|abc"), BUILT_IN["agent"], NOW)
    assert (verdict.status, verdict.evidence) == ("blocked", "0|0|abc")


@pytest.mark.parametrize(
    ("profile", "attempts", "expected", "because"),
    [
        ("worker", 0, ("todo", NOW + 30_000), "a failure uses one attempt and waits like a lost one"),
        ("worker", 2, ("dead", 0), "the third failure is the last"),
        ("agent", 2, ("todo", 0), "an agent's failure goes back at once"),
        ("cli", 9, ("todo", 0), "so does a person's"),
    ],
)
def test_fail_task(profile: str, attempts: int, expected: tuple[str, int], because: str) -> None:
    task = TASK.replace(attempts=attempts, silent_recoveries=2)
    verdict = after_failure(task, BUILT_IN[profile], NOW)
    assert (verdict.status, verdict.retry_at_ms) == expected, because
    assert verdict.silent_recoveries == 2, "a failure that was reported is no silence"


def test_describe_evidence() -> None:
    assert evidence_of(TASK.replace(progress=40, artifact_count=2), "abc") == "40|2|abc"


def test_describe_recovery_in_numbers() -> None:
    lease = Lease(
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
        term_ms=90_000,
        grace_ms=30_000,
        cadence_ms=37_500,
        mark_gaps="25000",
        expires_at_ms=145_000,
        seen_at_ms=55_000,
        recover_at_ms=175_000,
        wake_at_ms=0,
    )
    plain = {
        "silent_s": 120.0,
        "lease_s": 90.0,
        "grace_s": 30.0,
        "median_s": 25.0,
        "cadence_s": 37.5,
        "expires_at_ms": 145_000,
        "recover_at_ms": 175_000,
    }
    assert numbers(lease, 175_000, 1.5) == plain
    assert numbers(lease.replace(death_at_ms=60_000, silent_until_ms=99_000), 175_000, 1.5) == {
        **plain,
        "died_at_ms": 60_000,
        "silent_until_ms": 99_000,
    }
