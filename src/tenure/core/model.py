"""The nouns of the engine, as stored. Times are integer milliseconds of the store's clock; names carry their unit."""

from __future__ import annotations

from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Status = Literal["todo", "in_progress", "blocked", "done", "dead"]
    Priority = Literal["critical", "high", "medium", "low"]
    Complexity = Literal["none", "simple", "complex", "research", "epic"]
    LeaseState = Literal["offered", "active", "released", "completed", "expired", "revoked"]
    Owner = Literal["agent", "internal", "external"]
    Obligation = Literal["none", "open", "overdue", "closed"]

STATUSES = ("todo", "in_progress", "blocked", "done", "dead")
PRIORITIES = ("critical", "high", "medium", "low")
COMPLEXITIES = ("none", "simple", "complex", "research", "epic")
UNENDED = ("offered", "active")
DEFAULT_PROJECT = "default"


class Project(Record):
    """A namespace of tasks with its own settings (a JSON object of overrides; `{}` means the store's)."""

    project_id: str
    name: str
    settings: str = "{}"
    created_at_ms: int = 0


class Task(Record):
    """A unit of work, a card. `key` is the store's own number for it; users know it by (project_id, task_id)."""

    key: int
    project_id: str
    task_id: str
    title: str
    body: str = ""
    kind: str = ""
    status: Status = "todo"
    priority: Priority = "medium"
    complexity: Complexity = "none"
    estimated_hours: float = 4.0
    # Who the board says has it. `owner` tells what that name is: an agent (holding a lease, or the task is kept for
    # it), the reserved internal owner, or a person or program that is not a registered agent.
    assigned_to: str | None = None
    owner: Owner | None = None
    # Progress belongs to the task, not to a lease: a successor that dies silent hands on the last known percentage.
    progress: int = 0
    attempts: int = 0
    max_attempts: int | None = None
    # Recoveries in a row that found the same evidence of work (percentage, artifacts, branch head).
    silent_recoveries: int = 0
    evidence: str = "0|0|"
    unmet: int = 0
    slots: int = 1
    # Slots that could be offered now: 0 unless the task's status and owner allow it. The ready index is built on it.
    open_slots: int = 1
    # 1 while not_before or retry_at lies in the future; the timer that fires then clears it.
    waiting: int = 0
    not_before_ms: int = 0
    retry_at_ms: int = 0
    rank_ms: int = 0
    # Required capabilities, sorted and joined with spaces: one string per set, so that the ready index can seek it.
    requires: str = ""
    lease_duration_s: int | None = None
    last_token: int = 0
    blocked_reason: str = ""
    outcome: str = ""
    principal_ai: str = ""
    payload_pointer: str = ""
    inputs: str = ""
    expected_outcome_kind: str = ""
    expected_artifact_mime: str = ""
    dedupe_key: str | None = None
    obligation: Obligation = "none"
    # The token of the lease whose acceptance opened it: only that lease and later ones can close it.
    obligation_token: int = 0
    receipt_count: int = 0
    receipt_hash: str = ""
    artifact_count: int = 0
    created_at_ms: int = 0
    updated_at_ms: int = 0
    done_at_ms: int | None = None
    # Grows with every change a board would show; delivery clears what it delivered by this number.
    version: int = 1


class Lease(Record):
    """One holding of one task. The row carries everything the deadline needs, so a touch reads no settings."""

    lease_id: str
    task_key: int
    project_id: str
    task_id: str
    agent_id: str
    incarnation: int
    token: int
    profile: str
    state: LeaseState
    granted_at_ms: int
    slot: int = 0
    accepted_at_ms: int | None = None
    # The terms of the deadline (core/deadline.py).
    fixed: int = 0
    touch_extends: int = 1
    term_ms: int
    grace_ms: int = 0
    cadence_ms: int = 0
    hung_after_ms: int = 600_000
    silence_cap_ms: int = 3_600_000
    warning_ms: int = 36_000
    expires_at_ms: int
    seen_at_ms: int
    pulsed_at_ms: int | None = None
    silent_until_ms: int | None = None
    death_at_ms: int | None = None
    recover_at_ms: int
    wake_at_ms: int
    warned: int = 0
    # Work reported under this lease.
    renewals: int = 0
    reports: int = 0
    touches: int = 0
    progress: int = 0
    message: str = ""
    # Marks: the gaps between them in ms, newest last, joined with spaces, and the time of the last one.
    mark_gaps: str = ""
    marked_at_ms: int | None = None
    # The holder's last calls, newest last: how long it had been silent and how long it might have been (core/signs.py).
    signs: str = ""
    stuck: int = 0
    over_max: int = 0
    # The server the holder talks through, and that server's last pulse (joined in by every query that loads a lease).
    server_id: str | None = None
    server_pulsed_at_ms: int | None = None
    ended_at_ms: int | None = None
    end_reason: str = ""
    # When a recovered holder proved to be alive (a false recovery, if within the return window).
    returned_at_ms: int | None = None


class Agent(Record):
    """Whoever may hold a task. `incarnation` is the run that speaks for it now."""

    agent_id: str
    name: str = ""
    role: str = ""
    skills: str = ""
    project_id: str = DEFAULT_PROJECT
    profile: str = "agent"
    incarnation: int = 1
    state: str = "present"
    # The folder it works in, and the name of the machine that folder is on.
    worktree: str = ""
    host: str = ""
    branch: str = ""
    registered_at_ms: int = 0
    seen_at_ms: int = 0
    # The lease it lost last, so that its next call can be told and its return counted, without a search.
    lost_lease_id: str | None = None
    # When that was, by a clock that moves with the store's: what a return is measured from.
    lost_at_ms: int | None = None


class Link(Record):
    """Someone who sees the agent's process. A weak link (an open stream) proves life while up and nothing when down."""

    link_id: str
    agent_id: str
    incarnation: int
    kind: str
    weak: int = 0
    boot_id: str = ""
    pid_ns: str = ""
    pid: int = 0
    start_ticks: int = 0
    state: str = "up"
    linked_at_ms: int = 0
    pulsed_at_ms: int = 0
    # How the process ended and what it printed last, as far as whoever watched it told.
    exited: str = ""
    output_tail: str = ""


class Handoff(Record):
    """What the next holder needs: the specification's RecoveryInfo (the first eight fields) and what could be seen."""

    recovered_at_ms: int
    recovered_from_agent: str
    previous_progress: int
    time_spent_minutes: float
    recovery_reason: str
    previous_agent_branch: str | None
    instructions: str
    recovery_expires_at_ms: int
    handoff_id: str
    task_key: int
    lease_id: str
    token: int
    state: str = "open"
    attempts: int = 0
    last_message: str = ""
    # JSON: decisions and artifacts made under the lease, and what git showed (null while pending).
    decisions: str = "[]"
    artifacts: str = "[]"
    git: str | None = None
    # How its process ended and what it printed last, if someone watched it.
    exited: str = ""
    output_tail: str = ""
    # Where the holder worked, and whether somebody there should look at git.
    worktree: str = ""
    host: str = ""
    look: int = 1
    looked_at_ms: int = 0


class Message(Record):
    """A line in a task's thread, or to an agent's inbox."""

    seq: int
    at_ms: int
    project_id: str
    task_key: int | None = None
    task_id: str | None = None
    sender: str = ""
    recipient: str | None = None
    kind: str = "note"
    text: str = ""


class Event(Record):
    """A transient record for streams and `why`. `data` is a JSON object."""

    seq: int
    at_ms: int
    kind: str
    project_id: str | None = None
    task_id: str | None = None
    lease_id: str | None = None
    agent_id: str | None = None
    data: str = "{}"


class Receipt(Record):
    """An immutable ledger entry. `body` is the canonical JSON that `hash` covers together with `prev_hash`."""

    seq: int
    receipt_id: str
    project_id: str
    task_key: int
    task_id: str
    position: int
    phase: str
    at_ms: int
    lease_id: str | None
    dedupe_key: str | None
    principal: str
    body: str
    prev_hash: str
    hash: str


class Board(Record):
    """A project's external board: where it is, how its columns and people are ours, and how far each side was read."""

    project_id: str
    kind: str
    url: str
    place: str
    token: str = ""
    webhook_token: str = ""
    # JSON: columns, users, priorities (boards/mapping.py).
    config: str = "{}"
    link_id: str
    event_seq: int = 0
    feed: str = ""
    changes: int = 0
    connected_at_ms: int = 0
    swept_at_ms: int = 0
    # What went wrong last with the board as a whole; empty while it answers.
    error: str = ""


class BoardCard(Record):
    """A task's card: what was last seen of it (`base`, JSON), and what is left to deliver."""

    key: int
    project_id: str
    task_key: int | None
    task_id: str
    card_id: str = ""
    born: str = ""
    base: str | None = None
    change_no: int = 0
    version: int = 0
    dirty: int = 1
    busy_until_ms: int = 0
    retry_at_ms: int = 0
    attempts: int = 0
    parked: int = 0
    error: str = ""
    gone: int = 0
    reversions: int = 0
    said_seq: int = 0
