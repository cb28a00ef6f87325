"""What is printed: pipes that close early, colours, control sequences, limits of lists."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
from contextlib import closing

import pytest

from tests.cli.shell import AGENT, OTHER, PATIENCE_S, TENURE, Desk, Shell, envelope, environment


def fill(shell: Shell, count: int) -> None:
    lines = "".join(json.dumps({"task_id": f"N{n}", "title": "x" * 200}) + "\n" for n in range(count))
    assert shell.run("import", "-", given=lines).status == 0


@pytest.mark.parametrize(
    "words", [["events", "--limit", "2000"], ["export"], ["task", "list", "--limit", "2000"], ["events", "--json"]]
)
def test_pipe_that_closes_early_prints_no_traceback(shell: Shell, words: list[str]) -> None:
    fill(shell, 1_000)
    left = shell.start(*words)
    head = subprocess.Popen(["head", "-n", "1"], stdin=left.stdout, stdout=subprocess.PIPE, text=True)
    assert left.stdout is not None
    left.stdout.close()
    shown, _ = head.communicate(timeout=PATIENCE_S)
    assert left.stderr is not None
    with left.stderr as errors:
        assert errors.read() == ""
    assert left.wait(PATIENCE_S) == 0
    assert shown.count("\n") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_command_with_its_output_closed_does_its_work(shell: Shell, closed: str) -> None:
    line = f"exec {TENURE} task add Title --id F001 {closed}"
    ran = subprocess.run(["sh", "-c", line], cwd=shell.folder, env=shell.env, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert shell.data("task", "show", "F001")["title"] == "Title"


@pytest.mark.parametrize("words", ["status", "status --json", "export", "task list --limit 2000", "prime"])
def test_output_that_cannot_be_written_is_told_in_one_line(shell: Shell, words: str) -> None:
    fill(shell, 500)
    with open("/dev/full", "w") as full:
        process = shell.start(*words.split(), stdout=full)
        _, told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, told) == (1, "Error: cannot write output: No space left on device\n")


def test_events_and_receipts_show_the_newest_page_in_order_and_go_on_from_a_cursor(scene: Desk) -> None:
    every = scene.data("events", "--from", "0", "--limit", "1000")["events"]
    assert scene.data("events", "--limit", "3")["events"] == every[-3:]
    assert (
        scene.data("log", "--limit", "2", "--task", "F001")["events"]
        == [one for one in every if one["task_id"] == "F001"][-2:]
    )
    assert scene.data("events", "--from", str(every[0]["seq"]), "--limit", "2")["events"] == every[1:3]
    ledger = scene.data("receipts", "list", "--from", "0")["receipts"]
    assert scene.data("receipts", "list", "--limit", "1")["receipts"] == ledger[-1:]


def test_events_follow_prints_new_ones_until_it_is_stopped(shell: Shell) -> None:
    shell.ok("task", "add", "One", "--id", "F001")
    follower = shell.start("events", "--follow")
    assert follower.stdout is not None
    while "F001" not in follower.stdout.readline():
        pass
    shell.ok("task", "add", "Two", "--id", "F002")
    assert "F002  added" in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, out, err) == (0, "", "")


def test_what_a_terminal_cannot_show_is_printed_as_its_number(shell: Shell) -> None:
    shell.ok("task", "add", "Tâche ✓", "--id", "F001")
    plain = shell.having(PYTHONIOENCODING="ascii")
    assert plain.ok("task", "show", "F001").lines[0] == r"F001 - T\xe2che \u2713"


def on_a_terminal(shell: Shell, *words: str, **env: str) -> str:
    """What a command prints when its output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [TENURE, *words], cwd=shell.folder, env=environment(TERM="xterm", **env), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # How Linux tells that the other end is closed.
    os.close(ours)
    assert process.wait(PATIENCE_S) is not None
    return shown.decode()


def test_colours_are_on_a_terminal_only_and_never_against_no_color(shell: Shell) -> None:
    shell.ok("task", "add", "Title", "--id", "F001")
    for words in (["status"], ["task", "show", "F001"], ["task", "show", "F999"]):
        assert "\x1b[" in on_a_terminal(shell, *words)
        assert "\x1b[" not in on_a_terminal(shell, *words, NO_COLOR="1")
        ran = shell.run(*words)
        assert "\x1b[" not in ran.out + ran.err


def test_colours_leave_columns_aligned(shell: Shell) -> None:
    for status in ("F001", "F0002"):
        shell.ok("task", "add", "Title", "--id", status)
    shell.ok("task", "claim", "F001", "--agent", AGENT)
    shown = re.sub(r"\x1b\[\d+m", "", on_a_terminal(shell, "task", "list")).split()
    assert shown == shell.ok("task", "list").out.split()


HOSTILE = "\x1b[31mred\x1b]0;title\x07\x1b[2J\u202egnp\x9b1m\r\n\tend"


def test_agents_text_is_stripped_of_control_sequences(scene: Desk) -> None:
    for task in ("H1", "H2"):
        scene.ok("task", "add", "Title", "--id", task, "--body", "Body")
        scene.ok("msg", "send", "--task", task, "--from", AGENT, "--text", "Hello")
    scene.ok("task", "block", "H1", "--message", "Reason", "--force")
    # The verbs refuse such text; a file that something else has written may hold it nevertheless.
    with closing(sqlite3.connect(scene.store)) as connection:
        for change in ("tasks SET title = ?1, body = ?1", "messages SET text = ?1", "agents SET name = ?1, role = ?1"):
            connection.execute(f"UPDATE {change}", (HOSTILE,))
        connection.execute("UPDATE tasks SET blocked_reason = ? WHERE status = 'blocked'", (HOSTILE,))
        connection.execute("UPDATE events SET data = ? WHERE kind = 'message'", (json.dumps({"text": HOSTILE}),))
        connection.commit()
    shows = "task show H1,task list,task graph,msg thread H1,why H1,events,agent list,agent show A1234ABCD,ready,doctor"
    for words in (*shows.split(","), f"next --agent {OTHER}", f"task claim H1 --agent {OTHER}"):
        ran = scene.run(*words.split())
        shown = ran.out + ran.err
        assert "red" in shown or words in ("task graph", "doctor"), words
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown), words


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("task list", 50),
        ("task list --search Task --status todo", 50),
        ("ready", 20),
        ("events", 50),
        ("events --task N1 --limit 1", 1),
        ("agent list --limit 1", 1),
        ("receipts list --limit 1", 1),
        (f"msg inbox --agent {OTHER} --limit 1", 1),
        ("msg thread N1 --limit 1", 1),
    ],
)
def test_lists_are_limited_and_say_how_to_get_more(scene: Desk, words: str, shown: int) -> None:
    source = scene.folder / "many.jsonl"
    source.write_text("".join(json.dumps({"task_id": f"N{n}", "title": "A Task"}) + "\n" for n in range(120)))
    scene.ok("import", str(source))
    for text in ("first", "second", "third"):
        scene.ok("msg", "send", "--task", "N1", "--to", OTHER, "--from", AGENT, "--text", text)
    document = envelope(scene.ok(*words.split(), "--json").out)
    (found,) = document["data"].values()
    assert len(found) == shown
    if not words.startswith("ready"):
        assert document["next"]
    plain = scene.ok(*words.split()).lines[-1]
    label, _, command = plain.partition(": tenure ")
    assert label in ("More", "Earlier")
    more = json.loads(scene.ok(*command.split(), "--json").out)["data"]
    (found_more,) = more.values()
    assert found_more
    assert len(found_more) > shown or found_more != found
