"""How a board's columns, people and priorities are ours. Pure: what is configured, what is guessed, what is wrong.

    columns      status: names of columns. The first is where we put cards; a card in any of them has that status.
    users        name on the board: agent id. Who is not named here goes by the same name on both sides.
    priorities   our priority: the board's number.

A column that is not configured is guessed by its name; one that cannot be guessed is an error, never a status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core.inputs import TEXT_MAX, TITLE_MAX
from tenure.core.model import PRIORITIES
from tenure.core.reconcile import CARD_STATUSES
from tenure.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What columns are usually called. Compared without case, spaces, dashes and underscores.
GUESSES = {
    "todo": ("backlog", "ready", "todo", "open", "new", "next", "planned", "inbox"),
    "in_progress": ("workinprogress", "inprogress", "doing", "wip", "started", "active", "review", "inreview"),
    "blocked": ("blocked", "onhold", "waiting", "stuck", "paused"),
    "done": ("done", "finished", "complete", "completed", "closed", "released"),
}
DEFAULT_PRIORITIES = {"low": 0, "medium": 1, "high": 2, "critical": 3}


class Fit(Record):
    """A mapping that was checked against the columns there are."""

    columns: Mapping[str, tuple[str, ...]]
    users: Mapping[str, str] = {}
    priorities: Mapping[str, int] = DEFAULT_PRIORITIES

    def status_of(self, column: str) -> str | None:
        """The status of a card in this column; None for a column that is not mapped."""
        return next((status for status, names in self.columns.items() if column in names), None)

    def column_for(self, status: str) -> str | None:
        """Where a card of this status goes; None when the board has no place for it."""
        return next(iter(self.columns.get(status, ())), None)

    def agent_of(self, username: str) -> str:
        """Who a name on the board is here."""
        return self.users.get(username, username)

    def user_of(self, agent_id: str | None, usernames: Sequence[str]) -> str | None:
        """The account that shows this name on the board, if there is one."""
        if agent_id is None:
            return None
        mapped = next((name for name, agent in self.users.items() if agent == agent_id), agent_id)
        return mapped if mapped in usernames else None

    def priority_of(self, number: int) -> str:
        """The nearest of our priorities, the lower of two."""
        return min(self.priorities, key=lambda name: (abs(self.priorities[name] - number), self.priorities[name]))


def parse(config: Mapping[str, Any], columns: Sequence[str]) -> tuple[Fit, list[str]]:
    """The mapping of a configuration over the columns there are, and what is wrong with it."""
    wrong: list[str] = []
    chosen: dict[str, list[str]] = {status: [] for status in CARD_STATUSES}
    given = config.get("columns", {})
    for status, names in given.items():
        if status not in CARD_STATUSES:
            wrong.append(f"{status} is not a status; use one of {', '.join(CARD_STATUSES)}")
            continue
        for name in names:
            if name not in columns:
                wrong.append(f"the board has no column {name!r}; it has {', '.join(columns)}")
            else:
                chosen[status].append(name)
    taken = [name for names in chosen.values() for name in names]
    wrong += [f"the column {name!r} is mapped twice" for name in sorted({n for n in taken if taken.count(n) > 1})]
    for column in columns:
        if column not in taken:
            status = _guess(column)
            if status is None:
                wrong.append(f"the column {column!r} has no status: say which with --column '{column}=STATUS'")
            else:
                chosen[status].append(column)
    for status in ("todo", "in_progress"):
        if not chosen[status]:
            wrong.append(f"no column means {status}: say which with --column 'NAME={status}'")
    priorities = dict(DEFAULT_PRIORITIES)
    for name, number in config.get("priorities", {}).items():
        if name not in PRIORITIES:
            wrong.append(f"{name} is not a priority; use one of {', '.join(PRIORITIES)}")
        else:
            priorities[name] = number
    if len(set(priorities.values())) < len(priorities):
        wrong.append("two priorities have the same number on the board")
    users = dict(config.get("users", {}))
    agents = list(users.values())
    wrong += [f"the agent {a} has two accounts" for a in sorted({a for a in agents if agents.count(a) > 1})]
    mapping = Fit(
        columns={status: tuple(names) for status, names in chosen.items()},
        users=users,
        priorities=priorities,
    )
    return mapping, wrong


def _guess(column: str) -> str | None:
    plain = "".join(character for character in column.lower() if character not in " -_")
    return next((status for status, names in GUESSES.items() if plain in names), None)


def tidy_title(text: str) -> str:
    """A title as a task may have it: one line, no control characters, not too long."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    while len(plain.encode()) > TITLE_MAX:
        plain = plain[:-1]
    return plain.strip() or "(no title)"


def tidy_text(text: str, most: int = TEXT_MAX) -> str:
    """A text as a task may have it: line feeds, no other control characters, not too long."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    plain = "".join(character for character in plain if character in "\n\t" or not _is_control(character))
    if len(plain.encode()) > most:
        plain = plain.encode()[: most - 4].decode(errors="ignore")
    return plain.rstrip()


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff"
