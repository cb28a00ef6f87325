"""Bringing a rescue in: exact where it was made, merged elsewhere, never over somebody's own changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.worktree import rescue, saved
from tests.support import ok, refused
from tests.worktree.repositories import commit, committed, contents, git, new_repository, state


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A worktree with changes that are rescued as F001/7: a changed, b deleted, new added."""
    made = committed(tmp_path / "source", a="".join(f"line {n}\n" for n in range(20)), b="two\n")
    (made / "a").write_text((made / "a").read_text().replace("line 3\n", "line three\n"))
    (made / "b").unlink()
    (made / "new").write_text("new\n")
    ok(rescue.save(str(made), task_id="F001", token=7, agent_id="a1"))
    return made


@pytest.fixture
def clean(tmp_path: Path, source: Path) -> Path:
    """Another worktree, of the same commit."""
    folder = tmp_path / "clean"
    git(source, "worktree", "add", "--quiet", "-b", "next", str(folder), "main")
    return folder


def test_apply_where_it_was_made_gives_the_same_files_and_moves_nothing_else(source: Path, clean: Path) -> None:
    before = state(clean)
    brought = ok(saved.apply(str(clean), "F001/7"))
    assert contents(clean) == contents(source)
    assert (sorted(brought.paths), brought.merged) == (["a", "b", "new"], False)
    after = state(clean)
    assert [after[key] for key in ("index", "head", "branch")] == [before[key] for key in ("index", "head", "branch")]
    assert git(clean, "status", "--porcelain").splitlines() == [" M a", " D b", "?? new"]


@pytest.mark.parametrize("name", ["F001", "F001/7", "refs/tenure/rescue/F001/7"])
def test_find_takes_a_task_a_token_or_the_whole_ref(source: Path, name: str) -> None:
    assert ok(saved.find(str(source), name)).token == 7


@pytest.mark.parametrize("name", ["F002", "F001/8", "F00", "-x", "..", "a\nb", "F001/7/8", "refs/heads/main"])
def test_find_nothing_is_refused(source: Path, name: str) -> None:
    refused(saved.find(str(source), name), "rescue_not_found")


def test_find_the_newest_of_a_task(source: Path) -> None:
    ok(rescue.save(str(source), task_id="F001", token=9, agent_id="a2"))
    assert ok(saved.find(str(source), "F001")).token == 9
    assert [one.name for one in ok(saved.list_rescued(str(source)))] == ["F001/9", "F001/7"]


def test_list_passes_by_refs_that_are_no_rescue(source: Path) -> None:
    git(source, "update-ref", "refs/tenure/rescue/F009/1", "HEAD")
    git(source, "update-ref", "refs/tenure/rescue/odd", "HEAD")
    assert [one.name for one in ok(saved.list_rescued(str(source)))] == ["F001/7"]


def test_apply_to_a_later_commit_merges(source: Path, clean: Path) -> None:
    text = (clean / "a").read_text().replace("line 17\n", "line seventeen\n")
    commit(clean, "meanwhile", a=text, c="three\n")
    brought = ok(saved.apply(str(clean), "F001"))
    assert brought.merged
    assert (clean / "a").read_text() == text.replace("line 3\n", "line three\n")
    assert git(clean, "status", "--porcelain").splitlines() == [" M a", " D b", "?? new"]


def test_apply_to_an_unrelated_branch_brings_the_difference_alone(source: Path, clean: Path) -> None:
    git(clean, "checkout", "--quiet", "--orphan", "other")
    git(clean, "rm", "--quiet", "--cached", "-r", ".")
    commit(clean, "another history")
    brought = ok(saved.apply(str(clean), "F001"))
    assert not brought.merged, "the same tree needs no merge, whatever its history"
    assert contents(clean) == contents(source)


def test_apply_that_conflicts_is_refused_and_names_the_files(source: Path, clean: Path) -> None:
    commit(clean, "meanwhile", a=(clean / "a").read_text().replace("line 3\n", "line drei\n"))
    before = state(clean)
    answer = refused(saved.apply(str(clean), "F001"), "rescue_conflicts")
    assert answer.facts["files"] == ["a"]
    assert "a" in answer.message
    assert state(clean) == before


@pytest.mark.parametrize("how", ["changed", "staged", "untracked", "ignored"])
def test_apply_over_somebodys_own_changes_is_refused(clean: Path, how: str) -> None:
    if how in ("changed", "staged"):
        (clean / "a").write_text("mine\n")
    else:
        (clean / "new").write_text("mine\n")
    if how == "staged":
        git(clean, "add", "a")
    if how == "ignored":
        (clean / ".gitignore").write_text("new\n")
    before = state(clean)
    refused(saved.apply(str(clean), "F001"), "worktree_dirty")
    assert state(clean) == before


def test_apply_beside_somebodys_own_changes_keeps_them(clean: Path) -> None:
    (clean / "mine").write_text("mine\n")
    ok(saved.apply(str(clean), "F001"))
    assert (clean / "mine").read_text() == "mine\n"
    assert (clean / "new").read_text() == "new\n"


def test_apply_a_staged_rename_keeps_the_line_endings_of_the_file(tmp_path: Path) -> None:
    source = committed(tmp_path / "windows", a="one\n", **{".gitattributes": "* text=auto eol=crlf\n"})
    git(source, "rm", "--quiet", "-r", "--cached", ".")
    git(source, "reset", "--hard", "--quiet")
    assert (source / "a").read_bytes() == b"one\r\n"
    clean = tmp_path / "other"
    git(source, "worktree", "add", "--quiet", "--detach", str(clean))
    git(source, "mv", "a", "b")
    ok(rescue.save(str(source), task_id="F001", token=7, agent_id="a1"))
    ok(saved.apply(str(clean), "F001"))
    assert contents(clean) == contents(source)


def test_apply_twice_is_refused(clean: Path) -> None:
    ok(saved.apply(str(clean), "F001"))
    refused(saved.apply(str(clean), "F001"), "worktree_dirty")


def test_apply_in_a_bare_repository_is_refused(tmp_path: Path, source: Path) -> None:
    bare = new_repository(tmp_path / "bare.git", "--bare")
    git(bare, "fetch", "--quiet", str(source), "refs/tenure/rescue/*:refs/tenure/rescue/*")
    refused(saved.apply(str(bare), "F001"), "worktree_not_found")
    assert ok(saved.show(str(bare), "F001")).changes


def test_show_tells_what_it_changes(source: Path) -> None:
    seen = ok(saved.show(str(source), "F001", patch=True))
    assert sorted(seen.changes) == [("A", "new"), ("D", "b"), ("M", "a")]
    assert "+line three" in seen.patch
    assert "3 files changed" in seen.diffstat


def test_drop_forgets_it_and_nothing_else(source: Path) -> None:
    ok(rescue.save(str(source), task_id="F002", token=3, agent_id="a1"))
    ok(saved.drop(str(source), "F001"))
    assert [one.name for one in ok(saved.list_rescued(str(source)))] == ["F002/3"]
    refused(saved.drop(str(source), "F001"), "rescue_not_found")


def test_apply_with_an_old_git_goes_only_to_the_same_commit(
    source: Path, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "version", lambda folder: (2, 37))
    commit(clean, "meanwhile", c="three\n")
    assert "2.38" in refused(saved.apply(str(clean), "F001"), "rescue_conflicts").message
    git(clean, "reset", "--quiet", "--hard", "main")
    ok(saved.apply(str(clean), "F001"))


def test_list_outside_a_repository_is_refused(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "empty")
    refused(saved.list_rescued(str(tmp_path / "empty")), "repository_not_found")
