"""What is read for a batch's verbs before their turn: it costs one round trip, and changes no answer."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import claims, dependencies, endings, liveness, notes, receipts, tasks, touch
from tenure.engine.verb import Verb
from tenure.store import postgres_batch, postgres_schema
from tenure.store.postgres import PostgresStore
from tenure.store.postgres_batch import Batch
from tenure.store.sqlite import SqliteStore
from tenure.store.store import Transaction
from tests.postgres.support import ProbedPostgres, empty_url
from tests.support import add, join, ok, refused

HOLD_S = 60.0


def body(verb: Verb[..., Any], **arguments: Any) -> Callable[[Transaction], Any]:
    checked = verb.check(arguments)
    assert not isinstance(checked, Refused), checked
    return partial(verb.body, **checked)


def fleet(store: PostgresStore, count: int) -> list[str]:
    """Agents that have asked for work before, when tasks were known, so that what they will ask for is foreseen."""
    add(store, "FIRST", assigned_to="nobody here")
    names = [f"A{number}" for number in range(count)]
    for name in names:
        join(store, name)
        refused(claims.claim_next(store, agent_id=name), "nothing_ready")
    return names


def answers(store: PostgresStore, *bodies: Callable[[Transaction], Any]) -> list[Any]:
    return [outcome.answer for outcome in store.run_many(bodies, HOLD_S)]


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_batch_of_adds_claims_heartbeats_and_completions_costs_two_round_trips(
    store: ProbedPostgres, trips: list[list[str]]
) -> None:
    fleet(store, 6)
    held = []
    for number in range(3):
        add(store, f"H{number}")
        held.append(ok(claims.claim_next(store, agent_id=f"A{number}")).lease.lease_id)
    for number in range(3):
        add(store, f"T{number}")
    trips.clear()
    given = answers(
        store,
        body(endings.complete, lease_id=held[0]),
        body(claims.claim_next, agent_id="A3"),
        body(tasks.add_task, title="New", priority="low"),
        body(liveness.renew, lease_id=held[1]),
        body(claims.claim_next, agent_id="A4"),
        body(endings.complete, lease_id=held[2]),
        body(claims.offer, agent_id="A5"),
    )
    assert [ok(given[place]).task.task_id for place in (1, 4)] == ["T0", "T1"]
    assert ok(given[6])[0].task.task_id == "T2"
    assert len(trips) == 2, trips


def test_verb_alone_in_its_batch_is_not_scouted(store: ProbedPostgres, trips: list[list[str]]) -> None:
    ran: list[bool] = []

    def once(tx: Transaction) -> None:
        ran.append(True)
        tx.one("meta", key="settings")

    store.run_many([once], HOLD_S)
    assert ran == [True]


def test_holder_whose_lease_was_granted_here_is_read_for_with_the_settings_that_all_share(
    store: ProbedPostgres, trips: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(store, 2)
    held = []
    for number in range(2):
        add(store, f"H{number}")
        held.append(ok(claims.claim_next(store, agent_id=f"A{number}")).lease.lease_id)
    of_lease = [postgres_schema.deciding()[name] for name in ("agent_of_lease", "settings_of_lease")]
    settings = postgres_schema.deciding()["settings_of"]
    trips.clear()
    for answer in answers(store, *(body(liveness.renew, lease_id=lease_id) for lease_id in held)):
        ok(answer)
    assert not any(text in of_lease for texts in trips for text in texts)
    assert sum(texts.count(settings) for texts in trips) == 1
    # What another process has granted is asked for by way of the lease, at the same cost.
    monkeypatch.setattr(postgres_batch, "_GRANTED", {})
    trips.clear()
    for answer in answers(store, *(body(endings.complete, lease_id=lease_id) for lease_id in held)):
        ok(answer)
    assert all(any(text in texts for texts in trips) for text in of_lease)
    assert len(trips) == 2, trips


def test_names_of_a_project_are_locked_once_for_a_batch(store: ProbedPostgres, trips: list[list[str]]) -> None:
    lock = postgres_schema.deciding()["lock_names"]
    add(store, "FIRST")
    trips.clear()
    for answer in answers(store, *(body(tasks.add_task, title="t") for _ in range(5))):
        ok(answer)
    assert sum(texts.count(lock) for texts in trips) == 1
    assert len(trips) == 2, trips


def test_offer_of_many_tasks_finds_them_in_as_many_round_trips_as_there_are_powers_of_two_in_it(
    store: ProbedPostgres, trips: list[list[str]]
) -> None:
    fleet(store, 1)
    for number in range(12):
        add(store, f"T{number}")
    ok(claims.offer(store, agent_id="A0", max_tasks=2))
    trips.clear()
    # Eight with the first look, then two, and then they are written.
    given = ok(claims.offer(store, agent_id="A0", max_tasks=10))
    assert [grant.task.task_id for grant in given] == [f"T{number}" for number in range(2, 12)]
    assert len(trips) == 3, trips


@pytest.mark.parametrize(
    ("ready", "kept", "waits"),
    [
        # A look that finds fewer than it asked for has found all; that there was nothing is noted in one trip more.
        (0, 0, 3),
        (3, 0, 2),
        (8, 0, 2),
        # What is kept comes one by one, in front of the rest.
        (8, 1, 5),
    ],
)
def test_offer_of_eight_looks_no_more_often_than_it_must(
    store: ProbedPostgres, trips: list[list[str]], ready: int, kept: int, waits: int
) -> None:
    fleet(store, 1)
    for number in range(ready):
        add(store, f"T{number}")
    for number in range(kept):
        add(store, f"K{number}", assigned_to="A0")
    trips.clear()
    given = claims.offer(store, agent_id="A0", max_tasks=8)
    assert len(() if isinstance(given, Refused) else given) == min(8, ready + kept)
    assert len(trips) == waits, trips


@pytest.mark.parametrize("wanted", [2, 5])
def test_offer_of_many_locks_no_more_than_it_gives_and_what_is_kept_comes_first(
    store: ProbedPostgres, wanted: int
) -> None:
    fleet(store, 1)
    for number in range(8):
        add(store, f"T{number}")
    add(store, "KEPT", assigned_to="A0")
    other = store.clone()

    def offering(tx: Transaction) -> Any:
        checked = claims.offer.check({"agent_id": "A0", "max_tasks": wanted})
        assert isinstance(checked, dict)
        given = ok(claims.offer.body(tx, **checked))
        # While this one has not ended.
        rest = ok(claims.offer(other, agent_id="B1", max_tasks=8))
        return given, rest

    given, rest = store.run(offering)
    assert [grant.task.task_id for grant in given] == ["KEPT", *(f"T{number}" for number in range(wanted - 1))]
    assert [grant.task.task_id for grant in rest] == [f"T{number}" for number in range(wanted - 1, 8)]
    other.close()


# -- what must be asked again -----------------------------------------------------------------------------------------


def test_claims_of_one_batch_take_different_tasks_best_first(store: ProbedPostgres) -> None:
    names = fleet(store, 4)
    for number in range(3):
        add(store, f"T{number}")
    given = answers(store, *(body(claims.claim_next, agent_id=name) for name in names))
    assert [ok(answer).task.task_id for answer in given[:3]] == ["T0", "T1", "T2"]
    refused(given[3], "nothing_ready")


def test_claim_after_one_that_is_kept_work_gets_the_first_of_the_rest(store: ProbedPostgres) -> None:
    fleet(store, 2)
    add(store, "T0")
    add(store, "KEPT", assigned_to="A0")
    given = answers(store, *(body(claims.claim_next, agent_id=name) for name in ("A0", "A1")))
    assert [ok(answer).task.task_id for answer in given] == ["KEPT", "T0"]


def test_claim_after_one_that_was_refused_gets_what_that_one_was_not_given(store: ProbedPostgres) -> None:
    fleet(store, 2)
    add(store, "T0")
    add(store, "T1")
    # A fixed time is not for agents, whose profile has none.
    given = answers(
        store, body(claims.claim_next, agent_id="A0", ttl_s=60, profile="agent"), body(claims.claim_next, agent_id="A1")
    )
    refused(given[0], "invalid_argument")
    assert ok(given[1]).task.task_id == "T0"


def test_claim_sees_better_work_that_was_added_before_it_in_the_batch(store: ProbedPostgres) -> None:
    fleet(store, 1)
    add(store, "T0", priority="low")
    _, claimed = answers(
        store,
        body(tasks.add_task, task_id="URGENT", title="t", priority="critical"),
        body(claims.claim_next, agent_id="A0"),
    )
    assert ok(claimed).task.task_id == "URGENT"


def test_claim_sees_the_first_work_there_is(store: ProbedPostgres) -> None:
    fleet(store, 1)
    _, claimed = answers(store, body(tasks.add_task, task_id="T0", title="t"), body(claims.claim_next, agent_id="A0"))
    assert ok(claimed).task.task_id == "T0"


def test_second_slot_of_a_task_is_the_next_claimants(store: ProbedPostgres) -> None:
    fleet(store, 2)
    add(store, "PAIR", slots=2)
    add(store, "T1")
    given = answers(store, *(body(claims.claim_next, agent_id=name) for name in ("A0", "A1")))
    assert [ok(answer).task.task_id for answer in given] == ["PAIR", "PAIR"]


def test_claim_of_one_that_is_not_shown_what_others_are_passes_over_nothing(store: ProbedPostgres) -> None:
    fleet(store, 2)
    add(store, "PAIR", slots=2, priority="critical")
    add(store, "X")
    ok(claims.offer(store, agent_id="A1"))
    given = answers(store, *(body(claims.claim_next, agent_id=name) for name in ("A0", "A1")))
    assert [ok(answer).task.task_id for answer in given] == ["PAIR", "X"]


def test_claim_gets_what_the_one_before_it_was_not_shown(store: ProbedPostgres) -> None:
    fleet(store, 2)
    for name in ("M1", "M2"):
        add(store, name, slots=2, priority="critical")
        ok(claims.claim_next(store, agent_id="A0"))
    for name in ("X", "Y"):
        add(store, name)
    given = answers(store, *(body(claims.claim_next, agent_id=name) for name in ("A0", "A1")))
    assert [ok(answer).task.task_id for answer in given] == ["X", "M1"]


def test_task_whose_holder_gave_a_sign_of_life_is_not_taken_for_that(store: ProbedPostgres) -> None:
    fleet(store, 3)
    add(store, "PAIR", slots=2)
    ok(claims.offer(store, agent_id="A2"))
    given = answers(
        store,
        body(touch.touch, agent_id="A2"),
        body(claims.claim_next, agent_id="A0", ttl_s=60, profile="agent"),
        body(claims.claim_next, agent_id="A1"),
    )
    refused(given[1], "invalid_argument")
    assert ok(given[2]).task.task_id == "PAIR"


def test_lease_that_was_ended_before_is_seen_as_ended(store: ProbedPostgres) -> None:
    fleet(store, 1)
    add(store, "T0")
    lease_id = ok(claims.claim_next(store, agent_id="A0")).lease.lease_id
    done, again, beat = answers(
        store,
        body(endings.complete, lease_id=lease_id),
        body(endings.complete, lease_id=lease_id),
        body(liveness.renew, lease_id=lease_id),
    )
    assert not ok(done).repeated
    assert ok(again).repeated
    refused(beat, "task_done")


def test_name_that_was_taken_before_is_refused(store: ProbedPostgres) -> None:
    first, second = answers(store, *(body(tasks.add_task, task_id="T0", title=title) for title in ("first", "second")))
    ok(first)
    refused(second, "task_exists")


def test_dependant_of_a_task_that_is_completed_before_it_is_ready(store: ProbedPostgres) -> None:
    fleet(store, 2)
    add(store, "UP")
    lease_id = ok(claims.claim_next(store, agent_id="A0")).lease.lease_id
    add(store, "DOWN", after=["UP"])
    _, claimed = answers(store, body(endings.complete, lease_id=lease_id), body(claims.claim_next, agent_id="A1"))
    assert ok(claimed).task.task_id == "DOWN"


def test_task_that_waits_for_a_name_is_connected_when_that_is_added_after_it(store: ProbedPostgres) -> None:
    waits, added = answers(
        store,
        body(tasks.add_task, task_id="DOWN", title="t", after=["UP"], allow_missing=True),
        body(tasks.add_task, task_id="UP", title="t"),
    )
    ok(waits)
    ok(added)
    assert ok(claims.claim_next(store, agent_id="A0")).task.task_id == "UP"
    refused(claims.claim_next(store, agent_id="A0"), "nothing_ready")


@pytest.mark.parametrize("before", range(5))
def test_claim_knows_a_capability_set_and_a_timer_that_came_up_after_it_was_read_for(
    store: ProbedPostgres, before: int
) -> None:
    """Both are read once for a batch, with the first verb that asks, which may be in a later part than the verb that
    changes them."""
    fleet(store, 1)
    adding = [body(tasks.add_task, title="t", task_id=f"T{number}", assigned_to="other") for number in range(before)]
    given = answers(
        store,
        *adding,
        body(tasks.add_task, task_id="GPU", title="t", requires=["gpu"]),
        body(claims.claim_next, agent_id="A0", capabilities=["gpu"]),
        body(claims.claim_next, agent_id="A0", capabilities=["gpu"]),
    )
    assert ok(given[-2]).task.task_id == "GPU"
    refusal = refused(given[-1], "nothing_ready")
    # The lease that was just granted is what comes up next.
    assert refusal.facts["next_change_ms"] is not None


def test_scout_writes_nothing_even_where_its_body_fails_at_once(store: ProbedPostgres) -> None:
    def broken(tx: Transaction) -> None:
        raise ValueError("at once")

    bodies = [body(tasks.add_task, task_id="T0", title="t"), broken]
    store._connected()
    readings = list(store._read_for(bodies, Batch("BEGIN")))
    store.connection.execute("ROLLBACK")
    assert readings[0] is not None
    assert readings[1] is None
    assert store.run(lambda tx: tx.all("tasks_named", task_id="T0", project_id="default")) == []


# -- many batches, against verbs that are run one after the other ------------------------------------------------------


class Turns:
    """What depends on whose turn it is, and not on what runs in between: the time, of which each verb has a millisecond
    of its own, and random bytes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._verb = self._drawn = 0

    def draw(self, count: int) -> bytes:
        self._drawn += 1
        return hashlib.sha256(f"{self._verb} {self._drawn}".encode()).digest()[:count]

    def of(
        self, number: int, at_ms: int, verb: Verb[..., Any], checked: dict[str, Any]
    ) -> Callable[[Transaction], Any]:
        def at_its_turn(tx: Transaction) -> Any:
            self.come(number, at_ms)
            return verb.body(tx, **checked)

        return at_its_turn

    def come(self, number: int, at_ms: int) -> None:
        self._verb, self._drawn = number, 0
        self.clock.wall = self.clock.mono = at_ms


class Fleet:
    """Chooses what a fleet might do next, by what it was told before."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._leases: list[str] = []
        self._tasks: list[str] = []

    def heard(self, answer: Any) -> None:
        for grant in answer if isinstance(answer, tuple) else (answer,):
            if isinstance(grant, claims.Grant):
                self._leases.append(grant.lease.lease_id)

    def next(self) -> tuple[Verb[..., Any], dict[str, Any]]:
        dice = self._dice
        agent_id = f"A{dice.randrange(6)}"
        able = dice.choice([{}, {}, {}, {"capabilities": ["gpu"]}, {"capabilities": ["gpu", "rust"]}])
        lease_id = dice.choice(self._leases[-8:]) if self._leases else "L-none"
        task_id = dice.choice(self._tasks[-12:]) if self._tasks else "none"
        acts: list[Callable[[], tuple[Any, dict[str, Any]]]] = [
            lambda: (tasks.add_task, self._task()),
            lambda: (tasks.add_task, self._task()),
            lambda: (claims.claim_next, {"agent_id": agent_id, **able}),
            lambda: (claims.claim_next, {"agent_id": agent_id}),
            lambda: (claims.offer, {"agent_id": agent_id, "max_tasks": dice.choice([1, 1, 3, 7])}),
            lambda: (claims.offer, {"agent_id": agent_id, "max_tasks": 4, **able}),
            lambda: (claims.accept, {"lease_id": lease_id}),
            lambda: (endings.complete, {"lease_id": lease_id}),
            lambda: (endings.complete, {"lease_id": lease_id, "message": "Done."}),
            lambda: (endings.release, {"lease_id": lease_id}),
            lambda: (liveness.renew, {"lease_id": lease_id}),
            lambda: (liveness.report, {"lease_id": lease_id, "progress": dice.randrange(100)}),
            lambda: (receipts.submit_receipt, {"body": {"phase": "accepted", "lease_id": lease_id}}),
            lambda: (receipts.submit_receipt, {"body": self._success(lease_id)}),
            lambda: (tasks.edit_task, {"task_id": task_id, "priority": dice.choice(["critical", "low"])}),
            lambda: (tasks.assign_task, {"task_id": task_id, "assigned_to": dice.choice([None, agent_id])}),
            lambda: (notes.send_message, {"task_id": task_id, "sender": agent_id, "text": "Look here."}),
            lambda: (dependencies.add_dependency, {"task_id": task_id, "needs": f"T{dice.randrange(40)}"}),
        ]
        return dice.choice(acts)()

    def _success(self, lease_id: str) -> dict[str, Any]:
        return {"phase": "complete", "lease_id": lease_id, "status": "success", "outcome_kind": "none"}

    def _task(self) -> dict[str, Any]:
        dice = self._dice
        fields: dict[str, Any] = {"title": "t", "priority": dice.choice(["critical", "medium", "low"])}
        if dice.random() < 0.8:
            fields["task_id"] = f"T{dice.randrange(40)}"
            self._tasks.append(fields["task_id"])
        for name, values, often in (
            ("requires", (["gpu"], ["gpu", "rust"]), 0.2),
            ("slots", (2, 3), 0.3),
            ("assigned_to", ("A0", "A1", "outsider"), 0.1),
            ("after", (["T1"], ["T2", "T3"]), 0.1),
        ):
            if dice.random() < often:
                fields[name] = dice.choice(values)
        if "after" in fields:
            fields["allow_missing"] = True
        return fields


def shown(answer: Any) -> str:
    """An answer without what a batch may number otherwise, and without when to ask again, which is a bound there."""
    text = re.sub(r"\b(key|task_key|seq)=\d+", r"\1=N", repr(answer))
    return re.sub(r"'next_change_ms': \w+", "", text)


TABLES = (
    "SELECT task_id, status, assigned_to, owner, progress, attempts, unmet, open_slots, waiting, rank_ms, last_token,"
    " obligation, receipt_count, receipt_hash, version FROM tasks ORDER BY project_id, task_id",
    "SELECT lease_id, task_id, agent_id, token, state, slot, expires_at_ms, wake_at_ms, renewals, touches, end_reason"
    " FROM leases ORDER BY lease_id",
    "SELECT task_id, position, phase, body, hash FROM receipts ORDER BY receipt_id",
    "SELECT at_ms, kind, task_id, lease_id, agent_id, data FROM events ORDER BY seq",
    "SELECT agent_id, incarnation, state, seen_at_ms FROM agents ORDER BY agent_id",
    "SELECT sender, text FROM messages ORDER BY seq",
)


@pytest.mark.parametrize("seed", range(10))
def test_batches_answer_and_write_as_verbs_that_are_run_one_after_the_other(seed: int, tmp_path: Path) -> None:
    dice, fleet = random.Random(f"batches {seed}"), Fleet(seed)
    turns = (Turns(), Turns())
    alone = SqliteStore(str(tmp_path / "alone.db"), clock=turns[0].clock, random=turns[0].draw)
    batched = ProbedPostgres(empty_url(), clock=turns[1].clock, random=turns[1].draw)
    number, at_ms = 0, turns[0].clock.wall
    try:
        for _ in range(40):
            calls = []
            at_ms += dice.choice([0, 0, 0, 1_000, 30_000, 700_000, 4_000_000])
            for _ in range(dice.randrange(2, 9)):
                verb, arguments = fleet.next()
                checked = verb.check(arguments)
                assert isinstance(checked, dict), checked
                number, at_ms = number + 1, at_ms + 1
                calls.append((number, at_ms, verb, checked))
            wanted = []
            for call in calls:
                # The embedded store reads its clock before the body does.
                turns[0].come(*call[:2])
                wanted.append(alone.run(turns[0].of(*call)))
            got = answers(batched, *(turns[1].of(*call) for call in calls))
            for call, expected, answer in zip(calls, wanted, got, strict=True):
                assert shown(answer) == shown(expected), call
                fleet.heard(answer)
        for text in TABLES:
            rows = alone.connection.execute(text).fetchall()
            assert batched._connected().execute(text).fetchall() == rows, text
    finally:
        alone.close()
        batched.close()
