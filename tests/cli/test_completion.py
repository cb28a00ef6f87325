"""`tenure completion`: the scripts are run by the shells themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.cli.commands import COMMANDS, GROUPS
from tenure.surfaces.cli.main import main
from tests.cli.terminal import Terminal
from tests.support import add

TENURE = Path(sys.executable).parent / "tenure"
SHELLS = ("bash", "zsh", "fish")
# Answers every line of words, the last being the one under the cursor, with what bash would offer for it.
ASK_BASH = """
source "$1"
while IFS= read -r line; do
    IFS=$'\\t' read -ra COMP_WORDS <<< "$line"
    [[ $line == *$'\\t' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    IFS=$' \\t\\n' _tenure
    (IFS=$'\\t'; echo "${COMPREPLY[*]}")
done
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENURE_PROJECT", raising=False)
    monkeypatch.setenv("TENURE_STORE", str(tmp_path / "tenure.db"))
    monkeypatch.setenv("PATH", f"{TENURE.parent}{os.pathsep}{os.environ['PATH']}")


def shell(name: str) -> str:
    """The shell's path. Bash must be there; the others are skipped where they are not installed."""
    found = shutil.which(name)
    if found is None and name != "bash":
        pytest.skip(f"{name} is not installed: its completion was NOT tried")
    assert found is not None, "bash is needed for these tests"
    return found


def script(name: str, folder: Path) -> Path:
    path = folder / f"completion.{name}"
    path.write_bytes(subprocess.run([TENURE, "completion", name], check=True, capture_output=True).stdout)
    return path


def offered_by_bash(folder: Path, *lines: str) -> list[list[str]]:
    """What bash offers at the end of each line; a line that ends in a space asks for a new word."""
    asked = "".join("\t".join(line.split(" ")) + "\n" for line in lines)
    words = [shell("bash"), "--norc", "-c", ASK_BASH, "bash", str(script("bash", folder))]
    ran = subprocess.run(words, input=asked, capture_output=True, text=True, cwd=folder, check=True)
    assert ran.stderr == ""
    return [answer.split("\t") if answer else [] for answer in ran.stdout.splitlines()]


@pytest.mark.parametrize("name", SHELLS)
def test_script_is_accepted_by_its_shell(name: str, tmp_path: Path) -> None:
    ran = subprocess.run([shell(name), "-n", script(name, tmp_path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", SHELLS)
def test_script_names_every_command_and_option(name: str, tmp_path: Path) -> None:
    text = script(name, tmp_path).read_text()
    for command in COMMANDS:
        assert f"'{command.path}'" in text
        for option in command.options:
            assert option.name in text


def test_bash_offers_every_command(tmp_path: Path) -> None:
    first, *inner = offered_by_bash(tmp_path, "tenure ", *(f"tenure {group} " for group in GROUPS))
    offered = {word for word in first if word not in GROUPS and word != "help"}
    for group, verbs in zip(GROUPS, inner, strict=True):
        assert group in first
        offered |= {f"{group} {verb}" for verb in verbs}
    assert offered == {command.path for command in COMMANDS}


def test_bash_offers_every_option_of_every_command(tmp_path: Path) -> None:
    answers = offered_by_bash(tmp_path, *(f"tenure {command.path} --" for command in COMMANDS))
    for command, options in zip(COMMANDS, answers, strict=True):
        assert {option.name for option in command.options} | {"--json", "--help"} <= set(options), command.path


def test_bash_offers_every_choice_of_every_option(tmp_path: Path) -> None:
    chosen = [(command, option) for command in COMMANDS for option in command.options if option.choices]
    lines = [f"tenure {command.path} {name} " for command, option in chosen for name in (option.name, *option.aliases)]
    wanted = [list(option.choices) for _, option in chosen for _ in (option.name, *option.aliases)]
    assert offered_by_bash(tmp_path, *lines) == wanted


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tenure ta", ["task"]),
        ("tenure task cl", ["claim"]),
        ("tenure task claim F", ["F001", "F002"]),
        ("tenure task claim X", []),
        ("tenure why F001", ["F001"]),
        ("tenure task add Title --after F", ["F001", "F002"]),
        ("tenure task add Title --blocked-by F", ["F001", "F002"]),
        # An option that takes a value of its own kind offers nothing wrong in its place.
        ("tenure task claim --agent ", []),
        ("tenure task claim --agent A1 F", ["F001", "F002"]),
        ("tenure task claim F001 --tt", ["--ttl"]),
        # Bash splits --status=bl into three words.
        ("tenure task list --status = bl", ["blocked"]),
        ("tenure task list --status =", ["todo", "in_progress", "blocked", "done", "dead", "ready"]),
        ("tenure --store x task li", ["list"]),
        ("tenure --json task list --sta", ["--status"]),
        ("tenure --ver", ["--version"]),
        ("tenure help task sh", ["show"]),
        ("tenure status --format js", ["json"]),
        ("tenure completion ", ["bash", "zsh", "fish"]),
        ("tenure import notes", ["notes.jsonl"]),
        ("tenure config import notes", ["notes.jsonl"]),
        ("tenure nonsense ", []),
    ],
)
def test_bash_offers_what_can_stand_there(store: SqliteStore, tmp_path: Path, line: str, offered: list[str]) -> None:
    add(store, "F001")
    add(store, "F002")
    (tmp_path / "notes.jsonl").touch()
    assert offered_by_bash(tmp_path, line) == [offered]


def press_tab(terminal: Terminal, typed: str, completed: str) -> None:
    """Type something with tabs in it, then have the shell print the line as it stands."""
    terminal.type(typed + "\x01echo $((40 + 2)):\n")
    terminal.wait_for(f"42:{completed}")


def test_bash_completes_when_the_user_presses_tab(store: SqliteStore, tmp_path: Path) -> None:
    add(store, "F001")
    with Terminal([shell("bash"), "--norc", "--noprofile", "-i"], tmp_path, os.environ) as terminal:
        terminal.type('eval "$(tenure completion bash)"; echo rea""dy\n')
        terminal.wait_for("ready\r\n")
        press_tab(terminal, "tenure ta\tcla\tF0\t", "tenure task claim F001")
        press_tab(terminal, "tenure task list --status=blo\t", "tenure task list --status=blocked")
        terminal.type("exit\n")
        terminal.ended()


def test_zsh_completes_when_the_user_presses_tab(store: SqliteStore, tmp_path: Path) -> None:
    add(store, "F001")
    with Terminal([shell("zsh"), "-f", "-i"], tmp_path, os.environ) as terminal:
        terminal.type('autoload -Uz compinit; compinit -u -D; eval "$(tenure completion zsh)"; echo rea""dy\n')
        terminal.wait_for("ready\r\n")
        press_tab(terminal, "tenure ta\tcla\tF0\t", "tenure task claim F001")
        press_tab(terminal, "tenure task list --stat\tblo\t", "tenure task list --status blocked")
        press_tab(terminal, "tenure --store x wat\t--on\t", "tenure --store x watch --once")
        # Several fit: they are listed with what they mean.
        terminal.type("tenure task list --st\t")
        terminal.wait_for("Only this status")
        terminal.type("\x15exit\n")
        terminal.ended()


def test_fish_offers_what_can_stand_there(store: SqliteStore, tmp_path: Path) -> None:
    add(store, "F001")
    add(store, "F002")
    (tmp_path / "notes.jsonl").touch()
    expected = {
        "tenure task cla": ["claim\tClaim a task."],
        "tenure task claim F": ["F001", "F002"],
        "tenure task claim --tt": [],
        "tenure task list --status ": ["blocked", "dead", "done", "in_progress", "ready", "todo"],
        "tenure task list -s to": ["todo"],
        "tenure --store x task claim --agent ": [],
        "tenure status --format js": ["json"],
        "tenure import note": ["notes.jsonl"],
        "tenure completion ": ["bash", "fish", "zsh"],
    }
    asks = "".join(f"complete -C {line!r}; echo ---; " for line in expected)
    home = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    words = [shell("fish"), "--no-config", "-c", f"tenure completion fish | source; {asks}"]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=home, check=True)
    answers = [answer.splitlines() for answer in ran.stdout.split("---\n")[:-1]]
    told = dict(zip(expected, answers, strict=True))
    ttl = told["tenure task claim --tt"]
    assert [line.partition("\t")[0] for line in ttl] == ["--ttl"]
    assert {**told, "tenure task claim --tt": []} == expected


def test_completion_of_tasks_prints_ids_one_to_a_line(
    store: SqliteStore, clock: ManualClock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(store, "F001")
    add(store, "F002")
    assert main(["completion", "tasks"], folder=str(tmp_path), clock=clock) == 0
    assert capsys.readouterr().out == "F001\nF002\n"


def test_completion_of_tasks_is_silent_without_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tasks"], folder=str(tmp_path)) == 0
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "tenure.db").exists()


def test_completion_for_an_unknown_shell_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"], folder=str(tmp_path)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "bash, zsh, fish" in told.err


def test_completion_as_json_carries_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash", "--json"], folder=str(tmp_path)) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["shell"] == "bash"
    assert data["script"].endswith("complete -F _tenure tenure\n")
