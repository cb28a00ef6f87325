"""Every example of the specification "Lease Mechanics", with `tenure` for `lodestar`: the lines as printed there.

The real command in a real repository, a process for each call; where minutes must pass, `main` on a manual clock.
"""

from __future__ import annotations

import re

import pytest

from tests.cli.shell import Desk, Shell

AGENT = "A1234ABCD"
OTHER = "B1234ABCD"
LEASE = re.compile(r"L[0-9A-Z]{8}")


@pytest.fixture
def project(shell: Shell) -> Shell:
    """A repository with the task of the examples."""
    shell.ok("task", "add", "Implement authentication", "--id", "F001")
    return shell


@pytest.fixture
def scene(desk: Desk) -> Desk:
    """The same on a manual clock."""
    desk.ok("task", "add", "Implement authentication", "--id", "F001")
    return desk


def block(lease: str, expires: str) -> str:
    """The block that a claim prints."""
    return f"""Claimed task F001
  Lease: {lease}
  Expires in: {expires}

Remember to:
  - Renew with tenure task renew F001 before expiry
  - Mark done with tenure task done F001 when complete
"""


def without_lease(text: str) -> str:
    return LEASE.sub("L5678EFGH", text)


# -- the examples, as written -----------------------------------------------------------------------------------------


def test_claim_prints_lease_expiry_and_both_reminders(project: Shell) -> None:
    ran = project.ok("task", "claim", "F001", "--agent", AGENT)
    assert without_lease(ran.out) == block("L5678EFGH", "15m")
    assert ran.err == ""


@pytest.mark.parametrize(
    ("ttl", "expires"), [("5m", "5m"), ("1h", "1h"), ("90s", "1m 30s"), ("PT5M", "5m"), ("1s", "1s"), ("7d", "7d")]
)
def test_claim_with_a_ttl_expires_in_that_time(project: Shell, ttl: str, expires: str) -> None:
    ran = project.ok("task", "claim", "F001", "--agent", AGENT, "--ttl", ttl)
    assert without_lease(ran.out) == block("L5678EFGH", expires)


@pytest.mark.parametrize("ttl", ["0s", "8d", "soon", "-5m", "0.5s", "200.5h"])
def test_claim_with_a_ttl_out_of_range_is_a_usage_error_that_names_the_option(project: Shell, ttl: str) -> None:
    ran = project.run("task", "claim", "F001", "--agent", AGENT, f"--ttl={ttl}")
    assert (ran.status, ran.out) == (2, "")
    assert "--ttl" in ran.err


@pytest.mark.parametrize("variable", ["LODESTAR_LEASE_TTL", "TENURE_LEASE_TTL"])
def test_claim_takes_its_ttl_from_the_environment(project: Shell, variable: str) -> None:
    ran = project.having(**{variable: "30m"}).ok("task", "claim", "F001", "--agent", AGENT)
    assert without_lease(ran.out) == block("L5678EFGH", "30m")


def test_claim_prefers_the_option_then_tenure_then_lodestar(project: Shell) -> None:
    both = project.having(TENURE_LEASE_TTL="20m", LODESTAR_LEASE_TTL="30m")
    assert "Expires in: 20m" in both.ok("task", "claim", "F001", "--agent", AGENT).out
    both.ok("task", "release", "F001")
    assert "Expires in: 5m" in both.ok("task", "claim", "F001", "--agent", AGENT, "--ttl", "5m").out


def test_claim_with_a_bad_ttl_in_the_environment_names_the_variable(project: Shell) -> None:
    ran = project.having(LODESTAR_LEASE_TTL="soon").run("task", "claim", "F001", "--agent", AGENT)
    assert ran.status == 2
    assert "LODESTAR_LEASE_TTL" in ran.err


def test_claim_help_has_the_recommended_ttls(project: Shell) -> None:
    shown = project.ok("task", "claim", "--help").out
    for row in ("Quick fix        5-10m", "Standard task    15-30m", "Complex feature  1h", "Large refactor   2h"):
        assert row in shown


def test_renew_without_agent_finds_who_claimed_from_this_worktree(project: Shell) -> None:
    project.ok("task", "claim", "F001", "--agent", AGENT)
    assert project.ok("task", "renew", "F001").out == "Renewed lease for F001\n  Expires in: 15m\n"


def test_release_without_agent_prints_the_line_and_suggests_a_message(project: Shell) -> None:
    project.ok("task", "claim", "F001", "--agent", AGENT)
    released, suggestion = project.ok("task", "release", "F001").lines
    assert released == "Released task F001"
    assert f'tenure msg send --task F001 --from {AGENT} --text "..."' in suggestion


def test_release_with_a_message_leaves_it_and_suggests_nothing(project: Shell) -> None:
    project.ok("task", "claim", "F001", "--agent", AGENT)
    released = project.ok("task", "release", "F001", "--message", "blocked on API credentials")
    assert released.out == "Released task F001\n"
    claimed = project.data("task", "claim", "F001", "--agent", OTHER)
    assert any("blocked on API credentials" in message["text"] for message in claimed["messages"])


def test_message_as_written_reaches_the_next_claimant(project: Shell) -> None:
    text = "Released: blocked on API credentials"
    project.ok("task", "claim", "F001", "--agent", AGENT)
    project.ok("task", "release", "F001")
    project.ok("msg", "send", "--task", "F001", "--from", AGENT, "--text", text)
    assert f"{AGENT}: {text}" in project.ok("task", "claim", "F001", "--agent", OTHER).out


def test_done_without_agent_prints_the_line(project: Shell) -> None:
    project.ok("task", "claim", "F001", "--agent", AGENT)
    assert project.ok("task", "done", "F001").out == "Task marked done\n"


def test_status_has_the_runtime_block(project: Shell) -> None:
    for number, agent in enumerate((AGENT, OTHER, "C1234ABCD"), 2):
        project.ok("agent", "join", "--id", agent, "--name", f"agent {number}")
        project.ok("task", "add", "More work", "--id", f"F00{number}")
    project.ok("task", "claim", "F001", "--agent", AGENT)
    project.ok("task", "claim", "F002", "--agent", OTHER)
    assert "\nRuntime\n  Agents registered: 3\n  Active claims: 2\n" in project.ok("status").out


def test_show_has_the_holder_and_the_time_that_remains(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.clock.advance(5 * 60)
    title, empty, status, claimed, expires = scene.ok("task", "show", "F001").lines[:5]
    assert (title, empty) == ("F001 - Implement authentication", "")
    # The specification's example shows a claimed task as ready; ours says what it is.
    assert status == "Status: in_progress"
    assert claimed == f"Claimed by: {AGENT}"
    assert expires == "Lease expires: 10m remaining"


# -- the overview's sequence, with two agents -------------------------------------------------------------------------


def test_sequence_of_two_agents_over_one_task(project: Shell) -> None:
    first = project.ok("task", "claim", "F001", "--agent", AGENT)
    assert LEASE.search(first.out)
    assert "Expires in: 15m" in first.out
    second = project.run("task", "claim", "F001", "--agent", OTHER)
    assert (second.status, second.out) == (4, "")
    assert second.err.startswith("Error: Already claimed")
    assert AGENT in second.err
    assert "Expires in: 15m" in project.ok("task", "renew", "F001").out
    assert "Task marked done" in project.ok("task", "done", "F001").out
    assert project.run("task", "claim", "F001", "--agent", OTHER).status == 7


def test_claim_by_the_holder_itself_is_refused_like_anyones(project: Shell) -> None:
    project.ok("task", "claim", "F001", "--agent", AGENT)
    again = project.run("task", "claim", "F001", "--agent", AGENT)
    assert again.status == 4
    assert "Already claimed" in again.err


def test_claim_by_the_holder_with_its_key_gives_the_same_lease(project: Shell) -> None:
    claim = ("task", "claim", "F001", "--agent", AGENT, "--idempotency-key", "k1")
    assert project.data(*claim)["lease_id"] == project.data(*claim)["lease_id"]


@pytest.mark.parametrize("verb", ["release", "done", "renew"])
def test_holders_verbs_by_another_agent_are_refused(project: Shell, verb: str) -> None:
    project.ok("agent", "join", "--id", OTHER)
    project.ok("task", "claim", "F001", "--agent", AGENT)
    assert project.run("task", verb, "F001", "--agent", OTHER).status == 8
    assert project.data("task", "show", "F001")["status"] == "in_progress"


# -- expiry at read time ----------------------------------------------------------------------------------------------


def test_claim_one_moment_before_expiry_is_blocked_and_at_expiry_allowed(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT, "--ttl", "5m")
    scene.clock.advance(299.999)
    assert scene.run("task", "claim", "F001", "--agent", OTHER).status == 4
    scene.clock.advance(0.001)
    assert scene.ok("task", "claim", "F001", "--agent", OTHER).lines[0] == "Claimed task F001"


def test_expired_lease_is_filtered_from_what_is_held_and_listed_as_claimable(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    assert scene.ok("ready").lines[0] == "Nothing is ready."
    scene.clock.advance(15 * 60)
    assert any(line.startswith("F001 ") for line in scene.ok("ready").lines)


def test_renew_extends_only_a_lease_that_has_not_expired(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    for _ in range(3):
        scene.clock.advance(14 * 60)
        assert scene.ok("task", "renew", "F001").lines == ["Renewed lease for F001", "  Expires in: 15m"]
    scene.clock.advance(15 * 60)
    ran = scene.run("task", "renew", "F001")
    assert (ran.status, ran.out) == (6, "")


def test_renew_is_to_now_and_the_leases_own_ttl(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT, "--ttl", "1h")
    scene.clock.advance(10 * 60)
    assert scene.ok("task", "renew", "F001").lines[1] == "  Expires in: 1h"


def test_returning_holder_is_told_who_has_the_task_now(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.clock.advance(15 * 60)
    scene.ok("task", "claim", "F001", "--agent", OTHER)
    for verb in ("renew", "release", "done"):
        ran = scene.run("task", verb, "F001", "--agent", AGENT)
        assert ran.status == 6
        assert OTHER in ran.err
    assert scene.data("task", "show", "F001")["leases"][0]["agent_id"] == OTHER


@pytest.mark.parametrize(("ending", "state"), [("release", "released"), ("done", "completed")])
def test_lease_states_end_as_drawn(scene: Desk, ending: str, state: str) -> None:
    assert scene.data("task", "claim", "F001", "--agent", AGENT)["state"] == "active"
    assert scene.data("task", "renew", "F001")["state"] == "active"
    assert scene.data("task", ending, "F001")["state"] == state
