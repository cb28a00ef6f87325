"""One verb's view of a PostgreSQL store, with few round trips.

Writes whose answer nobody reads wait in a list and travel with the next read, or with COMMIT, in one pipeline: the
order of statements is the verb's own, only the waiting for each answer is gone.

`now_ms` is the database's `clock_timestamp()`, read once. It travels with every read that may wait for a lock until the
verb first looks at it: what a verb decides on is locked before the time it is judged by. A manual clock takes its place
in tests.

Where verbs share a transaction (PostgresStore.run_many), each has a view of its own, with its own time. The writes that
one leaves waiting travel in front of the next one's first statement. What it remembers of tables that change rarely is
the next one's too: all of them were waiting before the first began, so whatever was read since is news to none.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from tenure.core.model import UNENDED
from tenure.store.postgres_batch import SHARED, agent_and_project, remember_granted
from tenure.store.postgres_scout import ASKED, LOCKS, Asked, Reading
from tenure.store.store import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.core.record import Record
    from tenure.store.postgres_batch import Batch, SharedMemory
    from tenure.store.postgres_scout import Key
    from tenure.store.postgres_wire import Answer, Statement, Wire
    from tenure.store.store import Clock, Row

NOW = "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"

# Writes whose row count no verb reads.
_DEFERRED = """
    add_event add_handoff add_lease add_link add_message add_project add_requirement_set add_seal bury close_handoffs
    count count_unmet delete_task drop_timer edit_task end_link end_links forget_requirement_sets gate_advance
    lock_dependants lose_lease mark_read move_lease promote pulse_link pulse_server rearm_lease remember remove_edge
    record_receipt reserve_task return_lease save_agent save_foreign_task save_progress save_task see_agent set_meta
    set_project_settings set_timer start_server told_lost uncount_recovery withdraw_handoff
"""
DEFERRED = frozenset(_DEFERRED.split())


# What is read with a lease and its task, in the same round trip, because a holder's verb asks for it next; see
# `ahead_of_lease`.
OF_LEASE = ("agent_of_lease", "settings_of_lease")
# Columns that say whether a task has any of something, and the queries that need not be asked where it has none.
NONE_OF = {
    "read_up_to": "has_thread",
    "thread": "has_thread",
    "open_handoffs": "has_handoffs",
    "close_handoffs": "has_handoffs",
    "unlock_dependants": "has_dependants",
}
HINTS = frozenset(NONE_OF.values())
# The writes after which that may not be so any more.
MAKES = {
    "add_message": "has_thread",
    "add_handoff": "has_handoffs",
    "add_edge": "has_dependants",
    "resolve_missing": "has_dependants",
}
# A statement that changes nothing begins with one of these.
READS = ("SELECT", "BEGIN", "WITH held AS MATERIALIZED")

# Writes that must change one row: the database itself checks that, so that nobody waits for the count.
EXPECTING_ONE = ("extend_lease", "end_lease", "accept_lease")


def expecting_one(text: str) -> str:
    """A write that fails, with everything after it, unless it changes a row."""
    return f"WITH changed AS ({text} RETURNING 1) SELECT 1 / coalesce((SELECT 1 FROM changed), 0)"


# The timer of a lease is set right after the lease is added, and dropped right after it has ended: one statement each.
PAIRS = {"set_timer": ("add_lease", "add_lease_and_timer"), "drop_timer": ("end_lease", "end_lease_and_timer")}


def with_timer(text: str, timer: str) -> str:
    """A write to a lease that sets or drops its timer too."""
    of_lease = timer.replace("%(kind)s", "'lease'").replace("%(ref)s", "%(lease_id)s")
    return (
        f"WITH timed AS ({of_lease}), {text[5:]}" if text.startswith("WITH ") else f"WITH timed AS ({of_lease}) {text}"
    )


class PostgresTransaction(Transaction):
    """A transaction that is begun with its first statement."""

    reads_ahead = True

    def __init__(
        self,
        wire: Wire,
        queries: dict[str, str],
        clock: Clock | None,
        random: Callable[[int], bytes],
        batch: Batch,
        *,
        reading: Reading | None = None,
        scouting: bool = False,
    ) -> None:
        """`reading` is what was read for this verb before its turn; who is `scouting` only finds out what that is."""
        # Savepoints of the base class go through `execute` below.
        self._cursor = self
        self._queries = queries
        self.reading = reading
        self._scouting = scouting
        self._drawn: list[bytes] = []
        self.random = self._recorded(random) if scouting else self._replayed(random, reading)
        # What is remembered ends with the transaction: other nodes write too.
        self.memory: SharedMemory = batch.memory
        self._batch = batch
        self.recovered = []
        self.handed_over = 0
        self._settled = 0
        self._wire = wire
        self._clock = clock
        self._now_ms: int | None = None
        self._read_ms: int | None = None
        self._pending: list[Statement] = []
        # Reads that were announced: those not sent yet, and the rows of those that were.
        self._announced: dict[tuple[Any, ...], Statement] = {}
        self._known: dict[tuple[Any, ...], list[Row]] = {}
        # Of a claim that wants many tasks: how many more, those that were found and not asked for yet, and whether
        # there are no others.
        self._wants_many = False
        self._wanted = 1
        self._found: list[Row] = []
        self._found_all = False
        # Of a task that is about to be added: its key, and its name if no edge waits for that.
        self._new_key: int | None = None
        self._nobody_waits_for: str | None = None
        # Tasks that are known to have none of something.
        self._without: dict[str, set[int]] = {hint: set() for hint in HINTS}

    def _recorded(self, random: Callable[[int], bytes]) -> Callable[[int], bytes]:
        def draw(count: int) -> bytes:
            self._drawn.append(random(count))
            return self._drawn[-1]

        return draw

    @staticmethod
    def _replayed(random: Callable[[int], bytes], reading: Reading | None) -> Callable[[int], bytes]:
        if reading is None or not reading.drawn:
            return random
        drawn = iter(reading.drawn)
        return lambda count: next(drawn, b"") or random(count)

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        """The store's time, fixed when it is first asked for."""
        if self._now_ms is None:
            if self._clock is not None:
                self._now_ms = self._clock.wall_ms()
            else:
                self._now_ms = (
                    self._read_ms if self._read_ms is not None else int(self._ask(("now",), NOW, None).value())
                )
        return self._now_ms

    def ahead(self, query: str, **values: Any) -> None:
        key = _key(query, values)
        if key in self._known or self._nothing(query, values):
            return
        if query in SHARED:
            if self.memory.rows(query, key) is not None:
                return
        elif query == "next_wake" and self.memory.knows("timers", "next"):
            return
        text, values = self._asked(query, values)
        if "now_ms" in values:
            if self._clock is not None or self._now_ms is not None:
                values["now_ms"] = self.now_ms
            else:
                text = text.replace("%(now_ms)s", f"({NOW})")
        self._announced[key] = (text, values)

    def _asked(self, query: str, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """A query as it is asked: the text, and the values of its parameters."""
        if query == "best":
            only = _only_set(values["sets"])
            if only is not None and self._wanted > 1:
                return best_of_some(self._queries["best_of_some"], self._wanted), {**values, "requires": only}
            if only is not None:
                return self._queries["best_of_one"], {**values, "requires": only}
        return self._queries[query], values

    def ahead_of_lease(self, lease_id: str) -> None:
        values = {"lease_id": lease_id}
        self._announced[_key("lease_by_id", values)] = (self._queries["lease_with_hints"], values)
        granted = agent_and_project(lease_id)
        if granted is None:
            for name in OF_LEASE:
                self._announced[name,] = (self._queries[name], values)
        else:
            self.ahead("agent_named", agent_id=granted[0])
            self.ahead("settings_of", project_id=granted[1])

    def ahead_of_task(self, task_id: str, *, project_id: str, requires: str) -> None:
        values = {"task_id": task_id, "project_id": project_id, "requires": requires}
        key, statement = ("about_new_task",), (self._queries["about_new_task"], values)
        if self.reading is not None and self.reading.announced.get(key) == statement:
            self._file_new(values, self._taken_up(self.reading).answers[key].rows()[0])
        else:
            self._announced[key] = statement

    def ahead_of_claims(self, count: int) -> None:
        if self._scouting:
            # It would keep from those after it what they are shown.
            raise Asked
        self._wants_many, self._wanted = True, count

    def forget_ahead(self) -> None:
        self._announced.clear()
        self._known.clear()
        self._wanted += len(self._found)
        self._found.clear()
        self._found_all = False
        self._new_key = self._nobody_waits_for = None
        for tasks in self._without.values():
            tasks.clear()

    def _nothing(self, query: str, values: Mapping[str, Any]) -> bool:
        """Whether an earlier row said that this read finds nothing."""
        return query in NONE_OF and values["task_key"] in self._without[NONE_OF[query]]

    def _recall(self, query: str, values: Mapping[str, Any]) -> list[Row] | None:
        """The rows of a read that travelled ahead."""
        if self._nothing(query, values):
            return []
        if query in SHARED:
            key = _key(query, values)
            self._announced.pop(key, None)
            return self.memory.rows(query, key)
        if not self._announced and not self._known:
            return None
        key = _key(query, values)
        self._announced.pop(key, None)
        return self._known.pop(key, None)

    def _file_new(self, values: Mapping[str, Any], row: Row) -> None:
        """Keep what one row tells of a task that is about to be added under the names by which it will be asked for."""
        named = {"task_id": values["task_id"], "project_id": values["project_id"]}
        wanted = {"project_id": values["project_id"], "requires": values["requires"]}
        if not row["named"]:
            self._known[_key("tasks_named", named)] = []
        if row["known_set"]:
            self._known[_key("requirement_set", wanted)] = [{"requires": values["requires"]}]
        self._known[_key("grave", named)] = [{"last_token": row["last_token"]}]
        self._nobody_waits_for = None if row["waited_for"] else values["task_id"]
        self._new_key = row["key"]

    def _file(self, name: str, rows: list[Row]) -> None:
        """Keep what came with a lease under the names by which it will be asked for."""
        for row in rows:
            if name == "agent_of_lease":
                self._known[_key("agent_named", {"agent_id": row["agent_id"]})] = rows
            else:
                self.memory.keep("settings_of", _key("settings_of", {"project_id": row.pop("project_id")}), rows)

    def _lease(self, key: tuple[Any, ...], values: Mapping[str, Any]) -> Row | None:
        """A lease that was announced. Its task is asked for, and locked, in front of it."""
        tasks = self._ask(_key("task_of_lease", values), self._queries["task_of_lease"], values).rows()
        leases = self._heed(self._known.pop(key), "task_key")
        # A lease that came between the two is one that did not exist: its task is not locked.
        if not tasks or not leases:
            return None
        (task,), (lease,) = tasks, leases
        self._known[_key("task_by_key", {"key": task["key"]})] = tasks
        # Of a task with one slot, an unended lease is the only one; the task is locked, and no other can come.
        if task["slots"] == 1 and lease["state"] in UNENDED:
            self._known[_key("unended_of_task", {"task_key": task["key"]})] = [dict(lease)]
        return lease

    def _heed(self, rows: list[Row], key: str = "key") -> list[Row]:
        """Take the hints out of a row: they are ours, about the task that `key` names."""
        for row in rows:
            for hint in HINTS & row.keys():
                if not row.pop(hint):
                    self._without[hint].add(row[key])
        return rows

    def one(self, query: str, **values: Any) -> Row | None:
        if query == "add_task":
            key, self._new_key = self._new_key, None
            if key is not None:
                self._note(query, values)
                self._pending.append((self._queries["add_task_keyed"], {**values, "key": key}))
                return {"key": key}
        if query == "lease_by_id" and (named := _key(query, values)) in self._announced:
            return self._lease(named, values)
        if query == "best" and self._wants_many:
            return self._best(values)
        known = self._recall(query, values)
        if known is not None:
            return known[0] if known else None
        rows = self._ask(_key(query, values), *self._asked(query, values)).rows()
        if query == "best":
            self._heed(rows)
        elif query in SHARED:
            self.memory.keep(query, _key(query, values), rows)
        return rows[0] if rows else None

    def _best(self, values: dict[str, Any]) -> Row | None:
        """The next task for a claim that wants many: they are found together, as far as they can be."""
        if not self._found and not self._found_all:
            asked = _at_once(self._wanted)
            known = self._recall("best", values)
            if known is None:
                known = self._heed(self._ask(_key("best", values), *self._asked("best", values)).rows())
            self._found = list(known)
            self._wanted -= len(known)
            # Fewer than were asked for are all that there are, but what is kept for an agent comes one by one, and so
            # does work of many capability sets.
            one_by_one = _only_set(values["sets"]) is None or any(row["assigned_to"] is not None for row in known)
            self._found_all = not known or (len(known) < asked and not one_by_one)
        return self._found.pop(0) if self._found else None

    def all(self, query: str, **values: Any) -> list[Row]:
        known = self._recall(query, values)
        if known is not None:
            return known
        key = _key(query, values)
        rows = self._ask(key, self._queries[query], values).rows()
        if query in SHARED:
            self.memory.keep(query, key, rows)
        return rows

    def do(self, query: str, **values: Any) -> int:
        return self._write(query, values)

    def _write(self, query: str, values: dict[str, Any]) -> int:
        if query in self.memory.forgets:
            table = self.memory.forgets[query]
            self.memory.forget(table, values)
            if table == "agents":
                # It may have been read for this verb, and not asked for, because an earlier one knew it.
                self._known.pop(_key("agent_named", {"agent_id": values["agent_id"]}), None)
        if query in MAKES:
            self._without[MAKES[query]].clear()
        if query == "resolve_missing" and values["task_id"] == self._nobody_waits_for:
            return 0
        if self._nothing(query, values):
            return 0
        self._note(query, values)
        if query == "add_lease":
            remember_granted(values)
        if query in PAIRS and self._paired(query, values):
            if self._batch.eager and query == "set_timer":
                self._push()
            return 1
        if query in DEFERRED or query in EXPECTING_ONE:
            self._pending.append((self._queries[query], values))
            return 1
        return self._ask(_key(query, values), self._queries[query], values).count

    def _note(self, query: str, values: Mapping[str, Any]) -> None:
        self._batch.wrote = True
        if self._batch.written is not None:
            self._batch.written.note(query, values)

    def _paired(self, query: str, values: Mapping[str, Any]) -> bool:
        """Let a lease's timer go with the write to the lease just before it."""
        if not self._pending or values["kind"] != "lease":
            return False
        first, together = PAIRS[query]
        text, written = self._pending[-1]
        if written is None or text is not self._queries[first] or written["lease_id"] != values["ref"]:
            return False
        if values.get("wake_at_ms", 0) != (written["wake_at_ms"] if query == "set_timer" else 0):
            return False
        self._pending[-1] = (self._queries[together], written)
        return True

    def _push(self) -> None:
        """Let the server begin with what waits, unless an attempt is in it: one that is refused was never sent."""
        if any(text.startswith("SAVEPOINT") for text, _ in self._pending):
            return
        pushed, self._pending = [*self._batch.take(), *self._pending], []
        self._batch.eager = False
        self._wire.push(pushed)

    def put(self, query: str, record: Record) -> int:
        return self._write(query, record.as_dict())

    def lock(self, name: str, **values: Any) -> None:
        """Queue a lock. It is waited for with the next read, which is after it in order."""
        self._pending.append((self._queries["lock_" + name], values))

    def execute(self, text: str) -> None:
        """Queue a statement that has no answer: a savepoint's.

        A savepoint that was not sent yet needs none of the server's: what came after it is still here to be dropped.
        """
        verb, _, name = text.rpartition(" ")
        at = next((n for n in reversed(range(len(self._pending))) if self._pending[n][0] == f"SAVEPOINT {name}"), None)
        if at is not None and verb == "RELEASE":
            del self._pending[at]
        elif at is not None and verb == "ROLLBACK TO":
            del self._pending[at + 1 :]
        else:
            self._pending.append((text, None))

    def leave(self) -> None:
        """End this verb's view: what it has not sent yet goes to the transaction's next, or to its end."""
        if self._settled:
            self.execute("RELEASE settled")
        self._batch.left += self._pending
        self._pending = []

    def finish(self, *last: Statement) -> None:
        """Send what waits, and what ends the transaction, in one round trip."""
        pending, self._pending = [*self._batch.take(), *self._pending, *last], []
        _send(self._wire, pending)

    def _ask(self, key: Key, text: str, values: Mapping[str, Any] | None) -> Answer:
        """The answer to one statement: read beforehand, or sent with all that waits."""
        announced, self._announced = self._announced, {}
        if self._scouting:
            self.reading = self._scouted(key, (text, values), announced)
            raise Asked
        answer, answers = self._read(key, announced) or self._sent(text, values, announced)
        for name, about in zip(announced, answers, strict=True):
            if name[0] in OF_LEASE:
                self._file(name[0], about.rows())
            elif name[0] == "about_new_task":
                self._file_new(announced[name][1] or {}, about.rows()[0])
            elif name[0] in SHARED:
                self.memory.keep(name[0], name, about.rows())
            else:
                self._known[name] = self._heed(about.rows()) if name[0] == "best" else about.rows()
        return answer

    def _sent(
        self, text: str, values: Mapping[str, Any] | None, announced: dict[Key, Statement]
    ) -> tuple[Answer, list[Answer]]:
        """Send what waits, one statement more, and what was announced; the answers to that statement and to those."""
        held_back = self._held_back(text)
        pending = [statement for statement in self._pending if statement not in held_back]
        asked: list[Statement] = [*self._batch.take(), *pending, (text, values), *announced.values()]
        self._pending = held_back
        if not text.startswith(READS):
            self._batch.wrote = True
            if self._batch.written is not None:
                self._batch.written.unknown = True
        timed = self._now_ms is None and self._clock is None and text != NOW
        if timed:
            asked.append((NOW, None))
        answers = _send(self._wire, asked)
        if timed:
            self._read_ms = int(answers.pop().value())
        first = len(answers) - len(announced)
        return answers[first - 1], answers[first:]

    def _read(self, key: Key, announced: dict[Key, Statement]) -> tuple[Answer, list[Answer]] | None:
        """The same answers, where they were read for this verb before its turn."""
        reading, self.reading = self.reading, None
        if reading is None or any(name not in reading.answers for name in (key, *announced)):
            return None
        if any(reading.announced[name] != statement for name, statement in announced.items()):
            return None
        answers = self._taken_up(reading).answers
        return answers[key], [answers[name] for name in announced]

    def _taken_up(self, reading: Reading) -> Reading:
        """Use what was read beforehand: its locks are held, and its time is after them."""
        self.reading = None
        self._pending = [statement for statement in self._pending if statement not in reading.locks]
        if self._now_ms is None:
            self._read_ms = reading.now_ms
        return reading

    def _scouted(self, key: Key, statement: Statement, announced: dict[Key, Statement]) -> Reading | None:
        """What this scout would ask, if that may be asked before its turn: nothing was written, and it is known what
        changes the answers."""
        locks = [self._queries[name] for name in LOCKS]
        pending = [waiting for waiting in self._pending if waiting[0] != "SAVEPOINT attempt"]
        if key[0] not in ASKED or any(name[0] not in ASKED for name in announced):
            return None
        if any(text not in locks for text, _ in pending):
            return None
        reading = Reading(key, statement, announced, pending)
        reading.drawn = self._drawn
        return reading

    def _held_back(self, text: str) -> list[Statement]:
        """The savepoint of an attempt that has not written yet, where nothing is sent but reads."""
        if not text.startswith(READS):
            return []
        savepoints = [statement for statement in self._pending if statement[0] == "SAVEPOINT attempt"]
        others = (text for text, _ in self._pending if text != "SAVEPOINT attempt")
        return savepoints if all(text.startswith(READS) for text in others) else []


def _at_once(wanted: int) -> int:
    """How many of so many tasks are found at once: a power of two, so that there are few statements to prepare."""
    return 1 << (max(wanted, 1).bit_length() - 1)


@functools.cache
def best_of_some(text: str, wanted: int) -> str:
    """The query of that name, for as many as are found at once. As in `best_after`, the number is in the text."""
    return text.replace("%(wanted)s", str(_at_once(wanted)))


@functools.lru_cache(maxsize=1_000)
def _only_set(sets: str) -> str | None:
    """The one capability set of a JSON list, or None where there are more or none."""
    found = json.loads(sets)
    return found[0] if len(found) == 1 else None


def _key(query: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a read is known by. The time is left out: within a transaction there is one."""
    if "now_ms" in values:
        return (query, *(item for item in values.items() if item[0] != "now_ms"))
    return (query, *values.items())


def _send(wire: Wire, statements: Sequence[Statement]) -> list[Answer]:
    """One round trip."""
    return wire.exchange(statements)
