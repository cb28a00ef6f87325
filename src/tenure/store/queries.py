"""Named queries, kept in .sql files beside this one.

    -- name: lease_by_id
    SELECT {lease_columns} FROM ...

A query ends at the first empty line. `-- fragment: NAME` defines text that `{NAME}` inserts. `{task}` is the list of a
task's columns with the alias `t.`, `{task_names}` the names alone and `{task_values}` the parameters of an INSERT; the
same for the other RECORDS, so that a row always fits its record and an older binary ignores columns it does not know.
Parameters are written `:name`.
A store of another database loads the same file and then its own, whose queries replace the ones of the same name.
"""

from __future__ import annotations

import os

from tenure.core import model
from tenure.core.record import Record

# record, alias in queries, fields joined in from another table, fields that the database numbers itself
RECORDS: dict[str, tuple[type[Record], str, str, str]] = {
    "task": (model.Task, "t", "", "key"),
    "lease": (model.Lease, "l", "server_pulsed_at_ms", ""),
    "agent": (model.Agent, "a", "", ""),
    "link": (model.Link, "k", "", ""),
    "handoff": (model.Handoff, "h", "", ""),
    "message": (model.Message, "m", "", "seq"),
    "event": (model.Event, "e", "", "seq"),
    "receipt": (model.Receipt, "r", "", "seq"),
    "board": (model.Board, "b", "", ""),
    "board_card": (model.BoardCard, "c", "", "key"),
}

# The writes after which what a connection remembers of a table must be asked again. A test holds this to the queries.
# Timers are kept as a lower bound by those who write them (engine/change.py).
FORGETS = {
    "add_project": "settings",
    "set_project_settings": "settings",
    "set_meta": "settings",
    "add_requirement_set": "requirement_sets",
    "forget_requirement_sets": "requirement_sets",
    "save_agent": "agents",
    "see_agent": "agents",
    "lose_lease": "agents",
    "told_lost": "agents",
}

HERE = os.path.join(os.path.dirname(__file__), "sql")


def parse(text: str, fragments: dict[str, str] | None = None) -> dict[str, str]:
    """Every named query of a file, fragments inserted."""
    fragments = {} if fragments is None else fragments
    queries: dict[str, str] = {}
    for block in text.split("-- name: ")[0].split("-- fragment: ")[1:]:
        name, _, fragment = block.partition("\n")
        fragments[name.strip()] = _insert(fragment.partition("\n\n")[0].strip(), fragments)
    for block in text.split("-- name: ")[1:]:
        name, _, query = block.partition("\n")
        if name.strip() in queries:
            raise ValueError(f"the query {name.strip()} is defined twice")
        queries[name.strip()] = _insert(query.partition("\n\n")[0].strip(), fragments)
    return queries


def _insert(text: str, fragments: dict[str, str]) -> str:
    if "{" not in text:
        return text
    for name, fragment in fragments.items():
        text = text.replace("{" + name + "}", fragment)
    return text


def load(*filenames: str) -> dict[str, str]:
    """The queries of several files, later ones replacing earlier ones of the same name."""
    queries: dict[str, str] = {}
    fragments = _columns()
    for filename in filenames:
        with open(os.path.join(HERE, filename), encoding="utf-8") as file:
            queries.update(parse(file.read(), fragments))
    return queries


def _columns() -> dict[str, str]:
    fragments = {}
    for name, (record, alias, joined, numbered) in RECORDS.items():
        own = [field for field in record._fields if field != joined]
        written = [field for field in own if field != numbered]
        fragments[name] = ", ".join(f"{alias}.{field}" for field in own)
        fragments[name + "_names"] = ", ".join(written)
        fragments[name + "_values"] = ", ".join(":" + field for field in written)
    return fragments


def migrations() -> list[tuple[int, str]]:
    """Every migration with its number, in order."""
    found = []
    for filename in sorted(os.listdir(HERE)):
        number, _, rest = filename.partition("_")
        if number.isdigit() and rest.endswith(".sql"):
            with open(os.path.join(HERE, filename), encoding="utf-8") as file:
                found.append((int(number), file.read()))
    return found
