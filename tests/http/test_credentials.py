"""Who is served: this machine alone without tokens; with tokens, each agent for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.serving import Api, Server, must, problem, raw

OPERATOR, ONE, TWO = "token-of-the-operator", "token-of-worker-one", "token-of-worker-two"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Server]:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({OPERATOR: "*", ONE: "worker.1", TWO: "worker.2"}))
    with Server(tmp_path / "tenure.db", "--tokens", str(tokens)) as server:
        yield server


def speaking(server: Server, token: str) -> Api:
    return Api(server, None, Authorization=f"Bearer {token}")


def test_guarded_server_refuses_who_has_no_token(guarded: Server) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong-token-altogether"}, {"Authorization": f"Basic {ONE}"}):
        with Api(guarded, None, **headers) as api:
            for response in (api.get("/health"), api.poll(), api.get("/nowhere"), api.get("/openapi.json")):
                problem(response, 401, "unauthorized")
                assert response.headers["www-authenticate"] == "Bearer"


def test_token_of_an_agent_speaks_for_that_agent_only(guarded: Server) -> None:
    with speaking(guarded, OPERATOR) as operator, speaking(guarded, ONE) as one, speaking(guarded, TWO) as two:
        for number in (1, 2):
            operator.add(task_id=f"T-{number}")
        problem(two.poll("worker.1"), 403, "not_permitted")
        offer = one.offer("worker.1")
        problem(two.get("/lease", worker_id="worker.1"), 403, "not_permitted")
        assert len(must(one.get("/lease", worker_id="worker.1"))["leases"]) == 1
        two.offer("worker.2")
        lease_id = offer["lease_id"]
        # Neither under the other's name nor under its own, with the lease's id or without.
        problem(two.receipt("accepted", "T-1", "worker.1"), 403, "not_permitted")
        problem(two.receipt("accepted", "T-1", "worker.1", lease_id=lease_id), 403, "not_permitted")
        problem(two.receipt("accepted", "T-1", "worker.2", lease_id=lease_id), 403, "not_holder")
        problem(two.post("/receipts", {"phase": "accepted", "lease_id": lease_id}), 403, "not_holder")
        problem(two.post("/receipts", {"phase": "accepted", "task_id": "T-1"}), 403, "not_holder")
        problem(two.heartbeat(lease_id), 403, "not_holder")
        problem(two.post(f"/lease/{lease_id}/release"), 403, "not_holder")
        one.accept("T-1", "worker.1")
        problem(two.heartbeat(lease_id), 403, "not_holder")
        problem(two.heartbeat(lease_id, {"progress": 10}), 403, "not_holder")
        problem(two.complete("T-1", "worker.2"), 403, "not_holder")
        must(one.heartbeat(lease_id))
        assert must(one.complete("T-1", "worker.1"), 201)["source_system"] == "worker.1"
        assert [receipt["source_system"] for receipt in operator.receipts("T-1")] == ["worker.1", "worker.1"]


def test_receipt_without_a_source_is_of_the_token_that_sent_it(guarded: Server) -> None:
    with speaking(guarded, ONE) as one:
        one.add(task_id="T-1")
        one.offer("worker.1")
        receipt = must(one.post("/receipts", {"phase": "accepted", "task_id": "T-1"}), 201)
        assert receipt["source_system"] == "worker.1"


def test_token_of_an_operator_speaks_for_anyone(guarded: Server) -> None:
    with speaking(guarded, OPERATOR) as operator:
        operator.add(task_id="T-1")
        offer = operator.take("worker.1")
        must(operator.heartbeat(offer["lease_id"]))
        must(operator.complete("T-1", "worker.1"), 201)


def test_token_of_an_agent_sees_gates_and_has_nothing_sent_again(guarded: Server) -> None:
    with speaking(guarded, OPERATOR) as operator, speaking(guarded, ONE) as one:
        assert must(one.get("/gates"))["gates"] == []
        problem(one.post("/gates/resend", {}), 403, "not_permitted")
        problem(operator.post("/gates/resend", {}), 404, "gate_not_found")


def test_guarded_server_may_be_called_by_any_name(guarded: Server) -> None:
    head = f"GET /health HTTP/1.1\r\nHost: tenure.example\r\nAuthorization: Bearer {ONE}\r\nConnection: close\r\n\r\n"
    assert raw(guarded, head.encode()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7420", "127.0.0.1:1", "[::1]:7420", "[::1]"])
def test_open_server_answers_to_the_loopbacks_names(shared: Server, host: str) -> None:
    head = f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert raw(shared, head.encode()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "host", ["", "tenure.example", "127.0.0.1.example", "localhost.example:7420", "169.254.169.254", "0.0.0.0", "[::2]"]
)
def test_open_server_does_not_answer_to_another_name(shared: Server, host: str) -> None:
    answer = raw(shared, f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403")
    assert b'"code":"not_permitted"' in answer


@pytest.mark.parametrize("origin", ["https://tenure.example", "null", "http://localhost.example", "file://"])
def test_open_server_refuses_pages_from_elsewhere(api: Api, origin: str) -> None:
    # A page can send this without asking anyone first: no content type, and the loopback's own name.
    response = api.http.post("/tasks", content=b'{"task_summary": "x"}', headers={"Origin": origin})
    problem(response, 403, "not_permitted")
    assert must(api.get("/health", project=""))["status"] == "ok"


def test_open_server_serves_pages_of_this_machine(api: Api) -> None:
    assert api.http.get("/health", headers={"Origin": "http://localhost:3000"}).status_code == 200


def test_open_server_believes_no_forwarded_address(api: Api) -> None:
    assert api.http.get("/health", headers={"X-Forwarded-For": "10.0.0.1"}).status_code == 200


# As a process of another user: only the standard library, already imported, since that user may read nothing of ours.
STRANGER = """
import os, socket, sys
os.setgid(65533), os.setuid(int(sys.argv[2]))
peer = socket.socket()
peer.settimeout(60)
peer.connect(("127.0.0.1", int(sys.argv[1])))
peer.sendall(b"GET /health HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n")
answer = b""
while part := peer.recv(65536):
    answer += part
sys.stdout.buffer.write(answer)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can act as another user")
def test_server_without_tokens_refuses_another_user_of_this_machine(server: Server) -> None:
    def asked_by(uid: int) -> str:
        words = [sys.executable, "-c", STRANGER, str(server.port), str(uid)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout

    assert asked_by(0).startswith("HTTP/1.1 200 ")
    refused = asked_by(65533)
    assert refused.startswith("HTTP/1.1 403 ")
    assert "only the user who started the server" in refused
