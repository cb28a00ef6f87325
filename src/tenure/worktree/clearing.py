"""Before a worktree is used again or removed, what was left in it is saved.

Under the ref of the holding that left it, where that is known; else under `refs/tenure/rescue/left-over.<agent>/0`.
Nothing is cleared that could not be saved: files that a rescue leaves out stay where they are, and where clearing would
take them away it is refused.
"""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse
from tenure.core.record import Record
from tenure.worktree.git import Git, execute
from tenure.worktree.rescue import Caps, Saved, save

# What git keeps in a worktree's own directory while something is half done.
UNFINISHED = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
NAMED_AT_MOST = 10


class Holding(Record):
    """Whose work it is: the task and token of the lease under which it was done."""

    agent_id: str
    task_id: str
    token: int


def left_over(agent_id: str) -> Holding:
    """Work of nobody knows which task."""
    return Holding(agent_id=agent_id, task_id=f"left-over.{agent_id}"[:128].rstrip("."), token=0)


def save_left_over(
    path: str, holding: Holding, *, caps: Caps | None = None, even_clean: bool = False
) -> Saved | Refused:
    """Save what is uncommitted in a worktree; with `even_clean` also commits that no branch has."""
    return save(
        path,
        task_id=holding.task_id,
        token=holding.token,
        agent_id=holding.agent_id,
        caps=caps,
        even_clean=even_clean,
    )


def clear(path: str, holding: Holding, *, caps: Caps | None = None) -> Saved | Refused:
    """Save what is uncommitted, then make the worktree what is checked out. Raises GitFailed where git fails."""
    saved = save_left_over(path, holding, caps=caps)
    if isinstance(saved, Refused):
        return saved
    unfinished = unfinished_in(path)
    if unfinished:
        kept = f" What was uncommitted is saved in {saved.ref}." if saved.ref else ""
        give_up = "bisect reset" if unfinished == "bisect" else f"{unfinished} --abort"
        advice = f"Finish it, or give it up: git -C {path} {give_up}"
        return refuse("worktree_dirty", f"A {unfinished} is unfinished in {path}.{kept}", advice, path=path)
    if saved.tracked_left:
        return _unsaved(path, saved.tracked_left)
    if not saved.ref:
        return saved
    git = Git(path)
    if saved.new:
        # Before the reset, which may put a link where one of their folders is.
        names = b"".join(os.fsencode(name) + b"\0" for name in saved.new)
        execute(["xargs", "-0", "rm", "-f", "--"], owner=git.owner, folder=path, input=names)
    git.do("reset", "--hard", "--quiet")
    return saved


def _unsaved(path: str, names: tuple[str, ...]) -> Refused:
    told = ", ".join(names[:NAMED_AT_MOST]) + (" and more" if len(names) > NAMED_AT_MOST else "")
    message = f"{path} holds changes that a rescue does not save: {told}."
    advice = "Commit them or move them away, then try again."
    return refuse("worktree_dirty", message, advice, path=path, files=list(names[:100]))


def remove(path: str, holding: Holding, *, caps: Caps | None = None, force: bool = False) -> Saved | Refused:
    """Remove a worktree whose work is saved or on a branch. With `force` what cannot be saved is lost.

    The branch stays, and with it every commit that it has. Raises GitFailed where git fails.
    """
    git = Git(path)
    main = git.do("rev-parse", "--path-format=absolute", "--git-common-dir").text.removesuffix("\n")
    on_branch = git.ask("for-each-ref", "--contains=HEAD", "--count=1", "--", "refs/heads/").text.strip()
    saved = save_left_over(path, holding, caps=caps, even_clean=not on_branch)
    if isinstance(saved, Refused):
        return saved
    if saved.left and not force:
        return _unsaved(path, tuple(name for name, _ in saved.left))
    # From the repository itself: git does not remove the folder that it stands in.
    Git(main).do("worktree", "remove", "--force", "--", path)
    return saved


def unfinished_in(path: str) -> str:
    """What is half done in a worktree (rebase, merge, ...), or nothing."""
    found = Git(path).do("rev-parse", "--path-format=absolute", "--git-dir").text.removesuffix("\n")
    return next((word for name, word in UNFINISHED.items() if os.path.lexists(os.path.join(found, name))), "")
