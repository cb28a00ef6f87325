"""The gridlock monitor: looks whether anything can still move, and raises an alert with names if not.

Judged from state, never from how often agents ask. The same alert is not raised again before its cool-down is over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tenure.core.errors import Refused
from tenure.engine.alerts import alert_gridlock
from tenure.engine.observe import gridlock, ready_tasks
from tenure.engine.projects import list_projects
from tenure.monitors.recovery import MonitorFailure

if TYPE_CHECKING:
    from tenure.store.store import Store

EVERY_S = 30.0

log = logging.getLogger("tenure.gridlock")


class GridlockMonitor:
    """Looks at every project."""

    name = "gridlock"
    watches_writes = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def tick(self) -> float:
        projects = list_projects(self._store)
        if isinstance(projects, Refused):
            raise MonitorFailure(projects)
        for project in projects:
            if self._may_be_stuck(project.project_id):
                self._alert(project.project_id)
        return EVERY_S

    def _may_be_stuck(self, project_id: str) -> bool:
        """Looked at without the write lock, and first by one seek: where something is ready, nothing is stuck."""
        ready = ready_tasks(self._store, project_id=project_id, limit=1)
        if isinstance(ready, Refused):
            raise MonitorFailure(ready)
        if ready:
            return False
        found = gridlock(self._store, project_id=project_id)
        return not isinstance(found, Refused) and found.gridlocked

    def _alert(self, project_id: str) -> None:
        alert = alert_gridlock(self._store, project_id=project_id)
        if isinstance(alert, Refused):
            raise MonitorFailure(alert)
        if alert.raised:
            log.warning("gridlock in %s: %s", project_id, " ".join(alert.sentences))
