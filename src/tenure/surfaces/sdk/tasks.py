"""What a handler gets and what it gives back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tenure.core.receipts import ESCALATION_CLASSES, LONG_TEXT_BYTES, TEXT_BYTES
from tenure.surfaces.sdk.errors import Cancelled, Escalate


@dataclass(frozen=True)
class Task:
    """The work, as it was offered and accepted."""

    task_id: str
    task_type: str
    summary: str
    body: str
    inputs: dict[str, Any]
    # 1 for the first try.
    attempt: int
    lease_id: str
    worker_id: str
    # Grows with every lease on this task: a system outside can refuse the writes of an older holder by it.
    token: int | None = None
    project_id: str = ""
    principal_ai: str = ""
    payload_pointer: str = ""
    expected_outcome_kind: str = ""
    expected_artifact_mime: str = ""
    # An earlier run of this worker accepted it and died; the lease is the same.
    resumed: bool = False


@dataclass(frozen=True)
class Artifact:
    """Where a result is kept. Without a mime, the task's `expected_artifact_mime` stands."""

    location: str
    mime: str = ""
    checksum: str = ""
    size_bytes: int = 0
    pointer: str = ""


@dataclass(frozen=True)
class Outcome:
    """A result with all it may have: a text, an artifact, a note for the ledger."""

    text: str = ""
    artifact: Artifact | None = None
    message: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


Result = None | str | Artifact | Outcome | tuple[str, Artifact]


def outcome_fields(result: object) -> dict[str, Any]:
    """What a handler returned, as fields of a complete receipt."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Artifact):
        result = Outcome(text=result[0], artifact=result[1])
    if isinstance(result, Artifact):
        result = Outcome(artifact=result)
    if result is None or isinstance(result, str):
        result = Outcome(text=result or "")
    if not isinstance(result, Outcome) or not isinstance(result.text, str):
        message = "a handler returns None, a text, an Artifact, (text, Artifact) or an Outcome, not "
        raise TypeError(message + type(result).__name__)
    fields: dict[str, Any] = {
        "outcome_text": clean(result.text),
        "message": clean(result.message),
        "metadata": dict(result.metadata),
    }
    if result.artifact is not None:
        fields["artifact_location"] = result.artifact.location
        fields["artifact_mime"] = result.artifact.mime
        fields["artifact_checksum"] = result.artifact.checksum
        fields["artifact_size_bytes"] = result.artifact.size_bytes
        fields["artifact_pointer"] = result.artifact.pointer
    return fields


def failure_fields(text: str) -> dict[str, Any]:
    """An error's text, as fields of a complete receipt; of a long one the end, where the error usually is."""
    text = clean(text)
    return {"outcome_text": tail(text, LONG_TEXT_BYTES), "message": tail(text, TEXT_BYTES // 4)}


def clean(text: str) -> str:
    """A text that the ledger can keep: no NUL, and no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def tail(text: str, limit_bytes: int) -> str:
    """The end of a text, within a size in bytes."""
    data = text.encode()
    return text if len(data) <= limit_bytes else data[-limit_bytes:].decode(errors="ignore")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class BaseContext:
    """A handler's way to its worker. Every method may be called from any thread."""

    def __init__(
        self,
        report: Callable[[int, str], None],
        announce: Callable[[int], None],
        grace_s: Callable[[], float],
    ) -> None:
        self._report = report
        self._announce = announce
        self._grace_s = grace_s

    @property
    def grace_s(self) -> float:
        """How long a cancelled handler may take to stop; after that its lease may be someone else's."""
        return self._grace_s()

    def is_cancelled(self) -> bool:
        """Whether the handler must stop."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise `Cancelled` if the handler must stop."""
        if self.is_cancelled():
            raise Cancelled("the lease may lapse or is lost; stop")

    def progress(self, percent: int, message: str = "") -> None:
        """Tell how far the work is. Sent with a heartbeat at once; of several that wait, only the last is sent."""
        self.check()
        if not _is_whole(percent) or not 0 <= percent <= 100:
            raise ValueError(f"progress is a whole number from 0 to 100, not {percent!r}")
        self._report(percent, clean(message))

    def expect_silence(self, seconds: int) -> None:
        """Announce that heartbeats may fail to come for so long. It buys one longer term of the lease."""
        self.check()
        if not _is_whole(seconds) or seconds < 0:
            raise ValueError(f"expect_silence needs whole seconds, not {seconds!r}")
        self._announce(seconds)

    def escalate(self, escalation_class: str, reason: str, to: str = "") -> NoReturn:
        """Hand the task to someone else (default: the supervisor, else the principal). This ends the handler."""
        if escalation_class not in ESCALATION_CLASSES:
            raise ValueError(f"an escalation's class is one of {', '.join(ESCALATION_CLASSES)}")
        raise Escalate(escalation_class, reason, to)


class Context(BaseContext):
    """The context of a handler in a thread: it must look at `cancelled`, for nobody can stop a thread."""

    def __init__(self, *ways: Any) -> None:
        super().__init__(*ways)
        self.cancelled = threading.Event()

    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()


class AsyncContext(BaseContext):
    """The context of a coroutine, which is cancelled as any task is; `cancelled` is set just before."""

    def __init__(self, *ways: Any) -> None:
        super().__init__(*ways)
        self.cancelled = asyncio.Event()

    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()
