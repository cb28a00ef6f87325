"""One seed from beginning to end, and many seeds over several processes."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.actors import Fleet
from tests.simulation.operators import Operators
from tests.simulation.rows import Violation
from tests.simulation.world import World

ACTIONS = 120
SOUND_EVERY = 35


class Outcome(NamedTuple):
    """What came of one seed."""

    seed: int
    steps: int
    answers: Counter[str]
    seen: Counter[str]
    failure: str = ""
    log: tuple[str, ...] = ()


def run_seed(
    seed: int, actions: int = ACTIONS, *, verbose: bool = False, make: Callable[..., World] = World
) -> Outcome:
    """Run one seed in a directory of its own, which is gone afterwards."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = tempfile.mkdtemp(prefix="tenure-simulation-", dir=shared)
    world = make(seed, directory, verbose=verbose)
    failure = ""
    try:
        play(world, actions)
    except Violation as violation:
        failure = str(violation)
    except Exception:
        # A fault of the simulation's own, or of the engine outside a verb: it fails the seed like any other.
        failure = traceback.format_exc()
    finally:
        world.close()
        shutil.rmtree(directory, ignore_errors=True)
    return Outcome(seed, world.steps, world.answers, world.seen, failure, tuple(world.log))


def play(world: World, actions: int) -> None:
    """Let the seed decide what happens, one action after another, and end in silence."""
    fleet = Fleet(world)
    operators = Operators(world, fleet)
    operators.configure()
    for _ in range(world.rng.randint(2, 5)):
        operators.add()
    for _ in range(2):
        fleet.start()
    choices, weights = _mood(world, fleet, operators)
    for number in range(actions):
        world.rng.choices(choices, weights)[0]()
        if number % SOUND_EVERY == SOUND_EVERY - 1:
            world.sound()
    operators.silence()
    world.sound()


def _mood(world: World, fleet: Fleet, operators: Operators) -> tuple[list[Callable[[], None]], list[float]]:
    """How likely each action is in this seed. Every seed leaves some out, so that others come close together."""
    table: list[tuple[Callable[[], None], float]] = [
        (fleet.start, 5),
        (fleet.hang, 2),
        (fleet.wake, 2),
        (fleet.crash, 3),
        (fleet.link, 3),
        (fleet.pulse, 4),
        (fleet.unlink, 1),
        (fleet.claim, 9),
        (fleet.claim_next, 14),
        (fleet.offer, 6),
        (fleet.accept, 8),
        (fleet.touch, 5),
        (fleet.work, 16),
        (fleet.toil, 3),
        (fleet.haunt, 10),
        (operators.add, 4),
        (operators.edit, 2),
        (operators.connect, 2),
        (operators.govern, 8),
        (operators.mend, 3),
        (operators.read, 4),
        (operators.advance, 8),
        (operators.serve, 3),
        (operators.wait, 16),
        (operators.upset_clock, 2),
        (operators.reboot, 1),
    ]
    needed = (fleet.start, fleet.claim_next, operators.add, operators.wait)
    factors = (0.0, 0.5, 1.0, 1.0, 3.0)
    weights = [weight * (1.0 if action in needed else world.rng.choice(factors)) for action, weight in table]
    return [action for action, _ in table], weights
