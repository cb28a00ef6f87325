"""A loop of their own for monitors that wait for others' machines and programs.

A gate that hangs keeps its monitor waiting for seconds; recovery must not wait with it. So the gate's monitor has a
thread beside the shared one, as has any other that is added, and all start, stop and are looked at together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tenure.monitors.loop import Loop, MonitorStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.gates.receiptgate import ReceiptGate
    from tenure.monitors.loop import Monitor


class GateStatus(MonitorStatus):
    """A monitor's status, and each gate's: what was sent and read, what is parked, what went wrong last."""

    gates: list[dict[str, Any]]


class Closes(Protocol):
    """A connection, or whatever else has to be closed."""

    def close(self) -> None: ...


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
        # What nobody else uses: closed when both loops have ended.
        self.owned: list[Closes] = []
        self._beside = Loop([gate], gate_data_version)
        self._others: list[tuple[Loop, Callable[[], None]]] = []

    def also(self, monitor: Monitor, data_version: Callable[[], int], close: Callable[[], None]) -> None:
        """Run one more monitor beside the others, before `start`; `close` must end the tick under way soon."""
        self._others.append((Loop([monitor], data_version), close))

    def beside(self, loop: Loop) -> None:
        """Run a whole loop beside the others, before `start`."""
        self._others.append((loop, lambda: None))

    def hint(self, project_id: str, card_id: str) -> None:
        for loop, _ in self._others:
            loop.hint(project_id, card_id)

    def start(self) -> None:
        super().start()
        self._beside.start()
        for loop, _ in self._others:
            loop.start()

    def stop(self) -> None:
        """Both finish the tick under way; a request to a gate that hangs is waited for until its time is over."""
        for _, close in self._others:
            close()
        super().stop()
        self._beside.stop()
        for loop, _ in self._others:
            loop.stop()
        self._gate.close()
        for one in self.owned:
            one.close()

    def poke(self) -> None:
        super().poke()
        self._beside.poke()
        for loop, _ in self._others:
            loop.poke()

    def statuses(self) -> list[MonitorStatus]:
        beside = [GateStatus(**status.as_dict(), gates=self._gate.facts()) for status in self._beside.statuses()]
        others = [status for loop, _ in self._others for status in loop.statuses()]
        return [*super().statuses(), *beside, *others]
