"""Rescue: what it saves, what it leaves alone, and what it never runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.core.errors import Refused
from tenure.worktree import rescue, saved
from tenure.worktree.git import owner_of
from tenure.worktree.rescue import Caps, Saved
from tests.support import ok, refused
from tests.worktree.repositories import commit, committed, contents, git, new_repository, state

REF = "refs/tenure/rescue/F001/7"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with a commit."""
    return committed(tmp_path / "source", a="one\n", b="two\n")


def save(folder: Path, **more: object) -> Saved:
    """A rescue that must succeed and leave no trace in the worktree."""
    before = state(folder)
    made = ok(rescue.save(str(folder), task_id="F001", token=7, agent_id="a1", **more))  # type: ignore[arg-type]
    assert state(folder) == before
    return made


def shown(folder: Path, path: str, ref: str = REF) -> str:
    return git(folder, "show", f"{ref}:{path}")


def tree(folder: Path, ref: str = REF) -> dict[str, str]:
    """Path to mode."""
    lines = git(folder, "ls-tree", "-r", "-z", ref).split("\0")
    return {line.partition("\t")[2]: line.split(" ")[0] for line in lines if line}


def test_save_a_clean_worktree_makes_no_ref(source: Path) -> None:
    assert save(source) == Saved(base=git(source, "rev-parse", "HEAD").strip())
    assert git(source, "for-each-ref", "refs/tenure") == ""


def test_save_every_kind_of_change_has_it_in_one_commit(source: Path) -> None:
    commit(source, "more", gone="x\n", renamed="r\n" * 20, mode="#!\n")
    (source / "a").write_text("changed\n")
    (source / "gone").unlink()
    git(source, "mv", "renamed", "moved")
    (source / "mode").chmod(0o755)
    (source / "binary").write_bytes(bytes(range(256)))
    os.symlink("nowhere", source / "link")
    (source / "folder").mkdir()
    (source / "folder" / "new").write_text("new\n")
    git(source, "add", "--intent-to-add", "folder/new")
    made = save(source)
    assert (made.ref, made.left) == (REF, ())
    assert tree(source) == {
        "a": "100644",
        "b": "100644",
        "binary": "100644",
        "folder/new": "100644",
        "link": "120000",
        "mode": "100755",
        "moved": "100644",
    }
    assert shown(source, "a") == "changed\n"
    assert shown(source, "folder/new") == "new\n"
    assert (
        git(source, "diff", "--name-only", f"{REF}^", REF).split()
        == git(source, "diff", "--name-only", "HEAD", REF).split()
    )
    assert git(source, "log", "-1", "--format=%an %s", REF).strip() == "a1 Uncommitted work of a1 on F001"


def test_save_what_was_staged_and_then_changed_keeps_both(source: Path) -> None:
    (source / "a").write_text("staged\n")
    (source / "only").write_text("staged only\n")
    git(source, "add", "--all")
    (source / "a").write_text("then changed\n")
    (source / "only").unlink()
    save(source)
    assert shown(source, "a") == "then changed\n"
    found = ok(saved.find(str(source), "F001"))
    assert found.staged is not None
    assert git(source, "show", f"{found.staged}:a") == "staged\n"
    assert git(source, "show", f"{found.staged}:only") == "staged only\n"
    # Reachable from the ref, so that git never collects it.
    assert found.staged in git(source, "log", "--format=%T", REF)


def test_save_a_change_in_the_second_of_the_checkout_is_not_missed(source: Path) -> None:
    """Same size, same second: only the content tells, and only as long as the index is not taken for younger."""
    git(source, "config", "core.trustctime", "false")
    git(source, "config", "core.checkStat", "minimal")
    moment = 1_700_000_000
    os.utime(source / "a", (moment, moment))
    git(source, "update-index", "--refresh")
    (source / "a").write_text("eno\n")
    for path in (source / "a", source / ".git" / "index"):
        os.utime(path, (moment, moment))
    assert save(source).ref == REF
    assert shown(source, "a") == "eno\n"


def test_save_ignored_files_are_left_out(source: Path) -> None:
    (source / ".gitignore").write_text("*.log\n")
    (source / ".git" / "info" / "exclude").write_text("local\n")
    for name in ("x.log", "local", "kept"):
        (source / name).write_text("x\n")
    save(source)
    assert sorted(tree(source)) == [".gitignore", "a", "b", "kept"]


def test_save_again_without_a_change_adds_nothing(source: Path) -> None:
    (source / "a").write_text("changed\n")
    first = save(source)
    again = save(source)
    assert (again.commit, again.again) == (first.commit, True)


def test_save_again_after_a_change_is_a_further_commit_on_the_ref(source: Path) -> None:
    (source / "a").write_text("changed\n")
    first = save(source)
    (source / "new").write_text("later\n")
    second = save(source)
    assert second.commit != first.commit
    assert git(source, "rev-parse", f"{REF}^").strip() == git(source, "rev-parse", "HEAD").strip()
    assert first.commit in git(source, "log", "--format=%H", REF).split()
    assert shown(source, "new") == "later\n"


def test_save_again_after_the_holder_committed_stands_on_its_commit(source: Path) -> None:
    (source / "a").write_text("changed\n")
    first = save(source)
    git(source, "commit", "--quiet", "--all", "-m", "I am alive")
    (source / "b").write_text("more\n")
    save(source)
    assert git(source, "diff", "--name-only", f"{REF}^", REF).split() == ["b"]
    assert first.commit in git(source, "log", "--format=%H", REF).split()


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "id_rsa", "server.pem", "deploy/.npmrc", ".aws/config", "credentials.json"]
)
def test_save_secret_looking_names_are_listed_and_not_saved(source: Path, name: str) -> None:
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).write_text("key=1\n")
    (source / "a").write_text("changed\n")
    made = save(source)
    assert made.left == ((name, "its name looks secret"),)
    assert sorted(tree(source)) == ["a", "b"]


def test_save_a_staged_secret_is_not_saved_either(source: Path) -> None:
    (source / ".env").write_text("key=1\n")
    git(source, "add", "--all")
    (source / "a").write_text("changed\n")
    made = save(source)
    assert made.left == ((".env", "its name looks secret"),)
    assert ".env" not in git(source, "log", "--all", "--name-only", "--format=", "-m", REF)


def test_save_a_staged_secret_in_a_repository_of_longer_names_costs_nothing_else(tmp_path: Path) -> None:
    source = commit(new_repository(tmp_path / "source", "--object-format=sha256"), "start", a="one\n")
    (source / ".env").write_text("key=1\n")
    git(source, "add", "--all")
    (source / "a").write_text("changed\n")
    made = save(source)
    assert made.left == ((".env", "its name looks secret"),)
    assert shown(source, "a") == "changed\n"
    assert sorted(tree(source)) == ["a"]


@pytest.mark.parametrize("name", [".env.example", "id_rsa.pub", "keyboard.md", "environment.py"])
def test_save_harmless_names_are_saved(source: Path, name: str) -> None:
    (source / name).write_text("x\n")
    assert save(source).left == ()
    assert name in tree(source)


def test_save_large_files_are_listed_and_not_saved(source: Path) -> None:
    (source / "large").write_bytes(b"x" * (2 << 20))
    (source / "small").write_text("x\n")
    made = save(source, caps=Caps(file_bytes=1 << 20))
    assert made.left == (("large", "it is larger than 1 MB"),)
    assert sorted(tree(source)) == ["a", "b", "small"]


def test_save_more_than_the_cap_saves_the_smallest_first(source: Path) -> None:
    for name, size in (("first", 900), ("second", 10), ("third", 800)):
        (source / name).write_bytes(b"x" * size)
    made = save(source, caps=Caps(total_bytes=1_000))
    assert [name for name, _ in made.left] == ["first"]
    assert sorted(tree(source)) == ["a", "b", "second", "third"]


def test_save_a_file_that_cannot_be_read_saves_the_rest(source: Path) -> None:
    for number in range(5):
        (source / f"file{number}").write_text("x\n")
    os.mkfifo(source / "pipe")
    git(source, "add", "file2")
    (source / "file2").unlink()
    os.mkfifo(source / "file2")
    made = save(source)
    assert {name for name, _ in made.left} <= {"pipe", "file2"}
    assert {"file0", "file1", "file3", "file4"} <= set(tree(source))


# -- what must not run ------------------------------------------------------------------------------------------------


def hostile(folder: Path, trap: Path) -> None:
    """Everything in a repository that can name a program, set to leave a mark."""
    act = f"touch {trap}"
    for name, value in {
        "filter.evil.clean": f"{act}; cat",
        "filter.evil.smudge": f"{act}; cat",
        "filter.evil.process": act,
        "filter.evil.required": "true",
        "diff.evil.command": act,
        "diff.evil.textconv": act,
        "merge.evil.driver": act,
        "core.fsmonitor": act,
        "core.pager": act,
        "core.editor": act,
        "core.sshCommand": act,
        "core.alternateRefsCommand": act,
        "diff.external": act,
        "gpg.program": act,
        "commit.gpgSign": "true",
        "credential.helper": f"!{act}",
        "uploadpack.packObjectsHook": act,
    }.items():
        git(folder, "config", name, value)
    hooks = Path(git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()) / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-index-change", "pre-commit", "post-checkout", "pre-auto-gc"):
        (hooks / name).write_text(f"#!/bin/sh\n{act}\n")
        (hooks / name).chmod(0o755)
    (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil text eol=crlf ident\n")


def test_save_and_apply_run_no_program_of_a_hostile_worktree(tmp_path: Path) -> None:
    source = committed(tmp_path / "source", a="one\n", b="two\n")
    clean = tmp_path / "clean"
    git(source, "worktree", "add", "--quiet", "--detach", str(clean))
    trap = tmp_path / "trap"
    hostile(source, trap)
    (source / "a").write_text("changed\n$Id$\n")
    (source / "new").write_text("new\n")
    git(source, "config", "--unset", "core.fsmonitor")
    # The traps work: a person's own git falls into them.
    git(source, "add", "--dry-run", "a", check=False)
    git(source, "add", "a", check=False)
    assert trap.exists()
    trap.unlink()
    git(source, "config", "core.fsmonitor", f"touch {trap}")
    made = rescue.save(str(source), task_id="F001", token=7, agent_id="a1")
    again = rescue.save(str(source), task_id="F001", token=8, agent_id="a1")
    listed = ok(saved.list_rescued(str(source)))
    seen = saved.show(str(source), "F001", patch=True)
    brought = saved.apply(str(clean), "F001")
    assert not any(isinstance(answer, Refused) for answer in (made, again, listed, seen, brought))
    assert not trap.exists()
    assert contents(clean) == contents(source)
    commit_of_ours = ok(saved.drop(str(source), "F001/8"))
    assert commit_of_ours.token == 8
    assert not trap.exists()


def test_save_nothing_outside_its_own_refs_is_written(source: Path) -> None:
    (source / "a").write_text("changed\n")
    before = sorted(path for path in (source / ".git").rglob("*") if "objects" not in path.parts)
    save(source)
    after = sorted(path for path in (source / ".git").rglob("*") if "objects" not in path.parts)
    assert {path.relative_to(source / ".git").parts[:3] for path in set(after) - set(before)} == {
        ("refs", "tenure"),
        ("refs", "tenure", "rescue"),
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become somebody else")
def test_save_as_the_superuser_runs_as_the_owner_of_the_worktree(open_path: Path) -> None:
    source = committed(open_path / "source", a="one\n")
    for path in (source, *source.rglob("*")):
        os.chown(path, 65_534, 65_534, follow_symlinks=False)
    (source / "a").write_text("changed\n")
    secret = open_path / "root-only"
    secret.write_text("for root alone\n")
    secret.chmod(0o600)
    # A name that points to what only the superuser may read is stored as a link, and never followed.
    os.symlink(secret, source / "link")
    assert owner_of(str(source)).switch
    made = ok(rescue.save(str(source), task_id="F001", token=7, agent_id="a1"))
    assert made.ref == REF
    owners = {os.lstat(path).st_uid for path in (source / ".git").rglob("*")}
    assert owners == {65_534}, "objects and refs belong to the worktree's owner"


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become somebody else")
def test_save_as_the_superuser_reads_no_index_that_its_owner_cannot(open_path: Path) -> None:
    source = committed(open_path / "source", a="one\n")
    secret = open_path / "root-only"
    secret.write_bytes((source / ".git" / "index").read_bytes())
    secret.chmod(0o600)
    (source / ".git" / "index").unlink()
    os.symlink(secret, source / ".git" / "index")
    for path in (source, *source.rglob("*")):
        os.chown(path, 65_534, 65_534, follow_symlinks=False)
    refused(rescue.save(str(source), task_id="F001", token=7, agent_id="a1"), "git_failed")


# -- unusual repositories ---------------------------------------------------------------------------------------------


def test_save_a_bare_repository_is_refused(tmp_path: Path) -> None:
    bare = new_repository(tmp_path / "bare.git", "--bare")
    answer = rescue.save(str(bare), task_id="F001", token=7, agent_id="a1")
    assert "bare" in refused(answer, "worktree_not_found").message


def test_save_outside_any_repository_is_refused(tmp_path: Path) -> None:
    refused(rescue.save(str(tmp_path), task_id="F001", token=7, agent_id="a1"), "repository_not_found")


def test_save_a_worktree_that_is_gone_is_refused(tmp_path: Path) -> None:
    refused(rescue.save(str(tmp_path / "gone"), task_id="F001", token=7, agent_id="a1"), "worktree_not_found")


def test_save_an_unborn_branch_has_no_parent(tmp_path: Path) -> None:
    source = new_repository(tmp_path / "source")
    (source / "first").write_text("x\n")
    (source / "second").write_text("y\n")
    git(source, "add", "second")
    assert save(source).base is None
    assert sorted(tree(source)) == ["first", "second"]
    assert "Tenure-Base: none" in git(source, "log", "-1", "--format=%B", REF)
    clone = new_repository(tmp_path / "clone")
    git(clone, "fetch", "--quiet", str(source), f"{REF}:{REF}")
    ok(saved.apply(str(clone), "F001"))
    assert contents(clone) == contents(source)


def test_save_a_detached_head_stands_on_its_commit(source: Path) -> None:
    git(source, "checkout", "--quiet", "--detach")
    commit(source, "on no branch", c="three\n")
    (source / "c").write_text("changed\n")
    made = save(source)
    assert made.base == git(source, "rev-parse", "HEAD").strip()
    assert git(source, "rev-parse", f"{REF}^").strip() == made.base


def test_save_during_a_conflicting_rebase_saves_the_files_as_they_are(source: Path) -> None:
    git(source, "checkout", "--quiet", "-b", "side")
    commit(source, "side", a="side\n")
    git(source, "checkout", "--quiet", "main")
    commit(source, "main", a="main\n", c="three\n")
    git(source, "checkout", "--quiet", "side")
    git(source, "rebase", "main", check=False)
    assert (source / ".git" / "rebase-merge").exists()
    (source / "c").unlink()
    assert save(source).ref == REF
    assert "<<<<<<<" in shown(source, "a")
    assert sorted(tree(source)) == ["a", "b"]


@pytest.mark.parametrize("resolution", ["deleted", "secret"])
def test_save_a_conflict_whose_file_is_not_saved_still_writes_a_tree(source: Path, resolution: str) -> None:
    name = ".env" if resolution == "secret" else "c"
    commit(source, "start", **{name: "one\n"})
    git(source, "checkout", "--quiet", "-b", "side")
    commit(source, "side", **{name: "side\n"})
    git(source, "checkout", "--quiet", "main")
    commit(source, "main", **{name: "main\n"})
    git(source, "merge", "side", check=False)
    if resolution == "deleted":
        (source / name).unlink()
    (source / "a").write_text("changed\n")
    save(source)
    assert (name in tree(source)) is (resolution == "secret")
    if resolution == "secret":
        assert shown(source, name) == "main\n"


def test_save_a_submodule_records_its_commit_and_tells_what_is_dirty_inside(tmp_path: Path) -> None:
    library = committed(tmp_path / "library", x="one\n")
    source = committed(tmp_path / "source", a="one\n")
    git(source, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(library), "lib")
    commit(source, "with a submodule")
    trap = tmp_path / "trap"
    commit(source / "lib", "further", x="two\n")
    git(source / "lib", "config", "core.fsmonitor", f"touch {trap}")
    (source / "lib" / "x").write_text("uncommitted\n")
    made = ok(rescue.save(str(source), task_id="F001", token=7, agent_id="a1"))
    assert made.left == (("lib", "it is a submodule with uncommitted work"),)
    assert not trap.exists()
    git(source / "lib", "config", "--unset", "core.fsmonitor")
    assert git(source, "ls-tree", REF, "lib").split()[2] == git(source / "lib", "rev-parse", "HEAD").strip()
    # A submodule is a worktree like any other when an agent works inside it.
    assert save(source / "lib").ref == REF


def test_save_a_repository_inside_the_worktree_is_listed(source: Path) -> None:
    committed(source / "inner", x="one\n")
    (source / "a").write_text("changed\n")
    assert save(source).left == (("inner", "it is a repository of its own"),)
    assert sorted(tree(source)) == ["a", "b"]


def test_save_a_split_index_is_read(source: Path) -> None:
    git(source, "update-index", "--split-index")
    (source / "a").write_text("changed\n")
    git(source, "add", "a")
    (source / "c").write_text("new\n")
    save(source)
    assert sorted(tree(source)) == ["a", "b", "c"]


def test_save_a_shallow_clone_works(tmp_path: Path, source: Path) -> None:
    commit(source, "second", a="two\n")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{source}", "shallow")
    shallow = tmp_path / "shallow"
    (shallow / "a").write_text("changed\n")
    assert save(shallow).ref == REF


def test_save_a_sparse_checkout_does_not_take_absent_files_for_deleted(source: Path) -> None:
    (source / "folder").mkdir()
    (source / "folder" / "x").write_text("x\n")
    commit(source, "folder")
    git(source, "sparse-checkout", "set", "--cone", "nothing")
    assert not (source / "folder").exists()
    (source / "a").write_text("changed\n")
    save(source)
    assert "folder/x" in tree(source)


def test_save_names_that_are_not_text_survive(source: Path, tmp_path: Path) -> None:
    name = os.fsencode(source) + b"/caf\xe9\n'\""
    with open(name, "wb") as file:
        file.write(b"x\n")
    clean = tmp_path / "clean"
    git(source, "worktree", "add", "--quiet", "--detach", str(clean))
    save(source)
    ok(saved.apply(str(clean), "F001"))
    assert contents(clean) == contents(source)


@pytest.mark.parametrize("task_id", ["-x", "..", "a/b", "a\nb", "a..b", "", "x.lock", "a b"])
def test_save_with_an_id_that_could_be_something_else_is_refused(source: Path, task_id: str) -> None:
    (source / "a").write_text("changed\n")
    refused(rescue.save(str(source), task_id=task_id, token=7, agent_id="a1"), "invalid_argument")
    assert git(source, "for-each-ref", "refs/tenure") == ""
