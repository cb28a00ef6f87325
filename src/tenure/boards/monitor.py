"""The monitors of boards: delivery, the feed of people's acts, and the assignment monitor, which begins by reconciling.

They share one thread beside the others, because a board that hangs keeps them waiting, and one connection per board. A
board that is down is left alone for a while, longer each time; what waits for it is in the store and loses nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tenure.boards.kinds import open_board
from tenure.boards.port import BoardDown, BoardFault
from tenure.boards.sync import Sync
from tenure.core.errors import Refused
from tenure.core.model import Board
from tenure.engine import boards as steps
from tenure.engine import load
from tenure.monitors.loop import Loop, MonitorStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.boards.port import BoardApi
    from tenure.boards.sync import Swept
    from tenure.core.settings import Settings
    from tenure.monitors.loop import Monitor
    from tenure.store.store import Store, Transaction

    Open = Callable[[Board], BoardApi]

BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
# After a step that failed on a board that answers.
FAULT_PAUSE_S = 5.0
IDLE_S = 60.0
OUTAGE = "outage"
# Between two rounds of delivery while cards keep changing: many changes of one card are then one write.
PAUSE_S = 0.2

log = logging.getLogger("tenure.boards")


class _Link:
    """A connected board with its connection, and when it may be used again after an outage."""

    def __init__(self, board: Board, sync: Sync) -> None:
        self.board = board
        self.sync = sync
        self.failures = 0
        self.next_at = 0.0
        # By step what is wrong with it; an outage is every step's.
        self.errors: dict[str, str] = {}
        self.reconciled = False
        self.last: Swept | None = None

    @property
    def error(self) -> str:
        return "; ".join(dict.fromkeys(self.errors.values()))


class Boards:
    """The boards that are connected now. One thread uses them; `hint` and `facts` may be called from others."""

    def __init__(
        self,
        store: Store,
        token: str = "",
        *,
        opened: Open | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._open: Open = opened or partial(open_board, token=token)
        self.monotonic = monotonic
        self._links: dict[str, _Link] = {}
        self._hints: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def hint(self, project_id: str, card_id: str) -> None:
        """Somebody says that a card was touched."""
        with self._lock:
            self._hints.setdefault(project_id, set()).add(card_id)

    def hints(self, project_id: str) -> set[str]:
        with self._lock:
            return self._hints.pop(project_id, set())

    def facts(self) -> list[dict[str, Any]]:
        """What can be seen of each connection. Reads no store: any thread may ask."""
        return [
            {
                "project_id": project,
                "board": link.board.place,
                "failures": link.failures,
                "error": link.error,
                "reconciled": link.reconciled,
                "last_sweep": link.last.as_dict() if link.last else None,
            }
            for project, link in list(self._links.items())
        ]

    def links(self) -> list[tuple[_Link, Settings]]:
        """Every connected board, with its project's settings. Opens what is new and closes what is gone."""
        wanted = self._store.look(_connected)
        for project in [project for project, link in self._links.items() if not _same(link.board, wanted.get(project))]:
            self._links.pop(project).sync.close()
        for project, (board, _) in wanted.items():
            if project not in self._links:
                sync = Sync(self._store, project, self._open(board), monotonic=self.monotonic)
                self._links[project] = _Link(board, sync)
        return [(self._links[project], settings) for project, (_, settings) in wanted.items()]

    def attempt(self, link: _Link, name: str, step: Callable[[Sync], Any]) -> Any:
        """Do one thing with a board unless it is down; None if that failed.

        What one step finds wrong stands until that step succeeds: a feed that can be read does not make a listing that
        is not believed well, and is no reason to tell it anew.
        """
        now = self.monotonic()
        if now < link.next_at:
            return None
        project = link.board.project_id
        try:
            answer = step(link.sync)
        except (BoardDown, BoardFault) as error:
            if isinstance(error, BoardDown):
                # What failed otherwise is one step, and must not keep the others from a board that answers.
                link.next_at = self.monotonic() + BACKOFF_S[min(link.failures, len(BACKOFF_S) - 1)]
                link.failures += 1
                name = OUTAGE
            if name not in link.errors:
                log.warning("the board of %s: %s", project, error)
            link.errors[name] = str(error)
            self._store.run(lambda tx: steps.tell_error(tx, project, link.error))
            return None
        link.failures = 0
        if OUTAGE in link.errors or name in link.errors:
            for settled in (OUTAGE, name):
                link.errors.pop(settled, None)
            self._store.run(lambda tx: steps.told(tx, project, link.error))
        return answer

    def pause_s(self, link: _Link) -> float:
        """When to try again what failed: as the outage says, else soon."""
        left = link.next_at - self.monotonic()
        return left if left > 0 else FAULT_PAUSE_S

    def close(self) -> None:
        while self._links:
            self._links.popitem()[1].sync.close()


def _same(one: Board, other: tuple[Board, Any] | None) -> bool:
    names = ("url", "place", "token", "config", "link_id")
    return other is not None and all(getattr(one, name) == getattr(other[0], name) for name in names)


def _connected(tx: Transaction) -> dict[str, tuple[Board, Settings]]:
    found = {}
    for row in tx.all("boards"):
        settings = load.settings_for(tx, row["project_id"])
        if not isinstance(settings, Refused):
            found[row["project_id"]] = (Board(**row), settings)
    return found


class AssignmentMonitor:
    """Every 30 s every card is compared with what is persisted; the first time it is a whole reconciliation."""

    name = "board-assignments"
    watches_writes = False

    def __init__(self, boards: Boards) -> None:
        self._boards = boards

    def tick(self) -> float:
        waits = [IDLE_S]
        for link, settings in self._boards.links():
            step = Sync.sweep if link.reconciled else Sync.reconcile
            found = self._boards.attempt(link, self.name, step)
            if found is None:
                waits.append(self._boards.pause_s(link))
                continue
            link.reconciled, link.last = True, found
            waits.append(settings.board_sweep_s)
        return min(waits)


class BoardDelivery:
    """What changed here goes there."""

    name = "board-delivery"
    watches_writes = True

    def __init__(self, store: Store, boards: Boards) -> None:
        self._store = store
        self._boards = boards

    def tick(self) -> float:
        waits = [IDLE_S]
        for link, _ in self._boards.links():
            if not link.reconciled:
                # The first reconciliation delivers; before it nobody knows what the board looks like.
                waits.append(1.0)
                continue
            done = self._boards.attempt(link, self.name, Sync.deliver)
            project = link.board.project_id
            left = self._store.look(lambda tx, project=project: steps.wait_ms(tx, project))  # type: ignore[misc]
            if done is None:
                waits.append(self._boards.pause_s(link))
            elif left is not None:
                waits.append(max(PAUSE_S, left / 1000))
        return min(waits)


class BoardFeed:
    """What people did there is looked at soon after."""

    name = "board-feed"
    watches_writes = False

    def __init__(self, boards: Boards) -> None:
        self._boards = boards

    def tick(self) -> float:
        waits = [IDLE_S]
        for link, settings in self._boards.links():
            hints = self._boards.hints(link.board.project_id)
            if link.reconciled:
                heard = self._boards.attempt(link, self.name, partial(Sync.listen, hints=hints))
                if heard is None:
                    for card_id in hints:
                        self._boards.hint(link.board.project_id, card_id)
            waits.append(settings.board_poll_s)
        return min(waits)


class BoardStatus(MonitorStatus):
    """A monitor's status, and each board's: failures in a row, the last error, the last sweep."""

    boards: list[dict[str, Any]]


class BoardLoop(Loop):
    """The thread of the boards. A webhook wakes the feed."""

    def __init__(self, store: Store, token: str = "") -> None:
        self.boards = Boards(store, token)
        self._feed = BoardFeed(self.boards)
        monitors: list[Monitor] = [AssignmentMonitor(self.boards), self._feed, BoardDelivery(store, self.boards)]
        super().__init__(monitors, store.data_version)

    def hint(self, project_id: str, card_id: str) -> None:
        """A webhook says that a card was touched: look at it now."""
        self.boards.hint(project_id, card_id)
        for schedule in self._schedules:
            if schedule.monitor is self._feed:
                schedule.next_at = 0.0
        self.poke()

    def stop(self) -> None:
        super().stop()
        self.boards.close()

    def statuses(self) -> list[MonitorStatus]:
        facts = self.boards.facts()
        return [BoardStatus(**status.as_dict(), boards=facts) for status in super().statuses()]
