"""A git directory of our own, which borrows a repository's objects and obeys nothing else of it.

A dead agent's worktree may hold anything: hooks, a clean filter, an fsmonitor, a merge driver, an external diff, set in
its configuration and asked for by its attributes. Overriding them one by one would miss one. Instead git runs with a
directory that we made, whose configuration names no program at all; neither the repository's, nor the user's, nor the
system's configuration is read. An attribute that asks for a filter finds none.

    look   attributes as they are, so that line endings do not count as changes
    raw    every conversion off, so that what is stored is what is in the file, byte for byte, and back

The objects written go to the repository's own store (`keeps=True`, for a rescue), or to a store of ours that is thrown
away (for previews and merges that nobody has asked to keep).
"""

from __future__ import annotations

import os
import shutil
import tempfile

from tenure.core.errors import refuse
from tenure.core.record import Record
from tenure.worktree.git import SAFE, TIMEOUT_S, Git, GitFailed, checked, execute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from tenure.worktree.git import Output

RAW_ATTRIBUTES = "* -text -eol -crlf -ident -filter -working-tree-encoding -diff merge\n"
# What of the repository's configuration says how its files lie on the disk. None of it names a program.
TAKEN_OVER = ("filemode", "symlinks", "ignorecase", "precomposeunicode", "trustctime", "checkstat", "sharedrepository")
# Later than any file, and within the 32 bits that an index has for seconds.
FAR_S = 4_000_000_000
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


class Place(Record):
    """Where a folder's repository keeps things. `head` is None before the first commit, `top` empty if it is bare."""

    folder: str
    top: str
    git_dir: str
    common_dir: str
    objects: str
    index: str
    head: str | None
    object_format: str = "sha1"
    config: Mapping[str, str] = {}
    excludes: str = ""


def place_of(folder: str, *, timeout_s: float = TIMEOUT_S) -> Place:
    """Look a folder's repository up. Raises GitFailed where there is none. No program of the repository's is run."""
    git = Git(folder, timeout_s=timeout_s)
    found = git.ask(
        "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--git-path", "objects",
        "--git-path", "index", "--show-object-format", "--is-inside-work-tree",
    )  # fmt: skip
    if found.status != 0:
        said = " ".join(found.error.split())[:200]
        raise GitFailed(refuse("repository_not_found", f"{folder} is in no git repository: {said}", path=folder))
    lines = found.lines
    if len(lines) != 6:
        message = f"The repository of {folder!r} has a line break in its path."
        raise GitFailed(refuse("git_failed", message, "Move the repository.", path=folder))
    top = ""
    if lines[5] == "true":
        top = git.do("rev-parse", "--path-format=absolute", "--show-toplevel").text.removesuffix("\n")
    config = _config(git)
    return Place(
        folder=folder,
        top=top,
        git_dir=lines[0],
        common_dir=lines[1],
        objects=lines[2],
        index=lines[3],
        head=git.commit_of("HEAD"),
        object_format=lines[4],
        config={name: value for name, value in config.items() if name in TAKEN_OVER and _PLAIN.issuperset(value)},
        excludes=config.get("excludesfile", ""),
    )


def _config(git: Git) -> dict[str, str]:
    names = "|".join((*TAKEN_OVER, "excludesfile"))
    found = git.ask("config", "--null", "--get-regexp", rf"^core\.({names})$")
    entries = (entry.partition("\n") for entry in found.fields)
    return {name.removeprefix("core.").lower(): value for name, _, value in entries if value}


class Private:
    """The git directory, for the length of a `with`. Runs as the owner of the folder."""

    def __init__(self, place: Place, *, keeps: bool, timeout_s: float = TIMEOUT_S) -> None:
        self.place = place
        self._keeps = keeps
        self._git = Git(place.folder, timeout_s=timeout_s)
        self._root = ""

    def __enter__(self) -> Self:
        self._root = tempfile.mkdtemp(prefix="tenure-git-")
        try:
            for name, attributes in (("look", ""), ("raw", RAW_ATTRIBUTES)):
                self._make(os.path.join(self._root, name), attributes)
            os.makedirs(os.path.join(self._root, "objects", "info"))
            self._write("objects/info/alternates", self.place.objects + "\n")
            if self._git.owner.switch:
                self._give_away()
            self._copy("info/exclude", self.place.common_dir)
            self._copy("shallow", self.place.common_dir)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def _make(self, path: str, attributes: str) -> None:
        os.makedirs(os.path.join(path, "refs"))
        os.makedirs(os.path.join(path, "info"))
        name = os.path.basename(path)
        self._write(f"{name}/HEAD", "ref: refs/heads/none\n")
        self._write(f"{name}/info/attributes", attributes)
        sha256 = self.place.object_format != "sha1"
        lines = ["[core]", f"\trepositoryformatversion = {int(sha256)}"]
        lines += [f"\t{name} = {value}" for name, value in self.place.config.items()]
        lines += ["[extensions]", f"\tobjectformat = {self.place.object_format}"] if sha256 else []
        self._write(f"{name}/config", "\n".join(lines) + "\n")

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._root, name), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)

    def _give_away(self) -> None:
        """Before anything of the owner's is in it, so that nothing in it can point elsewhere."""
        owner = self._git.owner
        for folder, folders, files in os.walk(self._root):
            for name in (*folders, *files):
                os.chown(os.path.join(folder, name), owner.uid, owner.gid, follow_symlinks=False)
        os.chown(self._root, owner.uid, owner.gid)

    def _copy(self, name: str, source: str) -> None:
        for place in ("look", "raw"):
            self.copy(os.path.join(source, name), os.path.join(self._root, place, name))

    def copy(self, source: str, target: str) -> bool:
        """Copy a file as the owner would: the superuser must not read what only it can. False if it is not there."""
        if not os.path.lexists(source):
            return False
        # With its times: a file as young as the index is compared by content, and a younger copy would hide it.
        done = execute(["cp", "-p", "--", source, target], owner=self._git.owner, timeout_s=self._git.timeout_s)
        if done.status != 0:
            raise GitFailed(refuse("git_failed", f"{source} cannot be copied: {done.error[:200]}", reason="copy"))
        return True

    def take_index(self) -> str:
        """A copy of the worktree's index, whose bytes nobody writes to; the name to give as `index`."""
        shared = _shared_indexes(self.place.git_dir)
        for entry in shared:
            self._copy(entry, self.place.git_dir)
        # Named like the directory's own, so that git looks for the shared parts of a split one there.
        self.copy(self.place.index, os.path.join(self._root, "look", "index"))
        if shared:
            self.do("update-index", "--no-split-index", index="look/index")
        return "look/index"

    def trust(self, index: str) -> None:
        """Let git believe the times in a copied index, also of files that are as young as the index itself.

        Of those it would otherwise read the content, and take a converted file for a changed one.
        """
        path = os.path.join(self._root, index)
        # Before the first commit there may be none.
        if os.path.lexists(path):
            os.utime(path, (FAR_S, FAR_S), follow_symlinks=False)

    def ask(
        self,
        *arguments: str,
        raw: bool = False,
        index: str = "none",
        input: bytes = b"",
        environ: Mapping[str, str] | None = None,
    ) -> Output:
        """Run git on our directory; a failing status is for the caller to read."""
        extra = {
            "GIT_DIR": os.path.join(self._root, "raw" if raw else "look"),
            "GIT_OBJECT_DIRECTORY": self.place.objects if self._keeps else os.path.join(self._root, "objects"),
            "GIT_INDEX_FILE": os.path.join(self._root, index),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            **(environ or {}),
        }
        words = ["git", *SAFE, "-c", "core.attributesFile=/dev/null"]
        if self.place.top:
            extra["GIT_WORK_TREE"] = self.place.top
        else:
            words += ["--bare"]
        if self.place.excludes:
            words += ["-c", f"core.excludesFile={self.place.excludes}"]
        return execute(
            [*words, *arguments],
            owner=self._git.owner,
            folder=self.place.top or self.place.folder,
            environ=extra,
            input=input,
            timeout_s=self._git.timeout_s,
        )

    def do(
        self,
        *arguments: str,
        raw: bool = False,
        index: str = "none",
        input: bytes = b"",
        environ: Mapping[str, str] | None = None,
    ) -> Output:
        """Run git on our directory; anything but success raises GitFailed."""
        return checked(arguments, self.ask(*arguments, raw=raw, index=index, input=input, environ=environ))

    def tree_of(self, commit: str | None) -> str:
        """The tree of a commit; of none, the empty tree."""
        if commit is None:
            return self.do("mktree").text.strip()
        return self.do("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}").text.strip()


def _shared_indexes(git_dir: str) -> list[str]:
    """Where the index is split, its shared parts."""
    try:
        return [name for name in os.listdir(git_dir) if name.startswith("sharedindex.")]
    except OSError:
        return []
