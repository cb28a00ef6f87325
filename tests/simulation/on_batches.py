"""The same seeds through a server's batches.

`BatchedWorld` has a server's writer beside a process of its own: what the writer remembers and reads ahead must stay
true whatever the other one writes. `Recorder` writes down what a calm seed does, so that it can be done again with many
verbs in one commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from tenure.clock import ManualClock
from tenure.engine.verb import Verb
from tenure.store.sqlite import BatchLost, Outcome, SqliteStore
from tenure.store.store import Transaction
from tests.simulation.rows import dump
from tests.simulation.world import World

R = TypeVar("R")
# The instant, the verb, its arguments and its answer.
Told = tuple[tuple[int, int, str], Verb[..., Any], dict[str, Any], Any]


class Writer(SqliteStore):
    """A store whose verbs are batches of one, as a server that is not busy runs them."""

    def run(self, body: Callable[[Transaction], R]) -> R:
        bodies = iter([body])
        try:
            outcome = self.run_many(lambda: next(bodies, None))[0]
        except BatchLost:
            # As the runner does.
            return super().run(body)
        self.answered_at_ms = outcome.at_ms
        if outcome.error is not None:
            raise outcome.error
        answer: R = outcome.answer
        return answer


class BatchedWorld(World):
    """A world whose first process is a server."""

    def open(self) -> None:
        super().open()
        self.stores[0].close()
        self.stores[0] = self._server()

    def _server(self) -> SqliteStore:
        return Writer(self.path, clock=self.clock, random=self.noise.randbytes)

    def _fill_disk(self, verb: Verb[..., Any], call: Any, index: int) -> Any:
        """A server tries again what a full disk undid, and so may well succeed (tests/store/test_runner.py)."""
        return super()._fill_disk(verb, call, 1)

    def _kill(self, verb: Verb[..., Any], call: Any, index: int) -> None:
        super()._kill(verb, call, index)
        if index == 0 and not isinstance(self.stores[0], Writer):
            self.stores[0].close()
            self.stores[0] = self._server()


class Recorder(World):
    """A calm world that keeps what was called, and at which instant."""

    def __init__(self, seed: int, directory: str, *, verbose: bool = False) -> None:
        self.story: list[Told] = []
        super().__init__(seed, directory, verbose=verbose)
        self.kill_rate = self.full_rate = self.loss_rate = 0.0

    def _perform(self, verb: Verb[..., Any], call: Any, store: SqliteStore) -> None:
        instant = (self.clock.wall, self.clock.mono, self.clock.boot)
        super()._perform(verb, call, store)
        if verb.writes:
            self.story.append((instant, verb, dict(call.arguments), call.answer))

    def step_clock(self, seconds: int, word: str) -> None:
        """Not in a calm world."""

    def reboot(self, boot_id: str, down_s: int) -> None:
        """Not in a calm world."""

    def close(self) -> None:
        self.rows = dump(self.eyes)
        super().close()


def told_again(story: list[Told], store: SqliteStore) -> int:
    """Do it all again, everything of one instant in one commit, with the same answers. Gives the largest batch."""
    clock = store.clock
    assert isinstance(clock, ManualClock)
    largest, place = 0, 0
    while place < len(story):
        instant = story[place][0]
        clock.wall, clock.mono, clock.boot = instant
        together = []
        while place < len(story) and story[place][0] == instant:
            together.append(story[place])
            place += 1
        _same(together, store)
        largest = max(largest, len(together))
    return largest


def _same(together: list[Any], store: SqliteStore) -> None:
    bodies, wanted = [], []
    for _, verb, arguments, answer in together:
        checked = verb.check(arguments)
        if isinstance(checked, dict):
            bodies.append(_body(verb, checked))
            wanted.append((verb.name, answer))
    taking = iter(bodies)
    outcomes: list[Outcome] = store.run_many(lambda: next(taking, None))
    for (name, answer), outcome in zip(wanted, outcomes, strict=True):
        assert outcome.error is None, (name, outcome.error)
        assert _shown(outcome.answer) == _shown(answer), name


def _shown(answer: Any) -> str:
    """An answer without the hint when to ask again: in a batch it is a bound, and not the nearest timer itself."""
    return re.sub(r"'next_change_ms': \w+", "", repr(answer))


def _body(verb: Verb[..., Any], checked: dict[str, Any]) -> Callable[[Transaction], Any]:
    return lambda tx: verb.body(tx, **checked)
