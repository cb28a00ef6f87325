"""Holding health: whether what is assigned and what is held agree.

The store keeps both in one database and every verb changes both in one transaction, so a mismatch is either a dead
holder whose recovery nobody has written yet, which the next claim or monitor mends, or damage from outside.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.model import Task
from tenure.core.record import Record
from tenure.engine import load, observe
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.store.store import Transaction


class Mismatch(Record):
    """One task whose assignment and holding disagree."""

    task_id: str
    problem: str


class HoldingHealth(Record):
    """The specification's check_assignment_health: counts of both sides, and every difference."""

    # Tasks that somebody holds under a live, accepted lease, and tasks that the board shows as in progress.
    persisted_assignments: int
    kanban_assigned_tasks: int
    mismatches: tuple[Mismatch, ...]

    @property
    def healthy(self) -> bool:
        """Whether both sides agree."""
        return not self.mismatches


@query(project_id=inputs.optional(inputs.ident))
def check_holdings(tx: Transaction, *, project_id: str | None = None) -> HoldingHealth | Refused:
    """Compare what is assigned with what is held, task by task."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    counts = tx.one("count_assignments", project_id=project_id, now_ms=tx.now_ms)
    assert counts is not None
    projects = [project_id] if project_id else [row["project_id"] for row in tx.all("projects")]
    found: dict[str, Mismatch] = {}
    for project in projects:
        # Only what may be amiss is looked at closely: agents ask this often, of fleets in which nothing is.
        rows = tx.all("assigned_amiss", project_id=project, now_ms=tx.now_ms)
        for view in observe.views_of(tx, [Task(**row) for row in rows]):
            why = _problem(view)
            if why:
                found[f"{project} {view.task.task_id}"] = Mismatch(task_id=view.task.task_id, problem=why)
    return HoldingHealth(
        persisted_assignments=counts["held"], kanban_assigned_tasks=counts["shown"], mismatches=tuple(found.values())
    )


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
