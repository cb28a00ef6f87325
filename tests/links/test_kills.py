"""Real kills, a few of them, with generous bounds; `make bench-kill` measures many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.links.kills import measure

# Of a machine that runs much else. The medians on an idle one are below a second; silence alone would take 80.
WITHIN_S = 60.0


@pytest.mark.parametrize(
    ("wrapper_too", "server"), [(False, False), (True, True), (True, False)], ids=["agent", "both-server", "both-alone"]
)
def test_kill_9_puts_the_task_into_a_waiting_agents_hands(tmp_path: Path, wrapper_too: bool, server: bool) -> None:
    times = measure(tmp_path / "repository", 2, wrapper_too=wrapper_too, server=server)
    assert times[-1] < WITHIN_S, times
