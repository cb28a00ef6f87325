"""`tenure prime`: the working loop for an agent that starts here, made from the command table so that it is true."""

from __future__ import annotations

from tenure.surfaces.cli.commands import COMMANDS
from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context

# The loop: a command of the table, then why one runs it.
LOOP = (
    ("agent join", "once, to say who you are"),
    ("ready", "see what can be claimed"),
    ("next", "claim the best ready task; read the handoff it prints"),
    ("task claim", "or claim a named one"),
    ("task renew", "before the lease expires; --progress 40 reports"),
    ("touch", "before a long command: --expect-silence 10m"),
    ("msg send", "leave context for whoever comes next"),
    ("task done", "when complete; what waited for it becomes ready"),
    ("task release", "if you must stop; say why with --message"),
    ("task block", "if nobody can go on"),
    ("why", "when something surprises you"),
)
DO = (
    "Claim before starting work",
    "Renew proactively (don't wait for expiry)",
    "Release if you can't complete",
    "Leave context messages when releasing",
)
DONT = (
    "Claim tasks you won't work on immediately",
    "Let leases expire silently",
    "Assume a lease is still valid without checking",
    "Work on unclaimed tasks",
)


def prime(context: Context) -> Result:
    """Print the loop."""
    commands = {command.path: command for command in COMMANDS}
    rows = []
    for path, purpose in LOOP:
        arguments = " ".join(argument.name for argument in commands[path].arguments if argument.required)
        rows.append((f"tenure {path} {arguments}".rstrip(), purpose))
    width = max(len(words) for words, _ in rows)
    lines = [
        "# Working with Tenure",
        "",
        "A task in progress is held under a lease. A holder that stays silent past it",
    ]
    lines += ["loses the task, with all it reported handed to the next. Exit status 6: you lost it; stop.", ""]
    lines += [f"  {words.ljust(width)}  {purpose}" for words, purpose in rows]
    lines += ["", "Do:", *(f"- {line}" for line in DO), "", "Don't:", *(f"- {line}" for line in DONT)]
    lines += ["", "Every command takes --json and has --help."]
    return Result(data={"text": "\n".join(lines)}, lines=lines)
