"""`tenure task graph`: what waits for what, as a tree or for drawing programs."""

from __future__ import annotations

from tenure.core.model import DEFAULT_PROJECT
from tenure.surfaces.cli.context import LIMIT_MAX, must
from tenure.surfaces.cli.output import Result, clean, status_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tenure.engine.dependencies import Edge
    from tenure.surfaces.cli.context import Context


def graph(context: Context) -> Result:
    """The dependencies as a tree, or for a drawing program."""
    from tenure.engine import dependencies, observe

    edges = must(dependencies.graph(context.store, task_id=context.get("task"), **context.project()))
    project = {"project_id": context.project_id or DEFAULT_PROJECT}
    views = must(observe.list_tasks(context.store, limit=LIMIT_MAX, **project))
    status = {one.task.task_id: one for one in views}
    tied = {name for edge in edges for name in (edge.task_id, edge.needs)}
    alone = [name for name in status if name not in tied] if context.get("task") is None else []
    data = {
        "edges": [{"task_id": edge.task_id, "needs": edge.needs, "missing": edge.missing} for edge in edges],
        "tasks": {name: one.status for name, one in status.items()},
    }
    form = context.get("format", "text")
    if form in ("mermaid", "dot"):
        titles = {name: status[name].task.title if name in status else "missing" for name in (*sorted(tied), *alone)}
        return Result(data=data, lines=(mermaid if form == "mermaid" else dot)(edges, titles))
    lines = _tree(edges, status)
    if alone:
        lines += [*([""] if lines else []), "Without dependencies:", *(f"  {_node(name, status)}" for name in alone)]
    return Result(data=data, lines=lines or ["No dependencies."])


def _node(name: str, status: dict[str, Any]) -> str:
    one = status.get(name)
    return f"{name}  " + (f"{status_word(one.status, one.due)}  {clean(one.task.title, 60)}" if one else "missing")


def _tree(edges: tuple[Edge, ...], status: dict[str, Any]) -> list[str]:
    """Each task under the first of those it waits for; a repeated one is named and not unfolded again."""
    children: dict[str, list[str]] = {}
    for edge in edges:
        children.setdefault(edge.needs, []).append(edge.task_id)
    inner = {edge.task_id for edge in edges}
    roots = [name for name in children if name not in inner] or sorted(children)[:1]
    lines: list[str] = []
    shown: set[str] = set()
    pending = [(root, "", "") for root in reversed(roots)]
    while pending:
        name, lead, indent = pending.pop()
        again = name in shown and children.get(name)
        lines.append(f"{lead}{name}  (see above)" if again else f"{lead}{_node(name, status)}")
        if again:
            continue
        shown.add(name)
        below = children.get(name, [])
        for index, child in reversed(list(enumerate(below))):
            last = index == len(below) - 1
            pending.append((child, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  ")))
    return lines


def mermaid(edges: Sequence[Edge], titles: Mapping[str, str]) -> list[str]:
    """Every task as a numbered node, because an id may be a word of the language (`end`)."""
    nodes = {name: f"n{number}" for number, name in enumerate(titles, 1)}
    lines = [f'    {node}["{_escaped(name)}: {_escaped(titles[name])}"]' for name, node in nodes.items()]
    return ["graph TD", *lines, *(f"    {nodes[edge.needs]} --> {nodes[edge.task_id]}" for edge in edges)]


def dot(edges: Sequence[Edge], titles: Mapping[str, str]) -> list[str]:
    """Every task by its id, with its title."""
    lines = [f'    "{name}" [label="{name}: {_backslashed(title)}"];' for name, title in titles.items()]
    return ["digraph tasks {", *lines, *(f'    "{edge.needs}" -> "{edge.task_id}";' for edge in edges), "}"]


def _escaped(text: str) -> str:
    text = clean(text, 60)
    for character, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(character, entity)
    return text


def _backslashed(text: str) -> str:
    return clean(text, 60).replace("\\", "\\\\").replace('"', '\\"')
