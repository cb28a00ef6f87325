"""Look at what a lost holder left, and attach it to its handoff. Outside of any transaction, with time limits.

It is done by whoever can see the worktree: the claimant on the command line, the monitor in a server, whoever shows a
claim on that machine. Whatever cannot be seen is a note in the handoff, which says why: git that is missing, a worktree
that is gone or on another machine. Two that look at once save the same thing.
"""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse
from tenure.core.handoff import is_pending
from tenure.engine import handoffs, recovery
from tenure.engine.agents import show_agent
from tenure.links.sweep import bury_the_dead
from tenure.store.locate import git_common_dir, is_address, this_host
from tenure.worktree import facts as shown
from tenure.worktree.clearing import Holding
from tenure.worktree.git import Git, GitFailed
from tenure.worktree.rescue import Caps, Saved, save
from tenure.worktree.trees import add, main_worktree, repository_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Handoff
    from tenure.core.settings import Settings
    from tenure.engine.claims import Grant
    from tenure.engine.handoffs import Look
    from tenure.store.store import Store
    from tenure.worktree.trees import Tree

# Of one call of git, while somebody waits for the answer; and where nobody does.
TIMEOUT_S = 10.0
PATIENT_S = 120.0
NAMED_AT_MOST = 100
NAME_CHARS = 300


def attach_waiting(store: Store, *, host: str | None = None, limit: int = 8, patient: bool = False) -> int | Refused:
    """Look at everything on this machine that waits to be looked at, a bounded number at once; says how many.

    A look that ran out of time is left to somebody patient, such as a monitor.
    """
    waiting = handoffs.handoffs_to_look_at(store, host=host or this_host(), limit=limit)
    if isinstance(waiting, Refused):
        return waiting
    for look in waiting:
        attached = _attach(store, look, host or this_host(), patient=patient)
        if isinstance(attached, Refused):
            return attached
    return len(waiting)


def attach_to_lease(store: Store, lease_id: str, *, host: str | None = None) -> Handoff | None:
    """Look again at what the holder of an ended lease has in its worktree now."""
    found = handoffs.handoffs_named(store, lease_id=lease_id)
    if isinstance(found, Refused) or not found:
        return None
    attached = _attach(store, found[0], host or this_host())
    return None if isinstance(attached, Refused) else attached


def settled(store: Store, grant: Grant, *, host: str | None = None, here: str = "") -> Grant:
    """A grant whose handoffs say what git shows, as far as it can be seen from this machine.

    `here` is a folder of the repository in which the new holder works: its branches are looked up there when the lost
    holder's worktree cannot be seen.
    """
    host = host or this_host()
    wanted = [one for one in grant.handoffs if is_pending(one) or (one.look and one.host in (host, ""))]
    found = handoffs.handoffs_named(store, handoff_ids=[one.handoff_id for one in wanted]) if wanted else ()
    if isinstance(found, Refused) or not found:
        return grant
    now: dict[str, Handoff] = {}
    for look in found:
        attached = _attach(store, look, host, here)
        if not isinstance(attached, Refused):
            now[attached.handoff_id] = attached
    return grant.replace(handoffs=tuple(now.get(one.handoff_id, one) for one in grant.handoffs))


def tree_for(
    store: Store,
    repository: str,
    *,
    agent_id: str,
    settings: Settings,
    base: str | None = None,
    path: str | None = None,
) -> Tree | Refused:
    """The agent's worktree, by the store's settings. What a task that it lost left in it is saved as that task's.

    A task whose holder is dead counts as lost, also when nobody has noticed the death before: else the next task would
    begin among the files of the last one.
    """
    _recover_the_dead(store)
    seen = show_agent(store, agent_id=agent_id)
    keep = not isinstance(seen, Refused) and bool(seen.leases)
    left = handoffs.handoffs_named(store, agent_id=agent_id)
    holding = None
    if not isinstance(left, Refused) and left:
        holding = Holding(agent_id=agent_id, task_id=left[0].task_id, token=left[0].handoff.token)
        if left[0].handoff.look and not keep:
            # Before the folder is cleared: the handoff is to say what was in it.
            _attach(store, left[0], this_host())
    if path is None and settings.worktree_path:
        main = main_worktree(repository) or repository_of(repository) or repository
        path = os.path.join(main, os.path.expanduser(settings.worktree_path), agent_id)
    return add(
        repository,
        agent_id=agent_id,
        prefix=settings.branch_prefix,
        base=base or settings.base_branch or None,
        path=path,
        keep=keep,
        holding=holding,
        caps=_caps(settings),
    )


def _recover_the_dead(store: Store) -> None:
    """Write down which processes of this host are gone, and take back what is due. Refused, it is left to the claim."""
    bury_the_dead(store)
    fired = recovery.TIMERS_AT_ONCE
    while fired >= recovery.TIMERS_AT_ONCE:
        advanced = recovery.advance(store)
        fired = 0 if isinstance(advanced, Refused) else advanced.fired


def _caps(settings: Settings) -> Caps:
    return Caps(file_bytes=settings.rescue_file_mb << 20, total_bytes=settings.rescue_total_mb << 20)


def _attach(store: Store, look: Look, host: str, here: str = "", patient: bool = False) -> Handoff | Refused:
    seen, looked = look_at(look, host=host, here=here, own=_own_repository(store), patient=patient)
    return handoffs.attach_facts(store, handoff_id=look.handoff.handoff_id, facts=seen, looked=looked)


def _own_repository(store: Store) -> str:
    """The repository that the store lies in, if it lies in one."""
    if is_address(store.path):
        return ""
    common = git_common_dir(os.path.dirname(os.path.abspath(store.path)), {})
    return os.path.realpath(common) if common else ""


def look_at(
    look: Look, *, host: str, here: str = "", own: str = "", patient: bool = False
) -> tuple[dict[str, Any], bool]:
    """What can be seen of a lost holder, and whether this was all that anybody could see."""
    handoff, timeout_s = look.handoff, PATIENT_S if patient else TIMEOUT_S
    place, elsewhere = _place(handoff, host)
    notes = [elsewhere] if elsewhere else []
    seen: dict[str, Any] = {}
    in_time = True
    if place:
        saved = _rescue(look, place, own, timeout_s)
        if isinstance(saved, Refused):
            notes.append(saved.message)
            in_time = patient or saved.facts.get("reason") != "timeout"
            # Whoever may not save what is there may not tell of its commits either.
            place = "" if saved.code == "not_permitted" else place
        else:
            seen = _rescue_facts(look, saved)
    if here and place and os.path.realpath(here) == os.path.realpath(place):
        notes.append("It worked in this very folder: what it did not commit is still here, among your own changes.")
    folder = place or here
    if folder:
        branch = shown.show(
            folder, handoff.previous_agent_branch or "", base=look.settings.base_branch, timeout_s=timeout_s
        )
        notes += branch.pop("notes", [])
        seen.update(branch)
    # Set even when there is nothing to say, so that a note of an earlier look does not outlive its reason.
    seen["note"] = _plain("\n".join(dict.fromkeys(notes)), 1_000)
    return seen, in_time and handoff.host in (host, "")


def _place(handoff: Handoff, host: str) -> tuple[str, str]:
    """The worktree, if it can be seen from here; else why not."""
    if not handoff.worktree:
        return "", "It did not say in which folder it worked, so that uncommitted work could not be looked for."
    if handoff.host not in (host, ""):
        where = f"Its worktree {handoff.worktree} is on {handoff.host}"
        return "", f"{where}: uncommitted work can be saved only there."
    if not os.path.isdir(handoff.worktree):
        return "", f"Its worktree {handoff.worktree} is gone, and with it whatever was not committed."
    return handoff.worktree, ""


def _rescue(look: Look, place: str, own: str, timeout_s: float) -> Saved | Refused:
    """Save what is uncommitted; refused where it cannot be seen."""
    handoff, settings = look.handoff, look.settings
    try:
        git = Git(place, timeout_s=timeout_s)
        common = git.ask("rev-parse", "--path-format=absolute", "--git-common-dir").text.removesuffix("\n")
    except GitFailed as failed:
        return failed.refusal
    if git.owner.switch and os.path.realpath(common) != own:
        # Agents name their folder themselves: the superuser looks at no other user's repository on their word.
        message = (
            f"{place} belongs to another user and is not in this store's repository, so that it was not looked at."
        )
        return refuse("not_permitted", message, path=place)
    return save(
        place,
        task_id=look.task_id,
        token=handoff.token,
        agent_id=handoff.recovered_from_agent,
        caps=_caps(settings),
        timeout_s=timeout_s,
    )


def _rescue_facts(look: Look, saved: Saved) -> dict[str, Any]:
    left = [_plain(f"{path} ({why})") for path, why in saved.left[:NAMED_AT_MOST]]
    facts: dict[str, Any] = {"not_saved": left}
    if saved.ref:
        facts |= {
            "rescue_ref": saved.ref,
            "rescue_commit": saved.commit,
            "rescue_files": saved.files,
            "rescue_apply": apply_command(look.task_id, look.handoff.token),
        }
    return facts


def apply_command(task_id: str, token: int) -> str:
    """What brings a rescue in."""
    return f"tenure rescue apply {task_id}/{token}"


def _plain(text: str, most: int = NAME_CHARS) -> str:
    """A name as text: what is not UTF-8 is shown by its number."""
    return text[:most].encode("utf-8", "backslashreplace").decode()
