"""Expiry at read time, and who is calling: `main` on a manual clock, with nothing running in between."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenure.store import sqlite
from tenure.store.sqlite import SqliteStore
from tests.cli.shell import AGENT, OTHER, Desk, envelope


@pytest.fixture
def scene(desk: Desk) -> Desk:
    desk.ok("task", "add", "Parse CSV", "--id", "F001")
    return desk


def contents(desk: Desk) -> str:
    """Everything the store holds."""
    with closing(sqlite3.connect(desk.store)) as connection:
        return "\n".join(connection.iterdump())


# -- reading ----------------------------------------------------------------------------------------------------------


def test_readers_see_a_due_lease_as_gone_and_write_nothing(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    assert scene.data("status")["tasks"]["in_progress"] == 1
    scene.clock.advance(15 * 60)
    before = contents(scene)
    ready = scene.data("ready")["tasks"]
    assert [(task["task_id"], task["status"], task["due"]) for task in ready] == [("F001", "todo", True)]
    listed = scene.data("task", "list", "--status", "todo")["tasks"]
    assert [task["task_id"] for task in listed] == ["F001"]
    assert scene.data("task", "list", "--status", "in_progress")["tasks"] == []
    numbers = scene.data("status")
    assert (numbers["tasks"]["todo"], numbers["tasks"]["in_progress"]) == (1, 0)
    assert (numbers["active"], numbers["due"]) == (0, 1)
    shown = scene.data("task", "show", "F001")
    assert (shown["status"], shown["due"], shown["leases"]) == ("todo", True, [])
    text = scene.ok("task", "show", "F001").out
    assert "Status: todo (due)" in text
    assert "Claimed by" not in text
    assert "todo (due)" in scene.ok("task", "list").out
    scene.ok("why", "F001")
    scene.ok("task", "graph")
    assert contents(scene) == before


def test_claim_of_a_due_task_recovers_first_and_its_reply_has_the_handoff(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.ok("task", "renew", "F001", "--progress", "40", "--message", "the parser works")
    first = scene.data("task", "show", "F001")["leases"][0]["token"]
    scene.clock.advance(15 * 60)
    claimed = scene.data("task", "claim", "F001", "--agent", OTHER)
    assert claimed["token"] > first
    assert claimed["handoff"]["recovered_from_agent"] == AGENT
    assert claimed["handoff"]["previous_progress"] == 40
    assert claimed["handoff"]["last_message"] == "the parser works"
    kinds = [event["kind"] for event in scene.data("events", "--task", "F001")["events"]]
    assert kinds.index("recovered") < kinds.index("granted", kinds.index("recovered"))


def test_next_takes_a_due_task_and_says_what_it_is(scene: Desk) -> None:
    scene.ok("task", "update", "F001", "--body", "Mind the quotes.")
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.ok("task", "renew", "F001", "--progress", "40", "--message", "the parser works")
    scene.clock.advance(15 * 60)
    text = scene.ok("next", "--agent", OTHER).out
    assert text.startswith("Claimed task F001\n")
    assert "F001 - Parse CSV\nMind the quotes.\n" in text
    assert f"recovered from {AGENT}" in text
    assert "> the parser works" in text


def test_touch_extends_a_lease_and_tells_of_a_lost_one(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.clock.advance(14 * 60)
    assert scene.ok("touch").lines == ["Touched F001: expires in 15m"]
    scene.clock.advance(15 * 60)
    scene.ok("task", "claim", "F001", "--agent", OTHER)
    told = scene.run("touch", "--agent", AGENT)
    assert (told.status, told.lines) == (6, [f"{AGENT} is alive and holds nothing."])
    assert "your lease on F001 was lost" in told.err
    assert scene.run("touch", "--agent", AGENT).status == 0


def test_touch_that_is_quiet_still_tells_of_a_lost_lease(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    assert scene.ok("touch", "-q") == (0, "", "")
    scene.clock.advance(15 * 60)
    scene.ok("task", "claim", "F001", "--agent", OTHER)
    told = scene.run("touch", "-q", "--agent", AGENT)
    assert (told.status, told.out) == (6, "")
    assert "your lease on F001 was lost" in told.err


def test_touch_in_json_has_the_lost_lease_and_a_warning(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.clock.advance(15 * 60)
    scene.ok("task", "claim", "F001", "--agent", OTHER)
    ran = scene.run("touch", "-q", "--agent", AGENT, "--json")
    document = envelope(ran.out)
    assert (ran.status, document["ok"], document["error"]["code"]) == (6, False, "lease_lost")
    assert document["data"]["lost"]["task_id"] == "F001"
    assert "was lost" in document["warnings"][0]


def test_touch_after_taking_the_lost_task_again_is_well(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.clock.advance(15 * 60)
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    assert scene.run("touch", "--agent", AGENT).status == 0


def test_silence_beyond_the_cap_is_announced_as_far_as_it_goes(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    for words in (["touch"], ["task", "renew", "F001"]):
        limited = scene.ok(*words, "--expect-silence", "2h").err
        assert "announced silence is limited to 1h (tenure.silence_cap_s)" in limited
        assert scene.ok(*words, "--expect-silence", "1h").err == ""


def test_touch_waits_three_seconds_for_a_busy_store_and_no_longer(scene: Desk) -> None:
    opened: list[float] = []

    class Noting(SqliteStore):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            opened.append(self.busy_timeout_s)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite, "SqliteStore", Noting)
        scene.ok("agent", "join", "--id", AGENT)
        scene.ok("touch", "--agent", AGENT)
    assert opened == [sqlite.BUSY_TIMEOUT_S, 3.0]


def test_done_of_a_lapsed_lease_says_that_it_was_given_back(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.clock.advance(16 * 60)
    assert "the lease had lapsed and was given back" in scene.ok("task", "done", "F001", "--agent", AGENT).err
    scene.ok("task", "add", "Other", "--id", "F009")
    scene.ok("task", "claim", "F009", "--agent", AGENT)
    assert scene.ok("task", "done", "F009", "--agent", AGENT).err == ""


def test_due_task_names_no_holder(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.clock.advance(16 * 60)
    assert AGENT not in scene.ok("task", "list").out
    assert AGENT not in scene.ok("task", "show", "F001").out
    shown = scene.data("task", "show", "F001")
    assert (shown["due"], shown["assigned_to"], shown["owner"]) == (True, None, None)


def test_done_of_an_expired_task_that_nobody_took_is_taken_up_again(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.clock.advance(16 * 60)
    scene.ok("task", "done", "F001", "--agent", AGENT)
    kinds = [event["kind"] for event in scene.data("events", "--task", "F001")["events"]]
    assert kinds.index("recovered") < kinds.index("returned") < kinds.index("healed") < kinds.index("completed")


# -- identity ---------------------------------------------------------------------------------------------------------


def test_identity_is_the_option_then_the_environment_then_the_folder(
    scene: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for agent in (AGENT, OTHER, "C1"):
        scene.ok("agent", "join", "--id", agent, folder=scene.folder if agent == AGENT else scene.folder.parent)
    assert scene.data("touch")["agent_id"] == AGENT
    monkeypatch.setenv("TENURE_AGENT", OTHER)
    assert scene.data("touch")["agent_id"] == OTHER
    assert scene.data("touch", "--agent", "C1")["agent_id"] == "C1"


def test_identity_without_any_way_to_know_names_the_ways(scene: Desk) -> None:
    ran = scene.run("task", "claim", "F001")
    assert (ran.status, ran.out) == (2, "")
    for way in ("--agent", "TENURE_AGENT", "tenure agent join"):
        assert way in ran.err


def test_identity_with_several_agents_here_names_them(scene: Desk) -> None:
    scene.ok("agent", "join", "--id", AGENT)
    told = scene.ok("agent", "join", "--id", OTHER)
    assert f"export TENURE_AGENT={OTHER}" in told.out
    error = scene.refused(2, "task", "claim", "F001")
    assert (error["code"], error["facts"]["agents"]) == ("agent_required", [AGENT, OTHER])


def test_identity_with_several_agents_here_is_the_holder_of_the_task(scene: Desk) -> None:
    scene.ok("task", "add", "More", "--id", "F002")
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.ok("task", "claim", "F002", "--agent", OTHER)
    assert scene.data("task", "renew", "F001")["agent_id"] == AGENT
    assert scene.data("task", "renew", "F002")["agent_id"] == OTHER


def test_identity_of_an_agent_that_left_does_not_count(scene: Desk) -> None:
    for agent in (AGENT, OTHER):
        scene.ok("agent", "join", "--id", agent)
    scene.ok("agent", "leave", "--agent", OTHER)
    assert scene.data("task", "claim", "F001")["agent_id"] == AGENT


def test_identity_in_a_folder_below_the_worktree_is_the_worktrees(scene: Desk) -> None:
    (scene.folder / ".git").mkdir()
    below = scene.folder / "src" / "deep"
    below.mkdir(parents=True)
    scene.ok("agent", "join", "--id", AGENT)
    assert scene.data("task", "claim", "F001", folder=below)["agent_id"] == AGENT


def test_identity_in_another_worktree_is_unknown(scene: Desk, tmp_path: Path) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert scene.refused(2, "task", "renew", "F001", folder=elsewhere)["code"] == "agent_required"


@pytest.mark.parametrize("way", ["option", "environment"])
def test_lease_named_by_an_older_run_is_refused(scene: Desk, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    old = scene.data("task", "claim", "F001", "--agent", AGENT)["lease_id"]
    scene.clock.advance(15 * 60)
    new = scene.data("task", "claim", "F001", "--agent", AGENT)["lease_id"]
    words = ["task", "renew", "F001"]
    for lease, status in ((old, 6), (new, 0)):
        if way == "environment":
            monkeypatch.setenv("TENURE_LEASE", lease)
        assert scene.run(*words, *(["--lease", lease] if way == "option" else [])).status == status


# -- operators --------------------------------------------------------------------------------------------------------


def test_force_release_by_an_operator_is_recorded_and_hands_over(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.ok("task", "release", "F001", "--force", "--message", "needed elsewhere")
    shown = scene.data("task", "show", "F001")
    assert (shown["status"], shown["leases"]) == ("todo", [])
    revoked = [event for event in scene.data("events", "--task", "F001")["events"] if event["kind"] == "revoked"]
    assert [event["data"]["by"] for event in revoked] == ["operator"]
    assert "operator" in scene.ok("why", "F001").out
    assert scene.run("task", "renew", "F001", "--agent", AGENT).status == 6


def test_force_done_by_an_operator_is_recorded_under_its_name(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.ok("task", "done", "F001", "--force", "--agent", "Olga")
    shown = scene.data("task", "show", "F001")
    assert (shown["status"], shown["assigned_to"]) == ("done", "Olga")
    completed = [event for event in scene.data("events", "--task", "F001")["events"] if event["kind"] == "completed"]
    assert [event["agent_id"] for event in completed] == ["Olga"]
    phases = [receipt["phase"] for receipt in scene.data("receipts", "list", "--task", "F001")["receipts"]]
    assert "complete" in phases


def test_done_closes_lease_and_obligation_and_unblocks_dependants(scene: Desk) -> None:
    scene.ok("task", "add", "Test it", "--id", "F002", "--after", "F001")
    assert [task["task_id"] for task in scene.data("ready")["tasks"]] == ["F001"]
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    assert scene.ok("task", "done", "F001").lines == ["Task marked done", "Now ready: F002"]
    shown = scene.data("task", "show", "F001")
    assert (shown["status"], shown["obligation"], shown["leases"]) == ("done", "closed", [])
    assert [task["task_id"] for task in scene.data("ready")["tasks"]] == ["F002"]
    assert scene.ok("task", "done", "F001").lines == ["Task was done already"]
