"""A server's batches change nothing but the cost: the same seeds, through its writer."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path

from tenure.clock import ManualClock
from tenure.store.sqlite import SqliteStore
from tests.simulation.on_batches import BatchedWorld, Recorder, told_again
from tests.simulation.rows import dump
from tests.simulation.runner import run_seed

SEEDS = range(40)


def test_simulation_with_a_servers_writer_keeps_the_invariants() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = run_seed(seed, make=BatchedWorld)
        assert not outcome.failure, f"seed {seed}: {outcome.failure}\n" + "\n".join(outcome.log[-10:])
        seen.update(outcome.seen)
    wanted = ("killed before commit", "killed after commit", "disk full", "reboot", "recovered by claim_next")
    assert [name for name in wanted if not seen[name]] == []


def test_verbs_of_one_commit_write_what_they_write_alone(tmp_path: Path) -> None:
    largest = 0
    for seed in SEEDS:
        worlds: list[Recorder] = []

        def recording(*given: object, worlds: list[Recorder] = worlds, **named: object) -> Recorder:
            worlds.append(Recorder(*given, **named))  # type: ignore[arg-type]
            return worlds[0]

        outcome = run_seed(seed, make=recording)
        assert not outcome.failure, outcome.failure
        path = str(tmp_path / f"{seed}.db")
        clock = ManualClock()
        store = SqliteStore(path, clock=clock, random=random.Random(f"noise {seed}").randbytes)
        store.run(lambda transaction: None)
        largest = max(largest, told_again(worlds[0].story, store))
        store.close()
        eyes = sqlite3.connect(path)
        assert dump(eyes) == worlds[0].rows, f"seed {seed}"
        eyes.close()
    assert largest >= 5
