"""Reduces a trace to what a replay reads of it, for a fixture that is small enough to keep in the repository.

    python tools/trace.py silences.csv.gz tests/replay/silences.csv.gz

Kept: unattended runs only; their calls, what people did, the ends of sub-agents, and of everything else the rows on
which a wait or a long sleep begins or ends. Sessions get numbers, times are rounded to a tenth of a second, and a call
that was stamped at its end is simply a call.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from tenure.core.replay import ASLEEP_MS
from tenure.surfaces.cli.replay import STAMPED_AT_THE_END

COLUMNS = ("session_id", "t_seconds", "kind", "tool", "timeout_s", "auto")
Line = dict[str, str]


def reduced(path: Path) -> bytes:
    """The packed fixture of a trace; the same bytes every time."""
    sessions: dict[tuple[str, str], list[Line]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["auto"] == "1":
                sessions.setdefault((line["session_id"], line["source"]), []).append(line)
    text = io.StringIO()
    writer: Any = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, (_, lines) in enumerate(sorted(sessions.items()), start=1):
        lines.sort(key=lambda line: (float(line["t_seconds"]), int(line["event_index"])))
        touched_by = "tool_result" if lines[0]["agent_kind"] in STAMPED_AT_THE_END else "tool_call"
        for line in needed(lines, touched_by):
            called = line["kind"] == touched_by
            writer.writerow(
                (
                    number,
                    f"{float(line['t_seconds']):.1f}".removesuffix(".0"),
                    "tool_call" if called else line["kind"],
                    "subagent" if line["tool"] == "subagent" else "",
                    line["timeout_s"] if called else "",
                    1,
                )
            )
    return gzip.compress(text.getvalue().encode(), 9, mtime=0)


def needed(lines: list[Line], touched_by: str) -> list[Line]:
    """The rows of one run without which its replay would come out differently."""
    keep = {0}
    for index, line in enumerate(lines):
        ends_help = line["kind"] == "tool_result" and line["tool"] == "subagent"
        if line["kind"] in (touched_by, "user") or ends_help:
            keep.add(index)
    for index, (before, after) in enumerate(pairwise(lines)):
        if after["kind"] == "user":
            keep.add(index)
        if (float(after["t_seconds"]) - float(before["t_seconds"])) * 1000 > ASLEEP_MS:
            keep |= {index, index + 1}
    return [lines[index] for index in sorted(keep)]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_bytes(reduced(Path(sys.argv[1])))
