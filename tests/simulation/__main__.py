"""python -m tests.simulation --seeds 1000 [--start 0] [--steps 70], or --seed 17 -v to replay one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from functools import partial
from multiprocessing import get_context

from tests.simulation.runner import ACTIONS, Outcome, run_seed


def main() -> int:
    """Run the seeds, tell what happened in them, and how to replay the ones that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=ACTIONS, help="actions per seed; each is one or more steps")
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true", help="print every step")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, in one process")
    asked = parser.parse_args()
    if asked.postgres:
        return _on_postgres(range(asked.start, asked.start + asked.seeds), asked.steps)
    if asked.seed is not None:
        outcome = run_seed(asked.seed, asked.steps, verbose=asked.verbose)
        print(f"FAILED {outcome.failure}" if outcome.failure else f"seed {asked.seed}: {outcome.steps} steps, sound")
        return 1 if outcome.failure else 0
    return _many(asked.start, asked.seeds, asked.steps, asked.processes)


def _many(start: int, seeds: int, actions: int, processes: int) -> int:
    began = time.monotonic()
    answers: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    failed: list[Outcome] = []
    steps = 0
    # The function comes from a module of its own: a spawned process cannot import this one.
    run = partial(run_seed, actions=actions)
    with get_context("spawn").Pool(processes) as pool:
        for done, outcome in enumerate(pool.imap_unordered(run, range(start, start + seeds), chunksize=4), 1):
            answers.update(outcome.answers)
            seen.update(outcome.seen)
            steps += outcome.steps
            if outcome.failure:
                failed.append(outcome)
                _tell(outcome, actions)
            if done % 250 == 0:
                print(f"{done} seeds, {len(failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
    _summary(answers, seen)
    took = time.monotonic() - began
    print(f"{seeds} seeds, {steps} steps, {len(failed)} failed, {took:.1f} s, {seeds / took:.1f} seeds/s")
    if failed:
        print("failed seeds:", " ".join(str(outcome.seed) for outcome in sorted(failed)[:50]))
    return 1 if failed else 0


def _on_postgres(seeds: range, actions: int) -> int:
    from tests.simulation.on_postgres import PostgresWorld

    failed = 0
    for seed in seeds:
        outcome = run_seed(seed, actions, make=PostgresWorld)
        if outcome.failure:
            failed += 1
            _tell(outcome, actions)
    print(f"{len(seeds)} seeds on PostgreSQL, {failed} failed")
    return 1 if failed else 0


def _tell(outcome: Outcome, actions: int) -> None:
    print(f"\nseed {outcome.seed} FAILED: {outcome.failure}")
    print("  the last steps:")
    for line in outcome.log[-12:]:
        print("   ", line)
    steps = "" if actions == ACTIONS else f" --steps {actions}"
    print(f"  replay: python -m tests.simulation --seed {outcome.seed} -v{steps}", flush=True)


def _summary(answers: Counter[str], seen: Counter[str]) -> None:
    """One line for each verb, with its refusals, and one list of what else was reached."""
    verbs: dict[str, list[str]] = {}
    for name, count in sorted(answers.items(), key=lambda item: -item[1]):
        verb, _, code = name.partition(" ")
        verbs.setdefault(verb, []).append(f"{code} {count}")
    print()
    for verb, codes in sorted(verbs.items()):
        print(f"  {verb:18} {', '.join(codes)}")
    print("  reached:", ", ".join(f"{name} {count}" for name, count in sorted(seen.items())))


if __name__ == "__main__":
    sys.exit(main())
