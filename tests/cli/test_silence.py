"""Announced silences on the command line: every call that may announce one does, and the next call ends it."""

from __future__ import annotations

import pytest

from tenure.engine import agents, claims
from tenure.store.sqlite import SqliteStore
from tests.cli.shell import Desk
from tests.support import add, join, ok


@pytest.fixture
def working(desk: Desk) -> Desk:
    """A1 holds F001 under the agents' profile."""
    store = SqliteStore(str(desk.store), clock=desk.clock)
    add(store)
    join(store, "A1")
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent"))
    store.close()
    return desk


def recovered_in_s(desk: Desk) -> int:
    """How far away the deadline is."""
    store = SqliteStore(str(desk.store), clock=desk.clock)
    (lease,) = ok(agents.show_agent(store, agent_id="A1")).leases
    away = lease.recover_at_ms - store.answered_at_ms
    store.close()
    return away // 1000


ANNOUNCE = [
    "touch --agent A1",
    "task renew F001 --agent A1",
    "task progress F001 40 --agent A1",
    "report F001 50 -a A1",
]


@pytest.mark.parametrize("announcing", ANNOUNCE)
@pytest.mark.parametrize("option", ["--expect-silence", "--silence", "--expect_silence"])
def test_silence_is_announced_and_ended_by_the_next_call(working: Desk, announcing: str, option: str) -> None:
    working.ok(*announcing.split(), option, "20m")
    assert recovered_in_s(working) == 1200
    working.clock.advance(1000)
    working.ok("touch", "--agent", "A1")
    assert recovered_in_s(working) <= 150


@pytest.mark.parametrize("announcing", ANNOUNCE)
def test_silence_of_more_than_the_cap_is_cut_and_told(working: Desk, announcing: str) -> None:
    ran = working.ok(*announcing.split(), "--expect-silence", "2h")
    assert "limited to 1h" in ran.err
    assert recovered_in_s(working) == 3600


@pytest.mark.parametrize("words", ["touch", "task renew", "task progress"])
def test_silence_is_in_the_help(working: Desk, words: str) -> None:
    assert "--expect-silence" in working.ok(*words.split(), "--help").out
    assert "tenure touch --expect-silence" in working.ok("prime").out
