"""One verb's view of the embedded store inside a batch of a server's runner.

A verb of a batch costs mostly what is done for each of its statements, so that here less is done for each: values are
bound by their place; rows that nobody reads before the batch is committed wait and are written together; and the tasks
that are ready are read a few at a time, because the verbs of one batch are to a large part polls that each take the
next one.

None of this changes what a verb sees. A statement that reads or writes a table is preceded by what waits for that
table, and a write to a task that is or becomes ready ends the list that was read ahead. A write that fails after it has
waited fails the batch, which is then run again with plain transactions, where it fails in the verb that made it.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tenure.store.store import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.core.record import Record
    from tenure.store.store import Memory, Row

# The writes that wait, and the table each of them writes. Nobody reads how many rows they changed.
WAITING = {"add_lease": "leases", "set_timer": "timers", "add_event": "events", "reserve_task": "tasks"}
# Writes of a whole task's state: its record tells whether the task is ready afterwards.
STATES = frozenset(("save_task", "reserve_task", "save_progress"))
# How many ready tasks are read ahead, at least and at most: twice as many each time, and few again after a write that
# ended the list.
AHEAD_LEAST, AHEAD_MOST = 2, 64

_TABLES = frozenset(WAITING.values())
_REACHED = _TABLES - {"events"}
_PARAMETER = re.compile(r"(?<![\w:]):([a-z]\w*)")
_WORD = re.compile(r"\w+")
_WRITES_TASKS = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM) tasks\b")


class Statement:
    """A named query as SQLite takes it fastest: parameters by their place, and what it has to wait for."""

    __slots__ = ("changes_tasks", "columns", "meets", "names", "text", "values")

    def __init__(self, name: str, text: str) -> None:
        names = list(dict.fromkeys(_PARAMETER.findall(text)))
        self.names = names
        self.text = _PARAMETER.sub(lambda found: f"?{names.index(found[1]) + 1}", text)
        self.values: Callable[[Mapping[str, Any]], Sequence[Any]]
        if len(names) > 1:
            self.values = itemgetter(*names)
        else:
            self.values = lambda values: [values[name] for name in names]
        self.columns: list[str] | None = None
        reads = text.startswith(("SELECT", "WITH")) and "RETURNING" not in text
        mentioned = _TABLES & set(_WORD.findall(text))
        # A write may reach further than its text says, to the leases of a task that is deleted; not to the events.
        self.meets: frozenset[str] = mentioned if reads or not mentioned or name in WAITING else mentioned | _REACHED
        self.changes_tasks = _WRITES_TASKS.search(text) is not None


class Batching:
    """What the batches of a connection share: the statements, the writes that wait, and how far to read ahead."""

    def __init__(self, queries: dict[str, str], memory: Memory) -> None:
        self.cursor: Any = None
        self.memory = memory
        self.ahead = AHEAD_LEAST
        self._queries = queries
        self._statements: dict[str, Statement] = {}
        self._waiting: dict[str, list[Sequence[Any]]] = {}

    def transaction(self, now_ms: int, random: Callable[[int], bytes]) -> BatchTransaction:
        """The next verb's transaction."""
        return BatchTransaction(self, now_ms, random)

    def statement(self, query: str) -> Statement:
        statement = self._statements.get(query)
        if statement is None:
            statement = self._statements[query] = Statement(query, self._queries[query])
        return statement

    def wait(self, query: str, values: Sequence[Any]) -> None:
        """Keep a row until something meets its table."""
        waiting = self._waiting.get(query)
        if waiting is None:
            self._waiting[query] = [values]
        else:
            waiting.append(values)

    def write_what_meets(self, tables: frozenset[str]) -> None:
        """Write what waits for these tables."""
        if self._waiting:
            for query in [query for query in self._waiting if WAITING[query] in tables]:
                rows = self._waiting.pop(query)
                text = self._statements[query].text
                if len(rows) == 1:
                    self.cursor.execute(text, rows[0])
                else:
                    self.cursor.executemany(text, rows)

    def write_all(self) -> None:
        """Write everything that waits."""
        self.write_what_meets(_TABLES)

    def drop(self) -> None:
        """Forget what waits: its transaction was undone."""
        self._waiting.clear()

    # -- the ready list ---------------------------------------------------------------------------------------------

    def best(self, values: dict[str, Any]) -> Row | None:
        """The answer to the query `best`, from the list that was read ahead where that is all it needs."""
        sets: str = values["sets"]
        requires, project_id = sets[2:-2], values["project_id"]
        if sets.count('"') != 2 or self.memory.recall("kept", project_id, lambda: self._any_kept(project_id)):
            return self.one("best", values)
        ready: list[Row] = self.memory.recall("ready", f"{project_id} {requires}", list)
        if not ready:
            found = self.all("ready_ahead", {"project_id": project_id, "requires": requires, "limit": self.ahead})
            found.reverse()
            ready.extend(found)
            self.ahead = min(2 * self.ahead, AHEAD_MOST)
        if not ready:
            return None
        # Whether an agent may have a second slot of a task depends on what it holds.
        return ready[-1] if ready[-1]["slots"] == 1 else self.one("best", values)

    def _any_kept(self, project_id: str) -> bool:
        return bool(self.all("any_kept", {"project_id": project_id}))

    def task_changed(self, query: str, task: Mapping[str, Any]) -> None:
        """Keep the list true after a write to the tasks."""
        if query not in STATES or (task["status"] == "todo" and task["owner"] == "agent"):
            self.memory.forget("kept")
        if query in STATES:
            is_ready = task["open_slots"] > 0 and not task["unmet"] and not task["waiting"]
            listed = self._take_out(task["key"])
            if not is_ready or (query == "save_progress" and not listed):
                return
        self.memory.forget("ready")
        self.ahead = AHEAD_LEAST

    def _take_out(self, key: int) -> bool:
        for ready in self.memory.of("ready"):
            if ready and ready[-1]["key"] == key:
                ready.pop()
                return True
            for place, row in enumerate(ready):
                if row["key"] == key:
                    del ready[place]
                    return True
        return False

    # -- statements -------------------------------------------------------------------------------------------------

    def one(self, query: str, values: Mapping[str, Any]) -> Row | None:
        statement = self.statement(query)
        cursor = self._execute(statement, statement.values(values))
        row = cursor.fetchone()
        if row is None:
            return None
        if statement.changes_tasks:
            self.task_changed(query, values)
        return dict(zip(_columns(statement, cursor), row, strict=True))

    def all(self, query: str, values: Mapping[str, Any]) -> list[Row]:
        statement = self.statement(query)
        cursor = self._execute(statement, statement.values(values))
        found = cursor.fetchall()
        if found and statement.changes_tasks:
            self.task_changed(query, values)
        columns = _columns(statement, cursor)
        return [dict(zip(columns, row, strict=True)) for row in found]

    def do(self, query: str, values: Mapping[str, Any]) -> int:
        statement = self.statement(query)
        if query in WAITING:
            self.wait(query, statement.values(values))
            count = 1
        else:
            count = self._execute(statement, statement.values(values)).rowcount
        if count and statement.changes_tasks:
            self.task_changed(query, values)
        return count

    def _execute(self, statement: Statement, values: Sequence[Any]) -> Any:
        if self._waiting and statement.meets:
            self.write_what_meets(statement.meets)
        return self.cursor.execute(statement.text, values)

    def execute(self, text: str) -> Any:
        """A statement of a savepoint: what was written before it must be before it in the store too."""
        self.write_all()
        return self.cursor.execute(text)


def _columns(statement: Statement, cursor: Any) -> list[str]:
    if statement.columns is None:
        statement.columns = [column[0] for column in cursor.description]
    return statement.columns


class BatchTransaction(Transaction):
    """A transaction of a batch."""

    def __init__(self, batch: Batching, now_ms: int, random: Callable[[int], bytes]) -> None:
        # Savepoints of the base class go through the batch.
        super().__init__(batch, {}, now_ms, random, batch.memory)
        self._batch = batch

    def one(self, query: str, **values: Any) -> Row | None:
        return self._batch.best(values) if query == "best" else self._batch.one(query, values)

    def all(self, query: str, **values: Any) -> list[Row]:
        return self._batch.all(query, values)

    def do(self, query: str, **values: Any) -> int:
        count = self._batch.do(query, values)
        if query in self.memory.forgets:
            self.memory.forget(self.memory.forgets[query], values)
        return count

    def put(self, query: str, record: Record) -> int:
        values = record.__dict__
        if len(values) < len(record._template):
            values = record.as_dict()
        count = self._batch.do(query, values)
        if query in self.memory.forgets:
            self.memory.forget(self.memory.forgets[query], values)
        return count
