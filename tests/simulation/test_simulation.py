"""A few dozen seeds with every test run; `python -m tests.simulation --seeds 1000` runs more."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.runner import Outcome, run_seed

SEEDS = range(80)

# What the seeds above must have reached, or they prove less than they seem to.
PHENOMENA = (
    "recovered by advance",
    "recovered by claim",
    "recovered by claim_next",
    "recovered by another verb",
    "recovered lease_expired",
    "recovered process_exited",
    "healed by report",
    "event returned",
    "event offer_expired",
    "event warning",
    "event stuck",
    "event late",
    "event died",
    "late success",
    "completed elsewhere",
    "escalated quarantined",
    "escalated max_retries_exceeded",
    "exit seen while another link pulses",
    "held by a deaf server",
    "lease lifted",
    "lease taken over by a newer incarnation",
    "handoff shown",
    "claim replayed",
    "end replayed",
    "receipt replayed",
    "reply lost",
    "killed before commit",
    "killed after commit",
    "power lost",
    "disk full",
    "reboot",
    "store_shared",
    "suspend",
    "step back",
    "step forward",
    "drift",
    "hang",
    "crash",
    "haunt",
)
REFUSALS = (
    "claim already_claimed",
    "claim dependencies_unmet",
    "claim task_waiting",
    "claim capabilities_missing",
    "claim task_assigned",
    "report lease_lost",
    "report superseded",
    "complete lease_lost",
    "renew not_accepted",
    "touch superseded",
    "submit_receipt lease_lost",
    "delete_task has_dependants",
    "add_dependency cycle",
)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [run_seed(seed) for seed in SEEDS]


def test_simulation_of_every_seed_keeps_the_invariants(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.failure]
    told = [
        f"seed {outcome.seed}: {outcome.failure}\n  replay: python -m tests.simulation --seed {outcome.seed} -v\n"
        + "\n".join(outcome.log[-10:])
        for outcome in failed
    ]
    assert not failed, "\n\n".join(told)


def test_simulation_reaches_everything_it_is_for(outcomes: list[Outcome]) -> None:
    seen: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    for outcome in outcomes:
        seen.update(outcome.seen)
        answers.update(outcome.answers)
    assert [name for name in PHENOMENA if not seen[name]] == []
    assert [name for name in REFUSALS if not answers[name]] == []


def test_simulation_of_one_seed_is_the_same_every_time() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first == second
