"""How long an agent's lease lasts, from what the agent has shown so far.

A timeout trades late discovery of a death against the recovery of the living, and the right trade changes as a task
goes on. An agent that has reported nothing may never have started: look soon. One that has reported once is alive: be
moderate. In the middle of a task there is work to lose: be patient. Near the end only a last stall is left to find:
look soon again. So the number of reports decides first, and progress only from the second report on, because a single
report of 90 % says more about the reporter than about the work.

    reports   progress    phase       term    grace
    0         any         unproven     60 s    20 s
    1         any         working      90 s    30 s
    2 up      below 25    working      90 s    30 s
    2 up      25 to 75    proven      120 s    30 s
    2 up      above 75    finishing    60 s    15 s

The table is what the default settings mean. Other settings scale it: terms by `default_hours` over its default, graces
by `grace_period_minutes` over its default. A term never leaves [min_lease_hours, max_lease_hours]; a grace has no such
bounds. Renewal decay does not apply to the table: an agent that reports often would be punished for it.

Two settings replace the table. `enable_adaptive=false` gives every lease `default_hours` and `grace_period_minutes`
("fixed"). `default_hours` of an hour or more means long work by people or batch programs ("conservative"): the task's
estimate, times its priority's and complexity's multipliers, times decay for each renewal, within floor and ceiling.

Nothing here knows the time, and nothing here decides that anyone is dead: see core/deadline.py.
"""

from __future__ import annotations

from tenure.core.record import Record
from tenure.core.settings import DEFAULTS, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from tenure.core.settings import TaskLeaseSettings

    Phase = Literal["unproven", "working", "proven", "finishing", "conservative", "fixed"]

# phase: (term in seconds, grace in seconds) under the default settings.
PHASES: dict[Phase, tuple[int, int]] = {
    "unproven": (60, 20),
    "working": (90, 30),
    "proven": (120, 30),
    "finishing": (60, 15),
}
PROVEN_FROM_PERCENT = 25
FINISHING_ABOVE_PERCENT = 75
CONSERVATIVE_FROM_HOURS = 1.0

# What the table above was written for; settings scale it relative to these.
_TABLE_TERM_S = seconds(DEFAULTS.task_lease.default_hours)
_TABLE_GRACE_MINUTES = DEFAULTS.task_lease.grace_period_minutes


class Term(Record):
    """What the next extension of a lease gives: a term, a grace after it, and the phase that says why."""

    phase: Phase
    term_ms: int
    grace_ms: int


def phase_of(reports: int, progress: int) -> Phase:
    """The row of the table an agent stands in."""
    if reports == 0:
        return "unproven"
    if reports == 1 or progress < PROVEN_FROM_PERCENT:
        return "working"
    return "proven" if progress <= FINISHING_ABOVE_PERCENT else "finishing"


def term_for(
    settings: TaskLeaseSettings,
    *,
    reports: int,
    progress: int,
    renewals: int,
    estimated_hours: float,
    priority: str,
    complexity: str,
) -> Term:
    """The term of a lease granted or extended now, under these settings."""
    grace_ms = round(settings.grace_period_minutes * 60_000)
    if not settings.enable_adaptive:
        return Term(phase="fixed", term_ms=seconds(settings.default_hours) * 1000, grace_ms=grace_ms)
    if settings.default_hours >= CONSERVATIVE_FROM_HOURS:
        hours = (
            estimated_hours
            * settings.priority_multipliers.get(priority, 1.0)
            # A task of no stated complexity has no multiplier.
            * settings.complexity_multipliers.get(complexity, 1.0)
            * settings.renewal_decay_factor**renewals
        )
        # Seconds are rounded after clamping, so an infinite estimate is the ceiling and not an error.
        term_ms = int(_clamped_ms(settings, hours * 3_600_000) / 1000 + 0.5) * 1000
        return Term(phase="conservative", term_ms=term_ms, grace_ms=grace_ms)
    phase = phase_of(reports, progress)
    term_s, grace_s = PHASES[phase]
    # The setting counts in the whole seconds it means: 0.0333 h scales as two minutes, not as 119.88 s.
    scaled_ms = term_s * 1000 * seconds(settings.default_hours) / _TABLE_TERM_S
    return Term(
        phase=phase,
        term_ms=round(_clamped_ms(settings, scaled_ms)),
        grace_ms=round(grace_s * 1000 * settings.grace_period_minutes / _TABLE_GRACE_MINUTES),
    )


def _clamped_ms(settings: TaskLeaseSettings, term_ms: float) -> float:
    return max(seconds(settings.min_lease_hours) * 1000, min(term_ms, seconds(settings.max_lease_hours) * 1000))
