"""The link to a gate that misbehaves: faults that a real one cannot be made to produce, from a labelled fake."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import app
from tenure.engine import claims
from tenure.engine.projects import configure
from tenure.gates.client import GateClient
from tenure.gates.receiptgate import BACKOFF_S
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import data, events, said, shown
from tests.gates.support import WITHIN_S, WORKER, Ours, faking, ledger, report, until, work
from tests.support import add, ok, take

NOTHING: tuple[int, Any] = (200, {"receipts": []})


class Recording:
    """A pure ledger that dedupes by dedupe_key alone and gives receipts ids of its own, with faults on top."""

    def __init__(self, fault: Callable[[Any], tuple[int, Any] | str | None] = lambda body: "none") -> None:
        self.fault = fault
        self.held: list[dict[str, Any]] = []

    def __call__(self, method: str, path: str, body: Any) -> tuple[int, Any] | None:
        if method == "GET":
            after = int(path.partition("after=")[2].partition("&")[0])
            return 200, {"receipts": [one for one in self.held if one["chain"]["seq"] > after]}
        answer = self.fault(body)
        if isinstance(answer, tuple):
            return answer
        self.hold(body)
        return None if answer is None else (201, {})

    def hold(self, body: dict[str, Any]) -> None:
        if body["dedupe_key"] not in [one["dedupe_key"] for one in self.held]:
            seq = len(self.held) + 1
            self.held.append({**body, "receipt_id": f"R{seq}", "chain": {"seq": seq}})

    def keys(self) -> list[str]:
        return [one["dedupe_key"] for one in self.held]


@pytest.mark.parametrize("status", [500, 502, 503, 401, 403, 404, 405, 408, 429, 302])
def test_emit_refused_as_a_whole_is_sent_again_and_nothing_is_parked(store: SqliteStore, status: int) -> None:
    failing = [True]
    ledger_of_the_fake = Recording(lambda body: (status, {"error": "no"}) if failing[0] else "none")
    with faking(ledger_of_the_fake) as fake:
        side = Ours(store, fake.url)
        work(store, "F001")
        for _ in range(3):
            side.later()
        assert side.facts()["error"] == f"HTTP {status} no"
        assert side.facts()["parked"] == 0
        failing[0] = False
        side.later()
        assert ledger_of_the_fake.keys() == ledger(store)
        side.close()


def test_emit_backs_off_for_sending_alone_while_reading_goes_on(store: SqliteStore) -> None:
    gate = Recording(lambda body: (500, {}))
    gate.hold({**report("F001"), "dedupe_key": "k"})
    with faking(gate) as fake:
        side = Ours(store, fake.url)
        work(store, "F000")
        add(store, "F001")
        side.offer()
        assert side.later(0) == BACKOFF_S[0]
        assert said(store) == ["accepted"]
        side.close()


@pytest.mark.parametrize("status", [400, 409, 410, 413, 415, 422])
def test_emit_a_poison_receipt_is_parked_and_does_not_stop_the_others(store: SqliteStore, status: int) -> None:
    work(store, "F001", "F002")
    poison = ledger(store)[2]
    gate = Recording(lambda body: (status, {"code": "bad"}) if body["receipt_id"] == poison else "none")
    gate_or_unknown = lambda method, path, body: (  # noqa: E731
        (404, {}) if path.startswith(f"/receipts/{poison}") else gate(method, path, body)
    )
    with faking(gate_or_unknown) as fake:
        side = Ours(store, fake.url)
        side.later()
        assert gate.keys() == [one for one in ledger(store) if one != poison]
        assert side.facts()["parked"] == 1
        (told,) = events(store, "receipt_parked")
        assert data(told)["reason"] == f"HTTP {status} bad"
        side.close()


def test_emit_a_conflict_with_the_very_same_receipt_counts_as_delivered(store: SqliteStore) -> None:
    held: dict[str, Any] = {}

    def conflicting(method: str, path: str, body: Any) -> tuple[int, Any] | None:
        if method == "POST":
            held[body["receipt_id"]] = {**body, "project_id": "theirs"}
            return 409, {"error": "exists"}
        wanted = path.partition("?")[0].removeprefix("/receipts/")
        return (200, held[wanted]) if wanted in held else NOTHING

    with faking(conflicting) as fake:
        side = Ours(store, fake.url)
        work(store, "F001")
        side.later()
        assert (side.facts()["parked"], side.facts()["sent"]) == (0, 2)
        side.close()


def test_emit_with_answers_lost_after_the_effect_leaves_each_receipt_once(store: SqliteStore) -> None:
    lost: list[str] = []

    def lose_the_first_answer(body: Any) -> str | None:
        if body["receipt_id"] in lost:
            return "none"
        lost.append(body["receipt_id"])
        return None

    gate = Recording(lose_the_first_answer)
    with faking(gate) as fake:
        side = Ours(store, fake.url)
        work(store, "F001", "F002")
        for _ in range(6):
            side.later()
        assert gate.keys() == ledger(store)
        side.close()


def test_emit_to_a_gate_that_hangs_gives_up_after_its_time_and_loses_nothing(store: SqliteStore) -> None:
    free = threading.Event()

    def hang(body: Any) -> str:
        free.wait(2 * WITHIN_S)
        return "none"

    gate = Recording(hang)
    with faking(gate) as fake:
        side = Ours(store, fake.url, answer_s=2.0)
        work(store, "F001")
        began = time.monotonic()
        assert side.tick() == BACKOFF_S[0]
        assert time.monotonic() - began < WITHIN_S, "the gate hangs for longer"
        assert "Timeout" in side.facts()["error"]
        free.set()
        # The gate answers now, in whatever time the machine takes.
        side.clients[0]._http.timeout = WITHIN_S
        side.later()
        assert gate.keys() == ledger(store)
        side.close()


def test_emit_sends_the_token_and_keeps_it_nowhere(store: SqliteStore) -> None:
    with faking(Recording()) as fake:
        side = Ours(store, fake.url, token="s3cret-s3cret-s3cret")
        work(store, "F001")
        side.later()
        assert {headers["Authorization"] for headers in fake.headers} == {"Bearer s3cret-s3cret-s3cret"}
        side.close()
    dump = "\n".join(store.connection.iterdump())
    assert "s3cret" not in dump
    assert "s3cret" not in str(side.gate.facts())


def test_emit_a_receipt_whose_row_was_damaged_is_parked(store: SqliteStore) -> None:
    work(store, "F001", "F002")
    store.connection.execute("UPDATE receipts SET body = 'x' || body WHERE seq = 2")
    gate = Recording()
    with faking(gate) as fake:
        side = Ours(store, fake.url)
        side.later()
        assert len(gate.keys()) == 3
        assert side.facts()["parked"] == 1
        side.close()


# -- reading ----------------------------------------------------------------------------------------------------------


def test_read_our_own_under_ids_of_the_gate_are_not_applied_again(store: SqliteStore) -> None:
    gate = Recording()
    with faking(gate) as fake:
        side = Ours(store, fake.url)
        work(store, "F001")
        for _ in range(3):
            side.later()
        assert len(gate.held) == 2
        assert said(store) == ["accepted", "complete/success"]
        assert events(store, "gate_refused") == []
        assert side.facts()["read_seq"] == 2
        side.close()


ANSWERS: list[Any] = [
    (200, []),
    (200, {"receipts": 5}),
    (200, {"receipts": [5]}),
    (200, {"receipts": [{"chain": {}}]}),
    (200, {"receipts": [{"chain": {"seq": 0}}]}),
    (200, {"receipts": [{"chain": {"seq": 2}}, {"chain": {"seq": 1}}]}),
    (500, {}),
    (404, {}),
    None,
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_read_an_answer_that_is_none_backs_off_and_moves_no_cursor(store: SqliteStore, answer: Any) -> None:
    with faking(lambda method, path, body: answer if method == "GET" else (201, {})) as fake:
        side = Ours(store, fake.url)
        work(store, "F001")
        assert [side.later(60) for _ in range(6)] == [*BACKOFF_S, BACKOFF_S[-1]]
        assert side.facts()["read_seq"] == 0
        assert side.facts()["sent_seq"] == 2, "sending goes on"
        side.close()


# What a gate may say in a receipt about our task F001, and whether that is told as refused.
ODD = [
    ({"receipt_id": "\ud800"}, True),
    ({"receipt_id": 5}, True),
    ({"source_system": "\ud800"}, True),
    ({"source_system": ["w"]}, True),
    ({"dedupe_key": {}}, True),
    ({"message": 5}, True),
    ({"lease_id": "no-such-lease"}, True),
    ({"task_id": "\ud800"}, False),
    ({"task_id": None}, False),
    ({"phase": ["accepted"]}, False),
    ({"phase": None}, False),
]


@pytest.mark.parametrize(("odd", "told"), ODD, ids=[str(odd) for odd, _ in ODD])
def test_read_an_odd_receipt_changes_nothing_and_holds_nobody_up(
    store: SqliteStore, odd: dict[str, Any], told: bool
) -> None:
    first = {**report("F001"), "receipt_id": "R1", "dedupe_key": "NA", "chain": {"seq": 7}, **odd}
    second = {**report("F001"), "receipt_id": "R2", "extra": "a field of the gate", "chain": {"seq": 9}}
    with faking(
        lambda method, path, body: (200, {"receipts": [first, second]} if "after=0" in path else NOTHING[1])
    ) as fake:
        side = Ours(store, fake.url)
        add(store, "F001")
        side.offer()
        side.later()
        assert len(events(store, "gate_refused")) == told
        assert said(store) == ["accepted"]
        assert shown(store).status == "in_progress"
        assert side.facts()["read_seq"] == 9
        side.close()


# -- beside the other monitors ----------------------------------------------------------------------------------------


def test_loop_a_gate_that_hangs_delays_no_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It would wait for the gate for longer than anybody here waits for the recovery.
    monkeypatch.setattr(GateClient.__init__, "__kwdefaults__", {"answer_s": 5 * WITHIN_S})
    asked, free = threading.Event(), threading.Event()

    def hang(method: str, path: str, body: Any) -> tuple[int, Any]:
        asked.set()
        free.wait(5 * WITHIN_S)
        return NOTHING

    store = SqliteStore(str(tmp_path / "ours.db"))
    with faking(hang) as fake:
        ok(configure(store, document={"tenure": {"receiptgate_url": fake.url}}))
        add(store, "F001")
        take(store, WORKER, profile="worker")
        loop = app.monitors(store, {"TENURE_RECEIPTGATE_TOKEN": " token "})
        loop.start()
        assert asked.wait(WITHIN_S)
        add(store, "F002")
        ok(claims.claim(store, task_id="F002", agent_id="worker.w2", profile="worker", ttl_s=1))
        until(lambda: events(store, "recovered"))
        assert "receiptgate" in [status.name for status in loop.statuses()]
        free.set()
        loop.stop()
        assert fake.headers[0]["Authorization"] == "Bearer token"
    store.close()
