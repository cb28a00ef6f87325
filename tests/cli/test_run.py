"""`tenure run` without a terminal: who the program is, how it ends, and what becomes of its task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import TENURE, Shell, git
from tests.links.kills import serving

DEADLINE_S = 120.0


def until(true: Callable[[], Any], what: str) -> Any:
    """What it says once that is true; fails at the deadline."""
    give_up_at = time.monotonic() + DEADLINE_S
    while not (answer := true()):
        assert time.monotonic() < give_up_at, f"never: {what}"
        time.sleep(0.02)
    return answer


@pytest.fixture
def ready(shell: Shell) -> Shell:
    """Three tasks, and programs that find the command."""
    shell = shell.having(PATH=f"{Path(TENURE).parent}:{os.environ['PATH']}")
    for number in (1, 2, 3):
        shell.ok("task", "add", f"Task {number}", "--id", f"F00{number}")
    return shell


def outcome(shell: Shell, *words: str) -> dict[str, Any]:
    """What a run says of itself."""
    ran = shell.run("run", "--json", *words)
    data: dict[str, Any] = json.loads(ran.out)["data"]
    return data


def handoff(shell: Shell, task: str = "F001") -> dict[str, Any]:
    """The newest handoff of a task."""
    found: dict[str, Any] = shell.data("task", "show", task)["handoffs"][0]
    return found


def start(shell: Shell, *words: str, ready: str = "up", **more: Any) -> subprocess.Popen[str]:
    """A run whose program has said that it is up."""
    process = shell.start("run", *words, stdin=subprocess.DEVNULL, **more)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == ready
    return process


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    assert "Traceback" not in err, err
    return process.returncode, out + err


def program_of(shell: Shell, agent: str) -> int:
    """The pid that an agent's link watches."""
    return int(shell.data("agent", "show", agent)["links"][0]["pid"])


# -- the ending decides -----------------------------------------------------------------------------------------------


def test_run_exit_0_without_a_call_completes(ready: Shell) -> None:
    told = outcome(ready, "--agent", "ada", "--task", "F001", "--", "true")
    assert (told["outcome"], told["exit_status"]) == ("completed", 0)
    assert ready.data("task", "show", "F001")["status"] == "done"


def test_run_exit_0_without_a_call_and_no_complete_releases(ready: Shell) -> None:
    assert outcome(ready, "--no-complete", "--task", "F001", "--", "true")["outcome"] == "released"
    assert ready.data("task", "show", "F001")["status"] == "todo"


@pytest.mark.parametrize(("percent", "then"), [("100", "completed"), ("99", "released")])
def test_run_exit_0_after_reports_follows_the_last_one(ready: Shell, percent: str, then: str) -> None:
    told = outcome(ready, "--task", "F001", "--", "tenure", "task", "renew", "F001", percent, "-m", "so far")
    assert told["outcome"] == then
    if then == "released":
        assert handoff(ready)["previous_progress"] == 99
        assert handoff(ready)["last_message"] == "so far"


def test_run_exit_0_of_a_program_that_only_touched_releases(ready: Shell) -> None:
    """It can speak, and did not say that it is finished."""
    assert outcome(ready, "--task", "F001", "--", "tenure", "touch")["outcome"] == "released"


def test_run_exit_1_releases_with_status_and_output_in_the_handoff(ready: Shell) -> None:
    ran = ready.run("run", "--agent", "ada", "--task", "F001", "--", "sh", "-c", "echo one; echo two >&2; exit 7")
    assert (ran.status, ran.out) == (7, "one\n")
    assert "two" in ran.err
    left = handoff(ready)
    assert left["exited"] == "sh exited with 7"
    assert sorted(left["output_tail"].split()) == ["one", "two"]
    assert "> two" in ready.ok("task", "claim", "F001", "--agent", "bob").out


def test_run_killed_program_is_a_death_and_its_task_on_offer(ready: Shell) -> None:
    ran = ready.run("run", "--agent", "ada", "--task", "F001", "--", "sh", "-c", "echo last words; kill -9 $$")
    assert ran.status == 128 + signal.SIGKILL
    assert ready.data("next", "--agent", "bob")["task"]["task_id"] == "F001"
    left = handoff(ready)
    assert (left["recovery_reason"], left["exited"]) == ("process_exited", "sh was ended by SIGKILL")
    assert left["output_tail"] == "last words"


@pytest.mark.parametrize(
    ("words", "status"),
    [("task done F001", "done"), ("task block F001 later", "blocked"), ("task release F001", "todo")],
)
def test_run_leaves_what_the_program_itself_said(ready: Shell, words: str, status: str) -> None:
    told = outcome(ready, "--task", "F001", "--", "tenure", *words.split())
    assert told["outcome"] == "nothing held"
    assert ready.data("task", "show", "F001")["status"] == status


def test_run_settles_what_the_program_claimed_by_itself(ready: Shell) -> None:
    script = "tenure next >/dev/null && tenure task renew $(tenure whoami --json | sed 's/.*F00\\(.\\).*/F00\\1/') 30"
    assert outcome(ready, "--agent", "ada", "--", "sh", "-c", script)["outcome"] == "released"
    assert ready.data("status")["tasks"]["in_progress"] == 0


def test_run_program_that_was_interrupted_releases(ready: Shell) -> None:
    assert ready.run("run", "--task", "F001", "--", "sh", "-c", "kill -INT $$").status == 128 + signal.SIGINT
    assert handoff(ready)["recovery_reason"] == "released"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_run_told_to_end_departs_before_it_dies(ready: Shell, number: signal.Signals) -> None:
    process = start(ready, "--agent", "ada", "--task", "F001", "--", "sh", "-c", "echo up; exec sleep 60")
    process.send_signal(number)
    assert finish(process)[0] == 128 + number
    assert ready.data("next", "--agent", "bob")["task"]["task_id"] == "F001"
    left = handoff(ready)
    assert left["recovery_reason"] == "departed"
    assert f"told to end by {number.name}" in left["exited"]
    assert left["output_tail"] == "up"


def test_run_told_to_end_kills_a_program_that_does_not_comply(ready: Shell) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    process = start(ready, "--task", "F001", "--", sys.executable, "-c", script)
    process.terminate()
    assert finish(process)[0] == 128 + signal.SIGTERM


def test_run_timeout_ends_it_and_releases(ready: Shell) -> None:
    ran = ready.run("run", "--timeout", "1s", "--task", "F001", "--", "sleep", "60")
    assert ran.status == 124
    assert "took longer than 1s" in handoff(ready)["exited"]


# -- who the program is -----------------------------------------------------------------------------------------------


def test_run_exports_who_it_is(ready: Shell) -> None:
    out = ready.ok("run", "--agent", "ada", "--task", "F001", "--url", "http://x:1", "--", "env").out
    names = dict(line.partition("=")[::2] for line in out.splitlines() if line.startswith("TENURE_"))
    assert names.pop("TENURE_LEASE")
    assert names.pop("TENURE_STORE").endswith("tenure.db")
    assert names == {
        "TENURE_AGENT": "ada",
        "TENURE_TASK": "F001",
        "TENURE_URL": "http://x:1",
        "TENURE_INCARNATION": "1",
    }


def test_run_commands_of_the_program_speak_for_the_same_run(ready: Shell) -> None:
    """A call that began a new run would take the lease over, and the exit seen here would not reach it."""
    script = "tenure join --name Ada; tenure touch; tenure task renew F001 40; tenure task claim F002; kill -9 $$"
    ready.run("run", "--agent", "ada", "--task", "F001", "--", "sh", "-c", script)
    assert ready.data("agent", "show", "ada")["incarnation"] == 1
    assert ready.data("next", "--agent", "bob")["task"]["task_id"] in ("F001", "F002")
    assert ready.data("next", "--agent", "bob")["task"]["task_id"] in ("F001", "F002")
    assert handoff(ready)["recovery_reason"] == handoff(ready, "F002")["recovery_reason"] == "process_exited"


def test_run_of_an_older_run_is_told_superseded(ready: Shell) -> None:
    process = start(ready, "--agent", "ada", "--task", "F001", "--", "sh", "-c", "echo up; exec sleep 60")
    ready.ok("run", "--agent", "ada", "--task", "F002", "--", "true")
    old = ready.having(TENURE_AGENT="ada", TENURE_INCARNATION="1")
    assert old.run("touch").status == 6
    process.terminate()
    finish(process)


def test_run_the_lease_of_another_task_in_the_environment_is_not_meant(ready: Shell) -> None:
    script = "tenure task claim F002 >/dev/null && tenure task done F002 && tenure task done F001"
    ready.ok("run", "--agent", "ada", "--task", "F001", "--", "sh", "-ec", script)
    assert ready.data("status")["tasks"]["done"] == 2


def test_run_an_agent_that_was_there_before_stays(ready: Shell) -> None:
    ready.ok("join", "--id", "ada", "--name", "ada")
    ready.ok("run", "--task", "F001", "--", "true")
    assert ready.data("agent", "show", "ada")["state"] == "present"
    ready.ok("run", "--agent", "bob", "--task", "F002", "--", "true")
    assert ready.data("agent", "show", "bob")["state"] == "departed"


def test_run_inside_a_run_ends_for_itself_alone(ready: Shell) -> None:
    script = "tenure run --task F002 -- true && tenure run -- sh -c 'kill -9 $$'; tenure whoami --json"
    ran = ready.ok("run", "--agent", "ada", "--task", "F001", "--", "sh", "-c", script)
    inside = json.loads(ran.out.splitlines()[-1])["data"]
    assert [lease["task_id"] for lease in inside["leases"]] == ["F001"]
    assert (inside["incarnation"], inside["linked"]) == (1, True)
    assert ready.data("task", "show", "F002")["status"] == "done"


def test_run_with_a_worktree_works_there_on_its_own_branch(ready: Shell) -> None:
    git(ready.folder, "commit", "--allow-empty", "-m", "base")
    script = "pwd; git branch --show-current; tenure whoami --json"
    lines = ready.ok("run", "--agent", "ada", "--task", "F001", "--worktree", "--", "sh", "-c", script).lines
    assert Path(lines[0]).name == "ada"
    assert Path(lines[0]) != ready.folder
    assert lines[1] == "marcus/ada"
    assert json.loads(lines[2])["data"]["worktree"] == lines[0]


def test_run_again_in_the_worktree_of_a_killed_run_begins_clean_and_loses_nothing(ready: Shell) -> None:
    """Nobody saw the death: the wrapper was killed as well, and no server runs."""
    git(ready.folder, "commit", "--allow-empty", "-m", "base")
    script = "echo half > half.py; echo up; exec sleep 60"
    process = start(ready, "--agent", "ada", "--task", "F001", "--worktree", "--", "sh", "-c", script)
    until(lambda: ready.data("agent", "show", "ada")["links"], "linked")
    program = program_of(ready, "ada")
    process.kill()
    os.kill(program, signal.SIGKILL)
    finish(process)
    until(lambda: not Path(f"/proc/{program}").exists(), "the program is gone")
    again = ready.run(
        "run", "--agent", "ada", "--task", "F002", "--worktree", "--", "sh", "-c", "ls; echo two > two.py"
    )
    assert (again.status, again.out) == (0, "")
    left = ready.data("task", "claim", "F001", "--agent", "bob")["handoff"]
    assert (left["recovery_reason"], left["exited"]) == ("process_exited", "")
    assert [one["path"] for one in ready.data("rescue", "show", "F001")["files"]] == ["half.py"]
    assert f"tenure rescue apply F001/{left['token']}" in left["instructions"]


# -- what cannot begin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--task", "F001", "--next", "--", "true"], 2),
        (["--task", "F001", "--", "no-such-program"], 2),
        (["--task", "F404", "--", "true"], 3),
        (["--agent", "Marcus", "--", "true"], 8),
        (["--agent", "-x", "--", "true"], 2),
    ],
)
def test_run_that_cannot_begin_is_refused_and_runs_nothing(ready: Shell, words: list[str], status: int) -> None:
    ran = ready.run("run", *words)
    assert ran.status == status, ran
    assert ready.data("status")["tasks"]["todo"] == 3


def test_run_of_a_held_task_is_refused(ready: Shell) -> None:
    process = start(ready, "--agent", "ada", "--task", "F001", "--", "sh", "-c", "echo up; exec sleep 60")
    assert ready.run("run", "--agent", "bob", "--task", "F001", "--", "true").status == 4
    assert ready.run("run", "--agent", "ada", "--task", "F001", "--", "true").status == 4
    process.terminate()
    finish(process)


# -- waiting and holding ----------------------------------------------------------------------------------------------


def test_run_next_waits_for_a_task(shell: Shell) -> None:
    process = shell.start("run", "--next", "--wait", "5m", "--agent", "ada", "--", "true", stdin=subprocess.DEVNULL)
    until(lambda: shell.run("whoami", "--agent", "ada").status == 0, "ada has joined")
    shell.ok("task", "add", "Late", "--id", "F001")
    assert finish(process)[0] == 0
    assert shell.data("task", "show", "F001")["status"] == "done"


def test_run_next_without_a_task_gives_up_when_the_wait_is_over(shell: Shell) -> None:
    assert shell.run("run", "--next", "--wait", "1s", "--", "true").status == 5


def test_run_stopped_for_longer_than_its_lease_is_not_recovered_and_goes_on(shell: Shell) -> None:
    """In real time: a lease of 12 s with its grace, a program that is stopped for longer than a pulse lasts."""
    for name, value in (
        ("min_lease_hours", "0.0028"),
        ("grace_period_minutes", "0.03"),
        ("warning_hours", "0.0001"),
        ("default_hours", "0.0028"),
        ("enable_adaptive", "false"),
    ):
        shell.ok("config", "set", f"task_lease.{name}", value)
    shell.ok("task", "add", "Only", "--id", "F001")
    go_on = shell.folder / "go_on"
    os.mkfifo(go_on)
    process = start(shell, "--agent", "ada", "--task", "F001", "--", "sh", "-c", "echo up; cat go_on; echo done")
    program = program_of(shell, "ada")
    os.killpg(program, signal.SIGSTOP)
    waited = shell.run("run", "--agent", "bob", "--next", "--wait", "17s", "--", "true")
    assert waited.status == 5, waited
    assert "T" in Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0]
    os.killpg(program, signal.SIGCONT)
    go_on.write_text("")
    status, out = finish(process)
    assert (status, "F001 completed" in out) == (0, True), out
    assert shell.data("status")["recoveries"] == 0


def test_run_hold_announces_the_wait_and_ends_the_announcement(ready: Shell) -> None:
    ready.ok("join", "--id", "ada", "--name", "ada")
    ready.ok("task", "claim", "F001", "--profile", "agent")
    during = ready.ok("run", "--hold", "--agent", "ada", "--", "tenure", "task", "show", "F001", "--json")
    assert json.loads(during.out)["data"]["leases"][0]["silent_until"] is not None
    assert ready.data("task", "show", "F001")["leases"][0]["silent_until"] is None
    assert ready.data("task", "show", "F001")["status"] == "in_progress"


def test_run_hold_keeps_the_status_and_the_time_limit(ready: Shell) -> None:
    ready.ok("task", "claim", "F001", "--agent", "ada")
    assert ready.run("run", "--hold", "--agent", "ada", "--", "sh", "-c", "exit 9").status == 9
    assert ready.run("run", "--hold", "--agent", "ada", "--timeout", "1s", "--", "sleep", "60").status == 124
    assert ready.data("task", "show", "F001")["status"] == "in_progress"


def test_run_hold_by_nobody_known_is_refused(ready: Shell) -> None:
    assert ready.run("run", "--hold", "--agent", "nobody", "--", "true").status == 3


# -- losing the lease -------------------------------------------------------------------------------------------------


def test_run_whose_lease_is_revoked_stops_the_program(ready: Shell) -> None:
    process = start(ready, "--agent", "ada", "--task", "F001", "--", "sh", "-c", "echo up; exec sleep 60")
    ready.ok("task", "release", "F001", "--force")
    status, said = finish(process)
    assert status == 6
    assert "the lease on F001 was lost (operator)" in said


def test_run_on_lost_tell_leaves_the_program_alone(ready: Shell) -> None:
    words = ("--agent", "ada", "--task", "F001", "--on-lost", "tell", "--", "sh", "-c", "echo up; sleep 60")
    process = start(ready, *words, stderr=subprocess.PIPE)
    ready.ok("task", "release", "F001", "--force")
    err = process.stderr
    assert err is not None
    until(lambda: "was lost" in err.readline(), "the loss is told")
    assert process.poll() is None
    os.kill(program_of(ready, "ada"), signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)


# -- a process that is only named -------------------------------------------------------------------------------------


def test_join_with_a_pid_is_watched_by_the_server(ready: Shell) -> None:
    agent = subprocess.Popen(["sleep", "600"])
    with serving(ready):
        ready.ok("join", "--id", "ada", "--name", "ada", "--pid", str(agent.pid))
        ready.ok("task", "claim", "F001", "--agent", "ada", "--profile", "agent")
        assert ready.data("whoami", "--agent", "ada")["linked"] is True
        agent.kill()
        agent.wait()
        until(lambda: ready.data("task", "show", "F001")["handoffs"], "the server saw it exit")
        assert handoff(ready)["recovery_reason"] == "process_exited"


def test_join_with_the_pid_of_nobody_is_refused(ready: Shell) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert ready.run("join", "--name", "ada", "--pid", str(gone.pid)).status == 2
