"""What is SQLite's own: files and their modes, pragmas, migrations, versions, and the write lock."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.engine import agents, claims, endings, liveness, observe, recovery, tasks, touch
from tenure.store import queries, sqlite
from tenure.store.sqlite import SCHEMA_VERSION, SqliteStore
from tenure.store.store import Store, StoreFault
from tests.support import add, join, ok, refused, take


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tenure.db")


@pytest.fixture
def other(store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Somebody else's connection to the same file."""
    connection = sqlite3.connect(store.path, isolation_level=None, timeout=0)
    yield connection
    connection.close()


# -- files ------------------------------------------------------------------------------------------------------------


def test_create_under_any_umask_makes_private_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(str(tmp_path / "tenure" / "tenure.db"))
        add(store)
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in (tmp_path / "tenure").iterdir()}
        assert modes == {"tenure.db": 0o600, "tenure.db-wal": 0o600, "tenure.db-shm": 0o600}
        assert stat.S_IMODE((tmp_path / "tenure").stat().st_mode) == 0o700
        store.close()
    finally:
        os.umask(before)


def test_open_an_existing_store_leaves_its_mode_to_its_owner(path: str) -> None:
    SqliteStore(path).close()
    os.chmod(path, 0o640)
    SqliteStore(path).close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640


def test_open_refused_leaves_no_connection_behind(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(SqliteStore, "close", lambda store: closed.append(store.connection.close()))
    Path(path).write_text("not a database" * 100)
    with pytest.raises(StoreFault):
        SqliteStore(path)
    assert len(closed) == 1


# -- pragmas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["created", "opened again", "cloned"])
def test_pragmas_of_every_connection_are_durable_and_strict(path: str, opened: str) -> None:
    first = SqliteStore(path)
    store = {"created": lambda: first, "opened again": lambda: SqliteStore(path), "cloned": first.clone}[opened]()
    pragmas = {
        name: store.connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    # synchronous 2 is FULL: with NORMAL, a commit in WAL mode is acknowledged before it is on the disk.
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    store.close()
    first.close()


def test_data_version_changes_when_another_connection_wrote_only(store: SqliteStore) -> None:
    another = store.clone()
    before = store.data_version()
    add(store)
    assert store.data_version() == before
    add(another, "F002")
    assert store.data_version() != before
    another.close()


# -- versions ---------------------------------------------------------------------------------------------------------


def test_migrate_from_empty_reaches_the_schema_version(store: SqliteStore) -> None:
    assert store.connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert store.integrity_faults() == []


def test_migrate_failing_half_way_leaves_an_empty_store_that_opens_later(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = queries.migrations()
    with monkeypatch.context() as patch:
        patch.setattr(queries, "migrations", lambda: [(1, real[0][1] + "\nCREATE TABLE tasks (again TEXT);\n")])
        with pytest.raises(sqlite3.OperationalError):
            SqliteStore(path)
    store = SqliteStore(path)
    assert store.connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    add(store)
    store.close()


def test_open_an_older_store_applies_only_what_is_new(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = SqliteStore(path)
    add(old)
    newer = [*queries.migrations(), (SCHEMA_VERSION + 1, "ALTER TABLE tasks ADD COLUMN future TEXT;\n")]
    monkeypatch.setattr(queries, "migrations", lambda: newer)
    monkeypatch.setattr(sqlite, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    new = SqliteStore(path)
    assert new.connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
    assert new.connection.execute("SELECT task_id, future FROM tasks").fetchall() == [("F001", None)]
    # The older binary had it open all the while, and both go on.
    add(old, "F002")
    add(new, "F003")
    assert len(ok(observe.list_tasks(old))) == 3
    new.close()
    old.close()


@pytest.mark.parametrize(
    ("oldest_writer", "opens"),
    [(SCHEMA_VERSION, True), (SCHEMA_VERSION + 1, False), (None, False)],
    ids=["that admits us", "that needs a newer binary", "that says nothing"],
)
def test_open_a_newer_store_is_refused_unless_it_admits_us(path: str, oldest_writer: int | None, opens: bool) -> None:
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    if oldest_writer is None:
        connection.execute("DELETE FROM meta WHERE key = 'oldest_writer'")
    else:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'oldest_writer'", (str(oldest_writer),))
    connection.commit()
    connection.close()
    if opens:
        store = SqliteStore(path)
        add(store)
        assert store.connection.execute("PRAGMA user_version").fetchone() == (99,)
        store.close()
    else:
        with pytest.raises(StoreFault) as raised:
            SqliteStore(path)
        assert "Upgrade" in refused(raised.value.refusal, "store_newer").next


def test_verbs_on_a_store_with_unknown_columns_ignore_them(store: SqliteStore, clock: ManualClock) -> None:
    for table in ("tasks", "leases", "agents", "handoffs", "events", "messages", "receipts", "links", "servers"):
        store.connection.execute(f"ALTER TABLE {table} ADD COLUMN future TEXT DEFAULT 'kept'")
    join(store, "A1")
    add(store)
    add(store, "F002", after=["F001"])
    take(store, "A1")
    ok(touch.touch(store, agent_id="A1"))
    ok(liveness.report(store, task_id="F001", agent_id="A1", progress=30))
    link = ok(agents.link_up(store, agent_id="A1", incarnation=1))
    ok(agents.link_down(store, link_id=link.link_id, died=True))
    assert ok(recovery.advance(store)).recovered == 1
    assert ok(claims.claim(store, task_id="F001", agent_id="A1")).handoffs
    ok(endings.complete(store, task_id="F001", agent_id="A1"))
    assert ok(observe.show_task(store, task_id="F002")).view.task.unmet == 0
    assert store.connection.execute("SELECT DISTINCT future FROM leases").fetchall() == [("kept",)]


# -- locks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(store: SqliteStore) -> SqliteStore:
    store.busy_timeout_s = 0.05
    return store


def test_write_while_the_lock_is_held_too_long_is_refused_and_writes_nothing(
    impatient: SqliteStore, other: sqlite3.Connection
) -> None:
    add(impatient)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    answer = refused(tasks.add_task(impatient, task_id="F002", title="More"), "store_busy")
    assert 0.05 <= time.monotonic() - began < 60
    assert answer.facts["path"] == impatient.path
    assert len(ok(observe.list_tasks(impatient))) == 1, "reads do not wait"
    other.execute("COMMIT")
    add(impatient, "F002")


def on_first_wait(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[float]:
    """Act when the store first waits for a lock, instead of waiting; how long it wanted to wait each time."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            act()

    monkeypatch.setattr(time, "sleep", sleep)
    return waits


def test_write_while_the_lock_is_released_in_time_succeeds(
    store: SqliteStore, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.execute("BEGIN IMMEDIATE")
    waits = on_first_wait(monkeypatch, lambda: other.execute("COMMIT"))
    add(store)
    assert len(waits) == 1
    assert 0.001 <= waits[0] <= 0.004


def test_now_of_a_write_that_waited_is_read_after_the_lock_was_had(
    store: SqliteStore, other: sqlite3.Connection, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a claim that waited could win against a deadline that passed while it waited."""
    before = store.look(lambda tx: tx.now_ms)

    def release() -> None:
        clock.advance(100)
        other.execute("COMMIT")

    other.execute("BEGIN IMMEDIATE")
    on_first_wait(monkeypatch, release)
    assert store.run(lambda tx: tx.now_ms) == before + 100_000


def write(store: Store) -> object:
    return tasks.add_task(store, task_id="F002", title="More")


def locked_out(path: str) -> sqlite3.Connection:
    """A connection that keeps even readers out, as recovering the log or removing it does for a moment."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    return connection


@pytest.mark.parametrize(
    "use",
    [
        lambda path: SqliteStore(path),
        lambda path: SqliteStore(path, create=False),
    ],
    ids=["open", "open existing"],
)
def test_open_while_the_store_is_locked_for_a_moment_waits(
    path: str, use: Callable[[str], SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(path).close()
    locker = locked_out(path)
    waits = on_first_wait(monkeypatch, locker.close)
    store = use(path)
    assert waits
    add(store)
    store.close()


def test_open_while_the_store_stays_locked_is_refused(path: str) -> None:
    SqliteStore(path).close()
    locker = locked_out(path)
    with pytest.raises(StoreFault) as raised:
        SqliteStore(path, busy_timeout_s=0.05)
    refused(raised.value.refusal, "store_busy")
    locker.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda store: observe.list_tasks(store),
        write,
        SqliteStore.data_version,
        SqliteStore.integrity_faults,
        SqliteStore.adopt,
    ],
    ids=["read", "write", "data_version", "integrity_faults", "adopt"],
)
def test_use_while_the_store_is_locked_for_a_moment_waits_and_too_long_is_refused(
    path: str, use: Callable[[SqliteStore], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle connection holds no lock, so that somebody else can shut it out."""
    store = SqliteStore(path, busy_timeout_s=0.05)
    store.connection.execute("PRAGMA journal_mode=DELETE")
    locker = locked_out(path)
    try:
        refused(use(store), "store_busy")
    except StoreFault as fault:
        refused(fault.refusal, "store_busy")
    waits = on_first_wait(monkeypatch, locker.close)
    use(store)
    assert waits
    store.close()
