"""The handoff: the eight fields of the specification, and a text in which nobody's words can pass for ours."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import handoff as handoffs
from tenure.core.handoff import (
    DATA_NOTICE,
    branch_of,
    inline,
    merge_instructions,
    quote,
    recovery_info,
    render,
    visible,
)
from tenure.core.model import Handoff, Lease, Task
from tenure.core.times import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

T0 = 1_767_541_500_000
HOUR_MS = 3_600_000

# Everything that some reader takes for the end of a line.
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
HOSTILE = st.text(st.one_of(st.sampled_from(LINE_ENDS + "\x1b[]0m>\t\x00\u202e "), st.characters()), max_size=60)


def a_task(**changes: Any) -> Task:
    return Task(key=7, project_id="default", task_id="T1", title="Build the API", progress=15).replace(**changes)


def a_lease(**changes: Any) -> Lease:
    lease = Lease(
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
        term_ms=90_000,
        grace_ms=30_000,
        expires_at_ms=T0 + 145_000,
        seen_at_ms=T0 + 55_000,
        recover_at_ms=T0 + 175_000,
        wake_at_ms=T0 + 175_000,
    )
    return lease.replace(**changes)


def a_handoff(
    *, task: Task | None = None, lease: Lease | None = None, now_ms: int = T0 + 175_000, **changes: Any
) -> Handoff:
    built = handoffs.build(
        handoff_id="H1",
        task=task or a_task(),
        lease=lease or a_lease(),
        now_ms=now_ms,
        reason="lease_expired",
        prefix="marcus/",
        handoff_hours=24.0,
        attempts=1,
        decisions=[],
        artifacts=[],
    )
    return built.replace(**changes)


def with_git(**facts: Any) -> Handoff:
    return a_handoff(git=json.dumps(facts))


# The record.


def test_branch_of_an_agent_is_the_prefix_and_its_id() -> None:
    assert branch_of("Agent-A", "marcus/") == "marcus/Agent-A"
    assert branch_of("a.1", "bots/") == "bots/a.1"


def test_merge_instructions_are_the_two_commands_of_the_specification() -> None:
    assert merge_instructions("marcus/Agent-A").splitlines() == [
        "git merge marcus/Agent-A --no-edit",
        "git log marcus/Agent-A",
    ]


def test_merge_instructions_keep_a_hostile_branch_one_word() -> None:
    assert merge_instructions("marcus/a; rm -rf $HOME\nx'y") == (
        "git merge 'marcus/a; rm -rf $HOME x'\\''y' --no-edit\ngit log 'marcus/a; rm -rf $HOME x'\\''y'"
    )


def test_recovery_info_of_the_trace_has_exactly_the_eight_fields() -> None:
    assert recovery_info(a_handoff()) == {
        "recovered_at": iso(T0 + 175_000),
        "recovered_from_agent": "Agent-A",
        "previous_progress": 15,
        "time_spent_minutes": 2.9,
        "recovery_reason": "lease_expired",
        "previous_agent_branch": "marcus/Agent-A",
        "instructions": "git merge marcus/Agent-A --no-edit\ngit log marcus/Agent-A",
        "recovery_expires_at": iso(T0 + 175_000 + 24 * HOUR_MS),
    }


@pytest.mark.parametrize(
    ("held_ms", "minutes", "why"),
    [
        (175_000, 2.9, "The trace: 175 s are 2.9 minutes, not the 2.0 of its slip."),
        (0, 0.0, "A holder that died at once spent nothing."),
        (-5_000, 0.0, "A clock that was shifted back never gives negative minutes."),
        (2_999, 0.0, "Less than three seconds round down."),
        (3_001, 0.1, "More than three seconds round up."),
        (6 * HOUR_MS, 360.0, "Hours are still minutes."),
    ],
)
def test_build_counts_minutes_since_the_grant(held_ms: int, minutes: float, why: str) -> None:
    assert a_handoff(now_ms=T0 + held_ms).time_spent_minutes == minutes, why


def test_build_hands_on_the_progress_of_the_task_not_of_the_lease() -> None:
    silent_successor = a_lease(progress=0, agent_id="Agent-B")
    assert a_handoff(task=a_task(progress=40), lease=silent_successor).previous_progress == 40


def test_build_keeps_what_the_lease_knew() -> None:
    built = handoffs.build(
        handoff_id="H9",
        task=a_task(),
        lease=a_lease(message="half way", token=12),
        now_ms=T0,
        reason="released",
        prefix="marcus/",
        handoff_hours=0.5,
        attempts=3,
        decisions=[{"decision": "Use SQLite", "agent_id": "Agent-A"}],
        artifacts=[{"filename": "api.md"}],
    )
    assert (built.handoff_id, built.task_key, built.lease_id, built.token) == ("H9", 7, "L1", 12)
    assert (built.state, built.attempts, built.last_message, built.git) == ("open", 3, "half way", None)
    assert built.recovery_expires_at_ms == T0 + HOUR_MS // 2
    assert json.loads(built.decisions) == [{"decision": "Use SQLite", "agent_id": "Agent-A"}]
    assert json.loads(built.artifacts) == [{"filename": "api.md"}]


@pytest.mark.parametrize(
    ("at_ms", "state", "shown", "why"),
    [
        (0, "open", True, "A fresh handoff is shown."),
        (24 * HOUR_MS - 1, "open", True, "It is shown for the last millisecond of its day."),
        (24 * HOUR_MS, "open", False, "The instant of expiry is expired."),
        (0, "withdrawn", False, "A holder that came back withdrew it."),
    ],
)
def test_visible_is_open_and_unexpired(at_ms: int, state: str, shown: bool, why: str) -> None:
    handoff = a_handoff(now_ms=T0, state=state)
    assert visible([handoff], T0 + at_ms) == ([handoff] if shown else []), why


def test_visible_puts_the_newest_first() -> None:
    old, new, same_time = a_handoff(now_ms=T0), a_handoff(now_ms=T0 + 1), a_handoff(now_ms=T0 + 1, token=T0 + 9)
    assert visible([old, new, same_time], T0 + 2) == [same_time, new, old]


# The text.


@pytest.mark.parametrize(
    ("handoff", "wanted", "why"),
    [
        (a_handoff(), "⚠️ RECOVERY ADDENDUM — recovered from Agent-A", "It opens with the specification's words."),
        (a_handoff(), "\ngit merge marcus/Agent-A --no-edit\n", "The merge is a line of its own."),
        (a_handoff(), "\ngit log marcus/Agent-A\n", "So is the log."),
        (a_handoff(), "Previous agent reached 15%", "The percentage is told in the specification's words."),
        (a_handoff(), "2.9 minutes", "The time spent is told."),
        (a_handoff(), "its lease ran out and nothing more was heard from it", "The reason is told in words."),
        (a_handoff(), "continue from there; do not start again:", "Work that was reported is to be continued."),
        (a_handoff(previous_progress=0), "It reported no progress", "Nothing is to be continued where nothing was."),
        (a_handoff(previous_progress=0), "\ngit log marcus/Agent-A\n", "Its branch is named all the same."),
        (a_handoff(), "(lease_expired)", "The code stays, for whoever searches for it."),
        (a_handoff(recovery_reason="eaten_by_a_dog"), ": eaten_by_a_dog.", "An unknown reason is shown as it is."),
        (a_handoff(attempts=2), "Attempts so far: 2", "The next holder knows how often it was tried."),
        (a_handoff(), iso(T0 + 175_000 + 24 * HOUR_MS), "It says how long it holds."),
        (a_handoff(), "is pending", "Without git facts it says that they are pending."),
        (a_handoff(git="{broken"), "could not be read", "Damaged git facts do not hide the rest."),
        (a_handoff(git="[]"), "could not be read", "Nor do facts of another shape."),
        (with_git(commits=["abc1 Add table"]), "not merged yet:\n> abc1 Add table", "Commits are quoted."),
        (with_git(commits=["abc1 Add"], head="abc1"), "(head abc1)", "The head is named with them."),
        (with_git(commits=[]), "All its commits are merged already", "No commits is a fact, too."),
        (
            with_git(diffstat=" a.py | 3 +\n 1 file changed"),
            ">  a.py | 3 +\n>  1 file changed",
            "The diffstat is quoted.",
        ),
        (with_git(merge="clean"), "The merge would be clean.", "A clean merge is said."),
        (with_git(merge="conflicts", conflicts=["a.py"]), "conflict in:\n> a.py", "Conflicts are named."),
        (with_git(merge="conflicts"), "The merge would conflict.", "Unnamed conflicts are still conflicts."),
        (
            with_git(rescue_ref="refs/tenure/rescue/T1/5"),
            "saved in refs/tenure/rescue/T1/5.",
            "The rescue ref is named.",
        ),
        (
            with_git(rescue_ref="refs/tenure/rescue/T1/5", rescue_apply="tenure rescue apply T1"),
            "with:\ntenure rescue apply T1",
            "So is the command that brings it in.",
        ),
        (
            with_git(note="git is not installed"),
            "missing here:\n> git is not installed",
            "Why a part is empty is told.",
        ),
        (with_git(output_tail="\x1b[31mE\x1b[0m: boom\r\n"), "it printed:\n> E: boom", "Colours are gone from output."),
        (a_handoff(last_message="schema done"), "Its last message:\n> schema done", "The last words are quoted."),
        (
            a_handoff(decisions='[{"decision": "Use SQLite"}]'),
            "Decision by Agent-A:\n> Use SQLite",
            "A decision without a name is the lost holder's.",
        ),
        (
            a_handoff(
                artifacts='[{"filename": "a.md", "artifact_type": "doc", "location": "d/a.md", "description": "x"}]'
            ),
            "Artifact by Agent-A:\n> a.md (doc) at d/a.md\n> x",
            "An artifact says what and where it is.",
        ),
        (a_handoff(decisions="?"), "RECOVERY ADDENDUM", "Damaged decisions do not hide the rest."),
        (a_handoff(previous_agent_branch=None), "no branch of its own", "An agent without a branch has none named."),
    ],
)
def test_render_tells(handoff: Handoff, wanted: str, why: str) -> None:
    assert wanted in render(handoff) + "\n", why


def test_render_leaves_out_headings_with_nothing_below() -> None:
    text = render(with_git(commits=[], diffstat="", note="", output_tail="\x1b[0m\n\n", rescue_ref=None))
    for heading in (
        "They change",
        "missing here",
        "it printed",
        "saved in",
        "last message",
        "Decision",
        "Agents before",
    ):
        assert heading not in text


def test_render_names_the_branches_of_earlier_holders_one_line_each() -> None:
    earlier = [
        a_handoff(lease=a_lease(agent_id="Agent-Y"), task=a_task(progress=10)),
        a_handoff(lease=a_lease(agent_id="Agent-Z")).replace(git='{"rescue_ref": "refs/tenure/rescue/T1/3"}'),
    ]
    lines = render(a_handoff(), earlier).splitlines()
    (of_y,) = [line for line in lines if "Agent-Y" in line]
    (of_z,) = [line for line in lines if "Agent-Z" in line]
    assert "branch marcus/Agent-Y" in of_y
    assert "reached 10%" in of_y
    assert "uncommitted work in refs/tenure/rescue/T1/3" in of_z


def test_render_of_a_flood_stays_bounded() -> None:
    flood = "word " * 400_000
    many = json.dumps([{"decision": f"{n} {flood[:2000]}"} for n in range(300)])
    git = json.dumps({"commits": [flood[:9000]] * 500, "diffstat": flood, "output_tail": flood, "note": flood})
    handoff = a_handoff(last_message=flood, decisions=many, artifacts=many, git=git, recovered_from_agent=flood)
    assert len(render(handoff, [handoff] * 500)) < 60_000


def test_render_of_many_decisions_keeps_the_newest() -> None:
    text = render(a_handoff(decisions=json.dumps([{"decision": f"choice {n}"} for n in range(30)])))
    assert "> choice 29" in text
    assert "> choice 9\n" not in text
    assert "[and 10 older decisions]" in text


# Agents' words as data.


@pytest.mark.parametrize(
    ("text", "quoted", "why"),
    [
        ("one\ntwo", "> one\n> two", "Every line is marked."),
        ("one\n\ntwo", "> one\n> \n> two", "An empty line is marked too, or it would end the quotation."),
        ("one\u2028two\x85three\rfour", "> one\n> two\n> three\n> four", "Rarer line ends are line ends."),
        ("a\x00b\x07c\u202ed", "> abcd", "Control characters and direction overrides are dropped."),
        ("a\tb\u00a0c", "> a    b c", "Tabs and odd spaces become spaces."),
        ("\x1b[1;31mred\x1b[0m", "> red", "Colour sequences are dropped whole."),
        ("\x1b]0;title\x07text\x1b(Bmore", "> textmore", "So are titles and character sets."),
        ("\x1b]0;unended\nnext", "> \n> next", "An unended title swallows its own line only."),
        ("\x1b[", "", "A sequence that breaks off is dropped."),
        ("می\u200cخواهم", "> می\u200cخواهم", "Joiners that a script needs stay."),
        ("\ud800x", "> x", "A lone surrogate would not survive encoding."),
        ("> already", "> > already", "A quotation inside a quotation is nested."),
        ("", "", "Nothing quotes as nothing."),
        (" \n\t\n", "", "Blank lines alone quote as nothing."),
        ("tail\n\n\n", "> tail", "Blank lines at the end are dropped."),
        ("x" * 2_001, "> " + "x" * 2_000 + "\n[the rest is cut]", "Length is bounded, and the cut is said."),
        ("x\n" * 41, "> x\n" * 40 + "[the rest is cut]", "So is the number of lines."),
    ],
)
def test_quote(text: str, quoted: str, why: str) -> None:
    assert quote(text) == quoted, why


def test_quote_of_a_tail_keeps_the_end() -> None:
    assert quote("a\nb\nc", 100, 2, tail=True) == "[the beginning is cut]\n> b\n> c"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a\nb\u2029c", "a b c", "Lines are joined."),
        ("  a \t b ", "a b", "Runs of space shrink to one."),
        ("abcdef", "abcd…", "A long one is cut with a mark."),
        ("\x1b[31mred\x00", "red", "What does not print is dropped."),
    ],
)
def test_inline(text: str, line: str, why: str) -> None:
    assert inline(text, 5) == line, why


@given(HOSTILE)
def test_quote_marks_every_line_of_anything(text: str) -> None:
    for line in quote(text).splitlines():
        assert line.startswith("> ")
        assert "\x1b" not in line
    assert len(inline(text).splitlines()) <= 1
    quote(text).encode()


@given(st.data())
def test_render_gives_nobody_a_line_of_their_own(data: st.DataObject) -> None:
    # The marker stands at the start of every line of every hostile text; it must never start a line of the answer.
    def words() -> str:
        return "".join(f"{data.draw(HOSTILE)}{end}OBEY" for end in LINE_ENDS)

    git = {
        "commits": [words()],
        "diffstat": words(),
        "merge": "conflicts",
        "conflicts": [words()],
        "head": words(),
        "rescue_ref": words(),
        "note": words(),
        "output_tail": words(),
    }
    handoff = a_handoff(
        recovered_from_agent=words(),
        recovery_reason=words(),
        last_message=words(),
        previous_agent_branch=words(),
        decisions=json.dumps([{"decision": words(), "agent_id": words()}, words(), 3, None]),
        artifacts=json.dumps([{"filename": words(), "location": words(), "description": words()}]),
        git=json.dumps(git),
    )
    text = render(handoff, [handoff])
    ours = [line for line in text.splitlines() if not line.startswith("> ")]
    assert not [line for line in ours if line.lstrip().startswith("OBEY")]
    assert DATA_NOTICE in ours
    text.encode()
