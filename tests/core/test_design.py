"""The design brief: what it says of the tasks, and that it says no more."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.design import Plan, brief, prompt, waves
from tenure.core.model import Task


def task(task_id: str, **fields: Any) -> Task:
    return Task(**{"key": 1, "project_id": "p", "task_id": task_id, "title": f"Task {task_id}", **fields})


PLAN = Plan(
    task=task("D1", title="Design the import", body="Keep it small."),
    parts=(
        task("P", title="Parser", kind="code", body="\nReads CSV.\nFast."),
        task("S", title="Store", priority="high", requires="gpu"),
        task("U", title="Interface", estimated_hours=1.5),
        task("X", title="Licence"),
    ),
    edges=(("S", "P"), ("U", "P"), ("U", "S")),
)


def test_brief_has_components_interfaces_order_and_picture() -> None:
    text = brief(PLAN)
    assert text.startswith("# Design brief: Design the import\n\nKeep it small.\n")
    assert "- **P** Parser (code, medium priority, about 4 h): Reads CSV." in text
    assert "- **S** Store (high priority, about 4 h, requires gpu)" in text
    assert "- P “Parser” → S “Store”, U “Interface”: what the first hands over is their interface" in text
    assert "shared by 2" in text
    assert "- X: no interface" in text
    assert "1. P, X (at the same time)\n2. S\n3. U" in text
    assert 't0["P Parser"]' in text
    assert "    t0 --> t1\n    t0 --> t2\n    t1 --> t2" in text


def test_brief_says_first_why_it_stands_in_for_another_document() -> None:
    assert "\n\n> The program failed.\n\n" in brief(PLAN, "The program failed.")


def test_brief_of_nothing_says_so() -> None:
    assert "nothing to divide" in brief(Plan(task=task("D1")))


def test_brief_of_very_many_says_how_many_are_left_out() -> None:
    assert "and 7 more tasks" in brief(PLAN.replace(more=7))


def test_picture_survives_hostile_titles() -> None:
    text = brief(PLAN.replace(parts=(task("P", title='a"]; click [x] <b>```\nmore'),), edges=()))
    labels = [line for line in text.splitlines() if line.startswith("    t0")]
    assert labels == ["    t0[\"P a'); click (x) ‹b›''' more\"]"]
    assert sum(line.startswith("```") for line in text.splitlines()) == 2


@pytest.mark.parametrize(
    ("edges", "found", "caught", "why"),
    [
        ([], [["A", "B", "C"]], [], "without edges all at once"),
        ([("B", "A"), ("C", "B")], [["A"], ["B"], ["C"]], [], "a chain"),
        ([("A", "B"), ("B", "A")], [["C"]], ["A", "B"], "a cycle is named, the rest goes on"),
        ([("A", "Z")], [["A", "B", "C"]], [], "what is not told of does not count"),
    ],
)
def test_waves(edges: list[tuple[str, str]], found: list[list[str]], caught: list[str], why: str) -> None:
    assert waves(["A", "B", "C"], edges) == (found, caught), why


def test_prompt_asks_for_the_document_and_gives_the_facts() -> None:
    text = prompt(PLAN)
    assert "design document for the task D1 “Design the import”" in text
    assert brief(PLAN) in text
