"""A newcomer: from an empty repository to a finished task, typing nothing but what the tool has printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.cli.shell import Ran, Shell


def printed(ran: Ran, beginning: str) -> list[str]:
    """The one command that an answer prints and that begins like this."""
    found = re.findall(rf"tenure {beginning}[^\n]*", ran.out + ran.err)
    assert len(found) == 1, ran
    # A reminder goes on in prose after the command.
    return shlex.split(re.sub(r" (before expiry|when complete)$", "", found[0]))[1:]


def test_newcomer_gets_from_nothing_to_a_finished_task(repository: Path) -> None:
    shell = Shell(repository)
    lost = shell.run("status")
    assert lost.status == 9
    made = shell.ok(*printed(lost, "init"))
    shell.ok(*printed(made, "task add"))
    shell.ok(*printed(made, "agent join"))
    claimed = shell.ok(*printed(made, "next"))
    assert "My first task" in claimed.out
    assert shell.ok(*printed(claimed, "task renew")).lines[1] == "  Expires in: 15m"
    # Handing it on: the claim's command names the task, the release suggests the note.
    task_id = claimed.lines[0].split()[-1]
    released = shell.ok("task", "release", task_id)
    note = printed(released, "msg send")
    shell.ok(*[word if word != "..." else "the parser is half done" for word in note])
    again = shell.ok(*printed(made, "next"))
    assert again.lines[0] == f"Claimed task {task_id}"
    assert "the parser is half done" in shell.ok("task", "show", task_id).out
    assert shell.ok(*printed(again, "task done")).lines[0] == "Task marked done"
    assert shell.data("status")["tasks"]["done"] == 1
    shell.ok("doctor")


def test_newcomer_hands_a_task_to_a_second_agent(repository: Path) -> None:
    shell = Shell(repository)
    shell.ok("init")
    shell.ok("task", "add", "Write the parser", "--id", "F001")
    first = shell.ok("agent", "join", "--name", "first")
    shell.ok("task", "claim", "F001")
    shell.ok("task", "renew", "F001", "--progress", "40", "--message", "lexer done")
    shell.ok("task", "release", "F001", "--message", "my context window ends")
    second = shell.ok("agent", "join", "--name", "second")
    # Two agents share the folder now, and the second is told how to say who it is.
    told = re.search(r"export (TENURE_AGENT)=(\S+)", second.out)
    assert told
    assert told.group(2) not in first.out
    claimed = shell.having(**{told.group(1): told.group(2)}).ok("next")
    assert "Previous agent reached 40%" in claimed.out
    assert "> my context window ends" in claimed.out
    assert shell.ok("task", "done", "F001").lines == ["Task marked done"]


def test_status_of_an_empty_store_says_how_to_begin(repository: Path) -> None:
    shell = Shell(repository)
    shell.ok("init")
    shell.ok(*printed(shell.ok("status"), "task add"))
