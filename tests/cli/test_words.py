"""What users type, and the words they are answered in: forgiving forms, names, texts from elsewhere, advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import AGENT, OTHER, Desk, Shell, envelope, git

LONG = "x" * 5_000


@pytest.mark.parametrize(
    "words",
    [
        "task progress F001 50",
        "task renew F001 50%",
        "msg send F001 hello",
        "msg send --task F001 hello",
        f"msg send --to {OTHER} hello --from {AGENT}",
        "task block F001 reason",
        "task add Title --priority HIGH",
        "task add Title --not-before 2026-01-01",
        f"task claim F003 --agent {OTHER} --ttl 1.5h",
        "watch --once --interval 100ms",
        "task list --status ready",
        "task list --status in-progress",
        "config show task_lease",
        "config show cli",
    ],
)
def test_forms_that_agents_try_work(scene: Desk, words: str) -> None:
    scene.ok(*words.split())


def test_bare_words_mean_what_their_options_mean(scene: Desk) -> None:
    scene.ok("task", "progress", "F001", "50", "--agent", AGENT)
    assert scene.data("task", "show", "F001")["progress"] == 50
    scene.ok("msg", "send", "--task", "F001", "hello", "--from", AGENT)
    assert scene.data("msg", "send", "--to", OTHER, "hi", "--from", AGENT)["to"] == OTHER
    assert "hello" in scene.ok("msg", "thread", "F001").out
    assert [task["task_id"] for task in scene.data("task", "list", "--status", "ready")["tasks"]] == ["F003"]
    claimed = scene.ok("task", "claim", "F003", "--agent", OTHER, "--ttl", "1.5h")
    assert claimed.lines[2] == "  Expires in: 1h 30m"


@pytest.mark.parametrize("words", ["touch --agent", "task claim F003 --agent", "agent show", "msg send F001 hi --from"])
def test_empty_name_is_a_usage_error(scene: Desk, words: str) -> None:
    ran = scene.run(*words.split(), "")
    assert (ran.status, ran.out) == (2, "")
    assert "is empty" in ran.err


def test_agent_may_be_called_by_a_name_that_only_it_has(scene: Desk) -> None:
    ada = scene.data("agent", "join", "--id", "A7", "--name", "Ada")["agent_id"]
    assert scene.data("touch", "--agent", "Ada")["agent_id"] == ada
    assert scene.data("task", "claim", "F003", "--agent", "Ada")["agent_id"] == ada
    assert scene.data("task", "renew", "F003", "--agent", "Ada")["agent_id"] == ada
    sent = scene.data("msg", "send", "--to", "Ada", "--from", "Ada", "--text", "hi")
    assert (sent["to"], sent["from"]) == (ada, ada)
    scene.ok("agent", "join", "--id", "A8", "--name", "Ada")
    assert scene.run("touch", "--agent", "Ada").status == 3


def test_list_has_the_holders_name_beside_its_id(scene: Desk) -> None:
    scene.ok("agent", "join", "--id", "A7", "--name", "Ada")
    scene.ok("task", "claim", "F003", "--agent", "A7")
    listed = scene.ok("task", "list").out
    assert "A7 (Ada)" in listed
    assert f"{AGENT} (" not in listed


@pytest.mark.parametrize("words", ["help --json", "help task --json", "help task claim --json", "help --format json"])
def test_help_in_json_with_the_option_behind_it(scene: Desk, words: str) -> None:
    assert "Usage: tenure" in envelope(scene.ok(*words.split()).out)["data"]["text"]


@pytest.mark.parametrize("words", ["frobnicate", "task foo", "xyz F001", "status --frob", "task show --to F001"])
def test_nothing_is_suggested_that_is_not_near(scene: Desk, words: str) -> None:
    assert "did you mean" not in scene.run(*words.split()).err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("task show F01", "Did you mean F001?"),
        ("task show f003", "Did you mean F003?"),
        ("task show F01", "tenure task list"),
        ("task update F001 --assign Olga", "tenure task release F001 --force"),
        ("task claim F004 --agent B", "tenure task reopen F004"),
        ("task claim F005 --agent B", "tenure task unblock F005"),
        ("task list --project nope", "tenure project list"),
        ("task show a/b", "TASK 'a/b'"),
        ("touch --agent a/b", "--agent 'a/b'"),
        ("touch --agent A1234ABCD --expect-silence 30d", "--expect-silence must be"),
        ("task add x --assign 🤖🤖🤖 --after a/b", "--after 'a/b'"),
        ("task list --limit 0", "--limit must be"),
        ("events --from -1", "--from must be"),
        ("task list --status 🤖", "not '🤖'"),
    ],
)
def test_refusal_speaks_the_command_lines_words(scene: Desk, words: str, told: str) -> None:
    ran = scene.run(*words.split())
    assert ran.status != 0
    assert told in ran.err


def test_store_errors_name_the_path(scene: Desk, tmp_path: Path) -> None:
    scene.store = tmp_path / "elsewhere.db"
    assert str(scene.store) in scene.run("status").err


def test_long_text_is_shown_whole_and_in_its_lines(scene: Desk) -> None:
    body = f"First\n\n    indented {'y' * 900}\nlast"
    scene.ok("task", "add", "Title", "--id", "L1", "--body", body)
    assert "\n".join(scene.ok("task", "show", "L1").lines[-4:]) == body
    scene.ok("msg", "send", "--task", "L1", "--from", AGENT, "--text", f"one\n  two {'z' * 900}")
    shown = scene.ok("msg", "thread", "L1").lines
    assert shown[0].endswith(f"{AGENT}: one")
    assert shown[1] == f"        two {'z' * 900}"


def test_very_long_message_is_cut_and_says_how_to_read_the_rest(scene: Desk) -> None:
    scene.ok("msg", "send", "--task", "F003", "--from", AGENT, "--text", LONG)
    cut = scene.ok("task", "show", "F003").lines
    assert cut[-1].strip() == "[1000 more characters: tenure msg thread F003 --full]"
    assert LONG in scene.ok("msg", "thread", "F003", "--full").out
    scene.ok("msg", "send", "--to", OTHER, "--from", AGENT, "--text", LONG)
    assert LONG in scene.ok("msg", "inbox", "--agent", OTHER).out


def test_texts_come_from_standard_input_and_files(shell: Shell) -> None:
    (shell.folder / "body.md").write_text("From a\nfile\n")
    shell.ok("agent", "join", "--id", AGENT)
    assert shell.run("task", "add", "One", "--id", "F001", "--body", "-", given="Two\nlines\n").status == 0
    shell.ok("task", "add", "Two", "--id", "F002", "--body-file", "body.md")
    bodies = [shell.data("task", "show", task)["body"] for task in ("F001", "F002")]
    assert bodies == ["Two\nlines", "From a\nfile"]
    assert shell.run("msg", "send", "F001", "--text", "-", given="said\n").status == 0
    assert shell.run("task", "block", "F001", "--force", "--message", "-", given="no key\n").status == 0
    assert shell.data("msg", "thread", "F001")["messages"][0]["text"] == "said"
    assert shell.data("task", "show", "F001")["blocked_reason"] == "no key"
    assert shell.run("task", "add", "x", "--body-file", "nowhere").status == 2


def test_branch_of_the_worktree_is_recorded(shell: Shell, tmp_path: Path) -> None:
    git(shell.folder, "checkout", "--quiet", "-b", "feature/login")
    assert shell.data("agent", "join", "--id", AGENT)["branch"] == "feature/login"
    git(shell.folder, "commit", "--quiet", "--allow-empty", "--message", "First")
    linked = tmp_path / "linked"
    git(shell.folder, "worktree", "add", "--quiet", "-b", "other", str(linked))
    shell.ok("task", "add", "Title", "--id", "F001")
    Shell(linked).ok("task", "claim", "F001", "--agent", OTHER)
    assert shell.data("agent", "show", OTHER)["branch"] == "other"
    git(linked, "checkout", "--quiet", "--detach")
    assert shell.data("agent", "show", OTHER)["branch"] == "other"


def test_branch_is_the_agents_own_outside_git(scene: Desk) -> None:
    assert scene.data("agent", "join", "--id", "A9")["branch"].endswith("A9")


def test_renew_keeps_the_leases_own_ttl_unless_told_otherwise(scene: Desk) -> None:
    scene.ok("task", "claim", "F003", "--agent", OTHER, "--ttl", "5m")
    renew = ["task", "renew", "F003", "--agent", OTHER]
    for words, left in (([], "5m"), (["--ttl", "1h"], "1h"), ([], "1h"), (["--progress", "40", "--ttl", "2h"], "2h")):
        assert scene.ok(*renew, *words).lines[1] == f"  Expires in: {left}"
    assert "keeps its own TTL" in scene.ok("task", "renew", "--help").out
    scene.ok(*renew, "--message", "still at it")
    assert "still at it" in scene.ok("msg", "thread", "F003").out


def test_ready_of_an_empty_store_says_how_to_begin(desk: Desk) -> None:
    assert desk.ok("ready").lines == ['There are no tasks yet. Add one: tenure task add "Title"']
    desk.ok("task", "add", "Title", "--id", "F001", "--not-before", "1h")
    assert desk.ok("ready").lines[0] == "Nothing is ready."
