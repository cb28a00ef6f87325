"""The trace of the specification ("Full Recovery Flow"), to the millisecond, and what evidence changes about it."""

from __future__ import annotations

import pytest

from tenure.clock import ManualClock
from tenure.core.deadline import live, median_gap_ms
from tenure.core.handoff import recovery_info
from tenure.core.model import Lease
from tenure.core.times import iso
from tenure.engine import agents, claims, explain, notes
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import data, events, feel, handoffs, lease, report, shown, task, tick
from tests.support import add, join, ok, refused, take


class Trace:
    """Agent-A's run up to its last call at 55 s. Seconds count from its claim."""

    def __init__(self, store: SqliteStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.start_ms = clock.wall
        add(store, title="Parse CSV", body="Write the parser.")
        for name in ("Agent-A", "Agent-B"):
            join(store, name)
        self.held = take(store, "Agent-A")

    def at(self, seconds: float) -> None:
        self.clock.advance(seconds - (self.clock.wall - self.start_ms) / 1000)

    def run(self, *links: str) -> Trace:
        """Work until 55 s; the named links pulse every 5 s until then."""
        for second in range(5, 60, 5):
            self.at(second)
            for link in links:
                ok(agents.pulse(self.store, link_id=link))
            if second == 15:
                ok(notes.log_decision(self.store, task_id="F001", agent_id="Agent-A", decision="Use pandas."))
            if second == 40:
                report(self.store, "Agent-A", 15, message="Reader done")
            if second == 55:
                feel(self.store, "Agent-A")
        return self

    @property
    def lease(self) -> Lease:
        return lease(self.store, self.held.lease_id)

    def is_live(self) -> bool:
        return live(self.lease, self.clock.wall)


@pytest.fixture
def trace(store: SqliteStore, clock: ManualClock) -> Trace:
    return Trace(store, clock)


def link(trace: Trace, kind: str = "run") -> str:
    """Someone starts to see Agent-A's process."""
    return ok(agents.link_up(trace.store, agent_id="Agent-A", incarnation=1, kind=kind, pid=4711)).link_id


def test_recover_silent_agent_at_175_seconds_and_not_before(trace: Trace) -> None:
    assert (trace.held.term_ms, trace.held.grace_ms) == (60_000, 20_000), "phase 1"
    trace.run()
    assert (trace.lease.term_ms, trace.lease.grace_ms) == (90_000, 30_000), "phase 2"
    assert median_gap_ms(trace.lease) == 25_000

    trace.at(174.999)
    assert trace.is_live()
    assert tick(trace.store).recovered == 0
    assert shown(trace.store).status == "in_progress"

    trace.at(175)
    assert not trace.is_live()
    assert (shown(trace.store).status, shown(trace.store).due) == ("todo", True)
    assert tick(trace.store).recovered == 1
    assert (task(trace.store).status, task(trace.store).assigned_to, task(trace.store).owner) == ("todo", None, None)
    assert (trace.lease.state, trace.lease.end_reason) == ("expired", "lease_expired")


def test_recover_silent_agent_writes_the_eight_fields(trace: Trace) -> None:
    trace.run().at(175)
    tick(trace.store)
    (handoff,) = handoffs(trace.store)
    assert recovery_info(handoff) == {
        "recovered_at": iso(trace.start_ms + 175_000),
        "recovered_from_agent": "Agent-A",
        "previous_progress": 15,
        "time_spent_minutes": 2.9,
        "recovery_reason": "lease_expired",
        "previous_agent_branch": "marcus/Agent-A",
        "instructions": "git merge marcus/Agent-A --no-edit\ngit log marcus/Agent-A",
        "recovery_expires_at": iso(trace.start_ms + 175_000 + 24 * 3_600_000),
    }
    assert (handoff.last_message, handoff.attempts) == ("Reader done", 1)


def test_explain_recovery_says_why_in_numbers(trace: Trace) -> None:
    trace.run().at(175)
    tick(trace.store)
    story = [line.text for line in ok(explain.why(trace.store, task_id="F001")).story]
    assert "recovered from Agent-A (lease_expired): silent 120 s; allowed lease 90 + grace 30; cadence 37.5" in story, (
        story
    )
    numbers = data(events(trace.store, "recovered")[0])
    assert (numbers["silent_s"], numbers["lease_s"], numbers["grace_s"], numbers["median_s"]) == (120, 90, 30, 25)


def test_claim_at_180_seconds_gives_handoff_and_a_phase_1_lease(trace: Trace) -> None:
    trace.run().at(175)
    tick(trace.store)
    trace.at(180)
    grant = ok(claims.claim_next(trace.store, agent_id="Agent-B", profile="agent"))
    assert grant.task.task_id == "F001"
    assert (grant.lease.term_ms, grant.lease.grace_ms) == (60_000, 20_000)
    assert grant.lease.recover_at_ms == trace.start_ms + 260_000
    assert [handoff.recovered_from_agent for handoff in grant.handoffs] == ["Agent-A"]
    assert any("Taken back from Agent-A (lease_expired) at 15%" in message.text for message in grant.messages)

    text = ok(explain.briefing(trace.store, task_id="F001", agent_id="Agent-B"))
    order = [text.index(words) for words in ("Parse CSV", "RECOVERY ADDENDUM", "Write the parser.")]
    assert order == sorted(order), "title, then layer 1.1, then the body"
    for words in (
        "recovered from Agent-A",
        "git merge marcus/Agent-A --no-edit",
        "git log marcus/Agent-A",
        "Previous agent reached 15%",
        "> Use pandas.",
    ):
        assert words in text


def test_claim_at_180_seconds_with_nothing_running_recovers_first(trace: Trace) -> None:
    """The same without a monitor: the claim itself recovers, at the instant it runs."""
    trace.run().at(180)
    grant = ok(claims.claim_next(trace.store, agent_id="Agent-B", profile="agent"))
    assert [handoff.recovered_at_ms for handoff in grant.handoffs] == [trace.start_ms + 180_000]
    assert grant.handoffs[0].time_spent_minutes == 3.0


def test_see_exit_of_watched_process_puts_the_task_on_offer_at_once(trace: Trace) -> None:
    watcher = link(trace)
    trace.run(watcher)
    ok(agents.link_down(trace.store, link_id=watcher, died=True))
    assert not trace.is_live()
    grant = ok(claims.claim_next(trace.store, agent_id="Agent-B", profile="agent"))
    assert grant.lease.granted_at_ms == trace.start_ms + 55_000
    assert grant.handoffs[0].recovery_reason == "process_exited"
    assert grant.handoffs[0].previous_progress == 15


def test_lose_pulse_without_a_seen_exit_falls_back_to_175_seconds(trace: Trace) -> None:
    trace.run(link(trace))
    trace.at(174.999)
    assert trace.is_live()
    trace.at(175)
    assert not trace.is_live()
    assert tick(trace.store).recovered == 1


def test_drop_link_without_a_seen_exit_falls_back_to_175_seconds(trace: Trace) -> None:
    watcher = link(trace)
    trace.run(watcher)
    ok(agents.link_down(trace.store, link_id=watcher, died=False))
    trace.at(174.999)
    assert trace.is_live()
    trace.at(175)
    assert not trace.is_live()


def test_keep_pulsing_carries_a_silent_agent_until_it_counts_as_hung(trace: Trace) -> None:
    watcher = link(trace)
    trace.run(watcher)
    for second in range(60, 660, 5):
        trace.at(second)
        ok(agents.pulse(trace.store, link_id=watcher))
    trace.at(654.999)
    assert trace.is_live(), "a pulse every 5 s: alive 600 s after its last own call"
    trace.at(655)
    assert not trace.is_live(), "alive and stuck is as good as dead"


def test_see_exit_with_another_link_pulsing_is_no_death(trace: Trace) -> None:
    """A client that restarts its MCP server: one link sees an exit, the other still sees the agent."""
    first, second = link(trace, "mcp"), link(trace)
    trace.run(first, second)
    ok(agents.link_down(trace.store, link_id=first, died=True))
    assert trace.is_live()
    trace.at(60)
    ok(agents.link_down(trace.store, link_id=second, died=True))
    assert not trace.is_live(), "the last link saw the exit"


def test_see_exit_with_another_link_stale_is_a_death(trace: Trace) -> None:
    """A link that has not pulsed for 15 s is unknown, never up."""
    stale, watcher = link(trace, "server"), link(trace)
    trace.run(watcher)
    ok(agents.link_down(trace.store, link_id=watcher, died=True))
    assert not trace.is_live()
    refused(agents.link_down(trace.store, link_id="link-nobody", died=True), "link_not_found")
    assert ok(agents.link_down(trace.store, link_id=stale, died=False)).state == "down"


def test_drop_weak_link_proves_nothing(trace: Trace) -> None:
    stream = link(trace, "stream")
    trace.run(stream)
    assert ok(agents.link_down(trace.store, link_id=stream, died=True)).state == "down"
    trace.at(174.999)
    assert trace.is_live()
    trace.at(175)
    assert not trace.is_live()


def test_see_exit_of_an_older_incarnation_spares_the_newer_one(trace: Trace) -> None:
    watcher = link(trace)
    trace.run()
    join(trace.store, "Agent-A")
    feel(trace.store, "Agent-A", incarnation=2)
    report(trace.store, "Agent-A", 20, incarnation=2)
    ok(agents.link_down(trace.store, link_id=watcher, died=True))
    assert trace.is_live(), "the newest incarnation took the lease over by acting on it"


def test_announce_silence_carries_an_agent_until_its_next_call(trace: Trace) -> None:
    trace.run()
    feel(trace.store, "Agent-A", expect_silence_s=600)
    trace.at(654.999)
    assert trace.is_live()
    trace.at(655)
    assert not trace.is_live()


def test_call_after_announcement_clears_it(trace: Trace) -> None:
    trace.run()
    feel(trace.store, "Agent-A", expect_silence_s=600)
    trace.at(60)
    feel(trace.store, "Agent-A")
    trace.at(180)
    assert not trace.is_live()
