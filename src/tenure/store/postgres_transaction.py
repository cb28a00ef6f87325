"""One verb's view of a PostgreSQL store, with few round trips.

Writes whose answer nobody reads wait in a list and travel with the next read, or with COMMIT, in one pipeline: the
order of statements is the verb's own, only the waiting for each answer is gone.

`now_ms` is the database's `clock_timestamp()`, read once. It travels with every read that may wait for a lock until the
verb first looks at it: what a verb decides on is locked before the time it is judged by. A manual clock takes its place
in tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.store.queries import FORGETS
from tenure.store.store import Memory, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tenure.core.record import Record
    from tenure.store.postgres_wire import Answer, Statement, Wire
    from tenure.store.store import Clock, Row

NOW = "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"

# Writes whose row count no verb reads.
_DEFERRED = """
    add_event add_handoff add_lease add_link add_message add_project add_requirement_set add_seal bury close_handoffs
    count count_unmet delete_task drop_timer edit_task end_link end_links forget_requirement_sets gate_advance
    lock_dependants lose_lease mark_read move_lease promote pulse_link pulse_server rearm_lease remember remove_edge
    reserve_task return_lease save_agent save_foreign_task save_progress save_task see_agent set_meta
    set_project_settings set_timer start_server told_lost uncount_recovery withdraw_handoff
"""
DEFERRED = frozenset(_DEFERRED.split())


# Writes that must change one row: the database itself checks that, so that nobody waits for the count.
EXPECTING_ONE = ("extend_lease", "end_lease", "accept_lease")


def expecting_one(text: str) -> str:
    """A write that fails, with everything after it, unless it changes a row."""
    return f"WITH changed AS ({text} RETURNING 1) SELECT 1 / count(*) FROM changed"


class PostgresTransaction(Transaction):
    """A transaction that is begun with its first statement."""

    def __init__(
        self,
        wire: Wire,
        queries: dict[str, str],
        clock: Clock | None,
        random: Callable[[int], bytes],
        begin: str,
    ) -> None:
        # Savepoints of the base class go through `execute` below.
        self._cursor = self
        self._queries = queries
        self.random = random
        # What a verb remembers ends with it: other nodes write too.
        self.memory = Memory(FORGETS)
        self.recovered = []
        self.handed_over = 0
        self._settled = 0
        self._wire = wire
        self._clock = clock
        self._now_ms: int | None = None
        self._read_ms: int | None = None
        self._pending: list[Statement] = [(begin, None)]
        self.wrote = False
        # Reads that were announced: those not sent yet, and the rows of those that were.
        self._announced: dict[tuple[Any, ...], Statement] = {}
        self._known: dict[tuple[Any, ...], list[Row]] = {}

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        """The store's time, fixed when it is first asked for."""
        if self._now_ms is None:
            if self._clock is not None:
                self._now_ms = self._clock.wall_ms()
            else:
                self._now_ms = self._read_ms if self._read_ms is not None else int(self._ask(NOW, None).value())
        return self._now_ms

    def ahead(self, query: str, **values: Any) -> None:
        text = self._queries[query]
        key = _key(query, values)
        if "now_ms" in values:
            if self._clock is not None or self._now_ms is not None:
                values["now_ms"] = self.now_ms
            else:
                text = text.replace("%(now_ms)s", f"({NOW})")
        self._announced[key] = (text, values)

    def forget_ahead(self) -> None:
        self._announced.clear()
        self._known.clear()

    def _recall(self, query: str, values: Mapping[str, Any]) -> list[Row] | None:
        """The rows of a read that travelled ahead."""
        if not self._announced and not self._known:
            return None
        key = _key(query, values)
        self._announced.pop(key, None)
        return self._known.pop(key, None)

    def one(self, query: str, **values: Any) -> Row | None:
        known = self._recall(query, values)
        if known is not None:
            return known[0] if known else None
        rows = self._ask(self._queries[query], values).rows()
        return rows[0] if rows else None

    def all(self, query: str, **values: Any) -> list[Row]:
        known = self._recall(query, values)
        if known is not None:
            return known
        return self._ask(self._queries[query], values).rows()

    def do(self, query: str, **values: Any) -> int:
        self.wrote = True
        if query in self.memory.forgets:
            self.memory.forget(self.memory.forgets[query], values)
        if query in DEFERRED or query in EXPECTING_ONE:
            self._pending.append((self._queries[query], values))
            return 1
        return self._ask(self._queries[query], values).count

    def put(self, query: str, record: Record) -> int:
        return self.do(query, **record.as_dict())

    def lock(self, name: str, **values: Any) -> None:
        """Queue a lock. It is waited for with the next read, which is after it in order."""
        self._pending.append((self._queries["lock_" + name], values))

    def execute(self, text: str) -> None:
        """Queue a statement that has no answer: a savepoint's."""
        self._pending.append((text, None))

    def finish(self, *last: Statement) -> None:
        """Send what waits, and what ends the transaction, in one round trip."""
        pending, self._pending = [*self._pending, *last], []
        _send(self._wire, pending)

    def _ask(self, text: str, values: Mapping[str, Any] | None) -> Answer:
        """Send what waits and one statement more, and give its answer."""
        announced, self._announced = self._announced, {}
        pending, self._pending = [*self._pending, (text, values), *announced.values()], []
        timed = self._now_ms is None and self._clock is None and text != NOW
        if timed:
            pending.append((NOW, None))
        answers = _send(self._wire, pending)
        if timed:
            self._read_ms = int(answers.pop().value())
        for key in reversed(announced):
            self._known[key] = answers.pop().rows()
        return answers[-1]


def _key(query: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a read is known by. The time is left out: within a transaction there is one."""
    return (query, *(item for item in values.items() if item[0] != "now_ms"))


def _send(wire: Wire, statements: list[Statement]) -> list[Answer]:
    """One round trip."""
    return wire.exchange(statements)
