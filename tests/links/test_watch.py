"""The watcher: told by the kernel, and still right where the kernel tells nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tenure.links import watch
from tenure.links.identity import ProcessIdentity, of_process
from tenure.links.watch import Watcher, exit_descriptor
from tests.links.processes import DEADLINE_S, end, sleeper

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="no /proc with namespaces")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = sleeper()
    yield child
    end(child)


def identity_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = of_process(process.pid)
    assert found is not None
    return found


@pytest.fixture(params=["pidfd", "polling"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With what the kernel has, and without."""
    if request.param == "polling":
        monkeypatch.setattr(watch, "exit_descriptor", lambda pid: None)
    return str(request.param)


def test_watcher_sees_a_process_until_it_is_killed(process: subprocess.Popen[bytes], way: str) -> None:
    told = threading.Event()
    watcher = Watcher(told.set)
    mine = identity_of(process)
    watcher.keep([mine])
    assert watcher.state(mine) == "alive"
    # Not reaped: nobody but its parent could, and the watcher of a server is no parent.
    process.kill()
    if way == "pidfd":
        assert told.wait(DEADLINE_S)
    else:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert watcher.state(mine) == "gone"
    watcher.close()


def test_watcher_tells_of_each_process_it_keeps_and_of_no_other() -> None:
    kept, dropped = sleeper(), sleeper()
    told = threading.Event()
    watcher = Watcher(told.set)
    mine, other = identity_of(kept), identity_of(dropped)
    watcher.keep([mine, other])
    watcher.keep([mine])
    end(dropped)
    assert not told.wait(0.1)
    end(kept)
    assert told.wait(DEADLINE_S)
    assert (watcher.state(mine), watcher.state(other)) == ("gone", "gone")
    watcher.close()


def test_watcher_of_a_pid_that_was_given_again_does_not_watch_the_other(process: subprocess.Popen[bytes]) -> None:
    watcher = Watcher(lambda: None)
    older = identity_of(process).replace(start_ticks=1)
    watcher.keep([older])
    assert watcher.state(older) == "gone"
    watcher.close()


def descriptors() -> set[tuple[str, str]]:
    """What this process has open, but for the listing itself."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def test_watcher_leaves_no_descriptor_open() -> None:
    before = descriptors()
    processes = [sleeper() for _ in range(5)]
    watcher = Watcher(lambda: None)
    watcher.keep([identity_of(one) for one in processes])
    for one in processes:
        end(one)
    watcher.close()
    # What earlier tests left behind may be collected meanwhile.
    assert descriptors() <= before


def test_exit_descriptor_of_nobody_is_none() -> None:
    child = sleeper()
    end(child)
    assert exit_descriptor(child.pid) is None
