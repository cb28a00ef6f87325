"""Worktrees of agents: each works in a folder and on a branch of its own.

By default the folder is `<repository>.worktrees/<agent_id>`, beside the repository and not inside it, so that tools
which walk the repository do not walk into its agents' copies. The branch is `<prefix><agent_id>`, from the branch that
is checked out in the main worktree.

A worktree that exists is used again. Not promised: that two agents whose ids differ only in case can share a file
system that does not tell case apart.
"""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse
from tenure.core.handoff import branch_of
from tenure.core.ids import id_fault
from tenure.core.record import Record
from tenure.core.settings import is_branch_prefix
from tenure.worktree.clearing import clear, left_over
from tenure.worktree.git import Git, GitFailed, is_revision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.worktree.clearing import Holding
    from tenure.worktree.rescue import Caps


class Tree(Record):
    """A worktree of an agent. `base` is the commit that its branch began from, or stood at when it was used again."""

    path: str
    branch: str
    base: str
    created: bool


class Listed(Record):
    """A worktree as git lists it. `branch` is empty when none is checked out, `head` when there is no commit yet."""

    path: str
    head: str = ""
    branch: str = ""
    bare: bool = False
    main: bool = False
    locked: bool = False
    # The folder is gone, and git still remembers it.
    missing: bool = False


def repository_of(path: str) -> str | None:
    """The common directory of the repository around a folder: the same for all its worktrees. None outside any."""
    try:
        found = Git(path).ask("rev-parse", "--path-format=absolute", "--git-common-dir")
    except GitFailed:
        return None
    return found.text.removesuffix("\n") if found.status == 0 else None


def main_worktree(path: str) -> str | None:
    """The repository's main worktree, or None outside a repository and for a bare one."""
    try:
        listed = worktrees(path)
    except GitFailed:
        return None
    return listed[0].path if listed and not listed[0].bare else None


def worktrees(path: str) -> list[Listed]:
    """Every worktree of the repository, the main one first. Raises GitFailed outside a repository."""
    found = Git(path).ask("worktree", "list", "--porcelain", "-z")
    if found.status != 0:
        message = f"{path} is in no git repository."
        raise GitFailed(refuse("repository_not_found", message, path=path))
    listed = []
    for number, block in enumerate(found.out.split(b"\0\0")):
        facts = dict(os.fsdecode(line).partition(" ")[::2] for line in block.split(b"\0") if line)
        if facts:
            listed.append(
                Listed(
                    path=facts["worktree"],
                    head=facts.get("HEAD", "").strip("0") and facts["HEAD"],
                    branch=facts.get("branch", "").removeprefix("refs/heads/"),
                    bare="bare" in facts,
                    main=number == 0,
                    locked="locked" in facts,
                    missing=not os.path.isdir(facts["worktree"]),
                )
            )
    return listed


def add(
    repository: str,
    *,
    agent_id: str,
    prefix: str = "marcus/",
    base: str | None = None,
    path: str | None = None,
    keep: bool = False,
    holding: Holding | None = None,
    caps: Caps | None = None,
) -> Tree | Refused:
    """The agent's worktree on its branch: the one it has, or a new one.

    `repository` is any folder of the repository, `base` any revision (else what the main worktree has checked out),
    `path` the folder to make (else the default place). Uncommitted work in a worktree that is there is saved and
    cleared, as `holding`'s if that is known; with `keep` it is left alone, because the agent still holds its task.
    """
    fault = id_fault(agent_id)
    if fault is not None:
        return refuse("invalid_argument", f"agent_id {agent_id!r} {fault}.", argument="agent_id")
    if not is_branch_prefix(prefix):
        return refuse("invalid_argument", f"prefix {prefix!r} begins no branch name.", argument="prefix")
    try:
        listed = worktrees(repository)
        branch = branch_of(agent_id, prefix)
        known = next((tree for tree in listed if tree.branch == branch and not tree.missing), None)
        if known is not None and not known.main:
            return _reused(known, holding or left_over(agent_id), keep, caps)
        return _add(listed, known, branch, agent_id, base, path)
    except GitFailed as failed:
        return failed.refusal


def _add(
    listed: list[Listed], known: Listed | None, branch: str, agent_id: str, base: str | None, path: str | None
) -> Tree | Refused:
    if known is not None:
        message = f"Branch {branch} is checked out in the main worktree {known.path}."
        return refuse("worktree_exists", message, "Check out another branch there.", path=known.path, branch=branch)
    git = Git(listed[0].path)
    start = _start(git, listed[0], branch, base)
    if isinstance(start, Refused):
        return start
    commit, exists = start
    place = os.path.abspath(path) if path else default_place(listed[0], agent_id)
    if os.path.lexists(place) and (not os.path.isdir(place) or os.listdir(place)):
        message = f"{place} is there already, and is not the worktree of {branch}."
        return refuse("worktree_exists", message, "Move it away, or name another place.", path=place, branch=branch)
    # A folder that was deleted by hand still blocks its name; only records of folders that are gone are dropped. Not
    # without need: to git a worktree that another agent is making at this very moment may look like one that is gone.
    if any(tree.missing and (tree.branch == branch or tree.path == os.path.realpath(place)) for tree in listed):
        git.do("worktree", "prune")
    if exists:
        git.do("worktree", "add", "--quiet", "--", place, branch)
    else:
        git.do("worktree", "add", "--quiet", "--no-track", "-b", branch, "--", place, commit)
    return Tree(path=os.path.realpath(place), branch=branch, base=commit, created=True)


def _start(git: Git, main: Listed, branch: str, base: str | None) -> tuple[str, bool] | Refused:
    """The commit that the agent begins from, and whether its branch is there already."""
    standing = git.commit_of(f"refs/heads/{branch}")
    if standing is not None:
        return standing, True
    if base is not None and not is_revision(base):
        return refuse("invalid_argument", f"base {base!r} is not a revision.", argument="base")
    commit = git.commit_of(base) if base else git.commit_of("HEAD")
    if commit is not None:
        return commit, False
    if base:
        return refuse("invalid_argument", f"base {base!r} is no commit of {main.path}.", argument="base")
    message = f"{main.path} has no commit yet, so that no branch can begin there."
    return refuse(
        "repository_not_found", message, "Make a first commit: git commit --allow-empty -m start", path=main.path
    )


def _reused(known: Listed, holding: Holding, keep: bool, caps: Caps | None) -> Tree | Refused:
    """The worktree an agent has; what another task left in it is saved and cleared first."""
    if not keep:
        cleared = clear(known.path, holding, caps=caps)
        if isinstance(cleared, Refused):
            return cleared
    return Tree(path=known.path, branch=known.branch, base=known.head, created=False)


def default_place(main: Listed, agent_id: str) -> str:
    """Where an agent's worktree goes unless somebody says otherwise."""
    root = main.path.removesuffix("/.git").removesuffix(".git") if main.bare else main.path
    return os.path.join(f"{root.rstrip('/')}.worktrees", agent_id)
