"""What the engine writes for one story, byte for byte: every receipt with its hash, every event with its data, and how
every task and lease stands in the end.

A ledger is compared with copies of itself that are kept elsewhere, and its chains are verified years later. So a
receipt's text must not change because somebody made the writing of it faster or its source nicer. golden.txt holds a
line for each; one that differs is a change of the format, to be made on purpose or not at all.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import agents, change, claims, endings, liveness, observe, projects, receipts, recovery, tasks
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import lease, task
from tests.support import add, join, ok

GOLDEN = Path(__file__).with_name("golden.txt")
WORKER = "worker.codegen-1"
LONG = "Ein langer Text, größer als ein Feld für Namen. " * 10


def test_story_given_one_seed_leaves_the_same_ledger_and_events(store: SqliteStore, clock: ManualClock) -> None:
    store.random = Random(1).randbytes
    for chapter in (_claimed, _offered, _recovered, _given_up, _by_others, _elsewhere):
        clock.advance(1.234)
        chapter(store, clock)
    ledger = ok(receipts.list_receipts(store, limit=1_000))
    told = ok(observe.events(store, limit=1_000))
    lines = [f"{one.task_id} {one.position} {one.prev_hash} {one.hash} {one.dedupe_key} {one.body}" for one in ledger]
    lines += [f"{one.at_ms} {one.kind} {one.task_id} {one.lease_id} {one.agent_id} {one.data}" for one in told]
    lines += [repr(task(store, task_id)) for task_id in dict.fromkeys(one.task_id for one in told) if task_id]
    lines += [repr(lease(store, lease_id)) for lease_id in dict.fromkeys(one.lease_id for one in told) if lease_id]
    # Not splitlines, which takes U+2028 for the end of a line.
    assert lines == GOLDEN.read_text(encoding="utf-8").split("\n")[:-1]
    assert {one.phase for one in ledger} == {"accepted", "progress", "complete", "escalate"}
    assert ok(receipts.verify(store)).faults == ()


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"token": 1_767_225_601_234, "profile": "cli", "message": "", "unlocked": []},
        {"message": 'It says "yes".'},
        {"message": "C:\\temp"},
        {"message": "größer"},
        {"message": "two\nlines\x7f"},
        {"flag": True, "share": 0.5, "nothing": None, "names": ["F001"], "none": {}},
    ],
)
def test_event_data_is_compact_json_whatever_it_holds(data: dict[str, Any]) -> None:
    assert change._compact(data) == json.dumps(data, separators=(",", ":"))


def _claimed(store: SqliteStore, clock: ManualClock) -> None:
    """By name and from the queue, by an agent and from a command line; with and without an outcome."""
    join(store, "A1")
    add(store, "F001", title='A "quoted" \\ title, größer')
    add(store, "F002", body="Two\nlines\tand a tab", inputs={"b": [1, 2.5, None], "a": {"é": "\u2028"}})
    add(store, "F003", title=LONG[:400], kind="code.generate", principal_ai="delegate.root", priority="high")
    add(store, "F004", after=["F003"], expected_outcome_kind="mixed", expected_artifact_mime="text/x-python")
    outcomes: list[dict[str, Any]] = [
        {},
        {"outcome_text": "Fertig: größer"},
        {"artifact_location": "s3://b/k"},
        {"message": "Both", "outcome_text": "x"},
    ]
    for place, outcome in enumerate(outcomes):
        profile = ("agent", "cli")[place % 2]
        held = ok(claims.claim_next(store, agent_id="A1", profile=profile)).lease
        clock.advance(0.5)
        ok(liveness.renew(store, lease_id=held.lease_id))
        clock.advance(2)
        if place == 2:
            ok(liveness.report(store, lease_id=held.lease_id, progress=50, message="half\nway"))
        ok(endings.complete(store, lease_id=held.lease_id, **outcome))


def _offered(store: SqliteStore, clock: ManualClock) -> None:
    """By a worker: every phase as a receipt that it sends."""
    for number, key in enumerate(("NA", "key-1", None)):
        add(
            store, f"W{number}", kind="code.generate", principal_ai="delegate.root", expected_artifact_mime="text/plain"
        )
        held = ok(claims.offer(store, agent_id=WORKER, server_id="node-1", capabilities=["python"]))[0].lease
        clock.advance(1)
        about = {"task_id": f"W{number}", "source_system": WORKER, "dedupe_key": key}
        ok(receipts.submit_receipt(store, body={"phase": "accepted", "metadata": {"z": 1, "a": "é"}, **about}))
        ok(liveness.renew(store, lease_id=held.lease_id, server_id="node-1", expect_silence_s=5))
        said = {"phase": "progress", "progress": 30, "message": "Läuft", **about, "dedupe_key": None}
        ok(receipts.submit_receipt(store, body=said))
        ok(receipts.submit_receipt(store, body={"phase": "progress", **about, "dedupe_key": None}))
        clock.advance(1)
        done = (
            {"status": "success", "outcome_kind": "artifact_pointer", "artifact_location": "s3://b/k"},
            {"status": "failure", "retry_requested": True, "message": "No key"},
            {"status": "canceled", "completed_at": "2026-01-01T00:00:00+01:00", "receipt_id": "R-of-the-worker"},
        )[number]
        key = None if key is None else f"{key}-done"
        ok(receipts.submit_receipt(store, body={"phase": "complete", **about, **done, "dedupe_key": key}))
    add(store, "W3")
    ok(claims.offer(store, agent_id=WORKER))
    about = {"task_id": "W3", "source_system": WORKER}
    ok(receipts.submit_receipt(store, body={"phase": "accepted", "recipient_ai": "worker.codegen", **about}))
    needs = {"escalation_class": "capability", "escalation_reason": "needs a GPU"}
    ok(receipts.submit_receipt(store, body={"phase": "escalate", **needs, **about}))


def _recovered(store: SqliteStore, clock: ManualClock) -> None:
    """A holder that falls silent, comes back and finishes; an offer that nobody takes up."""
    add(store, "R1", title="Left behind")
    held = ok(claims.claim(store, task_id="R1", agent_id="A1", profile="agent")).lease
    ok(liveness.report(store, lease_id=held.lease_id, progress=10, message="begun"))
    clock.advance(3_600)
    assert ok(recovery.advance(store)).recovered == 1
    kept = ok(liveness.report(store, task_id="R1", agent_id="A1", progress=20))
    assert kept.healed
    ok(endings.complete(store, lease_id=kept.lease.lease_id))
    add(store, "R2")
    ok(claims.offer(store, agent_id=WORKER))
    clock.advance(3_600)
    ok(recovery.advance(store))


def _given_up(store: SqliteStore, clock: ManualClock) -> None:
    """Released, blocked, revoked."""
    for number in range(3):
        held = ok(claims.claim(store, task_id="R2", agent_id="A1")).lease
        clock.advance(1)
        if number == 0:
            ok(endings.release(store, lease_id=held.lease_id, message="Not mine"))
        elif number == 1:
            ok(endings.block(store, lease_id=held.lease_id, reason="No access", severity="high"))
            ok(tasks.unblock_task(store, task_id="R2"))
        else:
            ok(endings.revoke(store, task_id="R2", reason="preempted", by="boss"))


def _by_others(store: SqliteStore, clock: ManualClock) -> None:
    """An operator finishes what nobody holds, under a supervisor."""
    ok(projects.configure(store, document={"tenure": {"supervisor": "the.boss"}}))
    ok(endings.complete(store, task_id="R2", agent_id="op", force=True, outcome_text="By hand"))
    add(store, "O1", assigned_to="somebody")
    ok(endings.complete(store, task_id="O1", force=True))
    add(store, "O2", slots=2, max_attempts=1)
    for agent_id in ("A1", "A2"):
        ok(claims.claim(store, task_id="O2", agent_id=agent_id))
    clock.advance(86_400)
    ok(recovery.advance(store))


def _elsewhere(store: SqliteStore, clock: ManualClock) -> None:
    """A receipt about a task that another system has."""
    ok(projects.configure(store, document={"tenure": {"foreign_receipts": True}}))
    body = {
        "phase": "accepted",
        "task_id": "X-1",
        "source_system": "other.1",
        "task_summary": "Theirs",
        "inputs": {"n": 1},
    }
    ok(receipts.submit_receipt(store, body=body))
    assert isinstance(receipts.submit_receipt(store, body={**body, "status": "success"}), Refused)
    ok(agents.depart(store, agent_id="A1"))
