"""`tenure setup` for coding agents: files as their users left them, before, during and after."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from shutil import which

import pytest

from tenure.core.deadline import PULSE_VALID_MS
from tenure.surfaces.cli import edits, jsontext
from tenure.surfaces.cli.clients import CLIENTS, PLUGIN
from tenure.surfaces.cli.touch import HOOKED
from tests.cli.shell import PATIENCE_S, TENURE, Desk, Ran, Shell, git

NAMES = tuple(CLIENTS)
# Files as people have them: a client, its file, what is in it.
OWN = {
    "claude-code": {
        ".mcp.json": '{"mcpServers": {"other": {"command": "x"}}}',
        ".claude/settings.json": '{\n\t"model": "opus",\n\t"hooks": {\n\t\t"PreToolUse": [],\n\t\t"PostToolUse": ['
        '\n\t\t\t{"matcher": "Edit", "hooks": [{"type": "command", "command": "lint"}]}\n\t\t]\n\t}\n}',
    },
    "codex": {".codex/config.toml": 'model = "x" # mine\n\n[[hooks.PreToolUse]]\nmatcher = "Bash"'},
    "gemini": {
        ".gemini/settings.json": '{\r\n  // dark\r\n  "theme": "dark",\r\n  "hooks": {"AfterTool": []}, /**/\r\n}\r\n'
    },
    "opencode": {
        "opencode.jsonc": '{\n    // models\n    "model": "a/b", // the good one\n    "instructions": ["A.md",],\n}\n',
        ".opencode/plugins/own.js": "export const Own = async () => ({})\n",
    },
    "cursor": {".cursor/mcp.json": "{ }\n", ".cursor/hooks.json": '{"version": 1, "hooks": {}}\n'},
}


@pytest.fixture
def place(repository: Path, tmp_path: Path) -> Shell:
    """A repository and a home of its own, without a store."""
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "PATH": f"{Path(TENURE).parent}{os.pathsep}{os.environ['PATH']}"}
    shell = Shell(repository, env)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        shell.env.pop(name, None)
    return shell


def files(folder: Path) -> dict[str, bytes]:
    """Every file and folder outside .git, with the bytes and the mode."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if ".git" not in path.relative_to(folder).parts and ".local" not in path.relative_to(folder).parts:
            name = f"{path.relative_to(folder)} {path.lstat().st_mode:o}"
            found[name] = b"" if path.is_dir() else path.read_bytes()
    return found


def put(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize("own", [True, False], ids=["with_own_files", "from_nothing"])
@pytest.mark.parametrize("user", [True, False], ids=["user", "project"])
def test_setup_twice_and_remove_leaves_every_byte(place: Shell, client: str, own: bool, user: bool) -> None:
    home = Path(place.env["HOME"])
    folder = home if user else place.folder
    if own:
        texts = OWN[client]
        if user:
            names = {".mcp.json": ".claude.json", "opencode.jsonc": ".config/opencode/opencode.jsonc"}
            texts = {names.get(name, name): text for name, text in texts.items()}
        put(folder, texts)
    before = files(folder)
    scope = ["--user"] if user else []
    assert place.run("setup", client, "--check", *scope).status == 7
    assert files(folder) == before
    place.ok("setup", client, *scope)
    after = files(folder)
    assert after != before
    assert place.run("setup", client, "--check", *scope).status == 0
    assert "already" in place.ok("setup", client, *scope).out
    assert files(folder) == after
    place.ok("setup", client, "--remove", *scope)
    assert files(folder) == before
    assert "Nothing" in place.ok("setup", client, "--remove", *scope).out


@pytest.mark.parametrize("client", NAMES)
def test_setup_keeps_what_the_user_has_and_changes_later(place: Shell, client: str) -> None:
    put(place.folder, OWN[client])
    place.ok("setup", client)
    changed = {}
    for name, text in OWN[client].items():
        path = place.folder / name
        now = path.read_bytes().decode()
        # A line that the user adds at the end is still there when ours are gone.
        end = "\n# later\n" if name.endswith("toml") else "\n// later\n"
        path.write_bytes((now + end).encode())
        changed[name] = text + end
    place.ok("setup", client, "--remove")
    for name, text in changed.items():
        assert (place.folder / name).read_bytes().decode() == text


@pytest.mark.parametrize("client", NAMES)
def test_remove_without_a_note_takes_out_what_is_known_to_be_ours(place: Shell, client: str) -> None:
    """Another clone of the repository, or a lost state directory."""
    put(place.folder, OWN[client])
    place.ok("setup", client)
    elsewhere = place.having(HOME=str(place.folder.parent))
    elsewhere.ok("setup", client, "--remove")
    left = b"".join(content for name, content in files(place.folder).items() if "home" not in name)
    assert b"tenure touch" not in left
    assert b'"tenure"' not in left
    assert elsewhere.run("setup", client, "--check").status == 7
    for name in OWN[client]:
        text = (place.folder / name).read_text()
        tomllib.loads(text) if name.endswith("toml") else name.endswith("js") or jsontext.scan(text)


def test_setup_of_every_client_is_read_back_as_meant(place: Shell) -> None:
    for client in NAMES:
        place.ok("setup", client)
    folder = place.folder
    server = {"command": "tenure", "args": ["mcp"]}
    assert json.loads((folder / ".mcp.json").read_text())["mcpServers"] == {"tenure": server}
    assert json.loads((folder / ".cursor/mcp.json").read_text())["mcpServers"] == {"tenure": server}
    assert json.loads((folder / ".gemini/settings.json").read_text())["mcpServers"] == {"tenure": server}
    codex = tomllib.loads((folder / ".codex/config.toml").read_text())
    assert codex["mcp_servers"]["tenure"] == server
    assert json.loads((folder / "opencode.json").read_text())["mcp"]["tenure"]["command"] == ["tenure", "mcp"]
    hooks = {
        "claude-code": json.loads((folder / ".claude/settings.json").read_text())["hooks"],
        "codex": codex["hooks"],
        "gemini": json.loads((folder / ".gemini/settings.json").read_text())["hooks"],
    }
    for client, events in hooks.items():
        assert len(events) == 3
        for groups in events.values():
            (hook,) = groups[0]["hooks"]
            assert hook["timeout"] in (10, 10_000)
            assert f"--hook {client} " in hook["command"]
            assert hook["command"].endswith("|| true")


def test_setup_leaves_an_entry_that_differs_and_says_so(place: Shell) -> None:
    put(place.folder, {".mcp.json": '{"mcpServers": {"tenure": {"command": "mine"}}}'})
    ran = place.ok("setup", "claude-code")
    assert "differs" in ran.err
    assert "mine" in (place.folder / ".mcp.json").read_text()
    ran = place.run("setup", "claude-code", "--check")
    assert ran.status == 7
    assert "differs" in ran.out


def test_setup_replaces_what_an_older_version_wrote(place: Shell) -> None:
    place.ok("setup", "codex")
    path = place.folder / ".codex/config.toml"
    old = path.read_text().replace("timeout = 10", "timeout = 9")
    desk = edits.Desk(place.env)
    note = desk.note_of(str(path))
    assert note is not None
    desk.keep(note.replace(inserted=(old,)))
    path.write_text("# mine\n" + old)
    assert place.run("setup", "codex", "--check").status == 7
    place.ok("setup", "codex")
    assert "timeout = 9" not in path.read_text()
    place.ok("setup", "codex", "--remove")
    assert path.read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("claude-code", ".mcp.json", "{broken"),
        ("claude-code", ".mcp.json", "[]"),
        ("claude-code", ".mcp.json", '{"mcpServers": 3}'),
        ("claude-code", ".claude/settings.json", '{"hooks": {"PreToolUse": {}}}'),
        ("gemini", ".gemini/settings.json", "{} {}"),
        ("codex", ".codex/config.toml", "a = "),
        ("codex", ".codex/config.toml", "mcp_servers = {}"),
        ("codex", ".codex/config.toml", "hooks = { PreToolUse = [] }"),
    ],
)
def test_setup_of_a_file_it_cannot_understand_changes_nothing(place: Shell, client: str, name: str, text: str) -> None:
    put(place.folder, {name: text})
    before = files(place.folder)
    ran = place.run("setup", client)
    if ran.status == 0:
        # A value of another kind in the place of ours is told, and left.
        assert "differs" in ran.err
        assert (place.folder / name).read_text().count(text.strip("{}")[:10])
        return
    assert ran.status == 7
    assert name in ran.err
    assert (place.folder / name).read_text() == text
    assert {key: value for key, value in files(place.folder).items() if key in before} == before


def test_setup_writes_through_a_link_and_keeps_the_mode(place: Shell, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}\n")
    target.chmod(0o600)
    (place.folder / ".mcp.json").symlink_to(target)
    place.ok("setup", "claude-code")
    assert (place.folder / ".mcp.json").is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert "tenure" in target.read_text()
    place.ok("setup", "claude-code", "--remove")
    assert target.read_text() == "{}\n"


@pytest.mark.parametrize("words", ["clod", "claude-code --server", "claude-code --check --remove", "git --user"])
def test_setup_of_something_else_is_a_usage_error(place: Shell, words: str) -> None:
    assert place.run("setup", *words.split()).status == 2


def test_setup_names_the_client_that_was_meant(place: Shell) -> None:
    assert "did you mean gemini" in place.run("setup", "gemni").err


# -- the hooks themselves ---------------------------------------------------------------------------------------------


def hook(shell: Shell, command: str, told: object, **env: str) -> Ran:
    """A hook as a client runs it: through the shell, with JSON on standard input."""
    ran = subprocess.run(
        ["sh", "-c", command],
        cwd=shell.folder,
        env={**shell.env, **env},
        input=told if isinstance(told, str) else json.dumps(told),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def commands(place: Shell) -> list[str]:
    """Every command that a client's hooks run, out of the files."""
    found = []
    for client in NAMES:
        place.ok("setup", client)
    for name in (".claude/settings.json", ".gemini/settings.json", ".cursor/hooks.json"):
        text = (place.folder / name).read_text()
        found += [line.split(": ", 1)[1].strip().rstrip(",") for line in text.splitlines() if '"command":' in line]
    found = [command for command in map(json.loads, found) if command != "tenure"]
    codex = tomllib.loads((place.folder / ".codex/config.toml").read_text())["hooks"]
    return found + [group["hooks"][0]["command"] for groups in codex.values() for group in groups]


def test_hooks_without_store_agent_or_tenure_are_silent_and_succeed(place: Shell, tmp_path: Path) -> None:
    all_of_them = commands(place)
    assert len(all_of_them) == 12
    assert {client for client in HOOKED if any(f"--hook {client} " in one for one in all_of_them)} == {
        "claude-code",
        "codex",
        "gemini",
        "cursor",
    }
    for command in all_of_them:
        assert hook(place, command, {"hook_event_name": "PreToolUse"}) == (0, "", "")
    place.ok("init")
    for command in (one for one in all_of_them if "touch" in one):
        # Nobody has joined; then an agent that nobody knows; then garbage; then no tenure at all.
        assert hook(place, command, {"cwd": "/"}) == (0, "", "")
        assert hook(place, command, "no json", TENURE_AGENT="nobody") == (0, "", "")
        assert hook(place, command, "", PATH="/usr/bin:/bin", TENURE_AGENT="nobody") == (0, "", "")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"not a database" * 1000)
    for command in all_of_them:
        # By itself, too: the shell's part is for when there is no tenure that knows the option.
        bare = command.partition(" 2>")[0]
        assert hook(place, bare, {}, TENURE_STORE=str(broken), TENURE_AGENT="A1") == (0, "", "")
        assert hook(place, bare, {}, TENURE_STORE=str(tmp_path / "none.db")) == (0, "", "")


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "cursor"])
def test_hooks_touch_in_silence_and_tell_a_loss_once(place: Shell, client: str) -> None:
    place.ok("init")
    place.ok("task", "add", "Title", "--id", "F001")
    place.ok("agent", "join", "--id", "A1")
    command = f"tenure touch --hook {client} 2>/dev/null || true"
    event = {"gemini": "AfterTool"}.get(client, "PostToolUse")
    # Holding nothing, then holding something.
    assert hook(place, command, {"hook_event_name": event}, TENURE_AGENT="A1") == (0, "", "")
    place.ok("task", "claim", "F001", "--agent", "A1")
    assert hook(place, command, {"hook_event_name": event, "padding": "x" * 200_000}, TENURE_AGENT="A1")[1:] == ("", "")
    # Somebody else's claim ends the wait for a second to pass.
    place.ok("task", "renew", "F001", "--agent", "A1", "--ttl", "1s")
    claim = ("task", "claim", "F001", "--agent", "B1")
    while place.run(*claim).status != 0:
        pass
    told = hook(place, command, {"hook_event_name": event}, TENURE_AGENT="A1")
    assert told.status == 0
    said = json.loads(told.out)
    words = said["additional_context"] if client == "cursor" else said["hookSpecificOutput"]["additionalContext"]
    assert "your lease on F001 was lost" in words
    if client != "cursor":
        assert said["hookSpecificOutput"]["hookEventName"] == event
    assert hook(place, command, {"hook_event_name": event}, TENURE_AGENT="A1") == (0, "", "")


@pytest.mark.parametrize(
    ("call", "announced"),
    [
        ({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"timeout": 600_000}}, True),
        ({"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"timeout": 600_000}}, False),
        ({"hook_event_name": "PreToolUse", "tool_name": "Other", "tool_input": {"timeout": 600_000}}, False),
        ({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"timeout": "long"}}, False),
        ({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}, False),
    ],
)
def test_hook_announces_the_limit_that_a_shell_command_declares(place: Shell, call: object, announced: bool) -> None:
    place.ok("init")
    place.ok("task", "add", "Title", "--id", "F001")
    place.ok("agent", "join", "--id", "A1")
    place.ok("task", "claim", "F001", "--agent", "A1", "--profile", "agent")
    assert hook(place, "tenure touch --hook claude-code", call, TENURE_AGENT="A1") == (0, "", "")
    lease = place.data("agent", "show", "A1")["leases"][0]
    # An unproven agent's own deadline is 80 s away.
    far = lease["recover_at"] > lease["expires_at"][:0] + _later(lease["expires_at"], 60 + PULSE_VALID_MS // 1000)
    assert far is announced


def _later(iso: str, seconds: int) -> str:
    from tenure.core.times import iso as shown
    from tenure.core.times import parse_iso

    moment = parse_iso(iso)
    assert isinstance(moment, int)
    return shown(moment + seconds * 1000)


def test_hook_at_session_start_gives_the_loop_and_what_is_held(place: Shell) -> None:
    place.ok("init")
    place.ok("task", "add", "Title", "--id", "F001")
    place.ok("task", "claim", "F001", "--agent", "A1")
    for client in ("claude-code", "codex", "gemini"):
        ran = hook(place, f"tenure prime --hook {client}", {"hook_event_name": "SessionStart"}, TENURE_AGENT="A1")
        said = json.loads(ran.out)["hookSpecificOutput"]
        assert said["hookEventName"] == "SessionStart"
        assert "tenure next" in said["additionalContext"]
        assert said["additionalContext"].endswith("You are agent A1 and hold F001.")
    cursor = json.loads(hook(place, "tenure prime --hook cursor", {}).out)
    assert "tenure next" in cursor["additional_context"]


def test_hook_does_not_wait_for_a_client_that_never_closes_its_input(place: Shell) -> None:
    place.ok("init")
    reader, writer = os.pipe()
    try:
        ran = subprocess.run(
            [TENURE, "touch", "--hook", "codex"], cwd=place.folder, env=place.env, stdin=reader, timeout=PATIENCE_S
        )
        assert ran.returncode == 0
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.skipif(which("node") is None, reason="node is not installed: the plugin of opencode was NOT run")
def test_plugin_of_opencode_touches_and_never_throws(place: Shell, tmp_path: Path) -> None:
    (tmp_path / "plugin.mjs").write_text(PLUGIN)
    record = tmp_path / "record"
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "tenure").write_text(f'#!/bin/sh\necho "$@" >> {record}\nexit 3\n')
    (folder / "tenure").chmod(0o755)
    script = """
    const { Tenure } = await import(process.argv[1])
    const hooks = await Tenure({ directory: process.cwd() })
    await hooks["tool.execute.before"]({ tool: "bash" }, { args: { timeout: 90500 } })
    await hooks["tool.execute.before"]({ tool: "read" }, { args: { timeout: 5000 } })
    await hooks["tool.execute.before"]()
    await hooks["tool.execute.after"]({}, {})
    """
    words = ["node", "--input-type=module", "-e", script, str(tmp_path / "plugin.mjs")]
    for path in (f"{folder}{os.pathsep}{os.environ['PATH']}", os.path.dirname(which("node") or "")):
        ran = subprocess.run(
            words, cwd=place.folder, env={**place.env, "PATH": path}, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert ran.returncode == 0, ran.stderr
    touch = "touch --hook opencode"
    assert record.read_text().splitlines() == [f"{touch} --expect-silence 91s", touch, touch, touch]


def test_touch_as_a_hook_imports_no_more_than_it_needs(desk: Desk) -> None:
    """A touch that is no hook must not pay for hooks."""
    script = (
        "import sys; from tenure.surfaces.cli.main import main; main(['touch', '--agent', 'x']); "
        "print([name for name in ('tenure.surfaces.cli.hooked', 'json', 'subprocess') if name in sys.modules])"
    )
    git(desk.folder, "init", "--quiet")
    ran = Shell(desk.folder)
    ran.ok("init")
    python = subprocess.run(
        [str(Path(TENURE).parent / "python"), "-c", script],
        cwd=desk.folder,
        env=ran.env,
        capture_output=True,
        text=True,
    )
    assert python.stdout.splitlines()[-1] == "[]", python.stderr
