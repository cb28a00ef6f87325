"""The shapes of the server's answers, as types. They are the JSON itself, not copies of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypedDict


class LeaseFacts(TypedDict):
    """A lease, as `GET /lease` and `GET /tasks/{id}` show it."""

    task_id: str
    agent_id: str
    lease_id: str
    token: int
    incarnation: int
    state: str
    profile: str
    granted_at: str
    accepted_at: str | None
    expires_at: str
    recover_at: str
    seen_at: str
    lease_s: float
    grace_s: float
    renewals: int
    progress: int
    stuck: bool
    ended_at: str | None
    end_reason: str | None


class TaskFacts(TypedDict, total=False):
    """A task, in our words and in those of the specification's queue."""

    task_id: str
    project_id: str
    title: str
    body: str
    kind: str
    status: str
    priority: str
    assigned_to: str | None
    progress: int
    attempts: int
    max_attempts: int | None
    requires: list[str]
    lease_duration_s: int | None
    not_before: str | None
    retry_at: str | None
    blocked_reason: str | None
    inputs: dict[str, Any]
    principal_ai: str | None
    payload_pointer: str | None
    expected_outcome_kind: str | None
    expected_artifact_mime: str | None
    obligation: str
    created_at: str
    updated_at: str
    done_at: str | None
    due: bool
    leases: list[LeaseFacts]
    handoffs: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    queue_status: str
    attempt: int
    retry_after: str | None
    lease_id: str | None
    worker_id: str | None


class HeldFacts(TypedDict):
    """A heartbeat's answer. `lease_s` is what this heartbeat bought, counted from the server's now."""

    lease_id: str
    task_id: str
    token: int
    state: str
    lease_expires_at: str
    recover_at: str
    lease_s: float
    signals: list[str]


class ReleasedFacts(TypedDict):
    """A release's answer."""

    task_id: str
    status: str
    repeated: bool


class EventFacts(TypedDict):
    """One event of the stream; `seq` is the cursor to go on after it."""

    seq: int
    at: str
    kind: str
    project_id: str | None
    task_id: str | None
    lease_id: str | None
    agent_id: str | None
    data: dict[str, Any]


class HealthFacts(TypedDict):
    """How the server does."""

    status: str
    server_id: str
    statistics: dict[str, Any]
    monitors: list[dict[str, Any]]
    waiting_polls: int
    queued_verbs: int


class TaskPage(TypedDict):
    """Tasks, and the cursor of the next page (None at the end)."""

    tasks: list[TaskFacts]
    next_after: int | None


class ReceiptPage(TypedDict):
    """Receipts, and the cursor of the next page (None at the end)."""

    receipts: list[dict[str, Any]]
    next_after: int | None


class ObligationPage(TypedDict):
    """Tasks with an open or overdue obligation, and the cursor of the next page (None at the end)."""

    obligations: list[TaskFacts]
    next_after: int | None


@dataclass(frozen=True)
class Offer:
    """An offer: a lease that creates no obligation until it is accepted. What is None is not known yet."""

    lease_id: str
    lease_expires_at: str
    task: dict[str, Any]
    lease_s: float | None = None
    token: int | None = None

    @property
    def task_id(self) -> str:
        return str(self.task["task_id"])

    @property
    def task_type(self) -> str:
        return str(self.task.get("task_type", ""))


@dataclass(frozen=True)
class Offers:
    """A poll's answer: none, one or many offers. Without any, `retry_after_s` says when to ask again."""

    offers: tuple[Offer, ...] = ()
    retry_after_s: float | None = field(default=None)

    def __iter__(self) -> Iterator[Offer]:
        return iter(self.offers)

    def __len__(self) -> int:
        return len(self.offers)
