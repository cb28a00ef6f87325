"""Fixtures: a real SQLite file on a manual clock."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.store.sqlite import SqliteStore

# A shell without job control starts what runs in the background deaf to SIGINT. Children inherit that; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How the skip of a test that needs a real Kanboard begins.
NOT_TESTED = "no Kanboard here"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what a whole kind of tests could not be run for."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if NOT_TESTED in str(report.longrepr)]
    if skipped:
        terminalreporter.section("NOT TESTED against a real Kanboard", sep="!")
        terminalreporter.line(f"{len(skipped)} tests were skipped: {skipped[0].longrepr[-1]}")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    opened = SqliteStore(str(tmp_path / "tenure.db"), clock=clock)
    yield opened
    opened.close()
