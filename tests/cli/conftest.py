"""Fixtures: a repository with the installed command in it, and a desk on a manual clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tests.cli.shell import OURS, Desk, Shell, git


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
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that would tell a command who it is."""
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
