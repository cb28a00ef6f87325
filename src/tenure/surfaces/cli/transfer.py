"""`tenure export` and `tenure import`: everything as JSON lines.

Each line is an object with a `record`: project, task, message, decision, artifact, receipt. Import adds what is not
there yet and skips what is; leases do not travel (a task in progress comes back as todo), and receipts are exported for
reading only, because a ledger is appended to by its own store and by nobody else.
"""

from __future__ import annotations

import json
import sys

from tenure.core.errors import refuse
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TextIO

    from tenure.surfaces.cli.context import Context

PAGE = 500
CHUNK = 500
# Bars are for people who wait: only on a terminal, and only for files worth waiting for.
BAR_FROM = 2_000


def export(context: Context) -> Result:
    """Write every record, one per line."""
    counts: dict[str, int] = {}
    target = context.get("output")
    as_json = context.get("json") or context.get("format") == "json"
    if target is None and as_json:
        raise Stop(refuse("usage", "export: with --json the lines need a file: --output FILE"))
    stream = sys.stdout if target is None else _open_new(target)
    try:
        for record in _records(context):
            counts[record["record"]] = counts.get(record["record"], 0) + 1
            stream.write(json.dumps(record, ensure_ascii=True) + "\n")
    finally:
        if target is not None:
            stream.close()
    told = ", ".join(f"{count} {name}s" for name, count in counts.items())
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
    records = [_record(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    order = {name: index for index, name in enumerate(transfer.KINDS)}
    records.sort(key=lambda record: order.get(record["record"], 0))
    counts: dict[str, int] = {}
    chunks = [records[start : start + CHUNK] for start in range(0, len(records), CHUNK)]
    for chunk in _with_bar(chunks, len(records)):
        done = must(transfer.import_records(context.store, records=chunk, **context.project()))
        for name, count in done.items():
            counts[name] = counts.get(name, 0) + count
    told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count) or "nothing"
    return Result(data=counts, lines=[f"Imported {told}"], next=["tenure status"])


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


def _with_bar(chunks: list[list[dict[str, Any]]], total: int) -> Iterator[list[dict[str, Any]]]:
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
