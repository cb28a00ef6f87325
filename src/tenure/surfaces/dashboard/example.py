"""A small project to look at: what the button on an empty board loads. Loading it twice adds nothing."""

from __future__ import annotations

from typing import Any

EXAMPLE: tuple[dict[str, Any], ...] = (
    {
        "task_id": "EX-1",
        "title": "Sketch the data model",
        "kind": "design",
        "priority": "high",
        "body": "List the entities of a small bookshop and how they relate. Write the result to docs/model.md.",
    },
    {
        "task_id": "EX-2",
        "title": "Create the database schema",
        "kind": "code",
        "priority": "high",
        "body": "Turn docs/model.md into migrations. Every table has a primary key and a created_at.",
        "after": ["EX-1"],
    },
    {
        "task_id": "EX-3",
        "title": "Seed data for development",
        "kind": "code",
        "priority": "low",
        "body": "Fifty books, ten customers, a hundred orders.",
        "after": ["EX-2"],
    },
    {
        "task_id": "EX-4",
        "title": "Catalogue endpoint",
        "kind": "code",
        "body": "GET /books with paging and search by title.",
        "after": ["EX-2"],
    },
    {
        "task_id": "EX-5",
        "title": "Checkout endpoint",
        "kind": "code",
        "priority": "critical",
        "complexity": "complex",
        "body": "POST /orders. An order that cannot be paid leaves no trace in stock.",
        "after": ["EX-2"],
    },
    {
        "task_id": "EX-6",
        "title": "Review the checkout",
        "kind": "review",
        "priority": "high",
        "body": "Read EX-5 as an attacker would.",
        "after": ["EX-5"],
    },
    {
        "task_id": "EX-7",
        "title": "Write the user guide",
        "kind": "docs",
        "priority": "low",
        "body": "One page: install, first order, where the logs are.",
        "after": ["EX-4", "EX-5"],
    },
)


def tasks() -> list[dict[str, Any]]:
    """The tasks, each with a key of its own under which it is added once."""
    return [{**task, "dedupe_key": f"example-{task['task_id']}"} for task in EXAMPLE]
