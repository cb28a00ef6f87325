"""Gridlock, judged from state alone: how often someone asks for work says nothing.

A project is gridlocked when it has todo tasks, every one of them waits for an unfinished dependency, and nothing is in
progress: nobody can ever do anything again without help. Then at least one of three causes stands above every todo:

    a cycle       tasks that need each other
    missing       a dependency that does not exist
    upstream      a task that is blocked or dead

All three are also reported while other work goes on, because they will not go away by themselves. A todo that merely
waits for a time is not blocked, and a project without todo tasks is finished, not gridlocked.

What is not promised: of very many cycles, or of very many causes above one task, only the first are named.
"""

from __future__ import annotations

from tenure.core.handoff import inline
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_CYCLES = 100
MAX_CAUSES = 100
NAMES_SHOWN = 10
SENTENCES_SHOWN = 20

# The statuses that stop everything below them until somebody acts, and how.
_REMEDIES = {
    "blocked": "resolve what blocks it, then unblock it",
    "dead": "look at its receipts, then requeue it",
}


class Node(Record):
    """A task as gridlock sees it. `status` is the derived one: a task whose lease is due is todo."""

    task_id: str
    status: str
    needs: tuple[str, ...] = ()
    blocked_reason: str = ""
    waiting_until_ms: int = 0


class Gridlock(Record):
    """The finding. Mappings go from a todo task to ids in the order of its dependencies (causes: in order of id)."""

    gridlocked: bool
    todo: int
    in_progress: int
    blocked: Mapping[str, tuple[str, ...]]
    cycles: tuple[tuple[str, ...], ...]
    missing: Mapping[str, tuple[str, ...]]
    blocked_upstream: Mapping[str, tuple[str, ...]]
    # Todo tasks that wait for nothing but a time, and until when.
    waiting: Mapping[str, int]
    # Every cause named in blocked_upstream: (status, reason).
    causes: Mapping[str, tuple[str, str]]

    def sentences(self) -> list[str]:
        """What blocks what, and what to do about it. Empty when nothing needs a person."""
        said = []
        if self.gridlocked:
            said.append(
                f"Gridlock: {_count(self.todo, 'todo task waits', 'todo tasks wait')} for unfinished dependencies "
                "and nothing is in progress."
            )
        said += _some([_cycle_sentence(cycle) for cycle in self.cycles], "cycles")
        said += _some(
            [
                f"{inline(task_id)} needs {_names(absent)}, which {'does' if len(absent) == 1 else 'do'} not exist: "
                "add it or remove the dependency."
                for task_id, absent in self.missing.items()
            ],
            "tasks with missing dependencies",
        )
        held_up: dict[str, list[str]] = {}
        for task_id, causes in self.blocked_upstream.items():
            for cause in causes:
                held_up.setdefault(cause, []).append(task_id)
        said += _some([self._cause_sentence(cause, held_up[cause]) for cause in sorted(held_up)], "causes")
        if self.gridlocked:
            waits = [f"{inline(task_id)} waits for {_names(needs)}." for task_id, needs in self.blocked.items()]
            said += _some(waits, "waiting tasks")
        return said

    def _cause_sentence(self, cause: str, held_up: Sequence[str]) -> str:
        status, reason = self.causes[cause]
        because = f" (“{inline(reason)}”)" if reason else ""
        remedy = _REMEDIES[status]
        return f"{inline(cause)} is {status}{because} and holds up {_names(held_up)}: {remedy}."


def gridlock(nodes: Iterable[Node]) -> Gridlock:
    """Judge a project. `nodes` are all its tasks, or at least the unfinished ones and everything they need."""
    known = {node.task_id: node for node in nodes}
    unfinished = {node.task_id: _unfinished(node, known) for node in known.values() if node.status != "done"}
    todos = [node for node in known.values() if node.status == "todo"]
    blocked = {node.task_id: unfinished[node.task_id] for node in todos if unfinished[node.task_id]}
    missing = {
        task_id: absent
        for task_id, needs in blocked.items()
        if (absent := tuple(need for need in needs if need not in known))
    }
    in_progress = sum(node.status == "in_progress" for node in known.values())
    components = _components(unfinished)
    above = _causes_above(components, unfinished, known)
    blocked_upstream = {task_id: above[task_id] for task_id in blocked if above[task_id]}
    return Gridlock(
        gridlocked=bool(todos) and len(blocked) == len(todos) and in_progress == 0,
        todo=len(todos),
        in_progress=in_progress,
        blocked=blocked,
        cycles=_cycles(components, unfinished),
        missing=missing,
        blocked_upstream=blocked_upstream,
        waiting={
            node.task_id: node.waiting_until_ms
            for node in todos
            if node.waiting_until_ms and node.task_id not in blocked
        },
        causes={
            cause: (known[cause].status, known[cause].blocked_reason)
            for causes in blocked_upstream.values()
            for cause in causes
        },
    )


def find_cycle(edges: Mapping[str, Iterable[str]], start: str, goal: str) -> tuple[str, ...] | None:
    """The shortest cycle that the new edge "start needs goal" would close, or None. `edges`: task → what it needs.

    Each task of the answer needs the next and the last needs the first; it begins with `start`, then `goal`.
    """
    if start == goal:
        return (start,)
    path = _path(edges, goal, start)
    return None if path is None else (start, *path)


def _path(edges: Mapping[str, Iterable[str]], source: str, target: str) -> tuple[str, ...] | None:
    """The shortest way from source to target, over one edge at least, without the target itself."""
    came_from: dict[str, str] = {}
    queue = [source]
    for here in queue:
        for there in edges.get(here, ()):
            if there == target:
                path = [here]
                while path[-1] != source:
                    path.append(came_from[path[-1]])
                return tuple(reversed(path))
            if there != source and there not in came_from:
                came_from[there] = here
                queue.append(there)
    return None


def _unfinished(node: Node, known: Mapping[str, Node]) -> tuple[str, ...]:
    """What the task still waits for. A dependency that does not exist is not finished."""
    return tuple(need for need in dict.fromkeys(node.needs) if need not in known or known[need].status != "done")


def _components(edges: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected components, dependencies first: Tarjan's algorithm with its own stack, since chains of
    dependencies may be longer than Python's recursion limit."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_tasks: dict[str, None] = {}
    components: list[list[str]] = []
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        open_tasks[root] = None
        work = [(root, iter(edges[root]))]
        while work:
            here, needs = work[-1]
            for there in needs:
                if there not in edges:
                    continue
                if there not in index:
                    index[there] = low[there] = len(index)
                    open_tasks[there] = None
                    work.append((there, iter(edges[there])))
                    break
                if there in open_tasks:
                    low[here] = min(low[here], index[there])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[here])
                if low[here] == index[here]:
                    component: list[str] = []
                    while not component or component[-1] != here:
                        component.append(open_tasks.popitem()[0])
                    components.append(component)
    return components


def _cycles(components: Sequence[Sequence[str]], edges: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """A shortest cycle through each task that lies on one, each cycle once, beginning with its smallest id.

    A component may hold exponentially many cycles; these are enough to name every task that is caught in one.
    """
    cycles: list[tuple[str, ...]] = []
    for component in components:
        members = set(component)
        if len(component) == 1 and component[0] not in edges[component[0]]:
            continue
        inside = {task_id: [need for need in edges[task_id] if need in members] for task_id in component}
        named: set[str] = set()
        for task_id in sorted(component):
            if len(cycles) == MAX_CYCLES:
                return tuple(sorted(cycles))
            if task_id in named:
                continue
            cycle = _path(inside, task_id, task_id) or ()
            named.update(cycle)
            smallest = cycle.index(min(cycle))
            cycles.append(cycle[smallest:] + cycle[:smallest])
    return tuple(sorted(cycles))


def _causes_above(
    components: Sequence[Sequence[str]], edges: Mapping[str, Sequence[str]], known: Mapping[str, Node]
) -> dict[str, tuple[str, ...]]:
    """For each unfinished task, the blocked and dead tasks it waits for, near or far, in order of id.

    Components come dependencies first, so each is settled by its neighbours. Keeping the smallest ids of every union
    gives the smallest ids of the whole, so the bound costs no exactness below it.
    """
    above: dict[str, tuple[str, ...]] = {}
    for component in components:
        members = set(component)
        cyclic = len(component) > 1 or component[0] in edges[component[0]]
        reached: set[tuple[str, ...]] = set()
        own: set[str] = set()
        for task_id in component:
            if cyclic and known[task_id].status in _REMEDIES:
                own.add(task_id)
            for need in edges[task_id]:
                if need in known and need not in members:
                    reached.add(above[need])
                    if known[need].status in _REMEDIES:
                        own.add(need)
        if not own and len(reached) == 1:
            # A long chain shares one tuple instead of copying it at each link.
            causes = reached.pop()
        else:
            causes = tuple(sorted(own.union(*reached))[:MAX_CAUSES])
        for task_id in component:
            above[task_id] = causes
    return above


def _cycle_sentence(cycle: Sequence[str]) -> str:
    if len(cycle) == 1:
        return f"{inline(cycle[0])} needs itself: remove that dependency."
    shown = [inline(task_id) for task_id in cycle[:NAMES_SHOWN]]
    if len(cycle) > NAMES_SHOWN:
        shown.append(f"… ({len(cycle) - NAMES_SHOWN} more)")
    return f"{' needs '.join(shown)} needs {inline(cycle[0])}: a cycle; remove one of these dependencies."


def _names(ids: Sequence[str]) -> str:
    """Ids as a list in prose, shortened."""
    shown = [inline(task_id) for task_id in ids[:NAMES_SHOWN]]
    if len(ids) > NAMES_SHOWN:
        shown.append(f"{len(ids) - NAMES_SHOWN} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _some(sentences: Sequence[str], what: str) -> list[str]:
    kept = list(sentences[:SENTENCES_SHOWN])
    if len(sentences) > SENTENCES_SHOWN:
        kept.append(f"And {len(sentences) - SENTENCES_SHOWN} more {what}.")
    return kept


def _count(number: int, one: str, many: str) -> str:
    return f"the only {one}" if number == 1 else f"all {number} {many}"
