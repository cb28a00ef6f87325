"""A store, a board, an agent and a person: what tests of boards play with."""

from __future__ import annotations

from typing import Any

from tenure.boards.kanboard import Kanboard as Api
from tenure.boards.port import Card
from tenure.boards.sync import Swept, Sync
from tenure.clock import ManualClock
from tenure.core.model import Task
from tenure.engine import agents, boards, claims, observe, tasks
from tenure.engine.health import check_assignment_health
from tenure.store.sqlite import SqliteStore
from tests.boards.kanboard import Kanboard, Person
from tests.support import ok


class Scene:
    """One project here, one there. `ann` works by hand; `A1` and `A2` are agents with accounts, `A9` has none."""

    def __init__(self, server: Kanboard, store: SqliteStore, clock: ManualClock, name: str) -> None:
        self.server, self.store, self.clock, self.name = server, store, clock, name
        self.project = server.call("createProject", name=name, identifier=name)
        server.call("addColumn", project_id=self.project, title="Blocked")
        self.ann = Person(server, self.project, "ann")
        self.accounts = {agent: Person(server, self.project, agent) for agent in ("A1", "A2")}
        for agent in ("A1", "A2", "A9"):
            ok(agents.register(store, agent_id=agent))
        self.api = Api(server.url, server.token, name, {})
        self.sync = Sync(store, "default", self.api)

    def close(self) -> None:
        self.sync.close()

    def connect(self, **more: Any) -> Swept:
        ok(boards.connect_board(self.store, url=self.server.url, board=self.name, token=self.server.token, **more))
        return self.sync.reconcile()

    def add(self, task_id: str = "F001", **fields: Any) -> Task:
        return ok(tasks.add_task(self.store, task_id=task_id, **{"title": f"Task {task_id}", **fields}))

    def take(self, agent_id: str = "A1", task_id: str = "F001") -> str:
        return ok(claims.claim(self.store, task_id=task_id, agent_id=agent_id, profile="agent")).lease.lease_id

    def held(self, agent_id: str = "A1", task_id: str = "F001") -> int:
        """A task that an agent holds, with its card on the board; the card's number."""
        self.add(task_id)
        self.take(agent_id, task_id)
        self.sync.deliver()
        return self.card(task_id)

    def card(self, task_id: str = "F001") -> int:
        found = self.api.find(task_id)
        assert found is not None, f"{task_id} has no card"
        return int(found.card_id)

    def cards(self) -> list[Card]:
        return self.api.listing()

    def shown(self, task_id: str = "F001") -> tuple[str, str | None]:
        """What the board says of a task."""
        found = self.api.find(task_id)
        assert found is not None
        return found.state.status, found.state.assignee

    def task(self, task_id: str = "F001") -> Task:
        return ok(observe.show_task(self.store, task_id=task_id)).view.task

    def known(self, task_id: str = "F001") -> tuple[str, str | None, str | None]:
        """What the engine says of a task."""
        view = ok(observe.show_task(self.store, task_id=task_id)).view
        return view.status, view.task.assigned_to, view.task.owner

    def holder(self, task_id: str = "F001") -> str | None:
        leases = ok(observe.show_task(self.store, task_id=task_id)).view.leases
        return leases[0].agent_id if leases else None

    def events(self, kind: str) -> list[Any]:
        return [event for event in ok(observe.events(self.store, limit=10_000)) if event.kind == kind]

    def comments(self, card: int) -> list[str]:
        return [str(one["comment"]) for one in self.server.call("getAllComments", task_id=card)]

    def raw(self) -> list[dict[str, Any]]:
        """Every card byte for byte, as the server has it."""
        rows = []
        for status in (1, 0):
            rows += self.server.call("getAllTasks", project_id=self.project, status_id=status)
        return sorted(rows, key=lambda row: int(row["id"]))

    def settle(self) -> None:
        """Let everything be carried both ways, and see that nothing is left and nothing moves any more."""
        self.sync.deliver()
        self.sync.sweep()
        self.sync.deliver()
        view = ok(boards.show_board(self.store))
        assert (view.pending, view.parked, view.comments) == (0, 0, 0), view
        health = ok(check_assignment_health(self.store))
        assert health.healthy, health
        before, version = self.raw(), self.store.connection.execute("SELECT sum(version) FROM tasks").fetchone()
        found = self.sync.reconcile()
        assert {name: n for name, n in found.as_dict().items() if n and name not in ("cards", "kept")} == {}, found
        assert self.raw() == before
        assert self.store.connection.execute("SELECT sum(version) FROM tasks").fetchone() == version
