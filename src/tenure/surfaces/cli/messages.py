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

    text, task_id, to = context.get("text"), context.get("task"), context.get("to")
    if text is None and to is not None:
        # The one bare word after --to is what is to be said.
        text, task_id = task_id, None
    if text is None:
        raise Stop(refuse("usage", "msg send: say what with --text TEXT"))
    sender = context.named_agent(context.get("from")) if context.get("from") else context.agent_id(task_id)
    to = context.named_agent(to) if to is not None else None
    message = must(send_message(context.store, text=text, sender=sender, task_id=task_id, to=to, **context.project()))
    where = " and ".join(filter(None, (task_id, to)))
    return Result(data=shapes.message(message), lines=[f"Message sent to {where}"])


def thread(context: Context) -> Result:
    """Show a task's thread."""
    from tenure.engine import notes
    from tenure.surfaces import shapes

    limit = context.get("limit", 50)
    messages = must(notes.thread(context.store, task_id=context.get("task"), limit=limit, **context.project()))
    most = None if context.get("full") else view.MESSAGE_SHOWN
    lines = view.message_lines(messages, context.now_ms, most) or ["No messages."]
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
    # Shown counts as read, so it is shown whole.
    lines = view.message_lines(messages, context.now_ms, None) or ["Nothing new."]
    more = []
    if len(messages) >= limit:
        # What was shown counts as read, so that the same command shows the next ones; unless it was to be kept.
        more = [context.more("msg inbox", limit) if keep else context.again("msg inbox")]
        lines.append(f"More: {more[0]}")
    return Result(data={"messages": [shapes.message(one) for one in messages]}, lines=lines, next=more)
