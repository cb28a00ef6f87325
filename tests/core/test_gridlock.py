"""Gridlock: tables of small projects, and agreement with the plain definition on random ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.gridlock import MAX_CAUSES, MAX_CYCLES, Gridlock, Node, find_cycle, gridlock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONG = 100_000


def project(**tasks: str) -> list[Node]:
    """Tasks as `name="status: what it needs"`."""
    nodes = []
    for task_id, text in tasks.items():
        status, _, needs = text.partition(":")
        nodes.append(Node(task_id=task_id, status=status, needs=tuple(needs.split())))
    return nodes


@pytest.mark.parametrize(
    ("nodes", "gridlocked", "why"),
    [
        (project(), False, "An empty project is not gridlocked."),
        (project(a="done", b="done:a"), False, "A finished project is not gridlocked."),
        (project(a="blocked", b="dead"), False, "Without a todo task it is not gridlock, whatever else it is."),
        (project(a="todo", b="todo:a"), False, "Somebody can take a."),
        (project(a="done", b="todo:a"), False, "A finished dependency blocks nobody."),
        (project(a="in_progress", b="todo:a"), False, "Work in progress will free b."),
        (
            project(a="in_progress", b="todo:c", c="blocked"),
            False,
            "Something is in progress, even if it frees nobody.",
        ),
        (project(a="blocked", b="todo:a"), True, "Only a person can free b."),
        (project(a="dead", b="todo:a", c="todo:b"), True, "A dead task holds up everything below it."),
        (project(a="todo:b", b="todo:a"), True, "Two tasks that need each other never start."),
        (project(a="todo:a"), True, "A task that needs itself never starts."),
        (project(a="todo:ghost"), True, "A dependency that does not exist is never finished."),
        (project(a="todo:b", b="todo:a", c="todo"), False, "A cycle beside free work is not gridlock yet."),
        ([Node(task_id="a", status="todo", waiting_until_ms=9)], False, "A task that waits for a time will run."),
        (
            [Node(task_id="a", status="todo", waiting_until_ms=9), *project(b="todo:a")],
            False,
            "So will what needs it.",
        ),
        (
            [Node(task_id="a", status="todo", needs=("x",), waiting_until_ms=9)],
            True,
            "A time does not help a task that waits for more than that.",
        ),
    ],
)
def test_gridlocked_means_no_todo_can_start_and_nothing_runs(nodes: list[Node], gridlocked: bool, why: str) -> None:
    assert gridlock(nodes).gridlocked is gridlocked, why


@pytest.mark.parametrize(
    ("nodes", "cycles", "why"),
    [
        (project(a="todo", b="todo:a", c="todo:a b"), (), "A diamond is not a cycle."),
        (project(b="todo:a", a="todo:b"), (("a", "b"),), "A cycle is told once, from its smallest id."),
        (project(a="todo:c", b="todo:a", c="todo:b"), (("a", "c", "b"),), "Each task needs the next."),
        (project(a="todo:a"), (("a",),), "A task may need itself."),
        (project(a="todo:b", b="todo:a", c="todo:d", d="todo:c"), (("a", "b"), ("c", "d")), "Two cycles are two."),
        (
            project(a="todo:b c", b="todo:a", c="todo:a"),
            (("a", "b"), ("a", "c")),
            "Cycles that share a task are each told.",
        ),
        (project(a="todo:b", b="done:a"), (), "A cycle through a finished task blocks nobody."),
        (project(a="todo:b", b="blocked:a"), (("a", "b"),), "A blocked task on a cycle does not hide it."),
        (project(a="todo:b b", b="todo:a a"), (("a", "b"),), "A dependency written twice is one."),
        (
            project(a="todo:b c", b="todo:c", c="todo:a"),
            (("a", "b", "c"), ("a", "c")),
            "A task is told with the shortest cycle it lies on.",
        ),
    ],
)
def test_cycles_are_each_told_once(nodes: list[Node], cycles: tuple[tuple[str, ...], ...], why: str) -> None:
    assert gridlock(nodes).cycles == cycles, why


@pytest.mark.parametrize(
    ("nodes", "blocked", "missing", "upstream", "why"),
    [
        (project(a="todo", b="done"), {}, {}, {}, "Free tasks are in no mapping."),
        (project(a="todo", c="todo:b a", b="done"), {"c": ("a",)}, {}, {}, "Only unfinished dependencies are named."),
        (project(a="todo:x y"), {"a": ("x", "y")}, {"a": ("x", "y")}, {}, "What does not exist is unfinished, too."),
        (project(a="blocked:x"), {}, {}, {}, "Only todo tasks are told of."),
        (
            project(r="blocked", m="todo:r", e="todo:m"),
            {"m": ("r",), "e": ("m",)},
            {},
            {"m": ("r",), "e": ("r",)},
            "A cause reaches everything below it.",
        ),
        (
            project(r="dead", s="blocked:r", t="todo:s"),
            {"t": ("s",)},
            {},
            {"t": ("r", "s")},
            "A blocked task below a dead one leaves two things to do.",
        ),
        (
            project(r="blocked", d="done:r", t="todo:d"),
            {},
            {},
            {},
            "A finished task between lets nothing through.",
        ),
        (
            project(r="blocked:t", t="todo:r"),
            {"t": ("r",)},
            {},
            {"t": ("r",)},
            "A cause on a cycle is a cause.",
        ),
    ],
)
def test_what_blocks_what_is_named(
    nodes: list[Node],
    blocked: dict[str, tuple[str, ...]],
    missing: dict[str, tuple[str, ...]],
    upstream: dict[str, tuple[str, ...]],
    why: str,
) -> None:
    found = gridlock(nodes)
    assert (found.blocked, found.missing, found.blocked_upstream) == (blocked, missing, upstream), why


def test_waiting_lists_the_todos_that_wait_for_nothing_but_a_time() -> None:
    nodes = [
        Node(task_id="a", status="todo", waiting_until_ms=9),
        Node(task_id="b", status="todo", needs=("a",), waiting_until_ms=8),
        Node(task_id="c", status="todo"),
    ]
    assert gridlock(nodes).waiting == {"a": 9}


@pytest.mark.parametrize(
    ("nodes", "sentences", "why"),
    [
        (project(a="todo", b="todo:a"), [], "A healthy project needs no words."),
        (
            project(a="todo:b", b="todo:a"),
            [
                "Gridlock: all 2 todo tasks wait for unfinished dependencies and nothing is in progress.",
                "a needs b needs a: a cycle; remove one of these dependencies.",
                "a waits for b.",
                "b waits for a.",
            ],
            "A cycle is spelled out.",
        ),
        (
            project(a="todo:a", b="todo"),
            ["a needs itself: remove that dependency."],
            "A cycle beside free work is told without the word gridlock.",
        ),
        (
            project(a="todo:x"),
            [
                "Gridlock: the only todo task waits for unfinished dependencies and nothing is in progress.",
                "a needs x, which does not exist: add it or remove the dependency.",
                "a waits for x.",
            ],
            "A missing dependency is named with its two remedies.",
        ),
        (
            [Node(task_id="r", status="blocked", blocked_reason="no\nkey"), *project(m="todo:r", e="todo:m", f="todo")],
            ["r is blocked (“no key”) and holds up m and e: resolve what blocks it, then unblock it."],
            "A blocked task is named with its reason, what it holds up and the remedy.",
        ),
        (
            project(r="dead", m="todo:r", f="todo"),
            ["r is dead and holds up m: look at its receipts, then requeue it."],
            "A dead one has another remedy.",
        ),
    ],
)
def test_sentences_say_what_blocks_what_and_what_to_do(nodes: list[Node], sentences: list[str], why: str) -> None:
    assert gridlock(nodes).sentences() == sentences, why


# Size.


def chain(end: str) -> list[Node]:
    """t0 needs t1 needs t2 …, and the last needs `end`."""
    return [Node(task_id=f"t{n}", status="todo", needs=(f"t{n + 1}" if n < LONG - 1 else end,)) for n in range(LONG)]


def test_a_ring_of_a_hundred_thousand_is_one_cycle_and_a_short_sentence() -> None:
    found = gridlock(chain("t0"))
    assert found.gridlocked
    assert [len(cycle) for cycle in found.cycles] == [LONG]
    assert max(map(len, found.sentences())) < 1_000
    assert len(found.sentences()) < 100


def test_a_cause_above_a_hundred_thousand_reaches_them_all() -> None:
    found = gridlock([*chain("r"), Node(task_id="r", status="blocked")])
    assert len(found.blocked_upstream) == LONG
    assert found.blocked_upstream["t0"] == ("r",)
    assert found.sentences()[1].startswith("r is blocked and holds up t0, t1, ")


def test_a_hub_with_countless_cycles_names_a_bounded_number() -> None:
    spokes = [Node(task_id=f"s{n}", status="todo", needs=("hub",)) for n in range(20_000)]
    hub = Node(task_id="hub", status="todo", needs=tuple(node.task_id for node in spokes))
    assert len(gridlock([hub, *spokes]).cycles) == MAX_CYCLES


def test_countless_causes_above_one_task_are_bounded_to_the_smallest_ids() -> None:
    roots = [Node(task_id=f"r{n:04}", status="dead") for n in range(500)]
    steps = [
        Node(task_id=f"t{n}", status="todo", needs=(f"r{499 - n:04}", *((f"t{n - 1}",) if n else ())))
        for n in range(500)
    ]
    assert gridlock([*roots, *steps]).blocked_upstream["t499"] == tuple(f"r{n:04}" for n in range(MAX_CAUSES))


# The edge that would close a cycle.


@pytest.mark.parametrize(
    ("edges", "start", "goal", "cycle", "why"),
    [
        ({}, "a", "b", None, "Two unrelated tasks may depend on each other one way."),
        ({}, "a", "a", ("a",), "A task may not need itself."),
        ({"b": ["a"]}, "a", "b", ("a", "b"), "The edge back closes the smallest cycle."),
        ({"a": ["b"]}, "a", "b", None, "Adding an edge a second time closes nothing."),
        ({"c": ["b"], "b": ["a"]}, "a", "c", ("a", "c", "b"), "Each task of the answer needs the next."),
        ({"c": ["b", "a"], "b": ["a"]}, "a", "c", ("a", "c"), "The shortest cycle is named."),
        ({"b": ["c"], "c": ["b"]}, "a", "b", None, "A cycle elsewhere does not trap the search."),
    ],
)
def test_find_cycle_names_what_the_new_edge_would_close(
    edges: dict[str, list[str]], start: str, goal: str, cycle: tuple[str, ...] | None, why: str
) -> None:
    assert find_cycle(edges, start, goal) == cycle, why


def test_find_cycle_through_a_hundred_thousand_tasks() -> None:
    edges = {f"t{n}": [f"t{n + 1}"] for n in range(LONG)}
    found = find_cycle(edges, f"t{LONG}", "t0")
    assert found is not None
    assert len(found) == LONG + 1


# The plain definition, on random small projects.

STATUS = st.sampled_from(["todo", "todo", "todo", "in_progress", "blocked", "done", "dead"])
IDS = "abcdef"


@st.composite
def projects(draw: st.DrawFn) -> list[Node]:
    ids = draw(st.lists(st.sampled_from(IDS), unique=True))
    needs = st.lists(st.sampled_from(IDS + "x"), max_size=3).map(tuple)
    return [Node(task_id=task_id, status=draw(STATUS), needs=draw(needs)) for task_id in ids]


def waits_for(nodes: Sequence[Node]) -> dict[str, set[str]]:
    """Unfinished task → all it waits for, near and far: the closure, by repetition."""
    status = {node.task_id: node.status for node in nodes}
    above = {
        node.task_id: {need for need in node.needs if status.get(need) != "done"}
        for node in nodes
        if node.status != "done"
    }
    for _ in IDS:
        for reached in above.values():
            reached |= {far for near in set(reached) for far in above.get(near, ())}
    return above


def in_cycles(found: Gridlock) -> set[str]:
    return {task_id for cycle in found.cycles for task_id in cycle}


@given(projects())
def test_gridlock_agrees_with_the_plain_definition(nodes: list[Node]) -> None:
    found = gridlock(nodes)
    status: Mapping[str, str] = {node.task_id: node.status for node in nodes}
    todos = [node for node in nodes if node.status == "todo"]
    above = waits_for(nodes)
    stuck = all(any(status.get(need) != "done" for need in node.needs) for node in todos)
    assert found.gridlocked == (bool(todos) and stuck and "in_progress" not in status.values())
    assert found.blocked.keys() == {node.task_id for node in todos if above[node.task_id]}
    assert in_cycles(found) == {task_id for task_id, reached in above.items() if task_id in reached}
    for node in todos:
        wanted = sorted(far for far in above[node.task_id] if status.get(far) in ("blocked", "dead"))
        assert list(found.blocked_upstream.get(node.task_id, ())) == wanted
        assert set(found.missing.get(node.task_id, ())) == {need for need in node.needs if need not in status}


@given(projects())
def test_every_cycle_is_real_and_told_once(nodes: list[Node]) -> None:
    needs = {node.task_id: node.needs for node in nodes}
    found = gridlock(nodes)
    for cycle in found.cycles:
        assert all(after in needs[here] for here, after in zip(cycle, cycle[1:] + cycle[:1], strict=True))
        assert len(set(cycle)) == len(cycle)
        assert cycle[0] == min(cycle)
    assert len(set(found.cycles)) == len(found.cycles)


@given(projects())
def test_gridlock_always_has_a_named_cause_above_every_todo(nodes: list[Node]) -> None:
    found = gridlock(nodes)
    if found.gridlocked:
        above = waits_for(nodes)
        known = {node.task_id for node in nodes}
        for task_id in found.blocked:
            chain_up = above[task_id] | {task_id}
            assert found.blocked_upstream.get(task_id) or chain_up & in_cycles(found) or chain_up - known
        assert len(found.sentences()) >= 3
    assert bool(found.sentences()) == bool(found.gridlocked or found.cycles or found.missing or found.blocked_upstream)


@given(projects(), st.sampled_from(IDS), st.sampled_from(IDS))
def test_find_cycle_agrees_with_reachability(nodes: list[Node], start: str, goal: str) -> None:
    edges = {node.task_id: node.needs for node in nodes}
    reached = {goal}
    for _ in IDS:
        reached |= {need for task_id in reached for need in edges.get(task_id, ())}
    found = find_cycle(edges, start, goal)
    assert (found is not None) == (start in reached)
    if found is not None:
        assert found[: 1 if start == goal else 2] == ((start,) if start == goal else (start, goal))
