"""The dashboard's own routes without a browser: who is let in, what may be written, and what the page consists of."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenure.surfaces.dashboard import page, sessions
from tests.http.serving import ANSWERS_WITHIN_S, Api, Server, must, problem

OPERATOR, AGENT = "operator-token-0001", "agent-token-000001"
PROOF = {"x-tenure-dashboard": "1"}


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with Server(tmp_path_factory.mktemp("open") / "tenure.db") as server, Api(server) as api:
        yield api


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("closed")
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps({OPERATOR: "*", AGENT: "A1"}))
    with Server(folder / "tenure.db", "--tokens", str(tokens)) as server:
        yield server


@contextlib.contextmanager
def visitor(server: Server, token: str | None = None) -> Iterator[httpx.Client]:
    """A browser, as far as cookies go; signed in with a token, or not."""
    with httpx.Client(base_url=server.url, timeout=ANSWERS_WITHIN_S) as client:
        if token is not None:
            assert client.post("/dashboard/session", json={"token": token}, headers=PROOF).status_code == 200
        yield client


# -- the page ---------------------------------------------------------------------------------------------------------


def test_page_is_served_at_the_root_under_a_strict_policy(open_server: Api) -> None:
    response = open_server.get("/")
    policy = response.headers["content-security-policy"]
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert open_server.get("/docs").headers["content-type"].startswith("text/html")


def test_page_fetches_nothing_from_elsewhere_and_makes_no_markup_from_text() -> None:
    for path in page.STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        addresses = set(re.findall(r"https?://[\w.]+", text)) - {"http://www.w3.org"}
        assert not addresses, path.name
        for written in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert written not in text, f"{path.name}: {written}"
    html = (page.STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=", html)


def test_every_file_that_the_page_names_is_served(open_server: Api) -> None:
    names = {path.name for path in page.STATIC.iterdir()}
    for path in page.STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        wanted = set(re.findall(r'/dashboard/static/([\w.]+)"', text)) | set(re.findall(r'from "\./([\w.]+)"', text))
        assert wanted <= names, path.name
    for name in names:
        response = open_server.get(f"/dashboard/static/{name}")
        assert response.status_code == 200
        again = open_server.http.get(f"/dashboard/static/{name}", headers={"if-none-match": response.headers["etag"]})
        assert again.status_code == 304


@pytest.mark.parametrize(
    "name", ["../routes.py", "..%2froutes.py", "%2e%2e%2froutes.py", "nothing.js", "__init__.py", ""]
)
def test_no_path_leads_out_of_the_static_folder(open_server: Api, name: str) -> None:
    assert open_server.http.get(f"/dashboard/static/{name}").status_code == 404


# -- reading ----------------------------------------------------------------------------------------------------------


def test_reads_of_what_does_not_exist_are_refused(open_server: Api) -> None:
    problem(open_server.get("/dashboard/board", project="nowhere"), 404, "project_not_found")
    problem(open_server.get("/dashboard/tasks/F404"), 404, "task_not_found")
    problem(open_server.get("/dashboard/agents/A404"), 404, "agent_not_found")
    problem(open_server.get("/dashboard/stream", project="nowhere"), 404, "project_not_found")
    problem(open_server.get("/dashboard/numbers", minutes="many"), 400, "invalid_argument")


def test_board_carries_what_a_card_shows(open_server: Api) -> None:
    open_server.add(task_id="B-1", task_body="A long text that no card shows.")
    board = must(open_server.get("/dashboard/board"))
    found = next(card for card in board["cards"] if card["task_id"] == "B-1")
    assert "body" not in found
    assert board["seq"] > 0
    assert must(open_server.get("/dashboard/tasks/B-1"))["body"] == "A long text that no card shows."


# -- writing ----------------------------------------------------------------------------------------------------------


def moved(client: httpx.Client, **headers: str) -> httpx.Response:
    return client.post("/dashboard/do/message", json={"task_id": "W-1", "text": "hello"}, headers=headers)


def test_write_without_the_proof_of_the_page_is_refused(open_server: Api) -> None:
    open_server.add(task_id="W-1")
    problem(moved(open_server.http), 403, "not_permitted")
    assert moved(open_server.http, **PROOF).status_code == 201


def test_write_from_a_page_of_another_program_on_this_machine_is_refused(open_server: Api) -> None:
    response = moved(open_server.http, origin="http://localhost:3000", **PROOF)
    problem(response, 403, "not_permitted")
    assert moved(open_server.http, origin=open_server.server.url, **PROOF).status_code == 201


def test_write_from_another_site_is_refused(open_server: Api) -> None:
    problem(moved(open_server.http, origin="https://evil.example", **PROOF), 403, "not_permitted")


@pytest.mark.parametrize(
    ("act", "body", "status", "code"),
    [
        ("nothing", {}, 404, "route_not_found"),
        ("move", {"task_id": "W-404", "status": "done"}, 404, "task_not_found"),
        ("move", {"task_id": "W-1", "status": "gone"}, 400, "invalid_argument"),
        ("move", {"task_id": "W-1"}, 400, "invalid_argument"),
        ("move", {"task_id": "W-1", "status": "done", "force": True}, 400, "invalid_argument"),
        ("move", [], 400, "invalid_argument"),
        ("move", {"task_id": "W-1", "status": "done", "by": 3}, 400, "invalid_argument"),
        ("add", {"title": ""}, 400, "invalid_argument"),
    ],
)
def test_bad_act_is_refused_by_its_name(open_server: Api, act: str, body: Any, status: int, code: str) -> None:
    problem(open_server.http.post(f"/dashboard/do/{act}", json=body, headers=PROOF), status, code)


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_server_with_tokens_serves_the_page_but_nothing_in_it(closed: Server) -> None:
    with visitor(closed) as client:
        assert client.get("/").status_code == 200
        assert client.get("/dashboard/session").json() == {"needed": True, "speaks_for": None}
        for path in ("/dashboard/board", "/dashboard/stream", "/dashboard/tasks/F001", "/tasks", "/docs"):
            problem(client.get(path), 401, "unauthorized")
        problem(client.post("/dashboard/do/example", json={}, headers=PROOF), 401, "unauthorized")


def test_session_of_an_operator_reads_and_writes(closed: Server) -> None:
    with visitor(closed, OPERATOR) as client:
        assert client.post("/dashboard/do/example", json={}, headers=PROOF).status_code == 201
        assert client.get("/dashboard/board").status_code == 200
        done = client.post("/dashboard/do/move", json={"task_id": "EX-1", "status": "done"}, headers=PROOF)
        assert done.json()["status"] == "done"
        problem(client.post("/dashboard/do/move", json={"task_id": "EX-2", "status": "done"}), 403, "not_permitted")


def test_session_writes_nowhere_but_through_the_dashboard(closed: Server) -> None:
    with visitor(closed, OPERATOR) as client:
        problem(client.post("/tasks", json={"task_summary": "By a cookie"}, headers=PROOF), 401, "unauthorized")


def test_session_of_an_agent_speaks_for_that_agent_only(closed: Server) -> None:
    with visitor(closed, OPERATOR) as operator:
        operator.post("/dashboard/do/example", json={}, headers=PROOF)
    with visitor(closed, AGENT) as client:
        assert client.get("/dashboard/session").json()["speaks_for"] == "A1"
        problem(client.post("/dashboard/do/requeue", json={"task_id": "EX-2"}, headers=PROOF), 403, "not_permitted")
        said = client.post("/dashboard/do/message", json={"task_id": "EX-2", "text": "hi", "by": "boss"}, headers=PROOF)
        assert said.json()["from"] == "A1"


def test_wrong_token_makes_no_session(closed: Server) -> None:
    with visitor(closed) as client:
        response = client.post("/dashboard/session", json={"token": "not-a-token-of-it"}, headers=PROOF)
        problem(response, 401, "unauthorized")
        assert "set-cookie" not in response.headers
        problem(client.post("/dashboard/session", json={"token": OPERATOR}), 403, "not_permitted")


def test_session_cookie_is_out_of_reach_of_scripts_and_sites(closed: Server) -> None:
    with visitor(closed) as client:
        told = client.post("/dashboard/session", json={"token": OPERATOR}, headers=PROOF).headers["set-cookie"]
        assert "HttpOnly" in told
        assert "SameSite=Strict" in told
        assert OPERATOR not in told


def test_session_outlives_a_restart_and_ends_with_its_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({OPERATOR: "*"}))
    with Server(tmp_path / "tenure.db", "--tokens", str(tokens)) as server, visitor(server, OPERATOR) as client:
        kept = client.cookies.get(sessions.COOKIE)
    for known, status in ((OPERATOR, 200), ("another-token-0001", 401)):
        tokens.write_text(json.dumps({known: "*"}))
        with Server(tmp_path / "tenure.db", "--tokens", str(tokens)) as server:
            answer = httpx.get(f"{server.url}/dashboard/board", cookies={sessions.COOKIE: str(kept)}, timeout=60)
            assert answer.status_code == status


def test_session_is_over_at_its_time_and_cannot_be_stretched() -> None:
    made = sessions.issue(OPERATOR, 1_000)
    known = {OPERATOR: "*"}
    assert sessions.agent_of(made, known, 1_000 + sessions.LASTS_S - 1) == "*"
    assert sessions.agent_of(made, known, 1_000 + sessions.LASTS_S) is None
    until, nonce, signature = made.split(".")
    assert sessions.agent_of(f"{int(until) + 9}.{nonce}.{signature}", known, 1_000) is None
    for nonsense in ("", ".", "..", "a.b.c", "9" * 40, "9" * 11 + ".x.y", "é.é.é"):
        assert sessions.agent_of(nonsense, known, 1_000) is None
