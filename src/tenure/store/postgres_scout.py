"""What the verbs of a batch ask first, asked for all of them before their turns.

A verb says early what it will read (`Transaction.ahead`), and then reads. Before a batch is run, each of its bodies is
run up to there, and no further: a scout's first question ends it. Bodies are made to be run again, so nothing is lost.
The questions of some scouts travel together, with the locks that they take, and after them one look at the clock; then
those of the next, without waiting for the answers. When the bodies are run, each finds its answers waiting or on their
way, and n verbs cost two round trips instead of n + 1. The first part is small and each is twice the one before it: the
server has soon something to do, and is at it while further bodies are scouted or the first ones run.

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

from tenure.store.postgres_batch import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tenure.store.postgres_batch import Batch
    from tenure.store.postgres_transaction import PostgresTransaction
    from tenure.store.postgres_wire import Answer, Part, Statement
    from tenure.store.store import Row

    Key = tuple[Any, ...]
    Values = Mapping[str, Any] | None

# The questions that may be asked for a verb before those in front of it have been run. For each it is known below by
# which writes its answer changes.
_ASKED = """
    agent_named next_wake best settings_of requirement_sets about_new_task
    lease_by_id task_of_lease agent_of_lease settings_of_lease
"""
ASKED = frozenset(_ASKED.split())
# Asked once for all the verbs of a batch, and of which table.
COMMON = {"next_wake": "timers", **SHARED}
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


class Scouts:
    """The scouts of one batch: what its bodies ask first, asked for in parts, each of which ends with a look at the
    clock. While the server answers one part, the next is found out, or the bodies of the one before are run."""

    def __init__(
        self,
        batch: Batch,
        *,
        scout: Callable[[], PostgresTransaction],
        queries: Mapping[str, str],
        push: Callable[[Sequence[Statement]], Part],
        answers: Callable[[Part], list[Answer]],
        clock: Statement | None,
    ) -> None:
        self._batch = batch
        self._scout = scout
        self._queries = queries
        self._push = push
        self._answers = answers
        self._clock = clock
        # What is asked, and locked, once for all.
        self._common: set[Key] = set()
        self._locks: list[Statement] = []
        # The claims so far in each project, and the one capability set that they are for.
        self._claims: dict[str, list[Reading]] = {}
        self._sets: dict[str, str | None] = {}

    def readings(self, bodies: Sequence[Callable[[Any], Any]], at_once: int) -> Iterator[Reading | None]:
        """For each body, in turn, what was read for it; None for one that is to ask itself."""
        parts = []
        first = 0
        while first < len(bodies):
            found = [self._compatible(self._reading(body)) for body in bodies[first : first + at_once]]
            parts.append((found, self._ask(found)))
            first, at_once = first + at_once, at_once * 2
        for found, asked in parts:
            if asked is not None:
                self._take(found, *asked)
            yield from found

    def _reading(self, body: Callable[[Any], Any]) -> Reading | None:
        """What a body asks first; None for one that asks nothing, or nothing that can be asked beforehand."""
        transaction = self._scout()
        try:
            body(transaction)
        except Asked:
            return transaction.reading
        except Exception:
            # It will be raised again, in the body's turn.
            return None
        return None

    def _compatible(self, reading: Reading | None) -> Reading | None:
        """A reading, unless it cannot be asked for with the others: of claims in one project, those for the same one
        capability set can."""
        if reading is None:
            return None
        values = next((values for key, (_, values) in reading.announced.items() if key[0] == "best"), None)
        if values is None:
            return reading
        project_id, requires = values["project_id"], values.get("requires")
        earlier = self._claims.setdefault(project_id, [])
        if earlier and (requires is None or requires != self._sets[project_id]):
            return None
        self._sets[project_id] = requires
        reading.before = list(earlier)
        earlier.append(reading)
        return reading

    def _ask(self, readings: Sequence[Reading | None]) -> tuple[Part, list[tuple[Reading, Key, Values] | None]] | None:
        """Send the questions of some bodies, with the locks that they take, and then the one for the time."""
        statements: list[Statement] = []
        whose: list[tuple[Reading, Key, Values] | None] = []
        for reading in readings:
            if reading is None:
                continue
            for lock in reading.locks:
                if lock not in self._locks:
                    self._locks.append(lock)
                    statements.append(lock)
                    whose.append(None)
            for key, (text, values) in ((reading.key, reading.statement), *reading.announced.items()):
                if key[0] in COMMON:
                    if key in self._common:
                        continue
                    self._common.add(key)
                elif key[0] == "best" and reading.before:
                    text = best_after(self._queries["best_after"], len(reading.before))
                statements.append((text, values))
                whose.append((reading, key, values))
        if not whose:
            return None
        batch = self._batch
        before, batch.written = batch.take(), batch.written or Written()
        part = self._push([*before, *statements, *([] if self._clock is None else [self._clock])])
        return part, [*([None] * len(before)), *whose]

    def _take(
        self, readings: Sequence[Reading | None], part: Part, whose: list[tuple[Reading, Key, Values] | None]
    ) -> None:
        """Wait for the answers, and give each to who asked."""
        answers, memory = self._answers(part), self._batch.memory
        now_ms = None if self._clock is None else int(answers.pop().value())
        for asked, answer in zip(whose, answers, strict=True):
            if asked is None:
                continue
            reading, key, values = asked
            table = COMMON.get(key[0])
            if table is None:
                reading.keep(key, values, answer)
            elif memory.has_changed(table):
                # By a verb of an earlier part.
                continue
            elif table == "timers":
                memory.recall("timers", "next", functools.partial(_wake_at_ms, answer))
            elif memory.rows(key[0], key) is None:
                memory.keep(key[0], key, answer.rows())
        for scouted in readings:
            if scouted is not None:
                scouted.now_ms = now_ms


@functools.cache
def best_after(text: str, skipped: int) -> str:
    """The query of that name, past so many. The number is put into the text: a plan for any number is taken for dear,
    and therefore PostgreSQL would plan the statement anew each time, for eight times what it costs to run it."""
    return text.replace("%(skipped)s", str(skipped))


def _wake_at_ms(answer: Answer) -> int | None:
    rows = answer.rows()
    return rows[0]["wake_at_ms"] if rows else None
