"""Statements and answers on one connection: many in a round trip, and those that are sent ahead of one."""

from __future__ import annotations

import select
from functools import partial
from typing import Any

import psycopg
import pytest

from tenure.core.errors import Refused, refuse
from tenure.engine import claims, observe, receipts
from tenure.store.postgres_wire import Part, Wire
from tenure.store.sqlite import BatchLost
from tenure.store.store import Transaction
from tests.postgres.support import ProbedPostgres
from tests.support import add, join, ok, refused

BEGIN, COMMIT, ROLLBACK = (("BEGIN", None), ("COMMIT", None), ("ROLLBACK", None))
ADD = "INSERT INTO meta (key, value) VALUES (%(key)s, %(value)s)"
COUNT = "SELECT count(*) AS n FROM meta WHERE key LIKE 'wire%%'"
CONTENTION = "DO $$ BEGIN RAISE EXCEPTION 'as if' USING ERRCODE = '40001'; END $$"


@pytest.fixture
def wire(store: ProbedPostgres) -> Wire:
    store._connected()
    return store._wire


@pytest.fixture
def pushes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of what is pushed and writes."""
    seen: list[list[str]] = []
    push = Wire.push

    def noted(self: Wire, statements: Any) -> Part:
        if writes(statements):
            seen.append([text for text, _ in statements])
        return push(self, statements)

    monkeypatch.setattr(Wire, "push", noted)
    return seen


def adding(key: str) -> tuple[str, dict[str, Any]]:
    return ADD, {"key": f"wire {key}", "value": "x"}


def writes(statements: Any) -> bool:
    return any(word in text for text, _ in statements for word in ("INSERT INTO", "UPDATE tasks"))


def count(wire: Wire) -> int:
    return int(wire.exchange([(COUNT, None)])[0].value())


def is_idle(wire: Wire) -> bool:
    return wire.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def claiming(tx: Transaction, agent_id: str = "A1") -> Any:
    checked = claims.claim_next.check({"agent_id": agent_id})
    assert not isinstance(checked, Refused)
    return claims.claim_next.body(tx, **checked)


# -- answers ----------------------------------------------------------------------------------------------------------


def test_answers_are_each_statements_own_however_long_they_are(wire: Wire) -> None:
    long = "SELECT n AS number, repeat('x', 30000) AS text FROM generate_series(1, %(most)s) n"
    for _ in range(2):
        answers = wire.exchange(
            [(long, {"most": 3}), ("SELECT pg_sleep(0.01)", None), (long, {"most": 0}), ("SELECT 7 AS seven", None)]
        )
        assert [row["number"] for row in answers[0].rows()] == [1, 2, 3]
        assert {len(row["text"]) for row in answers[0].rows()} == {30_000}
        assert answers[2].rows() == []
        assert answers[3].rows() == [{"seven": 7}]
        assert answers[3].value() == 7


def test_answer_of_a_statement_that_has_more_columns_than_before_has_them_all(wire: Wire) -> None:
    wire.exchange([("CREATE TEMP TABLE wide (a INT)", None), ("INSERT INTO wide VALUES (1)", None)])
    text = "SELECT * FROM wide WHERE %(n)s > 0"
    assert wire.exchange([(text, {"n": 1})])[0].rows() == [{"a": 1}]
    wire.exchange([("ALTER TABLE wide ADD COLUMN b TEXT DEFAULT 'b'", None)])
    # Prepared anew, because the value is of another type.
    assert wire.exchange([(text, {"n": 1.5})])[0].rows() == [{"a": 1, "b": "b"}]


def test_error_is_the_first_statements_that_failed_and_the_others_stay_prepared(wire: Wire) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.exchange([adding("a"), ("SELECT 1 / %(n)s", {"n": 0}), ("SELECT nothing", None)])
        assert is_idle(wire)
        assert count(wire) == 0
    named = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO meta%'"
    assert wire.connection.execute(named).fetchone() == (1,)


# -- what is pushed ---------------------------------------------------------------------------------------------------


def test_push_is_run_before_the_exchange_which_gives_only_its_own_answers(wire: Wire) -> None:
    for key in "ab":
        wire.push([BEGIN, adding(key)])
        answers = wire.exchange([(COUNT, None), COMMIT])
        assert len(answers) == 2
        assert answers[0].rows() == [{"n": 1 if key == "a" else 2}]
    assert is_idle(wire)
    assert count(wire) == 2


def test_answers_to_a_push_are_read_while_those_to_later_ones_are_on_their_way(wire: Wire) -> None:
    parts = [wire.push([("SELECT repeat(%(letter)s, 20000) AS text", {"letter": letter})]) for letter in "abc"]
    assert wire.answers(parts[0])[0].value() == "a" * 20_000
    # Sent after both, so that both are read by the way; and one may ask for the earlier one's last.
    assert wire.exchange([("SELECT 7 AS seven", None)])[0].value() == 7
    assert wire.answers(parts[2])[0].value() == "c" * 20_000
    assert wire.answers(parts[1])[0].value() == "b" * 20_000
    assert is_idle(wire)
    assert wire.connection.execute("SELECT 1").fetchone() == (1,)


def test_answers_to_a_push_are_waited_for_asleep_after_more_was_sent_than_could_be_at_once(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = wire.push([("SELECT 7 AS seven", None)])
    large = wire.push([("SELECT length(%(text)s) AS n", {"text": "x" * 20_000_000})])
    assert wire.answers(small)[0].value() == 7
    # The rest goes out before somebody waits again.
    while wire._pgconn.flush():
        select.select([], [wire.connection.fileno()], [], 10.0)
    assert wire.answers(large)[0].value() == 20_000_000
    looks: list[Any] = []
    waiting = wire._waiting
    monkeypatch.setattr(wire, "_waiting", Noted(waiting, looks))
    wire.exchange([("SELECT pg_sleep(0.05)", None)])
    # Who is told at once that something could be sent looks thousands of times.
    assert 1 <= len(looks) < 20


class Noted:
    """A poll whose looks are counted."""

    def __init__(self, waiting: Any, looks: list[Any]) -> None:
        self.modify = waiting.modify
        self._poll = waiting.poll
        self._looks = looks

    def poll(self) -> Any:
        self._looks.append(None)
        return self._poll()


def test_answers_to_a_push_before_one_that_failed_are_good_and_those_after_it_are_not(wire: Wire) -> None:
    first = wire.push([BEGIN, (COUNT, None)])
    wire.push([("SELECT 1 / %(n)s", {"n": 0})])
    third = wire.push([(COUNT, None)])
    assert wire.answers(first)[1].value() == 0
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.answers(third)
    wire.settle()
    assert not is_idle(wire)
    wire.exchange([ROLLBACK])
    assert count(wire) == 0


@pytest.mark.parametrize("end", [COMMIT, ROLLBACK])
def test_push_that_fails_undoes_the_transaction_however_it_is_ended(wire: Wire, end: Any) -> None:
    for _ in range(2):
        wire.push([BEGIN, adding("a"), ("SELECT 1 / %(n)s", {"n": 0}), adding("b")])
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.exchange([end])
        assert is_idle(wire)
        assert count(wire) == 0


def test_push_that_fails_keeps_what_follows_from_being_done(wire: Wire) -> None:
    wire.push([BEGIN, adding("a"), ("SELECT 1 / %(n)s", {"n": 0})])
    with pytest.raises(psycopg.errors.DivisionByZero):
        wire.exchange([adding("b"), COMMIT])
    wire.exchange([ROLLBACK])
    assert count(wire) == 0


@pytest.mark.parametrize("last", [adding("b"), ("SELECT 1 / %(n)s", {"n": 0})])
def test_settle_reads_what_was_pushed_and_leaves_the_transaction_to_be_ended(wire: Wire, last: Any) -> None:
    wire.push([BEGIN, adding("a"), last])
    wire.settle()
    assert not is_idle(wire)
    wire.connection.execute("ROLLBACK")
    assert count(wire) == 0
    wire.settle()
    assert is_idle(wire)


def test_push_that_nobody_follows_keeps_its_locks_no_longer_than_an_idle_transaction(
    store: ProbedPostgres, wire: Wire
) -> None:
    other = store.clone()
    wire.exchange([adding("a"), ("SET idle_in_transaction_session_timeout = 100", None)])
    wire.push([BEGIN, ("SELECT key FROM meta WHERE key = 'wire a' FOR UPDATE", None)])
    # The server has run it, and told so.
    assert select.select([wire.connection.fileno()], [], [], 10.0)[0]
    # Waits for the lock, and fails after ten seconds.
    other.connection.execute("DELETE FROM meta WHERE key = 'wire a'")
    with pytest.raises(psycopg.OperationalError):
        wire.exchange([COMMIT])
    assert wire.connection.closed
    other.close()


# -- in a verb --------------------------------------------------------------------------------------------------------


def test_claim_pushes_its_lease_once(store: ProbedPostgres, pushes: list[list[str]]) -> None:
    for number in range(6):
        add(store, f"T{number}")
    join(store, "A1")
    ok(claims.claim_next(store, agent_id="A1"))
    assert [["INSERT INTO leases" in text for text in texts].count(True) for texts in pushes] == [1]
    ok(claims.offer(store, agent_id="A2", max_tasks=3))
    assert len(pushes) == 2
    assert ok(receipts.verify(store)).faults == ()


def six_ask_for_six(store: ProbedPostgres) -> None:
    """As many tasks as agents, who have asked before, so that what they will ask is read for them."""
    add(store, "FIRST", assigned_to="nobody here")
    for number in range(6):
        join(store, f"A{number}")
        refused(claims.claim_next(store, agent_id=f"A{number}"), "nothing_ready")
    for number in range(6):
        add(store, f"T{number}")


def test_batch_pushes_what_its_first_verbs_wrote_while_the_others_are_run(
    store: ProbedPostgres, pushes: list[list[str]]
) -> None:
    six_ask_for_six(store)
    outcomes = store.run_many([partial(claiming, agent_id=f"A{number}") for number in range(6)], 30.0)
    assert [ok(outcome.answer).task.task_id for outcome in outcomes] == [f"T{number}" for number in range(6)]
    assert len(pushes) >= 1
    assert not any("COMMIT" in texts for texts in pushes)
    assert ok(receipts.verify(store)).receipts == 6
    assert ok(receipts.verify(store)).faults == ()


def test_batch_of_which_one_verb_fails_after_a_push_leaves_nothing(
    store: ProbedPostgres, pushes: list[list[str]]
) -> None:
    six_ask_for_six(store)
    pid = store._connected().info.backend_pid

    def fails(tx: Transaction) -> None:
        tx.one("meta", key="none")
        raise ValueError

    with pytest.raises(BatchLost):
        store.run_many([*(partial(claiming, agent_id=f"A{number}") for number in range(5)), fails], 30.0)
    assert any("INSERT INTO leases" in text for texts in pushes for text in texts)
    assert store._connected().info.backend_pid == pid
    assert ok(receipts.verify(store)).receipts == 0
    assert ok(claims.claim_next(store, agent_id="A5")).task.task_id == "T0"


def test_batch_whose_push_the_server_refuses_leaves_nothing(
    store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    six_ask_for_six(store)
    bodies = [partial(claiming, agent_id=f"A{number}") for number in range(6)]
    failing_once(CONTENTION, monkeypatch)
    with pytest.raises(BatchLost):
        store.run_many(bodies, 30.0)
    assert ok(receipts.verify(store)).receipts == 0
    assert len(store.run_many(bodies, 30.0)) == 6
    assert ok(receipts.verify(store)).receipts == 6


def test_attempt_that_is_refused_after_a_lease_is_not_pushed(store: ProbedPostgres, pushes: list[list[str]]) -> None:
    add(store, "T1")
    join(store, "A1")

    def body(tx: Transaction) -> Any:
        def step() -> Refused:
            ok(claiming(tx))
            return refuse("nothing_ready", "as if")

        tx.one("meta", key="none")
        return tx.attempt(step)

    assert isinstance(store.run(body), Refused)
    assert pushes == []
    assert ok(claims.leases_of(store, agent_id="A1")) == ()
    ok(claims.claim_next(store, agent_id="A1"))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_verb_that_fails_after_its_push_leaves_nothing_and_the_connection_is_kept(
    store: ProbedPostgres, pushes: list[list[str]], error: type[BaseException]
) -> None:
    add(store, "T1")
    join(store, "A1")
    pid = store._connected().info.backend_pid

    def body(tx: Transaction) -> None:
        ok(claiming(tx))
        raise error

    with pytest.raises(error):
        store.run(body)
    assert len(pushes) == 1
    assert store._connected().info.backend_pid == pid
    assert ok(claims.leases_of(store, agent_id="A1")) == ()
    assert ok(claims.claim_next(store, agent_id="A1")).task.task_id == "T1"


def failing_once(text: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the first push that writes end in an error of the server."""
    pushed: list[int] = []
    push = Wire.push

    def failing(self: Wire, statements: Any) -> Part:
        if writes(statements):
            pushed.append(len(statements))
            if len(pushed) == 1:
                statements = [*statements, (text, None)]
        return push(self, statements)

    monkeypatch.setattr(Wire, "push", failing)
    return pushed


def test_verb_whose_push_was_undone_by_others_is_run_again(
    store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, "T1")
    add(store, "T2")
    pushed = failing_once(CONTENTION, monkeypatch)
    given = ok(claims.claim_next(store, agent_id="A1"))
    assert len(pushed) == 2
    assert [lease.lease_id for lease in ok(claims.leases_of(store, agent_id="A1"))] == [given.lease.lease_id]
    assert ok(receipts.verify(store)).receipts == 1


def test_verb_whose_push_failed_and_that_fails_itself_leaves_nothing(
    store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, "T1")
    join(store, "A1")
    failing_once("SELECT nothing", monkeypatch)

    def body(tx: Transaction) -> None:
        claiming(tx)
        raise ValueError

    pid = store._connected().info.backend_pid
    with pytest.raises(ValueError):  # noqa: PT011 - it says nothing
        store.run(body)
    assert store._connected().info.backend_pid == pid
    assert ok(claims.leases_of(store, agent_id="A1")) == ()
    ok(claims.claim_next(store, agent_id="A1"))


def test_connection_lost_after_a_push_runs_the_verb_again(store: ProbedPostgres, pushes: list[list[str]]) -> None:
    add(store, "T1")
    add(store, "T2")
    other, tries = store.clone(), []

    def body(tx: Transaction) -> Any:
        tries.append(1)
        pid = store._connected().info.backend_pid
        given = ok(claiming(tx))
        if len(tries) == 1:
            other.connection.execute(f"SELECT pg_terminate_backend({pid})")
        return given

    given = store.run(body)
    assert len(tries) == len(pushes) == 2
    assert [lease.lease_id for lease in ok(claims.leases_of(other, agent_id="A1"))] == [given.lease.lease_id]
    assert len(ok(observe.list_tasks(other))) == 2
    other.close()


def test_statement_that_the_server_refuses_is_a_fault_after_a_push_too(
    store: ProbedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, "T1")
    join(store, "A1")
    failing_once("DO $$ BEGIN RAISE EXCEPTION 'as if' USING ERRCODE = '53100'; END $$", monkeypatch)
    answer = claims.claim_next(store, agent_id="A1")
    assert isinstance(answer, Refused)
    assert answer.code == "store_full"
    assert ok(claims.leases_of(store, agent_id="A1")) == ()
