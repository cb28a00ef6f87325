"""The simulation notices broken rules. A check that never fails would prove nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.mutants import MUTANTS, Patch, first_seed_that_notices
from tests.simulation.runner import run_seed

SEEDS = 120


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutant_is_noticed_by_an_early_seed(
    mutant: Callable[[Patch], None], record_property: Callable[[str, object], None]
) -> None:
    noticed = first_seed_that_notices(mutant, SEEDS)
    assert noticed is not None, f"{SEEDS} seeds do not notice: {mutant.__doc__}"
    record_property("seed", noticed[0])
    print(f"{mutant.__name__}: seed {noticed[0]}, {noticed[1]}")


def test_mutants_leave_nothing_behind() -> None:
    assert run_seed(0).failure == ""
