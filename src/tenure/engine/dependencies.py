"""Dependencies: edges, cycles, the graph. A task's count of unmet dependencies is kept, never computed on a claim."""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.core.gridlock import find_cycle
from tenure.core.record import Record
from tenure.engine import change, load
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.core.model import Task
    from tenure.store.store import Transaction

_EDGE = {"task_id": inputs.ident, "needs": inputs.ident, "project_id": inputs.optional(inputs.ident)}


class Edge(Record):
    """`task_id` needs `needs`; `missing` when there is no such task."""

    task_id: str
    needs: str
    missing: bool = False


@verb(**_EDGE, allow_missing=inputs.flag)
def add_dependency(
    tx: Transaction, *, task_id: str, needs: str, project_id: str | None = None, allow_missing: bool = False
) -> Task | Refused:
    """Make a task wait for another. An edge that would close a cycle is refused with its path."""
    _hold_edges(tx, task_id, needs, project_id)
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    refused = tx.attempt(lambda: connect(tx, task, [needs], allow_missing=allow_missing))
    if refused is not None:
        return refused
    change.record(tx, "depends", task=task, needs=needs)
    return load.task_by_key(tx, task.key)


@verb(**_EDGE)
def remove_dependency(tx: Transaction, *, task_id: str, needs: str, project_id: str | None = None) -> Task | Refused:
    """Let a task no longer wait for another."""
    _hold_edges(tx, task_id, needs, project_id)
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    edge = tx.one("edge", task_key=task.key, needs_id=needs)
    if edge is None:
        message = f"Task {task_id} does not depend on {needs}."
        return refuse("dependency_not_found", message, task_id=task_id, needs=needs)
    tx.do("remove_edge", task_key=task.key, needs_id=needs)
    if edge["status"] != "done":
        tx.do("count_unmet", task_key=task.key, by=-1)
    change.record(tx, "independent", task=task, needs=needs)
    return load.task_by_key(tx, task.key)


def _hold_edges(tx: Transaction, task_id: str, needs: str, project_id: str | None) -> None:
    """Let nobody else change edges of this project meanwhile, nor finish the task that is needed: whether it is done
    decides the count that is kept. Before the dependant is locked, as whoever finishes the other does it."""
    tx.lock("edges_of", task_id=task_id, project_id=project_id)
    tx.lock("upstream", task_id=task_id, needs=needs, project_id=project_id)


def connect(tx: Transaction, task: Task, after: Sequence[str], *, allow_missing: bool) -> Refused | None:
    """Add edges from a task to what it comes after, and from tasks that were waiting for its name.

    Writes before it refuses: run it under `tx.attempt`.
    """
    unmet = 0
    for needs_id in after:
        found = tx.all("upstream", task_id=needs_id, project_id=task.project_id)
        if not found and not allow_missing:
            message = f"There is no task {needs_id} in {task.project_id} for {task.task_id} to depend on."
            return refuse("task_not_found", message, task_id=needs_id)
        key = found[0]["key"] if found else None
        if tx.do("add_edge", task_key=task.key, needs_id=needs_id, needs_key=key):
            unmet += not found or found[0]["status"] != "done"
    if unmet:
        tx.do("count_unmet", task_key=task.key, by=unmet)
    resolved = tx.do("resolve_missing", task_id=task.task_id, project_id=task.project_id, key=task.key)
    # Only a task that others already wait for can close a cycle, so adding a long chain in order walks nothing.
    if resolved or (after and tx.one("dependants_of", task_key=task.key)):
        return _cycle(tx, task)
    return None


def _cycle(tx: Transaction, task: Task) -> Refused | None:
    if tx.one("needs_itself", task_key=task.key) is None:
        return None
    edges: dict[str, list[str]] = {}
    for row in tx.all("edges", project_id=task.project_id):
        edges.setdefault(row["task_id"], []).append(row["needs_id"])
    path = next(cycle for needs in edges[task.task_id] if (cycle := find_cycle(edges, task.task_id, needs)) is not None)
    message = f"That would make a cycle: {' needs '.join([*path, path[0]])}."
    return refuse("cycle", message, cycle=list(path))


@query(project_id=inputs.ident, task_id=inputs.optional(inputs.ident))
def graph(tx: Transaction, *, project_id: str = "default", task_id: str | None = None) -> tuple[Edge, ...] | Refused:
    """Every edge of a project, or only those upstream and downstream of one task."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    edges = tuple(
        Edge(task_id=row["task_id"], needs=row["needs_id"], missing=row["needs_key"] is None)
        for row in tx.all("edges", project_id=project_id)
    )
    if task_id is None:
        return edges
    task = load.task_named(tx, task_id, project_id)
    if isinstance(task, Refused):
        return task
    around = _reach(edges, task_id, down=False) | _reach(edges, task_id, down=True)
    return tuple(edge for edge in edges if edge.task_id in around and edge.needs in around)


def _reach(edges: Sequence[Edge], start: str, *, down: bool) -> set[str]:
    """Everything upstream (or downstream) of a task, and the task itself."""
    following: dict[str, list[str]] = {}
    for edge in edges:
        here, there = (edge.needs, edge.task_id) if down else (edge.task_id, edge.needs)
        following.setdefault(here, []).append(there)
    found, pending = {start}, [start]
    while pending:
        for there in following.get(pending.pop(), ()):
            if there not in found:
                found.add(there)
                pending.append(there)
    return found
