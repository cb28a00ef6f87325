"""Checks of what callers pass in. Each check takes a name and a value and returns the value to use, or a refusal.

A verb lists a check for every argument it takes (engine/verb.py), so that bad input is refused before a transaction is
opened and nothing is ever half written. The limits are the specification's where it gives one.
"""

from __future__ import annotations

from tenure.core import model
from tenure.core.errors import Refused, refuse
from tenure.core.ids import id_fault, text_fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Check = Callable[[str, Any], Any]

TITLE_MAX = 500
TEXT_MAX = 100_000
INPUTS_MAX = 65_536
CONTENT_MAX = 1_000_000
TTL_MIN_S = 1
TTL_MAX_S = 7 * 86_400
FOREVER_MS = 1 << 53
MANY_MAX = 10_000


def bad(name: str, message: str, **facts: Any) -> Refused:
    """The refusal of one argument."""
    return refuse("invalid_argument", f"{name} {message}.", argument=name, **facts)


def shown(value: object) -> str:
    """A value as it may be quoted in a message: short, and printable whatever it holds."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        # Python refuses to print a number of thousands of digits, and a list that is nested too deeply.
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else text[:57] + "..."


def anything(name: str, value: Any) -> Any:
    """For arguments that the verb itself judges, such as a receipt's body."""
    return value


def ident(name: str, value: Any) -> str | Refused:
    """A user's identifier: of a task, an agent, a project."""
    if not isinstance(value, str):
        return bad(name, f"must be text, not {shown(value)}")
    if value in _GOOD:
        return value
    fault = id_fault(value)
    if fault is not None:
        return bad(name, f"{shown(value)} {fault}")
    if len(_GOOD) >= _GOOD_MAX:
        _GOOD.clear()
    _GOOD.add(value)
    return value


# Identifiers that were found good: the same agents, projects and profiles come with every call.
_GOOD: set[str] = set()
_GOOD_MAX = 10_000


def kind(name: str, value: Any) -> str | Refused:
    """A task type such as code.generate; empty for none."""
    if not isinstance(value, str):
        return bad(name, f"must be text, not {shown(value)}")
    fault = id_fault(value, kind=True) if value else None
    return value if fault is None else bad(name, f"{shown(value)} {fault}")


def text(max_bytes: int = TEXT_MAX, *, one_line: bool = False, required: bool = False) -> Check:
    """Free text, without control characters, within a size."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return bad(name, f"must be text, not {shown(value)}")
        if required and not value.strip():
            return bad(name, "is empty")
        fault = text_fault(value, max_bytes, one_line=one_line)
        return value if fault is None else bad(name, fault)

    return check


def whole(low: int, high: int) -> Check:
    """A whole number within bounds. True and False are not numbers here."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return bad(name, f"must be a whole number, not {shown(value)}")
        return value if low <= value <= high else bad(name, f"must be from {low} to {high}, not {shown(value)}")

    return check


def number(low: float, high: float) -> Check:
    """A number within bounds; infinities and NaN are outside any."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return bad(name, f"must be a number, not {shown(value)}")
        return float(value) if low <= value <= high else bad(name, f"must be from {low} to {high}, not {shown(value)}")

    return check


def flag(name: str, value: Any) -> bool | Refused:
    """True or False, and nothing that merely looks like it."""
    return value if isinstance(value, bool) else bad(name, f"must be true or false, not {shown(value)}")


def one_of(*choices: str) -> Check:
    """One of a few words; the refusal lists them."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, str) and value in choices:
            return value
        return bad(name, f"must be one of {', '.join(choices)}, not {shown(value)}", choices=list(choices))

    return check


def optional(check: Check) -> Check:
    """The same check, or None."""

    def check_optional(name: str, value: Any) -> Any:
        return None if value is None else check(name, value)

    return check_optional


def each(check: Check, most: int = 100) -> Check:
    """A list of values that each pass; order kept, repetitions dropped."""

    def check_each(name: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return bad(name, f"must be a list, not {shown(value)}")
        if len(value) > most:
            return bad(name, f"has {len(value)} entries; the most is {most}")
        checked = []
        for number_, entry in enumerate(value):
            good = check(f"{name}[{number_}]", entry)
            if isinstance(good, Refused):
                return good
            checked.append(good)
        return list(dict.fromkeys(checked))

    return check_each


def json_object(max_bytes: int) -> Check:
    """A JSON object within a size, as its canonical text; empty text for an empty or absent one."""

    def check(name: str, value: Any) -> Any:
        if value is None or value == {}:
            return ""
        if not isinstance(value, dict):
            return bad(name, f"must be an object, not {shown(value)}")
        import json

        try:
            encoded = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            size = len(encoded.encode())
        except (TypeError, ValueError, RecursionError) as error:
            return bad(name, f"is not JSON ({shown(str(error))})")
        # Doubled backslashes are text that only looks like an escape.
        if "\\u0000" in encoded.replace("\\\\", ""):
            return bad(name, "contains the control character U+0000")
        return encoded if size <= max_bytes else bad(name, f"is longer than {max_bytes} bytes")

    return check


title = text(TITLE_MAX, one_line=True, required=True)
line = text(TITLE_MAX, one_line=True)
body = text()
content = text(CONTENT_MAX)
key = optional(text(256, one_line=True, required=True))
ttl_s = whole(TTL_MIN_S, TTL_MAX_S)
moment_ms = whole(0, FOREVER_MS)
limit = whole(1, 10_000)
cursor = whole(0, FOREVER_MS)
percent = whole(0, 100)
priority = one_of(*model.PRIORITIES)
complexity = one_of(*model.COMPLEXITIES)
status = one_of(*model.STATUSES)
capabilities = each(ident)
