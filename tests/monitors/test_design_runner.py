"""The design runner with real programs: what they print, how they fail, and that they end when they must."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenure import app
from tenure.engine import notes, observe, projects, tasks
from tenure.monitors.design import DesignRunner
from tenure.store.sqlite import SqliteStore
from tests.support import add, ok

WAIT_S = 120


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(str(tmp_path / "tenure.db"))
    add(opened, "D1", title="Design it", assigned_to="Marcus")
    add(opened, "F001", after=["D1"])
    yield opened
    opened.close()


def program(store: SqliteStore, source: str, **changes: object) -> None:
    """Make a Python program the design command."""
    line = shlex.join([sys.executable, "-c", source])
    ok(projects.configure(store, document={"design": {"command": line, "retries": 0, **changes}}))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def content(store: SqliteStore) -> str:
    (artifact,) = ok(notes.artifacts(store, task_id="D1"))
    return artifact.content or ""


def done(store: SqliteStore) -> bool:
    return ok(observe.show_task(store, task_id="D1")).view.status == "done"


def test_tick_with_nothing_to_design_sleeps_and_writes_nothing(tmp_path: Path) -> None:
    empty = SqliteStore(str(tmp_path / "empty.db"))
    before = empty.connection.total_changes
    assert DesignRunner(empty).tick() == 60.0
    assert empty.connection.total_changes == before
    empty.close()


def test_tick_runs_the_program_with_the_prompt_and_without_our_secrets(store: SqliteStore) -> None:
    program(
        store,
        "import os, sys; asked = sys.stdin.read(); "
        "print('# Ours', len(asked) > 100, 'F001' in asked, os.environ['TENURE_TASK'], os.environ['TENURE_PROJECT'], "
        "[name for name in os.environ if 'TOKEN' in name])",
    )
    environ = {**os.environ, "TENURE_TOKEN": "s3cret", "TENURE_RECEIPTGATE_TOKEN": "s3cret"}
    DesignRunner(store, environ).tick()
    assert content(store) == "# Ours True True D1 default []\n"
    assert done(store)


@pytest.mark.parametrize(
    ("source", "words", "why"),
    [
        ("import sys; sys.exit('no model')", "it ended with status 1: no model", "its complaint is told"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with SIGKILL", "a signal is named"),
        ("pass", "it printed no document", "nothing is no document"),
        ("print(' ')", "it printed no document", "nor is a blank"),
        ("import os; os.write(1, bytes([255]))", "not UTF-8 (byte 1)", "binary is no document"),
        ("print('a' + chr(0))", "NUL", "nor is text with NULs"),
        ("print('x' * 1_000_001)", "larger than 1,000,000 bytes", "what cannot be kept is refused"),
        ("import time\nwhile True: print('x' * 1_000_000, flush=True)", "printed more than", "endless output ends"),
        ("import time; time.sleep(600)", "did not end within 1 s", "a hanging program is ended"),
    ],
)
def test_tick_with_a_failing_program_tells_and_goes_on(store: SqliteStore, source: str, words: str, why: str) -> None:
    program(store, source, timeout_s=1 if "sleep" in source else WAIT_S)
    DesignRunner(store).tick()
    assert done(store), "whoever waits goes on"
    assert words in content(store), why
    assert any(event.kind == "design_failed" for event in ok(observe.events(store)))


def test_tick_with_a_missing_program_tells(store: SqliteStore) -> None:
    ok(projects.configure(store, document={"design": {"command": "/no/such/designer", "retries": 0}}))
    DesignRunner(store).tick()
    assert "/no/such/designer cannot be started: No such file" in content(store)


def test_timeout_ends_what_the_program_started(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "pid"
    source = (
        "import os, subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
        f"; open({str(noted) + '.new'!r}, 'w').write(str(p.pid)); os.rename({str(noted) + '.new'!r}, {str(noted)!r})"
        "; time.sleep(600)"
    )
    program(store, source, timeout_s=900)
    # Its time is over as soon as it has started what is to be ended with it.
    passed = SimpleNamespace(monotonic=lambda: time.monotonic() + (1_000 if noted.exists() else 0))
    monkeypatch.setattr("tenure.monitors.design.time", passed)
    DesignRunner(store).tick()
    assert "did not end within 900 s" in content(store)
    pid = int(noted.read_text())

    def gone() -> bool:
        try:
            # A zombie of a parent that is gone is reaped by init; until then it runs nothing.
            return (Path("/proc") / str(pid) / "stat").read_text().split(")")[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    until(gone)


def test_close_ends_the_program_and_gives_the_run_back(store: SqliteStore, tmp_path: Path) -> None:
    program(store, f"open({str(tmp_path / 'up')!r}, 'w'); import time; time.sleep(600)")
    own = store.clone()
    runner = DesignRunner(own)
    thread = threading.Thread(target=runner.tick)
    thread.start()
    until((tmp_path / "up").exists)
    runner.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    own.close()
    assert not done(store)
    task = ok(observe.show_task(store, task_id="D1")).view.task
    assert (task.attempts, task.retry_at_ms) == (0, 0)


def test_task_taken_away_ends_its_program(store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.monitors.design.PULSE_EVERY_S", 0.1)
    program(store, f"open({str(tmp_path / 'up')!r}, 'w'); import time; time.sleep(600)")
    own = store.clone()
    thread = threading.Thread(target=DesignRunner(own).tick)
    thread.start()
    until((tmp_path / "up").exists)
    ok(tasks.assign_task(store, task_id="D1", assigned_to="Ann"))
    thread.join(WAIT_S)
    assert not thread.is_alive()
    own.close()
    assert not ok(notes.artifacts(store, task_id="D1"))


def test_monitors_of_a_server_do_a_design_that_another_process_adds(store: SqliteStore) -> None:
    loop = app.monitors(store)
    loop.start()
    try:
        until(lambda: done(store))
        add(store, "D2", assigned_to="Marcus")
        until(lambda: ok(observe.show_task(store, task_id="D2")).view.status == "done")
        assert "design" in [status.name for status in loop.statuses()]
    finally:
        loop.stop()


SERVER = """
import sys
from tenure.monitors import design as runner
from tenure.store.sqlite import SqliteStore

own = SqliteStore(sys.argv[1])
made = runner.DesignRunner(own)
while True:
    runner.time.sleep(min(0.1, made.tick()))
"""


def test_server_killed_in_the_middle_leaves_the_design_to_another(store: SqliteStore, tmp_path: Path) -> None:
    # The program hangs the first time it runs and writes the second time.
    up = tmp_path / "up"
    program(
        store,
        f"import os, time\nif os.path.exists({str(up)!r}): print('# Second')\n"
        f"else: open({str(up)!r}, 'w').write(str(os.getpid())); time.sleep(600)",
        retries=2,
    )
    servers = [subprocess.Popen([sys.executable, "-c", SERVER, store.path])]
    try:
        until(lambda: up.exists() and up.read_text())
        servers[0].kill()
        servers[0].wait()
        # The time for which a run counts as alive without a word of its server is over.
        with store.connection:
            store.connection.execute("UPDATE tasks SET retry_at_ms = 0 WHERE task_id = 'D1' AND retry_at_ms > 0")
        servers += [subprocess.Popen([sys.executable, "-c", SERVER, store.path]) for _ in range(2)]
        until(lambda: done(store))
    finally:
        for server in servers:
            server.kill()
            server.wait()
        os.kill(int(up.read_text()), signal.SIGKILL)
    assert content(store) == "# Second\n"
    assert [event.kind for event in ok(observe.events(store, task_id="D1"))].count("design_started") == 2
