"""Commands as the hooks of a coding agent: they never fail, say nothing without need, and speak the client's language.

A hook runs on every tool use, in every folder where the client is used. Whatever is wrong (no store, no agent, a busy
store, an input that is no JSON) ends in silence and success, because some clients take a failed hook for a veto. Only a
lost lease is told, in the form in which the client gives it to its model.
"""

from __future__ import annotations

import os
import sys

from tenure.core.errors import Refused
from tenure.surfaces.cli.context import Stop
from tenure.surfaces.cli.output import Result
from tenure.surfaces.cli.touch import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context

# How long the client may take to write what it tells the hook, and how much of it is read.
INPUT_LIMIT_S = 1.0
INPUT_MAX = 16 * 1024 * 1024
NOTHING = Result(data=None)


def touched(context: Context) -> Result:
    """A touch on a tool use. A limit that the tool declared is announced as a silence."""
    client = context.get("hook")
    told = b"" if client == "opencode" else _input()
    silence_s = _declared_s(told)
    if silence_s:
        context.values.setdefault("expect_silence", silence_s)
    try:
        value = reach(context)
    except Exception:
        return NOTHING
    lost = value.lost
    if lost is None or any(lease.task_key == lost.task_key for lease in value.leases):
        return NOTHING
    words = (
        f"Tenure: your lease on {lost.task_id} was lost ({lost.end_reason}). Stop working on it. "
        f"See who has it: tenure task show {lost.task_id}"
    )
    return _said(client, _event(told, "PostToolUse" if client != "gemini" else "AfterTool"), words)


def primed(context: Context) -> Result:
    """The working loop at the start of a session, with what the agent holds; nothing where there is no store."""
    from tenure.surfaces.cli.prime import loop_lines

    client = context.get("hook")
    if client != "opencode":
        _input()
    try:
        context.busy_timeout_s = 3.0
        lines = [*loop_lines(), *_holding(context)]
    except Exception:
        return NOTHING
    return _said(client, "SessionStart", "\n".join(lines))


def _holding(context: Context) -> list[str]:
    """Who the agent is and what it holds, if that is known here. Raises where there is no store."""
    from tenure.engine.claims import leases_of

    store = context.store
    try:
        agent_id = context.agent_id()
    except Stop:
        return []
    leases = leases_of(store, agent_id=agent_id)
    if isinstance(leases, Refused):
        return []
    held = ", ".join(lease.task_id for lease in leases)
    return ["", f"You are agent {agent_id}" + (f" and hold {held}." if held else " and hold no task.")]


def _said(client: str, event: str, words: str) -> Result:
    """Words for the model, as the client takes them from a hook's output."""
    import json

    if client == "opencode":
        return Result(data=words, lines=[words])
    said: dict[str, object] = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": words}}
    if event != "SessionStart":
        # For the person who looks on, and where a client gives its model nothing before a tool runs.
        said["systemMessage"] = words
    if client == "cursor":
        said = {"additional_context": words}
    return Result(data=said, lines=[json.dumps(said)])


def _input() -> bytes:
    """What the client tells on standard input. It is read to its end, or the client would write into a closed pipe."""
    import select
    import time

    try:
        handle = sys.stdin.fileno()
        if os.isatty(handle):
            return b""
        parts, size, end = [], 0, time.monotonic() + INPUT_LIMIT_S
        while size < INPUT_MAX and select.select([handle], [], [], max(0.0, end - time.monotonic()))[0]:
            part = os.read(handle, 65_536)
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)
    except (OSError, ValueError, AttributeError):
        return b""


def _declared_s(told: bytes) -> int:
    """The seconds after which the tool that begins now is stopped, where its call says so: Claude Code's shell."""
    # Most calls declare nothing, and then nothing is parsed.
    if b'"timeout"' not in told or b'"PreToolUse"' not in told:
        return 0
    import json

    try:
        call = json.loads(told)
        if call["hook_event_name"] != "PreToolUse" or call["tool_name"] != "Bash":
            return 0
        limit_ms = call["tool_input"]["timeout"]
        return -(-int(limit_ms) // 1000) if 0 < limit_ms < 604_800_000 else 0
    except (ValueError, KeyError, TypeError):
        return 0


def _event(told: bytes, otherwise: str) -> str:
    """Which event the client called the hook for."""
    for name in ("PreToolUse", "PostToolUse", "BeforeTool", "AfterTool"):
        if f'"{name}"'.encode() in told:
            return name
    return otherwise
