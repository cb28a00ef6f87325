"""`tenure gate ...`: the external ReceiptGates that projects name."""

from __future__ import annotations

from tenure.core.times import iso
from tenure.surfaces.cli.context import must
from tenure.surfaces.cli.output import Result, ago, clean, counted, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.engine.outbox import GateView
    from tenure.surfaces.cli.context import Context


def status(context: Context) -> Result:
    """Every configured gate."""
    from tenure.engine.outbox import list_gates
    from tenure.surfaces import shapes

    views = must(list_gates(context.store, **context.project()))
    lines = []
    for view in views:
        lines += [f"{view.project_id}: {clean(view.gate, 200)}", *(f"  {line}" for line in _told(view, context.now_ms))]
    parked = [view for view in views if view.parked]
    return Result(
        data={"gates": [shapes.gate(view) for view in views]},
        lines=lines or ["No external gate: receipts stay in this ledger."],
        next=[f"tenure gate resend --project {view.project_id}" for view in parked],
    )


def resend(context: Context) -> Result:
    """Have parked receipts sent again. A server sends them."""
    from tenure.engine.outbox import resend_receipts
    from tenure.surfaces import shapes

    chosen = {"receipt_id": context.get("receipt")} if context.get("receipt") else {}
    done = must(resend_receipts(context.store, **context.project(), **chosen))
    told = f"{counted(done.receipts, 'receipt')} to be sent again, by the server."
    lines = [told if done.receipts else "Nothing is parked."]
    return Result(
        data={"receipts": done.receipts, "gate": shapes.gate(done.gate)},
        lines=[*lines, *_told(done.gate, context.now_ms)],
        next=["tenure gate"],
    )


def _told(view: GateView, now_ms: int) -> list[str]:
    again = f", {view.resending} to be sent again" if view.resending else ""
    lines = [
        f"sent up to {view.sent_seq}, {view.waiting} waiting{again}; read up to {view.read_seq}; parked: {view.parked}"
    ]
    for one in view.parked_receipts:
        what = f"{clean(one.receipt_id, 60)} ({clean(one.task_id, 60)}, {one.phase})"
        lines.append(f"parked {ago(one.at_ms, now_ms)}  {what}: {clean(one.reason, 300)}")
    if view.parked > len(view.parked_receipts):
        lines.append(f"and {view.parked - len(view.parked_receipts)} parked before")
    if view.heard_at_ms:
        lines.append(f"last answered {ago(view.heard_at_ms, now_ms)} ({iso(view.heard_at_ms)})")
    if view.error:
        lines.append(f"{paint('down', 'red')}  {clean(view.error, 300)}")
    return lines


def findings_for_doctor(context: Context) -> list[tuple[str, bool, str]]:
    """What `doctor` says of every gate: name, whether it is well, what it found. Talks to no server."""
    from tenure.engine.outbox import list_gates

    found = []
    for view in must(list_gates(context.store)):
        refused = [f"{one.receipt_id}: {one.reason}" for one in view.parked_receipts[:3]]
        troubles = [*([view.error] if view.error else []), *refused]
        detail = f"{view.waiting + view.resending} to send, {view.parked} parked"
        found.append((f"gate of {view.project_id}", not troubles, "; ".join([detail, *troubles])))
    return found
