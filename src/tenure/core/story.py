"""The story of a task in sentences: one for each kind of event. The table is the list of event kinds."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenure.core.model import Event, Receipt


def recovery_numbers(data: dict[str, Any]) -> str:
    """Why a holder was declared dead, in numbers."""
    if "died_at_ms" in data:
        told = "it departed" if data.get("reason") == "departed" else "its process was seen to exit"
        return f"{told}; silent {_s(data['silent_s'])}"
    cadence = data.get("cadence_s")
    words = f"silent {_s(data['silent_s'])}; allowed lease {_n(data['lease_s'])} + grace {_n(data['grace_s'])}"
    return f"{words}; cadence {_n(cadence)}" if cadence else words


def _n(value: float) -> str:
    return f"{value:g}"


def _s(value: float) -> str:
    return f"{value:g} s"


def _fixed(text: str) -> Callable[[str, dict[str, Any]], str]:
    return lambda agent, data: text.format(agent=agent or "someone", **data)


def _reported(agent: str, data: dict[str, Any]) -> str:
    message = f": {data['message']}" if data.get("message") else ""
    return f"{agent} reports {data['progress']}%{message}"


def _revoked(agent: str, data: dict[str, Any]) -> str:
    by = f" by {data['by']}" if data.get("by") else ""
    return f"taken away from {agent} ({data['reason']}){by}"


def _acted(agent: str, data: dict[str, Any]) -> str:
    shown = f"the card is {data['status'].replace('_', ' ')}, {data['assignee'] or 'nobody'}'s"
    reverted = f" ({data['reversion']})" if data.get("reversion") else ""
    return f"{agent} acted on the board: {shown}; {data['action'].replace('_', ' ')}{reverted}"


def _with_message(text: str) -> Callable[[str, dict[str, Any]], str]:
    def tell(agent: str, data: dict[str, Any]) -> str:
        said = f": {data['message']}" if data.get("message") else ""
        return text.format(agent=agent or "someone", **data) + said

    return tell


# Every kind of event the engine writes, and how it is told. A test checks that none is missing.
SENTENCES: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "task_added": _fixed("added"),
    "task_edited": lambda agent, data: f"edited: {', '.join(data['fields'])}",
    "task_deleted": _fixed("deleted by {agent}"),
    "assigned": lambda agent, data: f"assigned to {data['assigned_to'] or 'nobody'} by {agent}",
    "depends": _fixed("made to wait for {needs}"),
    "independent": _fixed("no longer waits for {needs}"),
    "offered": _fixed("offered to {agent} ({profile})"),
    "accepted": _fixed("accepted by {agent}"),
    "granted": _fixed("claimed by {agent} ({profile}, token {token})"),
    "reported": _reported,
    "decision": lambda agent, data: f"{agent} decided: {data['decision']}",
    "artifact": _fixed("{agent} made {filename}"),
    "message": lambda agent, data: f"{agent} wrote: {data['text']}",
    "warning": _fixed("{agent} was warned: its lease is about to expire"),
    "stuck": _fixed("{agent} renewed {renewals} times without finishing: flagged as stuck"),
    "max_renewals": _fixed("{agent} reached {renewals} renewals, the maximum: flagged"),
    "offer_expired": _fixed("the offer to {agent} was not accepted in time"),
    "recovered": lambda agent, data: f"recovered from {agent} ({data['reason']}): {recovery_numbers(data)}",
    "timer_failed": _fixed("looking at it failed and is tried again: {error}"),
    "rescued": _fixed("uncommitted work of {agent} was saved: {files} files in {ref}"),
    "returned": lambda agent, data: f"{agent} proved to be alive {_s(data['after_ms'] / 1000)} after its recovery",
    "healed": _fixed("{agent} came back and took the task up again ({note})"),
    "released": _with_message("released by {agent}"),
    "blocked": _fixed("blocked by {agent}: {reason}"),
    "unblocked": _fixed("unblocked by {agent}"),
    "escalated": _fixed("{agent} {reason}"),
    "revoked": _revoked,
    "failed": _with_message("{agent} failed; {attempts} attempts used, now {status}"),
    "canceled": _with_message("canceled by {agent}"),
    "late": _fixed("a late {status} of {agent} was recorded"),
    "completed": _with_message("completed by {agent}"),
    "reopened": _fixed("reopened by {agent}"),
    "requeued": _fixed("requeued by {agent}"),
    "registered": _fixed("{agent} registered (incarnation {incarnation})"),
    "departed": _fixed("{agent} departed: {reason}"),
    "linked": _fixed("{agent} linked ({link})"),
    "unlinked": _fixed("{agent} lost a link ({link})"),
    "died": _fixed("{agent} died (incarnation {incarnation})"),
    "server_started": _fixed("server {server} started; lifted {lifted} leases"),
    "receipt_parked": _fixed("the gate refused receipt {receipt_id} for good, which is parked: {reason}"),
    "receipt_unparked": _fixed("receipt {receipt_id}, which was parked, was sent again and taken by the gate"),
    "gate_refused": _fixed("receipt {receipt_id} of {agent}, read at the gate, could not be applied: {reason}"),
    "design_started": _fixed("the design program was started (attempt {attempt} of {of})"),
    "design_failed": _fixed("the design program failed (attempt {attempt} of {of}): {error}"),
    "design_substituted": _fixed("the built-in brief took the place of the design document: {error}"),
    "board_connected": _fixed("project {project} connected with the board {board}"),
    "board_disconnected": _fixed("project {project} is no longer on the board {board}"),
    "board_act": _acted,
    "board_refused": _fixed("what {agent} did on the board could not be done: {reason}"),
    "board_parked": _fixed("its card will not take a write, which is parked: {reason}"),
    "board_alert": _fixed("taken from its holder on the board {reversions} times: somebody should look"),
    "board_down": _fixed("the board of {project} cannot be used: {error}"),
    "gridlock": _fixed("project {project} is gridlocked; {agents} agents ask for work: {why}"),
    "project_created": _fixed("project {project} created"),
    "configured": lambda agent, data: f"settings of {data['project'] or 'the store'} changed",
}


def sentence(event: Event) -> str:
    """One event, told. A kind written by a newer version is shown by its name."""
    tell = SENTENCES.get(event.kind)
    return event.kind if tell is None else tell(event.agent_id or "", json.loads(event.data))


def receipt_sentence(receipt: Receipt) -> str:
    """One receipt, told."""
    body = json.loads(receipt.body)
    said = {
        "accepted": "",
        "progress": f" {body['progress']}%",
        "complete": f" {body['status']}",
        "escalate": f" to {body['escalation_to']}: {body['escalation_reason']}",
    }[receipt.phase]
    return f"receipt {receipt.position}: {receipt.phase}{said} (from {body['source_system']})"
