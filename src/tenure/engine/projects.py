"""Projects and their settings. Settings live in the store, so that every process judges by the same ones."""

from __future__ import annotations

import json

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.core.model import Project
from tenure.core.settings import merge_overrides
from tenure.engine import change, load
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.settings import Settings
    from tenure.store.store import Transaction


@verb(project_id=inputs.ident, name=inputs.line, settings=inputs.anything)
def create_project(tx: Transaction, *, project_id: str, name: str = "", settings: Any = None) -> Project | Refused:
    """A new namespace of tasks."""
    tx.lock("settings")
    if tx.one("project", project_id=project_id) is not None:
        return refuse("project_exists", f"There is already a project {project_id}.", project_id=project_id)
    overrides = {} if settings is None else settings
    if isinstance(overrides, dict) and isinstance(overrides.get("design"), dict) and overrides["design"].get("command"):
        # Projects are created over the network and from files; what a server runs is said by whoever configures it.
        message = "design.command cannot come with a new project: it is a program that the server will run"
        return refuse("invalid_settings", message, "Set it afterwards: tenure config set.", setting="design.command")
    merged = merge_overrides(_store_overrides(tx), overrides)
    if isinstance(merged, Refused):
        return merged
    project = Project(
        project_id=project_id, name=name or project_id, settings=json.dumps(overrides), created_at_ms=tx.now_ms
    )
    tx.do("add_project", **project.as_dict())
    change.record(tx, "project_created", project=project_id)
    return project


@query()
def list_projects(tx: Transaction) -> tuple[Project, ...]:
    """Every project, by id."""
    return tuple(Project(**row) for row in tx.all("projects"))


@verb(project_id=inputs.optional(inputs.ident), document=inputs.anything)
def configure(tx: Transaction, *, document: Any, project_id: str | None = None) -> Settings | Refused:
    """Replace the overrides of a project, or of the whole store. A change that contradicts any project is refused."""
    tx.lock("settings")
    if project_id is None:
        for project in tx.all("projects"):
            merged = merge_overrides(document, json.loads(project["settings"]))
            if isinstance(merged, Refused):
                return merged.replace(facts={**merged.facts, "project_id": project["project_id"]})
        tx.do("set_meta", key="settings", value=json.dumps(document))
        merged = merge_overrides(document)
    else:
        if tx.one("project", project_id=project_id) is None:
            return refuse("project_not_found", f"There is no project {project_id}.", project_id=project_id)
        merged = merge_overrides(_store_overrides(tx), document)
        if isinstance(merged, Refused):
            return merged
        tx.do("set_project_settings", project_id=project_id, settings=json.dumps(document))
    change.record(tx, "configured", project=project_id)
    return merged


@query(project_id=inputs.ident)
def show_settings(tx: Transaction, *, project_id: str = "default") -> Settings | Refused:
    """The settings in force in a project."""
    return load.settings_for(tx, project_id)


@query(project_id=inputs.optional(inputs.ident))
def show_overrides(tx: Transaction, *, project_id: str | None = None) -> dict[str, Any] | Refused:
    """What a project, or the store, changes of the defaults."""
    if project_id is None:
        return dict(_store_overrides(tx))
    row = tx.one("project", project_id=project_id)
    if row is None:
        return refuse("project_not_found", f"There is no project {project_id}.", project_id=project_id)
    return dict(json.loads(row["settings"]))


def _store_overrides(tx: Transaction) -> Any:
    row = tx.one("meta", key="settings")
    return json.loads(row["value"]) if row else {}
