"""`tenure prime`: the working loop for an agent that starts here. A test runs its lines through the parser."""

from __future__ import annotations

from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context

# The loop: a command of the table with what it needs, then why one runs it.
LOOP = (
    ("agent join --name NAME", "once; then export TENURE_AGENT=ID, or give --agent ID"),
    ("ready", "see what can be claimed"),
    ("next", "claim the best ready task; read the handoff it prints"),
    ("task claim TASK", "or claim a named one"),
    ("task renew TASK --progress 40", "before the lease expires; it reports, too"),
    ("touch --expect-silence 10m", "before a long command"),
    ("msg send --task TASK --text TEXT", "leave context for whoever comes next"),
    ("task done TASK", "when complete; what waited for it becomes ready"),
    ("task release TASK --message WHY", "if you must stop"),
    ("task block TASK --message WHY", "if nobody can go on"),
    ("why TASK", "when something surprises you"),
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
    if context.get("hook"):
        from tenure.surfaces.cli.hooked import primed

        return primed(context)
    lines = loop_lines()
    return Result(data={"text": "\n".join(lines)}, lines=lines)


def loop_lines() -> list[str]:
    """The loop as text."""
    rows = [(f"tenure {words}", purpose) for words, purpose in LOOP]
    width = max(len(words) for words, _ in rows)
    lines = [
        "# Working with Tenure",
        "",
        "A task in progress is held under a lease. A holder that stays silent past it",
    ]
    lines += ["loses the task, with all it reported handed to the next. Exit status 6: you lost it; stop.", ""]
    lines += [f"  {words.ljust(width)}  {purpose}" for words, purpose in rows]
    lines += ["", "Do:", *(f"- {line}" for line in DO), "", "Don't:", *(f"- {line}" for line in DONT)]
    return [*lines, "", "Every command takes --json and has --help."]
