"""What the end of a lease does to its task. Pure: the engine applies the verdict in the transaction that ends it.

The profile of the lease sets the policy, the task keeps the count:

    worker   an attempt is used, the task waits 30 s, and the third used attempt makes it dead
    agent    back at once; three recoveries in a row that show no new evidence of work put it into quarantine
    cli      back at once, without limit

Evidence of work is the percentage, the number of artifacts and the head of the agent's branch: what can be seen, not
what is said. An offer that nobody accepted costs nothing and leaves nothing behind.
"""

from __future__ import annotations

from tenure.core.deadline import median_gap_ms
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Lease, Status, Task
    from tenure.core.profiles import Profile


class Verdict(Record):
    """The task's next state, and the terminal escalation if there is one."""

    status: Status
    attempts: int
    silent_recoveries: int
    evidence: str
    retry_at_ms: int = 0
    blocked_reason: str = ""
    escalation: str | None = None
    terminal: bool = False


def evidence_of(task: Task, branch_head: str) -> str:
    """What a recovery compares: percentage, artifacts, branch head."""
    return f"{task.progress}|{task.artifact_count}|{branch_head}"


def after_recovery(task: Task, profile: Profile, now_ms: int, branch_head: str = "") -> Verdict:
    """The verdict on a task whose accepted holder was declared dead."""
    evidence = evidence_of(task, branch_head or task.evidence.rpartition("|")[2])
    silent = task.silent_recoveries + 1 if evidence == task.evidence else 0
    verdict = _after_attempt(task, profile, now_ms).replace(silent_recoveries=silent, evidence=evidence)
    if verdict.status == "todo" and profile.quarantine_after is not None and silent >= profile.quarantine_after:
        reason = f"quarantined after {silent} recoveries in a row without any sign of work"
        return verdict.replace(status="blocked", blocked_reason=reason, escalation="quarantined", retry_at_ms=0)
    return verdict


def after_failure(task: Task, profile: Profile, now_ms: int) -> Verdict:
    """The verdict on a task whose holder completed it with status failure: the attempt is used, the task goes on."""
    return _after_attempt(task, profile, now_ms)


def _after_attempt(task: Task, profile: Profile, now_ms: int) -> Verdict:
    attempts = task.attempts + 1
    limit = task.max_attempts if task.max_attempts is not None else profile.max_attempts
    verdict = Verdict(
        status="todo",
        attempts=attempts,
        silent_recoveries=task.silent_recoveries,
        evidence=task.evidence,
        retry_at_ms=now_ms + profile.requeue_delay_s * 1000 if profile.requeue_delay_s else 0,
    )
    if limit is not None and attempts >= limit:
        reason = f"used all {limit} attempts"
        return verdict.replace(
            status="dead", blocked_reason=reason, escalation="max_retries_exceeded", terminal=True, retry_at_ms=0
        )
    return verdict


def numbers(lease: Lease, now_ms: int, silence_multiplier: float) -> dict[str, Any]:
    """Why this lease was declared dead, in numbers."""
    median = median_gap_ms(lease)
    facts: dict[str, Any] = {
        "silent_s": round((now_ms - lease.seen_at_ms) / 1000, 3),
        "lease_s": lease.term_ms / 1000,
        "grace_s": lease.grace_ms / 1000,
        "median_s": None if median is None else median / 1000,
        # What the agent's own rhythm would explain; it is in force from the third mark on.
        "cadence_s": 0 if median is None else median * silence_multiplier / 1000,
        "expires_at_ms": lease.expires_at_ms,
        "recover_at_ms": lease.recover_at_ms,
    }
    if lease.death_at_ms is not None:
        facts["died_at_ms"] = lease.death_at_ms
    if lease.silent_until_ms is not None:
        facts["silent_until_ms"] = lease.silent_until_ms
    return facts
