"""Nobody is falsely recovered: stopped, asleep, out of hearing, restarting, or in a container."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.model import Link
from tenure.engine import agents, claims, links, liveness, recovery
from tenure.engine.touch import touch
from tenure.links.identity import ProcessIdentity, state
from tenure.links.sweep import bury_the_dead
from tenure.monitors.links import LinksMonitor
from tenure.store.sqlite import SqliteStore
from tests.links.processes import end, link_to, sleeper
from tests.support import add, join, ok, refused, take

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="no /proc with namespaces")


@pytest.fixture
def held(store: SqliteStore) -> SqliteStore:
    """F001 held by A1."""
    add(store)
    join(store, "A1")
    take(store, "A1")
    return store


def still_held(store: SqliteStore) -> bool:
    """Whether nobody can take it: asked by a claim, which recovers whatever it finds due."""
    bury_the_dead(store)
    ok(recovery.advance(store))
    return refused(claims.claim(store, task_id="F001", agent_id="A2"), "already_claimed").code == "already_claimed"


def test_client_that_restarts_its_mcp_server_goes_on(held: SqliteStore, clock: ManualClock) -> None:
    """The old server hears the end of its input while the agent, its parent, lives; the new one links anew."""
    agent = sleeper()
    old = link_to(held, "A1", agent.pid, kind="mcp")
    ok(agents.link_down(held, link_id=old.link_id, died=False, detail="end of input"))
    clock.advance(2)
    again = ok(agents.register(held, agent_id="A1"))
    new = link_to(held, "A1", agent.pid, kind="mcp", incarnation=again.incarnation)
    for _ in range(40):
        clock.advance(5)
        ok(agents.pulse(held, link_id=new.link_id))
    assert still_held(held)
    ok(liveness.report(held, task_id="F001", agent_id="A1", incarnation=again.incarnation, progress=50))
    end(agent)
    bury_the_dead(held)
    # The restarted client's death is one.
    ok(claims.claim(held, task_id="F001", agent_id="A2"))


def test_client_that_restarts_itself_is_not_killed_by_its_old_process(held: SqliteStore, clock: ManualClock) -> None:
    """The old process is gone, but the newer run's link pulses already."""
    before, after = sleeper(), sleeper()
    old = link_to(held, "A1", before.pid)
    again = ok(agents.register(held, agent_id="A1"))
    link_to(held, "A1", after.pid, incarnation=again.incarnation)
    end(before)
    ok(agents.link_down(held, link_id=old.link_id, died=True))
    assert still_held(held)
    end(after)


def test_laptop_that_sleeps_for_a_night_finds_its_agents_alive(held: SqliteStore, clock: ManualClock) -> None:
    agent = sleeper()
    link = link_to(held, "A1", agent.pid)
    clock.suspend(8 * 3600)
    assert still_held(held)
    clock.advance(5)
    ok(agents.pulse(held, link_id=link.link_id))
    clock.advance(14)
    assert still_held(held)
    end(agent)


def test_server_that_was_down_for_five_minutes_finds_its_agents_alive(held: SqliteStore, clock: ManualClock) -> None:
    ok(agents.start_server(held, server_id="S1"))
    ok(touch(held, agent_id="A1", server_id="S1"))
    for _ in range(4):
        clock.advance(5)
        ok(agents.pulse_server(held, server_id="S1"))
    clock.advance(300)
    assert still_held(held), "nobody could have heard it"
    ok(agents.start_server(held, server_id="S1"))
    clock.advance(30)
    assert still_held(held)
    ok(liveness.report(held, task_id="F001", agent_id="A1", progress=60))


def test_server_that_was_down_finds_the_process_of_a_silent_agent(held: SqliteStore, clock: ManualClock) -> None:
    """Five minutes without pulses, and the watcher was down as well: the rule says dead, the first look says alive."""
    agent = sleeper()
    link_to(held, "A1", agent.pid)
    ok(agents.start_server(held, server_id="S1"))
    ok(touch(held, agent_id="A1", server_id="S1"))
    clock.advance(300)
    monitor = LinksMonitor(held, lambda: None)
    ok(agents.start_server(held, server_id="S1"))
    monitor.tick()
    monitor.close()
    clock.advance(10)
    assert still_held(held)
    end(agent)


def test_container_process_is_left_to_those_inside(held: SqliteStore, clock: ManualClock) -> None:
    """A real process in a pid namespace of its own: from outside, its pid is somebody else's."""
    code = (
        "import os; from tenure.links.identity import of_process\n"
        "print(*of_process(os.getpid()).as_dict().values(), flush=True); input()"
    )
    words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as inside:
        assert inside.stdout is not None
        said = inside.stdout.readline().decode().split()
        link = None
        if said:
            boot_id, namespace, pid, ticks = said
            named: dict[str, Any] = {
                "boot_id": boot_id,
                "pid_ns": namespace,
                "pid": int(pid),
                "start_ticks": int(ticks),
            }
            link = ok(agents.link_up(held, agent_id="A1", incarnation=1, kind="run", **named))
        inside.communicate(b"\n", timeout=120)
    if link is None:
        pytest.skip("pid namespaces are not permitted here: the test of a container did NOT run")
    assert state(_identity(link)) == "unknown", "it has exited, and nobody out here can know"
    monitor = LinksMonitor(held, lambda: None)
    monitor.tick()
    monitor.close()
    assert still_held(held)
    clock.advance(15)
    assert still_held(held), "unknown is not dead"
    clock.advance(70)
    # The rule of silence finds it in the end.
    ok(claims.claim(held, task_id="F001", agent_id="A2"))


def _identity(link: Link) -> ProcessIdentity:
    return ProcessIdentity(boot_id=link.boot_id, pid_namespace=link.pid_ns, pid=link.pid, start_ticks=link.start_ticks)


# -- announced pauses -------------------------------------------------------------------------------------------------


def test_announced_silence_is_capped_and_the_next_own_call_clears_it(held: SqliteStore, clock: ManualClock) -> None:
    ok(touch(held, agent_id="A1", expect_silence_s=7_200))
    clock.advance(3_599)
    assert still_held(held)
    ok(touch(held, agent_id="A1"))
    clock.advance(80)
    # The announcement ended with the call.
    ok(claims.claim(held, task_id="F001", agent_id="A2"))


def test_announced_silence_beyond_the_cap_is_over_at_the_cap(held: SqliteStore, clock: ManualClock) -> None:
    ok(touch(held, agent_id="A1", expect_silence_s=7_200))
    clock.advance(3_600)
    ok(claims.claim(held, task_id="F001", agent_id="A2"))


def test_pulse_of_a_link_does_not_clear_an_announcement(held: SqliteStore, clock: ManualClock) -> None:
    link = ok(agents.link_up(held, agent_id="A1", incarnation=1))
    ok(touch(held, agent_id="A1", expect_silence_s=1_800))
    ok(agents.pulse(held, link_id=link.link_id))
    clock.advance(1_799)
    assert still_held(held)


def test_standing_of_a_run_tells_what_it_holds(held: SqliteStore) -> None:
    assert [lease.task_id for lease in ok(links.standing(held, agent_id="A1", incarnation=1)).leases] == ["F001"]
    join(held, "A1")
    refused(links.standing(held, agent_id="A1", incarnation=1), "superseded")
