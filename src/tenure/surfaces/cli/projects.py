"""`tenure project ...`: the namespaces of tasks in one store."""

from __future__ import annotations

from tenure.core.times import iso
from tenure.surfaces.cli.context import must
from tenure.surfaces.cli.output import Result, ago, clean, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Project
    from tenure.surfaces.cli.context import Context


def add(context: Context) -> Result:
    """Make a project."""
    from tenure.engine.projects import create_project

    project = must(create_project(context.store, project_id=context.get("id"), name=context.get("name", "")))
    following = f'tenure task add "Title" --project {project.project_id}'
    return Result(data=_shape(project), lines=[f"Added project {project.project_id}"], next=[following])


def list_projects(context: Context) -> Result:
    """List the projects."""
    from tenure.engine import projects

    found = must(projects.list_projects(context.store))
    rows = [[one.project_id, clean(one.name, 60), ago(one.created_at_ms, context.now_ms)] for one in found]
    return Result(data={"projects": [_shape(one) for one in found]}, lines=table(rows, ("ID", "NAME", "ADDED")))


def _shape(project: Project) -> dict[str, Any]:
    return {"project_id": project.project_id, "name": project.name, "created_at": iso(project.created_at_ms)}
