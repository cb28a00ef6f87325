"""Fence: a token or a lease id opens while the lease behind it is live and accepted, and not before or after."""

from __future__ import annotations

import pytest

from tenure.clock import ManualClock
from tenure.engine import claims, endings
from tenure.engine.fence import fence
from tenure.store.sqlite import SqliteStore
from tests.support import add, dump, join, ok, refused, take


@pytest.fixture
def held(store: SqliteStore) -> SqliteStore:
    add(store)
    for agent in ("A1", "A2"):
        join(store, agent)
    return store


def test_fence_of_a_live_lease_gives_it(held: SqliteStore) -> None:
    lease = take(held, "A1")
    before = dump(held, "leases")
    for proof in ({"token": lease.token}, {"lease_id": lease.lease_id}, {"token": lease.token, "task_id": "F001"}):
        assert ok(fence(held, **proof)).lease_id == lease.lease_id
    assert dump(held, "leases") == before


def test_fence_of_a_lease_that_ran_out_or_was_given_back_is_refused(held: SqliteStore, clock: ManualClock) -> None:
    lease = take(held, "A1")
    clock.advance(80)
    refused(fence(held, token=lease.token), "lease_lost")
    again = take(held, "A2")
    refused(fence(held, lease_id=lease.lease_id), "lease_lost")
    assert ok(fence(held, token=again.token)).agent_id == "A2"
    ok(endings.release(held, task_id="F001", agent_id="A2"))
    refused(fence(held, token=again.token), "lease_lost")


def test_fence_of_an_offer_is_refused(held: SqliteStore) -> None:
    (grant,) = ok(claims.offer(held, agent_id="w.1"))
    refused(fence(held, token=grant.lease.token), "lease_lost")
    ok(claims.accept(held, lease_id=grant.lease.lease_id))
    ok(fence(held, token=grant.lease.token))


def test_fence_of_another_task_project_or_token_is_refused(held: SqliteStore) -> None:
    lease = take(held, "A1")
    add(held, "F002")
    refused(fence(held, token=lease.token, task_id="F002"), "lease_lost")
    refused(fence(held, token=lease.token + 1, lease_id=lease.lease_id), "lease_lost")
    refused(fence(held, token=lease.token, project_id="nowhere"), "project_not_found")
    refused(fence(held), "invalid_argument")
