"""How long a killed agent's task is in nobody's hands: `make bench-kill`.

For each kill: a victim runs under `tenure run` in a worktree of its own and has changed a file without committing it; a
waiting agent asks for the next task. The victim is killed with SIGKILL, and the time is taken until the waiting agent's
own program has started with the task. The uncommitted file must be in the rescue ref by then.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tenure.engine import agents, links, tasks
from tenure.links.identity import here
from tenure.store.sqlite import SqliteStore
from tests.cli.shell import GIT_NAME, TENURE, Shell, git
from tests.support import ok

PATIENCE_S = 180.0
VICTIM = 'echo "precious $TENURE_TASK" > work.txt && echo up && exec sleep 600'


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def fleet_in(folder: Path) -> tuple[Shell, SqliteStore]:
    """A repository with a store."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "base")
    shell = Shell(folder, GIT_NAME)
    shell.ok("init")
    return shell, SqliteStore(str(folder / ".git" / "tenure" / "tenure.db"), create=False)


@contextlib.contextmanager
def serving(shell: Shell) -> Iterator[None]:
    """A server on the store."""
    process = shell.start("up", "--port", "0")
    try:
        assert "listens" in line_of(process)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def kill(shell: Shell, store: SqliteStore, number: int, *, wrapper_too: bool) -> float:
    """Kill one victim; says how many seconds its task was in nobody's hands."""
    task, victim_id, heir_id = f"K{number}", f"victim{number}", f"heir{number}"
    ok(tasks.add_task(store, task_id=task, title=f"Task {number}"))
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = ("run", "--agent", victim_id, "--task", task, "--worktree", "--", "sh", "-c", VICTIM)
    victim = shell.start(*words, start_new_session=True, **quiet)
    assert line_of(victim) == "up"
    watched = ok(links.watched_links(store, boot_id=here()[0], pid_ns=here()[1]))
    pid = next(link.pid for link in watched if link.agent_id == victim_id)
    heir = shell.start("run", "--agent", heir_id, "--next", "--wait", "5m", "--", "echo", "mine", **quiet)
    give_up_at = time.monotonic() + PATIENCE_S
    while not isinstance(agents.show_agent(store, agent_id=heir_id), agents.AgentView):
        assert time.monotonic() < give_up_at, "the waiting agent never joined"
        time.sleep(0.005)
    began = time.monotonic()
    if wrapper_too:
        os.kill(victim.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    assert line_of(heir) == "mine"
    took = time.monotonic() - began
    for process in (victim, heir):
        process.communicate(timeout=PATIENCE_S)
    saved = subprocess.run(
        ["git", "for-each-ref", "--format=%(refname)", f"refs/tenure/rescue/{task}"],
        cwd=shell.folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert saved, f"nothing was rescued of {task}"
    shown = subprocess.run(["git", "show", f"{saved[0]}:work.txt"], cwd=shell.folder, capture_output=True, text=True)
    assert shown.stdout == f"precious {task}\n", shown
    return took


def measure(folder: Path, kills: int, *, wrapper_too: bool = False, server: bool = False) -> list[float]:
    """The times of so many kills, sorted."""
    shell, store = fleet_in(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(store.close)
        if server:
            stack.enter_context(serving(shell))
        return sorted(kill(shell, store, number, wrapper_too=wrapper_too) for number in range(kills))


def at(share: float, times: list[float]) -> float:
    """The time that this share of them did not exceed."""
    return times[min(len(times) - 1, round(share * (len(times) - 1)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    kills = parser.parse_args().kills
    assert Path(TENURE).exists()
    cases: tuple[tuple[str, dict[str, bool], float], ...] = (
        ("agent killed", {}, 1.5),
        ("agent and wrapper killed, with a server", {"wrapper_too": True, "server": True}, 2.5),
        ("agent and wrapper killed, nobody but the waiting agent", {"wrapper_too": True}, 2.5),
    )
    print(f"From kill -9 to the task in the hands of a waiting agent, its program running; {kills} kills each.")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, how, limit_s) in enumerate(cases):
            times = measure(Path(folder) / str(number), kills, **how)
            numbers = f"p50 {at(0.5, times):.2f} s, p95 {at(0.95, times):.2f} s, most {times[-1]:.2f} s"
            print(f"{name}: {numbers} (p95 must be at most {limit_s} s)", flush=True)
            assert at(0.95, times) <= limit_s


if __name__ == "__main__":
    main()
