"""External gates as an operator sees them: what is counted, what is refused, what is queued again."""

from __future__ import annotations

import pytest

from tenure.clock import ManualClock
from tenure.core.model import Receipt
from tenure.engine import gates, outbox, pace
from tenure.engine.projects import configure, create_project
from tenure.engine.receipts import list_receipts
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import events
from tests.support import add, ok, refused, take

URL = "https://gate.example"
NAME = gates.GateName(project_id="default", gate=f"{URL} default")


def named(store: SqliteStore, **tenure: object) -> None:
    """The project names a gate."""
    ok(configure(store, project_id="default", document={"tenure": {"receiptgate_url": URL, **tenure}}))


def accepted(store: SqliteStore, *task_ids: str, project_id: str = "default") -> list[Receipt]:
    """A receipt for each of these tasks."""
    for number, task_id in enumerate(task_ids):
        add(store, task_id, project_id=project_id)
        take(store, f"worker.{project_id}-{task_id}-{number}", task_id, profile="worker")
    return [one for one in ok(list_receipts(store, project_id=project_id)) if one.task_id in task_ids]


def park(store: SqliteStore, receipt: Receipt, reason: str = "HTTP 422") -> None:
    store.run(lambda tx: gates.park(tx, NAME, receipt, reason))


def view(store: SqliteStore) -> outbox.GateView:
    (found,) = ok(outbox.list_gates(store))
    return found


def test_list_without_a_gate_shows_none_and_of_an_unknown_project_is_refused(store: SqliteStore) -> None:
    assert ok(outbox.list_gates(store)) == ()
    assert ok(outbox.list_gates(store, project_id="default")) == ()
    refused(outbox.list_gates(store, project_id="nowhere"), "project_not_found")


def test_list_counts_what_waits_and_not_what_came_from_the_gate_or_belongs_to_others(store: SqliteStore) -> None:
    named(store)
    ok(create_project(store, project_id="other"))
    first, second, third, _ = accepted(store, "F001", "F002", "F003", "F004")
    accepted(store, "G001", project_id="other")
    assert view(store).waiting == 4
    store.run(lambda tx: gates.sent(tx, NAME, first.seq))
    assert view(store).waiting == 3
    park(store, second)
    assert (view(store).waiting, view(store).parked, view(store).sent_seq) == (2, 1, second.seq)
    marks = {"receipt_id": third.receipt_id, "state": "taken", "detail": "", "now_ms": 0}
    store.run(lambda tx: tx.do("mark_gate_receipt", **NAME.as_dict(), **marks))
    assert view(store).waiting == 1


def test_list_counts_what_waits_up_to_a_bound(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "WAITING_MAX", 2)
    named(store)
    accepted(store, "F001", "F002", "F003")
    assert view(store).waiting == 2


def test_list_shows_the_newest_parked_receipts_with_their_reasons(store: SqliteStore, clock: ManualClock) -> None:
    named(store)
    found = accepted(store, *(f"F{number:03}" for number in range(outbox.PARKED_SHOWN + 2)))
    for number, receipt in enumerate(found):
        clock.advance(1)
        park(store, receipt, f"HTTP 422 {number}")
    seen = view(store)
    assert seen.parked == len(found)
    newest = list(reversed(found))[: outbox.PARKED_SHOWN]
    assert [one.receipt_id for one in seen.parked_receipts] == [one.receipt_id for one in newest]
    last = seen.parked_receipts[0]
    assert (last.task_id, last.phase, last.reason) == (found[-1].task_id, "accepted", f"HTTP 422 {len(found) - 1}")
    assert last.at_ms == seen.now_ms


def test_list_of_many_projects_has_the_gate_of_each_and_of_one_only_its_own(store: SqliteStore) -> None:
    ok(configure(store, document={"tenure": {"receiptgate_url": URL + "/"}}))
    ok(create_project(store, project_id="other"))
    document = {"tenure": {"receiptgate_url": URL, "receiptgate_project": "theirs"}}
    ok(configure(store, project_id="other", document=document))
    assert [(one.project_id, one.gate) for one in ok(outbox.list_gates(store))] == [
        ("default", f"{URL} default"),
        ("other", f"{URL} theirs"),
    ]
    (other,) = ok(outbox.list_gates(store, project_id="other"))
    assert other.project_id == "other"


def test_resend_without_a_gate_or_of_a_receipt_that_is_not_there_or_not_parked_is_refused(store: SqliteStore) -> None:
    (receipt,) = accepted(store, "F001")
    refused(outbox.resend_receipts(store, project_id="nowhere"), "project_not_found")
    refused(outbox.resend_receipts(store), "gate_not_found")
    refused(outbox.resend_receipts(store, receipt_id=receipt.receipt_id), "gate_not_found")
    named(store)
    refused(outbox.resend_receipts(store, receipt_id="r404"), "receipt_not_found")
    unparked = refused(outbox.resend_receipts(store, receipt_id=receipt.receipt_id), "receipt_not_parked")
    assert unparked.facts["gate"] == NAME.gate
    ok(create_project(store, project_id="other"))
    (others,) = accepted(store, "G001", project_id="other")
    refused(outbox.resend_receipts(store, receipt_id=others.receipt_id), "receipt_not_found")
    assert ok(outbox.resend_receipts(store)).receipts == 0


def test_resend_of_what_came_from_the_gate_is_refused(store: SqliteStore) -> None:
    named(store)
    (receipt,) = accepted(store, "F001")
    marks = {"receipt_id": receipt.receipt_id, "state": "taken", "detail": "", "now_ms": 0}
    store.run(lambda tx: tx.do("mark_gate_receipt", **NAME.as_dict(), **marks))
    refused(outbox.resend_receipts(store, receipt_id=receipt.receipt_id), "receipt_not_parked")
    assert ok(outbox.resend_receipts(store)).receipts == 0


def test_resend_queues_in_the_order_of_the_ledger_whatever_was_asked_first(store: SqliteStore) -> None:
    named(store)
    found = accepted(store, "F001", "F002", "F003")
    for receipt in found:
        park(store, receipt)
    ok(outbox.resend_receipts(store, receipt_id=found[2].receipt_id))
    ok(outbox.resend_receipts(store, receipt_id=found[0].receipt_id))
    assert ok(outbox.resend_receipts(store)).receipts == 1, "the one that was not queued yet"
    queue = store.look(lambda tx: gates.to_resend(tx, NAME, 100))
    assert [one.receipt_id for one in queue] == [one.receipt_id for one in found]
    assert (view(store).parked, view(store).resending) == (0, 3)


def test_resend_refused_once_more_after_another_server_delivered_it_changes_nothing(store: SqliteStore) -> None:
    named(store)
    (receipt,) = accepted(store, "F001")
    park(store, receipt)
    ok(outbox.resend_receipts(store))
    for _ in range(2):
        store.run(lambda tx: gates.resent(tx, NAME, receipt))
    store.run(lambda tx: gates.park_again(tx, NAME, receipt, "HTTP 422"))
    assert (view(store).parked, view(store).resending) == (0, 0)
    assert len(events(store, "receipt_unparked")) == 1
    assert len(events(store, "receipt_parked")) == 1


def test_park_of_a_receipt_that_is_queued_again_leaves_it_in_the_queue(store: SqliteStore) -> None:
    """A server whose page is older than the operator's wish comes late with its refusal."""
    named(store)
    (receipt,) = accepted(store, "F001")
    park(store, receipt)
    ok(outbox.resend_receipts(store))
    park(store, receipt)
    assert (view(store).parked, view(store).resending) == (0, 1)


def test_heard_never_moves_back_and_an_error_stands_until_it_is_over(store: SqliteStore, clock: ManualClock) -> None:
    named(store)
    assert view(store).heard_age_s is None
    clock.advance(100)
    store.run(lambda tx: gates.heard(tx, NAME, 1_000, ""))
    store.run(lambda tx: gates.heard(tx, NAME, 5_000, "HTTP 503"))
    assert (view(store).heard_age_s, view(store).error) == (1.0, "HTTP 503")
    store.run(lambda tx: gates.heard(tx, NAME, None, ""))
    assert (view(store).heard_age_s, view(store).error) == (1.0, "")


def test_pace_of_a_project_has_its_gate(store: SqliteStore) -> None:
    ok(create_project(store, project_id="other"))
    named(store)
    park(store, accepted(store, "F001")[0])
    assert ok(pace.pace(store)).gates == (view(store),)
    assert ok(pace.pace(store, project_id="other")).gates == ()


@pytest.mark.parametrize("back", ["a step", "a boot"])
def test_gate_that_is_down_shows_its_age_after_the_clock_was_set_back(
    store: SqliteStore, clock: ManualClock, back: str
) -> None:
    named(store)
    store.run(lambda tx: gates.heard(tx, NAME, 0, ""))
    if back == "a step":
        clock.step(-3600)
    else:
        clock.reboot("boot-2", -3600)
    clock.advance(600)
    store.run(lambda tx: gates.heard(tx, NAME, None, "HTTP 503"))
    # Where the store's clock is not shifted with what was written by it, nobody can tell; but never that it is well.
    assert view(store).heard_age_s in (600.0, None)
