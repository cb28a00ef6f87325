"""The same seeds on PostgreSQL: the same actors, invariants and mutual checks, on the database's clock.

What belongs to one machine's file is left out: steps of its wall clock, reboots, its disk. Processes are killed between
any two round trips, and after their COMMIT.
"""

from __future__ import annotations

from typing import Any

from tenure.clock import ManualClock
from tenure.engine.verb import Verb
from tenure.store import postgres_transaction
from tests.postgres.support import Probe, ProbedPostgres, empty_url
from tests.simulation.dying import Killed
from tests.simulation.rows import Violation, demand, dump
from tests.simulation.transitions import Call
from tests.simulation.world import World

# Each counter is spread over several rows.
COUNTERS = "(SELECT split_part(name, '#', 1) AS name, CAST(sum(value) AS INTEGER) AS value FROM counters GROUP BY 1) c"


class Eyes(Probe):
    """The simulation's own connection. The anchor of a clock that needs none is the clock."""

    def __init__(self, store: ProbedPostgres, clock: ManualClock) -> None:
        super().__init__(store)
        self._clock = clock

    def execute(self, statement: str, values: Any = ()) -> Any:
        if "FROM clock" in statement:
            anchor = (self._clock.boot_id(), self._clock.wall_ms(), self._clock.mono_ms())
            return super().execute("SELECT :boot, CAST(:wall AS INTEGER), CAST(:mono AS INTEGER)", _named(anchor))
        statement = statement.replace("FROM counters WHERE", f"FROM {COUNTERS} WHERE")
        return super().execute(statement.replace("ORDER BY rowid", "ORDER BY ctid"), values)

    def close(self) -> None:
        self._store.close()


def _named(anchor: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("boot", "wall", "mono"), anchor, strict=True))


class Still(Probe):
    """A look runs in a read-only transaction: the database itself refuses what it would write."""

    total_changes = 0


class Simulated(ProbedPostgres):
    @property
    def connection(self) -> Probe:
        return Still(self)


class OneBoot(list[str]):
    """Whose boot it is does not matter to a database elsewhere."""

    def append(self, boot: str) -> None:
        pass


class PostgresWorld(World):
    """A world whose store is a database."""

    def __init__(self, seed: int, directory: str, *, verbose: bool = False) -> None:
        self._url = empty_url()
        super().__init__(seed, directory, verbose=verbose)
        self.full_rate = 0.0
        self.boots = OneBoot(["boot-1"])

    def open(self) -> None:
        self.stores = [self._process(), self._process()]
        self.eyes = Eyes(Simulated(self._url, clock=self.clock), self.clock)  # type: ignore[assignment]

    def _process(self) -> Any:
        return Simulated(self._url, clock=self.clock, random=self.noise.randbytes)

    def lose_power(self) -> None:
        """The nodes' machine stops; the database does not."""
        self.close()
        self.open()

    def step_clock(self, seconds: int, word: str) -> None:
        """A node's wall clock is nobody's business."""
        self.note(f"{word} {seconds:+} s, unheeded")

    def reboot(self, boot_id: str, down_s: int) -> None:
        self.note("a node restarts")

    def _kill(self, verb: Verb[..., Any], call: Call, index: int) -> None:
        """Kill the process inside a verb. Afterwards all of it happened, or none."""
        fate = Fate(
            0 if self.rng.random() < 0.2 else self.rng.choice((self.rng.randint(1, 4), self.rng.randint(4, 20)))
        )
        before = dump(self.eyes)
        stale = self.state.now is None
        send, postgres_transaction._send = postgres_transaction._send, fate.send
        try:
            call.answer = verb(self.stores[index], **call.arguments)
            call.answered = True
        except Killed:
            pass
        except Exception as error:
            raise Violation(f"{verb.name} raised {type(error).__name__}: {error}") from error
        finally:
            postgres_transaction._send = send
        self.note(f"killed at round trip {fate.count}{' after commit' if fate.committed else ''}: {call}")
        call.answered = call.answered and fate.committed
        self.stores[index].close()
        self.stores[index] = self._process()
        if not fate.committed:
            self.seen["killed before commit"] += 1
            demand(dump(self.eyes) == before, "10 a killed verb leaves nothing behind", call=str(call))
            self.look_again()
            return
        self.seen["killed after commit"] += 1
        self.observe(call, stale)
        if verb.name in ("claim", "claim_next") and call.arguments.get("idempotency_key") and not call.refused:
            self._retry(verb, call, index)


class Fate:
    """Round trips that end at a chosen one; 0 is right after the commit."""

    def __init__(self, dies_before: int) -> None:
        self._dies_before = dies_before
        self._send = postgres_transaction._send
        self.count = 0
        self.dead = False
        self.committed = False

    def send(self, wire: Any, statements: Any) -> Any:
        self.count += 1
        self.dead = self.dead or self.count == self._dies_before
        if self.dead:
            raise Killed
        answers = self._send(wire, statements)
        if statements[-1][0] == "COMMIT":
            self.committed = True
            if not self._dies_before:
                self.dead = True
                raise Killed
        return answers
