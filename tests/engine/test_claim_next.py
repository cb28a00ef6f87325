"""Claim-next where the queue hides what is due, or keeps work for one agent."""

from __future__ import annotations

from tenure.clock import ManualClock
from tenure.engine import claims, notes
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok, refused, take


def test_claim_next_behind_many_fired_timers_still_finds_the_dead_holders_task(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store, "DUE")
    take(store, "dead", "DUE", profile="cli")
    clock.advance(100)
    for number in range(100):
        add(store, f"T{number}", lease_duration_s=840)
        take(store, f"live-{number}", f"T{number}", profile="cli")
    # Every live lease's warning came before the dead one's deadline, and nobody has looked at any of them.
    clock.advance(810)
    grant = ok(claims.claim_next(store, agent_id="next"))
    assert (grant.task.task_id, grant.handoffs[0].recovered_from_agent) == ("DUE", "dead")


def test_claim_next_kept_work_that_needs_more_than_the_agent_can_does_not_hide_the_rest(store: SqliteStore) -> None:
    join(store, "A1")
    add(store, "HARD", assigned_to="A1", requires=["rust"], priority="critical")
    add(store, "EASY", assigned_to="A1")
    assert ok(claims.claim_next(store, agent_id="A1", capabilities=["python"])).task.task_id == "EASY"
    refused(claims.claim_next(store, agent_id="A1", capabilities=["python"]), "nothing_ready")


def test_claim_retried_with_its_key_shows_the_messages_of_the_lost_answer_again(store: SqliteStore) -> None:
    add(store)
    ok(notes.send_message(store, sender="boss", task_id="F001", text="Mind the gap."))
    texts = [
        [
            message.text
            for message in ok(claims.claim(store, task_id="F001", agent_id="A1", idempotency_key="k")).messages
        ]
        for _ in range(2)
    ]
    assert texts == [["Mind the gap."], ["Mind the gap."]]
