"""External gates over HTTP: what waits for each, what it refused for good, and having that sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT
from tenure.engine import outbox
from tenure.surfaces import shapes
from tenure.surfaces.http import answers, wire
from tenure.surfaces.http.requests import body_of, node_of, speaker_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from tenure.surfaces.http.node import Node

# metric: help
METRICS = {
    "tenure_gate_waiting": "Receipts that a gate still has to get, those to be sent again included.",
    "tenure_gate_parked": "Receipts that a gate refused for good.",
    "tenure_gate_sent_seq": "The place in our ledger up to which a gate has everything but what is parked.",
    "tenure_gate_last_exchange_seconds": "How long ago a gate last answered.",
}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


async def list_gates(request: Request) -> Response:
    """Every configured gate, or a project's."""
    found = await node_of(request).call(outbox.list_gates, project_id=request.query_params.get("project"))
    if isinstance(found, Refused):
        return answers.problem(found)
    return answers.reply({"gates": [shapes.gate(one) for one in found]})


async def resend(request: Request) -> Response:
    """Have parked receipts sent again: for operators, since it is they who know that the cause is gone."""
    speaker = speaker_of(request)
    if speaker is not None:
        return answers.problem(refuse("not_permitted", f"This token speaks for {speaker}, not for an operator."))
    body = await body_of(request, wire.Resend, empty=True)
    if isinstance(body, Refused):
        return answers.problem(body)
    done = await node_of(request).call(
        outbox.resend_receipts,
        project_id=request.query_params.get("project") or DEFAULT_PROJECT,
        receipt_id=body.receipt_id,
    )
    if isinstance(done, Refused):
        return answers.problem(done)
    return answers.reply({"receipts": done.receipts, "gate": shapes.gate(done.gate)})


async def health(node: Node) -> dict[str, Any] | Refused:
    """What `/health` says of gates."""
    found = await node.call(outbox.list_gates)
    return found if isinstance(found, Refused) else {"gates": [shapes.gate(one) for one in found]}


async def metrics(node: Node) -> list[str]:
    """How each gate does, by project and gate: as many samples as projects name a gate."""
    found = await node.call(outbox.list_gates)
    views = () if isinstance(found, Refused) else found
    ages = _ages(node)
    lines = []
    for name, told in METRICS.items():
        lines += [f"# HELP {name} {told}", f"# TYPE {name} gauge"]
        for view in views:
            value = _value(name, view, ages)
            if value is not None:
                lines.append(f"{name}{_labels(project=view.project_id, gate=view.gate)} {value}")
    return lines


def _value(name: str, view: outbox.GateView, ages: Mapping[tuple[str, str], float]) -> float | None:
    if name == "tenure_gate_waiting":
        return view.waiting + view.resending
    if name == "tenure_gate_last_exchange_seconds":
        # This server knows its own exchanges exactly, and the store those of every server, to within a minute.
        known = (ages.get((view.project_id, view.gate)), view.heard_age_s)
        return min((age for age in known if age is not None), default=None)
    return int(getattr(view, name.removeprefix("tenure_gate_")))


def _ages(node: Node) -> dict[tuple[str, str], float]:
    """How long ago this server's links were last answered, where they were."""
    links = [link for status in node.monitors.statuses() for link in getattr(status, "gates", ())]
    return {
        (link["project_id"], link["gate"]): link["last_exchange_age_s"]
        for link in links
        if link["last_exchange_age_s"] is not None
    }


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"
