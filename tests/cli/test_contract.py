"""What programs rely on (one envelope, pinned exit statuses, clean pipes) and people (help, hints, colours)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.core.times import parse_iso
from tenure.engine import observe
from tenure.surfaces.cli.commands import COMMANDS
from tenure.surfaces.cli.lookup import by_words
from tenure.surfaces.cli.spec import Command
from tests.cli.shell import AGENT, OTHER, Desk, envelope

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "cli.md"
# Words with which each command succeeds in the scene: F001 held by AGENT, F002 after it, F003 free, F004 done, F005
# blocked. {file} is a file of JSON lines, {settings} one of settings, {receipt} a receipt.
WORDS = {
    "init": "",
    "setup": "claude-code",
    "status": "",
    "ready": "",
    "next": f"--agent {OTHER}",
    "why": "F001",
    "doctor": "",
    "watch": "--once",
    "touch": f"--agent {AGENT}",
    "prime": "",
    "agent join": "--name Ada",
    "agent list": "",
    "agent show": AGENT,
    "agent leave": f"--agent {OTHER}",
    "task add": "Title",
    "task list": "",
    "task show": "F001",
    "task claim": f"F003 --agent {OTHER}",
    "task renew": "F001",
    "task release": "F001",
    "task done": "F001",
    "task block": "F001 --message reason",
    "task unblock": "F005",
    "task update": "F003 --priority high",
    "task depend": "F003 --after F001",
    "task graph": "",
    "task requeue": "F005",
    "task reopen": "F004",
    "task delete": "F003",
    "msg send": f"--task F001 --from {AGENT} --text hello",
    "msg thread": "F001",
    "msg inbox": f"--agent {AGENT}",
    "receipts list": "",
    "receipts show": "{receipt}",
    "receipts verify": "",
    "events": "",
    "export": "",
    "import": "{file}",
    "store copy": "{store} {copy}",
    "store check": "",
    "project add": "website",
    "project list": "",
    "config show": "",
    "config set": "task_lease.max_renewals 20",
    "config import": "{settings}",
    "replay": "{trace}",
    "hook pre-push": "",
    "hook pre-receive": "",
    "board list": "",
    "gate status": "",
    "tour": "",
    "completion": "bash",
}
# These need a board; tests/boards runs them with one.
BOARDS = {
    "board connect": "kanboard --url http://127.0.0.1:1 --board WEB",
    "board check": "",
    "board retry": "",
    "board disconnect": "",
    "reconcile": "",
}
# This needs a gate; tests/gates runs it with one.
GATES = {"gate resend": ""}
# These run until they are stopped, or start processes that do; their own tests start them.
ENDLESS = {"up", "worker", "mcp", "run", "demo"}
STORELESS = {"init", "setup", "prime", "hook pre-push", "tour", "completion", "store copy"}
# These work on a git repository, which the scene is not: tests/worktree/test_cli.py has them.
IN_GIT = {command.path for command in COMMANDS if command.path.startswith(("worktree ", "rescue "))}


def words_of(command: Command, scene: Desk, tmp_path: Path) -> list[str]:
    receipt = scene.data("receipts", "list")["receipts"][0]["receipt_id"]
    files = {
        "file": tmp_path / "tasks.jsonl",
        "settings": tmp_path / "settings.toml",
        "trace": tmp_path / "trace.csv",
        "store": scene.store,
        "copy": tmp_path / "copy.db",
    }
    return [*command.path.split(), *(WORDS | BOARDS | GATES)[command.path].format(receipt=receipt, **files).split()]


# -- the envelope -----------------------------------------------------------------------------------------------------


def test_every_command_has_words_to_try() -> None:
    assert WORDS.keys() | BOARDS.keys() | GATES.keys() | ENDLESS | IN_GIT == {command.path for command in COMMANDS}


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command.path in WORDS], ids=lambda command: command.path
)
@pytest.mark.parametrize("form", ["--json", "--format json", "--format=json", "-j", "before"])
def test_json_of_every_command_is_one_envelope(scene: Desk, tmp_path: Path, command: Command, form: str) -> None:
    words = words_of(command, scene, tmp_path)
    ran = scene.ok(*(["--json", *words] if form == "before" else [*words, *form.split()]))
    document = envelope(ran.out)
    assert document["ok"] is True
    assert document["error"] is None
    assert ran.err == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.path)
def test_json_of_a_wrong_flag_is_one_envelope(scene: Desk, command: Command) -> None:
    ran = scene.run(*command.path.split(), "--no-such-flag", "--json")
    document = envelope(ran.out)
    assert ran.status == 2
    assert ran.err == ""
    assert (document["ok"], document["data"]) == (False, None)
    assert document["error"]["code"] == "usage"
    assert document["next"]


@pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if command.path not in STORELESS | ENDLESS | IN_GIT],
    ids=lambda command: command.path,
)
def test_json_without_a_store_is_one_envelope_with_status_nine(scene: Desk, tmp_path: Path, command: Command) -> None:
    words = words_of(command, scene, tmp_path)
    scene.store = tmp_path / "elsewhere" / "tenure.db"
    ran = scene.run(*words, "--json")
    document = envelope(ran.out)
    assert ran.status == 9
    assert (document["ok"], document["error"]["code"]) == (False, "store_unavailable")
    assert document["next"] == [f"Run: tenure init --store {scene.store}"]


@pytest.mark.parametrize("words", [["--help"], ["task"], ["task", "--help"], ["help", "task", "claim"], ["--version"]])
def test_json_of_help_is_one_envelope(scene: Desk, words: list[str]) -> None:
    assert envelope(scene.ok("--json", *words).out)["data"]["text"]


def test_json_of_a_refusal_has_code_message_and_facts(scene: Desk) -> None:
    ran = scene.run("task", "claim", "F001", "--agent", OTHER, "--json")
    error = envelope(ran.out)["error"]
    assert error["code"] == "already_claimed"
    assert error["message"]
    assert error["facts"]["holder"] == AGENT


def test_json_of_a_claim_has_the_vocabularys_fields_at_its_top(scene: Desk) -> None:
    data = scene.data("task", "claim", "F003", "--agent", OTHER)
    assert (data["task_id"], data["agent_id"], data["state"]) == ("F003", OTHER, "active")
    assert re.fullmatch(r"L[0-9A-Z]{8}", data["lease_id"])
    assert isinstance(data["token"], int)
    for name in ("expires_at", "recover_at"):
        assert parse_iso(data[name]) == scene.clock.wall_ms() + 15 * 60_000
    assert data["handoff"] is None
    assert data["messages"] == []


def test_json_of_a_join_has_the_agents_id(scene: Desk) -> None:
    assert re.fullmatch(r"A[0-9A-Z]{8}", scene.data("agent", "join", "--name", "Ada")["agent_id"])
    assert scene.data("agent", "join", "--id", "A1", "--name", "Ada")["agent_id"] == "A1"


def test_json_keeps_agents_text_whole_and_ascii(scene: Desk) -> None:
    title = "Fix \x1b[31mred\x1b[0m naïve 日本"
    added = scene.run("task", "add", title, "--json")
    assert added.out.isascii()


# -- exit statuses ----------------------------------------------------------------------------------------------------


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("nobody foresaw this")


def test_exit_one_is_for_what_nobody_foresaw(scene: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "statistics", broken)
    error = scene.refused(1, "status")
    assert error["code"] == "internal_error"
    assert "nobody foresaw this" in error["message"]
    plain = scene.run("status")
    assert (plain.status, plain.out) == (1, "")
    assert "Traceback" not in plain.err


SITUATIONS: list[tuple[int, str, str]] = [
    (0, "ok", "status"),
    (2, "usage: no such option", "status --nope"),
    (2, "usage: no such command", "frobnicate"),
    (2, "usage: nobody knows who calls", "msg inbox"),
    (3, "not found: task", "task show F999"),
    (3, "not found: agent", "agent show Z"),
    (3, "not found: gate", "gate resend"),
    (3, "not found: receipt", "receipts show 01KDVDNA00VASRN8Y8BBAP5DX9"),
    (4, "held by another", f"task claim F001 --agent {OTHER}"),
    (4, "held by yourself", f"task claim F001 --agent {AGENT}"),
    (7, "refused by state: waits", f"task claim F002 --agent {OTHER}"),
    (7, "refused by state: done", f"task claim F004 --agent {OTHER}"),
    (7, "refused by state: exists", "task add Again --id F001"),
    (7, "refused by state: cycle", "task depend F001 --after F002"),
    (8, "not permitted: not the holder", f"task done F001 --agent {OTHER}"),
    (8, "not permitted: reserved", "agent join --id Marcus"),
]


@pytest.mark.parametrize(("status", "why", "words"), SITUATIONS, ids=[row[1] for row in SITUATIONS])
def test_exit_status_of(scene: Desk, status: int, why: str, words: str) -> None:
    assert scene.run(*words.split()).status == status


def test_exit_five_when_nothing_is_ready(scene: Desk) -> None:
    scene.ok("next", "--agent", OTHER)
    error = scene.refused(5, "next", "--agent", OTHER)
    assert error["code"] == "nothing_ready"


def test_exit_six_when_the_lease_has_expired(scene: Desk) -> None:
    scene.clock.advance(15 * 60)
    for verb in ("renew", "release"):
        assert scene.run("task", verb, "F001", "--agent", AGENT).status == 6


def not_a_database(path: Path) -> None:
    path.write_bytes(b"These are not the bytes of a database.\n" * 100)


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 2 :] = b"\xff" * (len(content) - 4096 * 2)
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [Path.unlink, not_a_database, damaged])
@pytest.mark.parametrize("words", ["status", f"task claim F003 --agent {OTHER}", f"touch --agent {AGENT}", "doctor"])
def test_exit_nine_when_the_store_is(scene: Desk, harm: Callable[[Path], None], words: str) -> None:
    for beside in ("-wal", "-shm"):
        Path(f"{scene.store}{beside}").unlink(missing_ok=True)
    harm(scene.store)
    ran = scene.run(*words.split(), "--json")
    assert envelope(ran.out)["error"]["code"].startswith("store_")
    assert ran.status == 9


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.path)
def test_help_of_every_command_has_form_options_and_a_working_example(scene: Desk, command: Command) -> None:
    shown = scene.ok(*command.path.split(), "--help").out
    assert shown.startswith(f"Usage: tenure {command.path}")
    assert command.examples
    known = by_words()
    for example in command.examples:
        assert f"  {example}\n" in shown
        words = re.sub(r'^eval "\$\(|\)"$', "", example).split()
        assert words[0] == "tenure"
        assert (known.get(" ".join(words[1:3])) or known[words[1]]).path == command.path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.path)
def test_every_command_option_and_alias_is_in_the_docs(command: Command) -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert f"\n### `tenure {command.path}`\n" in text
    section = text.partition(f"\n### `tenure {command.path}`\n")[2].partition("\n### ")[0]
    for word in (*(option.name for option in command.options), *command.aliases, *command.examples):
        assert word in section


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("task clam F001", "tenure task claim"),
        ("task relase F001", "tenure task release"),
        ("statsu", "tenure status"),
        ("redy", "tenure ready"),
        ("agent jion", "tenure agent join"),
        ("tsak list", "tenure task"),
        ("help task clam", "tenure task claim"),
        ("--versoin", "--version"),
        ("task claim F001 --agnt B", "--agent"),
        ("task claim F001 --tll 5m", "--ttl"),
        ("task add Title --prioritty high", "--priority"),
        ("task release F001 --mesage x", "--message"),
    ],
)
def test_wrong_word_gets_one_line_with_the_likely_right_one(scene: Desk, words: str, right: str) -> None:
    ran = scene.run(*words.split())
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert f"did you mean{':' if right.startswith('tenure') else ''} {right}" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        "new Title",
        "create Title",
        "task new Title --blocked-by F001",
        "add Title --depends-on F001,F003",
        "close F001",
        "complete F001 --comment finished",
        "done F001 -m finished",
        "task complete F001",
        "claim F003 --agent B1234ABCD",
        "release F001 --comment later",
        "renew F001",
        "list",
        "ls",
        "show F001",
        "task_list",
    ],
)
def test_words_that_agents_try_work(scene: Desk, words: str) -> None:
    if words == "task_list":
        assert scene.run(words).status == 2
        return
    scene.ok(*words.split())


def test_underscores_and_equals_in_options_work(scene: Desk) -> None:
    claimed = scene.data("task", "claim", "F003", f"--agent_id={OTHER}", "--idempotency_key=k")
    assert claimed["agent_id"] == OTHER
