"""The command line as its users have it: the installed script in a folder, or `main` in this process on a manual clock.

Nothing of the machine's own environment (an agent's id, a store, git's settings) reaches the commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tenure.clock import ManualClock
from tenure.surfaces.cli.main import main

TENURE = str(Path(sys.executable).parent / "tenure")
OURS = ("TENURE_", "LODESTAR_", "GIT_", "NO_COLOR", "PYTHON")
# A bound, not an expectation: a machine that runs much else is slow.
PATIENCE_S = 300
AGENT, OTHER = "A1234ABCD", "B1234ABCD"
KEYS = ["schema", "ok", "data", "error", "next", "warnings"]
GIT_NAME = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{who}_{what}": f"{who}@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


class Ran(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(**more: str) -> dict[str, str]:
    """The machine's environment without what would change an answer."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith(OURS)}, **more}


def git(folder: Path, *words: str) -> None:
    """Run git, which must succeed."""
    subprocess.run(["git", *words], cwd=folder, env=environment(**GIT_NAME), check=True, capture_output=True)


def envelope(text: str) -> dict[str, Any]:
    """The one document on standard output."""
    document = json.loads(text)
    assert list(document) == KEYS
    assert document["schema"] == "tenure/1"
    assert isinstance(document["next"], list)
    assert isinstance(document["warnings"], list)
    assert text.count("\n") == 1
    return dict(document)


class Shell:
    """The real `tenure`, started in a folder."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.env = environment(**(env or {}))

    def having(self, **env: str) -> Shell:
        """The same folder with more in its environment."""
        other = Shell(self.folder)
        other.env = {**self.env, **env}
        return other

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """A process that runs by itself."""
        pipe = subprocess.PIPE
        settings: dict[str, Any] = {"cwd": self.folder, "env": self.env, "stdout": pipe, "stderr": pipe, "text": True}
        return subprocess.Popen([TENURE, *words], **{**settings, **more})

    def run(self, *words: str, given: str | None = None) -> Ran:
        """Run a command to its end."""
        process = self.start(*words, stdin=subprocess.PIPE if given is not None else subprocess.DEVNULL)
        out, err = process.communicate(given, timeout=PATIENCE_S)
        assert "Traceback" not in err, err
        return Ran(process.returncode, out, err)

    def ok(self, *words: str) -> Ran:
        """Run a command that must succeed."""
        ran = self.run(*words)
        assert ran.status == 0, f"{words}: {ran}"
        return ran

    def data(self, *words: str) -> Any:
        """The data of a command that must succeed, from its JSON."""
        envelope = json.loads(self.ok(*words, "--json").out)
        assert envelope["ok"] is True
        return envelope["data"]


class Desk:
    """`main` in this process, on a manual clock, with a store beside the folder."""

    def __init__(self, folder: Path, clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.clock = clock
        self.capsys = capsys
        self.store = folder / "store" / "tenure.db"

    def run(self, *words: str, folder: Path | None = None) -> Ran:
        self.capsys.readouterr()
        argv = [*words, "--store", str(self.store)]
        status = main(argv, folder=str(folder or self.folder), clock=self.clock)
        printed = self.capsys.readouterr()
        return Ran(status, printed.out, printed.err)

    def ok(self, *words: str, folder: Path | None = None) -> Ran:
        ran = self.run(*words, folder=folder)
        assert ran.status == 0, f"{words}: {ran}"
        return ran

    def data(self, *words: str, folder: Path | None = None) -> Any:
        return json.loads(self.ok(*words, "--json", folder=folder).out)["data"]

    def refused(self, status: int, *words: str, folder: Path | None = None) -> Any:
        """The error of a command that must be refused with this exit status, from its JSON."""
        ran = self.run(*words, "--json", folder=folder)
        assert ran.status == status, f"{words}: {ran}"
        envelope = json.loads(ran.out)
        assert envelope["ok"] is False
        return envelope["error"]
