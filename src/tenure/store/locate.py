"""Where a repository's database is: `--store`, else TENURE_STORE, else through git's common directory.

Every worktree of a repository shares one common directory, so every agent in its own worktree sees the same tasks. Git
itself is not run for this: starting it would cost more than the verb.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DATABASE = "tenure.db"


def this_host() -> str:
    """The name of this machine, or of this container: where a folder of an agent's is to be looked for."""
    return os.uname().nodename[:256]


def store_location(explicit: str | None, environ: Mapping[str, str], start: str) -> str | None:
    """The store's path or address, or None when there is neither a setting nor a place for one."""
    named = explicit or environ.get("TENURE_STORE")
    if named:
        return named if is_address(named) else _address_of(named) or os.path.abspath(named)
    common = git_common_dir(start, environ)
    if common is not None:
        return os.path.join(common, "tenure", DATABASE)
    return _outside_git(start)


def is_address(named: str) -> bool:
    """Whether this is an address, be it a bad one, and not a path."""
    return "://" in named or named.lower().startswith(("postgres:", "postgresql:"))


def _address_of(named: str) -> str | None:
    """The other form of an address that PostgreSQL's tools take, `host=db.example dbname=tenure`, as a URI."""
    if "=" not in named:
        return None
    import re
    from urllib.parse import quote, urlencode

    word = r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)"
    if not re.fullmatch(rf"\s*{word}(?:\s+{word})*\s*", named, re.DOTALL):
        return None
    options = {
        name: re.sub(r"\\(.)", r"\1", value[1:-1] if value.startswith("'") else value, flags=re.DOTALL)
        for name, value in re.findall(word, named, re.DOTALL)
    }
    if not options.keys() & {"host", "hostaddr", "dbname", "service"}:
        return None
    return f"postgresql:///?{urlencode(options, quote_via=quote)}"


def git_common_dir(start: str, environ: Mapping[str, str]) -> str | None:
    """The common directory of the repository around `start`, or None outside any."""
    if environ.get("GIT_COMMON_DIR"):
        return os.path.abspath(environ["GIT_COMMON_DIR"])
    if environ.get("GIT_DIR"):
        return _common_of(os.path.abspath(environ["GIT_DIR"]))
    directory = os.path.abspath(start)
    while True:
        entry = os.path.join(directory, ".git")
        if _is_git_dir(entry):
            return _common_of(entry)
        if os.path.isfile(entry):
            return _common_of(_linked(entry, directory))
        if _is_git_dir(directory):
            return _common_of(directory)
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def _linked(entry: str, directory: str) -> str:
    """The git directory that a `.git` file (a worktree's or a submodule's) points to."""
    with open(entry, encoding="utf-8", errors="surrogateescape") as file:
        target = file.read().strip().removeprefix("gitdir:").strip()
    return os.path.normpath(os.path.join(directory, target))


def _common_of(git_dir: str) -> str:
    try:
        with open(os.path.join(git_dir, "commondir"), encoding="utf-8", errors="surrogateescape") as file:
            return os.path.normpath(os.path.join(git_dir, file.read().strip()))
    except OSError:
        return git_dir


def _is_git_dir(directory: str) -> bool:
    """A repository's .git directory, a bare repository, or the inside of either; like git, pass a stray .git by."""
    return os.path.isfile(os.path.join(directory, "HEAD")) and os.path.isdir(os.path.join(directory, "objects"))


def _outside_git(start: str) -> str | None:
    directory = os.path.abspath(start)
    while True:
        candidate = os.path.join(directory, ".tenure", DATABASE)
        if os.path.isfile(candidate):
            return candidate
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent
