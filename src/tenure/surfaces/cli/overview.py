"""`tenure status`, `ready` and `why`."""

from __future__ import annotations

from tenure.core.times import iso
from tenure.surfaces.cli import view
from tenure.surfaces.cli.context import must
from tenure.surfaces.cli.output import Result, ago, clean, paint, status_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context

READY_SHOWN = 20


def status(context: Context) -> Result:
    """How things stand."""
    from tenure.engine import observe

    numbers = must(
        observe.statistics(context.store, **({"project_id": context.project_id} if context.project_id else {}))
    )
    counts = numbers.tasks
    lines = ["Tasks", *(f"  {status_word(name)}: {count}" for name, count in counts.items())]
    lines += ["", "Runtime", f"  Agents registered: {numbers.agents}", f"  Active claims: {numbers.active}"]
    rows = [
        ("Offers pending", numbers.offered),
        ("Expiring soon", numbers.expiring_soon),
        ("Due for recovery", numbers.due),
        ("Stuck", numbers.stuck),
        ("Recoveries", numbers.recoveries),
        ("Of these false", numbers.false_recoveries),
    ]
    lines += [f"  {name}: {value}" for name, value in rows if value]
    following = ["tenure ready", "tenure next"] if counts["todo"] else ['tenure task add "Title"']
    lines += [] if any(counts.values()) else ["", f"Add a task: {following[0]}"]
    return Result(data=numbers.as_dict(), lines=lines, next=following)


def ready(context: Context) -> Result:
    """What can be claimed now."""
    from tenure.engine.observe import ready_tasks
    from tenure.surfaces import shapes

    limit = context.get("limit", READY_SHOWN)
    views = must(ready_tasks(context.store, limit=limit, **context.project()))
    lines = view.task_table(views, context.now_ms) if views else ["Nothing is ready."]
    following = [f"tenure task claim {views[0].task.task_id}"] if views else ["tenure status", "tenure doctor"]
    if len(views) >= limit:
        lines.append(f"More: {context.more('ready', limit, without=('status',))}")
    if not views:
        from tenure.engine.observe import list_tasks

        if must(list_tasks(context.store, limit=1, **context.project())):
            lines.append("See why: tenure doctor, or tenure why TASK")
        else:
            following = ['tenure task add "Title"']
            lines = [f"There are no tasks yet. Add one: {following[0]}"]
    return Result(data={"tasks": [shapes.view(one) for one in views]}, lines=lines, next=following)


def why(context: Context) -> Result:
    """The story of a task, and the verdicts of the assignment filter."""
    from tenure.engine import explain
    from tenure.engine.observe import show_task
    from tenure.surfaces import shapes

    named = {"task_id": context.get("task"), **context.project()}
    agent_id = context.named_agent(context.get("agent")) if context.get("agent") else None
    told = must(explain.why(context.store, agent_id=agent_id, capabilities=context.capabilities(agent_id), **named))
    task = told.view.task
    missing = (
        {edge.needs for edge in must(show_task(context.store, **named)).needs if edge.missing} if task.unmet else ()
    )
    lines = [f"{task.task_id} - {clean(task.title)}: {status_word(told.view.status, told.view.due)}", "", "Story:"]
    lines += [f"  {paint(ago(line.at_ms, context.now_ms), 'dim')}  {clean(line.text, 500)}" for line in told.story]
    failed = [condition for condition in told.conditions if not condition.holds]
    whom = agent_id or "anyone"
    lines += ["", f"Given to {whom}: {'no' if failed else 'yes'}"]
    for condition in told.conditions:
        verdict = paint("yes", "green") if condition.holds else paint("no ", "red")
        detail = condition.detail
        if missing and condition.name == "dependencies":
            words = [f"{word} (missing)" if word in missing else word for word in detail.split(", ")]
            first, _, last = words[0].rpartition(" ")
            words[0] = f"{first} {last} (missing)" if last in missing else words[0]
            detail = ", ".join(words)
        lines.append(f"  {verdict}  {condition.name}: {clean(detail)}")
    data = {
        **shapes.view(told.view),
        "story": [{"at": iso(line.at_ms), "text": line.text} for line in told.story],
        "conditions": [
            {"name": condition.name, "holds": condition.holds, "detail": condition.detail}
            for condition in told.conditions
        ],
    }
    return Result(data=data, lines=lines)
