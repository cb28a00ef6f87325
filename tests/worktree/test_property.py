"""For any uncommitted work: what is rescued and brought in elsewhere is what was there, and its source is untouched."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure.core.errors import Refused
from tenure.worktree import rescue, saved
from tests.worktree.repositories import commit, contents, git, new_repository, state

NAMES = ("a", "b", "c", "deep/a", "deep/er/b", "name with space", "café", "-x", "a.bin", "new\nline")
CONTENT = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"one\ntwo\n", b"one\r\ntwo\r\n", b"\0\1\2", b"#!/bin/sh\necho\n", b"x" * 5_000]),
)
FILE = st.one_of(
    st.tuples(st.just("file"), CONTENT, st.booleans()),
    st.tuples(st.just("link"), st.sampled_from([b"a", b"deep", b"nowhere", b"../out"]), st.just(False)),
)
START = st.dictionaries(st.sampled_from(NAMES), FILE, max_size=6)
STEP = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), FILE),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.tuples(st.just("chmod"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("stage"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("stage all"), st.none(), st.none()),
    st.tuples(st.just("unstage"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("intend"), st.sampled_from(NAMES), st.none()),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(start=START, steps=st.lists(STEP, max_size=10), attributes=st.sampled_from(["", "* text=auto eol=crlf\n"]))
def test_rescue_then_apply_of_any_work_gives_the_identical_tree(
    start: dict[str, Any], steps: list[Any], attributes: str
) -> None:
    home = Path(tempfile.mkdtemp(prefix="tenure-property-"))
    try:
        _round_trip(home, start, steps, attributes)
    finally:
        shutil.rmtree(home)


def _round_trip(home: Path, start: dict[str, Any], steps: list[Any], attributes: str) -> None:
    source = new_repository(home / "source")
    for name, file in start.items():
        write(source, name, file)
    if attributes:
        (source / ".gitattributes").write_text(attributes)
    commit(source, "start")
    # The clean checkout first, so that it has seen nothing of the work.
    clean = home / "clean"
    git(source, "worktree", "add", "--quiet", "--detach", str(clean), "HEAD")
    # Checked out anew, so that line endings are what the attributes say.
    git(source, "rm", "--quiet", "-r", "--cached", "--ignore-unmatch", ".")
    git(source, "reset", "--hard", "--quiet")
    for step in steps:
        act(source, *step)
    before, work = state(source), contents(source)
    saved_now = rescue.save(str(source), task_id="F001", token=7, agent_id="a1")
    assert not isinstance(saved_now, Refused), saved_now
    assert state(source) == before
    assert saved_now.left == ()
    if not saved_now.ref:
        assert not git(source, "status", "--porcelain")
        return
    unmoved = state(clean)
    brought = saved.apply(str(clean), "F001")
    assert not isinstance(brought, Refused), brought
    assert _but_for_conversions(source, contents(clean), work)
    after = state(clean)
    assert [after[key] for key in ("index", "head", "branch")] == [unmoved[key] for key in ("index", "head", "branch")]


def _but_for_conversions(source: Path, found: dict[str, object], work: dict[str, object]) -> bool:
    """Whether two trees are the same; a file whose line endings alone are not what they would be checked out as is no
    change to git, which has nothing to save of it."""
    if found.keys() != work.keys():
        return False
    differing = [path for path in work if found[path] != work[path]]
    return not differing or not git(source, "--literal-pathspecs", "status", "--porcelain", "--", *differing)


def write(folder: Path, name: str, file: tuple[str, bytes, bool]) -> None:
    """Put a file or link there, whatever stands in its way."""
    path = folder / name
    for parent in reversed(path.relative_to(folder).parents[:-1]):
        if (folder / parent).is_symlink() or (folder / parent).is_file():
            (folder / parent).unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    delete(folder, name)
    kind, content, executable = file
    if kind == "link":
        os.symlink(os.fsdecode(content), path)
    else:
        path.write_bytes(content)
        path.chmod(0o755 if executable else 0o644)


def delete(folder: Path, name: str) -> None:
    path = folder / name
    if any((folder / parent).is_symlink() for parent in path.relative_to(folder).parents[:-1]):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def act(folder: Path, kind: str, name: Any, more: Any) -> None:
    if kind == "write":
        write(folder, name, more)
    elif kind == "delete":
        delete(folder, name)
    elif kind == "rename":
        git(folder, "mv", "-f", "--", name, more, check=False)
    elif kind == "chmod":
        path = folder / name
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode ^ 0o111)
    elif kind == "stage":
        git(folder, "--literal-pathspecs", "add", "--all", "--", name, check=False)
    elif kind == "stage all":
        git(folder, "add", "--all")
    elif kind == "unstage":
        git(folder, "--literal-pathspecs", "rm", "--quiet", "-r", "--cached", "--", name, check=False)
    else:
        git(folder, "--literal-pathspecs", "add", "--intent-to-add", "--", name, check=False)
