"""Boards as people meet them: the commands, the server with its monitors, webhooks, health."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenure.engine import agents, boards, claims, tasks
from tenure.engine.health import check_assignment_health
from tenure.engine.projects import configure
from tenure.store.sqlite import SqliteStore
from tests.boards.kanboard import Kanboard, Person
from tests.boards.scene import Scene
from tests.cli.shell import Shell, envelope
from tests.http.serving import Server
from tests.mcp.clients import Room, drive
from tests.support import ok

PATIENCE_S = 180.0


def until(seen: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What is seen in the end; a bound, not an expectation."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        found = seen()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it was not seen in time")


@pytest.fixture
def project(kanboard: Kanboard, request: pytest.FixtureRequest) -> str:
    name = f"S{abs(hash(request.node.name)) % 10**8}"
    number = kanboard.call("createProject", name=name, identifier=name)
    kanboard.call("addColumn", project_id=number, title="Blocked")
    return name


def person(kanboard: Kanboard, project: str, name: str = "ann") -> Person:
    number = kanboard.call("getProjectByIdentifier", identifier=project)["id"]
    return Person(kanboard, number, name)


def test_commands_of_a_board_from_connect_to_disconnect(kanboard: Kanboard, project: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"TENURE_STORE": str(tmp_path / "tenure.db")})
    shell.ok("init")
    shell.ok("task", "add", "Ours", "--id", "F001")
    ann = person(kanboard, project)
    card = ann.add("By hand")
    words = ["board", "connect", "kanboard", "--url", kanboard.url, "--token", kanboard.token, "--board", project]
    dry = shell.ok(*words, "--dry-run")
    assert "column for todo: Backlog, Ready" in dry.out
    assert "ann is ann" in dry.out
    assert shell.ok("board", "list").out.strip() == "No board but the embedded one."
    wrong = shell.run(*words, "--column", "Nowhere=todo")
    assert wrong.status == 7
    assert "the board has no column 'Nowhere'" in wrong.out
    connected = shell.ok(*words)
    assert "1 imported" in connected.out
    assert "1 delivered" in connected.out
    assert shell.ok("task", "show", f"KB-{card}").out
    checked = envelope(shell.ok("board", "check", "--json").out)["data"]
    assert checked["assignments"]["healthy"] is True
    assert kanboard.token not in json.dumps(checked)
    ann.drag(card, "Work in progress")
    told = envelope(shell.ok("reconcile", "--json").out)["data"]
    assert (told["cards"], told["external"], told["pending"]) == (2, 1, 0)
    assert "board of default" in shell.ok("doctor").out
    shell.ok("board", "retry")
    shell.ok("board", "disconnect")
    assert "No board but the embedded one" in shell.ok("force_reconciliation").out


def test_connect_with_a_wrong_token_or_address_changes_nothing(kanboard: Kanboard, tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"TENURE_STORE": str(tmp_path / "tenure.db")})
    shell.ok("init")
    for url, token, told in (
        (kanboard.url, "wrong", "the token is not accepted"),
        ("http://127.0.0.1:1", "x", "ConnectError"),
    ):
        ran = shell.run("board", "connect", "kanboard", "--url", url, "--token", token, "--board", "X")
        assert ran.status == 7
        assert told in ran.out
    assert shell.ok("board", "list").out.strip() == "No board but the embedded one."


def connected_store(path: Path, kanboard: Kanboard, project: str) -> SqliteStore:
    store = SqliteStore(str(path))
    ok(agents.register(store, agent_id="A1"))
    ok(configure(store, document={"tenure": {"board_poll_s": 3600, "board_sweep_s": 3600}}))
    ok(
        boards.connect_board(
            store, url=kanboard.url, board=project, token=kanboard.token, webhook_token=kanboard.webhook_token
        )
    )
    return store


def test_server_carries_both_ways_by_itself_and_a_webhook_is_heard_at_once(
    kanboard: Kanboard, project: str, tmp_path: Path
) -> None:
    """The feed and the sweep are an hour away: what arrives came by the webhook."""
    ann = person(kanboard, project)
    person(kanboard, project, "A1")
    store = connected_store(tmp_path / "tenure.db", kanboard, project)
    with Server(tmp_path / "tenure.db") as server:
        ok(tasks.add_task(store, task_id="F001", title="Ours"))
        number = ann.project

        def card() -> Any:
            return kanboard.call("getTaskByReference", project_id=number, reference="F001")

        made = until(card)
        ok(claims.claim(store, task_id="F001", agent_id="A1", profile="cli"))
        until(lambda: int(card()["column_id"]) == ann.columns["Work in progress"])
        kanboard.set_webhook(f"{server.url}/boards/webhook?project=default")
        try:
            ann.drag(int(made["id"]), "Done")
            until(lambda: observe_status(store) == "done")
        finally:
            kanboard.set_webhook("")
        health = httpx.get(f"{server.url}/health", timeout=PATIENCE_S).json()
        assert health["assignments"]["default"]["healthy"] is True
        assert health["boards"][0]["error"] == ""
        names = [monitor["name"] for monitor in health["monitors"]]
        assert {"board-assignments", "board-feed", "board-delivery", "gridlock"} <= set(names)
        metrics = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_S).text
        assert 'tenure_board_pending{project="default"} 0' in metrics
        assert "tenure_requesting_agents " in metrics
        # Damage from outside, as /health names it.
        store.connection.execute("UPDATE tasks SET status = 'in_progress', assigned_to = 'A1' WHERE task_id = 'F001'")
        told = httpx.get(f"{server.url}/health", timeout=PATIENCE_S).json()["assignments"]["default"]
        assert told["healthy"] is False
        assert told["mismatches"][0]["task_id"] == "F001"
    store.close()


def observe_status(store: SqliteStore) -> Any:
    from tenure.engine.observe import show_task

    return ok(show_task(store, task_id="F001")).view.status


@pytest.mark.parametrize("token", ["", "wrong", None])
def test_webhook_without_the_boards_token_is_refused(
    kanboard: Kanboard, project: str, tmp_path: Path, token: str | None
) -> None:
    connected_store(tmp_path / "tenure.db", kanboard, project).close()
    with Server(tmp_path / "tenure.db") as server:
        query = {} if token is None else {"token": token}
        body = {"event_name": "task.move.column", "event_data": {"task_id": 1}}
        answer = httpx.post(f"{server.url}/boards/webhook", params=query, json=body, timeout=PATIENCE_S)
        assert answer.status_code == 401
        good = {"token": kanboard.webhook_token}
        assert httpx.post(f"{server.url}/boards/webhook", params=good, json=[1], timeout=PATIENCE_S).status_code == 202
        assert (
            httpx.post(f"{server.url}/boards/webhook", params=good, content=b"{", timeout=PATIENCE_S).status_code == 400
        )


def test_server_starts_by_reconciling_what_happened_while_it_was_down(
    kanboard: Kanboard, project: str, tmp_path: Path
) -> None:
    ann = person(kanboard, project)
    store = connected_store(tmp_path / "tenure.db", kanboard, project)
    ok(tasks.add_task(store, task_id="F001", title="Ours"))
    with Server(tmp_path / "tenure.db"):
        made = until(lambda: kanboard.call("getTaskByReference", project_id=ann.project, reference="F001"))
        until(lambda: not ok(boards.show_board(store)).pending)
    ann.drag(int(made["id"]), "Done")
    late = ann.add("While you were away")
    with Server(tmp_path / "tenure.db"):
        until(lambda: observe_status(store) == "done")
        until(lambda: store.connection.execute("SELECT 1 FROM tasks WHERE task_id = ?", (f"KB-{late}",)).fetchone())
    store.close()


def test_health_of_a_mismatch_names_it(scene: Scene) -> None:
    scene.connect()
    scene.held()
    scene.settle()
    row = scene.store.connection.execute("SELECT key, base FROM board_cards").fetchone()
    base = json.dumps({**json.loads(row[1]), "status": "todo"})
    scene.store.connection.execute("UPDATE board_cards SET base = ? WHERE key = ?", (base, row[0]))
    found = ok(check_assignment_health(scene.store))
    assert not found.healthy
    (one,) = found.mismatches
    assert (one.task_id, one.problem) == ("F001", "in_progress (A1) here, todo (A1) on the board")
    assert (found.persisted_assignments, found.kanban_assigned_tasks) == (1, 0)


def test_tools_of_mcp_look_at_the_board_and_reconcile_it(scene: Scene) -> None:
    """`ping`, `check_assignment_health`, `reconcile` and its other name, from an agent's side."""
    scene.connect()
    card = scene.held()
    scene.settle()

    async def story() -> None:
        async with Room(scene.store) as room, room.client(tools="all") as boss:
            told = (await boss.call("ping"))["assignment_health"]
            assert (told["healthy"], told["board"]) == (True, f"kanboard {scene.name}")
            assert (told["persisted_assignments"], told["kanban_assigned_tasks"]) == (1, 1)
            scene.ann.drag(card, "Ready")
            mended = await boss.call("force_reconciliation", project_id="default")
            assert (mended["boards"]["default"]["removed"], mended["healthy"]) == (1, True)
            assert (await boss.call("check_assignment_health"))["persisted_assignments"] == 0
            again = await boss.call("reconcile")
            assert again["boards"]["default"]["removed"] == 0
            ok(boards.connect_board(scene.store, url="http://127.0.0.1:1", board=scene.name, token="x"))
            await boss.refused("reconcile", "board_unavailable")

    drive(story())
    assert scene.known() == ("todo", None, None)
