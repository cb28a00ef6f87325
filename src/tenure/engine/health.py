"""Assignment health: whether what is assigned, what is held and what a board shows agree.

Tasks and leases are in one database and every verb changes both in one transaction, so a mismatch of those two is
either a dead holder whose recovery nobody has written yet, which the next claim or monitor mends, or damage from
outside. An external board's cards are compared as they were last seen: nobody waits here for a server.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.model import Task
from tenure.core.reconcile import AssignmentHealth, Mismatch
from tenure.engine import boards, load, observe
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.store.store import Transaction

MISMATCHES_SHOWN = 100


@query(project_id=inputs.optional(inputs.ident))
def check_assignment_health(tx: Transaction, *, project_id: str | None = None) -> AssignmentHealth | Refused:
    """Compare who holds what here with what the board shows: counts, and every mismatch by name."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    projects = [project_id] if project_id else [row["project_id"] for row in tx.all("projects")]
    found = [_of_project(tx, project) for project in projects]
    external = [one.board for one in found if one.board != "embedded"]
    return AssignmentHealth(
        healthy=all(one.healthy for one in found),
        persisted_assignments=sum(one.persisted_assignments for one in found),
        kanban_assigned_tasks=sum(one.kanban_assigned_tasks for one in found),
        mismatches=tuple(mismatch for one in found for mismatch in one.mismatches)[:MISMATCHES_SHOWN],
        pending=sum(one.pending for one in found),
        parked=sum(one.parked for one in found),
        board=", ".join(external) or "embedded",
        error="; ".join(one.error for one in found if one.error),
    )


def _of_project(tx: Transaction, project_id: str) -> AssignmentHealth:
    numbers = tx.one("count_assignments", project_id=project_id, now_ms=tx.now_ms)
    assert numbers is not None
    amiss = _holdings(tx, project_id)
    board = boards.board_of(tx, project_id)
    if board is None:
        return AssignmentHealth(
            healthy=not amiss,
            persisted_assignments=numbers["held"],
            kanban_assigned_tasks=numbers["shown"],
            mismatches=tuple(amiss),
        )
    waiting = boards.counts(tx, board)
    different, on_board = boards.mismatches(tx, project_id)
    named = {one.task_id for one in amiss}
    amiss += [one for one in different if one.task_id not in named]
    return AssignmentHealth(
        healthy=not amiss and not waiting["parked"] and not board.error,
        persisted_assignments=numbers["held"],
        kanban_assigned_tasks=on_board,
        mismatches=tuple(amiss),
        pending=waiting["pending"],
        parked=waiting["parked"],
        board=f"{board.kind} {board.place}",
        error=board.error,
    )


def _holdings(tx: Transaction, project_id: str) -> list[Mismatch]:
    """Tasks whose assignment and lease disagree. Only what may be amiss is looked at closely: agents ask this often."""
    rows = tx.all("assigned_amiss", project_id=project_id, now_ms=tx.now_ms)
    found = {}
    for view in observe.views_of(tx, [Task(**row) for row in rows]):
        why = _problem(view)
        if why:
            found[view.task.task_id] = Mismatch(task_id=view.task.task_id, problem=why)
    return list(found.values())


def _problem(view: observe.TaskView) -> str:
    """What is wrong with one task, or nothing."""
    task = view.task
    active = [lease for lease in view.leases if lease.state == "active"]
    if view.due:
        return f"{task.assigned_to} is dead and its task is not taken back yet"
    if task.status == "in_progress" and not active and task.owner not in ("internal", "external"):
        return f"in progress for {task.assigned_to}, who holds no lease"
    if active and task.status != "in_progress":
        return f"held by {active[0].agent_id} and shown as {task.status}"
    return ""
