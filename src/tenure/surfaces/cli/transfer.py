"""`tenure export` and `tenure import`: everything as JSON lines.

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
    told = ", ".join(_told(name, count) for name, count in counts.items() if count) or "nothing"
    return Result(data=counts, lines=[f"Imported {told}"], next=["tenure status"])


def _told(name: str, count: int) -> str:
    """3 tasks; 1 task skipped."""
    kind, _, fate = name.replace("_", " ").partition(" ")
    return f"{counted(count, kind.removesuffix('s'))} {fate}".rstrip()


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
