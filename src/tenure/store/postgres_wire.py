"""Statements to PostgreSQL and their answers, many in one flush.

psycopg's own pipeline sends each statement as it is executed, which wakes the server for each of them, and makes a
cursor for it. Here all statements of a round trip are written to the socket at once, each prepared when it is first
used, and the answers are read when all have been sent. Values are dumped and loaded by psycopg, with the connection's
own adapters.

The first error ends the round trip: the server passes over what follows, and the error is raised when it has said so.

What is pushed is sent without waiting: the server runs it while Python goes on, and its answers are read when somebody
asks for them, or for those of something that was sent later. It ends in a sync of its own. So the server is idle in its
transaction when it has run it, and does not keep the locks of a node that was cut off for longer than it may; and after
an error in it the server does not pass over what follows: ROLLBACK is carried out, and anything else, COMMIT too, can
only undo the transaction.

Under load other threads wait for the interpreter, and psycopg lets go of it in `send_query_prepared` and in `is_busy`,
each time at the cost of waking one of them in vain; `is_busy` is therefore not asked where the answer is known.
"""

from __future__ import annotations

import contextlib
import operator
import re
import select
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from psycopg.pq.abc import PGresult

    Row = dict[str, Any]
    Statement = tuple[str, Mapping[str, Any] | None]
    # A result to come: of a statement, or of preparing one for certain types under a name.
    _Expected: TypeAlias = "_Known | tuple[_Known, tuple[int, ...], bytes]"

_PARAMETER = re.compile(r"%\((\w+)\)s|%%")
# As psycopg gives them: plain numbers.
_SYNC = int(pq.ExecStatus.PIPELINE_SYNC)
_FAILED = frozenset(map(int, (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE, pq.ExecStatus.PIPELINE_ABORTED)))
# Statements prepared on one connection; past this many it goes on without preparing more.
PREPARED_MAX = 1_000

# Texts as the server takes them, with the names of their parameters in order.
_COMPILED: dict[str, tuple[bytes, tuple[str, ...]]] = {}


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

    __slots__ = ("columns", "command", "formats", "loads", "names", "prepared", "values")

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
        # What loads its rows is found out once, and so are the names of their columns.
        self.loads: Any = None
        self.columns: list[str] = []


class Answer:
    """What the server said to one statement."""

    __slots__ = ("_known", "_result", "_rows", "_wire")

    def __init__(self, wire: Wire, known: _Known, result: PGresult) -> None:
        self._wire = wire
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
        count = self._result.ntuples
        if not count:
            return []
        rows = self._loads().load_rows(0, count, tuple)
        columns = self._known.columns
        return [dict(zip(columns, row)) for row in rows]  # noqa: B905 - as many as `_loads` has counted

    def value(self) -> Any:
        """The first value of the first row."""
        return self._loads().load_row(0, tuple)[0]

    def _loads(self) -> Any:
        """What loads the rows of this answer."""
        known, result = self._known, self._result
        if known.loads is not None and len(known.columns) == result.nfields:
            known.loads.set_pgresult(result, set_loaders=False)
        else:
            known.loads = Transformer.from_context(self._wire.connection)
            known.loads.set_pgresult(result)
            known.columns = [(result.fname(number) or b"").decode() for number in range(result.nfields)]
        return known.loads


class Part:
    """Statements that were sent together: what the server will tell of, and the answers when they were read, or the
    first error in them or in what was sent before them."""

    __slots__ = ("answers", "expected", "failed")

    def __init__(self) -> None:
        self.expected: list[_Expected] = []
        self.answers: list[Answer] | None = None
        self.failed: PGresult | None = None


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
        # What was pushed and not read yet, the first error in what was read of it, and whether some of the rest may
        # have come with that.
        self._unread: list[Part] = []
        self._failed: PGresult | None = None
        self._heard = False

    def push(self, statements: Sequence[Statement]) -> Part:
        """Send statements ahead of what is waited for. Until all that was pushed is read, nothing else may be asked of
        the connection."""
        return self._send(statements)

    def exchange(self, statements: Sequence[Statement]) -> list[Answer]:
        """Send statements in one flush and give the answer to each. Raises the first error."""
        return self.answers(self._send(statements))

    def _send(self, statements: Sequence[Statement]) -> Part:
        pgconn = self._pgconn
        if not self._unread:
            pgconn.enter_pipeline_mode()
        part = Part()
        try:
            for text, values in statements:
                self._queue(text, values, part.expected)
            pgconn.pipeline_sync()
        except BaseException:
            self.connection.close()
            raise
        self._unread.append(part)
        return part

    def answers(self, part: Part) -> list[Answer]:
        """The answers to what was pushed. Raises the first error in it or in what was pushed before it."""
        try:
            while part.answers is None:
                self._read(self._unread[0])
                del self._unread[0]
                if not self._unread:
                    self._pgconn.exit_pipeline_mode()
                    self._failed = None
        except BaseException:
            # Half a conversation: nobody can tell any more which answer belongs to what.
            self.connection.close()
            raise
        if part.failed is not None:
            raise psycopg.errors.error_from_result(part.failed, encoding=self._transformer.encoding)
        return part.answers

    def settle(self) -> None:
        """Read the answers to what was pushed, if nobody has, whatever they are."""
        if self._unread:
            with contextlib.suppress(psycopg.Error):
                self.answers(self._unread[-1])

    def _queue(self, text: str, values: Mapping[str, Any] | None, expected: list[_Expected]) -> None:
        """Queue one statement, and add what the server will tell of: its preparation, where it is new, and itself."""
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
            self._pgconn.send_query_prepared(name, given, formats)
        elif self._named >= PREPARED_MAX:
            self._pgconn.send_query_params(known.command, given, param_types=types, param_formats=formats)
        else:
            self._named += 1
            name = b"tenure_%d" % self._named
            self._pgconn.send_prepare(name, known.command, param_types=types)
            self._pgconn.send_query_prepared(name, given, formats)
            expected.append((known, types, name))
        expected.append(known)

    def _read(self, part: Part) -> None:
        """Send what is queued, and read the results of the oldest part that was pushed; notes the first error.

        The server may answer before it has heard all.
        """
        pgconn, waiting = self._pgconn, self._waiting
        is_busy, get_result = pgconn.is_busy, pgconn.get_result
        results: list[PGresult] = []
        unsent = pgconn.flush()
        if unsent:
            waiting.modify(pgconn.socket, select.POLLIN | select.POLLOUT)
        # Some may be here already: with the end of the part before, or because libpq reads where it cannot send.
        heard, self._heard = self._heard or bool(unsent), False
        while True:
            if not heard:
                waiting.poll()
                pgconn.consume_input()
            heard = False
            if unsent:
                unsent = pgconn.flush()
                if not unsent:
                    waiting.modify(pgconn.socket, select.POLLIN)
            while not is_busy():
                result = get_result()
                if result is None:
                    # Only where nothing more comes.
                    if pgconn.status == pq.ConnStatus.BAD:
                        raise psycopg.OperationalError(pgconn.get_error_message())
                    continue
                status = result.status
                if status == _SYNC:
                    if unsent:
                        waiting.modify(pgconn.socket, select.POLLIN)
                    self._heard = len(self._unread) > 1
                    self._file(part, results)
                    return
                results.append(result)
                if status in _FAILED:
                    self._failed = self._failed or result
                    if pgconn.status == pq.ConnStatus.BAD:
                        raise psycopg.OperationalError(pgconn.get_error_message())
                # The end of this statement's answer is known with the answer itself, and is not waited for.
                get_result()

    def _file(self, part: Part, results: list[PGresult]) -> None:
        """Keep the answers of a part, and which statements the server has prepared."""
        part.failed = self._failed
        answers = part.answers = []
        for told, result in zip(part.expected, results, strict=True):
            if isinstance(told, _Known):
                answers.append(Answer(self, told, result))
            elif result.status not in _FAILED:
                known, types, name = told
                known.prepared[types] = name
