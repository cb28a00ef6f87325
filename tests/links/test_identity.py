"""Processes told apart: reused pids, defunct and stopped ones, other namespaces, and a /proc that hides or lies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tenure.links import identity
from tenure.links.identity import ProcessIdentity, here, of_process, state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="no /proc with namespaces")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"])
    yield child
    child.kill()
    child.wait()


def identity_of(pid: int) -> ProcessIdentity:
    found = of_process(pid)
    assert found is not None
    return found


def wait_for(letter: str, pid: int) -> None:
    """Wait until the kernel shows the process in a state."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[0].decode() == letter:
                return
        time.sleep(0.005)
    raise AssertionError(f"{pid} never was {letter}")


def test_state_of_a_running_process_is_alive(process: subprocess.Popen[bytes]) -> None:
    mine = identity_of(process.pid)
    assert (mine.boot_id, mine.pid_namespace) == here()
    assert mine.pid == process.pid
    assert mine.start_ticks > 0
    assert state(mine) == "alive"


def test_state_of_a_stopped_process_is_alive(process: subprocess.Popen[bytes]) -> None:
    mine = identity_of(process.pid)
    process.send_signal(signal.SIGSTOP)
    wait_for("T", process.pid)
    assert state(mine) == "alive"
    process.send_signal(signal.SIGCONT)


def test_state_of_an_unreaped_process_is_gone(process: subprocess.Popen[bytes]) -> None:
    mine = identity_of(process.pid)
    process.kill()
    wait_for("Z", process.pid)
    assert state(mine) == "gone"
    assert of_process(process.pid) is None


def test_state_of_a_reaped_process_is_gone(process: subprocess.Popen[bytes]) -> None:
    mine = identity_of(process.pid)
    process.kill()
    process.wait()
    assert state(mine) == "gone"
    assert of_process(process.pid) is None


def test_state_of_a_pid_that_was_given_again_is_gone(process: subprocess.Popen[bytes]) -> None:
    mine = identity_of(process.pid)
    assert state(mine.replace(start_ticks=mine.start_ticks - 1)) == "gone"


@pytest.mark.parametrize("change", [{"boot_id": "another"}, {"pid_namespace": "pid:[1]"}, {"pid_namespace": ""}])
def test_state_from_another_boot_or_namespace_is_unknown(change: dict[str, str]) -> None:
    gone = subprocess.Popen(["true"])
    mine = identity_of(os.getpid()).replace(pid=gone.pid, start_ticks=1)
    gone.wait()
    assert state(mine) == "gone"
    assert state(mine.replace(**change)) == "unknown"


@pytest.mark.parametrize("name", ["a b", "x) S 1 (y", "((", ") Z"])
def test_of_process_with_a_strange_name_counts_the_right_fields(name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    child = subprocess.Popen([program, "60"])
    try:
        mine, sober = identity_of(child.pid), identity_of(os.getpid())
        assert state(mine) == "alive"
        # Started after us in the same boot, by some seconds at most of a test run.
        assert mine.start_ticks >= sober.start_ticks
    finally:
        child.kill()
        child.wait()
    assert state(mine) == "gone"


def test_state_of_a_process_whose_first_thread_ended_is_alive() -> None:
    code = (
        "import ctypes, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print('up', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        mine = identity_of(child.pid)
        assert child.stdout is not None
        child.stdout.readline()
        wait_for("Z", child.pid)
        assert state(mine) == "alive"
    finally:
        child.kill()
        child.communicate()


def test_state_where_proc_hides_the_process_is_unknown(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = identity_of(process.pid)
    monkeypatch.setattr(identity, "_fields", lambda pid: None)
    assert state(mine) == "unknown"
    assert of_process(process.pid) is None


def test_state_where_proc_shows_another_namespace_is_unknown() -> None:
    """In a pid namespace without a /proc of its own, numbers under /proc are other processes."""
    code = (
        "import os; from tenure.links.identity import *\n"
        "boot, ns = here()\n"
        "other = ProcessIdentity(boot_id=boot, pid_namespace=ns, pid=99999, start_ticks=1)\n"
        "print(state(other), of_process(os.getpid()))"
    )
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if run.returncode != 0 and "unshare" in run.stderr:
        pytest.skip(f"pid namespaces are not permitted here: {run.stderr.strip()}")
    assert run.stdout.split() == ["unknown", "None"], run.stderr


def test_state_of_a_container_process_seen_from_the_host_is_unknown() -> None:
    """A pid in a namespace of its own says nothing to a judge outside, whatever has that number there."""
    code = (
        "import os; from tenure.links.identity import *\n"
        "mine = of_process(os.getpid()); print(*mine.as_dict().values(), state(mine), flush=True); input()"
    )
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        said = run.stdout.readline().decode().split()
        run.communicate(b"\n", timeout=120)
    if not said:
        pytest.skip("pid namespaces are not permitted here")
    boot_id, namespace, pid, ticks, inside = said
    theirs = ProcessIdentity(boot_id=boot_id, pid_namespace=namespace, pid=int(pid), start_ticks=int(ticks))
    assert inside == "alive"
    # It has exited; and pid 1 of the host has other ticks. Neither may be said from here.
    assert state(theirs) == "unknown"
