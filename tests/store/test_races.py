"""Many processes on one file at the same moment: exactly one wins, nobody crashes, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tenure.engine import claims, observe, tasks
from tenure.store.sqlite import SqliteStore
from tests.store import racing
from tests.support import ok


def prepared(path: str, rounds: int, *, held_by: str = "") -> None:
    """One task per round, ready or in the hands of a holder for a minute."""
    store = SqliteStore(path)
    ok(tasks.add_tasks(store, tasks=[{"task_id": f"R{number:03}", "title": "Race"} for number in range(rounds)]))
    for number in range(rounds if held_by else 0):
        ok(claims.claim(store, task_id=f"R{number:03}", agent_id=held_by, profile="cli", ttl_s=60))
    store.close()


def checked(path: str) -> SqliteStore:
    """The store after the race, found sound."""
    store = SqliteStore(path)
    assert store.integrity_faults() == []
    return store


def count(store: SqliteStore, sql: str) -> int:
    return int(store.connection.execute(sql).fetchone()[0])


def test_claim_by_16_processes_at_once_has_one_winner_each_round(tmp_path: Path) -> None:
    path, rounds = str(tmp_path / "tenure.db"), 100
    prepared(path, rounds)
    said = racing.race(racing.claim_each, path, racers=16, rounds=rounds)
    for round_said in zip(*said, strict=True):
        assert Counter(round_said) == {"won": 1, "already_claimed": 15}
    store = checked(path)
    assert count(store, "SELECT count(*) FROM leases WHERE state = 'active'") == rounds
    assert count(store, "SELECT count(DISTINCT task_key) FROM leases") == rounds
    assert count(store, "SELECT count(*) FROM receipts WHERE phase = 'accepted'") == rounds
    store.close()


def test_claim_next_by_16_processes_with_one_ready_task_has_one_winner_each_round(tmp_path: Path) -> None:
    path, rounds = str(tmp_path / "tenure.db"), 100
    prepared(path, 0)
    said = racing.race(racing.claim_next_of_one, path, racers=16, rounds=rounds)
    for number, round_said in enumerate(zip(*said, strict=True)):
        assert Counter(round_said) == {("won", f"R{number:03}"): 1, ("nothing_ready", ""): 15}
    store = checked(path)
    assert count(store, "SELECT count(*) FROM leases WHERE state = 'active'") == rounds
    store.close()


def test_complete_by_8_processes_at_once_persists_all_and_counts_dependants_right(tmp_path: Path) -> None:
    path, rounds, racers = str(tmp_path / "tenure.db"), 25, 8
    store = SqliteStore(path)
    graph: list[dict[str, object]] = []
    for number in range(rounds):
        names = [f"R{number:03}-{rank}" for rank in range(racers)]
        graph += [{"task_id": name, "title": "Part"} for name in names]
        graph += [
            {"task_id": f"R{number:03}-all", "title": "Needs every part", "after": names},
            {"task_id": f"R{number:03}-one", "title": "Needs one part", "after": names[:1]},
            {"task_id": f"R{number:03}-more", "title": "Needs more", "after": [*names, f"R{number:03}-all"]},
        ]
    ok(tasks.add_tasks(store, tasks=graph))
    store.close()

    said = racing.race(racing.complete_own, path, racers=racers, rounds=rounds)
    for number, round_said in enumerate(zip(*said, strict=True)):
        assert [code for code, _ in round_said] == ["won"] * racers
        unlocked = sorted(name for _, names in round_said for name in names)
        assert unlocked == [f"R{number:03}-all", f"R{number:03}-one"], "each is unlocked by exactly one completion"

    store = checked(path)
    views = {view.task.task_id: view for view in ok(observe.list_tasks(store, limit=1_000))}
    for number in range(rounds):
        assert all(views[f"R{number:03}-{rank}"].status == "done" for rank in range(racers))
        assert [views[f"R{number:03}-{name}"].task.unmet for name in ("all", "one", "more")] == [0, 0, 1]
    store.close()


def test_recover_the_same_due_leases_from_two_processes_happens_once_each(tmp_path: Path) -> None:
    path, rounds = str(tmp_path / "tenure.db"), 50
    prepared(path, rounds, held_by="A9")
    said = racing.race(racing.recover_due, path, racers=2, rounds=rounds)
    assert sum(recovered for counts in said for recovered, _ in counts) == rounds
    assert all(recovered == told for counts in said for recovered, told in counts)
    store = checked(path)
    assert count(store, "SELECT value FROM counters WHERE name = 'recoveries'") == rounds
    assert count(store, "SELECT count(*) FROM handoffs") == rounds
    assert count(store, "SELECT count(*) FROM leases WHERE state = 'expired'") == rounds
    store.close()


def test_claim_a_dead_holders_task_from_two_processes_recovers_once_and_has_one_winner(tmp_path: Path) -> None:
    path, rounds = str(tmp_path / "tenure.db"), 50
    prepared(path, rounds, held_by="A9")
    said = racing.race(racing.claim_due, path, racers=2, rounds=rounds)
    for round_said in zip(*said, strict=True):
        assert Counter(round_said) == {"won": 1, "already_claimed": 1}
    store = checked(path)
    assert count(store, "SELECT value FROM counters WHERE name = 'recoveries'") == rounds
    assert count(store, "SELECT count(*) FROM handoffs") == rounds
    store.close()


def test_claim_retried_with_one_key_from_two_processes_gives_one_lease(tmp_path: Path) -> None:
    path, rounds = str(tmp_path / "tenure.db"), 50
    prepared(path, rounds)
    said = racing.race(racing.claim_with_one_key, path, racers=2, rounds=rounds)
    for one, other in zip(*said, strict=True):
        assert one[0] == other[0]
        assert {one[1], other[1]} == {True, False}, "the first try made it, the second found it"
    store = checked(path)
    assert count(store, "SELECT count(*) FROM leases") == rounds
    store.close()


def test_open_a_new_store_from_8_processes_at_once_succeeds_for_all(tmp_path: Path) -> None:
    rounds, racers = 10, 8
    said = racing.race(racing.open_new, str(tmp_path / "new"), racers=racers, rounds=rounds)
    assert said == [["won"] * rounds] * racers
    for number in range(rounds):
        store = checked(str(tmp_path / f"new-{number}" / "tenure.db"))
        assert len(ok(observe.list_tasks(store))) == racers
        store.close()


def test_open_and_close_by_many_processes_all_the_time_is_never_refused(tmp_path: Path) -> None:
    """The last to close removes the log, the next to open makes a new one: for a moment even a read is locked out."""
    path, rounds, racers = str(tmp_path / "tenure.db"), 60, 8
    prepared(path, 1)
    said = racing.race(racing.come_and_go, path, racers=racers, rounds=rounds)
    assert Counter(word for words in said for word in words) == {"won": rounds * racers}
    store = checked(path)
    assert count(store, "SELECT count(*) FROM tasks") == 1 + rounds * racers // 2
    store.close()
