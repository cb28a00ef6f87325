"""A loop of their own for monitors that wait for others' machines.

A gate that hangs keeps its monitor waiting for seconds; recovery must not wait with it. So the gate's monitor has a
thread beside the shared one, and both start, stop and are looked at together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.monitors.loop import Loop, MonitorStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.gates.receiptgate import ReceiptGate
    from tenure.monitors.loop import Monitor
    from tenure.store.sqlite import SqliteStore


class GateStatus(MonitorStatus):
    """A monitor's status, and each gate's: what was sent and read, what is parked, what went wrong last."""

    gates: list[dict[str, Any]]


class LoopWithGate(Loop):
    """The shared loop, and beside it the one of the gate. Each `data_version` belongs to its own loop's connection."""

    def __init__(
        self,
        monitors: Sequence[Monitor],
        data_version: Callable[[], int],
        gate: ReceiptGate,
        gate_data_version: Callable[[], int],
    ) -> None:
        super().__init__(monitors, data_version)
        self._gate = gate
        # Connections that nobody else uses: closed when both loops have ended.
        self.owned: list[SqliteStore] = []
        # Further loops that wait for others' machines; they start, stop and are looked at with this one.
        self.others: list[Loop] = []
        self._beside = Loop([gate], gate_data_version)

    def start(self) -> None:
        super().start()
        for loop in (self._beside, *self.others):
            loop.start()

    def stop(self) -> None:
        """Both finish the tick under way; a request to a gate that hangs is waited for until its time is over."""
        super().stop()
        for loop in (self._beside, *self.others):
            loop.stop()
        self._gate.close()
        for store in self.owned:
            store.close()

    def poke(self) -> None:
        super().poke()
        for loop in (self._beside, *self.others):
            loop.poke()

    def hint(self, project_id: str, card_id: str) -> None:
        for loop in self.others:
            loop.hint(project_id, card_id)

    def statuses(self) -> list[MonitorStatus]:
        beside = [GateStatus(**status.as_dict(), gates=self._gate.facts()) for status in self._beside.statuses()]
        return [*super().statuses(), *beside, *(status for loop in self.others for status in loop.statuses())]
