"""The recovery monitor: when it wakes, what it does, and that another process's write wakes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import app
from tenure.clock import ManualClock
from tenure.engine import agents, claims, observe, projects, tasks
from tenure.monitors.loop import Loop
from tenure.monitors.recovery import BATCH, PAUSE_S, RecoveryMonitor
from tenure.monitors.upkeep import Upkeep
from tenure.store.sqlite import SqliteStore
from tests.support import add, dump, join, ok, take

WAIT_S = 120


def test_tick_with_nothing_waiting_sleeps_the_check_interval_and_writes_nothing(store: SqliteStore) -> None:
    before = store.connection.total_changes
    assert RecoveryMonitor(store).tick() == 60.0
    assert store.connection.total_changes == before


def test_tick_sleeps_no_longer_than_the_check_interval_of_the_settings(store: SqliteStore) -> None:
    ok(projects.configure(store, document={"tenure": {"check_interval_s": 5}}))
    assert RecoveryMonitor(store).tick() == 5.0


def test_tick_wakes_at_the_warning_then_at_the_deadline(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    join(store, "A1")
    take(store, "A1")
    monitor = RecoveryMonitor(store)
    assert monitor.tick() == 24.0  # 60 s of lease less 36 s of warning
    clock.advance(24)
    assert monitor.tick() == 56.0  # to 80 s: lease and grace
    assert [event.kind for event in ok(observe.events(store))].count("warning") == 1
    clock.advance(56)
    monitor.tick()
    assert monitor.recovered == 1
    assert ok(observe.show_task(store, task_id="F001")).view.due is False


def test_tick_with_many_due_at_once_recovers_a_batch_and_pauses(store: SqliteStore, clock: ManualClock) -> None:
    count = BATCH * 2 + 1
    ok(tasks.add_tasks(store, tasks=[{"task_id": f"T{n}", "title": "t"} for n in range(count)]))
    for n in range(count):
        take(store, f"cli-{n}", f"T{n}", profile="cli")
    clock.advance(900)
    monitor = RecoveryMonitor(store)
    waits = [monitor.tick() for _ in range(3)]
    assert waits[:2] == [PAUSE_S, PAUSE_S]
    assert monitor.recovered == count
    assert waits[2] == 60.0


def test_tick_after_another_monitor_recovered_finds_nothing(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1", profile="cli")
    clock.advance(900)
    other = store.clone()
    RecoveryMonitor(other).tick()
    leases = dump(store, "leases")
    monitor = RecoveryMonitor(store)
    monitor.tick()
    assert (monitor.recovered, dump(store, "leases")) == (0, leases)
    other.close()


class Recorder:
    """A monitor that says when it was ticked."""

    name = "recorder"
    watches_writes = True

    def __init__(self, wait_s: float, fail_first: bool = False) -> None:
        self.wait_s = wait_s
        self.fail_first = fail_first
        self.ticks = 0
        self.ticked = threading.Semaphore(0)

    def tick(self) -> float:
        self.ticks += 1
        self.ticked.release()
        if self.fail_first and self.ticks == 1:
            raise RuntimeError("once")
        return self.wait_s

    def wait(self) -> bool:
        return self.ticked.acquire(timeout=WAIT_S)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(str(tmp_path / "real.db"))
    yield opened
    opened.close()


def test_loop_wakes_early_when_another_connection_writes(real: SqliteStore) -> None:
    own = real.clone()
    recorder = Recorder(wait_s=3600)
    loop = Loop([recorder], own.data_version)
    loop.start()
    try:
        assert recorder.wait()
        add(real)
        assert recorder.wait()
    finally:
        loop.stop()
        own.close()


def test_loop_poked_ticks_at_once(real: SqliteStore) -> None:
    recorder = Recorder(wait_s=3600)
    loop = Loop([recorder])
    loop.start()
    try:
        assert recorder.wait()
        loop.poke()
        assert recorder.wait()
    finally:
        loop.stop()


def test_loop_survives_a_failing_tick_and_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(wait_s=3600, fail_first=True)
    loop = Loop([recorder])
    loop.start()
    try:
        assert recorder.wait()
        assert recorder.wait(), "the loop did not try again after a failure"
    finally:
        loop.stop()
    status = loop.statuses()[0]
    assert (status.name, status.ticks, status.failures) == ("recorder", 2, 1)
    assert status.last_tick_age_s is not None
    assert status.next_wake_in_s is not None
    assert "monitor recorder failed" in caplog.text


def test_loop_started_twice_runs_once(real: SqliteStore) -> None:
    recorder = Recorder(wait_s=3600)
    loop = Loop([recorder])
    loop.start()
    loop.start()
    try:
        assert recorder.wait()
        assert sum(thread.name == "tenure-monitors" for thread in threading.enumerate()) == 1
    finally:
        loop.stop()


def test_monitors_of_the_app_recover_a_death_written_by_another_process(real: SqliteStore) -> None:
    add(real)
    agent = join(real, "A1")
    link = ok(agents.link_up(real, agent_id="A1", incarnation=agent.incarnation))
    take(real, "A1")
    recovered = threading.Event()
    told: list[tuple[str, str]] = []

    def on_recovery(agent_id: str, task_id: str) -> None:
        told.append((agent_id, task_id))
        recovered.set()

    real.on_recovery_callback = on_recovery
    loop = app.monitors(real)
    loop.start()
    try:
        ok(agents.link_down(real, link_id=link.link_id, died=True))
        assert recovered.wait(WAIT_S)
    finally:
        loop.stop()
    assert told == [("A1", "F001")]
    assert ok(claims.claim(real, task_id="F001", agent_id="B1", profile="cli")).handoffs[0].recovered_from_agent == "A1"


def test_upkeep_seals_new_receipts_and_forgets_old_events(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "A1", profile="cli")
    assert Upkeep(store).tick() == 60.0
    assert len(dump(store, "seals")) == 1
    clock.advance(31 * 86_400)
    Upkeep(store).tick()
    assert dump(store, "events") == []
    assert len(dump(store, "receipts")) >= 1
