"""The server's monitor and the claimant's sweep: deaths written down, silences of a watcher bridged, strangers left."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tenure.clock import ManualClock
from tenure.core.deadline import live
from tenure.core.model import Lease, Link
from tenure.engine import agents, claims, links
from tenure.links.sweep import bury_the_dead
from tenure.monitors.links import LinksMonitor
from tenure.store.sqlite import SqliteStore
from tests.links.processes import end, link_to, sleeper, until
from tests.support import add, join, ok, take

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="no /proc with namespaces")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = sleeper()
    yield child
    end(child)


@pytest.fixture
def held(store: SqliteStore) -> SqliteStore:
    """F001 held by A1."""
    add(store)
    join(store, "A1")
    take(store, "A1")
    return store


@pytest.fixture
def monitor(held: SqliteStore) -> Iterator[LinksMonitor]:
    made = LinksMonitor(held, lambda: None)
    yield made
    made.close()


def lease_of(store: SqliteStore, agent_id: str = "A1") -> Lease | None:
    leases = ok(claims.leases_of(store, agent_id=agent_id))
    return leases[0] if leases else None


def link_of(store: SqliteStore) -> Link:
    return ok(agents.show_agent(store, agent_id="A1")).links[0]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill it and leave it unreaped, as the parent of an agent may."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_tick_finds_the_death_of_a_process_that_nobody_else_watches(
    held: SqliteStore, monitor: LinksMonitor, clock: ManualClock, process: subprocess.Popen[bytes]
) -> None:
    link_to(held, "A1", process.pid, kind="mcp")
    monitor.tick()
    assert lease_of(held)
    kill(process)

    def dead() -> bool:
        monitor.tick()
        return lease_of(held) is None

    until(dead, "the death is written down")
    assert ok(claims.claim_next(held, agent_id="A2")).task.task_id == "F001"


def test_tick_leaves_the_death_to_the_wrapper_for_a_moment(
    held: SqliteStore, monitor: LinksMonitor, clock: ManualClock, process: subprocess.Popen[bytes]
) -> None:
    link_to(held, "A1", process.pid)
    kill(process)
    wait_s = monitor.tick()
    assert 0 < wait_s < 1
    assert lease_of(held), "whoever watches it knows more, and is about to tell"
    clock.advance(wait_s)
    monitor.tick()
    assert lease_of(held) is None


def test_tick_pulses_for_a_process_whose_wrapper_was_killed(
    held: SqliteStore, monitor: LinksMonitor, clock: ManualClock, process: subprocess.Popen[bytes]
) -> None:
    link_to(held, "A1", process.pid)
    for _ in range(100):
        clock.advance(5)
        monitor.tick()
    assert lease_of(held), "500 s of silence, and its process is there"


def test_tick_keeps_a_stopped_process(
    held: SqliteStore, monitor: LinksMonitor, clock: ManualClock, process: subprocess.Popen[bytes]
) -> None:
    link_to(held, "A1", process.pid)
    process.send_signal(signal.SIGSTOP)
    for _ in range(60):
        clock.advance(5)
        monitor.tick()
    process.send_signal(signal.SIGCONT)
    monitor.tick()
    lease = lease_of(held)
    assert lease is not None
    assert live(lease, held.answered_at_ms)


def test_tick_pulses_for_a_process_that_registered_with_its_pid_alone(
    held: SqliteStore, monitor: LinksMonitor, clock: ManualClock, process: subprocess.Popen[bytes]
) -> None:
    link = link_to(held, "A1", process.pid, kind="server")
    clock.advance(5)
    monitor.tick()
    assert link_of(held).pulsed_at_ms == link.pulsed_at_ms + 5_000


@pytest.mark.parametrize("where", [{"boot_id": "another"}, {"pid_ns": "pid:[1]"}, {"pid_ns": "", "boot_id": ""}])
def test_tick_and_sweep_judge_nobody_elsewhere(held: SqliteStore, monitor: LinksMonitor, where: dict[str, str]) -> None:
    """A container's process, another machine's: the same number here is somebody else's."""
    gone = sleeper()
    link_to(held, "A1", gone.pid)
    end(gone)
    held.connection.execute("UPDATE links SET " + ", ".join(f"{name} = '{value}'" for name, value in where.items()))
    monitor.tick()
    assert bury_the_dead(held) == 0
    assert lease_of(held)


def test_tick_of_a_superseded_run_tries_its_pulse_once(
    held: SqliteStore, monitor: LinksMonitor, clock: ManualClock, process: subprocess.Popen[bytes]
) -> None:
    link_to(held, "A1", process.pid)
    join(held, "A1")
    clock.advance(8)
    monitor.tick()
    before = held.connection.total_changes
    clock.advance(8)
    monitor.tick()
    assert held.connection.total_changes == before


def test_sweep_writes_the_death_down_and_the_claim_recovers(
    held: SqliteStore, process: subprocess.Popen[bytes]
) -> None:
    link_to(held, "A1", process.pid)
    assert bury_the_dead(held) == 0
    kill(process)
    assert bury_the_dead(held) == 1
    assert bury_the_dead(held) == 0
    grant = ok(claims.claim(held, task_id="F001", agent_id="A2"))
    assert grant.handoffs[0].recovery_reason == "process_exited"


def test_link_down_of_one_of_two_links_leaves_the_agent_alive(
    held: SqliteStore, process: subprocess.Popen[bytes]
) -> None:
    first, second = link_to(held, "A1", process.pid), link_to(held, "A1", os.getpid(), kind="mcp")
    ok(agents.link_down(held, link_id=first.link_id, died=True))
    assert lease_of(held)
    ok(agents.link_down(held, link_id=second.link_id, died=True))
    assert lease_of(held) is None


def test_link_down_ends_every_link_to_the_same_process(held: SqliteStore, process: subprocess.Popen[bytes]) -> None:
    """The wrapper and the MCP server both watch the agent. One exit is all there is to see."""
    first, second = link_to(held, "A1", process.pid), link_to(held, "A1", process.pid, kind="mcp")
    ok(agents.link_down(held, link_id=first.link_id, died=True))
    assert lease_of(held) is None
    assert ok(agents.link_down(held, link_id=second.link_id, died=True)).state == "dead"


# -- last words -------------------------------------------------------------------------------------------------------


def test_last_words_told_before_the_death_are_in_the_handoff(
    held: SqliteStore, process: subprocess.Popen[bytes]
) -> None:
    link = link_to(held, "A1", process.pid)
    ok(links.last_words(held, link_id=link.link_id, exited="x exited with 1", output_tail="one\ntwo"))
    ok(agents.link_down(held, link_id=link.link_id, died=True))
    handoff = ok(claims.claim(held, task_id="F001", agent_id="A2")).handoffs[0]
    assert (handoff.exited, handoff.output_tail) == ("x exited with 1", "one\ntwo")


def test_last_words_told_after_someone_else_saw_the_death_still_reach_the_handoff(
    held: SqliteStore, process: subprocess.Popen[bytes]
) -> None:
    link = link_to(held, "A1", process.pid)
    ok(agents.link_down(held, link_id=link.link_id, died=True))
    grant = ok(claims.claim(held, task_id="F001", agent_id="A2"))
    assert grant.handoffs[0].output_tail == ""
    ok(links.last_words(held, link_id=link.link_id, exited="x was ended by SIGKILL", output_tail="late"))
    ok(agents.depart(held, agent_id="A2"))
    handoffs = ok(claims.claim(held, task_id="F001", agent_id="A3")).handoffs
    assert "late" in [handoff.output_tail for handoff in handoffs]


def test_last_words_of_an_older_run_are_not_taken_for_a_newer_ones(
    held: SqliteStore, process: subprocess.Popen[bytes]
) -> None:
    old = link_to(held, "A1", process.pid)
    ok(links.last_words(held, link_id=old.link_id, exited="x exited with 1", output_tail="old"))
    ok(agents.link_down(held, link_id=old.link_id, died=False))
    newer = join(held, "A1")
    link = link_to(held, "A1", process.pid, incarnation=newer.incarnation)
    ok(claims.claim_next(held, agent_id="A1", incarnation=newer.incarnation, resume=True))
    ok(agents.link_down(held, link_id=link.link_id, died=True))
    assert ok(claims.claim(held, task_id="F001", agent_id="A2")).handoffs[0].output_tail == ""


def test_last_words_of_a_later_run_are_not_taken_for_those_of_the_run_that_died(
    held: SqliteStore, process: subprocess.Popen[bytes], clock: ManualClock
) -> None:
    first = link_to(held, "A1", process.pid)
    ok(agents.link_down(held, link_id=first.link_id, died=True))
    clock.advance(1)
    newer = join(held, "A1")
    second = link_to(held, "A1", os.getpid(), incarnation=newer.incarnation)
    ok(links.last_words(held, link_id=second.link_id, exited="x exited with 0", output_tail="of another task"))
    handoff = ok(claims.claim(held, task_id="F001", agent_id="A2")).handoffs[0]
    assert (handoff.exited, handoff.output_tail) == ("", "")
    ok(agents.link_down(held, link_id=second.link_id, died=True))
    ok(links.last_words(held, link_id=second.link_id, exited="x exited with 0", output_tail="late"))
    ok(agents.depart(held, agent_id="A2"))
    left = ok(claims.claim(held, task_id="F001", agent_id="A3")).handoffs
    assert "late" not in [one.output_tail for one in left]
