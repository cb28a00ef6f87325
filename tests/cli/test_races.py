"""Many real commands at once: one winner, no lost write, nobody starved."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE_S, TENURE, Ran, Shell, environment

RACERS = 16

# Writes without pause, as a server does: the lock is held for a while, then left free for a while.
WRITER = """
import sqlite3, sys, time
path, held_s, free_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
connection = sqlite3.connect(path, isolation_level=None, timeout=60)
commits = 0
print("writing", flush=True)
import select
while not select.select([sys.stdin], [], [], 0)[0]:
    connection.execute("BEGIN IMMEDIATE")
    begun = time.perf_counter()
    connection.execute("UPDATE agents SET role = ? WHERE agent_id = 'server'", (str(commits),))
    while time.perf_counter() - begun < held_s:
        pass
    connection.execute("COMMIT")
    commits += 1
    if free_s:
        time.sleep(free_s)
print(commits, flush=True)
"""


def together(shell: Shell, *commands: list[str]) -> list[Ran]:
    """Run commands that start at the same moment: their shells wait for the end of one pipe, and all see it at once."""
    gate, opener = os.pipe()
    running = []
    for command in commands:
        line = f"read _; exec {shlex.join([TENURE, *command])}"
        running.append(
            subprocess.Popen(
                ["sh", "-c", line],
                cwd=shell.folder,
                env=shell.env,
                stdin=gate,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    os.close(gate)
    os.close(opener)
    ran = []
    for process in running:
        out, err = process.communicate(timeout=PATIENCE_S)
        ran.append(Ran(process.returncode, out, err))
    return ran


@contextmanager
def writing(path: Path, held_s: float, free_s: float) -> Iterator[None]:
    """Another process that commits all the time, and must have done so."""
    words = [sys.executable, "-c", WRITER, str(path), str(held_s), str(free_s)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment(), stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "writing\n"
        yield
        writer.stdin.close()
        assert int(writer.stdout.readline()) > 10
        assert writer.wait(PATIENCE_S) == 0


def store_of(shell: Shell) -> Path:
    return shell.folder / ".git" / "tenure" / "tenure.db"


def test_sixteen_claims_of_one_task_have_one_winner(shell: Shell) -> None:
    for number in range(4):
        task = f"F00{number}"
        shell.ok("task", "add", "Contended", "--id", task)
        ran = together(shell, *(["task", "claim", task, "--agent", f"A{rank}"] for rank in range(RACERS)))
        assert Counter(one.status for one in ran) == {0: 1, 4: RACERS - 1}, ran
        winner = next(rank for rank, one in enumerate(ran) if one.status == 0)
        assert shell.data("task", "show", task)["leases"][0]["agent_id"] == f"A{winner}"
        assert all("Already claimed" in one.err for one in ran if one.status == 4)


def test_sixteen_asking_for_the_next_task_get_sixteen(shell: Shell) -> None:
    for number in range(RACERS):
        shell.ok("task", "add", "Work", "--id", f"N{number}")
    ran = together(shell, *(["next", "--agent", f"A{rank}"] for rank in range(RACERS)))
    assert [one.status for one in ran] == [0] * RACERS
    assert len({one.lines[0] for one in ran}) == RACERS


def test_concurrent_done_on_different_tasks_all_persist(shell: Shell) -> None:
    names = [f"F{number}" for number in range(8)]
    shell.ok("task", "add", "Last", "--id", "LAST", "--after", "F0", "--allow-missing")
    for name in names:
        shell.ok("task", "add", "Work", "--id", name)
        shell.ok("task", "depend", "LAST", "--after", name)
        shell.ok("task", "claim", name, "--agent", f"A{name}")
    ran = together(shell, *(["task", "done", name] for name in names))
    assert [one.status for one in ran] == [0] * len(names), ran
    numbers = shell.data("status")
    assert (numbers["tasks"]["done"], numbers["active"]) == (len(names), 0)
    # Each unlocked its share of the one that waited for all of them; the last one saw it ready.
    assert shell.data("task", "show", "LAST")["unmet"] == 0
    assert sum("Now ready: LAST" in one.out for one in ran) == 1
    assert shell.run("receipts", "verify").status == 0


@pytest.mark.parametrize(
    ("held_s", "free_s"), [(0.005, 0.002), (0.0, 0.0)], ids=["5 ms held, 2 ms free", "back to back"]
)
def test_writer_without_pause_starves_no_command(shell: Shell, held_s: float, free_s: float) -> None:
    shell.ok("agent", "join", "--id", "server")
    for number in range(RACERS):
        shell.ok("task", "add", "Work", "--id", f"N{number}")
    with writing(store_of(shell), held_s, free_s):
        claimed = together(shell, *(["task", "claim", f"N{n}", "--agent", f"A{n}"] for n in range(RACERS)))
        # A touch waits for three seconds at most. A machine may stand still for longer, but not each time.
        touched: list[Ran] = []
        for _ in range(3):
            touched = together(shell, *(["touch", "--agent", f"A{n}"] for n in range(RACERS)))
            if all(ran.status == 0 for ran in touched):
                break
        done = together(shell, *(["task", "done", f"N{n}"] for n in range(RACERS)))
    for ran in (*claimed, *touched, *done):
        assert ran.status == 0, ran
        assert "locked" not in ran.err
    assert shell.data("status")["tasks"]["done"] == RACERS
