"""`tenure run` on a terminal: keys, sizes, modes and job control go through unchanged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import TENURE, Shell
from tests.cli.terminal import Terminal
from tests.cli.test_run import handoff, until


@pytest.fixture
def ready(shell: Shell) -> Shell:
    """A task, and programs that find the command."""
    shell = shell.having(PATH=f"{Path(TENURE).parent}:{os.environ['PATH']}", PS1="$ ", ENV="/dev/null")
    shell.ok("task", "add", "Task", "--id", "F001")
    return shell


def on_terminal(shell: Shell, *words: str) -> Terminal:
    return Terminal([TENURE, "run", "--agent", "ada", "--task", "F001", *words], shell.folder, shell.env)


def test_run_the_program_is_on_a_terminal_with_our_size(ready: Shell) -> None:
    code = (
        "import os, signal, sys\n"
        # Not print: the signal may come while the line below is being printed.
        "signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'now %d %d\\n' % os.get_terminal_size()))\n"
        "print('tty', os.isatty(0), os.isatty(1), os.isatty(2), *os.get_terminal_size(), flush=True)\n"
        "print('typed', input())\n"
    )
    with on_terminal(ready, "--", sys.executable, "-c", code) as terminal:
        terminal.wait_for("tty True True True 80 24")
        terminal.resize(132, 43)
        terminal.wait_for("now 132 43")
        terminal.type("hello\r")
        terminal.wait_for("typed hello")
        assert terminal.ended() == 0
        # The user's terminal is as it was.
        assert terminal.modes() == terminal.modes_before
    assert ready.data("task", "show", "F001")["status"] == "done"


def test_run_raw_keys_reach_the_program(ready: Shell) -> None:
    """An editor's keys are not eaten: Ctrl-C, Ctrl-Z, Ctrl-\\ and an arrow arrive as bytes."""
    code = (
        "import os, tty; tty.setraw(0); print('go!', end='', flush=True)\n"
        "seen = b''\n"
        "while len(seen) < 6: seen += os.read(0, 64)\n"
        "print(repr(seen), end='', flush=True)\n"
    )
    with on_terminal(ready, "--", sys.executable, "-c", code) as terminal:
        terminal.wait_for("go!")
        terminal.type("\x03\x1a\x1c\x1b[A")
        terminal.wait_for(r"b'\x03\x1a\x1c\x1b[A'")
        assert terminal.ended() == 0


def test_run_ctrl_c_is_the_programs(ready: Shell) -> None:
    with on_terminal(
        ready, "--", "sh", "-c", "trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.1; done"
    ) as t:
        t.wait_for("up")
        t.type("\x03")
        t.wait_for("caught")
        assert t.ended() == 5
    assert handoff(ready)["exited"] == "sh exited with 5"


def test_run_ctrl_z_stops_it_and_fg_continues_it(ready: Shell) -> None:
    """Job control of a real shell: the prompt comes back, and the program goes on where it was."""
    with Terminal(["bash", "--norc", "-i"], ready.folder, ready.env) as terminal:
        terminal.type("tenure run --agent ada --task F001 -- sh -c 'echo up; read x; echo got $x'\r")
        terminal.wait_for("up\r\n")
        terminal.type("\x1a")
        terminal.wait_for("Stopped")
        terminal.type("echo at the pro''mpt\r")
        terminal.wait_for("at the prompt")
        terminal.type("fg\r")
        terminal.type("again\r")
        terminal.wait_for("got again")
        terminal.wait_for("F001 completed")
        terminal.type("exit\r")
        terminal.ended()


def test_run_a_closed_terminal_is_told_before_it_dies(ready: Shell) -> None:
    terminal = on_terminal(ready, "--", "sh", "-c", "echo working on it; exec sleep 60")
    with terminal:
        terminal.wait_for("working on it")
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.ended() == 128 + signal.SIGHUP
    assert ready.data("next", "--agent", "bob")["task"]["task_id"] == "F001"
    left = handoff(ready)
    assert left["recovery_reason"] == "departed"
    assert left["output_tail"] == "working on it"


# -- tmux -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    """A tmux server of our own."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: the test of a killed pane did NOT run")
    command = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    yield command
    subprocess.run([*command, "kill-server"], capture_output=True)


def test_run_in_a_killed_tmux_pane_is_recovered_with_its_output(ready: Shell, tmux: list[str]) -> None:
    words = f"{TENURE} run --agent ada --task F001 -- sh -c 'echo half way there; exec sleep 60'"
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", "80", "-y", "24", "-c", str(ready.folder), words], env=ready.env, check=True
    )

    def shown() -> bool:
        screen = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True)
        return "half way there" in screen.stdout

    until(shown, "the program is running in the pane")
    began = time.monotonic()
    subprocess.run([*tmux, "kill-pane"], check=True)
    until(lambda: ready.run("next", "--agent", "bob").status == 0, "the task is on offer again")
    # Silence alone would take 80 s.
    assert time.monotonic() - began < 60
    left = handoff(ready)
    assert left["recovered_from_agent"] == "ada"
    assert "half way there" in left["output_tail"]
    assert "SIGHUP" in left["exited"]
