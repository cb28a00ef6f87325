"""Fixtures: a repository with two agents' worktrees and a store, on a manual clock."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tests.cli.shell import OURS, Desk
from tests.worktree.repositories import committed


class Scene:
    """A repository with a task and the worktrees of ada and bob; ada has claimed the task where `claimed` says so."""

    def __init__(self, folder: Path, desk: Desk) -> None:
        self.repository = folder
        self.desk = desk
        self.ada = Path(desk.data("worktree", "add", "ada")["path"])
        self.bob = Path(desk.data("worktree", "add", "bob")["path"])

    def claimed(self) -> None:
        """Ada takes F001 from her worktree, and changes files without committing."""
        self.desk.ok("task", "claim", "F001", "--agent", "ada", folder=self.ada)
        (self.ada / "a").write_text("changed by ada\n")
        (self.ada / "new").write_text("new\n")

    def lapse(self) -> None:
        self.desk.clock.advance(3_600)

    def taken(self) -> dict[str, object]:
        """Bob takes F001 over."""
        handoff: dict[str, object] = self.desk.data("task", "claim", "F001", "--agent", "bob", folder=self.bob)[
            "handoff"
        ]
        return handoff


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user can reach, as pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def scene(
    tmp_path: Path, clock: ManualClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Scene:
    for name in list(os.environ):
        if name.startswith(OURS) and not name.startswith("PYTHON"):
            monkeypatch.delenv(name)
    repository = committed(tmp_path / "project", a="one\n", b="two\n")
    desk = Desk(repository, clock, capsys)
    desk.store = repository / ".git" / "tenure" / "tenure.db"
    desk.ok("init")
    desk.ok("task", "add", "Title", "--id", "F001")
    return Scene(repository, desk)
