"""The store's clock through everything that happens to a machine's.

Two promises are tested against each other. Nobody is falsely recovered: time that nobody could use (a suspend, a step
of the wall clock) is not counted against a holder. Nobody is immortal: a silent holder is recovered when its remaining
time has really passed, or one fresh term after a reboot.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.clock import ManualClock
from tenure.core import deadline
from tenure.core.model import Lease
from tenure.engine import agents, claims, endings, liveness, load, observe, recovery, tasks, touch
from tenure.store.sqlite import SqliteStore
from tenure.store.store import StoreFault
from tests.support import add, join, ok, refused, take

HOUR, DAY = 3_600.0, 86_400.0

Event = Callable[[ManualClock], None]


def reboot(clock: ManualClock, down_seconds: float) -> None:
    clock.reboot(f"boot-at-{clock.wall}-{clock.mono}", down_seconds)


# Nobody's time passes in these; a holder keeps what it had.
HARMLESS: dict[str, Event] = {
    "suspend for a night": lambda clock: clock.suspend(8 * HOUR),
    "step back an hour": lambda clock: clock.step(-HOUR),
    "step forward a day": lambda clock: clock.step(DAY),
    "drift ahead 1.9 s": lambda clock: clock.step(1.9),
    "drift behind 1.9 s": lambda clock: clock.step(-1.9),
}
# After these nobody knows how much time passed; a holder gets one fresh term.
REBOOTS: dict[str, Event] = {
    "reboot": lambda clock: reboot(clock, 60),
    "reboot after a week": lambda clock: reboot(clock, 7 * DAY),
    "reboot with a clock two hours slow": lambda clock: reboot(clock, -2 * HOUR),
}
EVENTS = HARMLESS | REBOOTS


def stored(store: SqliteStore, lease_id: str) -> tuple[Lease, int]:
    """A lease and the store's time, in one look."""
    lease, now_ms = store.look(lambda tx: (load.lease_by_id(tx, lease_id), tx.now_ms))
    assert lease is not None
    return lease, now_ms


def remaining_s(store: SqliteStore, lease_id: str) -> float:
    lease, now_ms = stored(store, lease_id)
    return (lease.recover_at_ms - now_ms) / 1000


def recovered_after_s(store: SqliteStore, clock: ManualClock, seconds: float) -> None:
    """The silent holder lives for exactly so long, and not a millisecond more."""
    clock.advance(seconds - 0.001)
    assert ok(recovery.advance(store)).recovered == 0, "recovered while it had time left"
    clock.advance(0.001)
    assert ok(recovery.advance(store)).recovered == 1, "not recovered when its time was over"


# -- the table --------------------------------------------------------------------------------------------------------

# Who holds: (profile, how long it has been silent, what is left before the event, what is left after a reboot).
HOLDERS: dict[str, tuple[str, float, float, float]] = {
    # First phase: 60 s and 20 s of grace.
    "an agent just granted": ("agent", 0, 80, 80),
    "an agent half way": ("agent", 50, 30, 80),
    "an agent in its grace": ("agent", 75, 5, 80),
    "an agent with a millisecond left": ("agent", 79.999, 0.001, 80),
    "a command line user": ("cli", 300, 600, 900),
    "a worker": ("worker", 899, 1, 900),
}


@pytest.mark.parametrize("reader_first", [False, True], ids=["writer", "reader first"])
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_holder_through_an_event_keeps_its_time_and_no_more(
    store: SqliteStore, clock: ManualClock, holder: str, event: str, reader_first: bool
) -> None:
    profile, silent_s, before_s, rebooted_s = HOLDERS[holder]
    after_s = rebooted_s if event in REBOOTS else before_s
    join(store, "A1")
    add(store)
    lease = take(store, "A1", profile=profile)
    clock.advance(silent_s)
    assert remaining_s(store, lease.lease_id) == pytest.approx(before_s)

    EVENTS[event](clock)

    if reader_first:
        assert remaining_s(store, lease.lease_id) == pytest.approx(after_s)
    refused(claims.claim(store, task_id="F001", agent_id="A2", profile="cli"), "already_claimed")
    assert remaining_s(store, lease.lease_id) == pytest.approx(after_s)
    kept, _ = stored(store, lease.lease_id)
    assert kept.recover_at_ms == deadline.recover_at_ms(kept), "the stored deadline is the one function's"
    recovered_after_s(store, clock, after_s)


@pytest.mark.parametrize("event", EVENTS)
def test_holder_that_calls_after_an_event_has_a_full_term(store: SqliteStore, clock: ManualClock, event: str) -> None:
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    clock.advance(70)
    EVENTS[event](clock)
    assert [held.lease_id for held in ok(touch.touch(store, agent_id="A1")).leases] == [lease.lease_id]
    assert remaining_s(store, lease.lease_id) == 80


@pytest.mark.parametrize("event", HARMLESS)
def test_holder_whose_time_was_over_before_a_step_is_not_revived_by_it(
    store: SqliteStore, clock: ManualClock, event: str
) -> None:
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    clock.advance(80)
    HARMLESS[event](clock)
    assert remaining_s(store, lease.lease_id) <= 0
    assert ok(touch.touch(store, agent_id="A1")).leases == ()
    ok(claims.claim(store, task_id="F001", agent_id="A2", profile="cli"))


@pytest.mark.parametrize("event", EVENTS)
def test_holder_that_was_seen_to_die_stays_dead(store: SqliteStore, clock: ManualClock, event: str) -> None:
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    link = ok(agents.link_up(store, agent_id="A1", incarnation=1))
    ok(agents.link_down(store, link_id=link.link_id, died=True))
    EVENTS[event](clock)
    assert remaining_s(store, lease.lease_id) == 0
    assert ok(recovery.advance(store)).recovered == 1


@pytest.mark.parametrize("event", EVENTS)
def test_holder_that_announced_its_silence_keeps_the_rest_of_it_unless_rebooted(
    store: SqliteStore, clock: ManualClock, event: str
) -> None:
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    ok(touch.touch(store, agent_id="A1", expect_silence_s=600))
    clock.advance(100)
    EVENTS[event](clock)
    left = 80 if event in REBOOTS else 500
    assert remaining_s(store, lease.lease_id) == left
    recovered_after_s(store, clock, left)


@pytest.mark.parametrize("event", EVENTS)
def test_holder_with_a_cadence_is_judged_by_it_after_an_event(
    store: SqliteStore, clock: ManualClock, event: str
) -> None:
    """Marks 100 s apart explain 150 s of silence; a step may neither look like a gap nor hide one."""
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    for progress in (5, 10, 15):
        ok(liveness.report(store, task_id="F001", agent_id="A1", progress=progress))
        clock.advance(100)
    ok(liveness.report(store, task_id="F001", agent_id="A1", progress=20))
    clock.advance(20)
    EVENTS[event](clock)
    left = 150 if event in REBOOTS else 130
    assert remaining_s(store, lease.lease_id) == left
    ok(liveness.report(store, task_id="F001", agent_id="A1", progress=21))
    gaps = stored(store, lease.lease_id)[0].mark_gaps.split()
    assert [round(int(gap) / 1000) for gap in gaps] == [100, 100, 100, 0 if event in REBOOTS else 20]


@pytest.mark.parametrize("event", REBOOTS)
def test_fixed_lease_with_marks_gets_its_term_and_no_cadence_after_a_reboot(
    store: SqliteStore, clock: ManualClock, event: str
) -> None:
    add(store)
    lease = ok(claims.claim(store, task_id="F001", agent_id="A1", profile="cli", ttl_s=60)).lease
    for progress in (5, 10, 15, 20):
        ok(liveness.report(store, task_id="F001", agent_id="A1", progress=progress))
        clock.advance(50)
    REBOOTS[event](clock)
    assert remaining_s(store, lease.lease_id) == 60
    kept, _ = stored(store, lease.lease_id)
    assert kept.recover_at_ms == deadline.recover_at_ms(kept)
    recovered_after_s(store, clock, 60)


# -- again and again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", HARMLESS)
def test_event_repeated_fifty_times_still_costs_and_gives_nothing(
    store: SqliteStore, clock: ManualClock, event: str
) -> None:
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    for _ in range(50):
        clock.advance(1)
        HARMLESS[event](clock)
        ok(recovery.advance(store))
    assert remaining_s(store, lease.lease_id) == 30
    recovered_after_s(store, clock, 30)


@pytest.mark.parametrize("event", REBOOTS)
def test_reboot_repeated_gives_one_term_each_and_the_last_one_ends(
    store: SqliteStore, clock: ManualClock, event: str
) -> None:
    join(store, "A1")
    add(store)
    take(store, "A1")
    for _ in range(20):
        clock.advance(79)
        REBOOTS[event](clock)
        assert ok(recovery.advance(store)).recovered == 0
    recovered_after_s(store, clock, 80)


NAMES = st.sampled_from(sorted(EVENTS))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(story=st.lists(st.one_of(NAMES, st.integers(1, 40), st.just("touch")), max_size=12))
def test_holder_through_any_story_lives_exactly_as_long_as_time_really_passed(story: list[str | int]) -> None:
    """Numbers are seconds that really pass. The model is one line: only they cost, a touch or a reboot refills."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(directory + "/tenure.db", clock=clock)
        join(store, "A1")
        add(store)
        lease = take(store, "A1")
        left = 80
        for entry in story:
            if isinstance(entry, int):
                clock.advance(entry)
                left -= entry
            elif entry == "touch":
                held = ok(touch.touch(store, agent_id="A1")).leases
                assert bool(held) == (left > 0)
                left = 80 if held else left
            else:
                EVENTS[entry](clock)
                left = 80 if entry in REBOOTS else left
            assert remaining_s(store, lease.lease_id) == left
        if left > 0:
            recovered_after_s(store, clock, left)
        else:
            assert ok(recovery.advance(store)).recovered == 1
        store.close()


# -- what else waits --------------------------------------------------------------------------------------------------


def waiting_for_retry(store: SqliteStore, clock: ManualClock) -> None:
    """A worker died; its task waits 30 s."""
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="worker.a-1", profile="worker"))
    clock.advance(900)
    assert ok(recovery.advance(store)).recovered == 1


@pytest.mark.parametrize("by_name", [False, True], ids=["claim_next", "claim"])
@pytest.mark.parametrize("event", HARMLESS)
def test_retry_delay_through_a_step_keeps_its_remaining_time(
    store: SqliteStore, clock: ManualClock, event: str, by_name: bool
) -> None:
    waiting_for_retry(store, clock)

    def attempt() -> object:
        if by_name:
            return claims.claim(store, task_id="F001", agent_id="worker.b-1", profile="worker")
        return claims.claim_next(store, agent_id="worker.b-1", profile="worker")

    clock.advance(10)
    HARMLESS[event](clock)
    clock.advance(19.999)
    refused(attempt(), "task_waiting" if by_name else "nothing_ready")
    clock.advance(0.001)
    ok(attempt())


@pytest.mark.parametrize("promoted", [False, True], ids=["unseen", "seen"])
@pytest.mark.parametrize("event", EVENTS)
def test_retry_delay_that_was_over_stays_over(
    store: SqliteStore, clock: ManualClock, event: str, promoted: bool
) -> None:
    """A step back must not put an old delay into the future again."""
    waiting_for_retry(store, clock)
    clock.advance(30)
    if promoted:
        assert ok(recovery.advance(store)).promoted == 1
    EVENTS[event](clock)
    ok(claims.claim(store, task_id="F001", agent_id="worker.b-1", profile="worker"))


@pytest.mark.parametrize("event", REBOOTS)
def test_retry_delay_is_over_after_a_reboot(store: SqliteStore, clock: ManualClock, event: str) -> None:
    waiting_for_retry(store, clock)
    REBOOTS[event](clock)
    ok(claims.claim_next(store, agent_id="worker.b-1", profile="worker"))


def handed_over(store: SqliteStore, clock: ManualClock) -> float:
    """An agent died; how many seconds its handoff lasts."""
    join(store, "A1")
    add(store)
    take(store, "A1")
    clock.advance(80)
    assert ok(recovery.advance(store)).recovered == 1
    handoff = ok(observe.show_task(store, task_id="F001")).handoffs[0]
    return (handoff.recovery_expires_at_ms - handoff.recovered_at_ms) / 1000


def handoffs(store: SqliteStore) -> int:
    return len(ok(observe.show_task(store, task_id="F001")).handoffs)


@pytest.mark.parametrize("event", HARMLESS)
def test_handoff_through_a_step_keeps_its_remaining_time(store: SqliteStore, clock: ManualClock, event: str) -> None:
    lasts_s = handed_over(store, clock)
    clock.advance(lasts_s / 2)
    HARMLESS[event](clock)
    clock.advance(lasts_s / 2 - 0.001)
    assert handoffs(store) == 1
    clock.advance(0.001)
    assert handoffs(store) == 0


@pytest.mark.parametrize("event", HARMLESS)
def test_handoff_that_was_over_stays_over(store: SqliteStore, clock: ManualClock, event: str) -> None:
    clock.advance(handed_over(store, clock))
    assert handoffs(store) == 0
    HARMLESS[event](clock)
    assert handoffs(store) == 0


NOT_BEFORE = {
    # What the user wrote on the task is a time on people's watches, which a step corrects.
    "suspend for a night": 0.0,
    "step forward a day": 0.0,
    "step back an hour": 2 * HOUR,
    "drift ahead 1.9 s": HOUR,
    "drift behind 1.9 s": HOUR,
    "reboot": HOUR - 60,
    "reboot after a week": 0.0,
    "reboot with a clock two hours slow": 3 * HOUR,
}


@pytest.mark.parametrize("event", EVENTS)
def test_not_before_through_an_event_stays_on_the_wall_clock(
    store: SqliteStore, clock: ManualClock, event: str
) -> None:
    add(store, not_before_ms=clock.wall_ms() + round(HOUR * 1000))
    EVENTS[event](clock)
    left = NOT_BEFORE[event]
    if left:
        clock.advance(left - 0.001)
        refused(claims.claim_next(store, agent_id="A1", profile="cli"), "nothing_ready")
        refused(claims.claim(store, task_id="F001", agent_id="A1", profile="cli"), "task_waiting")
        clock.advance(0.001)
    ok(claims.claim_next(store, agent_id="A1", profile="cli"))


@pytest.mark.parametrize("event", EVENTS)
def test_token_after_any_event_is_greater(store: SqliteStore, clock: ManualClock, event: str) -> None:
    """A token from before the step must never again look like the newest."""
    add(store)
    tokens = [take(store, "A1", profile="cli").token]
    for _ in range(3):
        ok(endings.release(store, task_id="F001", agent_id="A1"))
        EVENTS[event](clock)
        tokens.append(take(store, "A1", profile="cli").token)
    assert tokens == sorted(set(tokens))


def test_token_of_a_task_added_again_after_a_step_back_is_greater(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    before = take(store, "A1", profile="cli").token
    ok(tasks.delete_task(store, task_id="F001", force=True))
    clock.step(-DAY)
    add(store)
    assert take(store, "A1", profile="cli").token > before


# -- links and servers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", HARMLESS)
def test_link_through_a_step_goes_on_carrying(store: SqliteStore, clock: ManualClock, event: str) -> None:
    join(store, "A1")
    add(store)
    take(store, "A1")
    link = ok(agents.link_up(store, agent_id="A1", incarnation=1, boot_id=clock.boot_id()))
    for _ in range(30):
        clock.advance(10)
        ok(agents.pulse(store, link_id=link.link_id))
    HARMLESS[event](clock)
    assert ok(agents.show_agent(store, agent_id="A1")).linked
    ok(agents.pulse(store, link_id=link.link_id))
    assert len(ok(claims.leases_of(store, agent_id="A1"))) == 1
    recovered_after_s(store, clock, 15)


@pytest.mark.parametrize("kind", ["run", "stream"])
@pytest.mark.parametrize("event", REBOOTS)
def test_link_of_an_old_boot_carries_nobody(store: SqliteStore, clock: ManualClock, event: str, kind: str) -> None:
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    link = ok(agents.link_up(store, agent_id="A1", incarnation=1, kind=kind, boot_id=clock.boot_id()))
    clock.advance(10)
    ok(agents.pulse(store, link_id=link.link_id))
    REBOOTS[event](clock)
    assert not ok(agents.show_agent(store, agent_id="A1")).linked
    refused(agents.pulse(store, link_id=link.link_id), "link_not_found")
    assert remaining_s(store, lease.lease_id) == 80
    ok(touch.touch(store, agent_id="A1"))
    assert remaining_s(store, lease.lease_id) == 80, "an old pulse came back with the next call"
    recovered_after_s(store, clock, 80)


def test_reboot_of_a_machine_without_boot_names_is_seen_by_its_monotonic_clock(tmp_path: Path) -> None:
    clock = ManualClock(boot_id="unnamed-boot")
    store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock)
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    ok(agents.link_up(store, agent_id="A1", incarnation=1, boot_id="unnamed-boot"))
    clock.advance(70)
    clock.reboot("unnamed-boot", down_seconds=-DAY)
    assert not ok(agents.show_agent(store, agent_id="A1")).linked
    assert remaining_s(store, lease.lease_id) == 80
    recovered_after_s(store, clock, 80)
    store.close()


@pytest.mark.parametrize("event", EVENTS)
def test_holder_behind_a_server_that_never_returns_is_not_immortal(
    store: SqliteStore, clock: ManualClock, event: str
) -> None:
    join(store, "A1")
    add(store)
    ok(agents.start_server(store, server_id="S1"))
    lease = ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", server_id="S1")).lease
    EVENTS[event](clock)
    assert remaining_s(store, lease.lease_id) == 80
    # Deaf after 15 s, the server holds the verdict up, but not longer than hung_after past the deadline.
    clock.advance(80 + 600 - 0.001)
    refused(claims.claim(store, task_id="F001", agent_id="A2", profile="cli"), "already_claimed")
    clock.advance(0.001)
    ok(claims.claim(store, task_id="F001", agent_id="A2", profile="cli"))


# -- the anchor -------------------------------------------------------------------------------------------------------


def anchored(store: SqliteStore) -> tuple[object, ...]:
    row: tuple[object, ...] = store.connection.execute("SELECT boot_id, wall0_ms, mono0_ms FROM clock").fetchone()
    return row


@pytest.mark.parametrize(("seconds", "moves"), [(2.0, False), (-2.0, False), (2.001, True), (-2.001, True)])
def test_anchor_with_the_wall_clock_away_moves_past_two_seconds_only(
    store: SqliteStore, clock: ManualClock, seconds: float, moves: bool
) -> None:
    add(store)
    before, now = anchored(store), store.look(lambda tx: tx.now_ms)
    clock.step(seconds)
    after = store.look(lambda tx: tx.now_ms)
    assert (anchored(store) != before) == moves
    assert after == (clock.wall_ms() if moves else now)


@pytest.mark.parametrize("event", [name for name in EVENTS if "drift" not in name])
def test_read_after_an_event_re_anchors(store: SqliteStore, clock: ManualClock, event: str) -> None:
    add(store)
    EVENTS[event](clock)
    assert store.look(lambda tx: tx.now_ms) == clock.wall_ms()
    assert anchored(store) == (clock.boot_id(), clock.wall_ms(), clock.mono_ms())


@pytest.mark.parametrize("event", EVENTS)
def test_two_connections_through_an_event_agree_on_now(store: SqliteStore, clock: ManualClock, event: str) -> None:
    another = store.clone()
    add(store)
    steps: list[Callable[[], None]] = [lambda: None, lambda: EVENTS[event](clock), lambda: clock.advance(12.345)]
    for step in steps:
        step()
        seen = [one.look(lambda tx: tx.now_ms) for one in (store, another)]
        seen += [one.run(lambda tx: tx.now_ms) for one in (another, store)]
        assert len(set(seen)) == 1
    another.close()


def test_two_processes_with_wall_clocks_apart_agree_on_now(store: SqliteStore, clock: ManualClock) -> None:
    """A faked wall clock in one process (a test, a container) within the tolerance moves nobody's time."""
    faked = ManualClock(wall_ms=clock.wall + 1_500, mono_ms=clock.mono)
    another = SqliteStore(store.path, clock=faked)
    assert store.run(lambda tx: tx.now_ms) == another.run(lambda tx: tx.now_ms)
    another.close()


def test_read_under_a_wall_clock_that_never_stands_still_answers(store: SqliteStore, clock: ManualClock) -> None:
    class Restless(ManualClock):
        def wall_ms(self) -> int:
            self.wall += 10_000
            return self.wall

    add(store)
    another = SqliteStore(store.path, clock=Restless(clock.wall, clock.mono))
    assert len(ok(observe.list_tasks(another))) == 1
    add(another, "F002")
    another.close()


# -- two kernels, one file --------------------------------------------------------------------------------------------


@pytest.fixture
def shared(store: SqliteStore, clock: ManualClock) -> Iterator[SqliteStore]:
    """Another machine has written to the store's file since this one did."""
    join(store, "A1")
    add(store)
    take(store, "A1")
    another = SqliteStore(store.path, clock=ManualClock(clock.wall + 5_000, 77_000, "boot-of-another"))
    add(another, "F002")
    yield another
    another.close()


def test_write_under_a_boot_that_comes_back_is_refused_and_reads_work(store: SqliteStore, shared: SqliteStore) -> None:
    for answer in (
        tasks.add_task(store, task_id="F003", title="More"),
        touch.touch(store, agent_id="A1"),
        claims.claim_next(store, agent_id="A1"),
        recovery.advance(store),
    ):
        refusal = refused(answer, "store_shared")
        assert "adopt" in refusal.next
        assert refusal.facts["boot_id"] == "boot-1"
    assert [view.task.task_id for view in ok(observe.list_tasks(store))] == ["F001", "F002"]
    add(shared, "F003")
    assert len(ok(observe.list_tasks(store))) == 3


def test_adopt_after_a_boot_came_back_lets_this_machine_write_and_not_the_other(
    store: SqliteStore, shared: SqliteStore, clock: ManualClock
) -> None:
    store.adopt()
    add(store, "F003")
    refused(tasks.add_task(shared, task_id="F004", title="More"), "store_shared")
    assert len(ok(claims.leases_of(store, agent_id="A1"))) == 1
    recovered_after_s(store, clock, 80)
    shared.adopt()
    add(shared, "F004")
    refused(tasks.add_task(store, task_id="F005", title="More"), "store_shared")


def test_adopt_where_nothing_is_wrong_changes_nothing_and_keeps_watch(store: SqliteStore, clock: ManualClock) -> None:
    join(store, "A1")
    add(store)
    lease = take(store, "A1")
    clock.advance(30)
    store.adopt()
    store.adopt()
    assert remaining_s(store, lease.lease_id) == 50
    another = SqliteStore(store.path, clock=ManualClock(clock.wall, 77_000, "boot-of-another"))
    add(another, "F002")
    refused(tasks.add_task(store, task_id="F003", title="More"), "store_shared")
    another.close()


def test_reboot_of_one_machine_many_times_is_never_taken_for_two(store: SqliteStore, clock: ManualClock) -> None:
    for number in range(10):
        clock.reboot(f"boot-{number + 2}", down_seconds=-60 if number % 2 else 60)
        add(store, f"T{number}")
    clock.boot = "boot-5"
    with pytest.raises(StoreFault, match="two machines"):
        store.run(lambda tx: None)
