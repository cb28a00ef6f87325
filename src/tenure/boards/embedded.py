"""The embedded board: the same database. Its cards are the tasks themselves, so that nothing has to be carried.

It answers the reading half of the port, so that whatever reads boards can read this one. There is nothing to write: a
card shows what its task is, at once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tenure.boards.port import Card, Finding
from tenure.core.errors import Refused
from tenure.core.model import DEFAULT_PROJECT, Task
from tenure.engine import boards as steps
from tenure.engine import load
from tenure.engine.observe import list_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.core.reconcile import CardState
    from tenure.store.store import Store, Transaction

PAGE = 1_000


class EmbeddedBoard:
    """A project's tasks, read as cards."""

    def __init__(self, store: Store, project_id: str = DEFAULT_PROJECT) -> None:
        self._store = store
        self._project = project_id

    def check(self) -> list[Finding]:
        return [Finding(check="board", well=True, detail="embedded: the board is this store")]

    def listing(self) -> list[Card]:
        cards, after = [], 0
        while True:
            page = list_page(self._store, project_id=self._project, after=after, limit=PAGE)
            if isinstance(page, Refused):
                raise LookupError(page.message)
            cards += self._store.look(partial(_cards, tasks=[view.task for view in page.views]))
            if page.next_after is None:
                return cards
            after = page.next_after

    def card(self, card_id: str) -> Card | None:
        def look(tx: Transaction) -> Card | None:
            task = load.task_named(tx, card_id, self._project)
            return None if isinstance(task, Refused) else _card(tx, task)

        return self._store.look(look)

    def find(self, reference: str) -> Card | None:
        return self.card(reference)

    def shown(self, state: CardState) -> CardState:
        return state

    def close(self) -> None:
        """Nothing is held."""


def _cards(tx: Transaction, tasks: Sequence[Task]) -> list[Card]:
    return [_card(tx, task) for task in tasks]


def _card(tx: Transaction, task: Task) -> Card:
    state = steps.wanted_card(tx, task, None)
    return Card(card_id=task.task_id, born=str(task.created_at_ms), reference=task.task_id, state=state)
