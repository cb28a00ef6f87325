"""The graph of tasks for drawing programs: mermaid and dot. Agents' words stand in quotes, without what ends one."""

from __future__ import annotations

from tenure.surfaces.cli.output import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.engine.dependencies import Edge


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
