"""Receipts made at random: the accepted ones satisfy the rules, the refused ones leave no trace."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tenure import app
from tenure.core import receipts as rules
from tenure.engine import projects
from tests.http.serving import Api, Server, must
from tests.support import ok

TABLES = ("tasks", "leases", "receipts", "events", "messages", "handoffs", "timers")
# What the server itself adds to a handoff, in its own time, after it has looked at the worktree.
LOOKED = {"git", "instructions", "look", "looked_at_ms"}
# The worker's rules, with a day for everything: no timer of the server's may fire while a receipt is judged.
PATIENT = {"base": "worker", "ttl_s": 86_400, "requeue_delay_s": 86_400}

words = st.sampled_from(
    [
        *rules.PHASES,
        *rules.COMPLETE_STATUSES,
        *rules.OUTCOME_KINDS,
        *rules.ESCALATION_CLASSES,
        *rules.ESCALATION_REASONS,
        "NA",
        "TBD",
        "",
        " ",
        "worker.fuzz",
        "worker.other",
        "s3://bucket/result.py",
        "2026-01-04T15:45:00Z",
        "\x00",
        "\u202e",
        "x" * 300,
    ]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | words
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
fields = st.sampled_from([*rules.FIELDS, "colour", ""])
# Most of what is sent begins as a valid receipt of some phase, or few would be accepted.
valid = st.sampled_from(
    [
        {"phase": "accepted"},
        {"phase": "progress", "progress": 50},
        {"phase": "complete", "status": "success", "outcome_kind": "none"},
        {"phase": "complete", "status": "failure"},
        {"phase": "complete", "status": "success", "outcome_kind": "response_text", "outcome_text": "It is done"},
        {"phase": "escalate", "escalation_class": "owner", "escalation_reason": "unclear", "escalation_to": "a.b"},
    ]
)
plain = st.fixed_dictionaries(
    {},
    optional={
        "message": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50),
        "metadata": st.dictionaries(st.text(st.characters(codec="ascii", exclude_characters="\0")), st.integers(0, 9)),
        "artifact_size_bytes": st.sampled_from([0, None]),
        "escalation_class": st.sampled_from(["NA", None]),
        "source_system": st.sampled_from(["worker.fuzz", "NA", None]),
        "attempt": st.integers(0, 10),
        "retry_requested": st.booleans(),
    },
)
junk = st.dictionaries(fields, leaves | words | values, min_size=1, max_size=2)
bodies = st.builds(
    lambda base, more: {**base, **more},
    st.one_of(valid, valid, valid, valid, valid, st.just({})),
    st.one_of(plain, plain, junk),
)


@pytest.fixture(scope="module")
def fuzzing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, sqlite3.Connection]]:
    with Server(tmp_path_factory.mktemp("fuzzing") / "tenure.db") as server, Api(server) as api:
        store = ok(app.open_store(server.store))
        ok(projects.configure(store, document={"profiles": {"patient": PATIENT}}))
        store.close()
        connection = sqlite3.connect(server.store)
        yield api, connection
        connection.close()
        assert must(api.get("/receipts/verify"))["intact"] is True
        assert "failed" not in server.logged()


def state(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    return {table: rows(connection, table) for table in TABLES}


def rows(connection: sqlite3.Connection, table: str) -> list[Any]:
    columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
    kept = [column for column in columns if table != "handoffs" or column not in LOOKED]
    return connection.execute(f"SELECT {', '.join(kept)} FROM {table} ORDER BY 1, 2").fetchall()


def nan_free(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return False
    return True


@given(body=bodies.filter(nan_free), fitting=st.sampled_from([True, True, True, False]))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
def test_receipt_made_at_random(fuzzing: tuple[Api, sqlite3.Connection], body: dict[str, Any], fitting: bool) -> None:
    api, connection = fuzzing
    api.add(principal_ai="delegate.root")
    task_id = api.offer("worker.fuzz", profile="patient")["task"]["task_id"]
    # A receipt fits an offer if it accepts it, and a held lease otherwise.
    if (body.get("phase") == "accepted") is not fitting:
        api.accept(task_id, "worker.fuzz")
    body = {"task_id": task_id, **body}
    before = state(connection)
    response = api.post("/receipts", body)
    assert response.status_code < 500, response.text
    event(f"{body.get('phase') if body.get('phase') in rules.PHASES else 'none'} {response.status_code}")
    if response.status_code == 201:
        recorded = response.json()
        del recorded["chain"]
        assert recorded.keys() == rules.FIELDS.keys()
        assert rules.check_shape(recorded) is None
        assert rules.check_phase(recorded) is None
        assert recorded["task_id"] == task_id
        assert recorded["source_system"] == "worker.fuzz"
        assert len(state(connection)["receipts"]) == len(before["receipts"]) + 1
    elif response.status_code >= 400:
        after = state(connection)
        assert {name for name in TABLES if after[name] != before[name]} == set()
