"""What git shows of a lost holder: commits that are not merged yet, what they change, whether a merge would conflict.

The branch and the base are looked up in the repository; everything that reads content runs on a git directory of our
own (private.py), so that no diff or merge driver of the repository's is run, and what a preview writes is thrown away.
"""

from __future__ import annotations

from tenure.core.errors import Refused
from tenure.worktree.git import TIMEOUT_S, Git, GitFailed
from tenure.worktree.private import Private, place_of
from tenure.worktree.saved import MERGES_SINCE, version
from tenure.worktree.trees import worktrees

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMITS_SHOWN = 20
DIFFSTAT = "--stat=100,80,25"
CONFLICTS_SHOWN = 100


def base_of(folder: str, named: str = "") -> str | None:
    """The branch that agents' work goes to: the one named by the settings, else the main worktree's."""
    git = Git(folder)
    if named:
        return named if git.commit_of(named) else None
    main = worktrees(folder)[0]
    if main.branch:
        return main.branch
    if main.bare:
        return git.ask("-C", main.path, "symbolic-ref", "--short", "--quiet", "HEAD").text.strip() or None
    return main.head or None


def show(folder: str, branch: str, *, base: str = "", timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """The facts, as a handoff keeps them (core/handoff.py); what could not be seen is a note."""
    try:
        return _show(folder, branch, base, timeout_s)
    except GitFailed as failed:
        return {"notes": [failed.refusal.message]}


def _show(folder: str, branch: str, base: str, timeout_s: float) -> dict[str, Any]:
    git = Git(folder, timeout_s=timeout_s)
    head = git.commit_of(f"refs/heads/{branch}")
    if head is None:
        return {"notes": [f"There is no branch {branch} in this repository."]}
    target = base_of(folder, base)
    onto = None if target is None else git.commit_of(f"refs/heads/{target}") or git.commit_of(target)
    if target is None or onto is None:
        return {"head": head, "notes": [f"There is no branch {base} to compare with." if base else "No base branch."]}
    facts: dict[str, Any] = {"head": head, "base": target}
    with Private(place_of(folder, timeout_s=timeout_s), keeps=False, timeout_s=timeout_s) as private:
        span = f"{onto}..{head}"
        shown = private.do("log", "--format=%h %s", "--no-decorate", f"--max-count={COMMITS_SHOWN}", span)
        facts["commits"] = shown.lines
        facts["ahead"] = int(private.do("rev-list", "--count", span).text)
        if target == branch:
            facts["notes"] = [f"It worked on {branch} itself, which is the base."]
        elif facts["ahead"]:
            facts.update(_change(private, onto, head))
            facts.update(_preview(private, onto, head))
    return facts


def _change(private: Private, onto: str, head: str) -> dict[str, Any]:
    found = private.ask("merge-base", onto, head)
    start = found.text.split()[0] if found.status == 0 else private.tree_of(None)
    plain = ("--no-ext-diff", "--no-textconv", "--no-color", "-M")
    return {"diffstat": private.do("diff", DIFFSTAT, *plain, start, head, "--").text.rstrip()}


def _preview(private: Private, onto: str, head: str) -> dict[str, Any]:
    if version(private.place.folder) < MERGES_SINCE:
        wanted = ".".join(map(str, MERGES_SINCE))
        return {"notes": [f"No merge preview: it takes git {wanted} or newer."]}
    done = private.ask("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", onto, head)
    if done.status == 0:
        return {"merge": "clean"}
    if done.status == 1:
        return {"merge": "conflicts", "conflicts": done.fields[1 : CONFLICTS_SHOWN + 1]}
    return {"notes": [f"No merge preview: {' '.join(done.error.split())[:200]}"]}


def is_merged(folder: str, branch: str, base: str = "") -> bool | Refused:
    """Whether the base has everything that is on a branch."""
    try:
        git = Git(folder)
        target = base_of(folder, base)
        head = git.commit_of(f"refs/heads/{branch}") if branch else git.commit_of("HEAD")
        if head is None:
            return True
        return target is not None and git.ask("merge-base", "--is-ancestor", head, target).status == 0
    except GitFailed as failed:
        return failed.refusal
