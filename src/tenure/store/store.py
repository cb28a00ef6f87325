"""What every store gives the engine: transactions with a clock, and faults with a code.

A verb's body runs inside one `Transaction`. `run` decides (it holds the write lock, and `now_ms` was read after the
lock was taken); `look` only advises. Nothing here knows which database is behind it: a store implements `run`, `look`,
`connect`, `now` and the mapping of its errors.
"""

from __future__ import annotations

from tenure.core.errors import Refused, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol, TypeVar

    from tenure.core.record import Record

    R = TypeVar("R")
    Row = dict[str, Any]
    RecoveryCallback = Callable[[str, str], None]

    class Clock(Protocol):
        """Where a store reads time; clock.py has the machine's and a manual one."""

        def wall_ms(self) -> int: ...
        def mono_ms(self) -> int: ...
        def boot_id(self) -> str: ...


class StoreFault(Exception):
    """The store could not do its work. Carries the refusal that surfaces show."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def fault(code: str, message: str, **facts: Any) -> StoreFault:
    """A fault with a code of the refusal table."""
    return StoreFault(refuse(code, message, **facts))


class Memory:
    """What a connection knows of tables that change rarely, so that each verb of a batch need not ask again.

    Kept by table. A write to a table forgets it (`forgets` says which query writes which), and so does whatever else
    may have changed it: a rollback forgets all, and the store forgets all when another connection has written.
    """

    __slots__ = ("_known", "forgets")

    def __init__(self, forgets: dict[str, str] | None = None) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self.forgets = {} if forgets is None else forgets

    def recall(self, table: str, key: str, ask: Callable[[], R]) -> R:
        """What is known under a key, asked for when it is not."""
        known = self._known.setdefault(table, {})
        if key not in known:
            known[key] = ask()
        found: R = known[key]
        return found

    def lower(self, table: str, key: str, value: int) -> None:
        """Keep a known bound true where a write can only have moved it down to this."""
        known = self._known.get(table)
        if known is not None and key in known:
            before = known[key]
            known[key] = value if before is None else min(before, value)

    def forget(self, table: str, values: dict[str, Any] | None = None) -> None:
        """Forget a table; of agents, which a fleet's polls write all the time, only the one that was written."""
        if table == "agents" and values is not None and "agent_id" in values:
            self._known.get(table, {}).pop(values["agent_id"], None)
        else:
            self._known.pop(table, None)

    def of(self, table: str) -> Iterable[Any]:
        """Everything that is known of a table."""
        known = self._known.get(table)
        return () if known is None else known.values()

    def clear(self) -> None:
        self._known.clear()


_NAMES: dict[str, list[str]] = {}


def _names(text: str, cursor: Any) -> list[str]:
    """The names of a query's columns, which its text decides once for all."""
    names = _NAMES.get(text)
    if names is None:
        names = _NAMES[text] = [column[0] for column in cursor.description]
    return names


class Transaction:
    """One verb's view of the store. `now_ms` is fixed for its whole life."""

    # Whether it pays to say what will be asked: see `ahead`.
    reads_ahead = False

    def __init__(
        self,
        cursor: Any,
        queries: dict[str, str],
        now_ms: int,
        random: Callable[[int], bytes],
        memory: Memory | None = None,
    ) -> None:
        self._cursor = cursor
        self._queries = queries
        self.now_ms = now_ms
        self.random = random
        self.memory = Memory() if memory is None else memory
        # (agent_id, task_id) of every recovery made here; told to on_recovery_callback after the commit.
        self.recovered: list[tuple[str, str]] = []
        # How many handoffs were written here.
        self.handed_over = 0
        self._settled = 0

    def one(self, query: str, **values: Any) -> Row | None:
        """The first row of a named query, as a dict, or None."""
        text = self._queries[query]
        cursor = self._cursor.execute(text, values)
        row = cursor.fetchone()
        return None if row is None else dict(zip(_names(text, cursor), row, strict=True))

    def all(self, query: str, **values: Any) -> list[Row]:
        """All rows of a named query."""
        text = self._queries[query]
        cursor = self._cursor.execute(text, values)
        names = _names(text, cursor)
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def do(self, query: str, **values: Any) -> int:
        """Run a named write; returns how many rows it changed."""
        count: int = self._cursor.execute(self._queries[query], values).rowcount
        if query in self.memory.forgets:
            self.memory.forget(self.memory.forgets[query], values)
        return count

    def put(self, query: str, record: Record) -> int:
        """Run a named write whose values are a record's."""
        return self.do(query, **record.as_dict()) if query in self.memory.forgets else self._put(query, record)

    def _put(self, query: str, record: Record) -> int:
        count: int = self._cursor.execute(self._queries[query], record.as_dict()).rowcount
        return count

    def lock(self, name: str, **values: Any) -> None:
        """Take a lock that a store with many writers at once needs. The one writer of SQLite holds them all already."""

    def ahead(self, query: str, **values: Any) -> None:
        """Say that this read will be asked soon: a store that is far away sends it along with another.

        Its answer is used once, for the same query with the same values; `now_ms=None` stands for the present. Whoever
        writes what it reads in between says `forget_ahead`.
        """

    def ahead_of_lease(self, lease_id: str) -> None:
        """Say that this lease will be asked for, and then its task, the task's leases, its holder, its settings."""

    def ahead_of_task(self, task_id: str, *, project_id: str, requires: str) -> None:
        """Say that a task will be added, and so be asked whether its name is free, and its capability set known."""

    def ahead_of_claims(self, count: int) -> None:
        """Say that the best task will be asked for so many times, and taken each time."""

    def forget_ahead(self) -> None:
        """What was read ahead may not be true any more."""

    def attempt(self, step: Callable[[], R]) -> R:
        """Run a step of the verb; if it answers with a refusal, undo what the step wrote.

        For steps whose checks need the writes before them, such as an edge that may close a cycle.
        """
        self._cursor.execute("SAVEPOINT attempt")
        try:
            answer = step()
        except Exception:
            self._undo_attempt()
            raise
        if isinstance(answer, Refused):
            self._cursor.execute("ROLLBACK TO attempt")
            self.memory.clear()
        self._cursor.execute("RELEASE attempt")
        return answer

    def _undo_attempt(self) -> None:
        self.memory.clear()
        try:
            self._cursor.execute("ROLLBACK TO attempt")
            self._cursor.execute("RELEASE attempt")
        except Exception:
            # The error closed the whole transaction (a full disk does); that error is the one to report.
            return

    def alone(self, step: Callable[[], R]) -> tuple[R | None, Exception | None]:
        """Run a step whose error must not undo what the verb did before: its own writes are undone and the error told.

        Faults of the store are not the step's, and end the verb.
        """
        self._cursor.execute("SAVEPOINT alone")
        told = len(self.recovered)
        try:
            answer = step()
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            self._cursor.execute("ROLLBACK TO alone")
            self._cursor.execute("RELEASE alone")
            self.memory.clear()
            del self.recovered[told:]
            return None, error
        self._cursor.execute("RELEASE alone")
        return answer, None

    def settle(self) -> None:
        """Keep what was written so far even if the rest of this verb fails.

        A claim first settles the recovery of what it found due: an error in its own decision must not undo that.
        """
        if self._settled:
            self._cursor.execute("RELEASE settled")
        self._cursor.execute("SAVEPOINT settled")
        self._settled = len(self.recovered) + 1

    def rescue(self) -> bool:
        """After an exception: undo what followed the last settlement. False when nothing was settled."""
        if not self._settled:
            return False
        self._cursor.execute("ROLLBACK TO settled")
        self._cursor.execute("RELEASE settled")
        self.memory.clear()
        del self.recovered[self._settled - 1 :]
        return True


class Store:
    """Base of the stores: what they share is how a committed transaction's recoveries are told."""

    # Where it is, as a person may be shown it.
    path: str
    on_recovery_callback: RecoveryCallback | None = None
    # Where events may be held back behind a transaction that is still open: how soon a stream looks again.
    held_back_s: float | None = None
    # How many handoffs this store's transactions wrote: whoever wrote one looks at what was left behind.
    handed_over: int = 0
    # The time of the last transaction, by which its answer is to be read ("expires in 10m").
    answered_at_ms: int = 0

    def run(self, body: Callable[[Transaction], R]) -> R:
        """Run a verb's body in one write transaction; commit whatever it returns, a refusal included."""
        raise NotImplementedError

    def look(self, body: Callable[[Transaction], R]) -> R:
        """Run a read in one snapshot."""
        raise NotImplementedError

    def clone(self) -> Store:
        """Another connection to the same store, for another thread."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the store holds."""
        raise NotImplementedError

    def data_version(self) -> int:
        """Changes when another connection has written; so cheap that a monitor can look often."""
        raise NotImplementedError

    def integrity_faults(self) -> list[str]:
        """What is wrong with the store; empty when it is sound."""
        raise NotImplementedError

    def schema_version(self) -> int:
        """The number of the last migration that the store has seen."""
        raise NotImplementedError

    def wall_ms(self) -> int:
        """This machine's own clock, which the store's time may be compared with."""
        raise NotImplementedError

    def adopt(self) -> None:
        """The way out of store_shared: this machine keeps the store."""
        raise NotImplementedError

    def tell(self, transaction: Transaction) -> None:
        """Call the embedding hook for every committed recovery. Its errors are its own: the recovery stands."""
        self.handed_over += transaction.handed_over
        if self.on_recovery_callback is None:
            return
        for agent_id, task_id in transaction.recovered:
            try:
                self.on_recovery_callback(agent_id, task_id)
            except Exception:
                import logging

                logging.getLogger("tenure").exception("on_recovery_callback failed for %s, %s", agent_id, task_id)
