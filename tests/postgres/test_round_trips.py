"""How many round trips a verb takes on PostgreSQL, and that its statements are planned once. A pin that has to be
raised is a change of cost, made on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.engine import claims, endings, liveness, recovery, tasks, touch
from tenure.store import postgres_schema
from tenure.store.postgres_scout import best_after
from tests.postgres.support import ProbedPostgres, shared_cluster
from tests.support import add, join, ok, take

Act = Callable[[ProbedPostgres, str], Any]

PINS: dict[str, tuple[int, Act]] = {
    "claim_next": (2, lambda s, lease: claims.claim_next(s, agent_id="A2")),
    "offer": (2, lambda s, lease: claims.offer(s, agent_id="A2")),
    "claim": (7, lambda s, lease: claims.claim(s, task_id="F003", agent_id="A2")),
    "complete": (2, lambda s, lease: endings.complete(s, lease_id=lease)),
    "heartbeat": (2, lambda s, lease: liveness.renew(s, lease_id=lease)),
    "touch": (2, lambda s, lease: touch.touch(s, agent_id="A1")),
    "add_task": (2, lambda s, lease: tasks.add_task(s, task_id="NEW", title="t")),
    "advance": (4, lambda s, lease: recovery.advance(s)),
}


@pytest.mark.parametrize("name", PINS)
def test_verb_takes_no_more_round_trips_than_its_pin(name: str, store: ProbedPostgres, trips: list[list[str]]) -> None:
    for agent_id in ("A1", "A2"):
        join(store, agent_id)
    add(store, "F001")
    add(store, "F002")
    lease = take(store, "A1", "F001", "cli")
    # An agent's first claim takes more: it is not known yet what it may be given.
    add(store, "F000")
    ok(endings.complete(store, lease_id=ok(claims.claim_next(store, agent_id="A2")).lease.lease_id))
    add(store, "F003")
    trips.clear()
    most, act = PINS[name]
    ok(act(store, lease.lease_id))
    assert len(trips) <= most, trips


# Statistics that are renewed in the middle of it would change what a plan looks like.
CALM = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
        EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', name);
    END LOOP;
END $$
"""


def test_statements_of_a_cycle_are_not_planned_again_and_again() -> None:
    """PostgreSQL plans a statement anew for each of its first five runs, and goes on so where the plan for any values
    looks dearer than those: then planning costs several times what the statement does."""
    cluster = shared_cluster()
    store = ProbedPostgres(cluster.url(cluster.new_database()))
    store._connected().execute(CALM)
    for number in range(400):
        add(store, f"T{number}")
    store.connection.execute("ANALYZE")
    rounds = 12
    for number in range(rounds):
        (given,) = ok(claims.offer(store, agent_id="A1"))
        ok(claims.accept(store, lease_id=given.lease.lease_id, agent_id="A1"))
        ok(liveness.renew(store, lease_id=given.lease.lease_id))
        ok(touch.touch(store, agent_id="A1"))
        ok(endings.complete(store, lease_id=given.lease.lease_id))
        ok(endings.complete(store, lease_id=ok(claims.claim_next(store, agent_id="A1")).lease.lease_id))
        add(store, f"N{number}")
        ok(recovery.advance(store))
        for skipped in (1, 15):
            asked = {"agent_id": "A1", "project_id": "default", "requires": ""}
            text = best_after(postgres_schema.deciding()["best_after"], skipped)
            store._wire.exchange([("BEGIN", None), (text, asked), ("ROLLBACK", None)])
    planned = store._connected().execute(
        "SELECT custom_plans, statement FROM pg_prepared_statements WHERE custom_plans + generic_plans >= %s", (rounds,)
    )
    found = planned.fetchall()
    store.close()
    assert len(found) > 20
    assert [statement for count, statement in found if count > 5] == []
