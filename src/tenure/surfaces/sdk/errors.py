"""What the SDK raises. The engine returns its refusals; a client library raises them.

A refusal is final: asking again changes nothing until something else does. What is unavailable may be there in a
moment, and is worth asking again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

# Refusals after which a holder must stop: whatever it does from here on is not under its lease.
LOST = frozenset(
    (
        "lease_lost",
        "superseded",
        "lease_not_found",
        "not_holder",
        "not_accepted",
        "task_done",
        "task_blocked",
        "task_dead",
        "task_not_found",
    )
)


class TenureError(Exception):
    """Anything the SDK raises."""


class Refusal(TenureError):
    """The server said no. `code` is stable, `next` says what to do, `facts` are values for a program."""

    def __init__(
        self, code: str, message: str, *, status: int, next: str = "", facts: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.next = next
        self.facts = dict(facts or {})


class Unavailable(TenureError):
    """The server could not be reached or could not answer now. `status` is None where there was no answer at all.

    What was asked may or may not have been done; repeating it is safe where a key or an id makes it the same request.
    """

    def __init__(
        self, message: str, *, status: int | None = None, code: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class Cancelled(TenureError):
    """Raised inside a handler that must stop: its lease may lapse, was lost, or the worker is stopping."""


class Failed(TenureError):
    """Raised by a handler to fail with exactly this text. Any other exception fails too, under its class's name."""


class Escalate(TenureError):
    """Raised by a handler that needs someone else; the worker sends an escalate receipt."""

    def __init__(self, escalation_class: str, reason: str, to: str = "") -> None:
        super().__init__(f"{escalation_class}: {reason}")
        self.escalation_class = escalation_class
        self.reason = reason
        self.to = to


def error_of(response: httpx.Response) -> TenureError:
    """The exception for an answer that is not a success."""
    try:
        body = response.json()
    except ValueError:
        body = None
    told: dict[str, Any] = body if isinstance(body, dict) else {}
    code = str(told.get("code") or told.get("error") or "unexpected_answer")
    message = str(told.get("detail") or f"HTTP {response.status_code}")
    if response.status_code >= 500 or response.status_code == 429:
        return Unavailable(
            f"{code}: {message}", status=response.status_code, code=code, retry_after_s=retry_after_s(response)
        )
    facts = told.get("facts")
    return Refusal(
        code,
        message,
        status=response.status_code,
        next=str(told.get("next") or ""),
        facts=facts if isinstance(facts, dict) else None,
    )


def retry_after_s(response: httpx.Response) -> float | None:
    """Retry-After in seconds; None when it is absent or a date."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
