"""The demo: three agents at work, one of them killed in the middle of it. Nothing is played.

In a temporary repository three scripted agents (demo_agent.py) run under `tenure run`, each as a real process in a
worktree of its own, with real commits. Bob is killed with SIGKILL while a file of his is uncommitted. What follows is
what Tenure does by itself: the death is seen, the task is on offer again, the file is rescued, the waiting agent gets
the task with a handoff, merges, applies and completes. What is left of Bob tries to report and is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from tenure.app import open_store
from tenure.core.errors import Refused
from tenure.core.story import sentence
from tenure.demo_agent import TENURE
from tenure.engine import links, observe, projects, tasks
from tenure.links.identity import here

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rich.console import Console

    from tenure.core.model import Link
    from tenure.store.store import Store

PARSE, REPORT = "PARSE", "REPORT"
PATIENCE_S = 120.0
COLOURS = {
    "died": "bold red",
    "recovered": "bold yellow",
    "rescued": "bold cyan",
    "completed": "bold green",
    "granted": "blue",
    "healed": "magenta",
}
# What happens to the board and to links is left out: the demo tells of the work.
UNTOLD = ("task_added", "message", "project_created", "unlinked", "departed", "registered", "linked", "accepted")


class Failed(Exception):
    """The demo did not go as it should. It says what did not happen."""


class Demo:
    """The director: sets the stage, kills Bob, and tells what it sees in the store."""

    def __init__(self, console: Console, folder: str, store_path: str | None) -> None:
        self._console = console
        self._repository = os.path.join(folder, "project")
        self._answer = os.path.join(folder, "zombie")
        self._own = store_path is None
        self._store_path = store_path or os.path.join(self._repository, ".git", "tenure", "tenure.db")
        mark = "" if self._own else f"-{os.getpid()}"
        self.ada, self.bob, self.cat = (f"{name}{mark}" for name in ("ada", "bob", "cat"))
        self._project = "demo" if self._own else f"demo{mark}"
        self._began = time.monotonic()
        self._running: list[subprocess.Popen[str]] = []
        self._seen_at: dict[tuple[str, str | None], float] = {}
        self._after = 0

    def run(self) -> dict[str, Any]:
        """The whole demo; says how long each step took."""
        self._set_stage()
        self._say("A repository with two tasks, and three agents, each in a worktree of its own:", "bold")
        for agent, role, task in ((self.ada, "diligent", PARSE), (self.bob, "doomed", REPORT)):
            self._start("run", "--agent", agent, "--worktree", "--task", task, "--", *_agent(role))
        self._until(lambda: self._saw("granted", self.ada) and self._saw("granted", self.bob), "both are at work")
        self._start("run", "--agent", self.cat, "--worktree", "--next", "--wait", "25s", "--", *_agent("heir"))
        self._say(f"{self.cat} finds nothing ready, and waits.")
        self._until(self._bob_is_dirty, "bob has uncommitted work")
        pid = self._pid_of(self.bob)
        self._say(
            f"{self.bob} has committed half of his work; totals.py is not committed. Now: kill -9 {pid}", "bold red"
        )
        killed_at = time.monotonic()
        os.killpg(pid, signal.SIGKILL)
        self._until(lambda: self._saw("granted", self.cat), "cat has the task")
        self._show_handoff()
        self._zombie()
        self._until(
            lambda: self._saw("completed", self.cat) and self._saw("completed", self.ada), "both tasks are done"
        )
        self._wait_for_all()
        timings = {
            "noticed_s": self._since(killed_at, "died", self.bob),
            "in_other_hands_s": self._since(killed_at, "granted", self.cat),
            "rescued_s": self._since(killed_at, "rescued", self.bob),
            "completed_s": self._since(killed_at, "completed", self.cat),
            "total_s": round(time.monotonic() - self._began, 2),
        }
        self._conclude(timings)
        return timings

    def close(self) -> None:
        """End whatever still runs."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self._store.close()

    # -- the stage ----------------------------------------------------------------------------------------------------

    def _set_stage(self) -> None:
        os.mkdir(self._repository)
        self._git("init", "--quiet", "--initial-branch", "main")
        with open(os.path.join(self._repository, "README.md"), "w", encoding="utf-8") as file:
            file.write("# Log report\n")
        self._git("add", "-A")
        self._git("commit", "--quiet", "-m", "Begin")
        if self._own:
            subprocess.run(
                [*TENURE, "init"], cwd=self._repository, env=self._environ(), check=True, capture_output=True
            )
        self._store: Store = _ok(open_store(self._store_path, environ={}, create=False))
        self._after = _ok(observe.newest_event(self._store))
        _ok(projects.create_project(self._store, project_id=self._project))
        _ok(tasks.add_task(self._store, task_id=PARSE, title="Parse the log", project_id=self._project))
        _ok(tasks.add_task(self._store, task_id=REPORT, title="Write the report", project_id=self._project))

    def _environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "GIT_"))}
        names = {f"GIT_{who}_{what}": "demo@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        return {
            **kept,
            **names,
            "TENURE_STORE": self._store_path,
            "TENURE_PROJECT": self._project,
            "TENURE_DEMO_ZOMBIE": self._answer,
            "TENURE_DEMO_DOOMED": self.bob,
        }

    def _start(self, *words: str) -> None:
        self._running.append(
            subprocess.Popen(
                [*TENURE, *words],
                cwd=self._repository,
                env=self._environ(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )

    def _git(self, *words: str) -> str:
        ran = subprocess.run(
            ["git", *words],
            cwd=self._repository,
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if ran.returncode:
            raise Failed(f"git {words[0]}: {ran.stderr.strip()}")
        return ran.stdout

    # -- what is seen -------------------------------------------------------------------------------------------------

    def _say(self, text: str, style: str = "") -> None:
        from rich.text import Text

        line = Text(f"{time.monotonic() - self._began:6.2f} s  ", style="dim")
        line.append(text, style=style)
        self._console.print(line, soft_wrap=True)

    def _tell(self) -> None:
        """Tell what happened since the last look."""
        for event in _ok(observe.events(self._store, after=self._after)):
            self._after = event.seq
            if event.agent_id in (self.ada, self.bob, self.cat):
                self._seen_at.setdefault((event.kind, event.agent_id), time.monotonic())
                if event.kind not in UNTOLD:
                    self._say(
                        f"{event.task_id + ': ' if event.task_id else ''}{sentence(event)}", COLOURS.get(event.kind, "")
                    )

    def _saw(self, kind: str, agent_id: str) -> bool:
        return (kind, agent_id) in self._seen_at

    def _since(self, moment: float, kind: str, agent_id: str) -> float:
        return round(self._seen_at[kind, agent_id] - moment, 2)

    def _until(self, true: Callable[[], bool], what: str) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            self._tell()
            if true():
                return
            if time.monotonic() > give_up_at:
                raise Failed(f"It never happened that {what}. {self._outputs()}")
            time.sleep(0.02)

    def _outputs(self) -> str:
        for process in self._running:
            process.kill()
        said = [process.communicate()[0] for process in self._running]
        self._running.clear()
        return "\n".join(said)

    def _bob_is_dirty(self) -> bool:
        place = os.path.join(f"{self._repository}.worktrees", self.bob, "totals.py")
        dirty = os.path.exists(place) and os.path.getsize(place) > 0
        # His helper is to outlive him, so that it must have been born.
        return self._saw("reported", self.bob) and dirty and os.path.exists(self._answer + ".up")

    def _pid_of(self, agent_id: str) -> int:
        boot_id, namespace = here()
        found: tuple[Link, ...] = _ok(links.watched_links(self._store, boot_id=boot_id, pid_ns=namespace))
        return next(link.pid for link in found if link.agent_id == agent_id)

    # -- the acts -----------------------------------------------------------------------------------------------------

    def _show_handoff(self) -> None:
        self._until(self._is_rescued, "bob's file is rescued")
        handoff = _ok(observe.show_task(self._store, task_id=REPORT, project_id=self._project)).handoffs[0]
        git = json.loads(handoff.git or "{}")
        self._say(f"{self.cat} reads in the handoff:", "bold")
        lines = [
            f"from {handoff.recovered_from_agent}, {handoff.previous_progress}% done ({handoff.recovery_reason})",
            f"how it ended: {handoff.exited or 'its process was seen to be gone'}",
            f"its last message: {handoff.last_message}",
            f"its last line of output: {handoff.output_tail.splitlines()[-1] if handoff.output_tail else ''}",
            f"commits not merged: {', '.join(git.get('commits') or ())}; the merge would be {git.get('merge')}",
            f"uncommitted work: {git.get('rescue_ref')}",
            *handoff.instructions.splitlines()[:1],
            f"{git.get('rescue_apply')}",
        ]
        for line in lines:
            self._console.print(f"            | {line}", style="cyan", markup=False, highlight=False, soft_wrap=True)

    def _is_rescued(self) -> bool:
        return self._saw("rescued", self.bob)

    def _zombie(self) -> None:
        with open(self._answer + ".go", "w", encoding="utf-8"):
            pass
        self._until(
            lambda: os.path.exists(self._answer) and os.path.getsize(self._answer) > 0, "the zombie was answered"
        )
        with open(self._answer, encoding="utf-8") as file:
            status, said = file.read().split("\n", 1)
        self._say(
            f"A helper of {self.bob}'s is still alive and reports 90%: refused (exit status {status})", "bold magenta"
        )
        for line in said.strip().splitlines():
            self._console.print(f"            | {line}", style="magenta", markup=False, highlight=False, soft_wrap=True)

    def _wait_for_all(self) -> None:
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PATIENCE_S)
        self._tell()

    def _conclude(self, timings: dict[str, Any]) -> None:
        for agent in (self.ada, self.cat):
            self._git("merge", f"marcus/{agent}", "--no-edit")
        files = " ".join(self._git("ls-files").split())
        ran = subprocess.run([sys.executable, "main.py"], cwd=self._repository, capture_output=True, text=True)
        self._say(f"main has everything now: {files}; python main.py prints: {ran.stdout.strip()}", "bold green")
        if ran.returncode:
            raise Failed(f"The result does not run: {ran.stderr}")
        names = {
            "noticed_s": "the death was noticed after",
            "in_other_hands_s": "the task was in other hands after",
            "rescued_s": "the uncommitted file was rescued after",
            "completed_s": "the task was completed after",
        }
        self._console.print("\nFrom kill -9:", style="bold")
        for name, words in names.items():
            self._console.print(f"  {words:<40} {timings[name]:5.2f} s", highlight=False)


def _agent(role: str) -> list[str]:
    return [sys.executable, "-m", "tenure.demo_agent", role]


def _ok(answer: Any) -> Any:
    if isinstance(answer, Refused):
        raise Failed(f"{answer.code}: {answer.message}")
    return answer


def main(store_path: str | None = None, *, quiet: bool = False) -> dict[str, Any]:
    """Run the demo; its timings. With a store, in a project of its own there."""
    from rich.console import Console

    console = Console(highlight=False, quiet=quiet)
    with tempfile.TemporaryDirectory(prefix="tenure-demo-", ignore_cleanup_errors=True) as folder:
        demo = Demo(console, os.path.realpath(folder), store_path)
        try:
            return demo.run()
        finally:
            demo.close()
