"""The document is true: every route is in it, and no answer lies outside it, whatever is sent (schemathesis)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tenure import app
from tenure.engine import projects
from tenure.surfaces.http.openapi import OPERATIONS, openapi
from tenure.surfaces.http.server import ROUTES
from tests.gates.support import faking
from tests.http.serving import ANSWERS_WITHIN_S, Api, Server, must
from tests.support import ok

EXAMPLES = 40
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with something of everything, so that valid requests find something to be valid about."""
    path = tmp_path_factory.mktemp("fuzzed") / "tenure.db"
    with faking(_refusing) as gate, Server(path) as server, Api(server) as api:
        store = ok(app.open_store(server.store))
        ok(projects.configure(store, document={"tenure": {"receiptgate_url": gate.url}}))
        store.close()
        for number in range(20):
            api.add(task_id=f"T-{number}", requires=["python"] if number % 2 else [], inputs={"a": [1, "x", None]})
        api.take("worker.1")
        must(api.complete("T-0"), 201)
        api.take("worker.2")
        api.offer("worker.3")
        yield server
        assert "failed" not in server.logged()


def _refusing(method: str, path: str, body: Any) -> tuple[int, Any]:
    """A gate that will take nothing: every receipt is parked."""
    return (422, {"code": "invalid_receipt"}) if method == "POST" else (200, {"receipts": []})


def described() -> Any:
    document = openapi()
    # A stream has no end; its answers have tests of their own.
    del document["paths"]["/events"]
    # Nobody waits here: a poll that does would hold up the test.
    document["components"]["schemas"]["Lease"]["properties"]["wait"] = {"type": "null"}
    return schemathesis.openapi.from_dict(document)


schema = described()


@schema.parametrize()  # type: ignore[untyped-decorator]
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
def test_no_answer_lies_outside_the_document(case: Any, fuzzed: Server) -> None:
    case.call_and_validate(base_url=fuzzed.url, checks=list(CHECKS), timeout=ANSWERS_WITHIN_S)


def test_gates_of_the_fuzzed_server_have_something_to_show(fuzzed: Server) -> None:
    with Api(fuzzed) as api:
        (gate,) = must(api.get("/gates"))["gates"]
        assert gate["parked"] + gate["resending"] + gate["waiting"] >= 3


def test_every_route_is_in_the_document_and_no_other() -> None:
    served = {(method.lower(), route.path) for route in ROUTES for method in route.methods or () if method != "HEAD"}
    assert served - {("get", "/openapi.json"), ("get", "/docs")} == OPERATIONS.keys()


def test_every_reference_of_the_document_resolves() -> None:
    document = openapi()
    names = document["components"]["schemas"].keys()

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from ([value["$ref"]] if "$ref" in value else [])
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    used = {reference.removeprefix("#/components/schemas/") for reference in walk(document)}
    assert used <= names


def test_document_says_what_the_server_serves(api: Api, tmp_path: Path) -> None:
    assert must(api.get("/openapi.json")) == openapi()
