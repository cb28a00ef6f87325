"""When an agent was last heard: written down by its calls, at most once a second, and right after the clock was set."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenure.clock import ManualClock
from tenure.core.model import Agent
from tenure.engine import agents, liveness, load, notes, touch
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok, take


def agent(store: SqliteStore) -> Agent:
    found = store.look(lambda tx: load.agent_named(tx, "A1"))
    assert found is not None
    return found


def age_s(store: SqliteStore) -> float:
    return store.look(lambda tx: (tx.now_ms - agent_in(tx).seen_at_ms) / 1000)


def agent_in(tx: object) -> Agent:
    found = load.agent_named(tx, "A1")  # type: ignore[arg-type]
    assert found is not None
    return found


CALLS: dict[str, Callable[[SqliteStore], object]] = {
    "touch": lambda store: touch.touch(store, agent_id="A1"),
    "renew": lambda store: liveness.renew(store, task_id="F001", agent_id="A1"),
    "report": lambda store: liveness.report(store, task_id="F001", agent_id="A1", progress=10),
    "log_decision": lambda store: notes.log_decision(store, task_id="F001", agent_id="A1", decision="Use SQLite"),
}


@pytest.mark.parametrize("call", CALLS)
def test_call_is_written_down_once_a_second(store: SqliteStore, clock: ManualClock, call: str) -> None:
    join(store, "A1")
    add(store)
    take(store, "A1")
    before = agent(store).seen_at_ms
    clock.advance(0.999)
    ok(CALLS[call](store))
    assert agent(store).seen_at_ms == before
    clock.advance(0.001)
    ok(CALLS[call](store))
    assert agent(store).seen_at_ms == before + 1000


def test_touch_of_a_departed_agent_makes_it_present_at_once(store: SqliteStore) -> None:
    join(store, "A1")
    ok(agents.depart(store, agent_id="A1"))
    assert agent(store).state == "departed"
    ok(touch.touch(store, agent_id="A1"))
    assert agent(store).state == "present"


def test_call_after_a_boot_with_the_clock_set_back_is_not_left_in_the_future(
    store: SqliteStore, clock: ManualClock
) -> None:
    join(store, "A1")
    clock.reboot("boot-2", -86_400)
    ok(touch.touch(store, agent_id="A1"))
    assert age_s(store) == 0
