"""`tenure export` and `tenure import`: tasks, and what was said and made about them, as JSON lines.

Each line is an object with a `record`: project, task, message, decision, artifact, receipt. Import adds what is not
there yet and skips what is; leases do not travel (a task in progress comes back as todo), and receipts are exported for
reading only, because a ledger is appended to by its own store and by nobody else.
"""

from __future__ import annotations

import json
import sys

from tenure.core.errors import Refused, refuse
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TextIO

    from tenure.surfaces.cli.context import Context

    # A record and the number of its line.
    Numbered = tuple[int, dict[str, Any]]

PAGE = 500
CHUNK = 500
# Bars are for people who wait: only on a terminal, and only for files worth waiting for.
BAR_FROM = 2_000


def export(context: Context) -> Result:
    """Write every record, one per line; with --json and no file, all of them in the one document."""
    counts: dict[str, int] = {}
    target = context.get("output")
    if target is None and (context.get("json") or context.get("format") == "json"):
        return Result(data={"records": list(_records(context))})
    stream = sys.stdout if target is None else _open_new(target)
    try:
        for record in _records(context):
            counts[record["record"]] = counts.get(record["record"], 0) + 1
            stream.write(json.dumps(record, ensure_ascii=True) + "\n")
    finally:
        if target is not None:
            stream.close()
    told = ", ".join(counted(count, name) for name, count in counts.items())
    return Result(data=counts, lines=[] if target is None else [f"Wrote {told} to {target}"])


def _open_new(path: str) -> TextIO:
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise Stop(refuse("invalid_argument", f"{path} cannot be written: {error.strerror}.")) from error


def _records(context: Context) -> Iterator[dict[str, Any]]:
    from tenure.engine import transfer

    for name in transfer.KINDS:
        after = 0
        while True:
            page = must(transfer.export_page(context.store, kind=name, after=after, limit=PAGE, **context.project()))
            for record in page:
                after = record.pop("cursor")
                yield {"record": name, **record}
            if len(page) < PAGE:
                break


def import_(context: Context) -> Result:
    """Read records and add what is not there yet."""
    from tenure.engine import transfer

    lines = _read(context.get("file"))
    read = [(number, _record(number, line)) for number, line in enumerate(lines, 1) if line.strip()]
    order = {name: index for index, name in enumerate(transfer.KINDS)}
    # What a record refers to comes before it; a kind that does not exist comes first and is refused first.
    read.sort(key=lambda numbered: order.get(str(numbered[1]["record"]), -1))
    counts: dict[str, int] = {}
    chunks = [read[start : start + CHUNK] for start in range(0, len(read), CHUNK)]
    for chunk in _with_bar(chunks, len(read)):
        records = [record for _, record in chunk]
        done = transfer.import_records(context.store, records=records, **context.project())
        if isinstance(done, Refused):
            raise Stop(_at_line(done, chunk, sum(counts.values())))
        for name, count in done.items():
            counts[name] = counts.get(name, 0) + count
    result = Result(data=counts, lines=[_told(counts)], next=["tenure status"])
    missing = _missing(context, [record for _, record in read])
    if not missing:
        return result
    told = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
    return result.replace(warnings=[f"tasks were imported that wait for what is not there: {told}"])


def _told(counts: dict[str, int]) -> str:
    """Imported 6 tasks, 1 message; 1 project was there already; 23 receipts are not imported"""
    fates: dict[str, list[str]] = {}
    totals: dict[str, int] = {}
    for name, count in counts.items():
        kind, _, fate = name.partition("_")
        fates.setdefault(fate, []).append(counted(count, kind.removesuffix("s")))
        totals[fate] = totals.get(fate, 0) + count
    parts = [f"Imported {', '.join(fates.get('', ['nothing']))}"]
    if "skipped" in fates:
        parts.append(f"{', '.join(fates['skipped'])} {'was' if totals['skipped'] == 1 else 'were'} there already")
    if "left_out" in fates:
        parts.append(f"{', '.join(fates['left_out'])} {'is' if totals['left_out'] == 1 else 'are'} not imported")
    return "; ".join(parts)


def _missing(context: Context, records: list[dict[str, Any]]) -> list[str]:
    """The tasks that imported ones wait for and that do not exist."""
    from tenure.core.model import DEFAULT_PROJECT
    from tenure.engine import dependencies

    projects = {
        context.project_id or str(record.get("project_id") or DEFAULT_PROJECT)
        for record in records
        if record["record"] == "task" and any(record.get(name) for name in ("after", "depends_on", "blocked_by"))
    }
    edges = [
        edge for project in sorted(projects) for edge in must(dependencies.graph(context.store, project_id=project))
    ]
    return sorted({edge.needs for edge in edges if edge.missing})


def _at_line(refusal: Refused, chunk: list[Numbered], before: int) -> Refused:
    """The refusal of a record, told by its line."""
    if "index" not in refusal.facts:
        return refusal
    number = chunk[refusal.facts["index"]][0]
    kept = f" {counted(before, 'record')} before it came in." if before else " Nothing was imported."
    facts = {name: value for name, value in refusal.facts.items() if name != "index"}
    return refusal.replace(message=f"Line {number}: {refusal.message}{kept}", facts={**facts, "line": number})


def _read(path: str) -> list[str]:
    try:
        if path == "-":
            return sys.stdin.read().splitlines()
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError as error:
        raise Stop(refuse("invalid_argument", f"{path} cannot be read: {error.strerror}.")) from error
    except UnicodeDecodeError as error:
        raise Stop(refuse("invalid_argument", f"{path} is not UTF-8 text.")) from error


def _record(number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Stop(refuse("invalid_argument", f"Line {number} is not JSON: {error}.", line=number)) from error
    if not isinstance(value, dict):
        raise Stop(refuse("invalid_argument", f"Line {number} is not an object.", line=number))
    return {"record": "task", **value}


def _with_bar(chunks: list[list[Numbered]], total: int) -> Iterator[list[Numbered]]:
    """The chunks, with a bar on a terminal when there are many records."""
    if total < BAR_FROM or not sys.stderr.isatty():
        yield from chunks
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Importing", total=total)
        for chunk in chunks:
            yield chunk
            progress.advance(bar, len(chunk))
