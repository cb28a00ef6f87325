"""Somebody acted on a board: their act, carried out by the verbs there are.

Which action an act means is the table of core/reconcile.py. What cannot be done (an agent is named on a card whose
dependencies are not done, a title is empty) is refused as always; the refusal is told in an event and in a comment, and
the next write puts the card back.
"""

from __future__ import annotations

from tenure.core.deadline import live
from tenure.core.errors import Refused, refuse
from tenure.core.reconcile import REVERSIONS, SOMEONE, Assignment, CardState, action, reversion
from tenure.core.record import Record
from tenure.engine import change, claims, dependencies, endings, load, tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tenure.core.model import Lease, Task
    from tenure.store.store import Transaction

# Who acted, where the board does not say.
BOARD = "somebody"


class Acted(Record):
    """What became of somebody's acts on one card."""

    # The row of the table's action, and the reversion it was for a holder; None where status and name stayed.
    action: str | None = None
    reversion: int | None = None
    refusals: tuple[str, ...] = ()
    deleted: bool = False


def assignment_of(tx: Transaction, task: Task) -> tuple[Assignment, Lease | None]:
    """What the engine knows of a task, and the live lease that says so."""
    lease = next((one for one in load.unended_of_task(tx, task.key) if _holds(tx, one)), None)
    status = "todo" if task.status == "in_progress" and task.owner == "agent" and lease is None else task.status
    holder = lease.agent_id if lease else None
    known = Assignment(status=status, holder=holder, owner=task.owner, assigned_to=task.assigned_to)
    return known, lease


def _holds(tx: Transaction, lease: Lease) -> bool:
    return lease.state == "active" and live(lease, tx.now_ms)


def apply(tx: Transaction, task: Task, card: CardState, acts: Mapping[str, Any], actor: str) -> Acted:
    """Carry out what somebody changed on a card. `card` is the whole card, `acts` the fields that changed."""
    refusals = [*_edit(tx, task, acts), *_link(tx, task, acts)]
    if "status" not in acts and "assignee" not in acts:
        return Acted(refusals=tuple(refusals))
    task = load.task_by_key(tx, task.key)
    known, lease = assignment_of(tx, task)
    is_agent = card.assignee is not None and load.agent_named(tx, card.assignee) is not None
    chosen, _ = action(known, card, is_agent=is_agent, assignee_acted="assignee" in acts)
    reverted = reversion(card, lease.agent_id) if lease is not None and chosen != "keep" else None
    refused = _carry_out(tx, task, chosen, card, lease, actor)
    if refused is not None:
        refusals.append(f"{chosen}: {refused.message}")
    change.record(
        tx,
        "board_act",
        task=task,
        agent_id=actor,
        action=chosen,
        status=card.status,
        assignee=card.assignee,
        reversion=REVERSIONS[reverted] if reverted else None,
    )
    return Acted(action=chosen, reversion=reverted, refusals=tuple(refusals))


def remove(tx: Transaction, task: Task) -> None:
    """The card is gone, for certain: so is the task."""
    deleted = tasks.delete_task.body(tx, task_id=task.task_id, project_id=task.project_id, by=BOARD, force=True)
    assert not isinstance(deleted, Refused)


def _edit(tx: Transaction, task: Task, acts: Mapping[str, Any]) -> list[str]:
    fields = {name: acts[name] for name in ("title", "body", "priority") if name in acts}
    if not fields:
        return []
    edited = tasks.edit_task.body(tx, task_id=task.task_id, project_id=task.project_id, **fields)
    return [f"edit: {edited.message}"] if isinstance(edited, Refused) else []


def _link(tx: Transaction, task: Task, acts: Mapping[str, Any]) -> list[str]:
    if "needs" not in acts:
        return []
    have = {row["needs_id"] for row in tx.all("needs_of", task_key=task.key)}
    named: dict[str, Any] = {"task_id": task.task_id, "project_id": task.project_id}
    refusals = []
    for needs in sorted(set(acts["needs"]) - have):
        refused = dependencies.add_dependency.body(tx, needs=needs, **named)
        if isinstance(refused, Refused):
            refusals.append(f"link: {refused.message}")
    for needs in sorted(have - set(acts["needs"])):
        dependencies.remove_dependency.body(tx, needs=needs, **named)
    return refusals


def _carry_out(
    tx: Transaction, task: Task, chosen: str, card: CardState, lease: Lease | None, actor: str
) -> Refused | None:
    named: dict[str, Any] = {"task_id": task.task_id, "project_id": task.project_id}
    if chosen == "keep":
        return None
    if chosen == "complete":
        assert lease is not None
        done = endings.complete.body(tx, **named, agent_id=lease.agent_id, lease_id=lease.lease_id)
        return done if isinstance(done, Refused) else None
    if chosen == "complete_by":
        done = endings.complete.body(tx, **named, agent_id=card.assignee or actor, force=True)
        return done if isinstance(done, Refused) else None
    if chosen == "block":
        return _block(tx, task, actor)
    if lease is not None:
        # Its holder is told on its next call; a message would come back to the board as a comment about itself.
        revoked = endings.revoke_leases(tx, task, "moved_on_board", by=actor, message="")
        assert not isinstance(revoked, Refused)
        task = revoked.task
    task_or_no = _opened(tx, task, actor)
    if isinstance(task_or_no, Refused):
        return task_or_no
    return _give(tx, task_or_no, chosen, card, actor)


def _give(tx: Transaction, task: Task, chosen: str, card: CardState, actor: str) -> Refused | None:
    """Hand an open, unheld task to whom the action says."""
    named: dict[str, Any] = {"task_id": task.task_id, "project_id": task.project_id, "by": actor}
    name = {"keep_for": card.assignee, "external": card.assignee or SOMEONE, "restore": card.assignee}.get(chosen)
    if chosen == "restore":
        assert name is not None
        agent = load.agent_named(tx, name)
        if agent is None:
            return refuse("agent_not_found", f"Nobody is registered as {name}.", agent_id=name)
        kept = tasks.assign_task.body(tx, assigned_to=name, **named)
        if isinstance(kept, Refused):
            return kept
        given = claims.grant_in_name(tx, kept, agent)
        return given if isinstance(given, Refused) else None
    if task.assigned_to == name:
        return None
    assigned = tasks.assign_task.body(tx, assigned_to=name, **named)
    return assigned if isinstance(assigned, Refused) else None


def _block(tx: Transaction, task: Task, actor: str) -> Refused | None:
    if task.status == "blocked":
        return None
    task_or_no = _opened(tx, task, actor) if task.status in ("done", "dead") else task
    if isinstance(task_or_no, Refused):
        return task_or_no
    reason = f"moved to blocked on the board by {actor}"
    named: dict[str, Any] = {"task_id": task.task_id, "project_id": task.project_id}
    blocked = endings.block.body(tx, reason=reason, force=True, agent_id=actor, **named)
    return blocked if isinstance(blocked, Refused) else None


def _opened(tx: Transaction, task: Task, actor: str) -> Task | Refused:
    """A task that is done, blocked or dead, on offer again; any other as it is."""
    named: dict[str, Any] = {"task_id": task.task_id, "project_id": task.project_id, "by": actor}
    if task.status == "done":
        return tasks.reopen_task.body(tx, **named)
    if task.status == "blocked":
        return tasks.unblock_task.body(tx, **named)
    if task.status == "dead":
        return tasks.requeue_task.body(tx, **named)
    return task
