"""The coding agents that Tenure sets itself up in: where each keeps its configuration, and what is put there.

Each gets the MCP server, and where it has hooks a touch before and after every tool use and the working loop when a
session starts. Every hook has a time limit and ends well whatever happens: a coding agent must never wait for us, or be
stopped by us. docs/clients.md says where each format is described and what was not tried with the client itself.
"""

from __future__ import annotations

import os

from tenure.core.record import Record
from tenure.surfaces.cli.edits import home_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

HOOK_LIMIT_S = 10
MCP = {"command": "tenure", "args": ["mcp"]}
# What our own hooks look like, whichever version wrote them.
OURS = ("tenure touch --hook", "tenure prime --hook")


class Entry(Record):
    """A value in a JSON file: the member at a path, or with `append` an element of the list at a path."""

    file: str
    path: tuple[str, ...]
    value: Any
    append: bool = False


class Block(Record):
    """Lines at the end of a TOML file. `keys` is what they must not define twice."""

    file: str
    text: str
    keys: tuple[str, ...]


class Whole(Record):
    """A file of our own."""

    file: str
    text: str


class Client(Record):
    """One coding agent."""

    name: str
    title: str
    pieces: Callable[[str, bool, Mapping[str, str]], list[Entry | Block | Whole]]
    # What the user has to do or know afterwards.
    after: str


def touch_command(client: str) -> str:
    """The hook's command line. It ends well also where tenure is not installed or does not know the option."""
    return f"tenure touch --hook {client} 2>/dev/null || true"


def prime_command(client: str) -> str:
    return f"tenure prime --hook {client} 2>/dev/null || true"


def _grouped(client: str, limit: int, events: tuple[str, str, str], matcher: str) -> list[tuple[str, dict[str, Any]]]:
    """Hooks in groups with a matcher, as three of the clients have them: before, after, at the start."""
    commands = (touch_command(client), touch_command(client), prime_command(client))
    grouped = []
    for event, command in zip(events, commands, strict=True):
        group: dict[str, Any] = {"hooks": [{"type": "command", "command": command, "timeout": limit}]}
        if event != events[2]:
            group = {"matcher": matcher, **group}
        grouped.append((event, group))
    return grouped


def _claude_code(root: str, user: bool, environ: Mapping[str, str]) -> list[Entry | Block | Whole]:
    if user:
        own = environ.get("CLAUDE_CONFIG_DIR")
        home = own or os.path.join(home_of(environ), ".claude")
        servers = os.path.join(own or home_of(environ), ".claude.json")
        settings = os.path.join(home, "settings.json")
    else:
        servers, settings = os.path.join(root, ".mcp.json"), os.path.join(root, ".claude", "settings.json")
    hooks = _grouped("claude-code", HOOK_LIMIT_S, ("PreToolUse", "PostToolUse", "SessionStart"), "*")
    return [
        Entry(file=servers, path=("mcpServers", "tenure"), value=MCP),
        *(Entry(file=settings, path=("hooks", event), value=group, append=True) for event, group in hooks),
    ]


def _codex(root: str, user: bool, environ: Mapping[str, str]) -> list[Entry | Block | Whole]:
    home = environ.get("CODEX_HOME") or os.path.join(home_of(environ), ".codex")
    folder = home if user else os.path.join(root, ".codex")
    lines = [
        "# >>> tenure: written by `tenure setup codex`; `tenure setup codex --remove` takes it out",
        "[mcp_servers.tenure]",
        'command = "tenure"',
        'args = ["mcp"]',
    ]
    for event, group in _grouped("codex", HOOK_LIMIT_S, ("PreToolUse", "PostToolUse", "SessionStart"), ".*"):
        hook = group["hooks"][0]
        lines += ["", f"[[hooks.{event}]]"]
        lines += [f'matcher = "{group["matcher"]}"'] if "matcher" in group else []
        lines += ["", f"[[hooks.{event}.hooks]]", 'type = "command"', f'command = "{hook["command"]}"']
        lines += [f"timeout = {hook['timeout']}"]
    lines += ["# <<< tenure"]
    file = os.path.join(folder, "config.toml")
    return [Block(file=file, text="\n".join(lines) + "\n", keys=("mcp_servers", "tenure"))]


def _gemini(root: str, user: bool, environ: Mapping[str, str]) -> list[Entry | Block | Whole]:
    file = os.path.join(home_of(environ) if user else root, ".gemini", "settings.json")
    hooks = _grouped("gemini", HOOK_LIMIT_S * 1000, ("BeforeTool", "AfterTool", "SessionStart"), ".*")
    return [
        Entry(file=file, path=("mcpServers", "tenure"), value=MCP),
        *(Entry(file=file, path=("hooks", event), value=group, append=True) for event, group in hooks),
    ]


def _cursor(root: str, user: bool, environ: Mapping[str, str]) -> list[Entry | Block | Whole]:
    folder = os.path.join(home_of(environ) if user else root, ".cursor")
    hooks = os.path.join(folder, "hooks.json")
    events = (
        ("preToolUse", touch_command("cursor")),
        ("postToolUse", touch_command("cursor")),
        ("sessionStart", prime_command("cursor")),
    )
    return [
        Entry(file=os.path.join(folder, "mcp.json"), path=("mcpServers", "tenure"), value=MCP),
        Entry(file=hooks, path=("version",), value=1),
        *(
            Entry(file=hooks, path=("hooks", event), value={"command": command, "timeout": HOOK_LIMIT_S}, append=True)
            for event, command in events
        ),
    ]


PLUGIN = """// Written by `tenure setup opencode`; `tenure setup opencode --remove` takes it out.
// Tells Tenure of every tool use. It never waits long, and never stops one.
import { execFile } from "node:child_process"

const LIMIT_MS = 10000

export const Tenure = async ({ directory }) => {
  const touch = (...more) =>
    new Promise((done) => {
      const words = ["touch", "--hook", "opencode", ...more]
      try {
        execFile("tenure", words, { cwd: directory, timeout: LIMIT_MS }, () => done()).stdin?.end()
      } catch {
        done()
      }
    })
  return {
    "tool.execute.before": async (input, output) => {
      const limitMs = input?.tool === "bash" ? Number(output?.args?.timeout) : NaN
      await touch(...(limitMs >= 1000 ? ["--expect-silence", `${Math.ceil(limitMs / 1000)}s`] : []))
    },
    "tool.execute.after": async () => {
      await touch()
    },
  }
}
"""


def _opencode(root: str, user: bool, environ: Mapping[str, str]) -> list[Entry | Block | Whole]:
    from tenure.surfaces.cli.prime import loop_lines

    if user:
        home = environ.get("XDG_CONFIG_HOME") or os.path.join(home_of(environ), ".config")
        base = folder = os.path.join(home, "opencode")
        told = os.path.join(folder, "tenure.md")
    else:
        base, folder, told = root, os.path.join(root, ".opencode"), ".opencode/tenure.md"
    with_comments = os.path.join(base, "opencode.jsonc")
    file = with_comments if os.path.exists(with_comments) else os.path.join(base, "opencode.json")
    server = {"type": "local", "command": ["tenure", "mcp"], "enabled": True}
    return [
        Entry(file=file, path=("mcp", "tenure"), value=server),
        Entry(file=file, path=("instructions",), value=told, append=True),
        Whole(file=os.path.join(folder, "tenure.md"), text="\n".join(loop_lines()) + "\n"),
        Whole(file=os.path.join(folder, "plugins", "tenure.js"), text=PLUGIN),
    ]


CLIENTS = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            title="Claude Code",
            pieces=_claude_code,
            after="Claude Code asks once whether to use a project's MCP server. Look with /mcp and /hooks.",
        ),
        Client(
            name="codex",
            title="Codex",
            pieces=_codex,
            after="Codex reads a project's configuration only in a trusted project, and asks before it runs new hooks.",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            pieces=_gemini,
            after="Gemini CLI reads a project's settings only in a trusted folder. Look with /mcp and /hooks.",
        ),
        Client(
            name="opencode",
            title="opencode",
            pieces=_opencode,
            after="opencode loads the plugin when it starts next.",
        ),
        Client(
            name="cursor",
            title="Cursor",
            pieces=_cursor,
            after="Cursor lists the server under Settings, MCP, where it may have to be switched on.",
        ),
    )
}
