"""Statistics count in SQL what `deadline.live` judges one by one: the two must never disagree."""

from __future__ import annotations

from itertools import product

from tenure.clock import ManualClock
from tenure.core.deadline import live
from tenure.engine import agents, claims, load, observe
from tenure.store.sqlite import SqliteStore
from tests.support import add, ok

# Around now, in milliseconds: at the instant, beside it, and on both sides of the 15 s after which a server is deaf.
AROUND = (-700_000, -80_000, -15_001, -15_000, -14_999, -1, 0, 1, 15_000)
HUNG = (15_000, 80_000, 600_000)


def test_count_due_leases_agrees_with_the_one_test_of_liveness(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    ok(agents.start_server(store, server_id="s1"))
    ok(claims.claim(store, task_id="F001", agent_id="A1"))
    now = clock.wall_ms()
    for recover, pulsed, hung, death in product(AROUND, (None, *AROUND), HUNG, (None, *AROUND)):
        # A death is one of the deadline's terms: what is stored is never later than it.
        recover_at = now + (recover if death is None else min(recover, death))
        store.connection.execute(
            "UPDATE leases SET recover_at_ms = ?, hung_after_ms = ?, death_at_ms = ?, server_id = ?",
            (recover_at, hung, None if death is None else now + death, None if pulsed is None else "s1"),
        )
        store.connection.execute("UPDATE servers SET pulsed_at_ms = ?", (now + (pulsed or 0),))
        (lease,) = store.look(lambda tx: load.unended_of_agent(tx, "A1"))
        numbers = ok(observe.statistics(store))
        expected = (1, 0) if live(lease, now) else (0, 1)
        assert (numbers.active, numbers.due) == expected, (recover, pulsed, hung, death)
