"""What was acknowledged stays, whatever happens to the process or the disk; what could not be done is refused whole."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import claims, endings, liveness, load, notes, observe, recovery, tasks
from tenure.store.sqlite import SqliteStore
from tenure.store.store import StoreFault, Transaction
from tests.support import add, dump, ok, refused

KILLS = 200
ACKS_MAX = 12
NOBODY = 65534


# -- kill -9 ----------------------------------------------------------------------------------------------------------


def test_kill_at_any_moment_loses_no_acknowledged_write(tmp_path: Path) -> None:
    path = str(tmp_path / "tenure.db")
    SqliteStore(path).close()
    dice = random.Random(0x7E4)
    acknowledged: list[str] = []
    for life in range(KILLS):
        acknowledged += lived_and_killed(path, life, acks=dice.randrange(ACKS_MAX + 1))
        if life % 20 == 0:
            check_nothing_lost(path, acknowledged)
    assert len(acknowledged) > KILLS
    check_nothing_lost(path, acknowledged)


def lived_and_killed(path: str, life: int, acks: int) -> list[str]:
    """What one process acknowledged before it was killed, a while after its given number of acknowledgements."""
    ours, theirs = os.pipe()
    # A child of a warm parent costs a millisecond, a new interpreter a hundred. No connection is open here to inherit.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            work_until_killed(path, life, theirs)
        finally:
            os._exit(1)
    os.close(theirs)
    with open(ours, encoding="ascii") as pipe:
        read = [line for line in (pipe.readline() for _ in range(acks)) if line]
        os.kill(pid, signal.SIGKILL)
        # What it wrote between our last look and its death is acknowledged too, except for a torn line.
        read += [line for line in pipe if line.endswith("\n")]
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == -signal.SIGKILL, f"life {life} ended by itself with {status}"
    assert len(read) >= acks
    return [line.rstrip("\n") for line in read]


def work_until_killed(path: str, life: int, pipe: int) -> None:
    """Say each thing only after the store has answered."""
    store = SqliteStore(path)
    agent_id = f"A{life}"
    for number in range(10_000):
        task_id = f"T{life}-{number}"
        ok(tasks.add_task(store, task_id=task_id, title="Work"))
        os.write(pipe, f"added {task_id}\n".encode())
        ok(claims.claim(store, task_id=task_id, agent_id=agent_id))
        os.write(pipe, f"claimed {task_id}\n".encode())
        ok(liveness.report(store, task_id=task_id, agent_id=agent_id, progress=40))
        os.write(pipe, f"reported {task_id}\n".encode())
        ok(endings.complete(store, task_id=task_id, agent_id=agent_id))
        os.write(pipe, f"completed {task_id}\n".encode())


def check_nothing_lost(path: str, acknowledged: list[str]) -> None:
    store = SqliteStore(path)
    assert store.integrity_faults() == []
    rows = store.connection.execute("SELECT task_id, status, progress, receipt_count FROM tasks").fetchall()
    found = {task_id: (status, progress, receipts) for task_id, status, progress, receipts in rows}
    for line in acknowledged:
        said, task_id = line.split()
        status, progress, receipts = found[task_id]
        held = {"added": True, "claimed": receipts >= 1, "reported": progress >= 40, "completed": status == "done"}
        assert held[said], f"{line}, but it is {found[task_id]}"
    # Nothing half done: a task in progress has its lease and its receipt, a done one has neither open.
    for query in (
        "SELECT count(*) FROM tasks t WHERE (t.status = 'in_progress') <> EXISTS ("
        "SELECT 1 FROM leases l WHERE l.task_key = t.key AND l.state = 'active')",
        "SELECT count(*) FROM tasks t WHERE t.receipt_count <> ("
        "SELECT count(*) FROM receipts r WHERE r.task_key = t.key)",
        "SELECT count(*) FROM timers w WHERE w.kind = 'lease' AND NOT EXISTS ("
        "SELECT 1 FROM leases l WHERE l.lease_id = w.ref AND l.state = 'active')",
    ):
        assert store.connection.execute(query).fetchone() == (0,), query
    ok(tasks.add_task(store, title="It works"))
    store.close()


# -- a full disk ------------------------------------------------------------------------------------------------------


def everything(store: SqliteStore) -> dict[str, list[tuple[object, ...]]]:
    names = store.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1").fetchall()
    return {name: dump(store, name) for (name,) in names}


def verbs_until_full(store: SqliteStore) -> Refused:
    """Write until the store refuses; that refusal. What was there before it is all that is there after it."""
    for number in range(10_000):
        before = everything(store)
        answer = tasks.add_task(store, task_id=f"big-{number}", title="Big", body="x" * 30_000)
        if isinstance(answer, Refused):
            assert everything(store) == before
            return answer
    raise AssertionError("the store was never full")


@contextlib.contextmanager
def hardly_any_room(store: SqliteStore) -> Iterator[None]:
    """A database that may not grow by more than a few pages."""
    limit = store.connection.execute("PRAGMA max_page_count").fetchone()[0]
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count={pages + 20}")
    yield
    store.connection.execute(f"PRAGMA max_page_count={limit}")


def test_verb_on_a_full_store_is_refused_whole_and_works_when_there_is_room(store: SqliteStore) -> None:
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", profile="cli"))
    with hardly_any_room(store):
        refused(verbs_until_full(store), "store_full")
        before = everything(store)
        long = "y" * 60_000
        refused(notes.log_decision(store, task_id="F001", agent_id="A1", decision=long), "store_full")
        refused(endings.complete(store, task_id="F001", agent_id="A1", message=long), "store_full")
        assert everything(store) == before
        assert not store.connection.in_transaction
        assert ok(observe.list_tasks(store)), "reads go on"
    ok(endings.complete(store, task_id="F001", agent_id="A1", message=long))
    assert store.integrity_faults() == []


def test_recovery_settled_before_the_store_is_full_is_told_exactly_if_it_was_kept(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store)
    lease = ok(claims.claim(store, task_id="F001", agent_id="A1", profile="cli", ttl_s=60)).lease
    told: list[str] = []
    store.on_recovery_callback = lambda agent_id, task_id: told.append(task_id)
    clock.advance(61)

    def body(tx: Transaction) -> None:
        recovery.recover(tx, lease)
        tx.settle()
        tx.do("set_meta", key="big", value="x" * 1_000_000)

    with hardly_any_room(store), pytest.raises(StoreFault) as raised:
        store.run(body)
    refused(raised.value.refusal, "store_full")
    kept = store.look(lambda tx: load.lease_by_id(tx, lease.lease_id))
    assert kept is not None
    assert told == (["F001"] if kept.state == "expired" else [])
    ok(claims.claim(store, task_id="F001", agent_id="A2"))
    assert told == ["F001"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, where this user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    if subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> None:
    with open(disk / "fill", "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def test_verb_on_a_full_disk_is_refused_whole_and_works_when_there_is_room(small_disk: Path) -> None:
    path = str(small_disk / "tenure" / "tenure.db")
    store = SqliteStore(path)
    add(store)
    fill(small_disk)
    refused(verbs_until_full(store), "store_full")
    before = everything(store)
    # The log may have a few bytes left: what matters is that every answer is true.
    answer = claims.claim(store, task_id="F001", agent_id="A1")
    claimed = not isinstance(answer, Refused)
    if isinstance(answer, Refused):
        refused(answer, "store_full")
        assert everything(store) == before
    store.close()

    reopened = SqliteStore(path)
    assert bool(ok(observe.show_task(reopened, task_id="F001")).view.leases) == claimed
    with pytest.raises(StoreFault) as raised:
        SqliteStore(str(small_disk / "new" / "tenure.db"))
    refused(raised.value.refusal, "store_full")

    os.truncate(small_disk / "fill", 0)
    ok(tasks.add_task(reopened, title="Room"))
    assert reopened.integrity_faults() == []
    reopened.close()
    made = SqliteStore(str(small_disk / "new" / "tenure.db"))
    add(made)
    made.close()


# -- files that cannot be used ----------------------------------------------------------------------------------------


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that another user can reach, which pytest's own is not."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """As someone whom file modes bind: root is not bound by any."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def used(path: Path, *, file_mode: int, directory_mode: int) -> str:
    """A store with one task, closed, then given these modes."""
    store = SqliteStore(str(path))
    add(store)
    store.close()
    path.chmod(file_mode)
    path.parent.chmod(directory_mode)
    return str(path)


def opening(path: str, code: str, *, create: bool = True) -> Refused:
    with pytest.raises(StoreFault) as raised:
        SqliteStore(path, create=create)
    refusal = refused(raised.value.refusal, code)
    assert refusal.facts["path"] == path
    return refusal


def test_write_to_a_read_only_file_is_refused_and_reads_work(public: Path) -> None:
    path = used(public / "s" / "tenure.db", file_mode=0o444, directory_mode=0o777)
    with unprivileged():
        store = SqliteStore(path)
        assert [view.task.task_id for view in ok(observe.list_tasks(store))] == ["F001"]
        assert "written" in refused(tasks.add_task(store, title="More"), "store_unavailable").message
        store.close()


def test_open_in_a_read_only_directory_is_refused(public: Path) -> None:
    path = used(public / "s" / "tenure.db", file_mode=0o666, directory_mode=0o555)
    with unprivileged():
        opening(path, "store_unavailable")


def test_open_without_permission_is_refused(public: Path) -> None:
    path = used(public / "s" / "tenure.db", file_mode=0o600, directory_mode=0o700)
    with unprivileged():
        if os.stat(public).st_uid == os.geteuid():
            pytest.skip("the owner is always permitted")
        opening(path, "store_unavailable")


def test_create_where_nothing_may_be_created_is_refused(public: Path) -> None:
    public.chmod(0o555)
    with unprivileged():
        opening(str(public / "s" / "tenure.db"), "store_unavailable")
        opening(str(public / "tenure.db"), "store_unavailable")
    assert list(public.iterdir()) == []


def test_open_a_missing_store_without_creating_is_refused_and_creates_nothing(tmp_path: Path) -> None:
    assert "no store" in opening(str(tmp_path / "gone" / "tenure.db"), "store_unavailable", create=False).message
    assert list(tmp_path.iterdir()) == []


def test_open_in_a_missing_directory_creates_it(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "a" / "b" / "tenure.db"))
    add(store)
    store.close()


def test_open_where_a_directory_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    opening(str(tmp_path / "file" / "tenure.db"), "store_unavailable")
    opening(str(tmp_path), "store_unavailable")


def test_open_a_file_that_is_no_database_is_refused_and_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "tenure.db"
    path.write_text("Dear diary,\n" * 100)
    opening(str(path), "store_corrupt")
    assert path.read_text() == "Dear diary,\n" * 100


@pytest.mark.parametrize(
    ("offset", "damage"),
    [(0, b"\0" * 100), (16, b"\xff" * 84), (100, b"\xff" * 3_996)],
    ids=["magic", "header", "first page"],
)
def test_open_a_damaged_file_is_refused(tmp_path: Path, offset: int, damage: bytes) -> None:
    path = used(tmp_path / "s" / "tenure.db", file_mode=0o600, directory_mode=0o700)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(damage)
    opening(path, "store_corrupt")


def test_check_a_file_damaged_inside_names_the_damage_or_refuses(tmp_path: Path) -> None:
    """Damage in the middle is not seen on opening; the check must see it, and no verb may crash on it."""
    path = used(tmp_path / "s" / "tenure.db", file_mode=0o600, directory_mode=0o700)
    connection = sqlite3.connect(path)
    page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'tasks'").fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    with open(path, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    store = SqliteStore(path)
    try:
        assert store.integrity_faults()
    except StoreFault as fault:
        refused(fault.refusal, "store_corrupt")
    refused(observe.list_tasks(store), "store_corrupt")
    refused(tasks.add_task(store, title="More"), "store_corrupt")
    store.close()
