"""A few seeds on PostgreSQL with every test run; `python -m tests.simulation --postgres --seeds 200` runs more."""

from __future__ import annotations

from collections import Counter

from tests.simulation.on_postgres import PostgresWorld
from tests.simulation.runner import run_seed

SEEDS = range(6)


def test_simulation_on_postgresql_keeps_the_invariants() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = run_seed(seed, actions=60, make=PostgresWorld)
        assert not outcome.failure, f"seed {seed}: {outcome.failure}\n" + "\n".join(outcome.log[-10:])
        seen.update(outcome.seen)
    assert seen["killed before commit"]
    assert seen["reply lost"]
