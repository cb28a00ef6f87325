"""One function per route: what to send, and how to read the answer. Both clients are made of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from urllib.parse import quote

from tenure.core import receipts
from tenure.surfaces.sdk.errors import retry_after_s
from tenure.surfaces.sdk.facts import (
    HealthFacts,
    HeldFacts,
    LeaseFacts,
    ObligationPage,
    Offer,
    Offers,
    ReceiptPage,
    ReleasedFacts,
    TaskFacts,
    TaskPage,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
# What an offer's fixed body has no place for, one value for each offer: how long the lease lasts, and its token.
LEASE_HEADER = "tenure-lease-s"
TOKEN_HEADER = "tenure-token"


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request and the reader of its answer. `extra_s` is how much longer than usual the answer may take."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    json: Any = None
    params: Mapping[str, str] = field(default_factory=dict)
    extra_s: float = 0.0


def _body(response: httpx.Response) -> Any:
    return response.json()


def _given(**values: Any) -> dict[str, Any]:
    """Only what was given: the server fills the rest."""
    return {name: value for name, value in values.items() if value is not None}


def _query(**values: Any) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _id(value: str) -> str:
    return quote(value, safe="")


# -- the worker protocol ----------------------------------------------------------------------------------------------


def lease(
    worker_id: str,
    capabilities: Sequence[str] | None,
    max_tasks: int,
    preferred_kinds: Sequence[str],
    wait_s: float,
    profile: str | None,
    project: str | None,
    idempotency_key: str | None,
) -> Call[Offers]:
    body = _given(
        worker_id=worker_id,
        capabilities=None if capabilities is None else list(capabilities),
        max_tasks=max_tasks if max_tasks != 1 else None,
        preferred_kinds=list(preferred_kinds) or None,
        wait=wait_s or None,
        profile=profile,
        project=project,
        idempotency_key=idempotency_key,
    )
    return Call("POST", "/lease", _offers, json=body, extra_s=wait_s)


def _offers(response: httpx.Response) -> Offers:
    if response.status_code == 204:
        return Offers(retry_after_s=retry_after_s(response))
    body = response.json()
    terms, tokens = _listed(response, LEASE_HEADER), _listed(response, TOKEN_HEADER)
    return Offers(
        tuple(
            Offer(
                lease_id=one["lease_id"],
                lease_expires_at=one["lease_expires_at"],
                task=one["task"],
                lease_s=float(terms[index]) if index < len(terms) else None,
                token=int(tokens[index]) if index < len(tokens) else None,
            )
            for index, one in enumerate(body.get("leases", [body]))
        )
    )


def _listed(response: httpx.Response, header: str) -> list[str]:
    return [text for text in response.headers.get(header, "").split(",") if text]


def leases(worker_id: str) -> Call[list[LeaseFacts]]:
    def read(response: httpx.Response) -> list[LeaseFacts]:
        return cast("list[LeaseFacts]", response.json()["leases"])

    return Call("GET", "/lease", read, params={"worker_id": worker_id})


def heartbeat(lease_id: str, progress: int | None, message: str, expect_silence_s: int) -> Call[HeldFacts]:
    body = _given(progress=progress, message=message or None, expect_silence_s=expect_silence_s or None)
    return Call("POST", f"/lease/{_id(lease_id)}/heartbeat", _body, json=body)


def release(lease_id: str, message: str) -> Call[ReleasedFacts]:
    return Call("POST", f"/lease/{_id(lease_id)}/release", _body, json=_given(message=message or None))


# -- receipts ---------------------------------------------------------------------------------------------------------


def submit(receipt: Mapping[str, Any], project: str | None) -> Call[dict[str, Any]]:
    return Call("POST", "/receipts", _body, json=dict(receipt), params=_query(project=project))


def accepted(task_id: str, source: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an accepted receipt."""
    return receipts.accepted_body(task_id, source=source, **fields)


def progress(task_id: str, source: str, percent: int, message: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a progress receipt."""
    return receipts.progress_body(task_id, source=source, progress=percent, message=message, **fields)


def complete(task_id: str, source: str, status: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a complete receipt; the kind of outcome follows from what there is."""
    return receipts.complete_body(task_id, source=source, status=status, **fields)


def escalate(
    task_id: str, source: str, escalation_class: str, reason: str, to: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of an escalate receipt."""
    return receipts.escalate_body(
        task_id, reason, source=source, escalation_class=escalation_class, escalation_to=to, **fields
    )


def list_receipts(
    task_id: str | None,
    phase: str | None,
    principal_ai: str | None,
    since: str | None,
    until: str | None,
    project: str | None,
    after: int | None,
    limit: int | None,
) -> Call[ReceiptPage]:
    params = _query(
        task_id=task_id,
        phase=phase,
        principal_ai=principal_ai,
        since=since,
        until=until,
        project=project,
        after=after,
        limit=limit,
    )
    return Call("GET", "/receipts", _body, params=params)


def show_receipt(receipt_id: str) -> Call[dict[str, Any]]:
    return Call("GET", f"/receipts/{_id(receipt_id)}", _body)


def verify(task_id: str | None, project: str | None) -> Call[dict[str, Any]]:
    return Call("GET", "/receipts/verify", _body, params=_query(task_id=task_id, project=project))


def obligations(project: str | None, after: int | None, limit: int | None) -> Call[ObligationPage]:
    return Call("GET", "/obligations", _body, params=_query(project=project, after=after, limit=limit))


def gates(project: str | None) -> Call[dict[str, Any]]:
    return Call("GET", "/gates", _body, params=_query(project=project))


def resend(receipt_id: str | None, project: str | None) -> Call[dict[str, Any]]:
    return Call("POST", "/gates/resend", _body, json=_given(receipt_id=receipt_id), params=_query(project=project))


# -- tasks ------------------------------------------------------------------------------------------------------------


def add_task(fields: Mapping[str, Any]) -> Call[TaskFacts]:
    return Call("POST", "/tasks", _body, json=_given(**fields))


def add_tasks(tasks: Sequence[Mapping[str, Any]], project: str | None) -> Call[list[TaskFacts]]:
    def read(response: httpx.Response) -> list[TaskFacts]:
        return cast("list[TaskFacts]", response.json()["tasks"])

    return Call("POST", "/tasks", read, json=_given(tasks=[dict(task) for task in tasks], project=project))


def show_task(task_id: str, project: str | None) -> Call[TaskFacts]:
    return Call("GET", f"/tasks/{_id(task_id)}", _body, params=_query(project=project))


def list_tasks(
    status: str | None,
    task_type: str | None,
    assigned_to: str | None,
    search: str | None,
    project: str | None,
    after: int | None,
    limit: int | None,
) -> Call[TaskPage]:
    params = _query(
        status=status,
        task_type=task_type,
        assigned_to=assigned_to,
        search=search,
        project=project,
        after=after,
        limit=limit,
    )
    return Call("GET", "/tasks", _body, params=params)


def requeue(task_id: str, project: str | None) -> Call[TaskFacts]:
    return Call("POST", f"/tasks/{_id(task_id)}/requeue", _body, params=_query(project=project))


def move(task_id: str, status: str, by: str, message: str, revoke: bool, project: str | None) -> Call[TaskFacts]:
    body = {"status": status, "by": by, "message": message, "revoke": revoke}
    return Call("POST", f"/tasks/{_id(task_id)}/move", _body, params=_query(project=project), json=body)


def dead(project: str | None, after: int | None, limit: int | None) -> Call[TaskPage]:
    return Call("GET", "/dead", _body, params=_query(project=project, after=after, limit=limit))


# -- the server -------------------------------------------------------------------------------------------------------


def health() -> Call[HealthFacts]:
    return Call("GET", "/health", _body)


def metrics() -> Call[str]:
    return Call("GET", "/metrics", lambda response: response.text)


def openapi() -> Call[dict[str, Any]]:
    return Call("GET", "/openapi.json", _body)
