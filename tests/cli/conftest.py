"""Fixtures: a repository with the installed command in it, and a desk on a manual clock."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.engine import endings
from tenure.store.sqlite import SqliteStore
from tests.cli.shell import AGENT, OTHER, OURS, Desk, Shell, git
from tests.support import add, ok, take


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty git repository."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    return folder


@pytest.fixture
def shell(repository: Path) -> Shell:
    """The real command in a repository with a store."""
    opened = Shell(repository)
    opened.ok("init")
    return opened


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing that would tell a command who it is, and notes of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in list(os.environ):
        if name.startswith(OURS) and not name.startswith("PYTHON"):
            monkeypatch.delenv(name)


@pytest.fixture
def desk(tmp_path: Path, clock: ManualClock, capsys: pytest.CaptureFixture[str], bare_environment: None) -> Desk:
    """Commands in this process, on a manual clock, with a store."""
    folder = tmp_path / "desk"
    folder.mkdir()
    opened = Desk(folder, clock, capsys)
    opened.ok("init")
    return opened


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scene's store, made once: every test works on a copy."""
    path = tmp_path_factory.mktemp("template") / "tenure.db"
    store = SqliteStore(str(path), clock=ManualClock())
    for task in ("F001", "F003", "F004", "F005"):
        add(store, task)
    add(store, "F002", after=["F001"])
    for task in ("F004", "F001"):
        take(store, AGENT, task, profile="cli")
        if task == "F004":
            ok(endings.complete(store, task_id=task, agent_id=AGENT))
    ok(endings.block(store, task_id="F005", reason="no key", force=True))
    store.close()
    return path


@pytest.fixture
def scene(desk: Desk, template: Path, tmp_path: Path) -> Desk:
    """F001 held by AGENT, F002 after it, F003 free, F004 done, F005 blocked; OTHER has joined as well."""
    shutil.copy(template, desk.store)
    for agent in (AGENT, OTHER):
        desk.ok("agent", "join", "--id", agent, "--name", agent)
    (tmp_path / "tasks.jsonl").write_text('{"title": "From a file"}\n')
    (tmp_path / "trace.csv").write_text("session_id,t_seconds,kind\na,0,tool_call\na,60,tool_call\n")
    (tmp_path / "settings.toml").write_text("[task_lease]\nmax_renewals = 20\n")
    return desk
