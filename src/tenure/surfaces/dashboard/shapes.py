"""Records as the page reads them: times as milliseconds of the store's clock, so that a countdown needs no parsing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tenure.core.deadline import median_gap_ms
from tenure.core.handoff import is_pending
from tenure.core.phases import phase_of
from tenure.core.signs import extension_of, signs_of
from tenure.core.story import sentence
from tenure.surfaces import shapes

if TYPE_CHECKING:
    from tenure.core.model import Event, Lease
    from tenure.engine.board import Board, Card, Changes
    from tenure.engine.boards import BoardView
    from tenure.engine.fleet import Member, Span
    from tenure.engine.neighbours import Neighbours
    from tenure.engine.observe import Statistics, TaskView
    from tenure.engine.outbox import GateView
    from tenure.engine.pace import Pace


def lease(value: Lease) -> dict[str, Any]:
    """A lease with all that its ring is drawn from."""
    return {
        "lease_id": value.lease_id,
        "task_id": value.task_id,
        "agent_id": value.agent_id,
        "token": value.token,
        "state": value.state,
        "profile": value.profile,
        "phase": "" if value.fixed else phase_of(value.reports, value.progress),
        "fixed": bool(value.fixed),
        "granted_at": value.granted_at_ms,
        "seen_at": value.seen_at_ms,
        "expires_at": value.expires_at_ms,
        "grace_ms": 0 if value.fixed else value.grace_ms,
        "term_ms": value.term_ms,
        "recover_at": value.recover_at_ms,
        "died_at": value.death_at_ms,
        # What moves the deadline beyond term and grace: cadence, link, announcement, or nothing.
        "extension": extension_of(value),
        "progress": value.progress,
        "stuck": bool(value.stuck),
    }


def deadline(value: Lease) -> list[Any]:
    """What a touch changes of a lease, as a short row: see `leases.js`."""
    return [
        value.lease_id,
        value.task_id,
        value.seen_at_ms,
        value.expires_at_ms,
        value.recover_at_ms,
        0 if value.fixed else value.grace_ms,
        extension_of(value),
        value.progress,
        "" if value.fixed else phase_of(value.reports, value.progress),
        value.death_at_ms,
    ]


def view(value: TaskView) -> dict[str, Any]:
    task = value.task
    waits_until = max(task.not_before_ms, task.retry_at_ms) if task.waiting else 0
    return {
        "task_id": task.task_id,
        "title": task.title,
        "kind": task.kind,
        "status": value.status,
        "due": value.due,
        "priority": task.priority,
        "complexity": task.complexity,
        "assigned_to": None if value.due else task.assigned_to,
        "owner": task.owner,
        "progress": task.progress,
        "attempts": task.attempts,
        "max_attempts": task.max_attempts,
        "unmet": task.unmet,
        "slots": task.slots,
        "requires": task.requires.split(),
        "waits_until": waits_until or None,
        "blocked_reason": task.blocked_reason,
        "outcome": task.outcome,
        "rank": task.rank_ms,
        "created_at": task.created_at_ms,
        "updated_at": task.updated_at_ms,
        "done_at": task.done_at_ms,
        "leases": [lease(held) for held in value.leases],
    }


def card(value: Card) -> dict[str, Any]:
    return {
        **view(value.view),
        "needs": [
            {"task_id": need.task_id, "state": "missing" if need.missing else "done" if need.done else "open"}
            for need in value.needs
        ],
        "left": None
        if value.left is None
        else {"agent_id": value.left.agent_id, "at": value.left.at_ms, "reason": value.left.reason},
    }


def numbers(value: Statistics) -> dict[str, Any]:
    return value.as_dict()


def board(value: Board) -> dict[str, Any]:
    return {
        "project_id": value.project_id,
        "cards": [card(one) for one in value.cards],
        "numbers": numbers(value.numbers),
        "kinds": list(value.kinds),
        "seq": value.seq,
        # The same to come back with, as text: a browser's numbers are exact up to 2**53 only.
        "cursor": str(value.seq),
        "now": value.now_ms,
    }


def event(value: Event) -> dict[str, Any]:
    """An event with its sentence, which is what people read."""
    return {
        "seq": value.seq,
        "at": value.at_ms,
        "kind": value.kind,
        "task_id": value.task_id,
        "agent_id": value.agent_id,
        "text": sentence(value),
    }


def changes(value: Changes, leases: list[list[Any]]) -> dict[str, Any]:
    return {
        "now": value.now_ms,
        "seq": value.seq,
        "events": [event(one) for one in value.events],
        "cards": [card(one) for one in value.cards],
        "gone": list(value.gone),
        "leases": leases,
        "numbers": numbers(value.numbers),
    }


def span(value: Span, *, signs: bool) -> dict[str, Any]:
    """A lease in time; with its signs of life as [at, gap, allowed]."""
    held = value.lease
    return {
        **lease(held),
        "ended_at": held.ended_at_ms,
        "end_reason": held.end_reason,
        "returned_at": held.returned_at_ms,
        "handed_over_at": value.handed_over_at_ms,
        "live": value.live,
        "carried": value.carried,
        "touches": held.touches,
        "reports": held.reports,
        "renewals": held.renewals,
        "median_gap_ms": median_gap_ms(held),
        "signs": [[sign.at_ms, sign.gap_ms, sign.allowed_ms] for sign in signs_of(held)] if signs else [],
        "told": [{"at": told.at_ms, "kind": told.kind, "text": told.text} for told in value.told],
    }


def member(value: Member) -> dict[str, Any]:
    agent = value.agent
    return {
        "agent_id": agent.agent_id,
        "name": agent.name,
        "role": agent.role,
        "profile": agent.profile,
        "incarnation": agent.incarnation,
        "state": agent.state,
        "link": value.link,
        "links": [{"kind": one.kind, "pid": one.pid, "pulsed_at": one.pulsed_at_ms} for one in value.links],
        "registered_at": agent.registered_at_ms,
        "seen_at": agent.seen_at_ms,
        "branch": agent.branch,
        "worktree": agent.worktree,
        "health": value.health,
        "spans": [span(one, signs=True) for one in value.spans],
    }


def pace(value: Pace) -> dict[str, Any]:
    return {
        "now": value.now_ms,
        "since": value.since_ms,
        "slice_ms": value.slice_ms,
        "slices": [one.as_dict() for one in value.slices],
        "numbers": numbers(value.numbers),
        "ready": value.ready,
        "oldest": None if value.oldest is None else value.oldest.as_dict(),
        "gridlocked": value.gridlock.gridlocked,
        "gridlock": value.gridlock.sentences(),
        "gates": [gate(one) for one in value.gates],
        "dead": [view(one) for one in value.dead],
    }


def external(value: BoardView) -> dict[str, Any]:
    """An external board: what has still to be delivered to it, and what it would not take."""
    return {
        "name": f"{value.kind} {value.board}",
        "cards": value.cards,
        "pending": value.pending,
        "comments": value.comments,
        "parked": value.parked,
        "parked_writes": list(value.parked_writes),
        "swept_at": value.swept_at_ms or None,
        "error": value.error,
    }


def gate(value: GateView) -> dict[str, Any]:
    """An external gate: what it has still to get, and what it would not take."""
    return {
        "name": value.gate,
        "waiting": value.waiting + value.resending,
        "parked": value.parked,
        "parked_writes": [
            f"{one.receipt_id} ({one.task_id}, {one.phase}): {one.reason}" for one in value.parked_receipts
        ],
        "swept_at": value.heard_at_ms or None,
        "error": value.error,
    }


def neighbours(value: Neighbours) -> dict[str, Any]:
    return {
        "nodes": [{"task_id": one.task_id, "title": one.title, "status": one.status} for one in value.nodes],
        "edges": [list(edge) for edge in value.edges],
        "cut": value.cut,
    }


def handoff(value: Any) -> dict[str, Any]:
    return {
        **shapes.handoff(value),
        "at": value.recovered_at_ms,
        "expires_at": value.recovery_expires_at_ms,
        # Whether nobody has looked yet at what git shows.
        "pending": is_pending(value),
    }


def receipt(value: Any) -> dict[str, Any]:
    body = json.loads(value.body)
    return {
        "receipt_id": value.receipt_id,
        "position": value.position,
        "phase": value.phase,
        "at": value.at_ms,
        "source": body.get("source_system", ""),
        "status": body.get("status", ""),
        "progress": body.get("progress"),
        "reason": body.get("escalation_reason", ""),
        "hash": value.hash,
        "prev_hash": value.prev_hash,
    }
