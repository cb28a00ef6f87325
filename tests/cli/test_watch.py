"""`tenure watch`: what a frame shows, that watching writes nothing, and the live view on a real terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tenure.clock import ManualClock
from tenure.engine import agents, claims, endings, liveness
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.cli import watch
from tenure.surfaces.cli.main import main
from tests.cli.terminal import DEADLINE_S, Terminal, read_until
from tests.support import add, join, ok, take

COMMAND = [sys.executable, "-c", "from tenure.surfaces.cli.main import main; raise SystemExit(main())"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of the fixtures is the one meant, whoever runs the tests and wherever."""
    for name in ("TENURE_PROJECT", "TENURE_AGENT", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TENURE_STORE", str(tmp_path / "tenure.db"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")


class Screen:
    """One frame at a time."""

    def __init__(self, folder: Path, clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.clock, self.capsys = folder, clock, capsys

    def draw(self, *words: str) -> str:
        assert main(["watch", "--once", *words], folder=str(self.folder), clock=self.clock) == 0
        return self.capsys.readouterr().out

    def data(self) -> Any:
        document = json.loads(self.draw("--json"))
        assert document["ok"], document
        return document["data"]


@pytest.fixture
def screen(tmp_path: Path, clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> Screen:
    return Screen(tmp_path, clock, capsys)


def claim(store: SqliteStore, agent_id: str, task_id: str, ttl_s: int) -> None:
    ok(claims.claim(store, task_id=task_id, agent_id=agent_id, profile="cli", ttl_s=ttl_s))


# -- one frame --------------------------------------------------------------------------------------------------------


def test_watch_of_an_empty_store_draws_empty_columns(store: SqliteStore, screen: Screen) -> None:
    drawn = screen.draw()
    for column in ("TODO 0", "IN PROGRESS 0", "BLOCKED 0", "DONE 0", "DEAD 0"):
        assert column in drawn
    assert "nobody yet" in drawn


def test_watch_shows_counts_holder_countdown_and_agents(store: SqliteStore, screen: Screen, clock: ManualClock) -> None:
    join(store, "A1")
    for name in ("F001", "F002", "F003"):
        add(store, name)
    claim(store, "A1", "F001", 300)
    clock.advance(60)
    drawn = screen.draw()
    assert "TODO 2" in drawn
    assert "IN PROGRESS 1" in drawn
    held = next(line for line in drawn.splitlines() if "4m" in line)
    assert "A1" in held
    assert "█" in held
    assert "A1 seen 1m ago F001" in drawn
    assert "claimed by A1" in drawn


def test_watch_bar_drains_with_the_lease(store: SqliteStore, screen: Screen, clock: ManualClock) -> None:
    join(store, "A1")
    add(store)
    claim(store, "A1", "F001", 100)
    lengths = []
    for _ in range(4):
        lengths.append(screen.draw().count("█"))
        clock.advance(25)
    assert lengths == [12, 9, 6, 3]


def test_watch_shows_a_dead_holders_task_as_due_and_writes_nothing(
    store: SqliteStore, screen: Screen, clock: ManualClock
) -> None:
    join(store, "A1")
    add(store)
    claim(store, "A1", "F001", 3)
    clock.advance(3)
    before = store.data_version()
    drawn = screen.draw()
    assert "TODO 1, 1 due" in drawn
    assert "todo (due) A1" in drawn
    assert "IN PROGRESS 0" in drawn
    assert store.data_version() == before


def test_watch_tells_grace_from_the_lease_itself(store: SqliteStore, screen: Screen, clock: ManualClock) -> None:
    join(store, "A1")
    add(store)
    take(store, "A1")
    clock.advance(30)
    drawn = screen.draw()
    assert "unproven" in drawn
    assert "grace" not in drawn
    clock.advance(35)
    drawn = screen.draw()
    assert "A1 grace" in drawn
    assert "15s" in drawn
    assert "IN PROGRESS 1" in drawn


def test_watch_names_an_announced_silence(store: SqliteStore, screen: Screen, clock: ManualClock) -> None:
    from tenure.engine.touch import touch

    join(store, "A1")
    add(store)
    take(store, "A1")
    ok(touch(store, agent_id="A1", expect_silence_s=600))
    clock.advance(120)
    assert "A1 announced" in screen.draw()


def test_watch_names_the_cadence_that_carries_a_holder_beyond_its_grace(
    store: SqliteStore, screen: Screen, clock: ManualClock
) -> None:

    join(store, "A1")
    add(store)
    take(store, "A1")
    for wait, progress in ((5, 20), (112, 40), (112, 55)):
        clock.advance(wait)
        ok(liveness.report(store, task_id="F001", agent_id="A1", progress=progress))
    clock.advance(140)
    assert "A1 grace" in screen.draw()
    clock.advance(20)
    assert "A1 cadence" in screen.draw()


def test_watch_says_what_a_task_waits_for_and_why_it_is_blocked(
    store: SqliteStore, screen: Screen, clock: ManualClock
) -> None:
    join(store, "A1")
    add(store, "F001")
    add(store, "F002", after=["F001"])
    add(store, "F003")
    take(store, "A1", "F003")
    ok(endings.block(store, task_id="F003", agent_id="A1", reason="no keys"))
    drawn = screen.draw()
    assert "waits for 1" in drawn
    assert "BLOCKED 1" in drawn
    assert "no keys" in drawn


def test_watch_tells_a_recovery_with_its_numbers(store: SqliteStore, screen: Screen, clock: ManualClock) -> None:
    join(store, "A1")
    join(store, "A2")
    add(store)
    claim(store, "A1", "F001", 3)
    clock.advance(5)
    claim(store, "A2", "F001", 60)
    drawn = screen.draw()
    assert "1 recovered so far" in drawn
    assert "recovered from A1 (lease_expired): silent 5 s; allowed lease 3 + grace 0" in drawn


def test_watch_shows_the_newest_of_many_done_tasks(
    store: SqliteStore, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CARDS", 3)
    join(store, "A1")
    for number in range(6):
        add(store, f"T{number}")
        take(store, "A1", f"T{number}")
        ok(endings.complete(store, task_id=f"T{number}", agent_id="A1"))
    assert [task["task_id"] for task in screen.data()["board"]["done"]] == ["T5", "T4", "T3"]


def test_watch_puts_due_and_ready_tasks_before_those_that_wait(
    store: SqliteStore, screen: Screen, clock: ManualClock
) -> None:
    join(store, "A1")
    add(store, "LATER", not_before_ms=store.answered_at_ms + 3_600_000)
    add(store, "READY")
    add(store, "LOST")
    claim(store, "A1", "LOST", 1)
    clock.advance(1)
    assert [task["task_id"] for task in screen.data()["board"]["todo"]] == ["LOST", "READY", "LATER"]


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40), (60, 16), (200, 60)])
def test_watch_fits_the_terminal(
    store: SqliteStore, screen: Screen, monkeypatch: pytest.MonkeyPatch, columns: int, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    for number in range(30):
        join(store, f"agent-with-a-long-name-{number}")
        add(store, f"F{number:03}", title="日本語の題名 " * 5)
        if number % 3 == 0:
            take(store, f"agent-with-a-long-name-{number}", f"F{number:03}")
        if number % 6 == 0:
            ok(
                endings.block(
                    store, task_id=f"F{number:03}", agent_id=f"agent-with-a-long-name-{number}", reason="x" * 99
                )
            )
    drawn = screen.draw().splitlines()
    assert len(drawn) < lines
    assert max(map(cell_len, drawn)) <= columns
    text = "\n".join(drawn)
    assert ("more" in text) == (lines < 60)
    for part in ("TODO 20", "AGENTS 30", "EVENTS"):
        assert part in text


@pytest.mark.parametrize("title", ["[red]alarm[/red]", "[/] unbalanced", "<script>alert(1)</script>", ":bomb: {x}"])
def test_watch_shows_markup_as_it_was_written(store: SqliteStore, screen: Screen, title: str) -> None:
    add(store, title=title)
    assert title in screen.draw()


def test_watch_strips_control_sequences(store: SqliteStore, screen: Screen) -> None:
    add(store)
    join(store, "A1")
    store.connection.execute("UPDATE tasks SET title = ?", ("\x1b[31mred\x1b]0;owned\x07\x1b[2J \x9b1m\r\nend",))
    store.connection.execute("UPDATE agents SET name = ?", ("\x1b[5mAda\x07",))
    drawn = screen.draw()
    assert "\x1b" not in drawn
    assert "\x9b" not in drawn
    assert "\x07" not in drawn
    assert "F001 red" in drawn
    assert "A1 Ada" in drawn


def test_watch_shows_only_the_named_project(store: SqliteStore, screen: Screen) -> None:
    from tenure.engine.projects import create_project

    ok(create_project(store, project_id="other"))
    add(store, "F001")
    add(store, "F002", project_id="other")
    drawn = screen.draw("--project", "other")
    assert "F002" in drawn
    assert "F001" not in drawn


def test_watch_finds_the_last_events_of_many(store: SqliteStore, screen: Screen) -> None:
    for number in range(70):
        add(store, f"T{number}")
    told = screen.data()["events"]
    assert [event["task_id"] for event in told] == [f"T{number}" for number in range(50, 70)]
    # Pruning leaves a gap at the beginning, and none of it is an end.
    store.connection.execute("DELETE FROM events WHERE seq < 60")
    assert screen.data()["events"][-1]["task_id"] == "T69"


def test_watch_json_once_is_one_envelope_with_the_frame(store: SqliteStore, screen: Screen, clock: ManualClock) -> None:
    join(store, "A1")
    add(store, "F001")
    add(store, "F002")
    claim(store, "A1", "F001", 3)
    clock.advance(4)
    data = screen.data()
    assert data["at"] == "2026-01-01T00:00:04Z"
    assert data["tasks"] == {"todo": 2, "in_progress": 0, "blocked": 0, "done": 0, "dead": 0}
    assert data["due"] == 1
    first = data["board"]["todo"][0]
    assert (first["task_id"], first["status"], first["due"]) == ("F001", "todo", True)
    assert [agent["agent_id"] for agent in data["agents"]] == ["A1"]
    assert data["events"][-1]["text"].startswith("claimed by A1")


def test_watch_leaves_departed_agents_out(store: SqliteStore, screen: Screen) -> None:
    join(store, "A1")
    join(store, "A2")
    ok(agents.depart(store, agent_id="A1", reason="left"))
    assert [agent["agent_id"] for agent in screen.data()["agents"]] == ["A2"]


def test_watch_without_a_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch"], folder=str(tmp_path)) == 9
    assert "tenure init" in capsys.readouterr().err


def test_watch_with_a_bad_project_is_refused(store: SqliteStore, tmp_path: Path, clock: ManualClock) -> None:
    assert main(["watch", "--once", "--project", "../x"], folder=str(tmp_path), clock=clock) == 2


# -- live -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Iterator[SqliteStore]:
    """The store on the machine's own clock, as other processes see it."""
    opened = SqliteStore(str(tmp_path / "tenure.db"))
    join(opened, "A1")
    add(opened, "F001", title="Implement login with sessions, tokens and a long way to say it")
    yield opened
    opened.close()


def environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


def test_watch_live_follows_claims_expiry_and_resizing_and_restores_the_terminal(
    real: SqliteStore, tmp_path: Path
) -> None:
    # An hour between looks: whatever shows up in time was noticed by itself.
    with Terminal([*COMMAND, "watch", "--interval", "1h"], tmp_path, environ()) as terminal:
        opening = terminal.wait_for("EVENTS")
        assert "\x1b[?1049h" in opening
        assert "TODO 1" in opening
        claim(real, "A1", "F001", 600)
        terminal.wait_for("claimed by A1")
        ok(liveness.renew(real, task_id="F001", agent_id="A1", ttl_s=1))
        before = real.data_version()
        terminal.wait_for("todo (due)")
        assert real.data_version() == before
        assert b"tokens and" not in terminal.seen
        terminal.resize(160, 40)
        terminal.wait_for("tokens and")
        terminal.type("\x03")
        assert terminal.ended() == 0
        last = terminal.seen.rpartition(b"EVENTS")[2]
        assert b"\x1b[?1049l" in last
        assert b"\x1b[?25h" in last
        assert b"Traceback" not in terminal.seen
        assert terminal.modes() == terminal.modes_before


def test_watch_live_ends_with_q(real: SqliteStore, tmp_path: Path) -> None:
    with Terminal([*COMMAND, "watch"], tmp_path, environ()) as terminal:
        terminal.wait_for("EVENTS")
        terminal.type("q")
        assert terminal.ended() == 0
        assert terminal.modes() == terminal.modes_before


def test_watch_live_restores_the_terminal_when_told_to_stop(real: SqliteStore, tmp_path: Path) -> None:
    with Terminal([*COMMAND, "watch"], tmp_path, environ()) as terminal:
        terminal.wait_for("EVENTS")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM
        assert b"\x1b[?1049l" in terminal.seen
        assert terminal.modes() == terminal.modes_before


def test_watch_once_on_a_terminal_is_coloured_and_leaves_the_screen_alone(real: SqliteStore, tmp_path: Path) -> None:
    with Terminal([*COMMAND, "watch", "--once"], tmp_path, environ()) as terminal:
        drawn = terminal.wait_for("EVENTS")
        assert terminal.ended() == 0
        assert "\x1b[1;34mTODO 1" in drawn
        assert b"\x1b[?1049h" not in terminal.seen


def stream(folder: Path) -> subprocess.Popen[bytes]:
    words = [*COMMAND, "watch", "--json", "--interval", "1h"]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def next_line(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(read_until(process.stdout.fileno(), b"\n"))


def test_watch_json_prints_a_line_for_each_change_until_interrupted(real: SqliteStore, tmp_path: Path) -> None:
    with stream(tmp_path) as process:
        first = next_line(process)
        assert first["ok"]
        assert first["data"]["tasks"]["todo"] == 1
        add(real, "F002")
        second = next_line(process)["data"]
        assert second["tasks"]["todo"] == 2
        assert [event["task_id"] for event in second["events"]] == ["F002"]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, rest, errors) == (0, b"", b"")


def test_watch_json_ends_when_its_reader_has_gone(real: SqliteStore, tmp_path: Path) -> None:
    with stream(tmp_path) as process:
        next_line(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("words", [["status"], ["task", "list"], ["watch", "--once", "--json"]])
def test_rich_is_loaded_for_drawing_only(real: SqliteStore, tmp_path: Path, words: list[str]) -> None:
    code = f"import sys; from tenure.surfaces.cli.main import main; main({words!r}); assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
