"""Real silences through the real rules: the rates, that the engine would say the same, and what users may feed in."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.core.deadline import PULSE_EVERY_MS
from tenure.core.replay import (
    RULES,
    Call,
    Outcome,
    Row,
    calls_of,
    mean_ms,
    play,
    quantile_ms,
    replay,
)
from tenure.core.settings import DEFAULTS, Settings, parse
from tenure.engine import agents, liveness, touch
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.cli.main import main
from tenure.surfaces.cli.replay import runs_of
from tests.support import add, join, ok, take
from tools import plot, trace

KEYS = [
    "rule",
    "agent_hours",
    "false_recoveries_per_agent_hour",
    "runs_hit_share",
    "latency_mean_s",
    "latency_p95_s",
]
# The file that the fixture was reduced from, for whoever has it: TENURE_TRACES names it.
WHOLE = Path(os.environ.get("TENURE_TRACES", ""))
has_the_whole = pytest.mark.skipif(
    not WHOLE.is_file(), reason="only the fixture was replayed: TENURE_TRACES names no whole trace"
)


@pytest.fixture(scope="module")
def runs() -> list[list[Call]]:
    return runs_of(str(plot.FIXTURE))


@pytest.fixture(scope="module")
def outcomes(runs: list[list[Call]]) -> dict[str, Outcome]:
    return {rule: replay(runs, rule, DEFAULTS) for rule in RULES}


def assert_rates(outcomes: dict[str, Outcome]) -> None:
    rates = {rule: outcome.false_recoveries_per_agent_hour for rule, outcome in outcomes.items()}
    assert 2.4 <= rates["unlinked"] <= 2.8
    assert rates["linked"] <= 0.15
    assert rates["linked_announced"] <= 0.10
    assert outcomes["unlinked"].latency_p95_s > 100 > 1.5 > outcomes["linked"].latency_p95_s


# -- the rates --------------------------------------------------------------------------------------------------------


def test_replay_of_the_fixture_has_the_rates_the_design_was_made_for(outcomes: dict[str, Outcome]) -> None:
    assert_rates(outcomes)
    hit = [outcomes[rule].runs_hit_share for rule in RULES]
    assert hit == sorted(hit, reverse=True)


@has_the_whole
def test_replay_of_the_whole_trace_has_them_too() -> None:
    whole = runs_of(str(WHOLE))
    assert_rates({rule: replay(whole, rule, DEFAULTS) for rule in RULES})


@has_the_whole
def test_fixture_is_the_whole_trace_reduced() -> None:
    assert gzip.decompress(trace.reduced(WHOLE)) == gzip.decompress(plot.FIXTURE.read_bytes())


def test_picture_in_the_docs_is_current() -> None:
    run = subprocess.run([sys.executable, "tools/plot.py", "--check"], cwd=plot.ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


# -- the engine says the same -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["unlinked", "linked", "linked_announced"])
def test_replay_of_a_run_has_the_deadlines_that_the_engine_writes(
    rule: str, runs: list[list[Call]], store: SqliteStore, clock: ManualClock
) -> None:
    # Long enough for every phase, with announcements, and never recovered.
    longest = max((calls for calls in runs if len(calls) < 120 and any(call.announces_ms for call in calls)), key=len)
    calls = [call.replace(helped_until_ms=0) for call in longest]
    played = play(calls, rule, DEFAULTS)
    assert played.recovered == 0
    add(store)
    join(store, "A1")
    granted_ms = take(store, "A1").granted_at_ms
    link_id = ""
    if rule != "unlinked":
        link_id = ok(agents.link_up(store, agent_id="A1", kind="run")).link_id
    now_ms = pulsed_ms = 0
    for number, call in enumerate(calls, start=1):
        while link_id and pulsed_ms + PULSE_EVERY_MS < call.at_ms:
            pulsed_ms += PULSE_EVERY_MS
            clock.advance((pulsed_ms - now_ms) / 1000)
            now_ms = pulsed_ms
            ok(agents.pulse(store, link_id=link_id))
        clock.advance((call.at_ms - now_ms) / 1000)
        now_ms = call.at_ms
        silence_s = call.announces_ms // 1000 if rule == "linked_announced" else 0
        if number % 5 == 0:
            progress = 100 * number // len(calls)
            kept = ok(
                liveness.report(store, task_id="F001", agent_id="A1", progress=progress, expect_silence_s=silence_s)
            )
            lease = kept.lease
        else:
            (lease,) = ok(touch.touch(store, agent_id="A1", expect_silence_s=silence_s)).leases
        expected = played.leases[number - 1]
        assert lease.recover_at_ms - granted_ms == expected.recover_at_ms, number
        assert (lease.term_ms, lease.grace_ms, lease.cadence_ms) == (
            expected.term_ms,
            expected.grace_ms,
            expected.cadence_ms,
        )


# -- the model --------------------------------------------------------------------------------------------------------


def rows(*events: tuple[float, str] | tuple[float, str, str]) -> list[Row]:
    return [
        Row(at_ms=round(event[0] * 1000), kind=event[1], tool=event[2] if len(event) > 2 else "") for event in events
    ]


def test_calls_of_a_run_leave_out_the_wait_for_a_person() -> None:
    calls = calls_of(rows((0, "user"), (10, "tool_call"), (15, "assistant_text"), (500, "user"), (520, "tool_call")))
    assert [call.at_ms for call in calls] == [10_000, 35_000]


def test_calls_of_a_run_leave_out_a_sleep_of_more_than_an_hour() -> None:
    calls = calls_of(rows((0, "tool_call"), (3600, "tool_call"), (7201, "tool_call")))
    assert [call.at_ms for call in calls] == [0, 3_600_000, 3_600_000]


def test_calls_of_a_run_know_until_when_a_sub_agent_worked() -> None:
    calls = calls_of(rows((0, "tool_call", "subagent"), (900, "tool_result", "subagent"), (910, "tool_call")))
    assert [call.helped_until_ms for call in calls] == [900_000, 0]


def silent_for(seconds: float, **first: int) -> list[Call]:
    return [Call(at_ms=0, **first), Call(at_ms=round(seconds * 1000))]


@pytest.mark.parametrize(
    ("calls", "recovered"),
    [
        # The boundary instant is expired: 60 s and 20 s of grace after a touch of an unproven agent.
        (silent_for(79.999), (0, 0, 0)),
        (silent_for(80), (1, 0, 0)),
        # A link carries it to 600 s, and not further.
        (silent_for(599.999), (1, 0, 0)),
        (silent_for(600), (1, 1, 1)),
        # An announcement carries it for as long as it says, and at most an hour.
        (silent_for(1199.999, announces_ms=1_200_000), (1, 1, 0)),
        (silent_for(1200, announces_ms=1_200_000), (1, 1, 1)),
        (silent_for(3600, announces_ms=7_200_000), (1, 1, 1)),
        # A sub-agent touches for its parent; the parent's own silence begins when that is over.
        (silent_for(2000, helped_until_ms=1_900_000), (1, 1, 0)),
        (silent_for(2600, helped_until_ms=1_900_000), (1, 1, 1)),
    ],
)
def test_play_of_one_silence_is_recovered_under_these_rules(calls: list[Call], recovered: tuple[int, ...]) -> None:
    assert tuple(play(calls, rule, DEFAULTS).recovered for rule in RULES) == recovered


def test_play_of_a_recovered_agent_does_not_count_that_silence_as_its_rhythm() -> None:
    seconds = [*range(0, 150, 10), *range(700, 800, 10)]
    calls = [Call(at_ms=second * 1000) for second in seconds]
    unlinked, linked = (play(calls, rule, DEFAULTS) for rule in ("unlinked", "linked"))
    assert (unlinked.recovered, linked.recovered) == (1, 0)
    # Five calls to a report: after the silence marks begin anew, so that of two reports there is one more gap.
    assert unlinked.leases[-1].mark_gaps == "50000 50000 50000"
    assert linked.leases[-1].mark_gaps == "50000 50000 600000 50000"


def test_play_of_an_unlinked_run_spreads_kills_over_the_time_it_was_held() -> None:
    played = play(silent_for(20), "unlinked", DEFAULTS)
    # Killed at once it is noticed after 80 s, killed at 20 s after 60.
    assert played.latencies[-1] == (60_000, 80_000, 20_000)
    # Recovered at 80 s: nobody can be killed while holding it after that.
    assert play(silent_for(200), "unlinked", DEFAULTS).latencies[-1] == (0, 80_000, 80_000)


def test_mean_and_quantile_of_spreads_are_exact() -> None:
    pieces = [(0, 100, 50), (100, 300, 50)]
    assert mean_ms(pieces) == 125
    assert quantile_ms(pieces, 0.5) == pytest.approx(100, abs=1)
    assert quantile_ms(pieces, 0.95) == pytest.approx(280, abs=1)


def test_replay_follows_the_settings(runs: list[list[Call]]) -> None:
    patient = parse({"tenure": {"hung_after_s": 3600}})
    assert isinstance(patient, Settings)
    some = runs[:200]
    slow, quick = (replay(some, "linked", settings) for settings in (patient, DEFAULTS))
    assert slow.false_recoveries_per_agent_hour <= quick.false_recoveries_per_agent_hour


# -- the command ------------------------------------------------------------------------------------------------------

SMALL = "session_id,t_seconds,kind,auto\na,0,tool_call,1\na,100,tool_call,1\nb,0,tool_call,0\nb,999,tool_call,0\n"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TENURE_STORE", "TENURE_PROJECT", "GIT_DIR"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "small.csv"
    path.write_text(SMALL)
    return path


def test_replay_command_in_json_is_a_list_of_outcomes(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(small), "--json"], folder=str(small.parent)) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert [list(outcome) for outcome in data] == [KEYS] * 3
    assert [outcome["rule"] for outcome in data] == list(RULES)
    # One run of 100 s; the attended one is left out.
    assert [outcome["false_recoveries_per_agent_hour"] for outcome in data] == [36.0, 0.0, 0.0]
    assert [outcome["runs_hit_share"] for outcome in data] == [1.0, 0.0, 0.0]


def test_replay_command_prints_a_table(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = small.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(SMALL.encode()))
    assert main(["replay", str(packed)], folder=str(small.parent)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 unattended run, 2 calls, 0.0 agent-hours"
    assert [line.split()[0] for line in lines[3:]] == list(RULES)


def test_replay_command_takes_settings_for_once(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", str(small), "--json", "--set", "tenure.hung_after_s=60"]
    assert main(words, folder=str(small.parent)) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data[1]["false_recoveries_per_agent_hour"] == 36.0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "no column session_id, t_seconds, kind"),
        (b"session_id,t_seconds\na,1\n", "no column kind"),
        (b"session_id,t_seconds,kind\na,soon,tool_call\n", "line 2"),
        (b"session_id,t_seconds,kind\na,nan,tool_call\n", "line 2"),
        (b"session_id,t_seconds,kind\na,1\n", "no unattended run"),
        (b"session_id,t_seconds,kind,auto\na,1,tool_call,0\n", "no unattended run"),
        (b"\x1f\x8bnot packed", "cannot be replayed"),
        (gzip.compress(SMALL.encode(), mtime=0)[:-20], "cannot be replayed"),
        (b"session_id,t_seconds,kind\n\xff\xfe,1,tool_call\n", "cannot be replayed"),
    ],
)
def test_replay_command_of_a_bad_file_says_what_is_wrong(
    small: Path, capsys: pytest.CaptureFixture[str], text: bytes, told: str
) -> None:
    small.write_bytes(text)
    assert main(["replay", str(small)], folder=str(small.parent)) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["tenure.hung_after=1", "hung_after_s=60", "tenure.hung_after_s"])
def test_replay_command_with_a_wrong_setting_is_refused(small: Path, setting: str) -> None:
    assert main(["replay", str(small), "--set", setting], folder=str(small.parent)) == 2
