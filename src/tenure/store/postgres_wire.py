"""Statements to PostgreSQL and their answers, many in one flush.

psycopg's own pipeline sends each statement as it is executed, which wakes the server for each of them, and makes a
cursor for it. Here all statements of a round trip are written to the socket at once, each prepared when it is first
used, and the answers are read when all have been sent. Values are dumped and loaded by psycopg, with the connection's
own adapters.

The first error ends the round trip: the server passes over what follows, and the error is raised when it has said so.
"""

from __future__ import annotations

import operator
import re
import select
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from psycopg.pq.abc import PGresult

    Row = dict[str, Any]
    Statement = tuple[str, Mapping[str, Any] | None]

_PARAMETER = re.compile(r"%\((\w+)\)s|%%")
_OK = pq.ExecStatus.COMMAND_OK
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE, pq.ExecStatus.PIPELINE_ABORTED)
# Statements prepared on one connection; past this many it goes on without preparing more.
PREPARED_MAX = 1_000

# Texts as the server takes them, with the names of their parameters in order.
_COMPILED: dict[str, tuple[bytes, tuple[str, ...]]] = {}
# The names of a statement's columns, by its text.
_COLUMNS: dict[str, list[str]] = {}


def compiled(text: str) -> tuple[bytes, tuple[str, ...]]:
    """A text with %(name)s as one with $1, and its parameters' names."""
    known = _COMPILED.get(text)
    if known is None:
        names: list[str] = []

        def numbered(found: re.Match[str]) -> str:
            name = found[1]
            if name is None:
                return "%"
            if name not in names:
                names.append(name)
            return f"${names.index(name) + 1}"

        replaced = _PARAMETER.sub(numbered, text)
        known = _COMPILED[text] = (replaced.encode(), tuple(names))
    return known


class _Known:
    """A statement as one connection knows it: how its values are taken, and what it was prepared as for which types."""

    __slots__ = ("command", "formats", "loads", "names", "prepared", "values")

    def __init__(self, text: str) -> None:
        self.command, self.names = compiled(text)
        self.formats = [PyFormat.AUTO] * len(self.names)
        self.prepared: dict[tuple[int, ...], bytes] = {}
        self.values: Callable[[Mapping[str, Any]], Sequence[Any]] | None = None
        if len(self.names) > 1:
            self.values = operator.itemgetter(*self.names)
        elif self.names:
            name = self.names[0]
            self.values = lambda values: (values[name],)
        # Its own, because what loads a row is found out once per statement and connection.
        self.loads: Any = None


class Answer:
    """What the server said to one statement."""

    __slots__ = ("_known", "_result", "_rows", "_text", "_wire")

    def __init__(self, wire: Wire, text: str, known: _Known, result: PGresult) -> None:
        self._wire = wire
        self._text = text
        self._known = known
        self._result = result
        self._rows: list[Row] | None = None

    @property
    def count(self) -> int:
        """How many rows the statement changed or gave."""
        return self._result.command_tuples or 0

    def rows(self) -> list[Row]:
        if self._rows is None:
            self._rows = self._loaded()
        return self._rows

    def _loaded(self) -> list[Row]:
        result = self._result
        count = result.ntuples
        if not count:
            return []
        names = _COLUMNS.get(self._text)
        if names is None:
            names = [(result.fname(number) or b"").decode() for number in range(result.nfields)]
            _COLUMNS[self._text] = names
        loads = self._known.loads
        if loads is None:
            loads = self._known.loads = Transformer.from_context(self._wire.connection)
            loads.set_pgresult(result)
        else:
            loads.set_pgresult(result, set_loaders=False)
        return [dict(zip(names, row, strict=True)) for row in loads.load_rows(0, count, tuple)]

    def value(self) -> Any:
        """The only value of the only row."""
        return next(iter(self.rows()[0].values()))


class Wire:
    """One connection's prepared statements, and the way to send many of them."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._transformer = Transformer.from_context(connection)
        self._known: dict[str, _Known] = {}
        self._named = 0
        self._waiting = select.poll()
        self._waiting.register(self._pgconn.socket, select.POLLIN)

    def exchange(self, statements: Sequence[Statement]) -> list[Answer]:
        """Send statements in one flush and give the answer to each. Raises the first error."""
        pgconn = self._pgconn
        pgconn.enter_pipeline_mode()
        try:
            expected = [self._queue(text, values) for text, values in statements]
            pgconn.pipeline_sync()
            results = self._results()
            pgconn.exit_pipeline_mode()
        except BaseException:
            # Half a conversation: nobody can tell any more which answer belongs to what.
            self.connection.close()
            raise
        answers: list[Answer] = []
        coming = iter(results)
        for (text, _), (known, types, name) in zip(statements, expected, strict=True):
            if name is not None:
                prepared = next(coming)
                if prepared.status == _OK:
                    known.prepared[types] = name
                else:
                    self._raise_error(prepared)
            result = next(coming)
            if result.status in _FAILED:
                self._raise_error(result)
            answers.append(Answer(self, text, known, result))
        return answers

    def _queue(self, text: str, values: Mapping[str, Any] | None) -> tuple[_Known, tuple[int, ...], bytes | None]:
        """Queue one statement. With the name that it is being prepared as, where it is new to this connection."""
        pgconn = self._pgconn
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = _Known(text)
        given: Sequence[Any] = ()
        types: tuple[int, ...] = ()
        formats: list[pq.Format] | None = None
        if values and known.values is not None:
            transformer = self._transformer
            given = transformer.dump_sequence(known.values(values), known.formats)
            types, formats = transformer.types or (), transformer.formats
        name = known.prepared.get(types)
        if name is not None:
            pgconn.send_query_prepared(name, given, formats)
            return known, types, None
        if self._named >= PREPARED_MAX:
            pgconn.send_query_params(known.command, given, param_types=types, param_formats=formats)
            return known, types, None
        self._named += 1
        name = b"tenure_%d" % self._named
        pgconn.send_prepare(name, known.command, param_types=types)
        pgconn.send_query_prepared(name, given, formats)
        return known, types, name

    def _results(self) -> list[PGresult]:
        """Send what is queued, and read up to the end of it. The server may answer before it has heard all."""
        pgconn, waiting = self._pgconn, self._waiting
        results: list[PGresult] = []
        unsent = pgconn.flush()
        if unsent:
            waiting.modify(pgconn.socket, select.POLLIN | select.POLLOUT)
        while True:
            waiting.poll()
            pgconn.consume_input()
            if unsent:
                unsent = pgconn.flush()
                if not unsent:
                    waiting.modify(pgconn.socket, select.POLLIN)
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    # Between two statements' answers, or at the end of all.
                    if pgconn.status == pq.ConnStatus.BAD:
                        raise psycopg.OperationalError(pgconn.get_error_message())
                    continue
                status = result.status
                if status == _SYNC:
                    return results
                results.append(result)
                if status in _FAILED and pgconn.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError(pgconn.get_error_message())

    def _raise_error(self, result: PGresult) -> None:
        if result.status in _FAILED:
            raise psycopg.errors.error_from_result(result, encoding=self._transformer.encoding)
