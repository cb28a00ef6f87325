"""What the verbs of a batch ask first, asked for all of them in one round trip.

A verb says early what it will read (`Transaction.ahead`), and then reads. Before a batch is run, each of its bodies is
run up to there, and no further: a scout's first question ends it. Bodies are made to be run again, so nothing is lost.
The questions of all scouts then travel together, with the locks that they take, and after them one look at the clock.
When the bodies are run, each finds its answers waiting, and n verbs cost two round trips instead of n + 1.

What was read before the batch's first verb wrote may be wrong for its last. Therefore every write is noted (`Written`),
and a reading that an earlier verb's write may have changed is not used: the verb asks again, as if it had never been
scouted. A write that is not known here by the one row that it changes makes all later readings void. So the answers are
those of verbs that are run one after the other; the locks that a void reading took are held until the commit.

Claims are the case that needs more. Two of them that ask for the best task before either has taken it would be given
the same one. So each passes over as many ready tasks as claims of the same kind come before it, and its reading is void
unless each of those took the task that was read for it, or if something better came up since. (No claim is made inside
of `Transaction.attempt`: what that undoes would still count as taken.)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.store.postgres_transaction import Batch, PostgresTransaction
    from tenure.store.postgres_wire import Answer, Statement
    from tenure.store.store import Row

    Key = tuple[Any, ...]

# The questions that may be asked for a verb before those in front of it have been run. For each it is known below by
# which writes its answer changes.
_ASKED = """
    agent_named next_wake best settings_of requirement_sets about_new_task
    lease_by_id task_of_lease agent_of_lease settings_of_lease
"""
ASKED = frozenset(_ASKED.split())
# Asked once for all the verbs of a batch.
COMMON = frozenset(["next_wake", "settings_of", "requirement_sets"])
LOCKS = frozenset(["lock_names"])

# Writes by the rows that they change, as far as those are read above: the kind of row, and the value that names it.
# Nothing above reads timers (but for the nearest, of which a batch keeps a lower bound), receipts, events, or what is
# remembered of requests. Settings and capability sets are forgotten by whoever writes them (queries.FORGETS).
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "set_timer": (),
    "drop_timer": (),
    "record_receipt": (),
    "add_event": (),
    "remember": (),
    "add_requirement_set": (),
    "mark_read": (),
    "count": (),
    "add_lease": (("task", "task_key"),),
    "extend_lease": (("lease", "lease_id"), ("task", "task_key")),
    "accept_lease": (("lease", "lease_id"), ("task", "task_key")),
    "end_lease": (("lease", "lease_id"), ("task", "task_key")),
    "save_task": (("task", "key"),),
    "reserve_task": (("task", "key"),),
    "save_progress": (("task", "key"),),
    "add_task": (("name", "task_id"),),
    "see_agent": (("agent", "agent_id"),),
    "save_agent": (("agent", "agent_id"),),
}
# Writes that can make a task ready.
OF_TASKS = frozenset(["save_task", "reserve_task", "add_task"])
# The rows that questions are about: named by a value that is given, or shown in the answer.
NAMED_BY = {
    "agent_named": ("agent", "agent_id"),
    "about_new_task": ("name", "task_id"),
    "lease_by_id": ("lease", "lease_id"),
}
SHOWS = {"best": ("task", "key"), "task_of_lease": ("task", "key"), "agent_of_lease": ("agent", "agent_id")}
NEVER_MS = float("inf")


class Asked(BaseException):
    """Ends a scout: it has asked its first question."""


class Written:
    """What the verbs of a batch have written so far."""

    __slots__ = ("best_ms", "rows", "taken", "unknown")

    def __init__(self) -> None:
        self.rows: set[tuple[str, Any]] = set()
        # The tasks of which somebody was given a lease.
        self.taken: set[int] = set()
        # Something whose reach is not known here.
        self.unknown = False
        # The rank of the best task that may have become ready.
        self.best_ms: float = NEVER_MS

    def note(self, query: str, values: Mapping[str, Any]) -> None:
        changed = CHANGES.get(query)
        if changed is None:
            self.unknown = True
            return
        for kind, name in changed:
            self.rows.add((kind, values[name]))
        if query == "add_lease":
            self.taken.add(values["task_key"])
        if query in OF_TASKS and (values["open_slots"] or values["status"] == "todo"):
            # Work that is kept for an agent is its best, whatever the rank.
            self.best_ms = min(self.best_ms, 0 if values["owner"] == "agent" else values["rank_ms"])


class Reading:
    """What one verb asks first, with all that it announced, and the answers once they are there."""

    __slots__ = ("announced", "answers", "before", "best", "drawn", "key", "locks", "now_ms", "rows", "statement")

    def __init__(self, key: Key, statement: Statement, announced: dict[Key, Statement], locks: list[Statement]) -> None:
        self.key = key
        self.statement = statement
        self.announced = announced
        self.locks = locks
        # Random bytes that the scout was given: the verb is given the same.
        self.drawn: list[bytes] = []
        self.answers: dict[Key, Answer] = {}
        self.now_ms: int | None = None
        # The rows on which its answers depend.
        self.rows: set[tuple[str, Any]] = set()
        # The task that was found for a claim, and what was read for the claims that come before it.
        self.best: Row | None = None
        self.before: list[Reading] | None = None

    def judge(self, written: Written) -> None:
        """Forget the answers unless nothing that was written since can have changed them."""
        if not self._holds(written):
            self.announced, self.answers = {}, {}

    def _holds(self, written: Written) -> bool:
        if written.unknown or not self.rows.isdisjoint(written.rows):
            return False
        if self.before is None:
            return True
        best = self.best
        if written.best_ms < NEVER_MS if best is None else written.best_ms <= best["rank_ms"]:
            return False
        # Those that were passed over must be what the claims before this one took. An agent that has a slot of a task
        # is not shown the others, so that the lists of two claims differ where a task has more than one.
        taken = {(row["rank_ms"], row["key"]) for other in self.before if (row := other.taken(written)) is not None}
        if len(taken) < len(self.before):
            return False
        is_kept = best is not None and (best["status"], best["owner"]) == ("todo", "agent")
        return best is None or is_kept or max(taken, default=(0, 0)) < (best["rank_ms"], best["key"])

    def taken(self, written: Written) -> Row | None:
        """The task that was read for this claim, if it took it, and anyone could have: it has one slot."""
        best = self.best
        if best is None or best["slots"] > 1 or best["assigned_to"] is not None:
            return None
        return best if best["key"] in written.taken else None

    def keep(self, key: Key, values: Mapping[str, Any] | None, answer: Answer) -> None:
        """Keep an answer, and which row it tells of."""
        self.answers[key] = answer
        name, given = key[0], values or {}
        if name in NAMED_BY:
            kind, value = NAMED_BY[name]
            self.rows.add((kind, given[value]))
        elif name in SHOWS and (rows := answer.rows()):
            kind, value = SHOWS[name]
            self.rows.add((kind, rows[0][value]))
            if name == "best":
                self.best = rows[0]


def scouted(bodies: Sequence[Callable[[Any], Any]], scout: Callable[[], PostgresTransaction]) -> list[Reading | None]:
    """What each body asks first; None for one that asks nothing, or nothing that can be asked beforehand."""
    found = []
    for body in bodies:
        transaction = scout()
        try:
            body(transaction)
        except Asked:
            found.append(transaction.reading)
        except Exception:
            # It will be raised again, in the body's turn.
            found.append(None)
        else:
            found.append(None)
    return _compatible(found)


def _compatible(readings: list[Reading | None]) -> list[Reading | None]:
    """The readings that can be asked for together: of claims in one project, those for the same one capability set."""
    sets: dict[str, str | None] = {}
    claims: dict[str, list[Reading]] = {}
    fitting: list[Reading | None] = []
    for reading in readings:
        values = (
            None if reading is None else next((v for k, (_, v) in reading.announced.items() if k[0] == "best"), None)
        )
        if reading is not None and values is not None:
            project_id, requires = values["project_id"], values.get("requires")
            earlier = claims.setdefault(project_id, [])
            if earlier and (requires is None or requires != sets[project_id]):
                fitting.append(None)
                continue
            sets[project_id] = requires
            reading.before = list(earlier)
            earlier.append(reading)
        fitting.append(reading)
    return fitting


def read_together(
    readings: Sequence[Reading | None],
    batch: Batch,
    *,
    queries: Mapping[str, str],
    send: Callable[[list[Statement]], list[Answer]],
    clock: Statement | None,
) -> None:
    """Ask what all of them want to know, in one round trip, and then for the time."""
    statements: list[Statement] = []
    whose: list[tuple[Reading | None, Key]] = []
    known: set[Key] = set()
    for reading in readings:
        if reading is None:
            continue
        for lock in reading.locks:
            statements.append(lock)
            whose.append((None, ("lock",)))
        for key, (text, values) in ((reading.key, reading.statement), *reading.announced.items()):
            if key[0] in COMMON:
                if key in known:
                    continue
                known.add(key)
            elif key[0] == "best" and reading.before:
                text = best_after(queries["best_after"], len(reading.before))
            statements.append((text, values))
            whose.append((reading, key))
    if not whose:
        return
    answers = send([*batch.left, *statements, *([] if clock is None else [clock])])
    del answers[: len(batch.left)]
    batch.left, batch.written = [], Written()
    now_ms = None if clock is None else int(answers.pop().value())
    for (reading, key), (_, values), answer in zip(whose, statements, answers, strict=True):
        if reading is None:
            continue
        if key[0] == "next_wake":
            batch.memory.recall("timers", "next", functools.partial(_wake_at_ms, answer))
        elif key[0] in COMMON:
            batch.memory.keep(key[0], key, answer.rows())
        else:
            reading.keep(key, values, answer)
    for reading in readings:
        if reading is not None:
            reading.now_ms = now_ms


@functools.cache
def best_after(text: str, skipped: int) -> str:
    """The query of that name, past so many. The number is put into the text: a plan for any number is taken for dear,
    and therefore PostgreSQL would plan the statement anew each time, for eight times what it costs to run it."""
    return text.replace("%(skipped)s", str(skipped))


def _wake_at_ms(answer: Answer) -> int | None:
    rows = answer.rows()
    return rows[0]["wake_at_ms"] if rows else None
