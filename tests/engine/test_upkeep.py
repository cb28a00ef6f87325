"""Around recovery: servers that could not hear, warnings and flags that end nothing, statistics, forgetting."""

from __future__ import annotations

import pytest

from tenure.clock import ManualClock
from tenure.engine import agents, claims, observe, touch
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import data, events, report, shown, tick
from tests.support import add, dump, join, ok, refused, take

HOUR_S = 3_600


@pytest.fixture(autouse=True)
def fleet(store: SqliteStore) -> None:
    for name in ("A1", "A2", "A3", "A4"):
        join(store, name)


# -- deaf servers ------------------------------------------------------------------------------------------------------


def test_recover_lease_behind_a_deaf_server_waits_for_it(store: SqliteStore, clock: ManualClock) -> None:
    ok(agents.start_server(store, server_id="s1"))
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", server_id="s1"))
    for _ in range(10):
        clock.advance(5)
        ok(agents.pulse_server(store, server_id="s1"))
    clock.advance(100)
    assert tick(store).recovered == 0, "nobody could have heard it"
    refused(claims.claim(store, task_id="F001", agent_id="A2", profile="agent"), "already_claimed")
    assert ok(agents.start_server(store, server_id="s1")) == 1, (
        "a starting server lifts what was live at its last pulse"
    )
    for seconds in (10, 10, 9.999):
        clock.advance(seconds)
        ok(agents.pulse_server(store, server_id="s1"))
    assert shown(store).status == "in_progress"
    clock.advance(0.001)
    assert shown(store).due


def test_pulse_server_after_a_pause_of_its_own_gives_the_time_back(store: SqliteStore, clock: ManualClock) -> None:
    ok(agents.start_server(store, server_id="s1"))
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", server_id="s1"))
    clock.advance(300)
    ok(agents.pulse_server(store, server_id="s1"))
    for _ in range(7):
        clock.advance(10)
        ok(agents.pulse_server(store, server_id="s1"))
    assert shown(store).status == "in_progress", "70 s since the server hears again"
    clock.advance(10)
    assert shown(store).due


def test_start_server_revives_nobody_who_counts_as_dead_already(store: SqliteStore, clock: ManualClock) -> None:
    ok(agents.start_server(store, server_id="s1"))
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", server_id="s1"))
    clock.advance(680)
    assert ok(agents.start_server(store, server_id="s1")) == 0
    assert shown(store).due


def test_start_server_lifts_a_direct_caller_only_from_its_last_call(store: SqliteStore, clock: ManualClock) -> None:
    ok(agents.start_server(store, server_id="s1"))
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", server_id="s1"))
    clock.advance(60)
    ok(touch.touch(store, agent_id="A1"))
    clock.advance(60)
    ok(agents.start_server(store, server_id="s1"))
    (lease,) = ok(claims.leases_of(store, agent_id="A1"))
    assert lease.recover_at_ms - store.answered_at_ms == 80_000


def test_recover_lease_behind_a_server_that_never_returns(store: SqliteStore, clock: ManualClock) -> None:
    ok(agents.start_server(store, server_id="s1"))
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", server_id="s1"))
    for _ in range(60):
        clock.advance(10)
        assert tick(store).recovered == 0
    clock.advance(80)
    assert shown(store).due, "600 s past its deadline of 80 s"
    assert tick(store).recovered == 1


# -- warnings, flags, statistics ---------------------------------------------------------------------------------------


def test_warn_once_per_term(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    warnings = []
    for second in range(1, 200):
        clock.advance(1)
        if tick(store).warned:
            warnings.append(second)
        if second == 50:
            report(store, "A1", 10)
    assert warnings == [24, 104], "36 s before each expiry (60 s, then 50 + 90 s), and never twice"
    assert len(events(store, "warning")) == 2


def test_flag_stuck_at_five_renewals_and_over_max_at_ten(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    flags = []
    for number in range(1, 13):
        clock.advance(30)
        kept = report(store, "A1", 30).lease
        flags.append((number, kept.stuck, kept.over_max))
    assert flags[3:5] == [(4, 0, 0), (5, 1, 0)]
    assert flags[8:10] == [(9, 1, 0), (10, 1, 1)]
    assert shown(store).status == "in_progress", "a flag never ends a lease"
    assert [data(event)["renewals"] for event in events(store, "stuck", "max_renewals")] == [5, 10]


def test_lease_shorter_than_the_warning_time_expires_soon_in_its_last_third(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="cli", ttl_s=30))
    clock.advance(19)
    assert ok(observe.statistics(store)).expiring_soon == 0
    clock.advance(1)
    assert ok(observe.statistics(store)).expiring_soon == 1


def test_count_statistics(store: SqliteStore, clock: ManualClock) -> None:
    for number in range(6):
        add(store, f"F00{number}")
    take(store, "A1", "F000")
    take(store, "A2", "F001")
    for _ in range(5):
        report(store, "A2", 50, "F001")
    ok(claims.offer(store, agent_id="w.1"))
    clock.advance(59)
    numbers = ok(observe.statistics(store))
    assert (numbers.active, numbers.offered, numbers.expiring_soon, numbers.expired) == (2, 1, 1, 0)
    clock.advance(1)
    numbers = ok(observe.statistics(store))
    assert (numbers.active, numbers.expired) == (2, 1), "past expires_at, in its grace, not recovered"
    clock.advance(20)
    numbers = ok(observe.statistics(store))
    assert (numbers.active, numbers.expired) == (1, 1), "past its grace, and nobody has recovered it yet"
    tick(store)
    numbers = ok(observe.statistics(store))
    assert (numbers.active, numbers.expired, numbers.recoveries) == (1, 0, 1)
    assert (numbers.stuck, numbers.over_max, numbers.max_renewals) == (1, 0, 5)
    assert numbers.average_renewals == 2.5, "of the active lease and the offer"
    assert numbers.agents == 5
    assert sum(numbers.tasks.values()) == 6
    refused(observe.statistics(store, project_id="nowhere"), "project_not_found")


def test_prune_forgets_events_after_thirty_days_and_receipts_never(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1")
    receipts = dump(store, "receipts")
    clock.advance(30 * 24 * HOUR_S)
    assert ok(observe.prune(store)).events == 0
    clock.advance(1)
    assert ok(observe.prune(store, limit=2)).events == 2, "a bounded number at once"
    assert ok(observe.prune(store)).events > 0
    assert dump(store, "receipts") == receipts
