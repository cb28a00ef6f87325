"""Records as the JSON that every surface sends: the vocabulary's names, times as RFC 3339."""

from __future__ import annotations

import json

from tenure.core.handoff import recovery_info
from tenure.core.times import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Agent, Event, Handoff, Lease, Link, Message, Receipt, Task
    from tenure.core.reconcile import AssignmentHealth
    from tenure.engine.claims import Grant
    from tenure.engine.observe import TaskDetail, TaskView
    from tenure.engine.outbox import GateView


def _time(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)


def assignments(value: AssignmentHealth) -> dict[str, Any]:
    """The specification's counts of assignments, and what differs."""
    return {**value.as_dict(), "mismatches": [one.as_dict() for one in value.mismatches]}


def lease(value: Lease) -> dict[str, Any]:
    """A lease, as its holder sees it."""
    return {
        "task_id": value.task_id,
        "agent_id": value.agent_id,
        "lease_id": value.lease_id,
        "token": value.token,
        "incarnation": value.incarnation,
        "state": value.state,
        "profile": value.profile,
        "granted_at": iso(value.granted_at_ms),
        "accepted_at": _time(value.accepted_at_ms),
        "expires_at": iso(value.expires_at_ms),
        "recover_at": iso(value.recover_at_ms),
        "seen_at": iso(value.seen_at_ms),
        "silent_until": _time(value.silent_until_ms),
        "lease_s": value.term_ms / 1000,
        "grace_s": value.grace_ms / 1000,
        "renewals": value.renewals,
        "progress": value.progress,
        "stuck": bool(value.stuck),
        "ended_at": _time(value.ended_at_ms),
        "end_reason": value.end_reason or None,
    }


def task(value: Task) -> dict[str, Any]:
    """A task as stored; `status` is overwritten by the derived one where a view is shown."""
    return {
        "task_id": value.task_id,
        "project_id": value.project_id,
        "title": value.title,
        "body": value.body,
        "kind": value.kind,
        "status": value.status,
        "priority": value.priority,
        "complexity": value.complexity,
        "estimated_hours": value.estimated_hours,
        "assigned_to": value.assigned_to,
        "owner": value.owner,
        "progress": value.progress,
        "attempts": value.attempts,
        "max_attempts": value.max_attempts,
        "unmet": value.unmet,
        "slots": value.slots,
        "requires": value.requires.split(),
        "lease_duration_s": value.lease_duration_s,
        "not_before": _time(value.not_before_ms or None),
        "retry_at": _time(value.retry_at_ms or None),
        "blocked_reason": value.blocked_reason or None,
        "inputs": json.loads(value.inputs) if value.inputs else {},
        "principal_ai": value.principal_ai or None,
        "payload_pointer": value.payload_pointer or None,
        "expected_outcome_kind": value.expected_outcome_kind or None,
        "expected_artifact_mime": value.expected_artifact_mime or None,
        "obligation": value.obligation,
        "created_at": iso(value.created_at_ms),
        "updated_at": iso(value.updated_at_ms),
        "done_at": _time(value.done_at_ms),
    }


def view(value: TaskView) -> dict[str, Any]:
    """A task as it should be seen now, with its live leases."""
    shape = task(value.task)
    if value.due:
        # The dead holder is gone, although nobody has written that down yet.
        shape.update(assigned_to=None, owner=None)
    return {
        **shape,
        "status": value.status,
        "due": value.due,
        "leases": [lease(held) for held in value.leases],
    }


def detail(value: TaskDetail) -> dict[str, Any]:
    """Everything about one task."""
    return {
        **view(value.view),
        "needs": [{"task_id": edge.needs, "missing": edge.missing} for edge in value.needs],
        "dependants": list(value.dependants),
        "handoffs": [handoff(one) for one in value.handoffs],
        "messages": [message(one) for one in value.messages],
    }


def handoff(value: Handoff) -> dict[str, Any]:
    """RecoveryInfo's eight keys, and what could be seen."""
    return {
        **recovery_info(value),
        "lease_id": value.lease_id,
        "token": value.token,
        "attempts": value.attempts,
        "last_message": value.last_message,
        "decisions": json.loads(value.decisions),
        "artifacts": json.loads(value.artifacts),
        "git": json.loads(value.git) if value.git else None,
        "worktree": value.worktree,
        "host": value.host,
        "exited": value.exited,
        "output_tail": value.output_tail,
    }


def message(value: Message) -> dict[str, Any]:
    return {
        "seq": value.seq,
        "at": iso(value.at_ms),
        "task_id": value.task_id,
        "from": value.sender,
        "to": value.recipient,
        "kind": value.kind,
        "text": value.text,
    }


def grant(value: Grant) -> dict[str, Any]:
    """A claim's answer: the lease at the top level, then what the claimant needs to begin."""
    return {
        **lease(value.lease),
        "task": task(value.task),
        "handoff": handoff(value.handoffs[0]) if value.handoffs else None,
        "earlier_handoffs": [handoff(one) for one in value.handoffs[1:]],
        "messages": [message(one) for one in value.messages],
        "resumed": value.resumed,
    }


def agent(value: Agent) -> dict[str, Any]:
    return {
        "agent_id": value.agent_id,
        "name": value.name,
        "role": value.role,
        "skills": value.skills.split("\n") if value.skills else [],
        "project_id": value.project_id,
        "profile": value.profile,
        "incarnation": value.incarnation,
        "state": value.state,
        "worktree": value.worktree,
        "host": value.host,
        "branch": value.branch,
        "registered_at": iso(value.registered_at_ms),
        "seen_at": iso(value.seen_at_ms),
    }


def link(value: Link) -> dict[str, Any]:
    return {
        "link_id": value.link_id,
        "kind": value.kind,
        "weak": bool(value.weak),
        "pid": value.pid,
        "incarnation": value.incarnation,
        "pulsed_at": iso(value.pulsed_at_ms),
    }


def receipt(value: Receipt) -> dict[str, Any]:
    """The receipt's own fields, and its place in the chain."""
    chain = {"seq": value.seq, "position": value.position, "prev_hash": value.prev_hash, "hash": value.hash}
    return {**json.loads(value.body), "chain": chain}


def event(value: Event) -> dict[str, Any]:
    return {
        "seq": value.seq,
        "at": iso(value.at_ms),
        "kind": value.kind,
        "project_id": value.project_id,
        "task_id": value.task_id,
        "lease_id": value.lease_id,
        "agent_id": value.agent_id,
        "data": json.loads(value.data),
    }


def gate(value: GateView) -> dict[str, Any]:
    """An external gate: how far it was carried, and what it would not take."""
    return {
        "project_id": value.project_id,
        "gate": value.gate,
        "sent_seq": value.sent_seq,
        "read_seq": value.read_seq,
        "waiting": value.waiting,
        "resending": value.resending,
        "parked": value.parked,
        "parked_receipts": [
            {
                "receipt_id": one.receipt_id,
                "task_id": one.task_id,
                "phase": one.phase,
                "reason": one.reason,
                "parked_at": iso(one.at_ms),
            }
            for one in value.parked_receipts
        ],
        "last_exchange_at": _time(value.heard_at_ms or None),
        "error": value.error,
    }
