"""The store and its care: init, doctor, export and import, config."""

from __future__ import annotations

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenure.core import settings
from tenure.store.sqlite import SCHEMA_VERSION
from tests.cli.shell import AGENT, OTHER, Desk, Shell, git


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, except the store's own."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name not in ("tenure", ".tenure")
    }


# -- init -------------------------------------------------------------------------------------------------------------


def test_init_makes_the_store_beside_gits_common_directory_and_touches_nothing_else(repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    (repository / "README").write_text("mine\n")
    before = tree(repository)
    shell = Shell(repository)
    ran = shell.ok("init")
    path = repository / ".git" / "tenure" / "tenure.db"
    assert ran.lines[0] == f"Made a store at {path}"
    commands = [line.strip() for line in ran.lines if line.startswith("  tenure ")]
    assert len(commands) == 3
    assert tree(repository) == before
    assert path.stat().st_mode & 0o777 == 0o600


def test_init_again_keeps_everything(shell: Shell) -> None:
    shell.ok("task", "add", "Title", "--id", "F001")
    assert shell.ok("init").lines[0].startswith("There is already a store at")
    assert shell.data("init") == {"store": str(shell.folder / ".git/tenure/tenure.db"), "created": False}
    assert shell.data("task", "show", "F001")["title"] == "Title"


def test_init_prints_three_commands_that_work_as_printed(shell: Shell) -> None:
    for line in shell.ok("init").lines:
        if line.startswith("  tenure "):
            shell.ok(*shlex.split(line)[1:])
    assert shell.data("status")["active"] == 1


def test_init_is_shared_by_linked_worktrees(shell: Shell, tmp_path: Path) -> None:
    (shell.folder / "README").write_text("mine\n")
    git(shell.folder, "add", "README")
    git(shell.folder, "commit", "--quiet", "--message", "First")
    git(shell.folder, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    linked = Shell(tmp_path / "linked")
    assert linked.data("init")["created"] is False
    linked.ok("task", "add", "From the linked one", "--id", "F001")
    assert shell.data("task", "show", "F001")["title"] == "From the linked one"
    # Each worktree knows its own agent.
    shell.ok("agent", "join", "--id", AGENT)
    linked.ok("agent", "join", "--id", OTHER)
    assert (shell.data("touch")["agent_id"], linked.data("touch")["agent_id"]) == (AGENT, OTHER)


def test_init_outside_git_makes_a_folder_that_is_found_from_below(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.run("status").status == 9
    shell.ok("init")
    assert (tmp_path / ".tenure" / "tenure.db").is_file()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    Shell(below).ok("task", "add", "Title", "--id", "F001")
    assert shell.data("task", "show", "F001")["title"] == "Title"


def test_init_at_a_named_place_and_where_none_can_be(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.ok("init", "--store", "deep/er/mine.db")
    assert (tmp_path / "deep" / "er" / "mine.db").is_file()
    assert shell.having(TENURE_STORE="deep/er/mine.db").data("status")["agents"] == 0
    (tmp_path / "file").write_text("")
    assert shell.run("init", "--store", "file/mine.db").status == 9


# -- doctor -----------------------------------------------------------------------------------------------------------


def ill(desk: Desk, status: int = 7) -> dict[str, dict[str, Any]]:
    """The findings of a doctor that must find something, by name."""
    ran = desk.run("doctor", "--json")
    assert ran.status == status, ran
    document = json.loads(ran.out)
    assert document["ok"] is False
    found = {finding["check"]: finding for finding in document["data"]["findings"] if not finding["well"]}
    assert all(finding["repair"] for finding in found.values())
    assert document["next"] == [finding["repair"] for finding in found.values()]
    return found


def test_doctor_of_a_healthy_store_checks_everything(desk: Desk) -> None:
    desk.ok("task", "add", "Title", "--id", "F001")
    data = desk.data("doctor")
    checks = [finding["check"] for finding in data["findings"]]
    expected = ["store", "integrity", "clock", "recovery", "worktrees", "ledger", "gridlock in default", "designs"]
    assert checks == expected
    assert f"schema {SCHEMA_VERSION}" in desk.ok("doctor").out


def test_doctor_names_a_gridlock_and_its_repair(desk: Desk) -> None:
    desk.ok("task", "add", "First", "--id", "F001")
    desk.ok("task", "add", "Second", "--id", "F002", "--after", "F001")
    desk.ok("task", "block", "F001", "--message", "no key", "--force")
    finding = ill(desk)["gridlock in default"]
    assert "F001" in finding["detail"]
    desk.ok("task", "unblock", "F001")
    desk.ok("doctor")


def test_doctor_names_a_missing_dependency(desk: Desk) -> None:
    desk.ok("task", "add", "First", "--id", "F001", "--after", "F000", "--allow-missing")
    assert "F000" in ill(desk)["gridlock in default"]["detail"]
    plain = desk.run("doctor")
    assert plain.status == 7
    assert "WRONG  gridlock in default" in plain.out
    assert "repair: " in plain.out


def test_doctor_finds_a_stale_worktree_and_fixes_it(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "worktree"
    folder.mkdir()
    desk.ok("task", "add", "Title", "--id", "F001")
    desk.ok("task", "claim", "F001", "--agent", AGENT, folder=folder)
    desk.ok("doctor")
    folder.rmdir()
    assert AGENT in ill(desk)["worktrees"]["detail"]
    assert f"{AGENT} has left" in desk.ok("doctor", "--fix").out
    assert desk.data("agent", "show", AGENT)["state"] == "departed"
    assert desk.data("task", "claim", "F001", "--agent", OTHER)["agent_id"] == OTHER


def test_doctor_tells_of_what_is_due_and_takes_it_back_with_fix(desk: Desk) -> None:
    desk.ok("task", "add", "Title", "--id", "F001")
    desk.ok("task", "claim", "F001", "--agent", AGENT)
    desk.clock.advance(15 * 60)
    assert "recovery: 1 task of dead holders on offer" in desk.ok("doctor").out
    assert "took back 1 task" in desk.ok("doctor", "--fix").out
    assert desk.data("task", "show", "F001")["due"] is False


def test_doctor_finds_a_changed_ledger(desk: Desk) -> None:
    desk.ok("task", "add", "Title", "--id", "F001")
    desk.ok("task", "claim", "F001", "--agent", AGENT)
    with closing(sqlite3.connect(desk.store)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE receipts SET body = replace(body, 'accepted', 'complete')")
        connection.commit()
    assert "ledger" in ill(desk)
    ran = desk.run("receipts", "verify", "--json")
    assert (ran.status, json.loads(ran.out)["error"]["code"]) == (7, "unhealthy")


def test_doctor_without_a_store_says_how_to_make_one(desk: Desk, tmp_path: Path) -> None:
    desk.store = tmp_path / "nowhere.db"
    assert ill(desk, 9)["store"]["repair"] == f"Run: tenure init --store {desk.store}"


# -- export and import ------------------------------------------------------------------------------------------------


def test_round_trip_into_a_new_store_keeps_tasks_states_dependencies_and_messages(desk: Desk, tmp_path: Path) -> None:
    for task, after in (("F001", ""), ("F002", "F001"), ("F003", "F002"), ("F004", ""), ("F005", "")):
        desk.ok("task", "add", f"Tâche {task}", "--id", task, *(["--after", after] if after else []))
    desk.ok("task", "claim", "F001", "--agent", AGENT)
    desk.ok("task", "done", "F001")
    desk.ok("task", "claim", "F002", "--agent", AGENT)
    desk.ok("task", "renew", "F002", "--progress", "40")
    desk.ok("task", "block", "F004", "--message", "no key", "--force")
    desk.ok("task", "update", "F005", "--priority", "critical", "--requires", "gpu", "--body", "One\nTwo")
    desk.ok("msg", "send", "--task", "F002", "--from", AGENT, "--text", "half way")
    backup = tmp_path / "backup.jsonl"
    told = desk.ok("export", "--output", str(backup)).out
    assert "5 tasks" in told
    there = Desk(desk.folder, desk.clock, desk.capsys)
    there.store = tmp_path / "new" / "tenure.db"
    there.ok("init")
    counts = there.data("import", str(backup))
    assert (counts["tasks"], counts["messages"]) == (5, 1)
    states = {task["task_id"]: task["status"] for task in there.data("task", "list")["tasks"]}
    # A lease does not travel: what was in progress starts again, with its progress.
    assert states == {"F001": "done", "F002": "todo", "F003": "todo", "F004": "blocked", "F005": "todo"}
    assert there.data("task", "show", "F002")["progress"] == 40
    assert there.data("task", "graph")["edges"] == desk.data("task", "graph")["edges"]
    assert [task["task_id"] for task in there.data("ready")["tasks"]] == ["F005", "F002"]
    assert [message["text"] for message in there.data("msg", "thread", "F002")["messages"]] == ["half way"]
    fifth = there.data("task", "show", "F005")
    assert (fifth["priority"], fifth["requires"], fifth["body"]) == ("critical", ["gpu"], "One\nTwo")
    again = there.data("import", str(backup))
    assert (again["tasks_skipped"], again.get("tasks", 0), again["messages_skipped"]) == (5, 0, 1)
    assert len(there.data("msg", "thread", "F002")["messages"]) == 1


def test_import_of_plain_lines_makes_tasks(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "tasks.jsonl"
    source.write_text(
        '{"task_id": "F002", "title": "Second", "after": ["F001"]}\n\n'
        '{"task_id": "F001", "title": "First", "priority": "high"}\n'
        '{"title": "Third"}\n'
    )
    # A message may stand before its task.
    said = {"record": "message", "task_id": "F001", "sender": AGENT, "text": "hi", "at": "2026-01-01T00:00:00Z"}
    source.write_text(json.dumps(said) + "\n" + source.read_text())
    assert desk.ok("import", str(source)).lines == ["Imported 3 tasks, 1 message"]
    assert desk.data("task", "show", "F002")["unmet"] == 1
    assert len(desk.data("task", "list")["tasks"]) == 3


@pytest.mark.parametrize(
    "bad",
    [
        "not json",
        "[1, 2]",
        '{"task_id": "F009"}',
        '{"title": ""}',
        '{"title": "x", "priority": "urgent"}',
        '{"title": "x", "record": "wish"}',
        '{"title": "x", "record": ["task"]}',
        '{"title": "x", "status": "nope"}',
        '{"record": "message", "task_id": "F404", "text": "x", "at": "2026-01-01T00:00:00Z"}',
        '{"record": "message", "task_id": "F001", "text": "x"}',
    ],
)
def test_import_of_a_bad_line_names_it_and_imports_nothing(desk: Desk, tmp_path: Path, bad: str) -> None:
    source = tmp_path / "tasks.jsonl"
    source.write_text('{"task_id": "F001", "title": "First"}\n\n' + bad + '\n{"title": "Last"}\n')
    ran = desk.run("import", str(source), "--json")
    assert ran.status in (2, 3)
    error = json.loads(ran.out)["error"]
    assert "Line 3" in error["message"]
    assert error["facts"]["line"] == 3
    assert desk.data("task", "list")["tasks"] == []


def test_import_of_many_records_says_what_came_before_a_bad_line(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "tasks.jsonl"
    lines = [json.dumps({"task_id": f"N{n}", "title": "x"}) for n in range(600)]
    source.write_text("\n".join([*lines, '{"task_id": "N600"}']) + "\n")
    ran = desk.run("import", str(source))
    assert ran.status == 2
    assert "Line 601" in ran.err
    assert "500 records before it came in." in ran.err


def test_import_restores_assignments_that_mean_something_here(desk: Desk, tmp_path: Path) -> None:
    desk.ok("agent", "join", "--id", AGENT)
    desk.ok("agent", "join", "--id", OTHER)
    for task, whom in (("F001", AGENT), ("F002", OTHER), ("F003", "Olga"), ("F004", "Marcus")):
        desk.ok("task", "add", "Title", "--id", task, "--assign", whom)
    desk.ok("export", "--output", str(tmp_path / "tasks.jsonl"))
    there = Desk(desk.folder, desk.clock, desk.capsys)
    there.store = tmp_path / "new" / "tenure.db"
    there.ok("init")
    there.ok("agent", "join", "--id", AGENT)
    there.ok("import", str(tmp_path / "tasks.jsonl"))
    owners = {task["task_id"]: (task["assigned_to"], task["owner"]) for task in there.data("task", "list")["tasks"]}
    assert owners == {
        "F001": (AGENT, "agent"),
        "F002": (None, None),
        "F003": ("Olga", "external"),
        "F004": ("Marcus", "internal"),
    }


def test_import_knows_other_words_for_fields_and_refuses_what_it_does_not_know(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "tasks.jsonl"
    source.write_text('{"id": "F001", "title": "One", "description": "Do it", "depends_on": "F000"}\n')
    ran = desk.ok("import", str(source))
    assert "wait for what is not there: F000" in ran.err
    shown = desk.data("task", "show", "F001")
    assert (shown["body"], shown["needs"]) == ("Do it", [{"task_id": "F000", "missing": True}])
    source.write_text('{"title": "One", "priorty": "high"}\n')
    ran = desk.run("import", str(source))
    assert ran.status == 2
    assert "Line 1: 'priorty' is not a field of a task; did you mean priority?" in ran.err


def test_import_says_in_one_line_what_came_in_and_what_did_not(desk: Desk, tmp_path: Path) -> None:
    desk.ok("task", "add", "Title", "--id", "F001")
    desk.ok("task", "claim", "F001", "--agent", AGENT)
    desk.ok("export", "--output", str(tmp_path / "tasks.jsonl"))
    told = desk.ok("import", str(tmp_path / "tasks.jsonl")).lines
    assert told == ["Imported nothing; 1 project, 1 task were there already; 1 receipt is not imported"]
    assert "not a backup" in desk.ok("export", "--help").out


def test_import_from_standard_input_and_of_what_cannot_be_read(shell: Shell) -> None:
    assert shell.run("import", "-", given='{"title": "x"}\n').lines == ["Imported 1 task"]
    assert shell.run("import", "nowhere.jsonl").status == 2
    (shell.folder / "latin.jsonl").write_bytes(b'{"title": "\xe9"}\n')
    assert shell.run("import", "latin.jsonl").status == 2


def test_export_goes_to_standard_output_as_json_lines(shell: Shell) -> None:
    shell.ok("task", "add", "Title", "--id", "F001")
    records = [json.loads(line) for line in shell.ok("export").lines]
    assert [record["record"] for record in records] == ["project", "task"]
    assert shell.data("export")["records"] == records
    assert shell.run("export", "--output", "no/such/folder.jsonl").status == 2


# -- config -----------------------------------------------------------------------------------------------------------

# The configuration that the specification 000 prints.
SPECIFIED = {
    "task_lease": {
        "default_hours": 0.025,
        "grace_period_minutes": 0.5,
        "min_lease_hours": 0.0167,
        "max_lease_hours": 0.0833,
        "max_renewals": 10,
        "warning_hours": 0.01,
        "stuck_threshold_renewals": 5,
        "silence_multiplier": 1.5,
        "enable_adaptive": True,
    }
}


def test_config_shows_every_setting_in_force(desk: Desk) -> None:
    shown = desk.data("config", "show")
    assert set(shown["task_lease"]) == set(settings.LEASE_RULES)
    assert "task_lease.max_renewals = 10" in desk.ok("config", "show").lines


def test_config_shows_profiles_and_one_name(desk: Desk) -> None:
    assert "  cli: ttl 15m, touch and renew extend" in desk.ok("config", "show").lines
    assert desk.data("config", "show")["profiles_in_force"]["cli"]["ttl_s"] == 900
    assert desk.ok("config", "show", "task_lease.max_renewals").lines == ["task_lease.max_renewals = 10"]
    assert "profiles.cli.ttl_s = 900" in desk.ok("config", "show", "cli").lines
    wrong = desk.run("config", "show", "task_lease.max_renewal")
    assert (wrong.status, "did you mean task_lease.max_renewals?" in wrong.err) == (2, True)


def test_config_set_takes_a_negative_number(desk: Desk) -> None:
    ran = desk.run("config", "set", "task_lease.max_renewals", "-1")
    assert ran.status == 2
    assert "max_renewals" in ran.err
    assert "unknown option" not in ran.err


# -- projects ---------------------------------------------------------------------------------------------------------


def test_project_is_added_listed_and_then_known(desk: Desk) -> None:
    assert desk.refused(3, "ready", "--project", "website")["code"] == "project_not_found"
    assert desk.ok("project", "add", "website", "--name", "The site").lines == ["Added project website"]
    assert [one["project_id"] for one in desk.data("project", "list")["projects"]] == ["default", "website"]
    assert "The site" in desk.ok("projects").out
    desk.ok("task", "add", "Title", "--id", "W1", "--project", "website")
    assert [one["task_id"] for one in desk.data("ready", "--project", "website")["tasks"]] == ["W1"]
    assert desk.run("project", "add", "website").status == 7


def test_config_set_changes_one_setting_and_keeps_the_others(desk: Desk) -> None:
    before = desk.data("config", "show")
    desk.ok("config", "set", "task_lease.max_renewals", "20")
    desk.ok("config", "set", "tenure.branch_prefix", "agents/")
    desk.ok("config", "set", "task_types.build.lease_duration_s", "600")
    after = desk.data("config", "show")
    assert (after["task_lease"]["max_renewals"], after["tenure"]["branch_prefix"]) == (20, "agents/")
    assert {**after["task_lease"], "max_renewals": 10} == before["task_lease"]


@pytest.mark.parametrize(
    ("setting", "value", "word"),
    [
        ("task_lease.max_renewal", "20", "max_renewals"),
        ("task_lease.max_renewals", "many", "max_renewals"),
        ("task_lease.min_lease_hours", "9", "min_lease_hours"),
        ("max_renewals", "20", "task_lease.max_renewals"),
    ],
)
def test_config_set_of_a_wrong_setting_names_it_and_changes_nothing(
    desk: Desk, setting: str, value: str, word: str
) -> None:
    before = desk.data("config", "show")
    ran = desk.run("config", "set", setting, value)
    assert ran.status == 2
    assert word in ran.err
    assert desk.data("config", "show") == before


def test_config_import_takes_the_specifications_json_and_a_toml(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SPECIFIED))
    desk.ok("config", "set", "task_lease.max_renewals", "20")
    desk.ok("config", "import", str(tmp_path / "config.json"))
    assert desk.data("config", "show")["task_lease"]["max_renewals"] == 10
    (tmp_path / "config.toml").write_text("[task_lease]\nmax_renewals = 7\n[tenure]\nhandoff_hours = 48\n")
    desk.ok("config", "import", str(tmp_path / "config.toml"))
    shown = desk.data("config", "show")
    assert (shown["task_lease"]["max_renewals"], shown["tenure"]["handoff_hours"]) == (7, 48)
    assert shown["task_lease"]["silence_multiplier"] == 1.5


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "{"), ("a.toml", "= 3"), ("a.yaml", "a: 1"), ("a.json", '{"task_lease": {"x": 1}}')]
)
def test_config_import_of_a_wrong_file_changes_nothing(desk: Desk, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    before = desk.data("config", "show")
    assert desk.run("config", "import", str(tmp_path / name)).status == 2
    assert desk.run("config", "import", str(tmp_path / "missing.json")).status == 2
    assert desk.data("config", "show") == before
