"""Statements to PostgreSQL and their answers, many in one flush.

psycopg's own pipeline sends each statement as it is executed, which wakes the server for each of them, and makes a
cursor for it. Here all statements of a round trip are written to the socket at once, each prepared when it is first
used, and the answers are read when all have been sent. Values are dumped and loaded by psycopg, with the connection's
own adapters.

The first error ends the round trip: the server passes over what follows, and the error is raised when it has said so.
"""

from __future__ import annotations

import re
import select
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


class Answer:
    """What the server said to one statement."""

    __slots__ = ("_result", "_text", "_wire")

    def __init__(self, wire: Wire, text: str, result: PGresult) -> None:
        self._wire = wire
        self._text = text
        self._result = result

    @property
    def count(self) -> int:
        """How many rows the statement changed or gave."""
        return self._result.command_tuples or 0

    def rows(self) -> list[Row]:
        result = self._result
        count = result.ntuples
        if not count:
            return []
        names = _COLUMNS.get(self._text)
        if names is None:
            names = [(result.fname(number) or b"").decode() for number in range(result.nfields)]
            _COLUMNS[self._text] = names
        known = names
        transformer = self._wire.transformer
        transformer.set_pgresult(result)
        return transformer.load_rows(0, count, lambda values: dict(zip(known, values, strict=True)))

    def value(self) -> Any:
        """The only value of the only row."""
        return next(iter(self.rows()[0].values()))


class Wire:
    """One connection's prepared statements, and the way to send many of them."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self.transformer = Transformer.from_context(connection)
        # By text and the types of its values.
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._named = 0
        self._formats: dict[int, list[PyFormat]] = {}

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
            self._connection.close()
            raise
        answers: list[Answer] = []
        place = 0
        for (text, _), preparing in zip(statements, expected, strict=True):
            if preparing is not None:
                if results[place].status == _OK:
                    self._prepared[preparing[0]] = preparing[1]
                self._raise_error(results[place])
                place += 1
            self._raise_error(results[place])
            answers.append(Answer(self, text, results[place]))
            place += 1
        return answers

    def _queue(self, text: str, values: Mapping[str, Any] | None) -> tuple[tuple[str, tuple[int, ...]], bytes] | None:
        """Queue one statement. What it has to be prepared as, where it is new to this connection."""
        pgconn = self._pgconn
        command, names = compiled(text)
        given: Sequence[Any] = ()
        types: tuple[int, ...] = ()
        formats: list[pq.Format] | None = None
        if values and names:
            transformer = self.transformer
            asked = self._formats.get(len(names))
            if asked is None:
                asked = self._formats[len(names)] = [PyFormat.AUTO] * len(names)
            given = transformer.dump_sequence([values[name] for name in names], asked)
            types, formats = transformer.types or (), transformer.formats
        key = (text, types)
        name = self._prepared.get(key)
        if name is not None:
            pgconn.send_query_prepared(name, given, param_formats=formats)
            return None
        if len(self._prepared) >= PREPARED_MAX:
            pgconn.send_query_params(command, given, param_types=types, param_formats=formats)
            return None
        self._named += 1
        name = b"tenure_%d" % self._named
        pgconn.send_prepare(name, command, param_types=types)
        pgconn.send_query_prepared(name, given, param_formats=formats)
        return key, name

    def _results(self) -> list[PGresult]:
        """Send what is queued, and read up to the end of it. The server may answer before it has heard all."""
        pgconn = self._pgconn
        waiting = select.poll()
        results: list[PGresult] = []
        unsent = pgconn.flush()
        waiting.register(pgconn.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
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
                    # Between two statements' answers.
                    continue
                if result.status == _SYNC:
                    return results
                results.append(result)
                if pgconn.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError(pgconn.get_error_message())

    def _raise_error(self, result: PGresult) -> None:
        if result.status in _FAILED:
            raise psycopg.errors.error_from_result(result, encoding=self.transformer.encoding)
