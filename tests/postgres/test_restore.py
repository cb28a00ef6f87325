"""A store that is put back to an earlier state: no (task, token) is issued twice, and readers go on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tenure.engine import claims, endings, observe, receipts
from tenure.store.postgres import PostgresStore
from tests.postgres.cluster import QUICK, Cluster
from tests.postgres.support import ProbedPostgres
from tests.support import add, ok, refused

ROUNDS = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(**QUICK).create().start()
    yield made
    made.remove()


def issue(store: PostgresStore, rounds: int = ROUNDS) -> list[tuple[str, int]]:
    """Claim and give back one task: every (task, token) that was answered."""
    given = []
    for _ in range(rounds):
        lease = ok(claims.claim(store, task_id="T1", agent_id="A1")).lease
        given.append((lease.task_id, lease.token))
        ok(endings.release(store, lease_id=lease.lease_id))
    return given


def sound(store: PostgresStore) -> None:
    assert store.integrity_faults() == []
    assert ok(receipts.verify(store)).faults == ()


def test_restore_of_a_base_backup_issues_no_token_twice(cluster: Cluster) -> None:
    database = cluster.new_database()
    store = ProbedPostgres(cluster.url(database))
    add(store, "T1")
    before = issue(store)
    restored = cluster.standby(None, **QUICK)
    # Nobody has heard of these in the backup.
    lost = issue(store)
    held = ok(claims.claim(store, task_id="T1", agent_id="A1")).lease
    store.close()
    (restored.data / "standby.signal").unlink()
    restored.start()
    try:
        again = ProbedPostgres(restored.url(database))
        after = issue(again)
        assert len({*before, *lost, *after}) == 3 * ROUNDS
        assert min(token for _, token in after) > held.token
        refused(endings.complete(again, lease_id=held.lease_id), "lease_not_found")
        sound(again)
        again.close()
    finally:
        restored.remove()


def test_restore_of_a_dump_into_a_younger_cluster_issues_no_token_twice(cluster: Cluster) -> None:
    database = cluster.new_database()
    store = ProbedPostgres(cluster.url(database))
    add(store, "T1")
    # Transaction ids of the dump that a new cluster is far from.
    for _ in range(300):
        cluster.execute("SELECT pg_current_xact_id()", database)
    before = issue(store)
    last = ok(observe.events(store))[-1].seq
    dump = cluster.directory / "dump"
    cluster.tool("pg_dump", "-Fc", "-f", str(dump), "-d", cluster.url(database))
    lost = issue(store)
    store.close()
    younger = Cluster(**QUICK).create().start()
    try:
        name = younger.new_database()
        copied = younger.directory / "dump"
        shutil.copy(dump, copied)
        younger._own(copied)
        younger.tool("pg_restore", "--no-owner", "-d", younger.url(name), str(copied))
        again = ProbedPostgres(younger.url(name))
        # What a node does when it starts.
        again.lift_numbers()
        after = issue(again)
        assert len({*before, *lost, *after}) == 3 * ROUNDS
        assert min(token for _, token in after) > max(token for _, token in lost)
        # A reader that had read all of the dump misses nothing of what came after it.
        assert len([event for event in ok(observe.events(again, after=last)) if event.kind == "granted"]) == ROUNDS
        sound(again)
        again.close()
    finally:
        younger.remove()
