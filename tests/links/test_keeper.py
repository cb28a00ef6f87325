"""The keeper of a run: it pulses, and knows until when the lease can be trusted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tenure.clock import ManualClock
from tenure.engine import agents, claims, endings
from tenure.links.identity import of_process
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.cli.run import _lapsing
from tenure.surfaces.cli.run_keeper import MARGIN_S, Keeper, Run
from tests.support import add, join, ok, take


@pytest.fixture
def keeper(store: SqliteStore) -> Iterator[Keeper]:
    """Of A1's first run, which holds F001; its thread is not started: tests call what it calls."""
    add(store)
    join(store, "A1")
    lease = take(store, "A1")
    made = Keeper(store, Run(agent_id="A1", incarnation=1, lease=lease), of_process(os.getpid()), lambda: None)
    assert made._pulse()
    yield made
    made.stop()


# The keeper counts on the real clock: what it trusts is judged by when it was asked, however long it took to answer.


def test_pulse_trusts_the_lease_for_less_than_it_lasts(keeper: Keeper) -> None:
    asked = time.monotonic()
    assert keeper._pulse()
    assert keeper.trusted_until is not None
    assert asked <= keeper.trusted_until - (80 - MARGIN_S) <= time.monotonic()
    assert not _lapsing(keeper, asked)


def test_pulse_that_fails_moves_no_trust(keeper: Keeper, store: SqliteStore, clock: ManualClock) -> None:
    """While the store cannot be reached the trust runs out, before the lease does."""
    before = keeper.trusted_until
    assert before is not None
    keeper._store.close()
    keeper._store = store.clone()
    keeper._store.busy_timeout_s = 0.05
    store.connection.execute("BEGIN EXCLUSIVE")
    keeper._reach()
    store.connection.execute("ROLLBACK")
    assert keeper.trusted_until == before
    assert _lapsing(keeper, before)
    assert not _lapsing(keeper, before - 0.001)


def test_pulses_carry_a_silent_program_and_warn_before_it_counts_as_hung(keeper: Keeper, clock: ManualClock) -> None:
    for _ in range(118):
        clock.advance(5)
        asked = time.monotonic()
        assert keeper._pulse()
        assert not _lapsing(keeper, asked), clock.mono
    clock.advance(5)
    assert keeper._pulse()
    assert _lapsing(keeper, time.monotonic())
    assert not keeper.lost, "it is told while the lease is still held"


def test_pulse_of_a_lost_lease_says_so(keeper: Keeper, store: SqliteStore) -> None:
    ok(endings.revoke(store, task_id="F001", reason="preempted"))
    keeper._pulse()
    assert keeper.lost == "the lease on F001 was lost (preempted)"


def test_pulse_after_the_program_finished_its_task_trusts_nothing_and_misses_nothing(
    keeper: Keeper, store: SqliteStore
) -> None:
    ok(endings.complete(store, task_id="F001", agent_id="A1"))
    keeper._pulse()
    assert (keeper.lost, keeper.trusted_until) == ("", None)


def test_pulse_of_a_superseded_run_says_so(keeper: Keeper, store: SqliteStore) -> None:
    join(store, "A1")
    keeper._pulse()
    assert "newer run of A1" in keeper.lost


def test_pulse_after_someone_ended_the_link_links_again(keeper: Keeper, store: SqliteStore) -> None:
    """A watcher that was wrong, or a departure that was taken back: the process is there."""
    assert keeper.link_id is not None
    ended = keeper.link_id
    ok(agents.link_down(store, link_id=ended, died=False))
    keeper._pulse()
    assert keeper.link_id not in (None, ended)
    assert ok(agents.show_agent(store, agent_id="A1")).linked


def test_vouching_keeps_a_program_that_never_calls(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    join(store, "A1")
    lease = take(store, "A1")
    run = Run(agent_id="A1", incarnation=1, lease=lease)
    keeper = Keeper(store, run, of_process(os.getpid()), lambda: None, vouch_s=3_600)
    for _ in range(200):
        clock.advance(5)
        # The keeper's own clock stands still here; let it be time to vouch.
        keeper._next_vouch = 0.0
        asked = time.monotonic()
        assert keeper._pulse()
        assert not _lapsing(keeper, asked)
    assert keeper.vouched == 200
    assert ok(claims.leases_of(store, agent_id="A1"))[0].touches == 200
    keeper.stop()
