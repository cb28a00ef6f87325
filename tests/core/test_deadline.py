"""The one deadline: every term winning once and losing once, boundary instants, deaf servers, marks and warnings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.deadline import (
    GAPS_KEPT,
    PULSE_VALID_MS,
    announcement_ms,
    close_call,
    is_deaf,
    judged_at_ms,
    live,
    marked,
    median_gap_ms,
    median_ms,
    next_wake_ms,
    pulse_ms,
    recover_at_ms,
    rule_ms,
    seen,
    settled,
    shown_status,
    warn_at_ms,
)
from tenure.core.model import Lease, Task

S = 1000
FAR = 1 << 60

# A lease in phase 2, granted and last seen at 0: it expires at 90 s and the rule ends it at 120 s.
BASE: dict[str, Any] = {
    "lease_id": "lease-1",
    "task_key": 1,
    "project_id": "default",
    "task_id": "F001",
    "agent_id": "A1",
    "incarnation": 1,
    "token": 1,
    "profile": "agent",
    "state": "active",
    "granted_at_ms": 0,
    "accepted_at_ms": 0,
    "term_ms": 90 * S,
    "grace_ms": 30 * S,
    "expires_at_ms": 90 * S,
    "seen_at_ms": 0,
    "recover_at_ms": FAR,
    "wake_at_ms": FAR,
}
FIXED = {"fixed": 1, "profile": "cli", "term_ms": 900 * S, "expires_at_ms": 900 * S, "grace_ms": 0}


def lease(**changes: Any) -> Lease:
    """A settled lease."""
    return settled(Lease(**{**BASE, **changes}))


@pytest.mark.parametrize(
    ("changes", "recover_s", "because"),
    [
        ({}, 120, "the rule alone: expired past grace"),
        ({"grace_ms": 0}, 90, "no grace: the lease's own end"),
        ({"cadence_ms": 121 * S}, 121, "the cadence wins: this agent is usually silent for longer than its lease"),
        ({"cadence_ms": 119 * S}, 120, "the cadence loses: the rule is longer"),
        ({"pulsed_at_ms": 110 * S}, 125, "the pulse wins: someone saw the process 15 s before"),
        ({"pulsed_at_ms": 100 * S}, 120, "the pulse loses: it is too old to reach beyond the rule"),
        ({"pulsed_at_ms": 700 * S}, 600, "a pulse carries no further than hung_after past the last own call"),
        ({"pulsed_at_ms": 700 * S, "hung_after_ms": 60 * S}, 120, "hung_after never shortens what the rule gives"),
        ({"silent_until_ms": 300 * S}, 300, "the announcement wins: it said it would be silent"),
        ({"silent_until_ms": 100 * S}, 120, "the announcement loses: the rule is longer"),
        ({"silent_until_ms": 9_999 * S}, 3_600, "an announcement carries no further than its cap"),
        ({"silent_until_ms": 9_999 * S, "silence_cap_ms": 0}, 120, "a cap of nothing leaves the rule"),
        ({"silent_until_ms": 300 * S, "pulsed_at_ms": 300 * S}, 315, "the pulse beats a shorter announcement"),
        ({"silent_until_ms": 400 * S, "pulsed_at_ms": 300 * S}, 400, "the announcement beats a shorter pulse"),
        ({"death_at_ms": 55 * S}, 55, "a seen death wins against the rule"),
        ({"death_at_ms": 55 * S, "pulsed_at_ms": 55 * S}, 55, "a seen death wins against a pulse"),
        ({"death_at_ms": 55 * S, "silent_until_ms": 600 * S}, 55, "a seen death wins against an announcement"),
        ({"death_at_ms": 500 * S}, 120, "a death after the deadline changes nothing"),
        (FIXED, 900, "a fixed TTL: the end of the lease"),
        ({**FIXED, "grace_ms": 30 * S}, 900, "a fixed TTL has no grace"),
        ({**FIXED, "cadence_ms": 5_000 * S}, 900, "a fixed TTL has no cadence"),
        ({**FIXED, "pulsed_at_ms": 899 * S}, 900, "a fixed TTL is not carried by a pulse"),
        ({**FIXED, "silent_until_ms": 2_000 * S}, 900, "a fixed TTL is not carried by an announcement"),
        ({**FIXED, "death_at_ms": 55 * S}, 55, "a fixed TTL ends with a seen death"),
    ],
)
def test_settle_lease_gives_the_deadline_of_its_winning_term(
    changes: dict[str, Any], recover_s: int, because: str
) -> None:
    made = lease(**changes)
    assert made.recover_at_ms == recover_s * S, because
    assert live(made, recover_s * S - 1), "the last instant before the deadline is live"
    assert not live(made, recover_s * S), "the boundary instant is expired"
    assert not live(made, recover_s * S + 1)


@pytest.mark.parametrize("state", ["released", "completed", "expired", "revoked"])
def test_judge_ended_lease_is_never_live(state: str) -> None:
    assert not live(lease(state=state), 0)


@pytest.mark.parametrize("state", ["offered", "active"])
def test_judge_unended_lease_is_live_before_its_deadline(state: str) -> None:
    assert live(lease(state=state), 0)


# -- deaf servers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "now_s", "expected", "because"),
    [
        ({"server_pulsed_at_ms": 110 * S}, 125, False, "a pulse 15 s old is fresh: the server could hear"),
        ({"server_pulsed_at_ms": 110 * S}, 125.001, True, "a pulse older than that: judged as of the pulse"),
        ({"server_pulsed_at_ms": 119.999 * S}, 400, True, "live at the last pulse, whatever came after"),
        ({"server_pulsed_at_ms": 120 * S}, 400, False, "already dead at the last pulse: it could have been heard"),
        ({"server_pulsed_at_ms": 100 * S}, 719.999, True, "deaf for long, but not hung_after past the deadline"),
        ({"server_pulsed_at_ms": 100 * S}, 720, False, "a server that never returns makes nobody immortal"),
        ({"server_pulsed_at_ms": None}, 120, False, "no server: now is now"),
        ({"server_pulsed_at_ms": 100 * S, "death_at_ms": 110 * S}, 400, False, "a death needs nobody to hear it"),
        ({"server_pulsed_at_ms": 100 * S, "death_at_ms": 110 * S}, 109.999, True, "before that death it lived"),
        ({**FIXED, "server_pulsed_at_ms": 890 * S}, 1_499.999, True, "workers behind a deaf server are spared too"),
        ({**FIXED, "server_pulsed_at_ms": 890 * S}, 1_500, False, "and no longer than hung_after either"),
    ],
)
def test_judge_lease_behind_a_server(changes: dict[str, Any], now_s: float, expected: bool, because: str) -> None:
    made = lease(**{name: int(value) if isinstance(value, float) else value for name, value in changes.items()})
    assert live(made, round(now_s * S)) is expected, because


def test_judge_deaf_server_turns_the_clock_back_to_its_pulse() -> None:
    made = lease(server_pulsed_at_ms=100 * S)
    assert not is_deaf(made, 100 * S + PULSE_VALID_MS)
    assert is_deaf(made, 100 * S + PULSE_VALID_MS + 1)
    assert judged_at_ms(made, 200 * S) == 100 * S
    assert judged_at_ms(made, 720 * S) == 720 * S


# -- warnings and the timer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "warn_s", "because"),
    [
        ({}, 54, "36 s before expiry"),
        ({"warned": 1}, None, "once per term"),
        ({"term_ms": 36 * S, "expires_at_ms": 36 * S}, None, "a term no longer than the warning has no room for one"),
        ({"term_ms": 37 * S, "expires_at_ms": 37 * S}, 1, "one second of room is enough"),
        ({"warning_ms": 0}, 90, "no lead: at expiry"),
    ],
)
def test_plan_warning_of_a_term(changes: dict[str, Any], warn_s: int | None, because: str) -> None:
    assert warn_at_ms(lease(**changes)) == (None if warn_s is None else warn_s * S), because


def test_plan_wake_is_the_warning_then_the_deadline() -> None:
    assert next_wake_ms(lease()) == 54 * S
    assert next_wake_ms(lease(warned=1)) == 120 * S
    assert next_wake_ms(lease(death_at_ms=10 * S)) == 10 * S


def test_extend_lease_allows_one_more_warning() -> None:
    after = settled(seen(lease(warned=1), 80 * S, extends=True))
    assert (after.warned, warn_at_ms(after)) == (0, 134 * S)


def test_settle_extended_lease_never_raises_its_timer() -> None:
    """A touch moves no index: the timer stays low, fires early and is set anew then."""
    before = lease()
    after = settled(seen(before, 50 * S, extends=True))
    assert after.recover_at_ms > before.recover_at_ms
    assert after.wake_at_ms == before.wake_at_ms == 54 * S


def test_settle_dead_lease_lowers_its_timer() -> None:
    assert settled(lease().replace(death_at_ms=10 * S)).wake_at_ms == 10 * S


# -- calls and marks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "extends", "silence_s", "expected", "because"),
    [
        ({}, True, 0, {"seen_at_ms": 50 * S, "expires_at_ms": 140 * S}, "a call extends by the present term"),
        (
            {},
            False,
            0,
            {"seen_at_ms": 50 * S, "expires_at_ms": 90 * S},
            "where only heartbeats extend, it is only seen",
        ),
        ({}, True, 600, {"silent_until_ms": 650 * S}, "an announcement counts from now"),
        ({}, True, 99_999, {"silent_until_ms": 3_650 * S}, "and is capped"),
        ({"silent_until_ms": 650 * S}, True, 0, {"silent_until_ms": None}, "the next own call clears it"),
        (FIXED, True, 600, {"expires_at_ms": 950 * S}, "a fixed TTL longer than the announcement stays"),
        (
            FIXED,
            True,
            2_000,
            {"expires_at_ms": 2_050 * S, "term_ms": 900 * S},
            "a longer one buys that one longer term",
        ),
        (FIXED, True, 99_999, {"expires_at_ms": 3_650 * S}, "up to the cap"),
        (
            {"state": "offered", "warned": 1},
            True,
            0,
            {"seen_at_ms": 50 * S, "expires_at_ms": 90 * S, "warned": 1},
            "nothing but accepting it keeps an offer",
        ),
        (
            FIXED,
            False,
            2_000,
            {"expires_at_ms": 900 * S, "silent_until_ms": None},
            "but not by a call that extends nothing",
        ),
    ],
)
def test_see_holder_call(
    changes: dict[str, Any], extends: bool, silence_s: int, expected: dict[str, Any], because: str
) -> None:
    after = seen(lease(**changes), 50 * S, extends=extends, expect_silence_ms=silence_s * S)
    assert {name: getattr(after, name) for name in expected} == expected, because
    assert after.touches == 1


@pytest.mark.parametrize(
    ("at_s", "median_s", "cadence_s", "because"),
    [
        ([15], None, 0, "one mark is no rhythm"),
        ([15, 40], 25, 0, "one gap says nothing about a habit: the median is known, the cadence is not in force"),
        ([15, 40, 65], 25, 37.5, "from the third mark on the cadence is in force"),
        ([0, 10, 40], 20, 30, "of two gaps the median is their middle"),
        ([0, 10, 400, 420], 20, 30, "one long gap among three does not move the median"),
        ([0, 0, 0], 0, 0, "marks at one instant allow no silence at all"),
    ],
)
def test_mark_lease_learns_its_cadence(at_s: list[int], median_s: float | None, cadence_s: float, because: str) -> None:
    made = lease()
    for second in at_s:
        made = marked(made, second * S, 1.5)
    assert median_gap_ms(made) == (None if median_s is None else median_s * S), because
    assert made.cadence_ms == cadence_s * S, because


def test_mark_lease_with_another_multiplier_scales_the_cadence() -> None:
    made = lease()
    for second in (0, 10, 20):
        made = marked(made, second * S, 2.0)
    assert made.cadence_ms == 20 * S


def test_mark_lease_often_keeps_a_bounded_history() -> None:
    made = lease()
    for second in range(200):
        made = marked(made, second * S, 1.5)
    assert len(made.mark_gaps.split()) == GAPS_KEPT


def test_mark_lease_after_a_clock_step_back_counts_no_negative_gap() -> None:
    assert marked(lease(marked_at_ms=100 * S), 50 * S, 1.5).mark_gaps == "0"


@pytest.mark.parametrize(("gaps", "median"), [([3], 3), ([1, 3], 2), ([9, 1, 5], 5), ([4, 1, 3, 2], 2.5)])
def test_take_median(gaps: list[int], median: float) -> None:
    assert median_ms(gaps) == median


# -- what anyone sees --------------------------------------------------------------------------------------------------

TASK = Task(
    key=1, project_id="default", task_id="F001", title="T", status="in_progress", owner="agent", assigned_to="A1"
)


@pytest.mark.parametrize(
    ("changes", "leases", "expected", "because"),
    [
        ({}, [lease()], ("in_progress", False), "a live lease"),
        ({}, [lease(death_at_ms=1)], ("todo", True), "a dead holder: todo, and its recovery is due"),
        ({}, [lease(death_at_ms=1), lease(slot=1)], ("in_progress", False), "one of two slots is alive"),
        ({}, [], ("todo", True), "no lease at all"),
        ({"owner": "external", "assigned_to": "Bob"}, [], ("in_progress", False), "a person has it, without a lease"),
        ({"owner": "internal", "assigned_to": "Marcus"}, [], ("in_progress", False), "the reserved owner has it"),
        (
            {"status": "todo", "owner": None},
            [lease(state="offered")],
            ("todo", False),
            "an offer: todo, holder pending",
        ),
        ({"status": "blocked", "owner": None}, [], ("blocked", False), "blocked is blocked"),
        ({"status": "done", "owner": None}, [], ("done", False), "done is done"),
    ],
)
def test_show_status(changes: dict[str, Any], leases: list[Lease], expected: tuple[str, bool], because: str) -> None:
    assert shown_status(TASK.replace(**changes), leases, 10 * S) == expected, because


# -- properties --------------------------------------------------------------------------------------------------------

MOMENT = st.integers(0, 10_000_000)
LEASES = st.fixed_dictionaries(
    {
        "term_ms": st.integers(1, 1_000_000),
        "grace_ms": st.integers(0, 100_000),
        "cadence_ms": st.integers(0, 1_000_000),
        "hung_after_ms": st.integers(0, 1_000_000),
        "silence_cap_ms": st.integers(0, 5_000_000),
        "expires_at_ms": MOMENT,
        "seen_at_ms": MOMENT,
        "pulsed_at_ms": st.none() | MOMENT,
        "silent_until_ms": st.none() | MOMENT,
        "death_at_ms": st.none() | MOMENT,
        "server_pulsed_at_ms": st.none() | MOMENT,
        "fixed": st.integers(0, 1),
        "wake_at_ms": MOMENT,
        "warned": st.integers(0, 1),
    }
)
GROWING = (
    "grace_ms",
    "cadence_ms",
    "hung_after_ms",
    "silence_cap_ms",
    "expires_at_ms",
    "seen_at_ms",
    "pulsed_at_ms",
    "silent_until_ms",
    "death_at_ms",
)


@given(LEASES, st.sampled_from(GROWING), st.integers(0, 1_000_000))
def test_move_any_input_later_never_brings_the_deadline_forward(values: dict[str, Any], name: str, by: int) -> None:
    before = Lease(**{**BASE, **values})
    if getattr(before, name) is not None:
        assert recover_at_ms(before.replace(**{name: getattr(before, name) + by})) >= recover_at_ms(before)


@given(LEASES)
def test_compute_deadline_is_one_of_its_terms_and_death_bounds_it(values: dict[str, Any]) -> None:
    made = Lease(**{**BASE, **values})
    deadline = recover_at_ms(made)
    terms = [made.expires_at_ms] if made.fixed else [rule_ms(made), pulse_ms(made), announcement_ms(made)]
    assert deadline in (*terms, made.death_at_ms)
    if made.death_at_ms is None:
        assert deadline == max(terms)
    else:
        assert deadline <= made.death_at_ms


@given(LEASES, MOMENT, MOMENT)
def test_judge_liveness_once_dead_stays_dead(values: dict[str, Any], one: int, other: int) -> None:
    """Without a write nobody comes back to life, except while a deaf server's pulse turns the clock back."""
    made = lease(**{**values, "server_pulsed_at_ms": None})
    earlier, later = sorted((one, other))
    assert live(made, earlier) or not live(made, later)


@given(LEASES, MOMENT)
def test_judge_deaf_server_only_ever_spares(values: dict[str, Any], now: int) -> None:
    heard = lease(**{**values, "server_pulsed_at_ms": None})
    behind = lease(**values)
    assert live(behind, now) or not live(heard, now) or behind.server_pulsed_at_ms is None
    assert not live(behind, behind.recover_at_ms + behind.hung_after_ms)


@given(LEASES)
def test_settle_lease_never_raises_its_timer_and_wakes_by_the_deadline(values: dict[str, Any]) -> None:
    before = Lease(**{**BASE, **values})
    after = settled(before)
    assert after.wake_at_ms <= before.wake_at_ms
    assert after.wake_at_ms <= after.recover_at_ms
    assert settled(after) == after, "settling twice changes nothing"


@given(LEASES, MOMENT, st.integers(0, 5_000_000), st.booleans())
def test_see_call_later_than_everything_never_shortens_a_phase_lease(
    values: dict[str, Any], now: int, silence: int, extends: bool
) -> None:
    """A sign of life can end an announcement, but never the time that the rule gives."""
    made = Lease(**{**BASE, **values, "fixed": 0, "seen_at_ms": 0, "expires_at_ms": min(values["expires_at_ms"], now)})
    after = seen(made, now, extends=extends, expect_silence_ms=silence)
    assert rule_ms(after) >= rule_ms(made)
    assert pulse_ms(after) >= pulse_ms(made)


@pytest.mark.parametrize(
    ("term_s", "after_s", "close", "because"),
    [
        (900, 1, False, "a call at once"),
        (900, 863, False, "more than the warning time is left"),
        (900, 864, True, "the warning time is left, to the instant"),
        (900, 899, True, "it was nearly late"),
        (60, 39, False, "of a term shorter than three warnings a third counts: more than that is left"),
        (60, 40, True, "a third is left, to the instant"),
        (5, 1, False, "a term shorter than the warning is not always close to its end"),
        (5, 4, True, "but at its end it is"),
    ],
)
def test_close_call_is_one_that_was_nearly_late(term_s: int, after_s: int, close: bool, because: str) -> None:
    held = lease(**{**FIXED, "term_ms": term_s * S, "expires_at_ms": term_s * S})
    assert not close_call(held), "no call yet"
    called = settled(seen(held, after_s * S, extends=True))
    assert close_call(called) is close, because
    prompt = settled(seen(called, after_s * S + S, extends=True))
    assert not close_call(prompt), "judged by the last call alone"
