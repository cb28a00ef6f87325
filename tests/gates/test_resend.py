"""Receipts that a real gate refused for good, and what becomes of them when an operator has them sent again.

The gate refuses for good what is about a task that it has itself under the same name: such a receipt would have to act
on that task, and there is no such lease. Once that task is deleted there, the receipt is one about a task elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenure.clock import ManualClock
from tenure.engine import tasks
from tenure.engine.outbox import GateView, list_gates, resend_receipts
from tenure.engine.receipts import list_receipts
from tenure.gates.receiptgate import NOTE_HEARD_S
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import data, done, events, shown
from tests.gates.support import WITHIN_S, WORKER, Deaf, Ours, Server, ledger, report, serving, until, work
from tests.support import add, ok, opened_on, take

TENURE = str(Path(sys.executable).with_name("tenure"))


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Any]:
    opened = opened_on(request.param, tmp_path, clock)
    yield opened
    opened.close()


def obstruct(gate: Server, *task_ids: str) -> None:
    """The gate gets tasks of its own under these names."""
    for task_id in task_ids:
        gate.post("/tasks", {"task_id": task_id, "task_summary": "Theirs"})


def clear(gate: Server, *task_ids: str) -> None:
    """Its operator deletes them."""
    with contextlib.closing(SqliteStore(str(gate.path))) as theirs:
        for task_id in task_ids:
            ok(tasks.delete_task(theirs, task_id=task_id))


def view(store: SqliteStore) -> GateView:
    (found,) = ok(list_gates(store))
    return found


# -- sending again ----------------------------------------------------------------------------------------------------


def test_resend_after_the_cause_is_gone_delivers_each_receipt_once(ours: Ours, gate: Server) -> None:
    obstruct(gate, "F001")
    work(ours.store, "F001", "F002")
    ours.later()
    refused, taken = ledger(ours.store)[:2], ledger(ours.store)[2:]
    assert gate.ids() == taken, "what is refused for good holds nobody up"
    seen = view(ours.store)
    assert (seen.parked, seen.resending, seen.waiting, seen.error) == (2, 0, 0, "")
    assert {one.receipt_id for one in seen.parked_receipts} == set(refused)
    assert {(one.task_id, one.reason.split(":")[0]) for one in seen.parked_receipts} == {
        ("F001", "HTTP 404 lease_not_found")
    }
    clear(gate, "F001")
    asked = ok(resend_receipts(ours.store))
    assert (asked.receipts, asked.gate.parked, asked.gate.resending) == (2, 0, 2)
    ours.later()
    assert gate.ids() == taken + refused, "in the order of our ledger among themselves, behind what was sent before"
    assert (view(ours.store).parked, view(ours.store).resending) == (0, 0)
    assert [data(event)["receipt_id"] for event in events(ours.store, "receipt_unparked")] == refused
    assert gate.get("/receipts/verify")["intact"]
    assert ok(resend_receipts(ours.store)).receipts == 0
    ours.restart()
    ours.later()
    assert len(gate.ids()) == 4


def test_resend_before_the_cause_is_gone_parks_again_and_tells_it_again(ours: Ours, gate: Server) -> None:
    obstruct(gate, "F001")
    work(ours.store, "F001")
    ours.later()
    ok(resend_receipts(ours.store))
    ours.later()
    assert (view(ours.store).parked, view(ours.store).resending) == (2, 0)
    assert len(events(ours.store, "receipt_parked")) == 4
    assert gate.ids() == []


def test_resend_of_one_receipt_leaves_the_others_parked(ours: Ours, gate: Server) -> None:
    obstruct(gate, "F001")
    work(ours.store, "F001")
    ours.later()
    clear(gate, "F001")
    second = ledger(ours.store)[1]
    for _ in range(2):
        assert ok(resend_receipts(ours.store, receipt_id=second)).gate.resending == 1, "asked twice, sent once"
    ours.later()
    assert gate.ids() == [second]
    assert [one.receipt_id for one in view(ours.store).parked_receipts] == ledger(ours.store)[:1]


def test_resend_goes_before_what_waits(ours: Ours, gate: Server) -> None:
    obstruct(gate, "F001")
    work(ours.store, "F001")
    ours.later()
    clear(gate, "F001")
    work(ours.store, "F002")
    assert view(ours.store).waiting == 2
    ok(resend_receipts(ours.store))
    ours.later()
    assert gate.ids() == ledger(ours.store)
    assert view(ours.store).waiting == 0


def test_resend_of_an_acceptance_after_its_completion_is_recorded_behind_it_and_changes_nothing(
    ours: Ours, gate: Server
) -> None:
    obstruct(gate, "F001")
    add(ours.store, "F001")
    take(ours.store, WORKER, "F001", profile="worker")
    ours.later()
    clear(gate, "F001")
    done(ours.store, WORKER, "F001")
    ours.later()
    assert [receipt["phase"] for receipt in gate.receipts()] == ["complete"]
    ok(resend_receipts(ours.store))
    ours.later()
    told = gate.receipts()
    assert [(one["phase"], one["chain"]["position"]) for one in told] == [("complete", 1), ("accepted", 2)]
    accepted, complete = (json.loads(one.body) for one in ok(list_receipts(ours.store)))
    assert [one["created_at"] for one in told] == [complete["created_at"], accepted["created_at"]], (
        "what they say tells their true order"
    )
    assert gate.get("/receipts/verify")["intact"]
    assert gate.get("/obligations")["obligations"] == []
    assert shown(ours.store, "F001").status == "done", "read back at the gate, it is known to be ours"
    assert events(ours.store, "gate_refused") == []


def test_resend_while_the_gate_is_down_waits_for_it(ours: Ours, gate: Server) -> None:
    obstruct(gate, "F001")
    work(ours.store, "F001")
    ours.later()
    clear(gate, "F001")
    gate.kill()
    ok(resend_receipts(ours.store))
    ours.later()
    assert (view(ours.store).resending, view(ours.store).parked) == (2, 0)
    gate.start()
    ours.later()
    assert gate.ids() == ledger(ours.store)


def test_resend_with_every_answer_lost_leaves_each_receipt_once(ours: Ours, gate: Server) -> None:
    obstruct(gate, "F001")
    work(ours.store, "F001")
    ours.later()
    clear(gate, "F001")
    ok(resend_receipts(ours.store))
    ours.restart(wrap=Deaf)
    for _ in range(3):
        ours.later()
    assert (gate.ids(), view(ours.store).resending) == (ledger(ours.store)[:1], 2)
    ours.restart()
    ours.later()
    assert gate.ids() == ledger(ours.store)
    assert view(ours.store).resending == 0


def test_resend_by_two_servers_of_one_store_delivers_once_and_tells_it_once(ours: Ours, gate: Server) -> None:
    obstruct(gate, "F001")
    work(ours.store, "F001")
    ours.later()
    clear(gate, "F001")
    ok(resend_receipts(ours.store))
    others: list[Any] = []

    class Overtaken(Deaf):
        """Before each of its receipts another server sends all of them."""

        def submit(self, body: dict[str, Any]) -> str | None:
            others[0].tick()
            return self.client.submit(body)

    others.append(ours.monitor())
    ours.restart(wrap=Overtaken)
    ours.later()
    assert gate.ids() == ledger(ours.store)
    assert len(events(ours.store, "receipt_unparked")) == 2
    assert (view(ours.store).parked, view(ours.store).resending) == (0, 0)
    others[0].close()


KILLED = """
import os, signal, sys
from tenure.app import open_store
from tenure.gates.client import GateClient
from tenure.gates.receiptgate import ReceiptGate

class Dying(GateClient):
    def submit(self, body):
        super().submit(body)
        os.kill(os.getpid(), signal.SIGKILL)

ReceiptGate(open_store(sys.argv[1]), connect=Dying).tick()
"""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_resend_killed_between_delivery_and_its_note_leaves_no_duplicate(
    database: str, tmp_path: Path, gate: Server
) -> None:
    from tenure.app import open_store
    from tests.postgres.support import empty_url

    place = str(tmp_path / "ours.db") if database == "sqlite" else empty_url()
    mine: Any = ok(open_store(place))
    side = Ours(mine, gate.url)
    obstruct(gate, "F001")
    work(mine, "F001")
    side.later()
    clear(gate, "F001")
    ok(resend_receipts(mine))
    for _ in range(3):
        died = subprocess.run([sys.executable, "-c", KILLED, place], check=False)
        assert died.returncode == -signal.SIGKILL
        assert gate.ids() == ledger(mine)[:1], "delivered, and still in the queue"
        assert view(mine).resending == 2
    side.later()
    assert gate.ids() == ledger(mine)
    assert (view(mine).parked, view(mine).resending) == (0, 0)
    side.close()
    mine.close()


def test_refused_by_a_gate_that_has_the_task_itself_holds_up_no_other(ours: Ours, gate: Server) -> None:
    """Its 404 is otherwise about the address, and everything waits until that is mended."""
    obstruct(gate, "F001")
    work(ours.store, "F001", "F002")
    ours.later()
    assert (ours.facts()["parked"], ours.facts()["error"]) == (2, "")
    assert [receipt["task_id"] for receipt in gate.receipts()] == ["F002", "F002"]


# -- how the gate does, seen from elsewhere ---------------------------------------------------------------------------


def test_view_tells_an_outage_and_since_when(ours: Ours, gate: Server, clock: ManualClock) -> None:
    assert (view(ours.store).heard_at_ms, view(ours.store).error) == (0, "")

    def pass_by(seconds: int) -> None:
        clock.advance(seconds)
        ours.later(seconds)

    pass_by(10)
    heard_at_ms = view(ours.store).heard_at_ms
    assert view(ours.store).heard_age_s == 0.0
    for _ in range(5):
        pass_by(10)
    assert view(ours.store).heard_at_ms == heard_at_ms, "a poll that finds all well writes nothing"
    pass_by(10)
    assert view(ours.store).heard_at_ms == heard_at_ms + NOTE_HEARD_S * 1000, "but now and then"
    pass_by(10)
    last_ms = heard_at_ms + 70_000
    gate.kill()
    pass_by(10)
    down = view(ours.store)
    assert "Connect" in down.error
    assert down.heard_at_ms == last_ms, "the last answer, to the moment"
    assert ours.facts()["last_exchange_age_s"] == 10.0
    gate.start()
    pass_by(60)
    assert view(ours.store).error == ""
    assert view(ours.store).heard_age_s == 0.0


# -- two servers and the command line ---------------------------------------------------------------------------------


def tenure(*words: str, store: Path, status: int = 0) -> Any:
    """A command on our store, as JSON."""
    ran = subprocess.run([TENURE, *words, "--json", "--store", str(store)], capture_output=True, text=True, check=False)
    assert ran.returncode == status, ran
    return json.loads(ran.stdout)


def metrics(server: Server) -> dict[str, float]:
    """The samples about gates."""
    text = httpx.get(f"{server.url}/metrics", timeout=WITHIN_S).text
    samples = re.findall(r"^(tenure_gate_\w+\{.*\}) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in samples}


def test_operator_sees_what_is_parked_and_resends_it_with_the_server_killed_between(
    tmp_path: Path, gate: Server
) -> None:
    obstruct(gate, "T-1")
    path = tmp_path / "ours.db"
    with serving(path, receiptgate_url=gate.url, receiptgate_poll_s=1) as server:
        for task_id in ("T-1", "T-2"):
            server.post("/tasks", {"task_id": task_id, "task_summary": "Say hello"})
            offer = server.post("/lease", {"worker_id": WORKER}, 200)
            for phase in ("accepted", "complete"):
                server.post("/receipts", report(task_id, phase, lease_id=offer["lease_id"]))
        until(lambda: len(gate.ids()) == 2 and tenure("gate", store=path)["data"]["gates"][0]["waiting"] == 0)
        ours = server.ids()
        # Seen from the command line, over HTTP, and by whatever collects metrics.
        (seen,) = tenure("gate", store=path)["data"]["gates"]
        assert seen["gate"] == f"{gate.url} default"
        assert (seen["parked"], seen["resending"], seen["error"]) == (2, 0, "")
        assert {one["receipt_id"] for one in seen["parked_receipts"]} == set(ours[:2])
        assert "lease_not_found" in seen["parked_receipts"][0]["reason"]
        assert server.get("/gates")["gates"][0]["parked_receipts"] == seen["parked_receipts"]
        assert server.get("/health")["gates"][0]["parked"] == 2
        labels = f'{{project="default",gate="{gate.url} default"}}'
        told = metrics(server)
        assert told[f"tenure_gate_parked{labels}"] == 2
        assert told[f"tenure_gate_waiting{labels}"] == 0
        assert told[f"tenure_gate_sent_seq{labels}"] == seen["sent_seq"] > 0
        assert 0 <= told[f"tenure_gate_last_exchange_seconds{labels}"] < 20
        assert "gate of default" in tenure("doctor", store=path, status=7)["error"]["facts"]["checks"]
        # The cause is removed, and our server dies before it hears of the operator's wish.
        server.kill()
        clear(gate, "T-1")
        assert tenure("gate", "resend", store=path)["data"]["receipts"] == 2
        assert len(gate.ids()) == 2
        server.start()
        until(lambda: sorted(gate.ids()) == sorted(ours))
        until(lambda: tenure("gate", store=path)["data"]["gates"][0]["resending"] == 0)
        assert metrics(server)[f"tenure_gate_parked{labels}"] == 0
        tenure("doctor", store=path)
        assert gate.get("/receipts/verify")["intact"]
        # Asked over HTTP, a server sends at once; there is nothing left to send.
        assert server.post("/gates/resend", {}, 200)["receipts"] == 0
        assert tenure("gate", "resend", "--receipt", ours[0], store=path, status=7)["error"]["code"] == (
            "receipt_not_parked"
        )
        assert len(gate.ids()) == 4


def test_resend_over_http_reaches_the_gate_without_waiting_for_a_poll(tmp_path: Path, gate: Server) -> None:
    obstruct(gate, "T-1")
    with serving(tmp_path / "ours.db", receiptgate_url=gate.url, receiptgate_poll_s=3600) as server:
        server.post("/tasks", {"task_id": "T-1", "task_summary": "Say hello"})
        offer = server.post("/lease", {"worker_id": WORKER}, 200)
        server.post("/receipts", report("T-1", lease_id=offer["lease_id"]))
        until(lambda: server.get("/gates")["gates"][0]["parked"] == 1)
        clear(gate, "T-1")
        answer = server.post("/gates/resend", {"receipt_id": server.ids()[0]}, 200)
        assert (answer["receipts"], answer["gate"]["parked"]) == (1, 0)
        until(lambda: gate.ids() == server.ids())
