"""Answers as people read them: the lines of the specification, aligned and in relative time."""

from __future__ import annotations

from tenure.core.times import iso
from tenure.surfaces.cli.output import Result, ago, clean, duration, left, paint, status_word, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.core.model import Handoff, Message, Task
    from tenure.engine.claims import Grant
    from tenure.engine.observe import TaskDetail, TaskView
    from tenure.surfaces.cli.context import Context

# A message longer than this is cut where it is shown among others.
MESSAGE_SHOWN = 4_000


def granted(context: Context, grant: Grant, *, chosen: bool = True) -> Result:
    """The block of a claim, with the handoff and what there is to read; what the task is, if the engine chose it."""
    from tenure.surfaces import shapes

    task_id = grant.task.task_id
    head = "Already yours: task" if grant.resumed else "Claimed task"
    lines = [
        f"{head} {task_id}",
        f"  Lease: {grant.lease.lease_id}",
        f"  Expires in: {duration(grant.lease.expires_at_ms - context.now_ms)}",
    ]
    if grant.resumed and grant.lease.state not in ("offered", "active"):
        lines = [f"Lease {grant.lease.lease_id} on task {task_id} was made by this request and is {grant.lease.state}."]
    else:
        lines += [
            "",
            "Remember to:",
            f"  - Renew with tenure task renew {task_id} before expiry",
            f"  - Mark done with tenure task done {task_id} when complete",
        ]
    if not chosen:
        lines += ["", f"{task_id} - {clean(grant.task.title)}", *body_lines(grant.task)]
    lines += handoff_lines(grant.handoffs)
    written = message_lines(grant.messages, context.now_ms)
    lines += ["", "Messages:", *written] if written else []
    return Result(
        data=shapes.grant(grant),
        lines=lines,
        next=[f"tenure task renew {task_id}", f"tenure task done {task_id}"],
    )


def handoff_lines(handoffs: Sequence[Handoff]) -> list[str]:
    """The recovery addendum, as the next holder must see it."""
    if not handoffs:
        return []
    from tenure.core.handoff import render

    return ["", *render(handoffs[0], handoffs[1:]).splitlines()]


def message_lines(messages: Sequence[Message], now_ms: int, most: int | None = MESSAGE_SHOWN) -> list[str]:
    """What people and agents wrote; the thread's copy of a handoff is shown as the handoff itself.

    A text longer than `most` is cut, and a line says how to read the rest.
    """
    shown = []
    for message in messages:
        if message.kind == "handoff":
            continue
        text = message.text if most is None else message.text[:most]
        first, *more = whole_lines(text) or [""]
        shown.append(f"  {paint(ago(message.at_ms, now_ms), 'dim')}  {clean(message.sender)}: {first}")
        shown += [f"      {line}" for line in more]
        if len(text) < len(message.text):
            rest = f"tenure msg thread {message.task_id} --full" if message.task_id else "--json"
            shown.append(f"      [{len(message.text) - len(text)} more characters: {rest}]")
    return shown


def whole_lines(text: str) -> list[str]:
    """An agent's text, line by line and uncut, without control sequences."""
    lines = text.split("\n")
    if text.isascii() and all(line.isprintable() for line in lines):
        return [line.rstrip() for line in lines] if text else []
    from tenure.core.handoff import plain_lines

    return plain_lines(text)


def body_lines(task: Task) -> list[str]:
    """What is to be done, line by line."""
    return whole_lines(task.body)


def task_row(view: TaskView, now_ms: int, names: Mapping[str, str]) -> list[str]:
    task = view.task
    holder = ", ".join(lease.agent_id + names.get(lease.agent_id, "") for lease in view.leases) or (
        "" if view.due else clean(task.assigned_to or "")
    )
    remaining = left(view.leases[0].expires_at_ms, now_ms) if view.leases else ""
    return [task.task_id, task.priority, status_word(view.status, view.due), clean(task.title, 60), holder, remaining]


def task_table(views: Sequence[TaskView], now_ms: int, names: Mapping[str, str] | None = None) -> list[str]:
    """Tasks in rows; `names` is what stands beside a holder's id."""
    rows = [task_row(view, now_ms, names or {}) for view in views]
    return table(rows, ("ID", "PRIORITY", "STATUS", "TITLE", "HOLDER", "LEASE"))


def detail_lines(detail: TaskDetail, now_ms: int) -> list[str]:
    """One task, beginning with the specification's lines."""
    task, view = detail.view.task, detail.view
    lines = [f"{task.task_id} - {clean(task.title)}", "", f"Status: {status_word(view.status, view.due)}"]
    for lease in view.leases:
        word = "Claimed by" if lease.state == "active" else "Offered to"
        lines += [
            f"{word}: {lease.agent_id}",
            f"Lease expires: {duration(lease.expires_at_ms - now_ms)} remaining",
        ]
    if not view.leases and task.assigned_to and not view.due:
        lines.append(f"{'Done by' if task.status == 'done' else 'Assigned to'}: {clean(task.assigned_to)}")
    rows = [
        ("Priority", task.priority),
        ("Complexity", task.complexity if task.complexity != "none" else ""),
        ("Kind", task.kind),
        ("Progress", f"{task.progress}%" if task.progress else ""),
        ("Blocked", clean(task.blocked_reason)),
        ("Requires", task.requires.replace(" ", ", ")),
        ("Attempts", str(task.attempts) if task.attempts else ""),
        ("Not before", iso(task.not_before_ms) if task.not_before_ms > now_ms else ""),
        ("Retried", ago(task.retry_at_ms, now_ms) if task.retry_at_ms > now_ms else ""),
        ("Needs", ", ".join(edge.needs + (" (missing)" if edge.missing else "") for edge in detail.needs)),
        ("Needed by", ", ".join(detail.dependants)),
        ("Added", ago(task.created_at_ms, now_ms)),
    ]
    lines += [f"{name}: {value}" for name, value in rows if value]
    lines += ["", *body_lines(task)] if task.body else []
    lines += handoff_lines(detail.handoffs)
    written = message_lines(detail.messages, now_ms)
    lines += ["", "Messages:", *written] if written else []
    return lines
