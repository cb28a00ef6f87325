"""The link to a real gate: a second Tenure server in its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import gates
from tenure.engine.projects import configure, create_project
from tenure.engine.receipts import list_receipts, submit_receipt
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import data, events, receipts, said, shown
from tests.gates.support import WITHIN_S, WORKER, Deaf, Ours, Server, ledger, report, serving, until, work
from tests.support import add, ok

# -- sending ----------------------------------------------------------------------------------------------------------


def test_emit_receipts_arrive_once_in_order_and_in_a_sound_ledger(ours: Ours, gate: Server) -> None:
    work(ours.store, "F001", "F002", "F003")
    assert ours.tick() == 0.0, "what was sent can be read back at once"
    assert ours.later(0) == 5.0
    assert gate.ids() == ledger(ours.store)
    first = gate.receipts()[0]
    assert (first["task_id"], first["phase"], first["source_system"]) == ("F001", "accepted", WORKER)
    assert gate.get("/receipts/verify")["intact"]
    work(ours.store, "F004")
    ours.later()
    assert gate.ids() == ledger(ours.store)
    assert ours.facts()["sent_seq"] == 8


def test_emit_more_than_a_page_arrives_whole(ours: Ours, gate: Server) -> None:
    work(ours.store, *(f"T{number}" for number in range(120)))
    ours.later()
    assert gate.ids() == ledger(ours.store)
    assert len(gate.ids()) == 240


def test_emit_while_the_gate_is_down_waits_longer_and_longer_and_arrives_when_it_is_back(
    ours: Ours, gate: Server
) -> None:
    gate.kill()
    work(ours.store, "F001")
    waits = []
    for _ in range(7):
        waits.append(ours.tick())
        ours.seconds.now += waits[-1]
    assert waits == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0]
    assert "Connect" in ours.facts()["error"]
    work(ours.store, "F002")
    gate.start()
    ours.later()
    assert gate.ids() == ledger(ours.store)
    assert ours.facts()["error"] == ""


def test_emit_a_write_during_the_backoff_does_not_hasten_it(ours: Ours, gate: Server) -> None:
    gate.kill()
    work(ours.store, "F001")
    assert ours.tick() == 5.0
    ours.seconds.now += 2.0
    assert ours.tick() == pytest.approx(3.0)


def test_emit_after_a_restart_goes_on_where_it_was(ours: Ours, gate: Server) -> None:
    work(ours.store, "F001")
    ours.later()
    ours.restart()
    work(ours.store, "F002")
    ours.later()
    assert gate.ids() == ledger(ours.store)
    assert ours.facts()["sent"] == 2, "only the new ones were sent again"


def test_emit_by_two_servers_of_one_store_leaves_each_receipt_once(ours: Ours, gate: Server) -> None:
    work(ours.store, "F001", "F002")
    other = ours.monitor()
    ours.tick()
    other.tick()
    ours.later()
    assert gate.ids() == ledger(ours.store)
    other.close()


KILLED = """
import os, signal, sys
from tenure.gates.client import GateClient
from tenure.gates.receiptgate import ReceiptGate
from tenure.store.sqlite import SqliteStore

class Dying(GateClient):
    def submit(self, body):
        super().submit(body)
        os.kill(os.getpid(), signal.SIGKILL)

ReceiptGate(SqliteStore(sys.argv[1]), connect=Dying).tick()
"""


def test_emit_killed_between_delivery_and_cursor_leaves_no_duplicate(tmp_path: Path, gate: Server) -> None:
    # On the machine's clock, because another process opens it.
    store = SqliteStore(str(tmp_path / "ours.db"))
    side = Ours(store, gate.url)
    work(store, "F001", "F002")
    for delivered in (1, 1, 1):
        died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "ours.db")], check=False)
        assert died.returncode == -signal.SIGKILL
        assert len(gate.ids()) == delivered, "the first was delivered, and its cursor never written"
    side.later()
    assert gate.ids() == ledger(store)
    side.close()
    store.close()


def test_emit_with_every_answer_lost_leaves_each_receipt_once(store: SqliteStore, gate: Server) -> None:
    side = Ours(store, gate.url, wrap=Deaf)
    work(store, "F001", "F002")
    for _ in range(5):
        side.later()
    assert gate.ids() == ledger(store)[:1]
    side.restart()
    side.later()
    assert gate.ids() == ledger(store)
    side.close()


def test_emit_a_receipt_the_gate_will_never_take_is_parked_and_the_others_arrive(ours: Ours, gate: Server) -> None:
    work(ours.store, "F001", "F002")
    poisoned = ledger(ours.store)[1]
    # Under its id the gate already has something else.
    gate.post("/receipts", report("F001", receipt_id=poisoned, message="not what ours says"))
    ours.later()
    others = [receipt_id for receipt_id in ledger(ours.store) if receipt_id != poisoned]
    assert [receipt_id for receipt_id in gate.ids() if receipt_id != poisoned] == others
    assert ours.facts()["parked"] == 1
    (parked,) = events(ours.store, "receipt_parked")
    assert data(parked)["receipt_id"] == poisoned
    assert "409" in data(parked)["reason"]
    assert parked.task_id == "F001"
    ours.restart()
    ours.later()
    assert ours.facts()["parked"] == 1, "seen after a restart, too"
    assert len(events(ours.store, "receipt_parked")) == 1


def test_emit_a_receipt_the_gate_has_already_from_elsewhere_is_no_conflict(ours: Ours, gate: Server) -> None:
    work(ours.store, "F001")
    first = ok(list_receipts(ours.store))[0]
    gate.post("/receipts", report("F001", receipt_id=first.receipt_id, dedupe_key=first.receipt_id))
    ours.later()
    assert gate.ids() == ledger(ours.store)
    assert ours.facts()["parked"] == 0


def test_emit_to_a_project_that_takes_no_foreign_receipts_waits_and_parks_nothing(
    store: SqliteStore, tmp_path: Path
) -> None:
    with serving(tmp_path / "plain.db", foreign_receipts=False) as plain:
        side = Ours(store, plain.url)
        work(store, "F001")
        assert side.tick() == 5.0
        assert "HTTP 404" in side.facts()["error"]
        assert side.facts()["parked"] == 0
        with_gate = SqliteStore(str(plain.path))
        ok(configure(with_gate, document={"tenure": {"foreign_receipts": True}}))
        with_gate.close()
        side.later()
        assert plain.ids() == ledger(store)
        side.close()


def test_emit_of_two_projects_goes_to_the_projects_of_their_names(ours: Ours, gate: Server) -> None:
    gates_own = SqliteStore(str(gate.path))
    ok(create_project(gates_own, project_id="second"))
    gates_own.close()
    ok(create_project(ours.store, project_id="second"))
    work(ours.store, "F001")
    add(ours.store, "F001", project_id="second")
    ok(submit_offer(ours.store, "second"))
    ours.later()
    projects = [receipt["project_id"] for receipt in gate.receipts()]
    assert sorted(projects) == ["default", "default", "second"]
    assert gate.get("/receipts/verify")["intact"]


def submit_offer(store: SqliteStore, project_id: str) -> Any:
    from tenure.engine import claims

    lease = ok(claims.offer(store, agent_id="worker.w2", project_id=project_id))[0].lease
    return submit_receipt(store, body=report("F001", source="worker.w2", lease_id=lease.lease_id))


def test_emit_without_a_gate_asks_nobody(store: SqliteStore) -> None:
    side = Ours(store, "")
    work(store, "F001")
    assert side.tick() == 60.0
    assert side.gate.facts() == []


def test_emit_to_a_gate_that_was_unset_stops(ours: Ours, gate: Server) -> None:
    work(ours.store, "F001")
    ours.later()
    ok(configure(ours.store, document={}))
    work(ours.store, "F002")
    assert ours.tick() == 60.0
    assert len(gate.ids()) == 2


# -- reading ----------------------------------------------------------------------------------------------------------


def test_read_an_acceptance_and_a_completion_at_the_gate_move_our_task(ours: Ours, gate: Server) -> None:
    add(ours.store, "F001")
    ours.offer()
    gate.post("/receipts", report("F001"))
    ours.later()
    assert shown(ours.store).status == "in_progress"
    assert shown(ours.store).leases[0].state == "active"
    gate.post("/receipts", report("F001", "complete", outcome_kind="response_text", outcome_text="42"))
    ours.later()
    assert shown(ours.store).status == "done"
    assert said(ours.store) == ["accepted", "complete/success"]
    assert ours.facts()["applied"] == 2


def test_read_receipts_are_not_echoed_to_the_gate_and_ours_are_not_applied_again(ours: Ours, gate: Server) -> None:
    add(ours.store, "F001")
    ours.offer()
    gate.post("/receipts", report("F001"))
    gate.post("/receipts", report("F001", "complete"))
    for _ in range(3):
        ours.later()
    assert ours.facts()["sent"] == 0, "what came from there does not even go back to be told apart"
    ours.restart()
    ours.later()
    assert [receipt["phase"] for receipt in gate.receipts()] == ["accepted", "complete"]
    assert gate.ids() == ledger(ours.store), "one receipt has one id, on either side"
    work(ours.store, "F002")
    for _ in range(3):
        ours.later()
    assert len(gate.ids()) == len(ledger(ours.store)) == 4
    assert events(ours.store, "gate_refused", "receipt_parked") == []


def test_read_a_receipt_that_is_refused_is_told_once_and_holds_nobody_up(ours: Ours, gate: Server) -> None:
    add(ours.store, "F001")
    add(ours.store, "F002")
    gate.post("/receipts", report("F001", source="worker.nobody"))
    ours.offer()
    ours.offer("worker.w2")
    gate.post("/receipts", report("F002", source="worker.w2"))
    ours.later()
    ours.later()
    (told,) = events(ours.store, "gate_refused")
    assert (told.task_id, told.agent_id, data(told)["phase"]) == ("F001", "worker.nobody", "accepted")
    assert data(told)["reason"].startswith("not_holder: ")
    assert shown(ours.store, "F002").status == "in_progress"
    assert ours.facts()["refused"] == 1


def test_read_by_two_servers_of_one_store_applies_once(ours: Ours, gate: Server) -> None:
    add(ours.store, "F001")
    ours.offer()
    ours.tick()
    other = ours.monitor()
    other.tick()
    gate.post("/receipts", report("F001"))
    ours.seconds.now += 10
    ours.tick()
    other.tick()
    assert said(ours.store) == ["accepted"]
    assert events(ours.store, "gate_refused") == []
    other.close()


def test_take_the_same_receipt_by_two_that_read_it_at_once_is_judged_once(store: SqliteStore) -> None:
    add(store, "F001")
    name = gates.GateName(project_id="default", gate="g")
    body = {**report("F001", source="worker.nobody"), "receipt_id": "R1"}
    assert [store.run(lambda tx: gates.take(tx, name, 3, body)) for _ in range(2)] == ["refused", "ignored"]
    assert len(events(store, "gate_refused")) == 1
    store.run(lambda tx: gates.read(tx, name, 2))
    assert store.look(lambda tx: gates.state(tx, name)).read_seq == 3, "a cursor never moves back"


def test_read_receipts_of_tasks_we_do_not_have_or_of_other_phases_are_passed_over(ours: Ours, gate: Server) -> None:
    add(ours.store, "F001")
    ours.offer()
    gate.post("/receipts", report("ELSEWHERE"))
    gate.post("/receipts", report("F001", "progress", progress=50))
    gate.post("/receipts", report("F001"))
    ours.later()
    assert said(ours.store) == ["accepted"]
    assert shown(ours.store).task.progress == 0
    assert events(ours.store, "gate_refused") == []
    assert ours.facts()["read_seq"] == 3


def test_read_a_late_success_completes_a_recovered_task(ours: Ours, gate: Server, clock: ManualClock) -> None:
    add(ours.store, "F001")
    ours.offer()
    gate.post("/receipts", report("F001"))
    ours.later()
    clock.advance(2_000)
    assert shown(ours.store).status == "todo"
    gate.post("/receipts", report("F001", "complete"))
    ours.later()
    assert shown(ours.store).status == "done"
    assert receipts(ours.store)[-1].phase == "complete"


def test_read_a_receipt_that_makes_the_engine_fail_is_given_up_and_told(
    ours: Ours, gate: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ours.store, "F001")
    ours.offer()
    gate.post("/receipts", report("F001"))

    def fail(*_: Any, **__: Any) -> Refused:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(submit_receipt, "body", fail)
        ours.later()
    (told,) = events(ours.store, "gate_refused")
    assert data(told)["reason"] == "internal_error: ZeroDivisionError"
    assert said(ours.store) == []
    assert ours.facts()["read_seq"] == 1


# -- the whole --------------------------------------------------------------------------------------------------------


def test_two_servers_a_worker_polls_ours_and_reports_to_the_gate(tmp_path: Path, gate: Server) -> None:
    with serving(tmp_path / "ours.db", receiptgate_url=gate.url, receiptgate_poll_s=1) as server:
        server.post("/tasks", {"task_id": "T-1", "task_summary": "Say hello"})
        offer = server.post("/lease", {"worker_id": WORKER}, 200)
        assert offer["task"]["task_id"] == "T-1"
        gate.post("/receipts", report("T-1", lease_id=offer["lease_id"]))
        until(lambda: server.get("/tasks/T-1")["status"] == "in_progress")
        gate.kill()
        gate.start()
        gate.post("/receipts", report("T-1", "complete", lease_id=offer["lease_id"]))
        until(lambda: server.get("/tasks/T-1")["status"] == "done")
        assert gate.ids() == server.ids()
        # A receipt that is reported to us reaches the gate without waiting for a poll.
        server.post("/tasks", {"task_id": "T-2", "task_summary": "Say goodbye"})
        offer = server.post("/lease", {"worker_id": WORKER}, 200)
        server.post("/receipts", report("T-2", lease_id=offer["lease_id"]))
        until(lambda: gate.ids() == server.ids() and len(gate.ids()) == 3)
        monitors = {monitor["name"]: monitor for monitor in server.get("/health")["monitors"]}
        (link,) = monitors["receiptgate"]["gates"]
        assert (link["parked"], link["applied"], link["error"]) == (0, 2, "")
        assert link["gate"] == f"{gate.url} default"
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(WITHIN_S) in (0, -signal.SIGTERM)
