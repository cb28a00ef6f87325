"""Why: the story of a task in order, and every condition of the assignment filter with its verdict."""

from __future__ import annotations

from tenure.core import assignment, inputs, instructions
from tenure.core.deadline import live, median_gap_ms
from tenure.core.errors import Refused
from tenure.core.model import Event, Lease, Message, Receipt
from tenure.core.phases import PHASES, term_for
from tenure.core.record import Record
from tenure.core.story import receipt_sentence, sentence
from tenure.engine import holding, load, observe
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tenure.core.assignment import Condition
    from tenure.core.model import Handoff, Task
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

DEPENDENCIES_TOLD = 50


class Line(Record):
    """One sentence of the story."""

    at_ms: int
    text: str


class Explanation(Record):
    """What a person asking "why?" is told."""

    view: observe.TaskView
    conditions: tuple[Condition, ...]
    story: tuple[Line, ...]


@query(
    task_id=inputs.ident,
    project_id=inputs.optional(inputs.ident),
    agent_id=inputs.optional(inputs.ident),
    capabilities=inputs.optional(inputs.capabilities),
    limit=inputs.limit,
)
def why(
    tx: Transaction,
    *,
    task_id: str,
    project_id: str | None = None,
    agent_id: str | None = None,
    capabilities: Sequence[str] | None = None,
    limit: int = 200,
) -> Explanation | Refused:
    """Why the task is where it is, and why it is or is not given to this agent (or to anyone)."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    view = observe.views_of(tx, [task])[0]
    present = [Line(at_ms=lease.seen_at_ms, text=_holding(lease, tx.now_ms)) for lease in view.leases]
    return Explanation(
        view=view,
        conditions=tuple(_conditions(tx, task, agent_id, capabilities)),
        story=(*_story(tx, task, limit), *present),
    )


def _story(tx: Transaction, task: Task, limit: int) -> list[Line]:
    """What happened, in order: events, receipts, and how often each holder that is gone called before it went."""
    events = [Event(**row) for row in tx.all("events_of_task", task_key=task.key, limit=limit)]
    lines = [Line(at_ms=event.at_ms, text=sentence(event)) for event in reversed(events)]
    receipts = [Receipt(**row) for row in tx.all("last_receipts", task_key=task.key, limit=limit)]
    lines += [Line(at_ms=receipt.at_ms, text=receipt_sentence(receipt)) for receipt in reversed(receipts)]
    gone = [Lease(**row) for row in tx.all("ended_of_task", task_key=task.key, limit=limit)]
    lines += [
        Line(at_ms=lease.seen_at_ms, text=f"{lease.agent_id} called {_times(lease.touches)} in all, this one last")
        for lease in reversed(gone)
        if lease.touches
    ]
    # Sorting keeps the order of lines of one instant: what was done before what was recorded of it.
    return sorted(lines, key=lambda line: line.at_ms)[-limit:]


def _conditions(
    tx: Transaction, task: Task, agent_id: str | None, capabilities: Sequence[str] | None
) -> list[Condition]:
    leases = load.unended_of_task(tx, task.key)
    held = [lease for lease in leases if live(lease, tx.now_ms)]
    if leases and not held:
        # A claim would recover what is due before it judges, so that is what is judged here.
        task = observe.as_recovered(tx, task, leases[0])
    return assignment.conditions(
        task,
        agent_id=agent_id,
        capabilities=capabilities,
        reserved_owner=holding.settings_of(tx, task).reserved_owner,
        unmet=load.unmet_ids(tx, task),
        live_leases=held,
        now_ms=tx.now_ms,
    )


def _holding(lease: Lease, now_ms: int) -> str:
    """The present holder's touches, summarised, and how long it has."""
    left_s = max(0, lease.recover_at_ms - now_ms) / 1000
    median = median_gap_ms(lease)
    rhythm = "" if median is None else f", a mark every {median / 1000:g} s"
    called = f"{lease.agent_id} called {_times(lease.touches)}{rhythm}"
    return f"{called}; counts as dead in {left_s:g} s without a sign of life"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


_BRIEFED: dict[str, inputs.Check] = {
    "task_id": inputs.ident,
    "project_id": inputs.optional(inputs.ident),
    "agent_id": inputs.optional(inputs.ident),
}


class TaskContext(Record):
    """All that whoever works on a task, or is about to, should know: as records, and as the text for its agent."""

    view: observe.TaskView
    text: str
    # The row of the phase table that the reader's lease stands in, if it holds one there.
    phase: str
    handoffs: tuple[Handoff, ...]
    dependencies: tuple[instructions.Dependency, ...]
    dependants: tuple[instructions.Dependant, ...]
    # Rows of the named task's own decisions and artifacts, the latter with their contents.
    decisions: tuple[dict[str, Any], ...]
    artifacts: tuple[dict[str, Any], ...]
    messages: tuple[Message, ...]
    now_ms: int


@query(**_BRIEFED)
def briefing(
    tx: Transaction, *, task_id: str, project_id: str | None = None, agent_id: str | None = None
) -> str | Refused:
    """The layered instructions for a task, as its holder (or the next one) would be given them."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    settings = holding.settings_of(tx, task)
    return instructions.build(_parts(tx, task, agent_id, settings), settings.instruction_budget_tokens)


@query(**_BRIEFED)
def task_context(
    tx: Transaction, *, task_id: str, project_id: str | None = None, agent_id: str | None = None
) -> TaskContext | Refused:
    """The layered instructions for a task, and what they are made from."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    settings = holding.settings_of(tx, task)
    parts = _parts(tx, task, agent_id, settings)
    return TaskContext(
        view=observe.views_of(tx, [task])[0],
        text=instructions.build(parts, settings.instruction_budget_tokens),
        phase=parts.phase,
        handoffs=tuple(parts.handoffs),
        dependencies=tuple(parts.dependencies),
        dependants=tuple(parts.dependants),
        decisions=tuple(tx.all("decisions_of", task_key=task.key, limit=20)),
        artifacts=tuple(tx.all("artifacts_with_content", task_key=task.key, limit=20)),
        messages=tuple(parts.messages),
        now_ms=tx.now_ms,
    )


def _parts(tx: Transaction, task: Task, agent_id: str | None, settings: Settings) -> instructions.Briefing:
    """What the instructions of a task for an agent are made from."""
    lease = next((held for held in load.live_of_task(tx, task.key) if agent_id in (None, held.agent_id)), None)
    return instructions.Briefing(
        task=task,
        now_ms=tx.now_ms,
        handoffs=load.handoffs_of(tx, task.key),
        lease=lease,
        phase=_phase(task, lease, settings),
        branch=_branch(tx, agent_id, settings),
        dependencies=_dependencies(tx, task),
        dependants=[instructions.Dependant(**row) for row in tx.all("dependants_of", task_key=task.key)],
        decisions=tx.all("decisions_of", task_key=task.key, limit=20),
        artifacts=tx.all("artifacts_of", task_key=task.key, limit=20),
        messages=[*load.thread_of(tx, task.key), *_unread(tx, task, agent_id)],
    )


def _phase(task: Task, lease: Lease | None, settings: Settings) -> str:
    """The row of the phase table that the lease stands in; nothing where the table does not apply."""
    if lease is None or lease.fixed:
        return ""
    term = term_for(
        settings.task_lease,
        reports=lease.reports,
        progress=lease.progress,
        renewals=lease.renewals,
        estimated_hours=task.estimated_hours,
        priority=task.priority,
        complexity=task.complexity,
    )
    return term.phase if term.phase in PHASES else ""


def _branch(tx: Transaction, agent_id: str | None, settings: Settings) -> str:
    """Where this agent commits: the branch it was last seen on, else the one that bears its name."""
    agent = load.agent_named(tx, agent_id) if agent_id else None
    return (agent.branch if agent else "") or (settings.branch_prefix + agent_id if agent_id else "")


def _unread(tx: Transaction, task: Task, agent_id: str | None) -> list[Message]:
    """What was sent to this agent alone and is not read yet; the thread has what was also said there."""
    if agent_id is None:
        return []
    read = tx.one("read_up_to", agent_id=agent_id, task_key=0)
    rows = tx.all("inbox", agent_id=agent_id, after=read["seq"] if read else 0, limit=load.THREAD_SHOWN)
    return [Message(**row) for row in rows if row["task_key"] != task.key]


def _dependencies(tx: Transaction, task: Task) -> list[instructions.Dependency]:
    found: list[instructions.Dependency] = []
    for row in tx.all("needs_of", task_key=task.key):
        if row["needs_key"] is None:
            continue
        # Each costs two reads; of very many, the rest is only named.
        told = len(found) < DEPENDENCIES_TOLD
        found.append(
            instructions.Dependency(
                task_id=row["needs_id"],
                title=row["title"],
                status=row["status"],
                decisions=tx.all("decisions_of", task_key=row["needs_key"], limit=10) if told else (),
                artifacts=tx.all("artifacts_of", task_key=row["needs_key"], limit=10) if told else (),
            )
        )
    return found
