"""Refusals: one family, each with a stable code.

A refusal is a returned value, never an exception: what a verb wrote before refusing (a recovery it found due, a
message for a thread) commits with it. Exceptions are for what nobody foresaw, and roll back.

The table below is the whole public vocabulary of refusal. A code fixes the command line's exit status and the HTTP
status; the message says what happened in this case, `next` what the caller can do about it, `facts` the values a
program may want.
"""

from __future__ import annotations

from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Exit statuses of the command line, pinned by a test.
EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_HELD = 4
EXIT_NOTHING_READY = 5
EXIT_LEASE_LOST = 6
EXIT_STATE = 7
EXIT_NOT_PERMITTED = 8
EXIT_STORE = 9

MESSAGE_MAX = 1_000

# code: (exit status, HTTP status, what to do next unless the refusal says it better)
CODES: dict[str, tuple[int, int, str]] = {
    "internal_error": (EXIT_INTERNAL, 500, "Retry; if it persists, report it with the log."),
    "invalid_argument": (EXIT_USAGE, 400, "Correct the named argument and try again; nothing was changed."),
    "unsupported_media_type": (EXIT_USAGE, 415, "Send the body as application/json."),
    "body_too_large": (EXIT_USAGE, 413, "Send less at once."),
    "unauthorized": (EXIT_NOT_PERMITTED, 401, "Send a valid token: Authorization: Bearer TOKEN."),
    "route_not_found": (EXIT_NOT_FOUND, 404, "See /openapi.json for what there is."),
    "method_not_allowed": (EXIT_USAGE, 405, "See /openapi.json for what there is."),
    "usage": (EXIT_USAGE, 400, "See the command's --help."),
    "agent_required": (EXIT_USAGE, 400, "Say who you are: --agent ID, or TENURE_AGENT, or join from this folder."),
    "unhealthy": (EXIT_STATE, 503, "Do what each finding says, or run doctor with --fix."),
    "invalid_settings": (EXIT_USAGE, 400, "Correct the named setting; the settings in force are unchanged."),
    "invalid_worker_id": (EXIT_USAGE, 400, "Name the worker {type}.{instance}, such as worker.codegen-1."),
    "invalid_receipt": (EXIT_USAGE, 422, "Correct the named field for this phase; nothing was recorded."),
    "ambiguous_task": (EXIT_USAGE, 409, "Say which project is meant."),
    "project_not_found": (EXIT_NOT_FOUND, 404, "List the projects, or create it."),
    "task_not_found": (EXIT_NOT_FOUND, 404, "Check the id against the task list."),
    "agent_not_found": (EXIT_NOT_FOUND, 404, "Register (or join) under this id first."),
    "lease_not_found": (EXIT_NOT_FOUND, 404, "Ask for the task's or the agent's present leases."),
    "receipt_not_found": (EXIT_NOT_FOUND, 404, "List the task's receipts."),
    "handoff_not_found": (EXIT_NOT_FOUND, 404, "Show the task to see its handoffs."),
    "link_not_found": (EXIT_NOT_FOUND, 404, "Link up again; links end with the process that holds them."),
    "board_not_found": (EXIT_NOT_FOUND, 404, "Connect one: tenure board connect kanboard --url URL --token TOKEN."),
    "gate_not_found": (EXIT_NOT_FOUND, 404, "Name one: tenure config set tenure.receiptgate_url URL."),
    "dependency_not_found": (EXIT_NOT_FOUND, 404, "Show the task to see what it depends on."),
    "repository_not_found": (EXIT_NOT_FOUND, 404, "Run it inside a git worktree that has a commit."),
    "worktree_not_found": (EXIT_NOT_FOUND, 404, "List the worktrees: tenure worktree list."),
    "rescue_not_found": (EXIT_NOT_FOUND, 404, "List what was saved: tenure rescue list."),
    "already_claimed": (EXIT_HELD, 409, "Take another ready task, or wait until this lease ends."),
    "task_assigned": (EXIT_HELD, 409, "Take another ready task; this one belongs to someone else."),
    "nothing_ready": (EXIT_NOTHING_READY, 404, "Wait for work, or ask why nothing is ready."),
    "lease_lost": (EXIT_LEASE_LOST, 409, "Stop working on this task; claim again before changing anything."),
    "superseded": (EXIT_LEASE_LOST, 409, "Stop: a newer run of this agent speaks for it now."),
    "not_accepted": (EXIT_STATE, 409, "Accept the offer first, with an accepted receipt."),
    "already_accepted": (EXIT_STATE, 409, "The offer is accepted; carry on with heartbeats and a complete receipt."),
    "task_done": (EXIT_STATE, 409, "Nothing is left to do; reopen the task if its result is wrong."),
    "task_blocked": (EXIT_STATE, 409, "Resolve what blocks it, then unblock the task."),
    "task_dead": (EXIT_STATE, 409, "Look at its receipts, then requeue the task."),
    "task_held": (EXIT_STATE, 409, "Revoke or release the live lease first."),
    "task_waiting": (EXIT_STATE, 409, "Wait until the named time, or requeue the task to run it now."),
    "dependencies_unmet": (EXIT_STATE, 409, "Finish the named dependencies first."),
    "events_lost": (EXIT_STATE, 410, "Look at everything once more, then follow the events from there."),
    "wrong_state": (EXIT_STATE, 409, "Show the task to see what it can do from here."),
    "task_exists": (EXIT_STATE, 409, "Choose another id, or edit the existing task."),
    "project_exists": (EXIT_STATE, 409, "Choose another id, or use the existing project."),
    "has_dependants": (EXIT_STATE, 409, "Remove the dependency first, or delete with force."),
    "cycle": (EXIT_STATE, 409, "Remove one of the named edges."),
    "idempotency_conflict": (EXIT_STATE, 409, "Use a new idempotency key for a different request."),
    "dedupe_conflict": (EXIT_STATE, 409, "Use a new dedupe_key for different content."),
    "receipt_not_parked": (EXIT_STATE, 409, "See what is parked: tenure gate. All else was or will be sent anyway."),
    "too_many_requirement_sets": (EXIT_STATE, 409, "Reuse one of the capability sets this project already has."),
    "capabilities_missing": (EXIT_STATE, 409, "Let an agent with the named capabilities take it."),
    "worktree_exists": (EXIT_STATE, 409, "Use the existing worktree, or name another place."),
    "worktree_dirty": (EXIT_STATE, 409, "Commit or save what is there, then try again."),
    "worktree_held": (EXIT_STATE, 409, "Wait until its agent holds nothing, or take its task back first."),
    "rescue_conflicts": (EXIT_STATE, 409, "Check out the commit that the rescue was made on, and apply it there."),
    "git_failed": (EXIT_STATE, 500, "Do what git says, then retry."),
    "not_holder": (EXIT_NOT_PERMITTED, 403, "Only the holder may do this; an operator can with force."),
    "reserved_name": (EXIT_NOT_PERMITTED, 403, "Choose another name; this one belongs to the system."),
    "not_permitted": (EXIT_NOT_PERMITTED, 403, "Ask an operator."),
    "store_unavailable": (
        EXIT_STORE,
        503,
        "Check that the store's path or address is right and reachable, then retry.",
    ),
    "store_busy": (EXIT_STORE, 503, "Retry in a moment; another process held the write lock too long."),
    "store_full": (EXIT_STORE, 503, "Free disk space, then retry; nothing was half done."),
    "store_corrupt": (EXIT_STORE, 503, "Restore from a backup, or copy what can be read with export."),
    "store_foreign": (EXIT_STORE, 503, "Name another path; this file belongs to another program."),
    "store_newer": (EXIT_STORE, 503, "Upgrade tenure; this store was written by a newer version."),
    "store_shared": (EXIT_STORE, 503, "Use PostgreSQL for more than one machine, or adopt the file on this one."),
    "board_unavailable": (EXIT_STORE, 503, "Check the board's address and token, then try again; nothing is lost."),
    "cannot_listen": (EXIT_STORE, 503, "Choose another port, or end what listens there."),
    "overloaded": (EXIT_STORE, 503, "Retry after the named delay."),
}


class Refused(Record):
    """A verb's no. `facts` are plain JSON values; `next` always tells the caller what to do."""

    code: str
    message: str
    next: str
    facts: Mapping[str, Any] = {}

    @property
    def exit_status(self) -> int:
        """What the command line exits with."""
        return CODES[self.code][0]

    @property
    def http_status(self) -> int:
        """What the HTTP surface answers with."""
        return CODES[self.code][1]


def refuse(code: str, message: str, next: str | None = None, **facts: Any) -> Refused:
    """Build a refusal; the code must be in the table."""
    if len(message) > MESSAGE_MAX or not message.isprintable():
        message = _printable(message)
    return Refused(code=code, message=message, next=CODES[code][2] if next is None else next, facts=facts)


def _printable(message: str) -> str:
    """A message may quote its caller: bounded, and without what a terminal would obey or could not write."""
    shown = message if len(message) <= MESSAGE_MAX else message[: MESSAGE_MAX - 3] + "..."
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in shown)
