"""Real repositories for tests, and ways to look at them that change nothing."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path

ENVIRON = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.invalid",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.invalid",
    "GIT_OPTIONAL_LOCKS": "0",
}


def git(folder: Path, *words: str, check: bool = True, input: bytes | None = None) -> str:
    """Run git as a person would, with no configuration but the repository's."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env=ENVIRON, input=input, capture_output=True, timeout=60, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"git {' '.join(words)}: {done.stderr.decode()}")
    return done.stdout.decode("utf-8", "surrogateescape")


def new_repository(path: Path, *words: str) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main", *words)
    return path


def committed(path: Path, **files: str) -> Path:
    """A repository with one commit."""
    new_repository(path)
    return commit(path, "start", **files)


def commit(path: Path, message: str, **files: str) -> Path:
    for name, text in files.items():
        (path / name).write_text(text)
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "--allow-empty", "-m", message)
    return path


def index_of(folder: Path) -> Path:
    return Path(git(folder, "rev-parse", "--path-format=absolute", "--git-path", "index").strip())


def state(folder: Path) -> dict[str, object]:
    """All that a rescue must leave alone."""
    index = index_of(folder)
    return {
        "index": index.read_bytes() if index.exists() else None,
        "index_times": (index.stat().st_mtime_ns, index.stat().st_ino) if index.exists() else None,
        "head": git(folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False),
        "branch": git(folder, "symbolic-ref", "--quiet", "HEAD", check=False),
        "status": git(folder, "status", "--porcelain=v2", "--branch", "--ignored", check=False),
        "files": contents(folder, times=True),
    }


def contents(folder: Path, *, times: bool = False) -> dict[str, object]:
    """Every file of a worktree: kind, executable bit, content."""
    found: dict[str, object] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in (*files, *(one for one in folders if os.path.islink(os.path.join(root, one)))):
            if name == ".git":
                continue
            path = os.path.join(root, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                seen: tuple[object, ...] = ("link", os.readlink(path))
            elif not stat.S_ISREG(status.st_mode):
                # Opening a pipe would wait for somebody to write to it.
                seen = ("special", stat.S_IFMT(status.st_mode))
            else:
                with open(path, "rb") as file:
                    seen = ("file", bool(status.st_mode & 0o100), hashlib.sha256(file.read()).hexdigest())
            found[os.path.relpath(path, folder)] = (*seen, status.st_mtime_ns) if times else seen
    return found
