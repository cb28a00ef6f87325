"""Design tasks: what belongs to the reserved owner is done here, inside the server, and given to no agent.

By default a design is written from the project's tasks and completed in one transaction, so whoever of several servers
comes first has done it, and a server that dies has done nothing. With `design.command` the user's program writes it,
which takes time: a run is fenced by the task's token, and until `retry_at_ms`, which its server moves on every few
seconds, nobody else begins one. A server that dies stops moving it, and another begins the next run.

A run uses an attempt when it begins. When `retries` more have failed as well, the built-in brief takes the document's
place and says so: whoever waits for the design goes on, and the failure is told in an event, in the task's thread and
by doctor. Not promised: that a program runs only once. One whose server was killed may still be running when the next
one starts, and what it prints then is lost.

These are steps, not verbs: no surface offers them. The design runner takes them, each in a transaction.
"""

from __future__ import annotations

from tenure.core import design as rules
from tenure.core import receipts
from tenure.core.errors import Refused
from tenure.core.model import Task
from tenure.core.record import Record
from tenure.engine import change, endings, holding, ledger, load, recovery
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.core.settings import DesignSettings, Settings
    from tenure.store.store import Transaction

# How long a run counts as alive after its server last said so.
RUN_ALIVE_MS = 20_000
BACKOFF_MS = (5_000, 15_000, 60_000)
ERROR_CHARS = 500
RECENT_MS = 86_400_000
EVENTS_SEEN = 10_000
UNKNOWN_END = "its server died while the program ran"


class Due(Record):
    """When there will be something to design; None: no design waits."""

    wait_ms: int | None


class Run(Record):
    """One run of the user's program."""

    task_key: int
    task_id: str
    project_id: str
    token: int
    attempt: int
    design: DesignSettings
    prompt: str


class DesignFault(Record):
    """A design that did not go as it was asked for. `substituted`: the built-in brief took its place."""

    task_id: str
    project_id: str
    at_ms: int
    error: str
    substituted: bool = False


def due(tx: Transaction) -> Due:
    """How long until a design can be begun: one row of an index."""
    row = tx.one("next_internal")
    return Due(wait_ms=None if row is None else max(0, row["retry_at_ms"] - tx.now_ms))


def begin(tx: Transaction) -> Run | None:
    """Do the next design that is due, or begin the run of the program that shall; None when there is no run to make."""
    row = tx.one("next_internal")
    if row is None or row["retry_at_ms"] > tx.now_ms:
        return None
    task = load.task_by_key(tx, row["key"])
    settings = holding.settings_of(tx, task)
    if not settings.design.command:
        _deliver(tx, task, settings, rules.brief(_plan(tx, task)), "A design brief made from the project's tasks.")
        return None
    if task.attempts > settings.design.retries:
        # The last run was cut off without a word.
        _substitute(tx, task, settings, task.blocked_reason or UNKNOWN_END)
        return None
    token = max(task.last_token + 1, tx.now_ms)
    begun = task.replace(last_token=token, attempts=task.attempts + 1, retry_at_ms=tx.now_ms + RUN_ALIVE_MS)
    change.save_task(tx, begun, unended=0)
    change.record(tx, "design_started", task=task, attempt=begun.attempts, of=settings.design.retries + 1)
    return Run(
        task_key=task.key,
        task_id=task.task_id,
        project_id=task.project_id,
        token=token,
        attempt=begun.attempts,
        design=settings.design,
        prompt=rules.prompt(_plan(tx, task)),
    )


def pulse(tx: Transaction, run: Run) -> bool:
    """The run goes on; False when its task is no longer its own, and the program should end."""
    return bool(tx.do("pulse_internal", key=run.task_key, token=run.token, retry_at_ms=tx.now_ms + RUN_ALIVE_MS))


def finish(tx: Transaction, run: Run, document: str) -> bool:
    """The program has written the design."""
    task = _ours(tx, run)
    if task is None:
        return False
    _deliver(tx, task, holding.settings_of(tx, task), document, "The design document.")
    return True


def fail(tx: Transaction, run: Run, error: str) -> bool:
    """The program failed: it is tried again later, or the built-in brief takes the document's place."""
    task = _ours(tx, run)
    if task is None:
        return False
    settings = holding.settings_of(tx, task)
    error = error[:ERROR_CHARS]
    change.record(tx, "design_failed", task=task, attempt=run.attempt, of=settings.design.retries + 1, error=error)
    if run.attempt > settings.design.retries:
        _substitute(tx, task, settings, error)
    else:
        wait_ms = BACKOFF_MS[min(run.attempt, len(BACKOFF_MS)) - 1]
        change.save_task(tx, task.replace(retry_at_ms=tx.now_ms + wait_ms, blocked_reason=error), unended=0)
    return True


def give_back(tx: Transaction, run: Run) -> bool:
    """The server stops: the run did not count, and another server may begin it at once."""
    task = _ours(tx, run)
    if task is None:
        return False
    change.save_task(tx, task.replace(attempts=max(0, task.attempts - 1), retry_at_ms=0), unended=0)
    return True


@query()
def design_faults(tx: Transaction) -> tuple[DesignFault, ...]:
    """Designs whose program fails now, or was given up within the last day, and designs that nobody runs."""
    found = [
        DesignFault(
            task_id=row["task_id"],
            project_id=row["project_id"],
            at_ms=row["updated_at_ms"],
            error=row["blocked_reason"],
        )
        for row in tx.all("failing_internal", limit=100)
    ]
    waiting = tx.one("next_internal")
    heard_ms = tx.now_ms - RUN_ALIVE_MS
    if (
        waiting is not None
        and waiting["updated_at_ms"] < heard_ms
        and tx.one("server_since", since_ms=heard_ms) is None
    ):
        task = load.task_by_key(tx, waiting["key"])
        found.append(
            DesignFault(
                task_id=task.task_id,
                project_id=task.project_id,
                at_ms=task.updated_at_ms,
                error=f"it waits for {task.assigned_to}, and no server is up: tenure up",
            )
        )
    return (*found, *_given_up(tx))


def _given_up(tx: Transaction) -> list[DesignFault]:
    """The designs that the built-in brief was put in the place of, newest first."""
    import json

    rows = tx.all("recent_of_kind", kind="design_substituted", since_ms=tx.now_ms - RECENT_MS, seen=EVENTS_SEEN)
    return [
        DesignFault(
            task_id=row["task_id"],
            project_id=row["project_id"],
            at_ms=row["at_ms"],
            error=json.loads(row["data"]).get("error", ""),
            substituted=True,
        )
        for row in rows
    ]


def _ours(tx: Transaction, run: Run) -> Task | None:
    """The run's task, if it is still this run's to finish."""
    row = tx.one("task_by_key", key=run.task_key)
    task = None if row is None else Task(**row)
    if task is None or task.owner != "internal" or task.status != "in_progress" or task.last_token != run.token:
        return None
    return task


def _plan(tx: Transaction, task: Task) -> rules.Plan:
    """The tasks a design is for: whatever waits for it, near or far; when nothing does, the project's open tasks."""
    most = rules.PARTS_TOLD + 1
    rows = tx.all("downstream", task_key=task.key, limit=most)
    if not rows:
        rows = tx.all("open_besides", project_id=task.project_id, task_key=task.key, limit=most)
    parts = [Task(**row) for row in rows][: rules.PARTS_TOLD]
    keys = "[" + ",".join(str(part.key) for part in parts) + "]"
    edges = tx.all("edges_among", keys=keys) if parts else []
    return rules.Plan(
        task=task,
        parts=tuple(parts),
        edges=tuple((edge["task_id"], edge["needs_id"]) for edge in edges),
        more=len(rows) - len(parts),
    )


def _substitute(tx: Transaction, task: Task, settings: Settings, error: str) -> None:
    """Let whoever waits go on with the built-in brief, and say so everywhere."""
    note = f"The design program failed ({error}); this brief was made from the project's tasks instead."
    change.record(tx, "design_substituted", task=task, error=error)
    _deliver(tx, task, settings, rules.brief(_plan(tx, task), note), "A brief in place of the design document.", note)


def _deliver(tx: Transaction, task: Task, settings: Settings, content: str, description: str, note: str = "") -> None:
    """Keep the document as the task's artifact and complete the task: its dependants are unlocked with it."""
    owner = settings.reserved_owner
    filename = f"design-{task.task_id}.md"
    added = tx.one(
        "add_artifact",
        at_ms=tx.now_ms,
        task_key=task.key,
        lease_id=None,
        agent_id=owner,
        filename=filename,
        artifact_type="design",
        description=description,
        location=None,
        content=content,
    )
    assert added is not None
    task = change.save_progress(tx, task.replace(artifact_count=task.artifact_count + 1))
    change.record(tx, "artifact", task=task, agent_id=owner, filename=filename)
    if note:
        recovery.post(tx, task, sender=owner, text=note)
    body = receipts.complete_body(task.task_id, source=owner, outcome_text=f"{description} ({filename})")
    appended = ledger.append(tx, task.replace(retry_at_ms=0), body, settings=settings, lease=None)
    assert not isinstance(appended, Refused), appended
    endings.finish(tx, appended[0], None, settings, by=owner)
