"""The phase table, its scaling and clamps, and the two modes that replace it."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.phases import PHASES, Term, phase_of, term_for
from tenure.core.settings import Settings, TaskLeaseSettings, parse

UNPROVEN = ("unproven", 60, 20)
WORKING = ("working", 90, 30)
PROVEN = ("proven", 120, 30)
FINISHING = ("finishing", 60, 15)

# The specification's table: reports, progress, the row it gives, and why.
TABLE = [
    (0, 0, UNPROVEN, "nothing reported yet: a failed start is found fast"),
    (0, 24, UNPROVEN, "inherited progress proves nothing about this holder"),
    (0, 25, UNPROVEN, "inherited progress proves nothing about this holder"),
    (0, 75, UNPROVEN, "inherited progress proves nothing about this holder"),
    (0, 76, UNPROVEN, "inherited progress proves nothing about this holder"),
    (1, 0, WORKING, "one report: alive, be moderate"),
    (1, 24, WORKING, "one report is moderate whatever it says"),
    (1, 25, WORKING, "one report is moderate whatever it says"),
    (1, 75, WORKING, "one report is moderate whatever it says"),
    (1, 76, WORKING, "one report is moderate whatever it says"),
    (2, 0, WORKING, "below a quarter there is little to protect"),
    (2, 24, WORKING, "just below a quarter"),
    (2, 25, PROVEN, "a quarter is included: protect in-flight work"),
    (2, 75, PROVEN, "three quarters are included"),
    (2, 76, FINISHING, "above three quarters: find a last stall quickly"),
    (2, 100, FINISHING, "everything done but not completed"),
    (40, 50, PROVEN, "more reports change nothing"),
]


def term(
    settings: TaskLeaseSettings,
    *,
    reports: int = 0,
    progress: int = 0,
    renewals: int = 0,
    estimated_hours: float = 4.0,
    priority: str = "medium",
    complexity: str = "none",
) -> Term:
    return term_for(
        settings,
        reports=reports,
        progress=progress,
        renewals=renewals,
        estimated_hours=estimated_hours,
        priority=priority,
        complexity=complexity,
    )


def lease_settings(**changes: Any) -> TaskLeaseSettings:
    """Settings as a user would get them: through the parser, so that no row rests on values it refuses."""
    settings = parse({"task_lease": changes})
    assert isinstance(settings, Settings), settings
    return settings.task_lease


@pytest.mark.parametrize(("reports", "progress", "row", "why"), TABLE)
def test_term_with_default_settings_is_the_table(
    reports: int, progress: int, row: tuple[str, int, int], why: str
) -> None:
    found = term(TaskLeaseSettings(), reports=reports, progress=progress)
    assert (found.phase, found.term_ms, found.grace_ms) == (row[0], row[1] * 1000, row[2] * 1000), why


@pytest.mark.parametrize(("reports", "progress", "row", "why"), TABLE)
def test_phase_of_reports_and_progress_names_the_row(
    reports: int, progress: int, row: tuple[str, int, int], why: str
) -> None:
    assert phase_of(reports, progress) == row[0], why


def test_table_totals_are_the_specification_s() -> None:
    assert {phase: sum(times) for phase, times in PHASES.items()} == {
        "unproven": 80,
        "working": 120,
        "proven": 150,
        "finishing": 75,
    }


@pytest.mark.parametrize("renewals", [0, 1, 5, 100])
def test_term_in_the_table_ignores_renewals_estimate_priority_and_complexity(renewals: int) -> None:
    found = term(
        TaskLeaseSettings(),
        reports=2,
        progress=50,
        renewals=renewals,
        estimated_hours=99,
        priority="critical",
        complexity="epic",
    )
    assert (found.phase, found.term_ms, found.grace_ms) == ("proven", 120_000, 30_000)


ROWS = {"unproven": (0, 0), "working": (1, 0), "proven": (2, 50), "finishing": (2, 80)}

# Settings, the terms in seconds of the four phases in order, the graces, and why.
SCALED: list[tuple[dict[str, Any], list[float], list[float], str]] = [
    ({}, [60, 90, 120, 60], [20, 30, 30, 15], "the defaults are the identity"),
    ({"default_hours": 0.05}, [120, 180, 240, 120], [20, 30, 30, 15], "twice the lease, the same grace"),
    ({"grace_period_minutes": 1}, [60, 90, 120, 60], [40, 60, 60, 30], "twice the grace, the same lease"),
    ({"grace_period_minutes": 0.25}, [60, 90, 120, 60], [10, 15, 15, 7.5], "graces keep their milliseconds"),
    ({"grace_period_minutes": 0}, [60, 90, 120, 60], [0, 0, 0, 0], "no grace at all"),
    ({"default_hours": 0.0333}, [80, 120, 160, 80], [20, 30, 30, 15], "0.0333 h means two minutes, not 119.88 s"),
    ({"default_hours": 0.0833}, [200, 300, 300, 200], [20, 30, 30, 15], "proven would be 400 s: the ceiling holds"),
    ({"default_hours": 0.0167}, [60, 60, 80, 60], [20, 30, 30, 15], "unproven would be 40 s: the floor holds"),
    ({"max_lease_hours": 0.025}, [60, 90, 90, 60], [20, 30, 30, 15], "a lower ceiling cuts the longest phase only"),
    ({"min_lease_hours": 0.025}, [90, 90, 120, 90], [20, 30, 30, 15], "a higher floor lifts the shortest phases"),
    (
        {"default_hours": 0.05, "max_lease_hours": 0.05, "grace_period_minutes": 2},
        [120, 180, 180, 120],
        [80, 120, 120, 60],
        "grace is scaled and never clamped",
    ),
    (
        {"default_hours": 0.9, "max_lease_hours": 2},
        [2160, 3240, 4320, 2160],
        [20, 30, 30, 15],
        "just under an hour the table still rules",
    ),
]


@pytest.mark.parametrize(("changes", "terms_s", "graces_s", "why"), SCALED)
def test_term_under_other_settings_is_scaled_then_clamped(
    changes: dict[str, Any], terms_s: list[float], graces_s: list[float], why: str
) -> None:
    settings = lease_settings(**changes)
    found = [term(settings, reports=reports, progress=progress) for reports, progress in ROWS.values()]
    assert [each.phase for each in found] == list(ROWS), why
    assert [each.term_ms for each in found] == [second * 1000 for second in terms_s], why
    assert [each.grace_ms for each in found] == [second * 1000 for second in graces_s], why


@pytest.mark.parametrize(("reports", "progress"), ROWS.values())
def test_term_without_adaptation_is_the_two_settings_alone(reports: int, progress: int) -> None:
    settings = lease_settings(enable_adaptive=False)
    found = term(settings, reports=reports, progress=progress, renewals=3, priority="critical", complexity="epic")
    assert found == Term(phase="fixed", term_ms=90_000, grace_ms=30_000)


def test_term_without_adaptation_stays_fixed_above_an_hour() -> None:
    settings = lease_settings(enable_adaptive=False, default_hours=2, max_lease_hours=8)
    assert term(settings, estimated_hours=5) == Term(phase="fixed", term_ms=7_200_000, grace_ms=30_000)


# Arguments, the term in seconds under a floor of one minute and a ceiling of 24 h, and why.
CONSERVATIVE: list[tuple[dict[str, Any], int, str]] = [
    ({}, 14_400, "the default estimate of four hours, as it stands"),
    ({"priority": "critical"}, 7_200, "critical work is looked at in half the time"),
    ({"priority": "high"}, 10_800, "high: three quarters"),
    ({"priority": "medium"}, 14_400, "medium: as it stands"),
    ({"priority": "low"}, 21_600, "low: half as long again"),
    ({"priority": "unheard-of"}, 14_400, "a priority without multiplier counts as it stands"),
    ({"complexity": "none"}, 14_400, "no stated complexity: as it stands"),
    ({"complexity": "simple"}, 7_200, "simple: half"),
    ({"complexity": "complex"}, 21_600, "complex: half as long again"),
    ({"complexity": "research"}, 28_800, "research: twice"),
    ({"complexity": "epic"}, 43_200, "epic: three times"),
    ({"priority": "critical", "complexity": "epic"}, 21_600, "multipliers multiply"),
    ({"renewals": 0}, 14_400, "renewal 0: 1.00 of the base"),
    ({"renewals": 1}, 12_960, "renewal 1: 0.90 of the base"),
    ({"renewals": 2}, 11_664, "renewal 2: 0.81 of the base"),
    ({"renewals": 3}, 10_498, "renewal 3: 0.729 of the base, to the nearest second"),
    ({"renewals": 10_000}, 60, "decay ends at the floor"),
    ({"estimated_hours": 0.0}, 60, "no estimate at all: the floor"),
    ({"estimated_hours": -3.0}, 60, "a nonsensical estimate: the floor"),
    ({"estimated_hours": 1000.0}, 86_400, "more than the ceiling: the ceiling"),
    ({"estimated_hours": float("inf")}, 86_400, "an infinite estimate is the ceiling and not an error"),
    ({"estimated_hours": float("nan")}, 60, "an estimate that is no number is the floor and not an error"),
    ({"reports": 2, "progress": 80}, 14_400, "phases play no part"),
]


@pytest.mark.parametrize(("arguments", "term_s", "why"), CONSERVATIVE)
def test_term_from_an_hour_up_follows_the_estimate(arguments: dict[str, Any], term_s: int, why: str) -> None:
    settings = lease_settings(default_hours=1.0, max_lease_hours=24)
    assert term(settings, **arguments) == Term(phase="conservative", term_ms=term_s * 1000, grace_ms=30_000), why


def test_term_from_an_hour_up_uses_the_grace_setting_unscaled() -> None:
    settings = lease_settings(default_hours=4, max_lease_hours=24, grace_period_minutes=10)
    assert term(settings).grace_ms == 600_000


def test_term_from_an_hour_up_uses_the_users_own_multipliers() -> None:
    settings = lease_settings(
        default_hours=1,
        max_lease_hours=24,
        priority_multipliers={"critical": 0.25},
        complexity_multipliers={"epic": 4},
        renewal_decay_factor=1,
    )
    found = term(settings, estimated_hours=2, priority="critical", complexity="epic", renewals=5)
    assert found.term_ms == 7_200_000
