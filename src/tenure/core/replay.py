"""Real silences, replayed through the rules: how often a live agent would be called dead, how late a dead one noticed.

A trace says when an agent made its tool calls. This file turns each run into calls on the agent's own timeline and
plays them against a lease, with the functions that a store's leases are kept by (core/deadline.py, core/phases.py). It
decides nothing itself. The model, the same for every rule:

- The task is claimed at the run's first event. Every tool call is a touch; every 5th is a report instead, with the
  share of the run's calls as its progress. The run ends with its last call.
- Time that ends in something a person did is a wait for the person, not a silence, and is cut out. So is more than an
  hour between two events of any kind: the machine slept, or the session was taken up again another day.
- A lease that is not live when the next call comes was recovered falsely. The agent has it back with that call, as a
  returning holder has: term and cadence kept, the rhythm of its marks begun anew.
- An agent is killed at an instant spread evenly over the time in which its lease was live. Latency is from there until
  the task is on offer, integrated exactly: nothing is drawn at random.

The rules differ in what is known beside the calls:

    unlinked           nothing: the specification's rule
    linked             a link pulses every 5 s and is assumed to see the process exit within a second
    linked_announced   the same; a call with a declared timeout announces that silence, and sub-agents touch for their
                       parent while its call to them is open

What is not modelled: links that fail, hosts that lose power, agents that hang, deaths that nobody watches.
"""

from __future__ import annotations

from tenure.core.deadline import PULSE_EVERY_MS, live, marked, recover_at_ms, seen, settled
from tenure.core.model import Lease
from tenure.core.phases import term_for
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tenure.core.settings import Settings

RULES = ("unlinked", "linked", "linked_announced")
REPORT_EVERY = 5
ASLEEP_MS = 3_600_000
# How often a watcher looks whether the process is there, where the kernel does not tell it.
WATCH_EVERY_MS = 1_000
# How often a sub-agent at work calls, for its parent: rarer than nearly all do.
SUBAGENT_EVERY_MS = 60_000


class Row(Record):
    """One event of a trace. `at_ms` counts from anywhere; only differences matter."""

    at_ms: int
    # tool_call, tool_result, user, or anything else that happens.
    kind: str
    tool: str = ""
    # What a call declared as its own limit; 0: nothing.
    timeout_ms: int = 0


class Call(Record):
    """A tool call on the run's timeline."""

    at_ms: int
    announces_ms: int = 0
    # Until when a sub-agent worked for this call; 0: none did.
    helped_until_ms: int = 0


class Outcome(Record):
    """What one rule made of all runs."""

    rule: str
    agent_hours: float
    false_recoveries_per_agent_hour: float
    runs_hit_share: float
    latency_mean_s: float
    latency_p95_s: float


class Played(Record):
    """One run under one rule: how often it was recovered, and the latencies of a kill as (lowest, highest, weight)."""

    live_ms: int
    recovered: int
    latencies: list[tuple[int, int, int]]
    # The lease after each call, for whoever wants to look.
    leases: list[Lease]


def calls_of(rows: Iterable[Row], *, touched_by: str = "tool_call") -> list[Call]:
    """The calls of one run, in order, with waits for people and sleep cut out of the time."""
    calls: list[Call] = []
    asked: list[int] = []
    clock_ms, last_ms = 0, None
    for row in rows:
        passed_ms = 0 if last_ms is None else max(0, row.at_ms - last_ms)
        last_ms = row.at_ms
        if row.kind == "user":
            continue
        if passed_ms <= ASLEEP_MS:
            clock_ms += passed_ms
        if row.kind == "tool_result" and row.tool == "subagent" and asked:
            first = asked.pop(0)
            calls[first] = calls[first].replace(helped_until_ms=clock_ms)
        if row.kind == touched_by:
            if row.tool == "subagent":
                asked.append(len(calls))
            calls.append(Call(at_ms=clock_ms, announces_ms=row.timeout_ms))
    return calls


def replay(runs: Sequence[Sequence[Call]], rule: str, settings: Settings) -> Outcome:
    """Play every run under a rule. Runs without calls are left out; there must be one with calls that take time."""
    played = [play(calls, rule, settings) for calls in runs if calls]
    hours = sum(run.live_ms for run in played) / 3_600_000
    latencies = [piece for run in played for piece in run.latencies]
    return Outcome(
        rule=rule,
        agent_hours=round(hours, 3),
        false_recoveries_per_agent_hour=round(sum(run.recovered for run in played) / hours, 4),
        runs_hit_share=round(sum(run.recovered > 0 for run in played) / len(played), 4),
        latency_mean_s=round(mean_ms(latencies) / 1000, 2),
        latency_p95_s=round(quantile_ms(latencies, 0.95) / 1000, 2),
    )


def play(calls: Sequence[Call], rule: str, settings: Settings) -> Played:
    """One run under one rule."""
    linked, announced = rule != "unlinked", rule == "linked_announced"
    lease = _granted(settings)
    helped_until_ms, recovered = 0, 0
    latencies: list[tuple[int, int, int]] = []
    leases: list[Lease] = []
    for number, call in enumerate(calls, start=1):
        for silent, from_ms, until_ms in _silence(lease, call.at_ms, linked, helped_until_ms if announced else 0):
            latencies += _latency(silent, from_ms, until_ms, linked)
            lease = silent
        if not live(lease, call.at_ms):
            recovered += 1
            lease = lease.replace(marked_at_ms=None)
        expect_silence_ms = call.announces_ms if announced else 0
        if number % REPORT_EVERY == 0:
            lease = _reported(lease, call.at_ms, 100 * number // len(calls), expect_silence_ms, settings)
        else:
            lease = settled(seen(lease, call.at_ms, extends=True, expect_silence_ms=expect_silence_ms))
        helped_until_ms = max(helped_until_ms, call.helped_until_ms)
        leases.append(lease)
    return Played(live_ms=calls[-1].at_ms, recovered=recovered, latencies=latencies, leases=leases)


def _granted(settings: Settings) -> Lease:
    """A lease as it is at its claim, at the instant 0."""
    term = _term(settings, reports=0, progress=0, renewals=0)
    lease = Lease(
        lease_id="replayed",
        task_key=1,
        project_id="replayed",
        task_id="replayed",
        agent_id="replayed",
        incarnation=1,
        token=1,
        profile="agent",
        state="active",
        granted_at_ms=0,
        term_ms=term[0],
        grace_ms=term[1],
        hung_after_ms=settings.hung_after_s * 1000,
        silence_cap_ms=settings.silence_cap_s * 1000,
        expires_at_ms=term[0],
        seen_at_ms=0,
        recover_at_ms=0,
        wake_at_ms=0,
    )
    return settled(lease)


def _term(settings: Settings, **shown: int) -> tuple[int, int]:
    """Term and grace of an ordinary task's holder that has shown this much."""
    term = term_for(settings.task_lease, estimated_hours=4.0, priority="medium", complexity="none", **shown)
    return term.term_ms, term.grace_ms


def _reported(lease: Lease, now_ms: int, progress: int, expect_silence_ms: int, settings: Settings) -> Lease:
    """The lease after a report, by the steps of the report verb."""
    reports, renewals = lease.reports + 1, lease.renewals + 1
    term = _term(settings, reports=reports, progress=progress, renewals=renewals)
    lease = lease.replace(reports=reports, renewals=renewals, progress=progress, term_ms=term[0], grace_ms=term[1])
    lease = marked(lease, now_ms, settings.task_lease.silence_multiplier)
    return settled(seen(lease, now_ms, extends=True, expect_silence_ms=expect_silence_ms))


def _silence(lease: Lease, next_ms: int, linked: bool, helped_until_ms: int) -> Iterator[tuple[Lease, int, int]]:
    """The lease from the agent's last call to its next, as it is between two instants; the last one is what that finds.

    A pulse or a sub-agent's touch changes a live lease only.
    """
    at_ms = lease.seen_at_ms
    while True:
        pulse_ms = (at_ms // PULSE_EVERY_MS + 1) * PULSE_EVERY_MS if linked else next_ms
        help_ms = lease.seen_at_ms + SUBAGENT_EVERY_MS
        if help_ms > helped_until_ms:
            help_ms = next_ms
        until_ms = min(pulse_ms, help_ms, next_ms)
        yield lease, at_ms, until_ms
        if until_ms == next_ms or not live(lease, until_ms):
            return
        if until_ms == pulse_ms:
            lease = lease.replace(pulsed_at_ms=until_ms)
        if until_ms == help_ms:
            lease = seen(lease, until_ms, extends=True)
        lease, at_ms = settled(lease), until_ms


def _latency(lease: Lease, from_ms: int, until_ms: int, linked: bool) -> list[tuple[int, int, int]]:
    """The latencies of a kill between two instants, while the lease is live."""
    end_ms = min(until_ms, lease.recover_at_ms)
    if end_ms <= from_ms:
        return []
    if not linked:
        return [(lease.recover_at_ms - end_ms, lease.recover_at_ms - from_ms, end_ms - from_ms)]
    # The watcher looks again at any time within its interval, and what it sees is written down as a death.
    seen_dead_ms = recover_at_ms(lease.replace(death_at_ms=from_ms + WATCH_EVERY_MS))
    return [(0, seen_dead_ms - from_ms, end_ms - from_ms)]


def mean_ms(pieces: Sequence[tuple[int, int, int]]) -> float:
    """The mean of a mixture of even spreads, each (lowest, highest, weight)."""
    weight = sum(piece[2] for piece in pieces)
    return sum((low + high) / 2 * piece for low, high, piece in pieces) / weight


def quantile_ms(pieces: Sequence[tuple[int, int, int]], share: float) -> float:
    """The latency that this share of kills stays below, to the millisecond."""
    wanted = share * sum(piece[2] for piece in pieces)
    below, above = 0.0, float(max(high for _, high, _ in pieces))
    while above - below > 0.5:
        middle = (below + above) / 2
        covered = sum(
            weight if high <= middle else weight * (middle - low) / (high - low)
            for low, high, weight in pieces
            if low < middle
        )
        below, above = (middle, above) if covered < wanted else (below, middle)
    return above
