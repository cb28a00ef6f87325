"""The scripted agents of the demo: what a coding agent would do, in a few lines each.

Each is a real process in a worktree of its own, started by `tenure run`. It knows its task from its environment, writes
files, commits them and reports with the same commands that any agent has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

TENURE = (sys.executable, "-c", "from tenure.surfaces.cli.main import program; program()")
# How long a step of work seems to take, so that a viewer can follow.
STEP_S = 0.6
PATIENCE_S = 120.0


def tenure(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as this agent."""
    return subprocess.run([*TENURE, *words], capture_output=True, text=True, timeout=PATIENCE_S)


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True, timeout=PATIENCE_S)


def write(name: str, text: str) -> None:
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {name}", flush=True)


def report(percent: int, message: str) -> None:
    tenure("task", "renew", os.environ["TENURE_TASK"], str(percent), "--message", message)


def commit(message: str) -> None:
    git("add", "-A")
    git("commit", "--quiet", "-m", message)


def diligent() -> None:
    """Does its task from beginning to end."""
    time.sleep(STEP_S)
    write("parse.py", "def parse(line):\n    return line.split()\n")
    commit("Parse a line of the log")
    report(60, "The parser works.")
    time.sleep(STEP_S)
    write("test_parse.py", "from parse import parse\n\nassert parse('a b') == ['a', 'b']\n")
    commit("Test the parser")
    report(100, "Parser and test are committed.")


def doomed() -> None:
    """Commits half of its work, has the other half uncommitted, and does not live to commit it."""
    time.sleep(STEP_S)
    write("report.py", "def heading():\n    return 'Report'\n")
    commit("Begin the report")
    report(40, "The heading is done; the totals are next.")
    write("totals.py", "def totals(rows):\n    return sum(rows)\n")
    # A helper process of its own that does not die with it: it will speak for a task that it no longer has.
    subprocess.Popen(
        [sys.executable, "-m", "tenure.demo_agent", "zombie"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    print("thinking about totals.py ...", flush=True)
    time.sleep(600)


def zombie() -> None:
    """What is left of the doomed one, and does not know that it is dead: reports as if nothing had happened."""
    answer = os.environ["TENURE_DEMO_ZOMBIE"]
    with open(answer + ".up", "w", encoding="utf-8"):
        pass
    give_up_at = time.monotonic() + PATIENCE_S
    while not os.path.exists(answer + ".go") and time.monotonic() < give_up_at:
        time.sleep(0.05)
    told = tenure("task", "renew", os.environ["TENURE_TASK"], "90", "--message", "Nearly finished!")
    with open(answer, "w", encoding="utf-8") as file:
        file.write(f"{told.returncode}\n{told.stderr or told.stdout}")


def heir() -> None:
    """Takes the dead agent's task over: merges what was committed, brings in what was not, and finishes."""
    task, before = os.environ["TENURE_TASK"], os.environ["TENURE_DEMO_DOOMED"]
    time.sleep(STEP_S)
    git("merge", f"marcus/{before}", "--no-edit")
    print(f"merged marcus/{before}", flush=True)
    applied = tenure("rescue", "apply", task)
    print(applied.stdout.strip() or applied.stderr.strip(), flush=True)
    report(70, f"Merged marcus/{before} and applied its rescued file.")
    time.sleep(STEP_S)
    with open("totals.py", encoding="utf-8") as file:
        assert "def totals" in file.read()
    write("main.py", "from report import heading\nfrom totals import totals\n\nprint(heading(), totals([1, 2]))\n")
    commit("Finish the report on what was rescued")
    report(100, "The report is finished.")


if __name__ == "__main__":
    {"diligent": diligent, "doomed": doomed, "zombie": zombie, "heir": heir}[sys.argv[1]]()
