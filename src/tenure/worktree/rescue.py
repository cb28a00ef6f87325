"""Rescue: uncommitted work becomes a commit under a ref, and nothing in the worktree changes.

The ref is `refs/tenure/rescue/<task>/<token>`, one for each holding. Its commit's first parent is the commit that was
checked out, so that `git diff <ref>^ <ref>` is the uncommitted work; what was staged and differs from the files is a
commit of its own, and a further parent. Work that is found later is a further commit on the same ref, and names the
one before it.

It is made from a copy of the index, in a git directory of our own (private.py): the worktree, its index, its branch and
HEAD stay as they are to the byte, and no hook or filter runs. Files that git ignores are left out. Large files and
files whose name looks secret are listed and left where they are. What is not promised: that files which a still living
program writes meanwhile are caught at one instant.
"""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse
from tenure.core.ids import id_fault
from tenure.core.record import Record
from tenure.worktree.changes import find_changes, is_dirty, size_of, withheld
from tenure.worktree.git import TIMEOUT_S, Git, GitFailed
from tenure.worktree.names import looks_secret
from tenure.worktree.private import Private, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tenure.worktree.changes import Changes

REFS = "refs/tenure/rescue/"
FILE_MB = 20
TOTAL_MB = 200
# Tried again when somebody else moved the ref meanwhile.
TRIES = 3


class Saved(Record):
    """What a rescue found. `ref` is empty when nothing was uncommitted; `again` when it was all saved before."""

    ref: str = ""
    commit: str = ""
    base: str | None = None
    files: int = 0
    # (path, why) of what was left where it is.
    left: tuple[tuple[str, str], ...] = ()
    # Those of them that git tracks, and the saved files that it does not.
    tracked_left: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    again: bool = False


class Caps(Record):
    """How much is saved: of one file, and of all of them together."""

    file_bytes: int = FILE_MB << 20
    total_bytes: int = TOTAL_MB << 20


def ref_of(task_id: str, token: int) -> str | Refused:
    """The ref of one holding."""
    fault = id_fault(task_id)
    if fault is not None:
        return refuse("invalid_argument", f"task_id {task_id!r} {fault}.", argument="task_id")
    return f"{REFS}{task_id}/{int(token)}"


def save(
    worktree: str,
    *,
    task_id: str,
    token: int,
    agent_id: str,
    caps: Caps | None = None,
    even_clean: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Saved | Refused:
    """Save what is uncommitted in a worktree. Refused if it is gone, no worktree, or somebody else's.

    With `even_clean` the commit that is checked out is kept under the ref, also when nothing is uncommitted.
    """
    ref = ref_of(task_id, token)
    if isinstance(ref, Refused):
        return ref
    facts = {"Task": task_id, "Token": str(token), "Agent": agent_id}
    try:
        return _save(worktree, ref, facts, caps or Caps(), even_clean, timeout_s)
    except GitFailed as failed:
        return failed.refusal


def _save(
    worktree: str, ref: str, facts: Mapping[str, str], caps: Caps, even_clean: bool, timeout_s: float
) -> Saved | Refused:
    place = place_of(worktree, timeout_s=timeout_s)
    if not place.top:
        return refuse("worktree_not_found", f"{worktree} is a bare repository: there are no files.", path=worktree)
    with Private(place, keeps=True, timeout_s=timeout_s) as private:
        index = private.take_index()
        changes = find_changes(private, index)
        left = [(path, "it is a repository of its own") for path in changes.nested]
        left += _unsaved_submodules(place.top, changes, timeout_s)
        _forget_secrets(private, index, changes, left)
        staged = _staged_tree(private, index)
        _take_files(private, index, changes, caps, left)
        tree = private.do("write-tree", "--missing-ok", index=index, raw=True).text.strip()
        base = private.tree_of(place.head)
        untracked, unsaved = set(changes.untracked), {path for path, _ in left}
        found = Saved(
            base=place.head,
            left=tuple(left),
            tracked_left=tuple(path for path, _ in left if path in changes.staged or path in changes.changed),
            new=tuple(sorted(untracked - unsaved)),
        )
        if tree == base and staged in (None, base) and not (even_clean and place.head):
            return found
        keep = staged if staged not in (tree, base) else None
        return _commit(private, ref, facts, tree, keep, found, base)


def _unsaved_submodules(top: str, changes: Changes, timeout_s: float) -> Iterable[tuple[str, str]]:
    """Submodules are repositories of their own; only which commit they are at is saved."""
    for path in changes.submodules:
        folder = os.path.join(top, path)
        try:
            if os.path.lexists(os.path.join(folder, ".git")) and is_dirty(folder, timeout_s=timeout_s):
                yield path, "it is a submodule with uncommitted work"
        except GitFailed as failed:
            yield path, f"it is a submodule that cannot be read: {failed.refusal.message}"


def _forget_secrets(private: Private, index: str, changes: Changes, left: list[tuple[str, str]]) -> None:
    """What is staged under a secret-looking name stands in the rescue as it stands in HEAD."""
    lines = []
    for path, (mode, name) in changes.staged.items():
        if looks_secret(path):
            left.append((path, "its name looks secret"))
            # Mode 0 takes the path out; the object's name is then only a place holder, as long as all names here are.
            nothing = "0" * (64 if private.place.object_format == "sha256" else 40)
            lines.append(f"{mode or 0} {name or nothing}\t{path}")
    _index_info(private, index, lines)


def _index_info(private: Private, index: str, lines: Sequence[str]) -> None:
    if lines:
        text = "".join(f"{line}\0" for line in lines)
        private.do("update-index", "-z", "--index-info", index=index, input=_bytes(text))


def _staged_tree(private: Private, index: str) -> str | None:
    """The tree of what is staged; None while the index is in conflict."""
    made = private.ask("write-tree", "--missing-ok", index=index)
    return made.text.strip() if made.status == 0 else None


def _take_files(private: Private, index: str, changes: Changes, caps: Caps, left: list[tuple[str, str]]) -> None:
    """Bring the private index to what the files are."""
    top = private.place.top
    _remove(private, index, changes.gone)
    taken, total, told = [], 0, {path for path, _ in left}
    # The smallest first, so that one large file does not cost many small ones their place.
    for path in sorted((*changes.changed, *changes.untracked), key=lambda path: (size_of(top, path), path)):
        why = withheld(top, path, caps.file_bytes)
        total += 0 if why else size_of(top, path)
        if not why and total > caps.total_bytes:
            why = f"all together is more than {caps.total_bytes >> 20} MB"
        if not why:
            taken.append(path)
        elif path not in told:
            left.append((path, why))
    # What was staged and not changed since is in the index as git converts it; here it stands as the file is.
    seen = {*told, *changes.changed, *changes.gone, *changes.untracked}
    staged = [path for path in changes.staged if path not in seen and _is_file(top, path, caps)]
    _remove(private, index, staged)
    left += _add(private, index, [*taken, *staged])
    # What is left out and in conflict would keep the tree from being written: it stands as in HEAD.
    _settle_conflicts(private, index)


def _is_file(top: str, path: str, caps: Caps) -> bool:
    """Whether a path is a plain file that may be saved."""
    full = os.path.join(top, path)
    return os.path.isfile(full) and not os.path.islink(full) and not withheld(top, path, caps.file_bytes)


def _remove(private: Private, index: str, paths: Sequence[str]) -> None:
    if paths:
        private.do("update-index", "-z", "--force-remove", "--stdin", index=index, input=_lines(paths), raw=True)


def _add(private: Private, index: str, paths: Sequence[str]) -> list[tuple[str, str]]:
    """Put files into the index; those that cannot be read are found by halving, and listed."""
    if not paths:
        return []
    done = private.ask(
        "update-index", "-z", "--add", "--remove", "--replace", "--stdin", index=index, input=_lines(paths), raw=True
    )
    if done.status == 0:
        return []
    if len(paths) == 1:
        return [(paths[0], f"git could not read it ({' '.join(done.error.split())[:120]})")]
    middle = len(paths) // 2
    return _add(private, index, paths[:middle]) + _add(private, index, paths[middle:])


def _settle_conflicts(private: Private, index: str) -> None:
    unmerged = private.do("ls-files", "-z", "--unmerged", index=index).fields
    paths = list(dict.fromkeys(entry.partition("\t")[2] for entry in unmerged))
    if not paths:
        return
    _remove(private, index, paths)
    if private.place.head is not None:
        kept = private.do("ls-tree", "-z", "--full-tree", private.place.head, "--", *paths).fields
        lines = [
            f"{facts.split(' ')[0]} {facts.split(' ')[2]}\t{path}"
            for facts, _, path in (entry.partition("\t") for entry in kept)
        ]
        _index_info(private, index, lines)


def _commit(
    private: Private,
    ref: str,
    facts: Mapping[str, str],
    tree: str,
    staged: str | None,
    found: Saved,
    base_tree: str,
) -> Saved:
    head = private.place.head
    changed = private.do("diff-tree", "-r", "-z", "--name-only", "--no-renames", base_tree, tree).fields
    for attempt in range(TRIES):
        git = Git(private.place.folder)
        before = git.commit_of(ref)
        if before is not None and _same(git, before, tree, head, staged):
            return found.replace(ref=ref, commit=before, files=len(changed), again=True)
        staged_commit = _commit_tree(private, staged, [head], "What was staged", facts) if staged else None
        parents = [head, staged_commit, before]
        more = {"Base": head or "none", "Tree": tree}
        more |= {"Staged": staged} if staged else {}
        more |= {"Before": before} if before else {}
        title = f"Uncommitted work of {facts['Agent']} on {facts['Task']}"
        commit = _commit_tree(private, tree, parents, title, {**facts, **more})
        # The old value guards against somebody else's commit in between; empty means that there must be none.
        moved = git.ask("update-ref", "--no-deref", "--end-of-options", ref, commit, before or "0" * len(commit))
        if moved.status == 0:
            return found.replace(ref=ref, commit=commit, files=len(changed))
        if attempt == TRIES - 1:
            message = f"{ref} could not be written: {' '.join(moved.error.split())[:200]}"
            raise GitFailed(refuse("git_failed", message, reason="ref"))
    raise AssertionError("the last try returns or raises")


def _same(git: Git, commit: str, tree: str, head: str | None, staged: str | None) -> bool:
    """Whether the ref's commit already says all this."""
    known = trailers(git.do("cat-file", "commit", commit).text)
    return (known.get("Tree"), known.get("Base"), known.get("Staged")) == (tree, head or "none", staged)


def _commit_tree(
    private: Private, tree: str, parents: Sequence[str | None], title: str, facts: Mapping[str, str]
) -> str:
    agent = facts["Agent"]
    environ = {
        "GIT_AUTHOR_NAME": agent,
        "GIT_AUTHOR_EMAIL": f"{agent}@tenure.invalid",
        "GIT_COMMITTER_NAME": "tenure",
        "GIT_COMMITTER_EMAIL": "tenure@tenure.invalid",
    }
    text = f"{title}\n\n" + "".join(f"Tenure-{name}: {value}\n" for name, value in facts.items())
    named = [word for parent in parents if parent for word in ("-p", parent)]
    made = private.do("commit-tree", tree, *named, "-F", "-", input=text.encode(), environ=environ)
    return made.text.strip()


def trailers(text: str) -> dict[str, str]:
    """The facts that a rescue's commit carries."""
    found = (line.removeprefix("Tenure-").partition(": ") for line in text.splitlines() if line.startswith("Tenure-"))
    return {name: value for name, _, value in found}


def _lines(paths: Sequence[str]) -> bytes:
    return _bytes("".join(f"{path}\0" for path in paths))


def _bytes(text: str) -> bytes:
    return os.fsencode(text)
