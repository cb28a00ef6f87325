"""The dashboard on a PostgreSQL store: everything that it reads, once, and its stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tenure.engine import agents, claims, endings, liveness, notes
from tenure.engine.touch import touch
from tenure.store.postgres import PostgresStore
from tests.http.serving import ANSWERS_WITHIN_S, Api, Server, must
from tests.postgres.support import shared_cluster
from tests.support import add, ok

PROOF = {"x-tenure-dashboard": "1"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server on a database in which a task waits for another, one is held, one was handed over."""
    cluster = shared_cluster()
    url = cluster.url(cluster.new_database())
    store = PostgresStore(url)
    add(store, "F001", kind="code")
    add(store, "F002", after=["F001"])
    add(store, "F003")
    ok(agents.register(store, agent_id="A1"))
    ok(claims.claim(store, task_id="F003", agent_id="A1", profile="agent"))
    ok(liveness.report(store, task_id="F003", agent_id="A1", progress=40, message="Half of it."))
    ok(endings.revoke(store, task_id="F003", reason="preempted", by="mira"))
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="agent"))
    # It holds its task for as long as the tests may take.
    ok(touch(store, agent_id="A1", expect_silence_s=3_600))
    ok(notes.send_message(store, task_id="F001", sender="mira", text="Hello."))
    log = Path(tmp_path_factory.mktemp("postgres")) / "server.log"
    with Server(url, log=log) as server, Api(server) as made:
        yield made
    store.close()


def test_board_on_postgresql_has_cards_with_holders_needs_and_handoffs(api: Api) -> None:
    cards = {card["task_id"]: card for card in must(api.get("/dashboard/board"))["cards"]}
    assert cards["F001"]["leases"][0]["agent_id"] == "A1"
    assert {need["task_id"]: need["state"] for need in cards["F002"]["needs"]} == {"F001": "open"}
    assert cards["F003"]["left"]["agent_id"] == "A1"


def test_task_page_on_postgresql_has_all_its_parts(api: Api) -> None:
    task = must(api.get("/dashboard/tasks/F003"))
    assert task["handoffs"][0]["last_message"] == "Half of it."
    assert task["verified"]["faults"] == []
    assert task["story"]
    graph = must(api.get("/dashboard/tasks/F001"))["graph"]
    assert ["F002", "F001"] in graph["edges"]


def test_fleet_on_postgresql_has_agents_in_time(api: Api) -> None:
    member = must(api.get("/dashboard/agents"))["members"][0]
    assert [span["task_id"] for span in member["spans"]] == ["F001", "F003"]
    ended = must(api.get("/dashboard/agents/A1"))["member"]["spans"][1]
    assert ended["handed_over_at"] is not None
    assert [told["kind"] for told in ended["told"]] == ["revoked"]


def test_operations_on_postgresql_count_what_happened(api: Api) -> None:
    numbers = must(api.get("/dashboard/numbers"))
    assert sum(one["granted"] for one in numbers["slices"]) == 2
    assert numbers["oldest"]["task_id"] == "F003"
    assert must(api.get("/dashboard/projects"))["projects"][0]["project_id"] == "default"


def test_act_on_postgresql_is_told_on_the_stream(api: Api) -> None:
    seq = must(api.get("/dashboard/board"))["seq"]
    with httpx.stream("GET", f"{api.server.url}/dashboard/stream?after={seq}", timeout=ANSWERS_WITHIN_S) as stream:
        lines = stream.iter_lines()
        assert any(line == "event: hello" for line in lines)
        added = api.http.post("/dashboard/do/add", json={"title": "Told to all"}, headers=PROOF)
        assert added.status_code == 200
        assert any("Told to all" in line for line in lines)
