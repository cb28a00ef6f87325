"""Refusals in the command line's own words: options instead of a verb's arguments, and commands that can be typed.

The engine speaks to every surface. What it says is reworded here, where the words of the user and the store are known.
"""

from __future__ import annotations

from tenure.core.errors import CODES, Refused
from tenure.surfaces.cli.spec import near, options_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context
    from tenure.surfaces.cli.spec import Command

# A verb's argument: what the user typed it as, where that is not an option of the same name.
TYPED = {
    "task_id": "TASK",
    "title": "TITLE",
    "agent_id": "--agent",
    "sender": "--from",
    "reason": "--message",
    "note": "--message",
    "needs": "--after",
    "ttl_s": "--ttl",
    "default_ttl_s": "TENURE_LEASE_TTL",
    "expect_silence_s": "--expect-silence",
    "lease_duration_s": "--lease-duration",
    "not_before_ms": "--not-before",
    "estimated_hours": "--estimate",
    "assigned_to": "--assign",
    "capabilities": "--capability",
    "preferred_kinds": "--prefer",
    "skills": "--skill",
    "lease_id": "--lease",
    "project_id": "--project",
    "artifact_location": "--artifact",
    "text": "--text",
    "receipt_id": "RECEIPT",
}
# What to type after a refusal, with its facts; where the table of refusals speaks to every surface.
TYPE_NEXT = {
    "task_held": "An operator takes it back: tenure task release {task_id} --force",
    "has_dependants": "Delete it anyway: tenure task delete {task_id} --force",
    "already_claimed": "Take another: tenure next. Who holds it: tenure task show {task_id}",
    "task_blocked": "Resolve what blocks it, then: tenure task unblock {task_id}",
    "task_dead": "Look at it (tenure why {task_id}), then: tenure task requeue {task_id}",
    "task_done": "If its result is wrong: tenure task reopen {task_id}",
    "wrong_state": "See what it can do from here: tenure task show {task_id}",
    "project_not_found": "See which there are: tenure project list",
}
TASKS_LOOKED_AT = 10_000


def advised(refusal: Refused, context: Context, command: Command) -> Refused:
    """The refusal with words and advice that fit the command line."""
    refusal = _in_options(refusal, command)
    if refusal.code == "task_not_found":
        return _task_not_found(refusal, context)
    if refusal.code == "has_dependants" and len(refusal.facts["dependants"]) == 1:
        refusal = refusal.replace(message=refusal.message.replace(" depend on ", " depends on "))
    if refusal.code == "agent_not_found":
        return refusal.replace(next="See who has joined: tenure agent list. Join: tenure agent join --id ID")
    if refusal.code.startswith("store_"):
        return _with_path(refusal)
    template = TYPE_NEXT.get(refusal.code)
    if template is None or refusal.next != CODES[refusal.code][2]:
        return refusal
    try:
        return refusal.replace(next=template.format(**refusal.facts))
    except KeyError:
        return refusal


def _in_options(refusal: Refused, command: Command) -> Refused:
    """A message that begins with a verb's argument begins with what the user typed instead."""
    argument = str(refusal.facts.get("argument", ""))
    if refusal.code != "invalid_argument" or not argument or not refusal.message.startswith(argument):
        return refusal
    name, bracket, _ = argument.partition("[")
    own = {option.key: option.name for option in options_of(command)}
    if name == "after":
        # Of tasks it is a list of them; of pages the cursor.
        typed = own.get("after") if bracket else own.get("from")
    else:
        typed = TYPED.get(name) or own.get(name)
    if name == "agent_id" and "agent" not in own:
        typed = own.get("id")
    if typed is None:
        return refusal
    return refusal.replace(message=typed + refusal.message[len(argument) :])


def _task_not_found(refusal: Refused, context: Context) -> Refused:
    """The task that was likely meant, or where to look."""
    from tenure.engine.observe import list_tasks

    listed = "See which there are: tenure task list"
    named = str(refusal.facts.get("task_id", ""))
    views = list_tasks(context.store, limit=TASKS_LOOKED_AT, **context.project())
    known = [] if isinstance(views, Refused) else [view.task.task_id for view in views]
    same = [task_id for task_id in known if task_id.casefold() == named.casefold()]
    meant = same[0] if same else near(named, known) if named else None
    if meant is None:
        return refusal.replace(next=listed)
    return refusal.replace(next=f"Did you mean {meant}? {listed}", facts={**refusal.facts, "near": meant})


def _with_path(refusal: Refused) -> Refused:
    path = str(refusal.facts.get("path", ""))
    if not path or path in refusal.message:
        return refusal
    return refusal.replace(message=f"{refusal.message.removesuffix('.')}: {path}")
