"""What agents say and make: threads, inboxes, decisions, artifacts; and which of it keeps a lease alive."""

from __future__ import annotations

import pytest

from tenure.clock import ManualClock
from tenure.core.deadline import median_gap_ms
from tenure.engine import liveness, notes, observe
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import events, feel, lease, report, shown, task, whole
from tests.support import add, join, ok, refused, take


@pytest.fixture(autouse=True)
def fleet(store: SqliteStore) -> None:
    for name in ("A1", "A2"):
        join(store, name)
    add(store)


def send(store: SqliteStore, text: str, **to: str) -> int:
    return ok(notes.send_message(store, text=text, sender="ann", **to)).seq


# -- messages ----------------------------------------------------------------------------------------------------------


def test_send_to_a_thread_is_read_in_order(store: SqliteStore) -> None:
    for text in ("one", "two", "three"):
        send(store, text, task_id="F001")
    assert [message.text for message in ok(notes.thread(store, task_id="F001"))] == ["one", "two", "three"]
    assert [message.text for message in ok(notes.thread(store, task_id="F001", limit=2))] == ["two", "three"]
    first = ok(notes.thread(store, task_id="F001"))[0]
    assert [message.text for message in ok(notes.thread(store, task_id="F001", after=first.seq))] == ["two", "three"]


def test_send_to_an_agent_is_in_its_inbox_until_read(store: SqliteStore) -> None:
    send(store, "for you", to="A1")
    send(store, "about this", to="A1", task_id="F001")
    send(store, "for another", to="A2")
    assert [message.text for message in ok(notes.inbox(store, agent_id="A1", keep=True))] == ["for you", "about this"]
    assert [message.text for message in ok(notes.inbox(store, agent_id="A1", limit=1))] == ["for you"]
    assert [message.text for message in ok(notes.inbox(store, agent_id="A1"))] == ["about this"]
    assert ok(notes.inbox(store, agent_id="A1")) == ()


def test_send_nowhere_or_to_nobody_is_refused(store: SqliteStore) -> None:
    refused(notes.send_message(store, text="x", sender="ann"), "invalid_argument")
    refused(notes.send_message(store, text="x", sender="ann", to="A404"), "agent_not_found")
    refused(notes.send_message(store, text="x", sender="ann", task_id="F404"), "task_not_found")
    refused(notes.send_message(store, text=" ", sender="ann", task_id="F001"), "invalid_argument")


def test_read_messages_shows_each_once_and_not_your_own(store: SqliteStore) -> None:
    send(store, "mind the BOM", task_id="F001")
    ok(notes.send_message(store, text="will do", sender="A1", task_id="F001"))
    assert [m.text for m in ok(notes.read_messages(store, task_id="F001", agent_id="A1"))] == ["mind the BOM"]
    assert ok(notes.read_messages(store, task_id="F001", agent_id="A1")) == ()
    assert len(ok(notes.read_messages(store, task_id="F001", agent_id="A2"))) == 2, "each reads for itself"


# -- decisions and artifacts -------------------------------------------------------------------------------------------


def test_log_decision_under_a_lease_is_a_touch_and_a_mark(store: SqliteStore, clock: ManualClock) -> None:
    held = take(store, "A1")
    for _ in range(3):
        clock.advance(20)
        ok(notes.log_decision(store, task_id="F001", agent_id="A1", decision="Use pandas."))
    after = lease(store, held.lease_id)
    assert (after.seen_at_ms, after.expires_at_ms) == (clock.wall, clock.wall + 60_000)
    assert (median_gap_ms(after), after.cadence_ms) == (20_000, 30_000)
    assert (after.reports, after.renewals) == (0, 0), "it moves no phase"
    assert len(ok(notes.decisions(store, task_id="F001"))) == 3
    assert len(ok(notes.decisions(store, task_id="F001", limit=2))) == 2


def test_touch_is_no_mark(store: SqliteStore, clock: ManualClock) -> None:
    held = take(store, "A1")
    for _ in range(5):
        clock.advance(10)
        feel(store, "A1")
    assert lease(store, held.lease_id).mark_gaps == ""


def test_log_decision_without_a_lease_is_noted_and_is_no_sign_of_life(store: SqliteStore, clock: ManualClock) -> None:
    held = take(store, "A1")
    clock.advance(20)
    ok(notes.log_decision(store, task_id="F001", agent_id="A2", decision="Prefer polars."))
    assert lease(store, held.lease_id) == held
    assert [note.agent_id for note in ok(notes.decisions(store, task_id="F001"))] == ["A2"]
    refused(notes.log_decision(store, task_id="F001", agent_id="A404", decision="x"), "agent_not_found")


def test_log_artifact_is_kept_with_content_or_location(store: SqliteStore, clock: ManualClock) -> None:
    take(store, "A1")
    ok(notes.log_artifact(store, task_id="F001", agent_id="A1", filename="out.csv", content="1,2\n"))
    ok(
        notes.log_artifact(
            store,
            task_id="F001",
            agent_id="A1",
            filename="big.bin",
            artifact_type="data/bin",
            location="s3://b/big.bin",
        )
    )
    found = ok(notes.artifacts(store, task_id="F001"))
    assert [(made.filename, made.content, made.location) for made in found] == [
        ("out.csv", "1,2\n", None),
        ("big.bin", None, "s3://b/big.bin"),
    ]
    assert task(store).artifact_count == 2
    assert len(events(store, "artifact")) == 2


@pytest.mark.parametrize(
    ("filename", "content", "location", "because"),
    [
        ("out.csv", None, None, "neither content nor location"),
        ("out.csv", "x", "out.csv", "both"),
        ("../out.csv", "x", None, "a path for a name"),
        ("a\\b", "x", None, "the other kind of path"),
        ("..", "x", None, "a way up"),
        ("out.csv", None, "/etc/passwd", "an absolute path"),
        ("out.csv", None, "~/.ssh/id", "somebody's home"),
        ("out.csv", None, "a/../../b", "a way out of the project"),
        ("out.csv", None, "..\\b", "also this way"),
        ("out.csv", "x" * 1_000_001, None, "more than a megabyte"),
    ],
)
def test_log_artifact_with_a_bad_place_is_refused(
    store: SqliteStore, filename: str, content: str | None, location: str | None, because: str
) -> None:
    before = whole(store)
    answer = notes.log_artifact(
        store, task_id="F001", agent_id="A1", filename=filename, content=content, location=location
    )
    refused(answer, "invalid_argument")
    assert whole(store) == before, because


def test_log_decision_in_a_fixed_profile_extends_where_a_touch_does(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "F002")
    touched, beating = take(store, "A1", profile="cli"), take(store, "A2", "F002", profile="worker")
    clock.advance(100)
    for agent_id, task_id in (("A1", "F001"), ("A2", "F002")):
        ok(notes.log_decision(store, task_id=task_id, agent_id=agent_id, decision="x"))
        feel(store, agent_id)
    assert lease(store, touched.lease_id).expires_at_ms == clock.wall + 900_000
    assert lease(store, beating.lease_id).expires_at_ms == beating.expires_at_ms, "only heartbeats and progress do"
    ok(liveness.renew(store, lease_id=beating.lease_id))
    assert lease(store, beating.lease_id).expires_at_ms == clock.wall + 900_000


# -- touch, renew, report ----------------------------------------------------------------------------------------------


def test_touch_extends_everything_the_agent_holds(store: SqliteStore, clock: ManualClock) -> None:
    add(store, "F002")
    take(store, "A1")
    take(store, "A1", "F002")
    clock.advance(10)
    assert {held.expires_at_ms for held in feel(store, "A1").leases} == {clock.wall + 60_000}
    refused(notes.inbox(store, agent_id="A404"), "agent_not_found")


def test_touch_in_grace_is_honoured_and_after_it_is_too_late(store: SqliteStore, clock: ManualClock) -> None:
    take(store, "A1")
    clock.advance(79.999)
    assert len(feel(store, "A1").leases) == 1, "expired, in its grace"
    clock.advance(80)
    assert feel(store, "A1").leases == (), "whoever notices first"


def test_renew_with_a_ttl_changes_the_term_of_a_fixed_lease(store: SqliteStore, clock: ManualClock) -> None:
    held = take(store, "A1", profile="cli")
    clock.advance(10)
    kept = ok(liveness.renew(store, lease_id=held.lease_id, ttl_s=60)).lease
    assert (kept.term_ms, kept.expires_at_ms, kept.renewals) == (60_000, clock.wall + 60_000, 1)
    clock.advance(10)
    assert ok(liveness.renew(store, lease_id=held.lease_id)).lease.expires_at_ms == clock.wall + 60_000
    clock.advance(60)
    refused(liveness.renew(store, lease_id=held.lease_id), "lease_lost")


def test_report_moves_the_phase_with_reports_and_progress(store: SqliteStore) -> None:
    take(store, "A1")
    terms = []
    for progress in (50, 24, 25, 75, 76):
        kept = report(store, "A1", progress).lease
        terms.append((kept.term_ms // 1000, kept.grace_ms // 1000))
    assert terms == [(90, 30), (90, 30), (120, 30), (120, 30), (60, 15)]
    assert (task(store).progress, shown(store).leases[0].progress) == (76, 76)


def test_report_keeps_the_last_words_of_an_agent_that_says_nothing(store: SqliteStore) -> None:
    held = take(store, "A1")
    report(store, "A1", 10, message="reader done")
    report(store, "A1", 20)
    assert lease(store, held.lease_id).message == "reader done"
    assert [event.kind for event in ok(observe.events(store, task_id="F001", agent_id="A1"))].count("reported") == 2


def test_expect_silence_on_a_report_or_renewal_carries_the_agent(store: SqliteStore, clock: ManualClock) -> None:
    held = take(store, "A1")
    report(store, "A1", 10, expect_silence_s=1_000)
    assert lease(store, held.lease_id).recover_at_ms == clock.wall + 1_000_000
    ok(liveness.renew(store, lease_id=held.lease_id, expect_silence_s=9_999))
    assert lease(store, held.lease_id).recover_at_ms == clock.wall + 3_600_000, "capped at an hour"
