"""`tenure store copy` and `check`: there and back, row for row, and going on from there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tenure.engine import claims, endings, notes, observe, receipts, tasks
from tenure.store import copying
from tenure.store.sqlite import SqliteStore
from tenure.store.store import Store, StoreFault
from tests.http.serving import TENURE
from tests.postgres.support import ProbedPostgres, empty_url
from tests.support import add, join, ok, take


def filled(store: Store) -> None:
    """A task in each state, and something in every table that a fleet fills."""
    join(store, "A1")
    for number in range(30):
        add(store, f"T{number}", requires=["gpu"] if number % 5 == 0 else [], after=["T0"] if number > 20 else [])
    for number in range(10):
        take(store, "A1", f"T{number}", "cli")
    for number in range(5):
        ok(endings.complete(store, task_id=f"T{number}", agent_id="A1", message="Done ✓"))
    ok(endings.release(store, task_id="T5", agent_id="A1", message="Not mine"))
    ok(notes.log_decision(store, task_id="T6", agent_id="A1", decision="Use\ttabs\\ and 'quotes'"))
    ok(notes.send_message(store, sender="A1", to="A1", task_id="T6", text="Look"))
    ok(tasks.delete_task(store, task_id="T29"))
    ok(receipts.seal(store))


def rows(store: Store) -> dict[str, list[tuple[object, ...]]]:
    side = copying.side_of(store)
    side.begin(writes=False)
    found = {}
    for name in copying.tables():
        columns = sorted(side.columns(name))
        found[name] = sorted((row for page in side.rows(name, columns) for row in page), key=repr)
    side.roll_back()
    return found


def test_copy_there_and_back_keeps_every_row(tmp_path: Path) -> None:
    first, there = SqliteStore(str(tmp_path / "first.db")), ProbedPostgres(empty_url())
    filled(first)
    told: list[str] = []
    counts = copying.copy(first, there, lambda name, done, total: told.append(name))
    assert counts["tasks"] == 29
    assert counts["receipts"] > 10
    assert "tasks" in told
    assert rows(there) == rows(first)
    back = SqliteStore(str(tmp_path / "back.db"))
    copying.copy(there, back, lambda name, done, total: None)
    assert rows(back) == rows(first)
    for store in (there, back):
        assert ok(receipts.verify(store)).faults == ()
        assert store.integrity_faults() == []
        # Work goes on where it was: held tasks are held, new numbers are above the old ones.
        newest = ok(observe.newest_event(store))
        ok(endings.complete(store, task_id="T6", agent_id="A1"))
        add(store, "NEW")
        assert ok(claims.claim_next(store, agent_id="A2", capabilities=["gpu"])).lease.token > 0
        assert {event.kind for event in ok(observe.events(store, after=newest))} >= {
            "completed",
            "task_added",
            "granted",
        }
        assert ok(receipts.verify(store)).faults == ()
    for store in (first, there, back):
        store.close()


def test_copy_into_a_store_that_is_not_empty_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    first, there = SqliteStore(str(tmp_path / "first.db")), ProbedPostgres(empty_url())
    filled(first)
    add(there, "MINE")
    before = rows(there)
    with pytest.raises(StoreFault, match="not empty") as told:
        copying.copy(first, there, lambda name, done, total: None)
    assert "empty database" in told.value.refusal.next
    assert rows(there) == before
    first.close()
    there.close()


def test_copy_that_breaks_off_leaves_the_target_empty(tmp_path: Path) -> None:
    first, there = SqliteStore(str(tmp_path / "first.db")), ProbedPostgres(empty_url())
    filled(first)

    def told(name: str, done: int, total: int) -> None:
        if name == "leases":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copying.copy(first, there, told)
    assert ok(observe.list_tasks(there)) == ()
    copying.copy(first, there, lambda name, done, total: None)
    first.close()
    there.close()


def test_store_copy_and_check_on_the_command_line(tmp_path: Path) -> None:
    first, url = SqliteStore(str(tmp_path / "first.db")), empty_url()
    filled(first)
    first.close()

    def tenure(*words: str) -> dict[str, object]:
        done = subprocess.run([TENURE, *words, "--json"], check=True, capture_output=True, text=True)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    copied = tenure("store", "copy", str(tmp_path / "first.db"), url)
    assert "29" in json.dumps(copied)
    assert '"faults": []' in json.dumps(tenure("store", "check", "--store", url))
    store = ProbedPostgres(url)
    store.connection.execute("UPDATE tasks SET unmet = 7 WHERE task_id = 'T28'")
    store.close()
    checked = subprocess.run([TENURE, "store", "check", "--store", url], check=False, capture_output=True, text=True)
    assert checked.returncode == 7
    assert "counts 7 unmet dependencies and has 0" in checked.stdout
