"""What the command line prints: aligned text for people, one envelope for programs."""

from __future__ import annotations

import os
import sys

from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TextIO

    from tenure.core.errors import Refused

SCHEMA = "tenure/1"
COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "dim": "2", "bold": "1"}
STATUS_COLOURS = {"todo": "blue", "in_progress": "yellow", "blocked": "red", "done": "green", "dead": "red"}


class Result(Record):
    """A command's success: data for programs, lines for people."""

    data: Any
    lines: Sequence[str] = ()
    # What one would do now, as commands.
    next: Sequence[str] = ()
    warnings: Sequence[str] = ()
    # Set when the command worked and what it found is not well: a doctor's verdict.
    refusal: Refused | None = None
    # The exit status of a success: another program's, where a command ran one.
    status: int = 0

    @property
    def exit_status(self) -> int:
        """What the command line exits with."""
        return self.status if self.refusal is None else self.refusal.exit_status


def envelope(result: Result) -> dict[str, Any]:
    """An answer as JSON."""
    return {
        "schema": SCHEMA,
        "ok": result.refusal is None,
        "data": result.data,
        "error": None if result.refusal is None else _error(result.refusal),
        "next": list(result.next),
        "warnings": list(result.warnings),
    }


def error_envelope(refusal: Refused) -> dict[str, Any]:
    """A refusal as JSON."""
    next_ = [refusal.next]
    return {"schema": SCHEMA, "ok": False, "data": None, "error": _error(refusal), "next": next_, "warnings": []}


def _error(refusal: Refused) -> dict[str, Any]:
    return {"code": refusal.code, "message": refusal.message, "facts": dict(refusal.facts)}


def print_json(value: Mapping[str, Any]) -> None:
    """One document, and nothing else, on standard output."""
    import json

    # Lone surrogates (undecodable file names, say) are escaped rather than failing at the last moment.
    sys.stdout.write(json.dumps(value, ensure_ascii=True, default=str) + "\n")


def coloured(stream: TextIO) -> bool:
    """Colour only where a person looks, and never against NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Text in a colour, where colours are shown."""
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if coloured(stream or sys.stdout) else text


def clean(text: str, most: int = 200) -> str:
    """An agent's text on one line, without control sequences."""
    if len(text) <= most and text.isascii() and text.isprintable():
        return text
    from tenure.core.handoff import inline

    return inline(text, most)


def duration(ms: int) -> str:
    """A length of time as people say it: 15m, 1h 30m, 45s."""
    seconds = max(0, -(-ms // 1000))
    if seconds < 60:
        return f"{seconds}s"
    units = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
    parts = []
    for size, letter in units:
        if seconds >= size:
            parts.append(f"{seconds // size}{letter}")
            seconds %= size
    return " ".join(parts[:2])


def counted(number: int, noun: str) -> str:
    """1 task, 2 tasks."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def left(at_ms: int, now_ms: int) -> str:
    """How long a lease has."""
    return f"expires in {duration(at_ms - now_ms)}"


def ago(at_ms: int, now_ms: int) -> str:
    """A moment, relative to now."""
    return f"{duration(now_ms - at_ms)} ago" if at_ms <= now_ms else f"in {duration(at_ms - now_ms)}"


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> list[str]:
    """Aligned columns. Widths are of the plain text; colours are put on by the caller's cells at the end of a row."""
    shown = [list(header), *map(list, rows)] if header else [list(row) for row in rows]
    if not shown:
        return []
    widths = [max(len(plain(row[column])) for row in shown) for column in range(len(shown[0]))]
    lines = []
    for index, row in enumerate(shown):
        cells = [cell + " " * (width - len(plain(cell))) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()
        lines.append(paint(line, "dim") if header and index == 0 else line)
    return lines


def plain(text: str) -> str:
    """A painted text without its colours."""
    for code in (*COLOURS.values(), "0"):
        text = text.replace(f"\x1b[{code}m", "")
    return text


def status_word(status: str, due: bool = False) -> str:
    """A task's status as shown: `todo (due)` before anyone has written its recovery."""
    return paint(f"{status} (due)" if due else status, STATUS_COLOURS.get(status, "dim"))
