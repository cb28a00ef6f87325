"""`tenure receipts ...` and `tenure events`."""

from __future__ import annotations

import json

from tenure.core.errors import refuse
from tenure.surfaces.cli.context import must
from tenure.surfaces.cli.output import Result, ago, clean, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context


def list_receipts(context: Context) -> Result:
    """List receipts, a page at a time."""
    from tenure.engine import receipts
    from tenure.surfaces import shapes

    limit = context.get("limit", 50)
    found = must(
        receipts.list_receipts(
            context.store,
            task_id=context.get("task"),
            phase=context.get("phase"),
            after=context.get("from", 0),
            limit=limit,
            **context.project(),
        )
    )
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
    more = [context.again("receipts list", **{"from": found[-1].seq})] if len(found) >= limit else []
    return Result(
        data={"receipts": [shapes.receipt(one) for one in found]},
        lines=[*lines, *(f"More: {m}" for m in more)],
        next=more,
    )


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
        f"{checked.receipts} receipts of {checked.tasks} tasks, {checked.seals} seals, {checked.unsealed} unsealed"
    ]
    if checked.faults:
        refusal = refuse("unhealthy", f"The ledger was changed from outside: {clean(checked.faults[0])}")
        return Result(data=data, lines=[*lines, *map(clean, checked.faults)], refusal=refusal)
    return Result(data=data, lines=[*lines, "The ledger is intact."])


def events(context: Context) -> Result:
    """Show what happened."""
    from tenure.core.story import sentence
    from tenure.engine import observe
    from tenure.surfaces import shapes

    limit = context.get("limit", 50)
    found = must(
        observe.events(
            context.store,
            after=context.get("from", 0),
            limit=limit,
            task_id=context.get("task"),
            agent_id=context.get("agent"),
            **context.project(),
        )
    )
    rows = [[str(one.seq), ago(one.at_ms, context.now_ms), one.task_id or "", clean(sentence(one))] for one in found]
    lines = table(rows, ("SEQ", "WHEN", "TASK", "WHAT")) if rows else ["No events."]
    more = [context.again("events", **{"from": found[-1].seq})] if len(found) >= limit else []
    return Result(
        data={"events": [shapes.event(one) for one in found]}, lines=[*lines, *(f"More: {m}" for m in more)], next=more
    )
