"""The terms of a claim: idempotency keys, who is registered by claiming, and how long a fixed lease lasts."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.engine import agents, claims, endings, observe, projects, tasks
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import events, sql
from tests.support import add, dump, join, ok, refused

DAY_S = 86_400


def claim(store: SqliteStore, agent_id: str = "A1", task_id: str = "F001", **more: Any) -> claims.Grant:
    return ok(claims.claim(store, task_id=task_id, agent_id=agent_id, **more))


# -- idempotency keys --------------------------------------------------------------------------------------------------


def test_repeat_claim_with_its_key_returns_the_same_lease(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    first = claim(store, idempotency_key="k1")
    clock.advance(5)
    again = claim(store, idempotency_key="k1")
    assert (again.lease.lease_id, again.lease.token, again.resumed) == (first.lease.lease_id, first.lease.token, True)
    assert again.lease == first.lease, "repeating a claim is not a renewal"
    assert len(dump(store, "leases")) == len(events(store, "granted")) == 1


def test_repeat_claim_with_its_key_shows_the_present_state(store: SqliteStore) -> None:
    add(store)
    first = claim(store, idempotency_key="k1")
    ok(endings.release(store, task_id="F001", agent_id="A1"))
    again = claim(store, idempotency_key="k1")
    assert (again.lease.lease_id, again.lease.state) == (first.lease.lease_id, "released")
    claim(store, "A2")
    assert claim(store, idempotency_key="k1").lease.state == "released", "never a new grant, whoever holds it now"


def test_repeat_claim_with_its_key_after_its_time_shows_the_lease_as_expired(
    store: SqliteStore, clock: ManualClock
) -> None:
    """Nobody has recovered it yet: the answer must not read as a lease that still holds."""
    add(store)
    claim(store, idempotency_key="k1")
    clock.advance(900)
    again = claim(store, idempotency_key="k1")
    assert (again.lease.state, again.task.status) == ("expired", "todo")


def test_repeat_next_and_offer_with_their_keys_return_the_same_lease(store: SqliteStore) -> None:
    add(store)
    add(store, "F002")
    first = ok(claims.claim_next(store, agent_id="A1", idempotency_key="k1"))
    assert ok(claims.claim_next(store, agent_id="A1", idempotency_key="k1")).lease == first.lease
    (offered,) = ok(claims.offer(store, agent_id="w.1", idempotency_key="k1"))
    (again,) = ok(claims.offer(store, agent_id="w.1", idempotency_key="k1"))
    assert (again.lease, again.resumed) == (offered.lease, True)
    assert len(dump(store, "leases")) == 2


def test_repeat_offer_of_several_with_its_key_returns_them_all(store: SqliteStore) -> None:
    for number in range(3):
        add(store, f"F00{number}")
    first = ok(claims.offer(store, agent_id="w.1", max_tasks=2, idempotency_key="k1"))
    again = ok(claims.offer(store, agent_id="w.1", max_tasks=2, idempotency_key="k1"))
    assert [grant.lease for grant in again] == [grant.lease for grant in first]
    assert len(dump(store, "leases")) == 2


@pytest.mark.parametrize(
    "other",
    [{"task_id": "F002"}, {"ttl_s": 60}, {"capabilities": ["gpu"]}, {"profile": "worker"}],
    ids=lambda other: next(iter(other)),
)
def test_repeat_claim_with_its_key_and_other_arguments_is_refused(store: SqliteStore, other: dict[str, Any]) -> None:
    add(store)
    add(store, "F002")
    claim(store, idempotency_key="k1")
    arguments = {"task_id": "F001", "agent_id": "A1", "idempotency_key": "k1", **other}
    no = refused(claims.claim(store, **arguments), "idempotency_conflict")
    assert no.exit_status == 7
    assert len(dump(store, "leases")) == 1


def test_repeat_next_with_its_key_and_other_wishes_is_refused(store: SqliteStore) -> None:
    add(store)
    ok(claims.claim_next(store, agent_id="A1", idempotency_key="k1"))
    other = claims.claim_next(store, agent_id="A1", idempotency_key="k1", preferred_kinds=["code"])
    refused(other, "idempotency_conflict")


def test_use_key_of_another_agent_verb_or_project_is_independent(store: SqliteStore) -> None:
    ok(projects.create_project(store, project_id="other"))
    for number in range(4):
        add(store, f"F00{number}")
    add(store, "F100", project_id="other")
    taken = {
        claim(store, task_id="F000", idempotency_key="k").lease.lease_id,
        claim(store, "A2", "F001", idempotency_key="k").lease.lease_id,
        ok(claims.claim_next(store, agent_id="A1", idempotency_key="k")).lease.lease_id,
        ok(claims.offer(store, agent_id="A1", idempotency_key="k"))[0].lease.lease_id,
        claim(store, task_id="F100", idempotency_key="k").lease.lease_id,
    }
    assert len(taken) == 5


def test_refused_claim_leaves_its_key_unused(store: SqliteStore) -> None:
    add(store)
    held = claim(store, "A2")
    refused(claims.claim(store, task_id="F001", agent_id="A1", idempotency_key="k1"), "already_claimed")
    ok(endings.release(store, lease_id=held.lease.lease_id))
    assert claim(store, idempotency_key="k1").lease.state == "active"


def test_repeat_claim_after_its_task_was_deleted_says_so(store: SqliteStore) -> None:
    add(store)
    claim(store, idempotency_key="k1")
    ok(tasks.delete_task(store, task_id="F001", force=True))
    add(store)
    answer = claims.claim(store, task_id="F001", agent_id="A1", idempotency_key="k1")
    refused(answer, "lease_not_found")


def test_forget_keys_after_a_day(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    claim(store, idempotency_key="k1")
    clock.advance(DAY_S)
    assert ok(observe.prune(store)).idempotency_keys == 0
    clock.advance(0.001)
    assert ok(observe.prune(store)).idempotency_keys == 1
    assert claim(store, idempotency_key="k1").resumed is False


# -- who may claim -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["cli", "worker"])
def test_claim_by_a_stranger_registers_it_where_the_profile_says_so(store: SqliteStore, profile: str) -> None:
    add(store)
    claim(store, "new.1", profile=profile)
    agent = ok(agents.show_agent(store, agent_id="new.1")).agent
    assert (agent.incarnation, agent.profile, agent.state) == (1, profile, "present")
    assert [event.agent_id for event in events(store, "registered")] == ["new.1"]


def test_claim_by_a_stranger_is_refused_in_profile_agent(store: SqliteStore) -> None:
    add(store)
    refused(claims.claim(store, task_id="F001", agent_id="new", profile="agent"), "agent_not_found")
    assert dump(store, "agents") == []


def test_refused_claim_by_a_stranger_registers_nobody(store: SqliteStore) -> None:
    add(store, requires=["gpu"])
    refused(claims.claim(store, task_id="F001", agent_id="new", capabilities=[]), "capabilities_missing")
    refused(claims.claim(store, task_id="F404", agent_id="new"), "task_not_found")
    assert dump(store, "agents") == []


@pytest.mark.parametrize("name", ["Marcus", "marcus", "MARCUS"])
def test_claim_under_the_reserved_name_is_refused(store: SqliteStore, name: str) -> None:
    add(store)
    assert refused(claims.claim(store, task_id="F001", agent_id=name), "reserved_name").exit_status == 8
    refused(agents.register(store, agent_id=name), "reserved_name")
    refused(agents.register(store, agent_id="A1", name=name), "reserved_name")
    refused(claims.offer(store, agent_id=name), "reserved_name")
    assert dump(store, "agents") == []


def test_claim_remembers_where_the_agent_works(store: SqliteStore) -> None:
    add(store)
    claim(store, worktree="/src/one")
    assert [agent.agent_id for agent in ok(agents.agents_in(store, worktree="/src/one"))] == ["A1"]


# -- how long ----------------------------------------------------------------------------------------------------------

TYPED = {"task_types": {"code": {"lease_duration_s": 300}}}


@pytest.mark.parametrize(
    ("fields", "asked", "settings", "ttl_s", "because"),
    [
        ({}, {}, {}, 900, "nobody says anything: 15 minutes"),
        ({}, {"default_ttl_s": 1_800}, {}, 1_800, "the environment's default"),
        ({"kind": "code"}, {"default_ttl_s": 1_800}, TYPED, 300, "the task's type is more particular"),
        ({"kind": "other"}, {"default_ttl_s": 1_800}, TYPED, 1_800, "another type says nothing"),
        ({"kind": "code", "lease_duration_s": 120}, {"default_ttl_s": 1_800}, TYPED, 120, "the task itself even more"),
        ({"kind": "code", "lease_duration_s": 120}, {"ttl_s": 60}, TYPED, 60, "and this request decides"),
        ({}, {"ttl_s": 1}, {}, 1, "the shortest"),
        ({}, {"ttl_s": 604_800}, {}, 604_800, "the longest: a week"),
    ],
)
@pytest.mark.parametrize("profile", ["cli", "worker"])
def test_claim_with_a_fixed_ttl_lasts_as_the_most_particular_word_says(
    store: SqliteStore,
    profile: str,
    fields: dict[str, Any],
    asked: dict[str, Any],
    settings: dict[str, Any],
    ttl_s: int,
    because: str,
) -> None:
    ok(projects.configure(store, document=settings))
    add(store, **fields)
    lease = claim(store, profile=profile, **asked).lease
    assert lease.term_ms == ttl_s * 1000, because
    assert lease.recover_at_ms == lease.expires_at_ms == lease.granted_at_ms + ttl_s * 1000, "no grace"


@pytest.mark.parametrize("ttl_s", [0, -1, 604_801, True, 1.5, "5m"])
def test_claim_with_a_ttl_out_of_bounds_is_refused(store: SqliteStore, ttl_s: Any) -> None:
    add(store)
    refused(claims.claim(store, task_id="F001", agent_id="A1", ttl_s=ttl_s), "invalid_argument")
    refused(claims.claim(store, task_id="F001", agent_id="A1", default_ttl_s=ttl_s), "invalid_argument")
    assert dump(store, "leases") == []


def test_claim_in_profile_agent_follows_the_phases_and_refuses_a_ttl(store: SqliteStore) -> None:
    add(store, lease_duration_s=5)
    join(store, "A1")
    refused(claims.claim(store, task_id="F001", agent_id="A1", profile="agent", ttl_s=5), "invalid_argument")
    lease = claim(store, profile="agent", default_ttl_s=5).lease
    assert (lease.fixed, lease.term_ms, lease.grace_ms) == (0, 60_000, 20_000)


def test_claim_in_a_defined_profile_follows_its_rules(store: SqliteStore, clock: ManualClock) -> None:
    definition = {"base": "worker", "ttl_s": 120, "max_attempts": 1, "requeue_delay_s": 5, "lease_id_style": "cli"}
    ok(projects.configure(store, document={"profiles": {"batch": definition}}))
    add(store)
    lease = claim(store, profile="batch").lease
    assert (lease.profile, lease.term_ms, lease.lease_id[0]) == ("batch", 120_000, "L")
    clock.advance(120)
    refused(claims.claim(store, task_id="F001", agent_id="A2", profile="batch"), "task_dead")


def test_recover_lease_of_a_profile_that_was_removed_follows_its_base(store: SqliteStore, clock: ManualClock) -> None:
    ok(projects.configure(store, document={"profiles": {"batch": {"base": "worker", "ttl_s": 120}}}))
    add(store)
    claim(store, profile="batch")
    ok(projects.configure(store, document={}))
    clock.advance(120)
    refused(claims.claim(store, task_id="F001", agent_id="A2", profile="cli"), "task_waiting")


@pytest.mark.parametrize(("profile", "pattern"), [("cli", "L"), ("worker", "lease-"), ("agent", "lease-")])
def test_claim_names_its_lease_in_the_profiles_style(store: SqliteStore, profile: str, pattern: str) -> None:
    add(store)
    join(store, "A1")
    assert claim(store, profile=profile).lease.lease_id.startswith(pattern)


def test_grant_tokens_grow_even_when_the_clock_was_behind(store: SqliteStore, clock: ManualClock) -> None:
    """max(last token + 1, now): it grows through restores and failovers, whose clocks may be behind."""
    add(store)
    future = clock.wall + 10_000_000
    sql(store, "UPDATE tasks SET last_token = :future", future=future)
    first = claim(store).lease
    ok(endings.release(store, lease_id=first.lease_id))
    second = claim(store, "A2").lease
    assert (first.token, second.token) == (future + 1, future + 2)
