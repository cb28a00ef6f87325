"""How long to wait after errors, and where waiting and time come from."""

from __future__ import annotations

import asyncio
import random as chance
import time
from collections.abc import Callable, Sequence

# The specification's: after errors 5, 10, 20, 40 and then always 60 seconds; without work 5.
ERROR_BACKOFF_S = (5.0, 10.0, 20.0, 40.0, 60.0)
NO_WORK_S = 5.0
# Shortens a wait by up to this share, so that workers that lost their server together do not come back together.
JITTER = 0.2


class Backoff:
    """The waits after errors in a row. `random` gives a number from 0 to 1."""

    def __init__(self, steps_s: Sequence[float] = ERROR_BACKOFF_S, random: Callable[[], float] = chance.random) -> None:
        if not steps_s or any(step <= 0 for step in steps_s):
            raise ValueError("a backoff needs steps above 0 seconds")
        self.steps_s = tuple(steps_s)
        self.random = random
        self.errors = 0

    def next_s(self) -> float:
        """The wait after one more error."""
        step = self.steps_s[min(self.errors, len(self.steps_s) - 1)]
        self.errors += 1
        return self.jittered(step)

    def reset(self) -> None:
        """Something worked: the next error is the first again."""
        self.errors = 0

    def jittered(self, wait_s: float) -> float:
        """A wait, shortened a little."""
        return wait_s * (1 - JITTER * self.random())

    def fresh(self) -> Backoff:
        """The same steps, counted anew."""
        return Backoff(self.steps_s, self.random)


class Time:
    """A worker's own monotonic clock, and sleeping by it. Tests have one that moves only when told to.

    It does not count while the machine is suspended.
    """

    def now_s(self) -> float:
        return time.monotonic()

    async def sleep(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
