"""What agents say and make: messages, decisions, artifacts. The last two are marks: they feed the cadence."""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.model import Message
from tenure.core.record import Record
from tenure.engine import change, claims, holding, liveness, load
from tenure.engine.callers import CALLER, known_agent, see
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Agent, Lease, Task
    from tenure.store.store import Transaction

_NAMED = {"task_id": inputs.ident, "project_id": CALLER["project_id"]}


class Decision(Record):
    """Something an agent decided, with its reason in its own words."""

    seq: int
    at_ms: int
    task_id: str
    agent_id: str
    decision: str


class Artifact(Record):
    """Something an agent made: its content, or where it is."""

    seq: int
    at_ms: int
    task_id: str
    agent_id: str
    filename: str
    artifact_type: str
    description: str
    location: str | None
    content: str | None


@verb(
    text=inputs.text(required=True),
    sender=inputs.text(128, one_line=True, required=True),
    task_id=inputs.optional(inputs.ident),
    project_id=CALLER["project_id"],
    to=inputs.optional(inputs.ident),
)
def send_message(
    tx: Transaction,
    *,
    text: str,
    sender: str,
    task_id: str | None = None,
    project_id: str | None = None,
    to: str | None = None,
) -> Message | Refused:
    """Write to a task's thread, to an agent, or both."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    if task_id is None and to is None:
        return inputs.bad("task_id", "or to is needed: a message goes to a task's thread or to an agent")
    task: Task | None = None
    if task_id is not None:
        found = load.task_named(tx, task_id, project_id)
        if isinstance(found, Refused):
            return found
        task = found
    if to is not None:
        tx.lock("inbox", recipient=to)
        recipient = known_agent(tx, to, None)
        if isinstance(recipient, Refused):
            return recipient
    message = Message(
        seq=0,
        at_ms=tx.now_ms,
        project_id=task.project_id if task else project_id or "default",
        task_key=task.key if task else None,
        task_id=task_id,
        sender=sender,
        recipient=to,
        text=text,
    )
    row = tx.one("add_message_returning", **message.as_dict())
    assert row is not None
    change.record(tx, "message", task=task, agent_id=sender, to=to, text=text[:200])
    return message.replace(seq=row["seq"])


@query(**_NAMED, after=inputs.cursor, limit=inputs.limit)
def thread(
    tx: Transaction, *, task_id: str, project_id: str | None = None, after: int = 0, limit: int = 100
) -> tuple[Message, ...] | Refused:
    """The newest messages of a task's thread, in order."""
    task = load.task_named(tx, task_id, project_id)
    return task if isinstance(task, Refused) else tuple(load.thread_of(tx, task.key, after, limit))


@verb(agent_id=inputs.ident, limit=inputs.limit, keep=inputs.flag)
def inbox(tx: Transaction, *, agent_id: str, limit: int = 100, keep: bool = False) -> tuple[Message, ...] | Refused:
    """What was sent to an agent and not read yet. Reading it is noted, unless it is to `keep` as unread."""
    agent = known_agent(tx, agent_id, None)
    if isinstance(agent, Refused):
        return agent
    read = tx.one("read_up_to", agent_id=agent_id, task_key=0)
    rows = tx.all("inbox", agent_id=agent_id, after=read["seq"] if read else 0, limit=limit)
    if rows and not keep:
        tx.do("mark_read", agent_id=agent_id, task_key=0, seq=rows[-1]["seq"])
    return tuple(Message(**row) for row in rows)


@verb(**_NAMED, agent_id=inputs.ident, incarnation=CALLER["incarnation"], decision=inputs.text(required=True))
def log_decision(
    tx: Transaction,
    *,
    task_id: str,
    agent_id: str,
    decision: str,
    project_id: str | None = None,
    incarnation: int | None = None,
) -> Decision | Refused:
    """Note a decision on a task; under a live lease it is a mark."""
    noted = _noted(tx, task_id, project_id, agent_id, incarnation)
    if isinstance(noted, Refused):
        return noted
    task, agent, lease = noted
    lease_id = lease.lease_id if lease else None
    row = tx.one(
        "add_decision", at_ms=tx.now_ms, task_key=task.key, lease_id=lease_id, agent_id=agent.agent_id, text=decision
    )
    assert row is not None
    change.record(tx, "decision", task=task, lease=lease, agent_id=agent_id, decision=decision[:200])
    return Decision(seq=row["seq"], at_ms=tx.now_ms, task_id=task_id, agent_id=agent_id, decision=decision)


def _location(name: str, value: object) -> object:
    """Where an artifact is: a URL, or a path inside the project. Never a way out of it."""
    checked = inputs.text(4096, one_line=True, required=True)(name, value)
    if isinstance(checked, Refused):
        return checked
    assert isinstance(checked, str)
    if "://" not in checked and (checked.startswith(("/", "~")) or ".." in checked.replace("\\", "/").split("/")):
        return inputs.bad(name, "must be a URL or a path inside the project, without '..'")
    return checked


def _filename(name: str, value: object) -> object:
    """A plain file name: no path, nothing a shell or a reader could take for something else."""
    checked = inputs.text(255, one_line=True, required=True)(name, value)
    if isinstance(checked, str) and ("/" in checked or "\\" in checked or checked in (".", "..")):
        return inputs.bad(name, "must be a plain name without a path; say where it is with location")
    return checked


@verb(
    **_NAMED,
    agent_id=inputs.ident,
    incarnation=CALLER["incarnation"],
    filename=_filename,
    artifact_type=inputs.kind,
    description=inputs.body,
    content=inputs.optional(inputs.content),
    location=inputs.optional(_location),
)
def log_artifact(
    tx: Transaction,
    *,
    task_id: str,
    agent_id: str,
    filename: str,
    artifact_type: str = "document",
    description: str = "",
    content: str | None = None,
    location: str | None = None,
    project_id: str | None = None,
    incarnation: int | None = None,
) -> Artifact | Refused:
    """Note something a task produced; under a live lease it is a mark."""
    if (content is None) == (location is None):
        return inputs.bad("content", "or location is needed, and not both")
    noted = _noted(tx, task_id, project_id, agent_id, incarnation)
    if isinstance(noted, Refused):
        return noted
    task, _, lease = noted
    facts: dict[str, Any] = {
        "at_ms": tx.now_ms,
        "agent_id": agent_id,
        "filename": filename,
        "artifact_type": artifact_type,
        "description": description,
        "location": location,
        "content": content,
    }
    row = tx.one("add_artifact", **facts, task_key=task.key, lease_id=lease.lease_id if lease else None)
    assert row is not None
    if lease is not None:
        # Only what a holder makes is evidence of work on the task.
        change.save_progress(tx, task.replace(artifact_count=task.artifact_count + 1))
    change.record(tx, "artifact", task=task, lease=lease, agent_id=agent_id, filename=filename)
    return Artifact(seq=row["seq"], task_id=task_id, **facts)


def _noted(
    tx: Transaction, task_id: str, project_id: str | None, agent_id: str, incarnation: int | None
) -> tuple[Task, Agent, Lease | None] | Refused:
    """The task a note is about, and the writer's live lease on it if it has one: then the note is a mark."""
    caller = holding.Caller(task_id=task_id, project_id=project_id, agent_id=agent_id, incarnation=incarnation)
    held = holding.find(tx, caller)
    if isinstance(held, Refused):
        return held
    see(tx, held.agent)
    if isinstance(held, holding.Lost):
        # Words do no harm: a lost holder's decision is kept for whoever goes on.
        return held.task, held.agent, None
    return held.task, held.agent, liveness.mark(tx, held.lease, holding.settings_of(tx, held.task))


@query(**_NAMED, limit=inputs.limit)
def decisions(
    tx: Transaction, *, task_id: str, project_id: str | None = None, limit: int = 100
) -> tuple[Decision, ...] | Refused:
    """The newest decisions on a task, in order."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    rows = tx.all("decisions_of", task_key=task.key, limit=limit)
    return tuple(Decision(task_id=task_id, **row) for row in rows)


@query(**_NAMED, limit=inputs.limit)
def artifacts(
    tx: Transaction, *, task_id: str, project_id: str | None = None, limit: int = 100
) -> tuple[Artifact, ...] | Refused:
    """The newest artifacts of a task, in order, with their contents."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    rows = tx.all("artifacts_with_content", task_key=task.key, limit=limit)
    return tuple(Artifact(task_id=task_id, **row) for row in rows)


@verb(**_NAMED, agent_id=inputs.ident)
def read_messages(
    tx: Transaction, *, task_id: str, agent_id: str, project_id: str | None = None
) -> tuple[Message, ...] | Refused:
    """What an agent has not read of a task's thread; reading it is noted."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    agent = known_agent(tx, agent_id, None)
    return agent if isinstance(agent, Refused) else tuple(claims.read_thread(tx, task.key, agent_id))


@verb(**_NAMED, agent_id=inputs.ident)
def hear(
    tx: Transaction, *, task_id: str, agent_id: str, project_id: str | None = None
) -> tuple[Message, ...] | Refused:
    """What an agent has not read of its inbox and of its task's thread, in order; reading it is noted."""
    said = read_messages.body(tx, task_id=task_id, agent_id=agent_id, project_id=project_id)
    if isinstance(said, Refused):
        return said
    sent = inbox.body(tx, agent_id=agent_id)
    if isinstance(sent, Refused):
        return sent
    known = {message.seq: message for message in (*sent, *said)}
    return tuple(known[seq] for seq in sorted(known))
