"""`/health`, `/metrics`, `/events`: seeing how the server does, and missing nothing."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest
from starlette.responses import Response

from tenure.surfaces.http import operations
from tenure.surfaces.http.gates import _labels
from tests.http.serving import Api, must, problem

SAMPLE = re.compile(r'^[a-z_]+(\{[a-z]+="[a-z_]+"\})? -?[0-9.]+$')


def test_health_shows_statistics_and_monitors(own: Api) -> None:
    own.add(task_id="T-1")
    own.add(task_id="T-2")
    own.take()
    health = must(own.get("/health"))
    assert health["status"] == "ok"
    assert health["server_id"].endswith(f".{own.server.port}")
    assert health["statistics"]["active"] == 1
    assert health["statistics"]["tasks"]["todo"] == 1
    monitors = {monitor["name"]: monitor for monitor in health["monitors"]}
    assert {"recovery", "upkeep"} <= monitors.keys()
    for monitor in monitors.values():
        assert monitor["failures"] == 0
        assert {"ticks", "last_tick_age_s", "next_wake_in_s"} <= monitor.keys()
    assert health["waiting_polls"] == 0


@pytest.mark.parametrize("look", [operations.health, operations.metrics])
def test_look_at_a_server_whose_store_does_not_answer_says_so_soon(
    look: Callable[[Any], Awaitable[Response]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        async def call(self, *_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(operations, "ANSWER_WITHIN_S", 0.01)
    monkeypatch.setattr(operations, "node_of", lambda request: Silent())
    response = asyncio.run(cast("Coroutine[Any, Any, Response]", look(None)))
    assert response.status_code == 503
    assert b"database_unavailable" in response.body


def test_metrics_are_prometheus_text(own: Api) -> None:
    own.add(task_id="T-1")
    own.take()
    response = own.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    typed: set[str] = set()
    values: dict[str, float] = {}
    for line in response.text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("#"):
            assert SAMPLE.match(line), line
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
            assert name.partition("{")[0] in typed
    assert values["tenure_leases_active"] == 1
    assert values['tenure_tasks{status="in_progress"}'] == 1
    assert values["tenure_written_verbs_total"] >= 3


def test_docs_and_document_are_served(shared: object, api: Api) -> None:
    assert must(api.get("/openapi.json"))["openapi"] == "3.1.0"
    page = api.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "POST" in page.text


def test_events_tell_the_story_of_a_task(api: Api) -> None:
    api.add(task_id="T-1")
    offer = api.take()
    must(api.complete("T-1"), 201)
    stream = api.events(0, task_id="T-1")
    story = list(itertools.islice(stream, 4))
    stream.close()  # type: ignore[attr-defined]
    assert [event["kind"] for event in story] == ["task_added", "offered", "accepted", "completed"]
    assert story[1]["lease_id"] == offer["lease_id"]
    assert [event["seq"] for event in story] == sorted(event["seq"] for event in story)


def test_events_resumed_after_each_one_miss_none(api: Api) -> None:
    for number in range(5):
        api.add(task_id=f"T-{number}")
        api.take()
        must(api.complete(f"T-{number}"), 201)
    stream = api.events(0)
    every = [event["seq"] for event in itertools.islice(stream, 20)]
    stream.close()  # type: ignore[attr-defined]
    resumed: list[int] = []
    last = 0
    while len(resumed) < len(every):
        # Cut off after every event, and back again with its id.
        stream = api.events(last)
        last = next(stream)["seq"]
        stream.close()  # type: ignore[attr-defined]
        resumed.append(last)
    assert resumed == every


def test_events_without_an_id_begin_with_what_is_new(api: Api) -> None:
    api.add(task_id="T-old")
    with api.http.stream("GET", "/events", params={"project": str(api.project)}) as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": connected"
        assert next(lines).startswith("id: ")
        with Api(api.server, api.project) as other:
            other.add(task_id="T-new")
        data = next(line for line in lines if line.startswith("data: "))
    assert "T-new" in data


def test_events_of_another_process_arrive(api: Api) -> None:
    from tenure import app
    from tenure.engine import tasks
    from tests.support import ok

    stream = api.events(0, task_id="T-1")
    store = ok(app.open_store(api.server.store))
    ok(tasks.add_task(store, task_id="T-1", title="From elsewhere", project_id=str(api.project)))
    store.close()
    assert next(stream)["kind"] == "task_added"
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("after", ["x", "-1", "1.5"])
def test_events_after_nonsense_are_refused(api: Api, after: str) -> None:
    with api.http.stream("GET", "/events", headers={"Last-Event-ID": after}) as response:
        response.read()
    problem(response, 400, "invalid_argument")


def test_labels_of_metrics_are_escaped() -> None:
    assert _labels(project="p", gate='a"b\\c\nd') == '{project="p",gate="a\\"b\\\\c\\nd"}'
