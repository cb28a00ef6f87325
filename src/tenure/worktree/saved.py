"""What was rescued: list it, look at it, bring it in, drop it.

Bringing it in changes files only: neither index nor branch nor HEAD of the worktree it goes to. On the commit that it
was made on, the files become what they were, byte for byte. Elsewhere the difference is merged three ways into what is
checked out, and a conflict is refused with the names of the files. Files with changes of their own are never written
over.
"""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse
from tenure.core.record import Record
from tenure.worktree.changes import find_changes
from tenure.worktree.git import TIMEOUT_S, Git, GitFailed
from tenure.worktree.private import Private, place_of
from tenure.worktree.rescue import REFS, trailers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.worktree.private import Place

# `git merge-tree --write-tree` is as old as this.
MERGES_SINCE = (2, 38)
NAMED_AT_MOST = 20


class Rescued(Record):
    """One rescue. `base` is None where nothing had been committed; `commit` is the newest on its ref."""

    ref: str
    task_id: str
    token: int
    commit: str
    agent_id: str = ""
    base: str | None = None
    tree: str = ""
    # The tree of what was staged, where it differs from the files.
    staged: str | None = None
    saved_at_ms: int = 0

    @property
    def name(self) -> str:
        """What a user types."""
        return self.ref.removeprefix(REFS)


class Shown(Record):
    """A rescue with what it changes: (status letter, path), a summary, and the patch where it was asked for."""

    rescued: Rescued
    changes: tuple[tuple[str, str], ...]
    diffstat: str
    patch: str = ""


class Applied(Record):
    """What was brought in. `merged` if it went to another commit than the one it was made on."""

    rescued: Rescued
    paths: tuple[str, ...]
    merged: bool
    # Submodules whose commit changed; git leaves them to `git submodule update`.
    submodules: tuple[str, ...] = ()


def list_rescued(folder: str, task_id: str = "") -> list[Rescued] | Refused:
    """Every rescue in the repository around a folder, or those of one task, the newest first."""
    try:
        return _list(Git(folder), task_id)
    except GitFailed as failed:
        return failed.refusal


def _list(git: Git, task_id: str = "") -> list[Rescued]:
    shape = "--format=%(refname)%00%(objectname)%00%(committerdate:unix)%00%(contents)%00"
    found = git.ask("for-each-ref", shape, "--", REFS + (f"{task_id}/" if task_id else ""))
    if found.status != 0:
        raise GitFailed(refuse("repository_not_found", f"{git.folder} is in no git repository.", path=git.folder))
    fields = found.text.split("\0")
    rescued = []
    for ref, commit, at_s, text in zip(*(iter(fields),) * 4, strict=False):
        ref = ref.strip()
        task, _, token = ref.removeprefix(REFS).rpartition("/")
        facts = trailers(text)
        # A ref of this name that we did not write is not a rescue.
        if token.isdigit() and "/" not in task and facts.get("Task") == task:
            base = facts.get("Base", "none")
            rescued.append(
                Rescued(
                    ref=ref,
                    task_id=task,
                    token=int(token),
                    commit=commit,
                    agent_id=facts.get("Agent", ""),
                    base=None if base == "none" else base,
                    tree=facts.get("Tree", ""),
                    staged=facts.get("Staged"),
                    saved_at_ms=int(at_s or 0) * 1000,
                )
            )
    return sorted(rescued, key=lambda one: (one.saved_at_ms, one.token), reverse=True)


def find(folder: str, name: str) -> Rescued | Refused:
    """The rescue that a user means: a task (its newest), TASK/TOKEN, or the whole ref."""
    task, _, token = name.removeprefix(REFS).partition("/")
    found = list_rescued(folder, "")
    if isinstance(found, Refused):
        return found
    meant = [one for one in found if one.task_id == task and token in ("", str(one.token))]
    if meant:
        return meant[0]
    return refuse("rescue_not_found", f"Nothing is saved for {name}.", name=name)


def show(folder: str, name: str, *, patch: bool = False, timeout_s: float = TIMEOUT_S) -> Shown | Refused:
    """What one rescue changes."""
    rescued = find(folder, name)
    if isinstance(rescued, Refused):
        return rescued
    try:
        with Private(place_of(folder, timeout_s=timeout_s), keeps=False, timeout_s=timeout_s) as private:
            base = private.tree_of(rescued.base)
            names = private.do("diff-tree", "-r", "-z", "--name-status", "-M", base, rescued.commit).fields
            stat = private.do("diff-tree", "-r", "--stat=100", "-M", base, rescued.commit).text
            text = ""
            if patch:
                text = private.do("diff-tree", "-r", "-p", "--binary", "-M", base, rescued.commit).text
    except GitFailed as failed:
        return failed.refusal
    return Shown(rescued=rescued, changes=tuple(_named(names)), diffstat=stat.rstrip(), patch=text)


def _named(fields: list[str]) -> list[tuple[str, str]]:
    """Pairs of status and path; a rename has two paths."""
    words, named = iter(fields), []
    for status in words:
        path = next(words)
        if status[0] in "RC":
            path = f"{path} -> {next(words)}"
        named.append((status[0], path))
    return named


def drop(folder: str, name: str) -> Rescued | Refused:
    """Forget one rescue. Its commits stay until git collects what nothing refers to."""
    rescued = find(folder, name)
    if isinstance(rescued, Refused):
        return rescued
    try:
        Git(folder).do("update-ref", "--no-deref", "-d", "--end-of-options", rescued.ref, rescued.commit)
    except GitFailed as failed:
        return failed.refusal
    return rescued


def apply(folder: str, name: str, *, timeout_s: float = TIMEOUT_S) -> Applied | Refused:
    """Bring a rescue into the worktree around a folder, as uncommitted changes."""
    rescued = find(folder, name)
    if isinstance(rescued, Refused):
        return rescued
    try:
        place = place_of(folder, timeout_s=timeout_s)
        if not place.top:
            return refuse("worktree_not_found", f"{folder} is a bare repository: there are no files.", path=folder)
        with Private(place, keeps=False, timeout_s=timeout_s) as private:
            return _apply(private, place, rescued)
    except GitFailed as failed:
        return failed.refusal


def _apply(private: Private, place: Place, rescued: Rescued) -> Applied | Refused:
    ours, base = private.tree_of(place.head), private.tree_of(rescued.base)
    wanted: str | Refused = private.tree_of(rescued.commit)
    merged = ours != base
    if merged:
        wanted = _merge(private, base, ours, rescued)
    if isinstance(wanted, Refused):
        return wanted
    changed = private.do("diff-tree", "-r", "-z", "--raw", "--no-renames", ours, wanted).fields
    entries = list(zip(changed[::2], changed[1::2], strict=True))
    index = private.take_index()
    refused = _in_the_way(private, place, index, entries)
    if refused is not None:
        return refused
    # Compared just now with the attributes that hold here: git must not compare again without them.
    private.trust(index)
    moved = private.ask("read-tree", "-m", "-u", ours, wanted, raw=True, index=index)
    if moved.status != 0:
        said = " ".join(moved.error.removeprefix("error: ").split())[:300]
        message = f"{rescued.name} was not brought in, and nothing was changed: {said}"
        return refuse("worktree_dirty", message, "Commit or stash what is there, then try again.", path=place.top)
    return Applied(
        rescued=rescued,
        paths=tuple(path for _, path in entries),
        merged=merged,
        submodules=tuple(path for facts, path in entries if "160000" in facts.split(" ")[:2]),
    )


def _in_the_way(private: Private, place: Place, index: str, entries: list[tuple[str, str]]) -> Refused | None:
    """Files that would be written over: with changes of their own, or that nobody tracks, ignored ones too."""
    tracked = set(private.do("ls-files", "-z", index=index).fields)
    changes = find_changes(private, index)
    touched = {path for _, path in entries}
    own = sorted(touched & {*changes.changed, *changes.gone, *changes.staged})
    if own:
        message = f"{len(own)} files have changes of their own: {', '.join(own[:NAMED_AT_MOST])}."
        return refuse(
            "worktree_dirty", message, "Commit or stash them, then try again.", path=place.top, files=own[:100]
        )
    new = [path for facts, path in entries if facts.startswith(":000000")]
    there = [path for path in new if path not in tracked and os.path.lexists(os.path.join(place.top, path))]
    if not there:
        return None
    message = f"{len(there)} files are there already and in no commit: {', '.join(there[:NAMED_AT_MOST])}."
    return refuse("worktree_dirty", message, "Move them away, then try again.", path=place.top, files=there[:100])


def _merge(private: Private, base: str, ours: str, rescued: Rescued) -> str | Refused:
    """The tree of what is checked out with the rescued difference in it."""
    if version(private.place.folder) < MERGES_SINCE:
        wanted = ".".join(map(str, MERGES_SINCE))
        message = f"{rescued.name} was made on another commit, and this git is too old to merge it (it takes {wanted})."
        return refuse("rescue_conflicts", message, _elsewhere(rescued), base=rescued.base)
    # Made-up commits, so that the merge sees this difference alone, whatever lies between the two in history.
    root = _made_up(private, base)
    left, right = _made_up(private, ours, root), _made_up(private, rescued.commit + "^{tree}", root)
    done = private.ask("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", left, right, raw=True)
    tree, *names = done.fields or [""]
    if done.status == 0:
        return tree
    if done.status != 1:
        raise GitFailed(refuse("git_failed", f"git merge-tree failed: {' '.join(done.error.split())[:300]}"))
    named = ", ".join(names[:NAMED_AT_MOST])
    message = f"{rescued.name} was made on another commit and conflicts with what is checked out in: {named}."
    return refuse("rescue_conflicts", message, _elsewhere(rescued), files=names[:100], base=rescued.base)


def _elsewhere(rescued: Rescued) -> str:
    if rescued.base is None:
        return f"Look at it with: git show {rescued.ref}"
    return f"Apply it where it was made, and merge that: git switch --detach {rescued.base[:12]}"


def _made_up(private: Private, tree: str, *parents: str) -> str:
    named = [word for parent in parents for word in ("-p", parent)]
    who = {f"GIT_{role}_{fact}": "tenure" for role in ("AUTHOR", "COMMITTER") for fact in ("NAME", "EMAIL")}
    when = {"GIT_AUTHOR_DATE": "@1 +0000", "GIT_COMMITTER_DATE": "@1 +0000"}
    exact = private.do("rev-parse", "--verify", "--end-of-options", tree).text.strip()
    return private.do("commit-tree", exact, *named, "-m", "tenure", environ={**who, **when}).text.strip()


def version(folder: str) -> tuple[int, ...]:
    """The version of git, as numbers."""
    word = Git(folder).do("version").text.split()[2]
    return tuple(int(part) for part in word.split(".")[:2] if part.isdigit())
