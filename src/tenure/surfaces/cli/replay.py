"""`tenure replay`: traces of real agents through the rules, to see what settings would do to them."""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, counted, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from tenure.core.replay import Call, Row
    from tenure.core.settings import Settings
    from tenure.surfaces.cli.context import Context

NEEDED = ("session_id", "t_seconds", "kind")
# Whoever writes these stamps a call when it is over.
STAMPED_AT_THE_END = ("openhands",)
GZIP = b"\x1f\x8b"
T_MAX_S = 1e10


def replay(context: Context) -> Result:
    """Play the file under every rule and show what came out."""
    from tenure.core.replay import RULES
    from tenure.core.replay import replay as play

    runs = runs_of(context.get("file"))
    settings = _settings(context)
    outcomes = [play(runs, rule, settings) for rule in RULES]
    calls = sum(map(len, runs))
    lines = [
        f"{counted(len(runs), 'unattended run')}, {counted(calls, 'call')}, {outcomes[0].agent_hours:.1f} agent-hours",
        "",
    ]
    rows = [
        (
            outcome.rule,
            f"{outcome.false_recoveries_per_agent_hour:.3f}",
            f"{outcome.runs_hit_share:.1%}",
            f"{outcome.latency_mean_s:.3g} s",
            f"{outcome.latency_p95_s:.3g} s",
        )
        for outcome in outcomes
    ]
    lines += table(rows, ("rule", "false recoveries/h", "runs hit", "latency, mean", "latency, p95"))
    lines += ["", "Linked latencies are assumed, not measured: a death is taken to be seen within a second."]
    return Result(data=[outcome.as_dict() for outcome in outcomes], lines=lines)


def runs_of(path: str) -> list[list[Call]]:
    """The unattended runs of a trace, in the order of their first rows, each as its calls."""
    from tenure.core.replay import calls_of

    sessions: dict[tuple[str, str], list[tuple[Row, int]]] = {}
    stamped_late: set[tuple[str, str]] = set()
    for number, line in _lines(path):
        if line.get("auto", "1") != "1":
            continue
        session = (line.get("source") or "", line["session_id"])
        row, index = _row(path, number, line)
        sessions.setdefault(session, []).append((row, index))
        if line.get("agent_kind") in STAMPED_AT_THE_END:
            stamped_late.add(session)
    runs = []
    for session, rows in sessions.items():
        rows.sort(key=lambda pair: (pair[0].at_ms, pair[1]))
        touched_by = "tool_result" if session in stamped_late else "tool_call"
        runs.append(calls_of((row for row, _ in rows), touched_by=touched_by))
    runs = [calls for calls in runs if calls]
    if not any(calls[-1].at_ms for calls in runs):
        message = f"{path} has no unattended run with two tool calls at different times."
        raise Stop(refuse("invalid_argument", message, "See docs/replay.md for the columns.", argument="file"))
    return runs


def _lines(path: str) -> Iterable[tuple[int, Mapping[str, str]]]:
    """The rows of the file with their numbers, packed or plain."""
    import csv
    import gzip
    import zlib

    try:
        with open(path, "rb") as start:
            packed = start.read(2) == GZIP
        opener: Any = gzip.open if packed else open
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise _fault(path, f"it has no column {', '.join(missing)}")
            for line in reader:
                yield reader.line_num, line
    except (EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        raise _fault(path, str(error)) from None
    except OSError as error:
        raise _fault(path, error.strerror or str(error)) from None


def _row(path: str, number: int, line: Mapping[str, str]) -> tuple[Row, int]:
    from tenure.core.replay import Row

    try:
        row = Row(
            at_ms=_milliseconds(line["t_seconds"]),
            kind=line["kind"],
            tool=line.get("tool") or "",
            timeout_ms=_milliseconds(line.get("timeout_s") or "0"),
        )
        return row, int(line.get("event_index") or number)
    except (ValueError, TypeError) as error:
        raise _fault(path, f"line {number}: {error}") from None


def _milliseconds(text: str) -> int:
    number = float(text)
    if not 0 <= number < T_MAX_S:
        raise ValueError(f"{text!r} is not a time in seconds")
    return round(number * 1000)


def _fault(path: str, what: str) -> Stop:
    hint = "See docs/replay.md for the columns."
    return Stop(refuse("invalid_argument", f"{path} cannot be replayed: {what}", hint, argument="file"))


def _settings(context: Context) -> Settings:
    """The settings in force here, or the defaults where there is no store; --set changes some for this replay."""
    from tenure.core.settings import DEFAULTS, parse
    from tenure.engine.projects import show_settings
    from tenure.surfaces.cli.settings import _value

    settings: Settings = DEFAULTS
    try:
        settings = must(show_settings(context.store, **context.project()))
    except Stop as stop:
        if stop.refusal.code != "store_unavailable" or context.get("store") or context.project_id:
            raise
    document: dict[str, dict[str, Any]] = {}
    for text in context.get("set", []):
        name, equals, value = text.partition("=")
        section, dot, key = name.partition(".")
        if not equals or not dot:
            raise Stop(refuse("usage", f"replay: --set takes SETTING=VALUE, not {text!r}"))
        document.setdefault(section, {})[key] = _value(value)
    laid = parse(document, settings)
    if isinstance(laid, Refused):
        raise Stop(laid)
    return laid
