"""Layered instructions: order, repetition, budget, and whose words are whose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import handoff as handoffs
from tenure.core.handoff import DATA_NOTICE
from tenure.core.instructions import Briefing, Dependant, Dependency, build, estimate_tokens, layers
from tenure.core.model import Handoff, Lease, Message, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

T0 = 1_767_541_500_000
PLENTY = 100_000
DAY_MS = 86_400_000

TASK = Task(key=7, project_id="default", task_id="T1", title="Build the API", body="Write it.\n\nTest it.", progress=15)
LEASE = Lease(
    lease_id="L1",
    task_key=7,
    project_id="default",
    task_id="T1",
    agent_id="Agent-A",
    incarnation=1,
    token=T0,
    profile="agent",
    state="active",
    granted_at_ms=T0,
    term_ms=60_000,
    grace_ms=20_000,
    expires_at_ms=T0 + 60_000,
    seen_at_ms=T0,
    recover_at_ms=T0 + 80_000,
    wake_at_ms=T0 + 80_000,
    message="half way",
)
FIXED = LEASE.replace(profile="cli", fixed=1, term_ms=900_000, grace_ms=0, expires_at_ms=T0 + 900_000)
WORKER = FIXED.replace(profile="worker", touch_extends=0)


def a_handoff(agent: str = "Agent-A", at_ms: int = T0, **changes: Any) -> Handoff:
    built = handoffs.build(
        handoff_id="H1",
        task=TASK,
        lease=LEASE.replace(agent_id=agent),
        now_ms=at_ms,
        reason="lease_expired",
        prefix="marcus/",
        handoff_hours=24.0,
        attempts=1,
        decisions=[{"decision": "Use SQLite", "agent_id": "Agent-A"}],
        artifacts=[],
    )
    return built.replace(**changes)


def a_message(seq: int, text: str, sender: str = "Agent-C", kind: str = "note") -> Message:
    return Message(seq=seq, at_ms=T0 + seq, project_id="default", task_id="T1", sender=sender, kind=kind, text=text)


FULL = Briefing(
    task=TASK,
    now_ms=T0 + 5_000,
    handoffs=[a_handoff()],
    lease=LEASE,
    phase="unproven",
    branch="marcus/Agent-B",
    dependencies=[
        Dependency(
            task_id="D1",
            title="Design",
            decisions=[{"decision": "REST", "agent_id": "Marcus"}],
            artifacts=[{"filename": "design.md", "location": "docs/design.md"}],
        )
    ],
    dependants=[Dependant(task_id="U1", title="User interface"), Dependant(task_id="U2")],
    decisions=[{"decision": "Use SQLite", "agent_id": "Agent-A"}, {"decision": "Use tabs", "agent_id": "Agent-B"}],
    messages=[a_message(1, "first"), a_message(2, "second")],
)


def numbers(briefing: Briefing) -> list[str]:
    return [layer.number for layer in layers(briefing)]


def layer_text(briefing: Briefing, number: str) -> str:
    return next((layer.text for layer in layers(briefing) if layer.number == number), "")


def test_layers_stand_in_order_with_the_handoff_above_the_body() -> None:
    assert numbers(FULL) == ["0", "1.1", "1", "1.5", "2", "3", "4", "5"]
    text = build(FULL, PLENTY)
    places = [text.index(f"## {number} ") for number in numbers(FULL)[1:]]
    assert places == sorted(places)
    assert text.startswith("# Build the API\n")


def test_build_within_the_budget_is_all_layers_and_says_nothing_about_cutting() -> None:
    text = build(FULL, PLENTY)
    assert "Cut to fit" not in text
    for layer in layers(FULL):
        assert layer.text in text


@pytest.mark.parametrize(
    ("changes", "number", "shown", "why"),
    [
        ({"now_ms": T0 + DAY_MS - 1}, "1.1", True, "The handoff is shown while it is unexpired."),
        ({"now_ms": T0 + DAY_MS}, "1.1", False, "An expired handoff is not shown."),
        ({"handoffs": [a_handoff(state="withdrawn")]}, "1.1", False, "Nor is one that was withdrawn."),
        ({"handoffs": []}, "1.1", False, "A task that was never lost has no handoff."),
        ({"task": TASK.replace(body=" \n")}, "1", False, "A task without a body has no empty layer for it."),
        ({"dependencies": []}, "2", False, "No dependencies, no layer."),
        ({"dependants": []}, "3", False, "No dependants, no layer."),
        ({"messages": []}, "5", False, "No messages, no layer."),
        ({"lease": None}, "1.5", True, "Without a lease the estimate remains."),
        (
            {"messages": [a_message(1, "x", kind="handoff")]},
            "5",
            False,
            "The thread's copy of a handoff is not repeated.",
        ),
    ],
)
def test_layer_is_present_only_with_something_to_say(
    changes: dict[str, Any], number: str, shown: bool, why: str
) -> None:
    assert (number in numbers(FULL.replace(**changes))) is shown, why


@pytest.mark.parametrize(
    ("changes", "number", "wanted", "why"),
    [
        ({}, "1", "Write it.\n\nTest it.", "The body is given as it was written."),
        ({}, "1.1", "git merge marcus/Agent-A --no-edit", "The handoff has the commands."),
        ({}, "1.5", "Phase unproven: the lease runs 60 s plus 20 s of grace", "The phase and its seconds are named."),
        (
            {"phase": ""},
            "1.5",
            "The lease runs 60 s plus 20 s",
            "Without a phase (conservative mode) only the seconds.",
        ),
        ({}, "1.5", "Any call you make", "An agent learns that any call counts."),
        ({}, "1.5", "expect_silence_s", "And how to announce a silence."),
        ({}, "1.5", "at most 3600 s", "And how long a silence may be."),
        ({}, "1.5", "Estimated work: 4 h.", "The estimate is part of the budget."),
        (
            {"task": TASK.replace(attempts=1, max_attempts=3)},
            "1.5",
            "1 of 3",
            "Where attempts are counted, it is said.",
        ),
        ({"lease": FIXED}, "1.5", "900 s at a time", "A fixed term is named."),
        ({"lease": FIXED}, "1.5", "no grace", "A fixed term has no grace."),
        ({"lease": FIXED}, "1.5", "`tenure task renew T1`", "The command line renews."),
        ({"lease": WORKER}, "1.5", "POST /lease/L1/heartbeat", "A worker sends heartbeats."),
        ({"lease": WORKER.replace(state="offered")}, "1.5", "This is an offer", "An offer must be accepted first."),
        ({}, "2", "D1 “Design” is done.", "A dependency is named with its title."),
        ({}, "2", "Decision by Marcus in D1:\n> REST", "Its decisions are quoted."),
        ({}, "2", "Artifact in D1:\n> design.md at docs/design.md", "Its artifacts are named with their place."),
        (
            {"dependencies": [Dependency(task_id="D1", artifacts=[{"filename": "design.md", "location": None}])]},
            "2",
            "kept here: get_task_context(D1)",
            "What lies in the store can be found.",
        ),
        ({}, "3", "- U1 “User interface” (todo)", "Dependants are named."),
        ({}, "4", "log_decision", "An agent learns what to log."),
        ({}, "4", "on your branch marcus/Agent-B", "And where to commit."),
        ({"lease": FIXED}, "4", "tenure msg send --task T1", "On the command line it is a message."),
        ({"lease": WORKER}, "4", "complete receipt", "A worker submits receipts."),
        ({}, "5", "From Agent-C at 2026-01-04T15:45:00.002Z:\n> second", "Messages say who and when."),
        (
            {"messages": [a_message(3, "psst").replace(task_id=None, recipient="Agent-B")]},
            "5",
            "From Agent-C to you at 2026-01-04T15:45:00.003Z:\n> psst",
            "What was sent to the reader alone is told apart.",
        ),
    ],
)
def test_layer_tells(changes: dict[str, Any], number: str, wanted: str, why: str) -> None:
    assert wanted in layer_text(FULL.replace(**changes), number), why


def test_artifacts_with_a_place_need_no_other_way_to_them() -> None:
    assert "get_task_context" not in layer_text(FULL, "2")


def test_a_fixed_lease_is_not_told_that_any_call_counts() -> None:
    for lease in (FIXED, WORKER):
        assert "Any call" not in layer_text(FULL.replace(lease=lease), "1.5")


def test_earlier_handoffs_are_named_below_the_newest() -> None:
    briefing = FULL.replace(handoffs=[a_handoff("Agent-Z", T0 - 9_000), a_handoff("Agent-A", T0)])
    text = layer_text(briefing, "1.1")
    assert text.startswith("⚠️ RECOVERY ADDENDUM — recovered from Agent-A")
    assert "branch marcus/Agent-Z" in text


@pytest.mark.parametrize(
    ("changes", "needle", "times", "why"),
    [
        ({}, "> Use SQLite", 1, "A decision that the handoff shows is not shown again as the task's own."),
        ({}, "> Use tabs", 1, "Another decision of the task is."),
        ({"handoffs": []}, "> Use SQLite", 1, "Without a handoff the task's own decision is shown."),
        ({"messages": [a_message(1, "hi"), a_message(2, "hi")]}, "> hi", 1, "The same words twice say nothing new."),
        ({"messages": [a_message(1, "hi"), a_message(2, "hi", "B")]}, "> hi", 2, "Two senders may say the same."),
        ({"messages": [a_message(1, "half way")]}, "> half way", 1, "The handoff has quoted these last words already."),
        ({"messages": [a_message(1, TASK.body)]}, "Write it.", 1, "A message that repeats the body is not shown."),
        ({"dependants": [Dependant(task_id="U1")] * 3}, "- U1 (todo)", 1, "A dependant is listed once."),
        ({}, DATA_NOTICE, 1, "What a quotation is, is said once."),
        ({"handoffs": []}, DATA_NOTICE, 1, "And said without a handoff too, where the first quotation stands."),
    ],
)
def test_an_identical_block_is_not_repeated(changes: dict[str, Any], needle: str, times: int, why: str) -> None:
    assert build(FULL.replace(**changes), PLENTY).count(needle) == times, why


def test_two_dependencies_that_decided_alike_are_both_shown() -> None:
    dependencies = [Dependency(task_id=name, decisions=["REST"]) for name in ("D1", "D2")]
    text = layer_text(FULL.replace(dependencies=dependencies), "2")
    assert "Decision in D1:\n> REST" in text
    assert "Decision in D2:\n> REST" in text


# The budget.


def test_build_cuts_from_the_bottom_and_says_what_in_one_line() -> None:
    briefing = FULL.replace(messages=[a_message(1, "first " * 50), a_message(2, "second")])
    text = build(briefing, estimate_tokens(build(briefing, PLENTY)) - 1)
    assert "> second" in text
    assert "> first" not in text
    last = text.splitlines()[-1]
    assert last.startswith("[Cut to fit ")
    assert "5 Messages (1 of 2 parts)" in last
    assert "What to log" not in last


def test_build_with_next_to_no_budget_keeps_title_handoff_and_body() -> None:
    text = build(FULL, 1)
    assert "# Build the API" in text
    assert layer_text(FULL, "1.1") in text
    assert TASK.body in text
    assert "## 1.5" not in text
    assert "1.5 Time budget and lease, 2 What its dependencies produced, 3 " in text.splitlines()[-1]


def test_build_drops_the_long_notice_rather_than_exceed_a_budget_that_the_rest_meets() -> None:
    least = build(FULL, 1).rpartition("\n\n")[0]
    assert build(FULL, estimate_tokens(least)) == least
    assert build(FULL, estimate_tokens(least) + 3) == f"{least}\n\n[cut]"


def test_a_cut_never_leaves_the_sentence_about_dependants_alone() -> None:
    for budget in range(1, estimate_tokens(build(FULL, PLENTY))):
        text = build(FULL, budget)
        assert ("These tasks wait for this one" in text) == ("- U1 “User interface”" in text)


def test_build_of_ten_thousand_messages_is_quick_and_within_budget() -> None:
    text = build(FULL.replace(messages=[a_message(n, f"note {n}") for n in range(10_000)]), 2_000)
    assert estimate_tokens(text) <= 2_000
    assert "> note 9999" in text


@pytest.mark.parametrize(
    ("text", "tokens", "why"),
    [
        ("", 0, "Nothing costs nothing."),
        ("a", 1, "A part of a token is a token."),
        ("abcd", 1, "Four characters are one."),
        ("abcde", 2, "Five are two."),
        ("é", 2, "Two bytes count as two."),
        ("漢字", 6, "Three bytes each."),
        ("abcd漢", 4, "The kinds add up."),
        ("\ud800", 3, "A lone surrogate is counted, not an error."),
    ],
)
def test_estimate_tokens(text: str, tokens: int, why: str) -> None:
    assert estimate_tokens(text) == tokens, why


WORDS = st.text(st.one_of(st.sampled_from("\n\r\u2028\x85\x1b[m> #"), st.characters(codec="utf-8")), max_size=80)
BRIEFINGS = st.builds(
    Briefing,
    task=st.builds(TASK.replace, title=WORDS, body=WORDS),
    now_ms=st.just(T0 + 1),
    handoffs=st.lists(st.builds(a_handoff, last_message=WORDS), max_size=2),
    lease=st.sampled_from([None, LEASE, FIXED, WORKER]),
    phase=st.sampled_from(["", "proven"]),
    dependencies=st.lists(
        st.builds(Dependency, task_id=WORDS, title=WORDS, decisions=st.lists(WORDS, max_size=2)), max_size=3
    ),
    dependants=st.lists(st.builds(Dependant, task_id=WORDS, title=WORDS), max_size=3),
    decisions=st.lists(st.builds(dict, decision=WORDS, agent_id=WORDS), max_size=2),
    messages=st.lists(st.builds(a_message, st.integers(0, 9), WORDS, WORDS), max_size=4),
)


@given(BRIEFINGS, st.integers(1, 1_500))
def test_build_exceeds_the_budget_only_if_what_may_not_be_cut_does(briefing: Briefing, budget: int) -> None:
    text = build(briefing, budget)
    bare = Briefing(task=briefing.task, now_ms=briefing.now_ms, handoffs=briefing.handoffs)
    protected = [layer for layer in layers(bare) if layer.number in ("0", "1.1", "1")]
    least = "\n\n".join(
        [f"# {protected[0].title}", *(f"## {layer.number} {layer.title}\n\n{layer.text}" for layer in protected[1:])]
    )
    assert text.startswith(least)
    assert estimate_tokens(text) <= budget or estimate_tokens(least) > budget


@given(BRIEFINGS)
def test_build_with_room_shows_every_layer_once_and_no_paragraph_twice(briefing: Briefing) -> None:
    found = layers(briefing)
    assert [layer.number for layer in found] == sorted({layer.number for layer in found}, key=float_of)
    below = [
        paragraph for layer in found if layer.number not in ("0", "1.1", "1") for paragraph in layer.text.split("\n\n")
    ]
    assert len(below) == len(set(below))
    assert "" not in below
    assert build(briefing, PLENTY).count("[Cut") == briefing.task.title.count("[Cut")


def float_of(number: str) -> float:
    # 1.1 stands before 1: the handoff is read before the body.
    return 0.5 if number == "1.1" else float(number)


@given(st.lists(st.text(st.sampled_from("\n\r\v\f\x1c\x85\u2028\u2029\x1b[0m> "), max_size=12), min_size=8, max_size=8))
def test_build_gives_no_agent_a_line_of_its_own(noise: list[str]) -> None:
    # The marker stands at the start of a line in each text that is not the project's own.
    words = [f"x\n{part}\nOBEY{number}" for number, part in enumerate(noise)]
    briefing = FULL.replace(
        phase=words[0],
        branch=words[1],
        handoffs=[a_handoff(last_message=words[2])],
        dependencies=[Dependency(task_id=words[3], title=words[4], decisions=[words[5]], artifacts=[words[5]])],
        dependants=[Dependant(task_id=words[4], title=words[3])],
        decisions=[{"decision": words[6], "agent_id": words[5]}],
        messages=[a_message(1, words[7], sender=words[6])],
    )
    for line in build(briefing, PLENTY).splitlines():
        assert not line.lstrip().startswith("OBEY")
