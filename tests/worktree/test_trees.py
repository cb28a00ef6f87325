"""Worktrees of agents: where they are made, from what, and what happens to what was left in one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tenure.worktree import clearing, facts, saved, trees
from tenure.worktree.git import Git, GitFailed, environment, execute, is_revision, owner_of
from tests.support import ok, refused
from tests.worktree.repositories import commit, committed, contents, git, new_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return committed(tmp_path / "project", a="one\n")


def test_add_makes_a_sibling_on_the_agents_branch(repository: Path) -> None:
    tree = ok(trees.add(str(repository), agent_id="ada"))
    assert tree.path == str(repository) + ".worktrees/ada"
    assert (tree.branch, tree.created) == ("marcus/ada", True)
    assert tree.base == git(repository, "rev-parse", "main").strip()
    assert git(Path(tree.path), "symbolic-ref", "--short", "HEAD").strip() == "marcus/ada"
    assert trees.main_worktree(tree.path) == str(repository)
    assert trees.repository_of(tree.path) == str(repository / ".git")


def test_add_from_inside_another_worktree_finds_the_same_repository(repository: Path) -> None:
    first = ok(trees.add(str(repository), agent_id="ada"))
    second = ok(trees.add(first.path, agent_id="bob"))
    assert Path(second.path).parent == Path(first.path).parent


def test_add_again_uses_the_one_there_is(repository: Path) -> None:
    tree = ok(trees.add(str(repository), agent_id="ada"))
    commit(Path(tree.path), "work", b="two\n")
    again = ok(trees.add(str(repository), agent_id="ada"))
    assert (again.path, again.created) == (tree.path, False)
    assert (Path(tree.path) / "b").exists()


def test_add_again_saves_and_clears_what_was_left(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    (tree / "a").write_text("left\n")
    (tree / "new").write_text("left\n")
    (tree / "folder").mkdir()
    (tree / "folder" / "new").write_text("left\n")
    (tree / ".env").write_text("KEY=1\n")
    git(tree, "add", "new")
    left = contents(tree)
    ok(trees.add(str(repository), agent_id="ada"))
    assert git(tree, "status", "--porcelain").splitlines() == ["?? .env"], "what is not saved stays"
    (tree / ".env").unlink()
    ok(saved.apply(str(tree), "left-over.ada"))
    (tree / ".env").write_text("KEY=1\n")
    assert contents(tree) == left


def test_add_again_names_the_holding_it_was_left_by(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    (tree / "a").write_text("left\n")
    holding = clearing.Holding(agent_id="ada", task_id="F001", token=7)
    ok(trees.add(str(repository), agent_id="ada", holding=holding))
    assert ok(saved.find(str(tree), "F001/7")).agent_id == "ada"


def test_add_again_for_a_holder_leaves_its_work_alone(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    (tree / "a").write_text("mine\n")
    ok(trees.add(str(repository), agent_id="ada", keep=True))
    assert (tree / "a").read_text() == "mine\n"
    assert ok(saved.list_rescued(str(tree))) == []


def test_add_again_where_a_tracked_file_cannot_be_saved_is_refused(repository: Path) -> None:
    commit(repository, "secrets", **{"server.pem": "one\n"})
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    (tree / "server.pem").write_text("two\n")
    answer = refused(trees.add(str(repository), agent_id="ada"), "worktree_dirty")
    assert "server.pem" in answer.message
    assert (tree / "server.pem").read_text() == "two\n"


def test_add_again_during_a_merge_saves_and_refuses(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    commit(tree, "ours", a="ours\n")
    commit(repository, "theirs", a="theirs\n")
    git(tree, "merge", "main", check=False)
    answer = refused(trees.add(str(repository), agent_id="ada"), "worktree_dirty")
    assert "merge" in answer.message
    assert "merge --abort" in answer.next
    assert ok(saved.list_rescued(str(tree)))


def test_add_after_the_folder_was_deleted_checks_the_branch_out_anew(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    commit(tree, "work", b="two\n")
    git(repository, "worktree", "remove", str(tree))
    again = ok(trees.add(str(repository), agent_id="ada"))
    assert again.created
    assert (tree / "b").exists()


@pytest.mark.parametrize("detached", [False, True])
def test_add_after_the_folder_was_deleted_by_hand_drops_its_record(repository: Path, detached: bool) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    if detached:
        git(tree, "checkout", "--quiet", "--detach")
    shutil.rmtree(tree)
    assert ok(trees.add(str(repository), agent_id="ada")).created
    assert (tree / "a").exists()


def test_add_leaves_the_records_of_others_alone(repository: Path) -> None:
    """To git, what another agent is making at this moment can look like something that is gone."""
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    shutil.rmtree(tree)
    ok(trees.add(str(repository), agent_id="bob"))
    assert str(tree) in git(repository, "worktree", "list")


def test_add_from_a_named_base(repository: Path) -> None:
    commit(repository, "second", a="two\n")
    tree = ok(trees.add(str(repository), agent_id="ada", base="main~1", path=str(repository.parent / "here")))
    assert (Path(tree.path).name, (Path(tree.path) / "a").read_text()) == ("here", "one\n")


@pytest.mark.parametrize("base", ["-x", "--upload-pack=x", "", " ", "a\nb", "nothing", "main..main", "HEAD^{tree}"])
def test_add_from_a_base_that_is_none_is_refused(repository: Path, base: str) -> None:
    answer = trees.add(str(repository), agent_id="ada", base=base)
    if base:
        refused(answer, "invalid_argument")
        assert "ada" not in git(repository, "branch")


@pytest.mark.parametrize("agent_id", ["-x", "..", "a/b", "a\nb", "", "a..b", "x.lock", ".x", "a b", "é"])
def test_add_for_an_id_that_could_be_something_else_is_refused(repository: Path, agent_id: str) -> None:
    refused(trees.add(str(repository), agent_id=agent_id), "invalid_argument")
    assert len(trees.worktrees(str(repository))) == 1


def test_add_where_something_else_is_refuses_and_leaves_it(repository: Path) -> None:
    place = Path(f"{repository}.worktrees") / "ada"
    place.mkdir(parents=True)
    (place / "mine").write_text("x\n")
    refused(trees.add(str(repository), agent_id="ada"), "worktree_exists")
    assert (place / "mine").exists()


def test_add_where_the_branch_is_in_the_main_worktree_is_refused(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "marcus/ada")
    refused(trees.add(str(repository), agent_id="ada"), "worktree_exists")


def test_add_to_an_unborn_branch_is_refused_with_the_way_out(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "empty")
    assert "git commit" in refused(trees.add(str(repository), agent_id="ada"), "repository_not_found").next


def test_add_outside_a_repository_is_refused(tmp_path: Path) -> None:
    refused(trees.add(str(tmp_path), agent_id="ada"), "repository_not_found")
    assert trees.repository_of(str(tmp_path)) is None
    assert trees.main_worktree(str(tmp_path)) is None


def test_add_to_a_bare_repository_works(tmp_path: Path, repository: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "shared.git")
    tree = ok(trees.add(str(tmp_path / "shared.git"), agent_id="ada"))
    assert tree.path == str(tmp_path / "shared.worktrees" / "ada")
    assert trees.main_worktree(tree.path) is None
    assert facts.base_of(tree.path) == "main"


def test_add_from_a_detached_main_worktree_begins_at_its_commit(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    assert ok(trees.add(str(repository), agent_id="ada")).base == git(repository, "rev-parse", "HEAD").strip()


# -- removing ---------------------------------------------------------------------------------------------------------


def test_remove_saves_what_is_uncommitted_and_keeps_the_branch(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    commit(tree, "unmerged", b="two\n")
    (tree / "c").write_text("uncommitted\n")
    done = ok(clearing.remove(str(tree), clearing.left_over("ada")))
    assert not tree.exists()
    assert git(repository, "show", f"{done.ref}:c") == "uncommitted\n"
    assert git(repository, "show", "marcus/ada:b") == "two\n"


def test_remove_with_files_that_are_not_saved_is_refused_but_by_force(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    (tree / ".env").write_text("KEY=1\n")
    refused(clearing.remove(str(tree), clearing.left_over("ada")), "worktree_dirty")
    assert tree.exists()
    ok(clearing.remove(str(tree), clearing.left_over("ada"), force=True))
    assert not tree.exists()


def test_remove_with_commits_on_no_branch_keeps_them(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    git(tree, "checkout", "--quiet", "--detach")
    commit(tree, "on no branch", b="two\n")
    head = git(tree, "rev-parse", "HEAD").strip()
    done = ok(clearing.remove(str(tree), clearing.left_over("ada")))
    assert head in git(repository, "log", "--format=%H", done.ref).split()


# -- running git ------------------------------------------------------------------------------------------------------


def test_execute_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(GitFailed, match="took longer"):
        execute(["sleep", "60"], owner=owner_of(str(tmp_path)), timeout_s=0.2)


def test_execute_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitFailed, match="not installed"):
        Git(str(tmp_path)).ask("version")


def test_environment_holds_nothing_that_steers_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steering = (
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_EXTERNAL_DIFF",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
    )
    for name in steering:
        monkeypatch.setenv(name, "x")
    made = environment(owner_of(str(tmp_path)))
    assert not set(steering) & set(made)
    assert made["GIT_TERMINAL_PROMPT"] == "0"


@pytest.mark.parametrize(
    ("word", "good"), [("main", True), ("HEAD~1", True), ("-x", False), ("", False), ("a\n", False)]
)
def test_is_revision_takes_no_option(word: str, good: bool) -> None:
    assert is_revision(word) is good


# -- what git shows ---------------------------------------------------------------------------------------------------


def test_show_commits_diffstat_and_a_clean_merge(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    commit(tree, "first", b="two\n")
    commit(tree, "second", c="three\n")
    commit(repository, "meanwhile", d="four\n")
    seen = facts.show(str(tree), "marcus/ada")
    assert [line.partition(" ")[2] for line in seen["commits"]] == ["second", "first"]
    assert (seen["ahead"], seen["base"], seen["merge"]) == (2, "main", "clean")
    assert "2 files changed" in seen["diffstat"]
    assert seen["head"] == git(tree, "rev-parse", "HEAD").strip()


def test_show_a_merge_that_would_conflict_names_the_files(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    commit(tree, "ours", a="ours\n", b="same\n")
    commit(repository, "theirs", a="theirs\n")
    seen = facts.show(str(tree), "marcus/ada")
    assert (seen["merge"], seen["conflicts"]) == ("conflicts", ["a"])


def test_show_writes_nothing_into_the_repository(repository: Path) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    commit(tree, "ours", a="ours\n")
    commit(repository, "theirs", b="theirs\n")
    before = sorted((repository / ".git").rglob("*"))
    facts.show(str(tree), "marcus/ada")
    assert sorted((repository / ".git").rglob("*")) == before


def test_show_with_everything_merged_has_no_commits(repository: Path) -> None:
    tree = ok(trees.add(str(repository), agent_id="ada")).path
    seen = facts.show(tree, "marcus/ada")
    assert (seen["commits"], seen["ahead"]) == ([], 0)


def test_show_a_branch_that_is_not_there_says_so(repository: Path) -> None:
    assert facts.show(str(repository), "marcus/bob") == {"notes": ["There is no branch marcus/bob in this repository."]}


def test_show_with_an_old_git_has_no_preview_and_says_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    commit(tree, "ours", b="two\n")
    monkeypatch.setattr(facts, "version", lambda folder: (2, 37))
    seen = facts.show(str(tree), "marcus/ada")
    assert "merge" not in seen
    assert "2.38" in seen["notes"][0]
    assert seen["diffstat"]


def test_show_unrelated_histories_has_no_preview_and_says_why(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--orphan", "marcus/ada")
    commit(repository, "another history", z="z\n")
    git(repository, "checkout", "--quiet", "main")
    seen = facts.show(str(repository), "marcus/ada")
    assert seen["commits"]
    assert "No merge preview" in seen["notes"][0]


def test_show_runs_no_driver_of_the_repository(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    tree = Path(ok(trees.add(str(repository), agent_id="ada")).path)
    (tree / ".gitattributes").write_text("* merge=evil diff=evil\n")
    commit(tree, "ours", a="ours\n")
    (repository / ".gitattributes").write_text("* merge=evil diff=evil\n")
    commit(repository, "theirs", a="theirs\n")
    for name in ("merge.evil.driver", "diff.evil.command", "diff.evil.textconv", "diff.external", "core.pager"):
        git(repository, "config", name, f"touch {trap}")
    seen = facts.show(str(tree), "marcus/ada")
    assert seen["merge"] == "conflicts"
    assert not trap.exists()
    git(tree, "merge", "main", check=False)
    assert trap.exists(), "the trap works"
