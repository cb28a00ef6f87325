"""The returning zombie: what it may still do (nothing), what it is told, and when it is given its task back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.core.model import Lease, Task
from tenure.engine import claims, endings, liveness, notes, observe
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import data, done, events, feel, handoffs, lease, report, row, said, shown, task, thread, tick
from tests.support import add, join, ok, refused, take

Act = Callable[..., Any]
# Every act of a holder that would change its lease or its task.
ACTS: dict[str, Act] = {
    "report": lambda store, **who: liveness.report(store, progress=90, message="nearly", **who),
    "renew": lambda store, **who: liveness.renew(store, **who),
    "release": lambda store, **who: endings.release(store, message="I am out", **who),
    "complete": lambda store, **who: endings.complete(store, message="all done", **who),
    "block": lambda store, **who: endings.block(store, reason="no network", **who),
    "accept": lambda store, **who: claims.accept(store, **who),
}
# What each leaves in the thread for the new holder.
NEWS = {"report": "reports 90%. nearly", "release": "I am out", "complete": "all done", "block": "no network"}


class Scene:
    """A1 held the task, was declared dead, and the task went to another."""

    def __init__(self, store: SqliteStore, clock: ManualClock, profile: str, successor: str) -> None:
        self.store = store
        self.clock = clock
        for name in ("A1", "A2"):
            join(store, name)
        add(store)
        self.zombie = take(store, "A1", profile=profile)
        clock.advance(30)
        report(store, "A1", 40)
        clock.advance(900)
        if successor == "A1":
            join(store, "A1")
        self.holder = take(store, successor, profile=profile)
        clock.advance(1)

    def rows(self) -> tuple[tuple[object, ...], Task]:
        """The new holder's lease, byte for byte, and the task.

        Left out are the task's counts of attempts: a return within ten minutes takes its own recovery out of them.
        """
        counted = task(self.store).replace(attempts=0, silent_recoveries=0)
        return row(self.store, "leases", lease_id=self.holder.lease_id), counted


def identities(scene: Scene) -> dict[str, dict[str, Any]]:
    """The ways in which the zombie may say who it is."""
    by_name: dict[str, Any] = {"task_id": "F001", "agent_id": "A1"}
    return {
        "by name": by_name,
        "by lease": {"lease_id": scene.zombie.lease_id},
        "by name and lease": {**by_name, "lease_id": scene.zombie.lease_id},
        "by name and token": {**by_name, "token": scene.zombie.token},
        "by name and incarnation": {**by_name, "incarnation": 1},
        "by everything": {
            **by_name,
            "lease_id": scene.zombie.lease_id,
            "token": scene.zombie.token,
            "incarnation": 1,
        },
    }


WAYS = ["by name", "by lease", "by name and lease", "by name and token", "by name and incarnation", "by everything"]


@pytest.mark.parametrize("profile", ["agent", "cli"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("act", ACTS)
def test_act_as_zombie_after_another_took_the_task_changes_nothing(
    store: SqliteStore, clock: ManualClock, profile: str, way: str, act: str
) -> None:
    scene = Scene(store, clock, profile, successor="A2")
    before = scene.rows()
    no = refused(ACTS[act](store, **identities(scene)[way]), "lease_lost")
    assert scene.rows() == before, "byte for byte"
    assert no.exit_status == 6
    assert no.facts["holder"] == "A2"
    assert no.facts["your_lease"] == scene.zombie.lease_id
    assert no.facts["your_branch"] == "marcus/A1", "where its own work was saved"
    assert "A2 has held it since" in no.message
    assert scene.holder.lease_id not in f"{no.message} {no.next} {no.facts}", "knowing a lease id is what fences"
    if act in NEWS:
        assert any(NEWS[act] in text for text in thread(store)), "its news reaches the new holder"


@pytest.mark.parametrize("profile", ["agent", "cli"])
@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("act", ACTS)
def test_act_as_zombie_after_its_own_new_run_took_the_task_changes_nothing(
    store: SqliteStore, clock: ManualClock, profile: str, way: str, act: str
) -> None:
    """The same id, a new incarnation. Only its lease id, token or incarnation can tell the old run from the new one."""
    scene = Scene(store, clock, profile, successor="A1")
    before = scene.rows()
    no = ACTS[act](store, **identities(scene)[way])
    assert isinstance(no, Refused)
    assert no.code == ("superseded" if "incarnation" in identities(scene)[way] else "lease_lost")
    assert no.exit_status == 6
    assert scene.rows() == before, "byte for byte"
    assert scene.holder.lease_id not in f"{no.message} {no.next} {no.facts}", "knowing a lease id is what fences"


@pytest.mark.parametrize("profile", ["agent", "cli"])
def test_log_decision_as_zombie_keeps_the_words_and_changes_nothing(
    store: SqliteStore, clock: ManualClock, profile: str
) -> None:
    scene = Scene(store, clock, profile, successor="A2")
    before = scene.rows()
    decision = notes.log_decision(store, task_id="F001", agent_id="A1", decision="Drop Python 3.9.")
    assert ok(decision).decision == "Drop Python 3.9."
    assert scene.rows() == before, "no mark, no touch of the new holder's lease"
    assert [note.decision for note in ok(notes.decisions(store, task_id="F001"))] == ["Drop Python 3.9."]


@pytest.mark.parametrize("profile", ["agent", "cli"])
def test_log_decision_as_superseded_run_is_refused(store: SqliteStore, clock: ManualClock, profile: str) -> None:
    scene = Scene(store, clock, profile, successor="A1")
    before = scene.rows()
    answer = notes.log_decision(store, task_id="F001", agent_id="A1", incarnation=1, decision="Drop it.")
    refused(answer, "superseded")
    assert scene.rows() == before


def test_block_as_superseded_run_of_a_free_task_is_refused(store: SqliteStore, clock: ManualClock) -> None:
    """Anyone may block a task that nobody holds, but an older run speaks for nobody."""
    join(store, "A1")
    add(store)
    take(store, "A1")
    join(store, "A1")
    clock.advance(1_000)
    refused(endings.block(store, task_id="F001", agent_id="A1", incarnation=1, reason="x"), "superseded")
    assert shown(store).status == "todo"


def test_touch_as_zombie_is_only_told_and_told_once(store: SqliteStore, clock: ManualClock) -> None:
    scene = Scene(store, clock, "agent", successor="A2")
    before = scene.rows()
    told = feel(store, "A1")
    assert told.lost is not None
    assert (told.leases, told.lost.lease_id, told.lost.state) == ((), scene.zombie.lease_id, "expired")
    assert scene.rows() == before
    assert feel(store, "A1").lost is None


def test_touch_as_zombie_of_a_free_task_does_not_take_it_back(store: SqliteStore, clock: ManualClock) -> None:
    join(store, "A1")
    add(store)
    lost = take(store, "A1")
    clock.advance(80)
    ok(observe.list_tasks(store))
    assert feel(store, "A1").leases == ()
    assert shown(store).status == "todo"
    assert lease(store, lost.lease_id).expires_at_ms == lost.expires_at_ms


# -- self-healing ------------------------------------------------------------------------------------------------------


@pytest.fixture
def recovered(store: SqliteStore, clock: ManualClock) -> Lease:
    """A1's lease, with three marks and 40 %, recovered a moment ago; the task is free."""
    for name in ("A1", "A2"):
        join(store, name)
    add(store)
    held = take(store, "A1")
    for progress in (20, 30, 40):
        clock.advance(10)
        report(store, "A1", progress, message=f"at {progress}")
    clock.advance(150)
    assert tick(store).recovered == 1
    return held


@pytest.mark.parametrize("way", ["name", "lease", "token"])
def test_report_as_zombie_of_a_free_task_is_given_it_back(
    store: SqliteStore, clock: ManualClock, recovered: Lease, way: str
) -> None:
    before = lease(store, recovered.lease_id)
    clock.advance(5)
    who: dict[str, Any] = {"task_id": "F001", "agent_id": "A1"}
    if way == "lease":
        who = {"lease_id": recovered.lease_id}
    if way == "token":
        who["token"] = recovered.token
    kept = ok(liveness.report(store, progress=50, **who))
    assert kept.healed
    assert (kept.task.status, kept.task.assigned_to, kept.task.progress) == ("in_progress", "A1", 50)
    assert kept.lease.lease_id != recovered.lease_id
    assert kept.lease.token > recovered.token
    assert (kept.lease.reports, kept.lease.renewals) == (before.reports + 1, before.renewals + 1), "phase kept"
    assert (kept.lease.term_ms, kept.lease.grace_ms) == (120_000, 30_000), "the phase of 50 % and four reports"
    assert kept.lease.mark_gaps.split()[:2] == before.mark_gaps.split(), "cadence kept"
    assert handoffs(store) == (), "the handoff is withdrawn"
    assert data(events(store, "healed")[0])["note"] == "lease not found, recreating"
    assert said(store) == ["accepted", "escalate/lease_expired", "accepted"]
    assert task(store).obligation == "open"
    refused(claims.claim(store, task_id="F001", agent_id="A2", profile="agent"), "already_claimed")


def test_complete_as_zombie_of_a_free_task_finishes_it(store: SqliteStore, recovered: Lease) -> None:
    ended = done(store, "A1")
    assert (ended.task.status, ended.repeated) == ("done", False)
    assert ended.lease is not None
    assert ended.lease.token > recovered.token
    assert said(store)[-2:] == ["accepted", "complete/success"]


def test_report_as_zombie_before_anyone_recovered_is_healed_too(store: SqliteStore, clock: ManualClock) -> None:
    """Whoever notices first: the report itself recovers, then heals."""
    join(store, "A1")
    add(store)
    take(store, "A1")
    clock.advance(80)
    kept = report(store, "A1", 10)
    assert kept.healed
    assert [event.kind for event in events(store, "recovered", "returned", "healed")] == [
        "recovered",
        "returned",
        "healed",
    ]


@pytest.mark.parametrize(("seconds", "false"), [(0, 1), (600, 1), (600.001, 0)])
def test_return_of_a_zombie_within_ten_minutes_cancels_its_recovery(
    store: SqliteStore, clock: ManualClock, recovered: Lease, seconds: float, false: int
) -> None:
    assert (task(store).attempts, task(store).silent_recoveries) == (1, 0)
    clock.advance(seconds)
    report(store, "A1", 50)
    numbers = ok(observe.statistics(store))
    assert (numbers.recoveries, numbers.false_recoveries) == (1, false)
    assert task(store).attempts == 1 - false
    report(store, "A1", 51)
    assert ok(observe.statistics(store)).false_recoveries == false, "counted once"


def test_return_of_a_zombie_whose_death_was_seen_is_no_false_recovery(store: SqliteStore, clock: ManualClock) -> None:
    from tenure.engine import agents

    join(store, "A1")
    add(store)
    take(store, "A1")
    watcher = ok(agents.link_up(store, agent_id="A1", incarnation=1)).link_id
    ok(agents.link_down(store, link_id=watcher, died=True))
    report(store, "A1", 50)
    assert ok(observe.statistics(store)).false_recoveries == 0


def test_return_of_a_zombie_after_another_took_over_cancels_its_recovery_too(
    store: SqliteStore, clock: ManualClock
) -> None:
    scene = Scene(store, clock, "agent", successor="A2")
    refused(liveness.renew(store, task_id="F001", agent_id="A1"), "lease_lost")
    assert ok(observe.statistics(store)).false_recoveries == 1
    assert task(store).attempts == 0
    assert lease(store, scene.zombie.lease_id).returned_at_ms == clock.wall


def test_renew_or_release_as_zombie_of_a_free_task_is_refused(store: SqliteStore, recovered: Lease) -> None:
    """Only a report or a completion takes a task back."""
    for act in ("renew", "release", "accept"):
        no = refused(ACTS[act](store, task_id="F001", agent_id="A1"), "lease_lost")
        assert "nobody has taken the task since" in no.message
    assert task(store).status == "todo"


def test_report_as_zombie_that_holds_another_task_is_refused(store: SqliteStore, recovered: Lease) -> None:
    add(store, "F002")
    take(store, "A1", "F002")
    refused(liveness.report(store, task_id="F001", agent_id="A1", progress=50), "lease_lost")
    assert (task(store).status, task(store).progress) == ("todo", 40)


def test_report_as_zombie_of_a_blocked_task_is_refused(store: SqliteStore, recovered: Lease) -> None:
    ok(endings.block(store, task_id="F001", reason="wait for legal"))
    refused(liveness.report(store, task_id="F001", agent_id="A1", progress=50), "task_blocked")
    refused(endings.complete(store, task_id="F001", agent_id="A1"), "task_blocked")
    assert task(store).status == "blocked"


def test_report_as_zombie_of_a_quarantined_task_is_refused(store: SqliteStore, clock: ManualClock) -> None:
    for name in ("A1", "A2", "A3"):
        join(store, name)
    add(store)
    for name in ("A1", "A2", "A3"):
        take(store, name)
        clock.advance(80)
    refused(liveness.report(store, task_id="F001", agent_id="A3", progress=50), "task_blocked")
    assert task(store).status == "blocked", "it stays quarantined"


def test_report_as_zombie_of_a_task_kept_for_another_is_refused(store: SqliteStore, recovered: Lease) -> None:
    from tenure.engine.tasks import assign_task

    ok(assign_task(store, task_id="F001", assigned_to="A2"))
    refused(liveness.report(store, task_id="F001", agent_id="A1", progress=50), "lease_lost")


def test_report_of_a_worker_is_not_healed(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    take(store, "w.1", profile="worker")
    clock.advance(900)
    refused(liveness.report(store, task_id="F001", agent_id="w.1", progress=50), "lease_lost")
    clock.advance(30)
    refused(liveness.report(store, task_id="F001", agent_id="w.1", progress=50), "lease_lost")
    assert task(store).status == "todo"


def test_report_in_profile_cli_is_healed_with_its_own_ttl(store: SqliteStore, clock: ManualClock) -> None:
    add(store)
    ok(claims.claim(store, task_id="F001", agent_id="A1", ttl_s=120))
    clock.advance(120)
    kept = report(store, "A1", 50)
    assert (kept.healed, kept.lease.term_ms, kept.lease.profile) == (True, 120_000, "cli")


def test_heal_stuck_lease_does_not_flag_it_again(store: SqliteStore, clock: ManualClock) -> None:
    join(store, "A1")
    add(store)
    take(store, "A1")
    for progress in range(10):
        report(store, "A1", progress)
    clock.advance(1_000)
    kept = report(store, "A1", 11)
    assert (kept.healed, kept.lease.stuck, kept.lease.over_max) == (True, 1, 1)
    assert len(events(store, "stuck")) == len(events(store, "max_renewals")) == 1


def test_report_on_a_done_task_is_told_so(store: SqliteStore, clock: ManualClock) -> None:
    scene = Scene(store, clock, "agent", successor="A2")
    done(store, "A2")
    no = refused(liveness.report(store, task_id="F001", agent_id="A1", progress=50), "task_done")
    before = row(store, "tasks", task_id="F001")
    assert no.exit_status == 7
    assert done(store, "A1").repeated, "the same outcome: success"
    refused(endings.release(store, task_id="F001", agent_id="A1"), "task_done")
    assert row(store, "tasks", task_id="F001") == before
    assert lease(store, scene.zombie.lease_id).state == "expired"


def test_act_without_ever_having_held_the_task_is_not_permitted(store: SqliteStore, clock: ManualClock) -> None:
    scene = Scene(store, clock, "agent", successor="A2")
    join(store, "A3")
    before = scene.rows()
    for act in ACTS:
        assert refused(ACTS[act](store, task_id="F001", agent_id="A3"), "not_holder").exit_status == 8
    assert scene.rows() == before
    refused(
        liveness.report(store, lease_id=scene.holder.lease_id, task_id="F001", agent_id="A3", progress=1), "not_holder"
    )
    assert scene.rows() == before


def test_renew_by_the_newest_run_takes_the_lease_over(store: SqliteStore) -> None:
    add(store)
    join(store, "A1")
    held = take(store, "A1")
    newest = join(store, "A1")
    assert newest.incarnation > held.incarnation
    kept = ok(liveness.renew(store, task_id="F001", agent_id="A1")).lease
    assert kept.incarnation == lease(store, held.lease_id).incarnation == newest.incarnation
