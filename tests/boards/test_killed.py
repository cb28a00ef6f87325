"""A real server, killed with SIGKILL between its commit and the delivery, at every call that a delivery makes."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.engine import boards, claims, endings, notes
from tenure.engine.projects import configure
from tenure.store.sqlite import SqliteStore
from tests.boards.conftest import FULL
from tests.boards.kanboard import Kanboard
from tests.boards.scene import Scene
from tests.boards.test_seen import agreed, every_message_was_said, no_duplicates
from tests.boards.test_server import PATIENCE_S, until
from tests.http.serving import Server
from tests.support import ok

DEATHS = 50 if FULL else 4


class Between:
    """Stands between a server and its board. The nth call from now is the server's last, with or without its effect."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._left, self._after, self._pid = 0, False, 0
        # What the board was asked when the server died.
        self.died_at: list[str] = []
        between = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                between.pass_on(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/jsonrpc.php"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def arm(self, pid: int, at: int, *, after: bool) -> None:
        with self._lock:
            self._pid, self._left, self._after = pid, at, after

    def pass_on(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        with self._lock:
            self._left -= 1
            dies, after, pid = self._left == 0, self._after, self._pid
        if dies:
            self.died_at.append(json.loads(body)["method"])
        if dies and not after:
            os.kill(pid, signal.SIGKILL)
            return
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type")}
        with urllib.request.urlopen(urllib.request.Request(self._target, body, headers), timeout=PATIENCE_S) as answer:
            told = answer.read()
        if dies:
            os.kill(pid, signal.SIGKILL)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(told)))
        request.end_headers()
        request.wfile.write(told)

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join(PATIENCE_S)
        self._http.server_close()


@pytest.fixture
def between(kanboard: Kanboard) -> Iterator[Between]:
    made = Between(kanboard.url)
    yield made
    made.close()


def test_server_killed_between_commit_and_delivery_loses_nothing(
    kanboard: Kanboard, between: Between, tmp_path: Path
) -> None:
    path = tmp_path / "tenure.db"
    store = SqliteStore(str(path))
    # Only deliveries call the board: the feed and the sweep are an hour away.
    ok(configure(store, document={"tenure": {"board_poll_s": 3600, "board_sweep_s": 3600}}))
    scene = Scene(kanboard, store, ManualClock(), f"KILL{os.getpid()}")
    ok(boards.connect_board(store, url=between.url, board=scene.name, token=kanboard.token))

    def delivered() -> bool:
        view = ok(boards.show_board(store))
        newest, looked = (
            "SELECT coalesce(max(seq), 0) FROM events WHERE project_id = 'default'",
            "SELECT event_seq FROM boards",
        )
        read = [store.connection.execute(question).fetchone()[0] for question in (newest, looked)]
        return bool(view.swept_at_ms) and not view.pending and not view.comments and read[0] <= read[1]

    for number in range(DEATHS):
        with Server(path) as server:
            until(delivered)
            between.arm(server.pid, number % 13 + 1, after=number % 2 == 1)
            scene.add(f"K{number}")
            ok(notes.send_message(store, text=f"About {number}", sender="A1", task_id=f"K{number}"))
            if number:
                before = f"K{number - 1}"
                ok(claims.claim(store, task_id=before, agent_id="A1", profile="cli"))
                ok(endings.complete(store, task_id=before, agent_id="A1", message="Finished."))
            assert server.process.wait(PATIENCE_S) == -signal.SIGKILL
        # The time that the dead one had for its card is over.
        store.connection.execute("UPDATE board_cards SET busy_until_ms = 0")
    with Server(path):
        until(delivered)
    assert len(between.died_at) == DEATHS
    scene.settle()
    agreed(scene)
    no_duplicates(kanboard)
    every_message_was_said(scene)
    scene.close()
    store.close()
