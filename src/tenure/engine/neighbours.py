"""A task among the tasks it needs and the tasks that need it, a few steps in either direction: what a graph draws."""

from __future__ import annotations

import json

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.model import Task
from tenure.core.record import Record
from tenure.engine import load, observe
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.store.store import Transaction

EDGES_MAX = 200


class Neighbour(Record):
    """A task in the graph; status None: there is no such task."""

    task_id: str
    title: str
    status: str | None


class Neighbours(Record):
    """The graph around a task: edges go from a task to what it needs."""

    nodes: tuple[Neighbour, ...]
    edges: tuple[tuple[str, str], ...]
    # Whether some edges were left out.
    cut: bool


@query(task_id=inputs.ident, project_id=inputs.optional(inputs.ident), depth=inputs.whole(1, 10))
def neighbours(tx: Transaction, *, task_id: str, project_id: str | None = None, depth: int = 3) -> Neighbours | Refused:
    """The tasks around a task, by what needs what, as far as `depth` steps up and down."""
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    rows = tx.all("edges_around", task_key=task.key, depth=depth, limit=EDGES_MAX)
    edges = tuple((row["task_id"], row["needs_id"]) for row in rows)
    names = list(dict.fromkeys([task_id, *(name for edge in edges for name in edge)]))
    found = tx.all("cards_named", project_id=task.project_id, task_ids=json.dumps(names))
    views = {view.task.task_id: view for view in observe.views_of(tx, [Task(**row) for row in found])}
    nodes = tuple(
        Neighbour(task_id=name, title=views[name].task.title, status=views[name].status)
        if name in views
        else Neighbour(task_id=name, title="", status=None)
        for name in names
    )
    return Neighbours(nodes=nodes, edges=edges, cut=len(rows) == EDGES_MAX)
