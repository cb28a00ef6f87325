"""The clients: every route, refusals and unavailability as exceptions, events that resume; and the public names."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest

import tenure
from tenure import AsyncClient, Client, Refusal, Unavailable
from tenure.surfaces.sdk.facts import EventFacts
from tenure.surfaces.sdk.stream import EventReader
from tests.sdk.servers import DEADLINE_S, ServerProcess


def test_exported_names_are_these() -> None:
    assert tenure.__all__ == [
        "Artifact",
        "AsyncClient",
        "AsyncContext",
        "AsyncWorker",
        "Cancelled",
        "Client",
        "Context",
        "Escalate",
        "Failed",
        "Outcome",
        "Refusal",
        "Task",
        "TenureError",
        "Unavailable",
        "Worker",
        "__version__",
    ]
    for name in tenure.__all__:
        assert getattr(tenure, name) is not None
        assert name in dir(tenure)
    with pytest.raises(AttributeError):
        tenure.Wroker  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import tenure; print(sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "['tenure']\n"


def test_both_clients_have_the_same_methods() -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        named = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
        return {name: list(inspect.signature(one).parameters) for name, one in named.items() if callable(one)}

    assert surface(Client) == surface(AsyncClient)


def test_every_route_has_a_method(client: Client) -> None:
    """Walk a task through all of it; what was asked is compared with what the server describes."""
    asked: set[tuple[str, str]] = set()

    def note(request: httpx.Request) -> None:
        path = request.url.path
        for name, value in names.items():
            path = path.replace(value, f"{{{name}}}")
        asked.add((request.method.lower(), path))

    names: dict[str, str] = {}
    client._http.event_hooks["request"].append(note)
    client.add_task("One", task_id="T-1", task_type="a.b", principal_ai="delegate.root")
    client.add_tasks([{"task_summary": "Two", "task_id": "T-2"}, {"task_summary": "Three", "task_id": "T-3"}])
    names["task_id"] = "T-1"
    offer = next(iter(client.lease("worker.a", preferred_kinds=["a.b"], capabilities=["python"])))
    assert (offer.task_id, offer.task_type, offer.lease_s) == ("T-1", "a.b", 900)
    names["lease_id"] = offer.lease_id
    assert [lease["state"] for lease in client.leases("worker.a")] == ["offered"]
    assert client.submit_accepted("T-1", "worker.a")["phase"] == "accepted"
    held = client.heartbeat(offer.lease_id, progress=10, message="begun")
    assert held["lease_s"] == 900
    assert client.submit_progress("T-1", "worker.a", 20, "on")["progress"] == 20
    done = client.submit_complete("T-1", "worker.a", outcome_text="result")
    assert (done["status"], done["outcome_kind"]) == ("success", "response_text")
    assert client.show_task("T-1")["status"] == "done"
    names["receipt_id"] = done["receipt_id"]
    assert client.show_receipt(done["receipt_id"])["outcome_text"] == "result"
    assert [r["phase"] for r in client.list_receipts(task_id="T-1")["receipts"]] == ["accepted", "progress", "complete"]
    assert client.verify_receipts()["intact"]
    two = client.lease("worker.a", max_tasks=2)
    assert len(two) == 2
    first, second = two
    client.submit_accepted(first.task_id, "worker.a")
    assert len(client.obligations()["obligations"]) == 1
    client.submit_complete(first.task_id, "worker.a", "canceled")
    assert [task["task_id"] for task in client.dead_tasks()["tasks"]] == [first.task_id]
    names["task_id"] = first.task_id
    assert client.requeue_task(first.task_id)["status"] == "todo"
    moved = client.move_task(first.task_id, "blocked", message="waits for a key")
    assert (moved["status"], moved["blocked_reason"]) == ("blocked", "waits for a key")
    assert client.move_task(first.task_id, "todo")["status"] == "todo"
    names["lease_id"] = second.lease_id
    assert client.release(second.lease_id)["status"] == "todo"
    assert len(client.list_tasks(status="todo")["tasks"]) == 2
    assert client.health()["status"] == "ok"
    assert client.gates() == {"gates": []}
    with pytest.raises(Refusal) as no_gate:
        client.resend_receipts()
    assert no_gate.value.code == "gate_not_found"
    assert "tenure_tasks" in client.metrics()
    assert next(client.events(after=0))["kind"]
    described = client.openapi()
    routes = {(method, path) for path, methods in described["paths"].items() for method in methods}
    # A task's receipts are those of GET /receipts with its id, and the webhook is for the board to call.
    assert routes - asked <= {("get", "/tasks/{task_id}/receipts"), ("post", "/boards/webhook")}


def test_refusal_is_raised_with_what_it_says(client: Client) -> None:
    with pytest.raises(Refusal) as raised:
        client.show_task("T-nowhere")
    refusal = raised.value
    assert (refusal.code, refusal.status) == ("task_not_found", 404)
    assert refusal.next
    assert "T-nowhere" in refusal.message
    with pytest.raises(Refusal) as raised:
        client.lease("nodot")
    assert (raised.value.code, raised.value.status) == ("invalid_worker_id", 400)
    assert raised.value.message == "must match pattern {type}.{instance}"


def test_unreachable_server_is_unavailable(server: ServerProcess, client: Client) -> None:
    server.kill()
    with pytest.raises(Unavailable) as raised:
        client.health()
    assert raised.value.status is None
    server.start()
    assert client.health()["status"] == "ok"


@pytest.mark.parametrize(
    ("answer", "code", "retry_after_s"),
    [
        (httpx.Response(503, json={"error": "database_unavailable"}, headers={"Retry-After": "5"}), "database_", 5),
        (httpx.Response(503, json={"code": "overloaded", "detail": "later"}), "overloaded", None),
        (httpx.Response(500, json={"error": "internal_error"}), "internal_error", None),
        (httpx.Response(502, text="<html>"), "unexpected_answer", None),
    ],
)
def test_server_that_cannot_answer_now_is_unavailable(
    answer: httpx.Response, code: str, retry_after_s: float | None
) -> None:
    with (
        Client("http://test", transport=httpx.MockTransport(lambda request: answer)) as client,
        pytest.raises(Unavailable) as raised,
    ):
        client.health()
    assert raised.value.code.startswith(code)
    assert raised.value.retry_after_s == retry_after_s
    assert raised.value.status == answer.status_code


def test_answer_of_another_program_is_unavailable_and_not_a_crash() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text="hello"))
    with Client("http://test", transport=transport) as client, pytest.raises(Unavailable, match="not Tenure's"):
        client.health()


def test_token_goes_with_every_request() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"leases": []})

    with Client("http://test", token="secret", transport=httpx.MockTransport(answer)) as client:
        client.leases("worker.a")
    assert seen == ["Bearer secret"]


def test_address_must_be_an_address() -> None:
    with pytest.raises(ValueError, match="http"):
        Client("localhost:7420")


def test_events_go_on_where_they_were_when_the_server_restarts(server: ServerProcess, client: Client) -> None:
    client.add_task("One", task_id="T-1")
    events = client.events(after=0, task_id="T-1", sleep=lambda _: None)
    first = next(events)
    assert first["task_id"] == "T-1"
    server.kill()
    server.start()
    with Client(server.url) as other:
        other.lease("worker.a")
    following = next(events)
    assert following["seq"] > first["seq"]
    assert following["kind"] == "offered"


def test_events_from_now_know_where_they_are_before_the_first(
    server: ServerProcess, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is cut off before anything happened misses nothing that happens until it is back."""
    client.add_task("One", task_id="T-1")
    got: list[Any] = []
    back = threading.Event()
    cut = threading.Event()
    connected = threading.Event()

    feed = EventReader.feed

    def noted(reader: EventReader, line: str) -> EventFacts | None:
        found = feed(reader, line)
        if reader.last_id is not None:
            connected.set()
        return found

    monkeypatch.setattr(EventReader, "feed", noted)

    def away(_: float) -> None:
        cut.set()
        assert back.wait(DEADLINE_S)

    def read() -> None:
        with Client(server.url) as reader:
            got.append(next(reader.events(task_id="T-2", sleep=away)))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert connected.wait(DEADLINE_S)
    server.kill()
    assert cut.wait(DEADLINE_S)
    server.start()
    with Client(server.url) as other:
        other.add_task("Two", task_id="T-2")
    back.set()
    thread.join(DEADLINE_S)
    assert got
    assert got[0]["task_id"] == "T-2"


def test_event_reader_takes_lines_as_they_come() -> None:
    reader = EventReader(None)
    assert reader.headers() == {}
    lines = [": connected", "id: 4", "", "id: 5", "event: granted", 'data: {"seq": 5,', 'data: "kind": "granted"}', ""]
    found = [event for line in lines if (event := reader.feed(line)) is not None]
    assert found == [{"seq": 5, "kind": "granted"}]
    assert reader.headers() == {"Last-Event-ID": "5"}


def test_async_client_does_the_same(server: ServerProcess) -> None:
    async def scene() -> None:
        async with AsyncClient(server.url) as client:
            await client.add_task("One", task_id="T-1")
            offers = await client.lease("worker.a")
            assert [offer.task_id for offer in offers] == ["T-1"]
            await client.submit_accepted("T-1", "worker.a")
            await client.submit_complete("T-1", "worker.a", artifact_location="s3://bucket/x")
            assert (await client.show_task("T-1"))["status"] == "done"
            with pytest.raises(Refusal):
                await client.heartbeat(offers.offers[0].lease_id)
            async for event in client.events(after=0):
                assert event["seq"] > 0
                break

    asyncio.run(scene())
