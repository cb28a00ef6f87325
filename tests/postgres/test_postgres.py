"""The store on PostgreSQL itself: lost connections, commits in doubt, migrations, addresses, faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure import app
from tenure.core.errors import Refused
from tenure.engine import agents, claims, endings, observe, receipts, tasks
from tenure.store import postgres_schema, postgres_transaction
from tenure.store.postgres import MARK, PostgresStore
from tenure.store.postgres_wire import Answer, Wire
from tenure.store.store import StoreFault
from tests.postgres.proxy import Proxy
from tests.postgres.races import PATIENCE_S, await_blocked
from tests.postgres.support import ProbedPostgres, shared_cluster
from tests.support import add, join, ok, refused, take


@pytest.fixture
def proxy(store: ProbedPostgres) -> Iterator[Proxy]:
    port = psycopg.conninfo.conninfo_to_dict(store.url).get("port")
    made = Proxy(int(port or 5432))
    yield made
    made.close()


@pytest.fixture
def far(store: ProbedPostgres, proxy: Proxy) -> Iterator[PostgresStore]:
    """The same store, over a network that can fail."""
    parts = psycopg.conninfo.conninfo_to_dict(store.url)
    opened = PostgresStore(f"postgresql://tenure@127.0.0.1:{proxy.port}/{parts['dbname']}")
    yield opened
    opened.close()


# -- connections ------------------------------------------------------------------------------------------------------


def test_verb_on_a_connection_that_was_cut_is_run_on_another(
    store: ProbedPostgres, proxy: Proxy, far: PostgresStore
) -> None:
    ok(tasks.add_task(far, task_id="T1", title="t"))
    proxy.hang_up()
    ok(tasks.add_task(far, task_id="T2", title="t"))
    assert len(ok(observe.list_tasks(store))) == 2


def test_commit_whose_answer_is_lost_is_found_to_have_taken_place(
    store: ProbedPostgres, proxy: Proxy, far: PostgresStore
) -> None:
    add(store, "T1")
    add(store, "T2")
    proxy.lose_answer = True
    given = ok(claims.claim_next(far, agent_id="A1"))
    assert proxy.lost == 1
    assert given.task.task_id == "T1"
    # Run again it would have taken the other task too.
    assert [lease.lease_id for lease in ok(claims.leases_of(store, agent_id="A1"))] == [given.lease.lease_id]
    assert ok(receipts.verify(store)).receipts == 1


@pytest.mark.parametrize("committed_before", [True, False])
def test_commit_of_a_lost_connection_that_the_server_is_still_at_never_takes_place(
    store: ProbedPostgres, proxy: Proxy, far: PostgresStore, monkeypatch: pytest.MonkeyPatch, committed_before: bool
) -> None:
    """The server goes on for a client that is gone. If the verb has been run again, its commit must not count too."""
    join(far if committed_before else store, "A1")
    for name in ("T1", "T2"):
        add(store, name)
    send = postgres_transaction._send
    slow = [("SELECT pg_advisory_xact_lock(77)", None)]

    def held_up(wire: Wire, statements: list[Any]) -> list[Answer]:
        if statements[-1][0] == "COMMIT" and slow:
            statements = [*statements[:-3], slow.pop(), *statements[-3:]]
        return send(wire, statements)

    monkeypatch.setattr(postgres_transaction, "_send", held_up)
    with psycopg.connect(store.url, autocommit=True) as other, ThreadPoolExecutor(1) as aside:
        other.execute("SELECT pg_advisory_lock(77)")
        claiming = aside.submit(claims.claim_next, far, agent_id="A1")
        await_blocked(store.url)
        proxy.hang_up()
        given = ok(claiming.result(PATIENCE_S))
        other.execute("SELECT pg_advisory_unlock(77)")
        # Once it has the lock, the old transaction has come to its end when it gives that back.
        other.execute("SELECT pg_advisory_lock(77)")
    assert [lease.lease_id for lease in ok(claims.leases_of(store, agent_id="A1"))] == [given.lease.lease_id]
    assert ok(receipts.verify(store)).receipts == 1


def test_write_that_gives_rows_is_marked_too(store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a lost connection the mark alone tells whether it took place."""
    sent: list[str] = []
    send = postgres_transaction._send

    def noted(wire: Wire, statements: list[Any]) -> list[Answer]:
        sent.extend(text for text, _ in statements)
        return send(wire, statements)

    monkeypatch.setattr(postgres_transaction, "_send", noted)
    store.run(lambda tx: tx.one("board_card_gone", key=1))
    assert MARK in sent
    sent.clear()
    store.run(lambda tx: tx.one("meta", key="none"))
    assert MARK not in sent


def test_commit_refused_by_a_session_that_is_not_ours_is_run_again(store: ProbedPostgres) -> None:
    """As behind a pooler: the connection stands, but what was prepared in it is gone."""
    store.run(lambda tx: tx.do("set_meta", key="a", value="1"))
    tries: list[int] = []

    def set_it(tx: Any) -> None:
        tx.one("meta", key="a")
        tx.do("set_meta", key="a", value="2")
        tries.append(1)
        if len(tries) == 1:
            tx._pending.append(("DEALLOCATE ALL", None))

    store.run(set_it)
    assert len(tries) == 2


def test_agent_that_moves_to_another_machine_is_known_there(store: ProbedPostgres) -> None:
    for worktree, host in (("/a", "h1"), ("/b", "h2")):
        ok(agents.register(store, agent_id="A1", worktree=worktree, host=host))
    rows = store.connection.execute("SELECT worktree, host FROM agents WHERE agent_id = 'A1'").fetchall()
    assert rows == [("/b", "h2")]


def test_commit_that_never_arrived_is_run_again(store: ProbedPostgres, proxy: Proxy, far: PostgresStore) -> None:
    add(store, "T1")
    proxy.lose_commit = True
    given = ok(claims.claim_next(far, agent_id="A1"))
    assert proxy.lost == 1
    assert [lease.lease_id for lease in ok(claims.leases_of(store, agent_id="A1"))] == [given.lease.lease_id]
    assert ok(receipts.verify(store)).receipts == 1


def test_verb_without_a_server_is_refused_when_its_patience_is_over(store: ProbedPostgres, proxy: Proxy) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(store.url)
    url = f"postgresql://tenure@127.0.0.1:{proxy.port}/{parts['dbname']}"
    impatient = PostgresStore(url, busy_timeout_s=0.3)
    proxy.close()
    refused(tasks.add_task(impatient, title="t"), "store_unavailable")
    refused(observe.list_tasks(impatient), "store_unavailable")
    impatient.close()


def test_backend_terminated_in_the_middle_of_a_verb_runs_it_again(store: ProbedPostgres) -> None:
    other, tries = store.clone(), []

    def body(tx: object) -> None:
        tries.append(1)
        pid = store._connected().info.backend_pid
        tasks.add_task.body(tx, task_id="T1", title="t")  # type: ignore[arg-type]
        if len(tries) == 1:
            other.connection.execute(f"SELECT pg_terminate_backend({pid})")

    store.run(body)
    assert len(tries) == 2
    assert len(ok(observe.list_tasks(other))) == 1
    other.close()


# -- the schema -------------------------------------------------------------------------------------------------------


def test_open_a_new_database_by_eight_at_once_migrates_it_once() -> None:
    cluster = shared_cluster()
    url = cluster.url(cluster.new_database())
    meeting = threading.Barrier(8)

    def open_it(number: int) -> str:
        meeting.wait(120)
        opened = PostgresStore(url)
        answer = tasks.add_task(opened, task_id=f"T{number}", title="t")
        opened.close()
        return answer.code if isinstance(answer, Refused) else "added"

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(open_it, range(8))) == ["added"] * 8


def test_open_without_create_where_there_is_no_store_is_refused() -> None:
    cluster = shared_cluster()
    with pytest.raises(StoreFault) as raised:
        PostgresStore(cluster.url(cluster.new_database()), create=False)
    assert raised.value.refusal.code == "store_unavailable"


def test_open_a_database_of_another_program_is_refused_and_leaves_it_alone() -> None:
    cluster = shared_cluster()
    name = cluster.new_database()
    cluster.execute("CREATE TABLE tasks (mine text)", name)
    with pytest.raises(StoreFault) as raised:
        PostgresStore(cluster.url(name))
    assert raised.value.refusal.code == "store_foreign"
    assert cluster.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name) == [("tasks",)]


def test_open_a_newer_store_is_allowed_unless_it_says_otherwise(store: ProbedPostgres) -> None:
    store.connection.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    PostgresStore(store.url).close()
    store.connection.execute("UPDATE meta SET value = '999' WHERE key = 'oldest_writer'")
    with pytest.raises(StoreFault) as raised:
        PostgresStore(store.url)
    assert raised.value.refusal.code == "store_newer"


def test_migrations_end_with_the_schema_version() -> None:
    numbers = [number for number, _ in postgres_schema.migrations()]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == postgres_schema.SCHEMA_VERSION


@pytest.mark.parametrize("version", [number for number, _ in postgres_schema.migrations() if number >= 10])
def test_open_a_store_of_an_older_version_in_use_migrates_it(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = shared_cluster()
    url = cluster.url(cluster.new_database())
    older = [migration for migration in postgres_schema.migrations() if migration[0] <= version]
    with monkeypatch.context() as then:
        then.setattr(postgres_schema, "migrations", lambda: older)
        then.setattr(postgres_schema, "SCHEMA_VERSION", version)
        before = PostgresStore(url)
    assert before.schema_version() == version
    add(before, "T1")
    lease = take(before, "A1", "T1", "cli")
    now = PostgresStore(url)
    assert now.schema_version() == postgres_schema.SCHEMA_VERSION
    # The node of the older version goes on, on the same connection.
    ok(endings.complete(before, lease_id=lease.lease_id))
    add(now, "T2")
    ok(endings.complete(now, lease_id=take(now, "A1", "T2", "cli").lease_id))
    assert now.integrity_faults() == []
    for store in (before, now):
        store.close()


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("tasks", "status = 'asleep'"),
        ("tasks", "priority = 'urgent'"),
        ("tasks", "complexity = 'odd'"),
        ("tasks", "owner = 'nobody'"),
        ("tasks", "obligation = 'lost'"),
        ("tasks", "progress = 101"),
        ("tasks", "unmet = -1"),
        ("tasks", "slots = 0"),
        ("tasks", "open_slots = -1"),
        ("leases", "state = 'lost'"),
        ("leases", "term_ms = 0"),
        ("receipts", "phase = 'refused'"),
    ],
)
def test_row_that_cannot_be_is_refused_by_the_database(store: ProbedPostgres, table: str, change: str) -> None:
    add(store)
    take(store, "A1", profile="cli")
    with pytest.raises(psycopg.errors.CheckViolation):
        store.connection.execute(f"UPDATE {table} SET {change}")


def test_queries_are_all_sound(store: ProbedPostgres) -> None:
    """Every query is prepared as a look and as a write transaction asks it: the database checks names and types."""
    import re

    connection = store._connected()
    for found in (postgres_schema.reading(), postgres_schema.deciding()):
        for name, text in found.items():
            names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
            numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", text).replace("%%", "%")  # noqa: B023
            try:
                connection.execute(f"PREPARE sound AS {numbered}".encode(), prepare=False)
            except psycopg.Error as error:
                raise AssertionError(f"{name}: {error}") from error
            connection.execute("DEALLOCATE sound")


def test_numbers_restored_into_a_younger_cluster_go_on_above_the_old_ones(store: ProbedPostgres) -> None:
    add(store, "OLD")
    store.connection.execute("UPDATE events SET seq = seq + 1000000000000")
    assert store.lift_numbers()
    assert not store.lift_numbers(), "once is enough"
    old = ok(observe.events(store))[-1].seq
    add(store, "NEW")
    assert [event.task_id for event in ok(observe.events(store, after=old))] == ["NEW"]


# -- addresses --------------------------------------------------------------------------------------------------------


def test_open_store_by_words_or_capitals_opens_postgresql_too(store: ProbedPostgres) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(store.url)
    words = " ".join(f"{name}='{value}'" for name, value in parts.items())
    for named in (words, store.url.replace("postgresql://", "POSTGRESQL://", 1)):
        opened = ok(app.open_store(named, environ={}))
        assert isinstance(opened, PostgresStore)
        opened.close()


@pytest.mark.parametrize("named", ["postgresql:/tenure@db.example/tenure", "postgres:tenure"])
def test_open_store_by_an_address_without_its_slashes_makes_no_file(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "two slashes" in refused(app.open_store(named, environ={}), "store_unavailable").message
    assert list(tmp_path.iterdir()) == []


def test_open_store_in_a_schema_that_does_not_exist_says_that_it_has_to_be_made(store: ProbedPostgres) -> None:
    named = f"{store.url}{'&' if '?' in store.url else '?'}options=-csearch_path%3Dnowhere"
    refusal = refused(app.open_store(named, environ={}), "store_unavailable")
    assert "has to be made first" in refusal.message
    assert refusal.facts["sqlstate"] == "3F000"


def test_open_store_by_an_address_opens_postgresql(store: ProbedPostgres) -> None:
    for url in (store.url, store.url.replace("postgresql://", "postgres://")):
        opened = ok(app.open_store(None, environ={"TENURE_STORE": url}))
        assert isinstance(opened, PostgresStore)
        opened.close()


def test_path_never_shows_a_password(store: ProbedPostgres) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(store.url)
    secret = f"postgresql://tenure:hunter2@127.0.0.1:{parts['port']}/{parts['dbname']}"
    opened = PostgresStore(secret)
    assert "hunter2" not in opened.path
    opened.close()
    closed = secret.replace(f":{parts['port']}/", ":1/")
    refusal = refused(app.open_store(closed, environ={}, busy_timeout_s=0.1), "store_unavailable")
    assert "hunter2" not in f"{refusal.message} {refusal.facts}"


def test_address_that_cannot_be_read_is_refused() -> None:
    refused(app.open_store("postgresql://[nonsense", environ={}), "store_unavailable")
    refused(app.open_store("mysql://host/db", environ={}), "store_unavailable")


def test_address_of_several_hosts_finds_the_one_that_takes_writes(store: ProbedPostgres) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(store.url)
    opened = PostgresStore(f"postgresql://tenure@127.0.0.1:1,127.0.0.1:{parts['port']}/{parts['dbname']}")
    add(opened, "T1")
    opened.close()


# -- faults -----------------------------------------------------------------------------------------------------------


def test_lock_held_too_long_is_store_busy(store: ProbedPostgres) -> None:
    add(store)
    with psycopg.connect(store.url) as holder:
        holder.execute("SELECT * FROM tasks FOR UPDATE")
        store._connected().execute("SET lock_timeout = '50ms'")
        refused(claims.claim(store, task_id="F001", agent_id="A1"), "store_busy")
        holder.rollback()
    take(store, "A1", profile="cli")


def test_clock_is_the_databases(store: ProbedPostgres) -> None:
    before = store.time_ms()
    now = store.run(lambda tx: tx.now_ms)
    assert before <= now <= store.time_ms()
