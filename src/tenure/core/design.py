"""The design brief: what can be said about the shape of the work from the tasks alone, without a model.

A design task is one that belongs to the reserved owner. Its brief is written for the agents that come after it: which
components there are, what each hands to which others, in what order they can be built, and the picture of it. It
invents nothing. What the parts of an interface look like is for the tasks to decide; the brief says between whom one is
needed and who must not change it alone.

`prompt` puts the same facts before the user's own program, if there is one (`design.command`).

What is not promised: of more than PARTS_TOLD tasks only the first are told, and the brief says how many were left out.
"""

from __future__ import annotations

from tenure.core.handoff import inline
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.core.model import Task

PARTS_TOLD = 200
PURPOSE_CHARS = 300
LABEL_CHARS = 60


class Plan(Record):
    """What a design is made from: the task itself, the tasks it is for, and edges (task, what it needs) among them."""

    task: Task
    parts: tuple[Task, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    # How many tasks were left out of `parts`.
    more: int = 0


def brief(plan: Plan, note: str = "") -> str:
    """The document, in Markdown. `note` is said first: why this is not the document that was asked for."""
    paragraphs = [f"# Design brief: {_title(plan.task)}"]
    if note:
        paragraphs.append(f"> {inline(note, 500)}")
    if plan.task.body.strip():
        paragraphs.append(plan.task.body.strip())
    if not plan.parts:
        paragraphs.append("No task waits for this design and the project has no other open task: nothing to divide.")
        return "\n\n".join(paragraphs) + "\n"
    paragraphs += [_components(plan), _interfaces(plan), _order(plan), _picture(plan)]
    return "\n\n".join(paragraphs) + "\n"


def prompt(plan: Plan) -> str:
    """What the user's program reads."""
    return (
        f"Write the design document for the task {inline(plan.task.task_id)} “{_title(plan.task)}”.\n"
        "Agents will build the components below from it, each alone and at the same time. Say what each component is\n"
        "responsible for, and fix every interface between them: names, types, formats, errors. Print the document only,"
        f"\nas Markdown.\n\nThese are the facts:\n\n{brief(plan)}"
    )


def waves(task_ids: Sequence[str], edges: Sequence[tuple[str, str]]) -> tuple[list[list[str]], list[str]]:
    """The tasks in the order in which they can be built, each wave at the same time; and those caught in a cycle."""
    known = set(task_ids)
    needs: dict[str, set[str]] = {task_id: set() for task_id in task_ids}
    for task_id, needed in edges:
        if task_id in known and needed in known:
            needs[task_id].add(needed)
    found: list[list[str]] = []
    built: set[str] = set()
    left = list(task_ids)
    while left:
        wave = [task_id for task_id in left if needs[task_id] <= built]
        if not wave:
            break
        found.append(wave)
        built.update(wave)
        left = [task_id for task_id in left if task_id not in built]
    return found, left


def _components(plan: Plan) -> str:
    lines = ["## Components", ""]
    for part in plan.parts:
        facts = [part.kind, f"{part.priority} priority", f"about {part.estimated_hours:g} h"]
        if part.requires:
            facts.append(f"requires {part.requires}")
        if part.status == "done":
            facts.append("done already")
        shown = ", ".join(inline(fact) for fact in facts if fact)
        lines.append(f"- **{inline(part.task_id)}** {_title(part)} ({shown}){_purpose(part)}")
    if plan.more:
        lines.append(f"- … and {plan.more} more tasks, which are not told here.")
    return "\n".join(lines)


def _purpose(part: Task) -> str:
    first = next((line for line in part.body.splitlines() if line.strip()), "")
    return f": {inline(first, PURPOSE_CHARS)}" if first else ""


def _interfaces(plan: Plan) -> str:
    names = {part.task_id: part for part in plan.parts}
    users: dict[str, list[str]] = {}
    for task_id, needed in plan.edges:
        if task_id in names and needed in names:
            users.setdefault(needed, []).append(task_id)
    lines = ["## Interfaces", ""]
    for provider, consumers in users.items():
        shown = ", ".join(_named(names, consumer) for consumer in consumers)
        fixed = "it is fixed" if len(consumers) == 1 else f"it is shared by {len(consumers)} and fixed"
        lines.append(
            f"- {_named(names, provider)} → {shown}: what the first hands over is their interface; {fixed} by "
            f"{inline(provider)}, which logs it as a decision before building behind it."
        )
    alone = [inline(part.task_id) for part in plan.parts if part.task_id not in users and not _needs(plan, part)]
    if alone:
        lines.append(f"- {', '.join(alone)}: no interface to another component that the dependencies show.")
    return "\n".join(lines)


def _needs(plan: Plan, part: Task) -> bool:
    names = {one.task_id for one in plan.parts}
    return any(task_id == part.task_id and needed in names for task_id, needed in plan.edges)


def _order(plan: Plan) -> str:
    found, caught = waves([part.task_id for part in plan.parts], plan.edges)
    lines = ["## Order", ""]
    for number, wave in enumerate(found, 1):
        together = " (at the same time)" if len(wave) > 1 else ""
        lines.append(f"{number}. {', '.join(inline(task_id) for task_id in wave)}{together}")
    if caught:
        lines.append(f"\nCaught in a cycle, and so never ready: {', '.join(inline(task_id) for task_id in caught)}.")
    return "\n".join(lines)


def _picture(plan: Plan) -> str:
    nodes = {part.task_id: f"t{number}" for number, part in enumerate(plan.parts)}
    lines = ["## Dependency picture", "", "```mermaid", "graph TD"]
    for part in plan.parts:
        lines.append(f'    {nodes[part.task_id]}["{_label(part)}"]')
    for task_id, needed in plan.edges:
        if task_id in nodes and needed in nodes:
            lines.append(f"    {nodes[needed]} --> {nodes[task_id]}")
    return "\n".join([*lines, "```"])


def _label(part: Task) -> str:
    """A node's text: quotes and brackets would end it."""
    text = inline(f"{part.task_id} {part.title}", LABEL_CHARS)
    return "".join({'"': "'", "[": "(", "]": ")", "<": "‹", ">": "›", "`": "'"}.get(char, char) for char in text)


def _title(task: Task) -> str:
    return inline(task.title) or inline(task.task_id)


def _named(names: Mapping[str, Task], task_id: str) -> str:
    return f"{inline(task_id)} “{_title(names[task_id])}”"
