"""What is uncommitted in a worktree: found without touching it, and without running anything that lies in it."""

from __future__ import annotations

import os
import stat

from tenure.core.record import Record
from tenure.worktree.names import looks_secret
from tenure.worktree.private import Private, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.worktree.git import Output

GITLINK = "160000"


class Changes(Record):
    """The paths that differ from the index, those that are in nobody's index, and those that differ in it from HEAD."""

    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    # Path to (mode, object) in HEAD, which has an empty mode where HEAD knows nothing of it.
    staged: Mapping[str, tuple[str, str]] = {}
    # Repositories inside the worktree that belong to nobody.
    nested: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.gone or self.changed or self.untracked or self.staged)


def find_changes(private: Private, index: str) -> Changes:
    """Compare a copied index with the worktree, and with HEAD."""
    # A path in conflict is listed twice: as unmerged, and by what became of it.
    differing = [path for _, path, _ in _raw(private.do("diff-files", *_RAW, index=index))]
    gone: list[str] = []
    changed: list[str] = []
    for path in dict.fromkeys(differing):
        (changed if _stands(private.place.top, path) else gone).append(path)
    others = private.do("ls-files", "-z", "--others", "--exclude-standard", index=index).fields
    cached = private.do("diff-index", "--cached", *_RAW, private.tree_of(private.place.head), index=index)
    entries = (entry.partition("\t") for entry in private.do("ls-files", "-z", "--stage", index=index).fields)
    return Changes(
        gone=tuple(gone),
        changed=tuple(changed),
        untracked=tuple(path for path in others if not path.endswith("/")),
        staged={path: before for _, path, before in _raw(cached)},
        nested=tuple(path.rstrip("/") for path in others if path.endswith("/")),
        submodules=tuple(path for facts, _, path in entries if facts.startswith(GITLINK)),
    )


_RAW = ("--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=dirty")


def _raw(output: Output) -> list[tuple[str, str, tuple[str, str]]]:
    """(status, path, (old mode, old object)) of each entry of a raw diff."""
    fields = iter(output.fields)
    entries = []
    for facts in fields:
        old_mode, _, old_object, _, status = facts.removeprefix(":").split(" ")
        before = ("", "") if old_mode == "000000" else (old_mode, old_object)
        entries.append((status[:1], next(fields), before))
    return entries


def _stands(top: str, path: str) -> bool:
    """Whether a tracked path is still there as itself: not behind a link that took the place of one of its folders,
    and not a plain folder that took its own."""
    full = os.path.join(top, path)
    if os.path.isdir(full) and not os.path.islink(full):
        return os.path.lexists(os.path.join(full, ".git"))
    parent = os.path.dirname(path)
    while parent:
        if os.path.islink(os.path.join(top, parent)):
            return False
        parent = os.path.dirname(parent)
    return os.path.lexists(full)


def withheld(top: str, path: str, most_bytes: int) -> str:
    """Why a file of the worktree is listed instead of saved, or nothing."""
    if looks_secret(path):
        return "its name looks secret"
    try:
        status = os.lstat(os.path.join(top, path))
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode):
        return ""
    if not stat.S_ISREG(status.st_mode):
        return "it is neither a file nor a link"
    return f"it is larger than {most_bytes >> 20} MB" if status.st_size > most_bytes else ""


def size_of(top: str, path: str) -> int:
    """A file's size; nothing where there is none any more."""
    try:
        return os.lstat(os.path.join(top, path)).st_size
    except OSError:
        return 0


def is_dirty(folder: str, *, timeout_s: float) -> bool:
    """Whether anything is uncommitted in a worktree."""
    place = place_of(folder, timeout_s=timeout_s)
    with Private(place, keeps=False, timeout_s=timeout_s) as private:
        return bool(find_changes(private, private.take_index()))
