"""`tenure receipts ...` and `tenure events`."""

from __future__ import annotations

import json

from tenure.core.errors import EXIT_OK, refuse
from tenure.surfaces.cli.context import LIMIT_MAX, must
from tenure.surfaces.cli.output import Result, ago, clean, counted, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tenure.core.model import Event, Receipt
    from tenure.surfaces.cli.context import Context

# How often a follower asks whether anyone has written, which costs microseconds.
FOLLOW_S = 0.1


def list_receipts(context: Context) -> Result:
    """List receipts, a page at a time."""
    from tenure.engine import receipts, recent
    from tenure.surfaces import shapes

    limit, after = context.get("limit", 50), context.get("from")
    wanted = {"task_id": context.get("task"), "phase": context.get("phase"), "limit": limit, **context.project()}
    if after is None:
        found = must(recent.recent_receipts(context.store, **wanted))
    else:
        found = must(receipts.list_receipts(context.store, after=after, **wanted))
    rows = []
    for one in found:
        body = json.loads(one.body)
        told = (
            body["status"] if one.phase == "complete" else body["escalation_reason"] if one.phase == "escalate" else ""
        )
        rows.append(
            [
                one.receipt_id,
                one.task_id,
                one.phase,
                clean(told),
                clean(body["source_system"]),
                ago(one.at_ms, context.now_ms),
            ]
        )
    lines = table(rows, ("RECEIPT", "TASK", "PHASE", "", "FROM", "WHEN")) if rows else ["No receipts."]
    told, more = _more(context, "receipts list", found, limit)
    return Result(data={"receipts": [shapes.receipt(one) for one in found]}, lines=[*lines, *told], next=more)


def _more(context: Context, words: str, found: Sequence[Event | Receipt], limit: int) -> tuple[list[str], list[str]]:
    """The line and the command that show what is beyond this page: what was before the newest, or what follows."""
    if len(found) < limit:
        return [], []
    if context.get("from") is None:
        more = context.more(words, limit)
        # At the longest page there is, the only way on is from the beginning.
        beginning: dict[str, Any] = {"from": 0}
        more = more if limit < LIMIT_MAX else context.again(words, **beginning)
        return [f"Earlier: {more}"], [more]
    cursor: dict[str, Any] = {"from": found[-1].seq}
    more = context.again(words, **cursor)
    return [f"More: {more}"], [more]


def show_receipt(context: Context) -> Result:
    """Show one receipt."""
    from tenure.engine import receipts
    from tenure.surfaces import shapes

    shape = shapes.receipt(must(receipts.show_receipt(context.store, receipt_id=context.get("receipt"))))
    said = {name: value for name, value in shape.items() if value not in ("NA", "TBD", None, {}, 0)}
    return Result(data=shape, lines=[f"{name}: {clean(str(value), 500)}" for name, value in said.items()])


def verify(context: Context) -> Result:
    """Check the ledger."""
    from tenure.engine import receipts

    checked = must(receipts.verify(context.store, task_id=context.get("task"), **context.project()))
    data = {**checked.as_dict(), "faults": list(checked.faults)}
    lines = [
        f"{counted(checked.receipts, 'receipt')} of {counted(checked.tasks, 'task')}, "
        f"{counted(checked.seals, 'seal')}, {checked.unsealed} unsealed"
    ]
    if checked.faults:
        refusal = refuse("unhealthy", f"The ledger was changed from outside: {clean(checked.faults[0])}")
        return Result(data=data, lines=[*lines, *map(clean, checked.faults)], refusal=refusal)
    return Result(data=data, lines=[*lines, "The ledger is intact."])


def events(context: Context) -> Result:
    """Show what happened."""
    from tenure.core.story import sentence
    from tenure.engine import observe, recent
    from tenure.surfaces import shapes

    limit, after = context.get("limit", 50), context.get("from")
    agent = context.get("agent")
    wanted = {
        "task_id": context.get("task"),
        "agent_id": context.named_agent(agent) if agent else None,
        **context.project(),
    }
    if context.get("follow"):
        return _follow(context, wanted, limit)
    if after is None:
        found = must(recent.recent_events(context.store, limit=limit, **wanted))
    else:
        found = must(observe.events(context.store, after=after, limit=limit, **wanted))
    rows = [[str(one.seq), ago(one.at_ms, context.now_ms), one.task_id or "", clean(sentence(one))] for one in found]
    lines = table(rows, ("SEQ", "WHEN", "TASK", "WHAT")) if rows else ["No events."]
    told, more = _more(context, "events", found, limit)
    return Result(data={"events": [shapes.event(one) for one in found]}, lines=[*lines, *told], next=more)


def _follow(context: Context, wanted: dict[str, Any], limit: int) -> Result:
    """Print the newest page and then every event as it comes, until Ctrl-C. With --json, a document for each look."""
    import sys
    import time

    from tenure.core.story import sentence
    from tenure.core.times import iso
    from tenure.engine import observe, recent
    from tenure.surfaces import shapes
    from tenure.surfaces.cli.output import envelope, print_json

    as_json = context.get("json") or context.get("format") == "json"
    after, version = context.get("from"), context.store.data_version()
    if after is None:
        # Noted before the page is read: what is written meanwhile is in the page or after it.
        after = must(observe.newest_event(context.store))
        found = must(recent.recent_events(context.store, limit=limit, **wanted))
    else:
        found = must(observe.events(context.store, after=after, limit=LIMIT_MAX, **wanted))
    try:
        while True:
            if found and as_json:
                print_json(envelope(Result(data={"events": [shapes.event(one) for one in found]})))
            for one in () if as_json else found:
                print(f"{one.seq}  {iso(one.at_ms)}  {one.task_id or '-'}  {clean(sentence(one))}")
            sys.stdout.flush()
            after = max(after, found[-1].seq) if found else after
            # A full page may not be the last one.
            while len(found) < LIMIT_MAX and version == (seen := context.store.data_version()):
                time.sleep(FOLLOW_S)
            version = seen if len(found) < LIMIT_MAX else version
            found = must(observe.events(context.store, after=after, limit=LIMIT_MAX, **wanted))
    except KeyboardInterrupt:
        raise SystemExit(EXIT_OK) from None
