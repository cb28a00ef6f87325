"""What every store promises the engine, whichever database is behind it.

A store is run through this by a subclass of `StoreContract` for which there is a `database` fixture (test_contract.py).
Only verbs and named queries are used here, so that nothing depends on one database's dialect.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tenure.core.errors import Refused, refuse
from tenure.core.model import Lease
from tenure.engine import agents, claims, load, observe, recovery, tasks
from tenure.store.store import Store, StoreFault, Transaction, fault
from tests.support import ok, refused


@dataclass
class Database:
    """An empty database, and what a test of any database needs to know about this one."""

    connect: Callable[[], Store]
    # Time passes for everyone who uses the database.
    lapse: Callable[[float], None]
    # What a broken constraint raises.
    integrity_error: type[Exception]
    opened: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        """Another connection."""
        self.opened.append(self.connect())
        return self.opened[-1]

    def close(self) -> None:
        for store in self.opened:
            store.close()


class UnforeseenError(Exception):
    """Something that nobody expected in the middle of a verb."""


def put(tx: Transaction, key: str, value: str = "yes") -> None:
    tx.do("set_meta", key=key, value=value)


def kept(store: Store, *keys: str) -> list[str]:
    """Those of the keys that another transaction finds."""
    return store.look(lambda tx: [key for key in keys if tx.one("meta", key=key) is not None])


def hold(store: Store, task_id: str = "F001", agent_id: str = "A1") -> Lease:
    """A task in the hands of an agent, for a minute."""
    ok(tasks.add_task(store, task_id=task_id, title="Parse the log"))
    return ok(claims.claim(store, task_id=task_id, agent_id=agent_id, profile="cli", ttl_s=60)).lease


def insert(store: Store, lease: Lease) -> None:
    """Write a lease behind the engine's back."""
    store.run(lambda tx: tx.do("add_lease", **lease.as_dict()))


class StoreContract:
    """The promises. A subclass says of which database."""

    # -- run ----------------------------------------------------------------------------------------------------------

    def test_run_answering_with_a_refusal_commits_what_it_wrote(self, database: Database) -> None:
        def body(tx: Transaction) -> Refused:
            put(tx, "written")
            return refuse("wrong_state", "No.")

        refused(database.open().run(body), "wrong_state")
        assert kept(database.open(), "written") == ["written"]

    @pytest.mark.parametrize("error", [UnforeseenError, KeyboardInterrupt, AssertionError])
    def test_run_raising_writes_nothing_and_passes_the_error_on(
        self, database: Database, error: type[BaseException]
    ) -> None:
        store = database.open()

        def body(tx: Transaction) -> None:
            put(tx, "written")
            raise error

        with pytest.raises(error):
            store.run(body)
        assert kept(store, "written") == []
        store.run(lambda tx: put(tx, "next"))
        assert kept(store, "next") == ["next"]

    def test_run_raising_a_fault_keeps_its_refusal(self, database: Database) -> None:
        def body(tx: Transaction) -> None:
            raise fault("store_full", "Full.")

        with pytest.raises(StoreFault) as raised:
            database.open().run(body)
        assert raised.value.refusal.code == "store_full"

    def test_run_inside_another_raises_and_undoes_both(self, database: Database) -> None:
        store = database.open()

        def body(tx: Transaction) -> None:
            put(tx, "outer")
            store.run(lambda inner: put(inner, "inner"))

        with pytest.raises(Exception):  # noqa: B017, PT011 - which one is the database's own business
            store.run(body)
        assert kept(store, "outer", "inner") == []
        store.run(lambda tx: put(tx, "next"))
        assert kept(store, "next") == ["next"]

    # -- settle -------------------------------------------------------------------------------------------------------

    def test_settle_before_an_error_keeps_what_was_settled_only(self, database: Database) -> None:
        store = database.open()

        def body(tx: Transaction) -> None:
            put(tx, "first")
            tx.settle()
            put(tx, "second")
            tx.settle()
            put(tx, "third")
            raise UnforeseenError

        with pytest.raises(UnforeseenError):
            store.run(body)
        assert kept(store, "first", "second", "third") == ["first", "second"]

    def test_settle_before_a_refusal_keeps_everything(self, database: Database) -> None:
        store = database.open()

        def body(tx: Transaction) -> Refused:
            put(tx, "first")
            tx.settle()
            put(tx, "second")
            return refuse("wrong_state", "No.")

        store.run(body)
        assert kept(store, "first", "second") == ["first", "second"]

    def test_settle_before_a_broken_constraint_keeps_what_was_settled(self, database: Database) -> None:
        store = database.open()
        lease = hold(store)

        def body(tx: Transaction) -> None:
            put(tx, "first")
            tx.settle()
            put(tx, "second")
            tx.do("add_lease", **lease.as_dict())

        with pytest.raises(database.integrity_error):
            store.run(body)
        assert kept(store, "first", "second") == ["first"]

    def test_settle_before_an_error_inside_a_step_keeps_what_was_settled(self, database: Database) -> None:
        store = database.open()

        def step(tx: Transaction) -> None:
            put(tx, "step")
            raise UnforeseenError

        def body(tx: Transaction) -> None:
            put(tx, "first")
            tx.settle()
            tx.attempt(lambda: tx.attempt(lambda: step(tx)))

        with pytest.raises(UnforeseenError):
            store.run(body)
        assert kept(store, "first", "step") == ["first"]
        store.run(lambda tx: put(tx, "next"))
        assert kept(store, "next") == ["next"]

    # -- attempt ------------------------------------------------------------------------------------------------------

    def test_attempt_refused_undoes_that_step_only(self, database: Database) -> None:
        store = database.open()

        def step(tx: Transaction) -> Refused:
            put(tx, "step")
            return refuse("cycle", "Round and round.")

        def body(tx: Transaction) -> Refused:
            put(tx, "before")
            answer = tx.attempt(lambda: step(tx))
            put(tx, "after")
            return answer

        refused(store.run(body), "cycle")
        assert kept(store, "before", "step", "after") == ["before", "after"]

    def test_attempt_answered_keeps_the_step(self, database: Database) -> None:
        store = database.open()
        store.run(lambda tx: tx.attempt(lambda: put(tx, "step")))
        assert kept(store, "step") == ["step"]

    def test_attempt_refused_inside_one_that_is_answered_undoes_the_inner_one(self, database: Database) -> None:
        store = database.open()

        def inner(tx: Transaction) -> Refused:
            put(tx, "inner")
            return refuse("cycle", "Round and round.")

        def outer(tx: Transaction) -> str:
            put(tx, "outer")
            tx.attempt(lambda: inner(tx))
            return "done"

        assert store.run(lambda tx: tx.attempt(lambda: outer(tx))) == "done"
        assert kept(store, "outer", "inner") == ["outer"]

    def test_attempt_raising_undoes_the_whole_verb(self, database: Database) -> None:
        store = database.open()

        def step(tx: Transaction) -> None:
            put(tx, "step")
            raise UnforeseenError

        def body(tx: Transaction) -> None:
            put(tx, "before")
            tx.attempt(lambda: step(tx))

        with pytest.raises(UnforeseenError):
            store.run(body)
        assert kept(store, "before", "step") == []

    # -- look ---------------------------------------------------------------------------------------------------------

    def test_look_while_another_writes_sees_one_snapshot(self, database: Database) -> None:
        reader, writer = database.open(), database.open()
        writer.run(lambda tx: put(tx, "count", "1"))

        def body(tx: Transaction) -> list[object]:
            seen: list[object] = [tx.one("meta", key="count")]
            writer.run(lambda other: put(other, "count", "2"))
            return [*seen, tx.one("meta", key="count")]

        assert reader.look(body) == [{"value": "1"}, {"value": "1"}]
        assert reader.look(lambda tx: tx.one("meta", key="count")) == {"value": "2"}

    def test_look_during_a_write_neither_waits_nor_sees_it(self, database: Database) -> None:
        reader, writer = database.open(), database.open()

        def body(tx: Transaction) -> list[str]:
            put(tx, "unfinished")
            return kept(reader, "unfinished")

        assert writer.run(body) == []
        assert kept(reader, "unfinished") == ["unfinished"]

    def test_look_that_writes_leaves_nothing(self, database: Database) -> None:
        store = database.open()
        with contextlib.suppress(Exception):
            store.look(lambda tx: put(tx, "written"))
        assert kept(store, "written") == []
        store.run(lambda tx: put(tx, "next"))
        assert kept(store, "next") == ["next"]

    def test_look_that_raises_leaves_the_store_usable(self, database: Database) -> None:
        store = database.open()

        def body(tx: Transaction) -> None:
            raise UnforeseenError

        with pytest.raises(UnforeseenError):
            store.look(body)
        store.run(lambda tx: put(tx, "next"))
        assert kept(store, "next") == ["next"]

    # -- time ---------------------------------------------------------------------------------------------------------

    def test_now_stands_still_within_a_transaction_and_moves_between(self, database: Database) -> None:
        store = database.open()

        def body(tx: Transaction) -> tuple[int, int]:
            before = tx.now_ms
            database.lapse(5)
            return before, tx.now_ms

        first, still = store.run(body)
        assert still == first
        assert store.look(lambda tx: tx.now_ms) >= first + 5_000
        assert store.run(lambda tx: tx.now_ms) >= first + 5_000

    # -- on_recovery_callback -----------------------------------------------------------------------------------------

    def test_callback_on_a_recovery_is_called_after_its_commit(self, database: Database) -> None:
        store, witness = database.open(), database.open()
        seen: list[tuple[str, str, str]] = []

        def callback(agent_id: str, task_id: str) -> None:
            lease_seen = witness.look(lambda tx: load.lease_by_id(tx, lease.lease_id))
            assert lease_seen is not None
            seen.append((agent_id, task_id, lease_seen.state))

        lease = hold(store)
        store.on_recovery_callback = callback
        database.lapse(61)
        ok(claims.claim(store, task_id="F001", agent_id="A2"))
        assert seen == [("A1", "F001", "expired")]

    def test_callback_on_a_verb_that_fails_is_told_what_was_settled_only(self, database: Database) -> None:
        store = database.open()
        told: list[tuple[str, str]] = []
        leases = [hold(store, task_id, agent_id) for task_id, agent_id in (("F001", "A1"), ("F002", "A2"))]
        store.on_recovery_callback = lambda agent_id, task_id: told.append((agent_id, task_id))
        database.lapse(61)

        def body(tx: Transaction, *, settle: bool) -> None:
            recovery.recover(tx, leases[0])
            if settle:
                tx.settle()
            recovery.recover(tx, leases[1])
            raise UnforeseenError

        with pytest.raises(UnforeseenError):
            store.run(lambda tx: body(tx, settle=False))
        assert told == []
        with pytest.raises(UnforeseenError):
            store.run(lambda tx: body(tx, settle=True))
        assert told == [("A1", "F001")]
        assert store.look(lambda tx: [load.lease_by_id(tx, lease.lease_id).state for lease in leases]) == [  # type: ignore[union-attr]
            "expired",
            "active",
        ]

    def test_callback_raising_leaves_the_recovery_and_the_answer(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = database.open()
        told: list[str] = []

        def callback(agent_id: str, task_id: str) -> None:
            told.append(task_id)
            raise UnforeseenError

        hold(store, "F001", "A1")
        hold(store, "F002", "A2")
        store.on_recovery_callback = callback
        database.lapse(61)
        with caplog.at_level(logging.ERROR, logger="tenure"):
            assert ok(recovery.advance(store)).recovered == 2
        assert sorted(told) == ["F001", "F002"]
        assert len(caplog.records) == 2
        assert ok(observe.statistics(store)).recoveries == 2

    def test_callback_using_the_store_itself_works(self, database: Database) -> None:
        store = database.open()
        hold(store)
        again: list[object] = []
        store.on_recovery_callback = lambda agent_id, task_id: again.append(
            claims.claim(store, task_id=task_id, agent_id=agent_id)
        )
        database.lapse(61)
        assert ok(recovery.advance(store)).recovered == 1
        assert [ok(answer).lease.agent_id for answer in again if isinstance(answer, claims.Grant)] == ["A1"]

    def test_callback_on_an_offer_nobody_accepted_is_not_called(self, database: Database) -> None:
        store = database.open()
        told: list[str] = []
        ok(tasks.add_task(store, task_id="F001", title="Parse the log"))
        ok(claims.offer(store, agent_id="worker.a-1"))
        store.on_recovery_callback = lambda agent_id, task_id: told.append(task_id)
        database.lapse(901)
        assert ok(recovery.advance(store)).offers_expired == 1
        assert told == []

    # -- what the schema forbids, whatever the engine believes --------------------------------------------------------

    @pytest.mark.parametrize("state", ["offered", "active"])
    def test_insert_a_second_live_lease_on_a_task_is_impossible(self, database: Database, state: str) -> None:
        store = database.open()
        lease = hold(store)
        second = lease.as_dict() | {"lease_id": "L-second", "token": lease.token + 1, "state": state}
        with pytest.raises(database.integrity_error):
            insert(store, Lease(**second))
        assert [held.lease_id for held in ok(claims.leases_of(store, agent_id="A1"))] == [lease.lease_id]

    def test_insert_a_live_lease_after_an_ended_one_is_possible(self, database: Database) -> None:
        store = database.open()
        lease = hold(store)
        insert(store, lease.replace(lease_id="L-old", token=lease.token - 1, state="expired"))

    def test_insert_a_live_lease_in_another_slot_is_possible(self, database: Database) -> None:
        store = database.open()
        lease = hold(store)
        insert(store, lease.replace(lease_id="L-second", token=lease.token + 1, slot=1))

    def test_insert_a_token_twice_on_a_task_is_impossible(self, database: Database) -> None:
        store = database.open()
        lease = hold(store)
        with pytest.raises(database.integrity_error):
            insert(store, lease.replace(lease_id="L-old", state="expired"))

    def test_insert_the_same_token_on_another_task_is_possible(self, database: Database) -> None:
        store = database.open()
        lease = hold(store)
        other = ok(tasks.add_task(store, task_id="F002", title="Other"))
        insert(store, lease.replace(lease_id="L-other", task_key=other.key, task_id="F002"))

    @pytest.mark.parametrize("missing", [{"task_key": 4711}, {"agent_id": "nobody"}])
    def test_insert_a_lease_of_something_missing_is_impossible(
        self, database: Database, missing: dict[str, object]
    ) -> None:
        store = database.open()
        ended = hold(store).as_dict() | {"lease_id": "L-old", "token": 1, "state": "expired"}
        with pytest.raises(database.integrity_error):
            insert(store, Lease(**(ended | missing)))

    def test_insert_an_unknown_state_is_impossible(self, database: Database) -> None:
        store = database.open()
        odd = hold(store).as_dict() | {"lease_id": "L-odd", "token": 1, "state": "sleeping"}
        with pytest.raises(database.integrity_error):
            insert(store, Lease(**odd))

    @pytest.mark.parametrize(
        "odd",
        [
            {"status": "sleeping"},
            {"owner": "nobody"},
            {"obligation": "perhaps"},
            {"progress": 101},
            {"open_slots": -1},
        ],
        ids=lambda odd: next(iter(odd)),
    )
    def test_save_a_task_in_an_unknown_state_is_impossible(self, database: Database, odd: dict[str, object]) -> None:
        store = database.open()
        task = ok(tasks.add_task(store, task_id="F001", title="Parse the log"))
        with pytest.raises(database.integrity_error):
            store.run(lambda tx: tx.do("save_task", **(task.as_dict() | odd)))

    @pytest.mark.parametrize(
        "odd",
        [{"priority": "utmost"}, {"complexity": "vast"}, {"unmet": -1}, {"slots": 0}],
        ids=lambda odd: next(iter(odd)),
    )
    def test_insert_a_task_in_an_unknown_state_is_impossible(self, database: Database, odd: dict[str, object]) -> None:
        store = database.open()
        task = ok(tasks.add_task(store, task_id="F001", title="Parse the log"))
        with pytest.raises(database.integrity_error):
            store.run(lambda tx: tx.one("add_task", **(task.as_dict() | {"task_id": "F002"} | odd)))

    def test_delete_a_task_takes_its_leases_and_leaves_its_receipts(self, database: Database) -> None:
        store = database.open()
        lease = hold(store)
        ok(tasks.delete_task(store, task_id="F001", force=True))
        assert store.look(lambda tx: load.lease_by_id(tx, lease.lease_id)) is None
        assert store.look(lambda tx: tx.all("chain", task_key=lease.task_key))

    # -- two connections ----------------------------------------------------------------------------------------------

    def test_open_twice_shares_one_database(self, database: Database) -> None:
        one, two = database.open(), database.open()
        ok(agents.register(one, agent_id="A1"))
        assert ok(agents.show_agent(two, agent_id="A1")).agent.incarnation == 1
