"""One changed byte in the ledger is found, whatever was changed."""

from __future__ import annotations

import re

import pytest

from tenure.clock import ManualClock
from tenure.engine import endings, tasks
from tenure.engine.receipts import seal, verify
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import done, sql, tick, whole
from tests.support import add, ok, refused, take


@pytest.fixture(autouse=True)
def history(store: SqliteStore, clock: ManualClock) -> None:
    """Two tasks: one done by its second holder, one in progress; the first five receipts are sealed in two seals."""
    add(store)
    add(store, "F002")
    take(store, "A1", profile="cli")
    clock.advance(900)
    tick(store)
    take(store, "A2", profile="cli")
    ok(seal(store))
    done(store, "A2")
    take(store, "A1", "F002", profile="cli")
    ok(seal(store))
    ok(endings.release(store, task_id="F002", agent_id="A1"))


def test_verify_untouched_ledger_finds_no_fault(store: SqliteStore) -> None:
    before = whole(store)
    checked = ok(verify(store))
    assert (checked.tasks, checked.receipts, checked.seals, checked.unsealed, checked.faults) == (2, 6, 2, 1, ())
    assert whole(store) == before
    assert ok(verify(store, task_id="F001")).receipts == 4
    refused(verify(store, task_id="F404"), "task_not_found")


@pytest.mark.parametrize(
    ("statement", "because"),
    [
        ("UPDATE receipts SET body = replace(body, 'success', 'failure') WHERE phase = 'complete'", "a body"),
        ("UPDATE receipts SET body = body || ' ' WHERE seq = {nth2}", "one blank at the end of a body"),
        ("UPDATE receipts SET hash = {other} WHERE seq = {nth1}", "a hash"),
        ("UPDATE receipts SET prev_hash = {other} WHERE seq = {nth3}", "a link"),
        ("UPDATE receipts SET phase = 'progress' WHERE seq = {nth1}", "a row that no longer says what its body says"),
        ("UPDATE receipts SET receipt_id = 'other' WHERE seq = {nth1}", "an id"),
        ("UPDATE receipts SET position = 99 WHERE seq = {nth3}", "a place in the chain"),
        ("DELETE FROM receipts WHERE seq = {nth1}", "the first receipt gone"),
        ("DELETE FROM receipts WHERE seq = {nth2}", "one from the middle gone"),
        (
            "DELETE FROM receipts WHERE seq = (SELECT max(seq) FROM receipts WHERE task_id = 'F001')",
            "a task's last gone",
        ),
        ("DELETE FROM receipts WHERE seq = (SELECT max(seq) FROM receipts)", "the ledger's last gone, not sealed yet"),
        ("DELETE FROM receipts WHERE task_id = 'F002'", "a whole chain gone"),
        ("UPDATE seals SET hash = {other} WHERE seal_id = 1", "a seal's hash"),
        ("UPDATE seals SET last_seq = last_seq - 1 WHERE seal_id = 1", "a seal's range"),
        ("DELETE FROM seals WHERE seal_id = 1", "the first seal gone"),
        ("UPDATE tasks SET receipt_hash = {other} WHERE task_id = 'F001'", "the task's memory"),
    ],
)
def test_verify_ledger_that_was_changed_finds_it(store: SqliteStore, statement: str, because: str) -> None:
    column = statement.partition("SET ")[2].partition(" =")[0]
    # One digit of a hash, whatever it was.
    other = f"CASE substr({column}, 1, 1) WHEN '0' THEN '1' ELSE '0' END || substr({column}, 2)"
    nth = re.sub(
        r"{nth(\d)}",
        r"(SELECT seq FROM (SELECT seq FROM receipts ORDER BY seq LIMIT \1) f ORDER BY 1 DESC LIMIT 1)",
        statement,
    )
    changed = sql(store, nth.replace("{other}", other))
    before = whole(store)
    assert changed > 0
    assert ok(verify(store)).faults, because
    assert whole(store) == before


def test_verify_names_the_task_and_the_receipt(store: SqliteStore) -> None:
    sql(store, "UPDATE receipts SET body = replace(body, 'success', 'failure') WHERE phase = 'complete'")
    faults = ok(verify(store)).faults
    assert any(fault.startswith("default/F001: Receipt 4 (") for fault in faults), faults
    assert any(fault.startswith("Seal 2: ") for fault in faults), faults
    assert ok(verify(store, task_id="F002")).faults == ()
    assert len(ok(verify(store, task_id="F001")).faults) == 1


def test_verify_chain_of_a_deleted_task_still_holds(store: SqliteStore) -> None:
    ok(tasks.delete_task(store, task_id="F002"))
    assert ok(verify(store)).faults == ()
    sql(store, "DELETE FROM receipts WHERE task_id = 'F002'")
    assert any("default/F002" in fault for fault in ok(verify(store)).faults)


def test_verify_two_tasks_of_one_name_one_after_the_other(store: SqliteStore) -> None:
    ok(tasks.delete_task(store, task_id="F002"))
    add(store, "F002")
    take(store, "A1", "F002", profile="cli")
    assert ok(verify(store)).faults == ()


def test_seal_in_bounded_steps_covers_everything_once(store: SqliteStore) -> None:
    assert ok(seal(store)).receipts == 1
    assert ok(seal(store)).receipts == 0, "nothing new, no seal"
    for number in range(5):
        add(store, f"S{number}")
        take(store, "A1", f"S{number}", profile="cli")
    sealed = [ok(seal(store, limit=2)) for _ in range(4)]
    assert [found.receipts for found in sealed] == [2, 2, 1, 0]
    checked = ok(verify(store))
    assert (checked.unsealed, checked.faults) == (0, ())


@pytest.mark.sqlite_only
def test_seal_over_a_gap_left_by_a_rollback_holds(store: SqliteStore) -> None:
    ok(seal(store))
    sql(store, "UPDATE sqlite_sequence SET seq = seq + 3 WHERE name = 'receipts'")
    take(store, "A1", "F002", profile="cli")
    ok(seal(store))
    assert ok(verify(store)).faults == ()
