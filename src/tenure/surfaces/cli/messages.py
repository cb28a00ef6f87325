"""`tenure msg ...`"""

from __future__ import annotations

from tenure.core.errors import refuse
from tenure.surfaces.cli import view
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context


def send(context: Context) -> Result:
    """Write a message."""
    from tenure.engine.notes import send_message
    from tenure.surfaces import shapes

    if context.get("text") is None:
        raise Stop(refuse("usage", "msg send: say what with --text TEXT"))
    sender = context.get("from") or context.agent_id(context.get("task"))
    message = must(
        send_message(
            context.store,
            text=context.get("text"),
            sender=sender,
            task_id=context.get("task"),
            to=context.get("to"),
            **context.project(),
        )
    )
    where = " and ".join(filter(None, (context.get("task"), context.get("to"))))
    return Result(data=shapes.message(message), lines=[f"Message sent to {where}"])


def thread(context: Context) -> Result:
    """Show a task's thread."""
    from tenure.engine import notes
    from tenure.surfaces import shapes

    limit = context.get("limit", 50)
    messages = must(notes.thread(context.store, task_id=context.get("task"), limit=limit, **context.project()))
    lines = view.message_lines(messages, context.now_ms) or ["No messages."]
    more = []
    if len(messages) >= limit:
        more = [context.more(f"msg thread {context.get('task')}", limit, without=("task",))]
        lines.append(f"Earlier: {more[0]}")
    return Result(data={"messages": [shapes.message(one) for one in messages]}, lines=lines, next=more)


def inbox(context: Context) -> Result:
    """Show what was sent to the caller."""
    from tenure.engine import notes
    from tenure.surfaces import shapes

    limit, keep = context.get("limit", 50), context.get("keep", False)
    messages = must(notes.inbox(context.store, agent_id=context.agent_id(), limit=limit, keep=keep))
    lines = view.message_lines(messages, context.now_ms) or ["Nothing new."]
    more = []
    if len(messages) >= limit:
        # What was shown counts as read, so that the same command shows the next ones; unless it was to be kept.
        more = [context.more("msg inbox", limit) if keep else context.again("msg inbox")]
        lines.append(f"More: {more[0]}")
    return Result(data={"messages": [shapes.message(one) for one in messages]}, lines=lines, next=more)
