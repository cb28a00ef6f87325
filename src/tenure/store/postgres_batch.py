"""What the verbs of one transaction on PostgreSQL share, and what this process knows of leases that it has granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.store.queries import FORGETS
from tenure.store.store import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.store.postgres_scout import Written
    from tenure.store.postgres_wire import Statement
    from tenure.store.store import Row

# The reads whose rows a batch's verbs share, with the table by which a write makes them forget.
SHARED = {"settings_of": "settings", "requirement_sets": "requirement_sets"}


class SharedMemory(Memory):
    """A transaction's memory, with the rows of SHARED reads: a verb asks by them for what is not remembered yet."""

    __slots__ = ("_changed", "_rows")

    def __init__(self) -> None:
        super().__init__(FORGETS)
        self._rows: dict[str, dict[tuple[Any, ...], list[Row]]] = {}
        # The tables that were written to.
        self._changed: set[str] = set()

    def has_changed(self, table: str) -> bool:
        """Whether what was read of a table before the transaction's first verb may not be true any more."""
        return table in self._changed

    def knows(self, table: str, key: str) -> bool:
        return key in self._known.get(table, ())

    def rows(self, query: str, key: tuple[Any, ...]) -> list[Row] | None:
        return self._rows.get(SHARED[query], {}).get(key)

    def keep(self, query: str, key: tuple[Any, ...], rows: list[Row]) -> None:
        self._rows.setdefault(SHARED[query], {})[key] = rows

    def lower(self, table: str, key: str, value: int) -> None:
        super().lower(table, key, value)
        self._changed.add(table)

    def forget(self, table: str, values: dict[str, Any] | None = None) -> None:
        super().forget(table, values)
        self._rows.pop(table, None)
        self._changed.add(table)

    def clear(self) -> None:
        super().clear()
        self._rows.clear()


class Batch:
    """What the verbs of one transaction leave to each other."""

    __slots__ = ("eager", "left", "memory", "written", "wrote")

    def __init__(self, begin: str, *, eager: bool = False) -> None:
        # Whether the server may begin with the first lease while the rest is computed. That makes a verb quicker and
        # costs time of the interpreter: it is for who has the transaction to itself, and done once.
        self.eager = eager
        # Statements that were not sent yet.
        self.left: list[Statement] = [(begin, None)]
        self.memory = SharedMemory()
        self.wrote = False
        # Where verbs were read for beforehand: what those before them have written.
        self.written: Written | None = None

    def take(self) -> list[Statement]:
        """What waits to be sent; from now on nothing does."""
        left, self.left = self.left, []
        return left


# Of leases that were granted in this process: the agent and the project. They never change, so that both can be asked
# for by name, together with what others ask, and not by way of the lease.
_GRANTED: dict[str, tuple[str, str]] = {}
_GRANTED_MAX = 20_000


def remember_granted(lease: Mapping[str, Any]) -> None:
    if len(_GRANTED) >= _GRANTED_MAX:
        _GRANTED.clear()
    _GRANTED[lease["lease_id"]] = (lease["agent_id"], lease["project_id"])


def agent_and_project(lease_id: str) -> tuple[str, str] | None:
    """Whose a lease is and in which project, if it was granted here. It may have ended, or never been committed."""
    return _GRANTED.get(lease_id)
