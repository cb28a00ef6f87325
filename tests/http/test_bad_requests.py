"""Whatever comes in, the answer is a 4xx with a code, and never a 500."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.http.serving import Api, must, problem, raw

JSON = {"Content-Type": "application/json"}
BODIES = ("/lease", "/receipts", "/tasks", "/lease/lease-1/heartbeat", "/lease/lease-1/release")

NONSENSE: dict[str, bytes] = {
    "half an object": b'{"worker_id": "wor',
    "not json": b"worker_id=worker.1",
    "two values": b"{} {}",
    "not utf-8": b'{"worker_id": "\xff\xfe"}',
    "half a surrogate pair": b'{"worker_id": "worker.\\ud800"}',
    "nul": b'{"worker_id": "worker.\\u0000"}',
    "deep lists": b"[" * 200_000 + b"]" * 200_000,
    "deep objects": b'{"inputs":' * 50_000 + b"{}" + b"}" * 50_000,
    "a huge number": b'{"worker_id": "worker.1", "max_tasks": 1' + b"0" * 10_000 + b"}",
    "a huge exponent": b'{"worker_id": "worker.1", "wait": 1e999999}',
    "not a number": b'{"worker_id": "worker.1", "wait": NaN}',
    "a list": b"[1, 2]",
    "null": b"null",
    "a number": b"17",
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_in_a_body_is_refused(api: Api, path: str, case: str) -> None:
    response = api.http.post(path, content=NONSENSE[case], headers=JSON)
    assert 400 <= response.status_code < 500, response.text
    assert response.json().get("code") or response.json().get("error")


@pytest.mark.parametrize("field", ["inputs", "metadata"])
def test_huge_numbers_and_depth_inside_a_receipts_objects_are_refused(api: Api, field: str) -> None:
    api.add(task_id="T-1")
    api.offer()
    deep = "[" * 100 + "]" * 100
    for inside in ("1" + "0" * 5_000, "1e400", deep, '"\\u0000"'):
        body = f'{{"phase": "accepted", "task_id": "T-1", "{field}": {{"a": {inside}}}}}'
        response = api.http.post("/receipts", content=body, headers=JSON, params={"project": str(api.project)})
        assert 400 <= response.status_code < 500, response.text
    assert api.receipts("T-1") == []


def test_deep_and_huge_inputs_of_a_task_are_refused_or_taken_whole(api: Api) -> None:
    for inside in ("1" + "0" * 5_000, "1e400", "[" * 2_000 + "]" * 2_000):
        body = f'{{"task_summary": "x", "inputs": {{"a": {inside}}}}}'
        response = api.http.post("/tasks", content=body, headers=JSON, params={"project": str(api.project)})
        assert 400 <= response.status_code < 500, response.text
    assert must(api.get("/tasks"))["tasks"] == []


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"]
)
@pytest.mark.parametrize("path", BODIES)
def test_another_content_type_is_refused(api: Api, path: str, content_type: str) -> None:
    response = api.http.post(path, content=b"{}", headers={"Content-Type": content_type})
    problem(response, 415, "unsupported_media_type")


def test_a_content_type_with_a_charset_is_json(api: Api) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    body = json.dumps({"worker_id": "worker.1", "project": api.project})
    assert api.http.post("/lease", content=body, headers=headers).status_code == 204


@pytest.mark.parametrize("path", BODIES)
def test_a_body_over_the_limit_is_refused(api: Api, path: str) -> None:
    body = b'{"worker_id": "' + b"x" * (16 * 1024 * 1024) + b'"}'
    problem(api.http.post(path, content=body, headers=JSON), 413, "body_too_large")


def test_a_body_without_its_length_is_bounded_too(api: Api) -> None:
    def chunks() -> object:
        for _ in range(17):
            yield b" " * (1024 * 1024)

    response = api.http.post("/lease", content=chunks(), headers=JSON)  # type: ignore[arg-type]
    problem(response, 413, "body_too_large")


def test_no_such_route_and_no_such_method(api: Api) -> None:
    problem(api.get("/nowhere"), 404, "route_not_found")
    wrong = api.http.delete("/lease")
    problem(wrong, 405, "method_not_allowed")
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/%00",
        "/tasks/%ff%fe",
        "/tasks/..",
        "/receipts/%E2%80%AE",
        "/lease?worker_id=%00",
        "/tasks?search=%00",
        "/tasks?status=",
        "/tasks?limit=99999999999999999999",
        "/tasks?after=1e5",
        "/receipts?since=0000-00-00T00:00:00Z",
        "/receipts/verify?task_id=%20",
        "/events?after=-1",
        "/events?task_id=%00",
        "/obligations?project=%F0%9F%92%A9",
        "/health?x=" + "y" * 10_000,
    ],
)
def test_odd_addresses_are_answered(api: Api, path: str) -> None:
    response = api.http.get(path) if "/events" not in path else events_head(api, path)
    assert response.status_code < 500, response.text


def events_head(api: Api, path: str) -> httpx.Response:
    with api.http.stream("GET", path) as response:
        return response


@pytest.mark.parametrize("value", ["wait=", "wait=x", "wait=-1", "wait=1e9", "wait=nan", "wait=inf"])
def test_a_bad_preference_is_refused(api: Api, value: str) -> None:
    body = {"worker_id": "worker.1", "project": api.project}
    problem(api.post("/lease", body, Prefer=value), 400, "invalid_argument")


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "9" * 30])
def test_a_bad_incarnation_is_refused(api: Api, value: str) -> None:
    api.add(task_id="T-1")
    lease_id = api.take()["lease_id"]
    problem(api.heartbeat(lease_id, **{"Tenure-Incarnation": value}), 400, "invalid_argument")


def test_bytes_that_are_not_http_end_the_connection(api: Api) -> None:
    assert raw(api.server, b"\x16\x03\x01\x02\x00 hello\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert must(api.get("/health"))["status"] == "ok"


def test_a_server_that_was_sent_nonsense_has_logged_no_failure(api: Api) -> None:
    assert "failed" not in api.server.logged()
