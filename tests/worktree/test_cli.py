"""`tenure worktree` and `tenure rescue`, as their users have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenure.engine import agents
from tenure.store.sqlite import SqliteStore
from tests.cli.shell import envelope
from tests.support import ok
from tests.worktree.conftest import Scene
from tests.worktree.repositories import commit, git


def test_worktree_list_tells_who_works_where_and_what_is_in_it(scene: Scene) -> None:
    scene.claimed()
    commit(scene.bob, "unmerged", c="three\n")
    scene.desk.ok("agent", "join", "--id", "bob", folder=scene.bob)
    rows = scene.desk.data("worktree", "list")["worktrees"]
    assert [(Path(row["path"]).name, row["agents"], row["tasks"], row["dirty"], row["merged"]) for row in rows] == [
        ("project", [], [], False, True),
        ("ada", ["ada"], ["F001"], True, True),
        ("bob", ["bob"], [], False, False),
    ]
    text = scene.desk.ok("worktree", "list").out
    assert "ada (F001)" in text
    assert "uncommitted work" in text
    assert "unmerged commits" in text


def test_worktree_add_uses_the_settings(scene: Scene) -> None:
    scene.desk.ok("config", "set", "tenure.worktree_path", "../trees")
    scene.desk.ok("config", "set", "tenure.branch_prefix", "agents/")
    git(scene.repository, "branch", "develop")
    scene.desk.ok("config", "set", "tenure.base_branch", "develop")
    made = scene.desk.data("worktree", "add", "cid")
    assert (made["path"], made["branch"]) == (str(scene.repository.parent / "trees" / "cid"), "agents/cid")


def test_worktree_add_again_after_a_loss_saves_what_was_left_as_that_tasks(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    scene.desk.data("next", "--agent", "bob", folder=scene.bob)
    (scene.ada / "late").write_text("later\n")
    scene.desk.ok("worktree", "add", "ada")
    assert git(scene.ada, "status", "--porcelain") == ""
    rescues = scene.desk.data("rescue", "list")["rescues"]
    assert [one["task_id"] for one in rescues] == ["F001"], "one ref, of the task that it was done for"
    files = scene.desk.data("rescue", "show", "F001")["files"]
    assert [one["path"] for one in files] == ["a", "late", "new"]


def test_worktree_add_again_for_a_live_holder_leaves_its_work_alone(scene: Scene) -> None:
    scene.claimed()
    scene.desk.ok("worktree", "add", "ada")
    assert (scene.ada / "a").read_text() == "changed by ada\n"


def test_worktree_remove_of_a_live_holders_is_refused(scene: Scene) -> None:
    scene.claimed()
    error = scene.desk.refused(7, "worktree", "remove", "ada")
    assert error["code"] == "worktree_held"
    assert "ada (F001)" in error["message"]
    assert scene.ada.exists()


def test_worktree_remove_of_a_linked_agents_is_refused(scene: Scene) -> None:
    scene.desk.ok("agent", "join", "--id", "ada", folder=scene.ada)
    store = SqliteStore(str(scene.desk.store), clock=scene.desk.clock)
    ok(agents.link_up(store, agent_id="ada", kind="run"))
    store.close()
    assert scene.desk.refused(7, "worktree", "remove", "ada")["code"] == "worktree_held"


@pytest.mark.parametrize("word", ["ada", "marcus/ada", "path"])
def test_worktree_remove_saves_first_and_keeps_the_branch(scene: Scene, word: str) -> None:
    scene.claimed()
    commit(scene.ada, "mine")
    (scene.ada / "late").write_text("x\n")
    scene.desk.ok("task", "done", "F001", "--agent", "ada", folder=scene.ada)
    done = scene.desk.data("worktree", "remove", str(scene.ada) if word == "path" else word)
    assert not scene.ada.exists()
    assert git(scene.repository, "show", f"{done['rescue_ref']}:late") == "x\n"
    assert git(scene.repository, "show", "marcus/ada:new") == "new\n"


def test_worktree_remove_of_the_main_one_or_an_unknown_one_is_refused(scene: Scene) -> None:
    assert scene.desk.refused(7, "worktree", "remove", ".")["code"] == "worktree_held"
    assert scene.desk.refused(3, "worktree", "remove", "nobody")["code"] == "worktree_not_found"


def test_worktree_remove_with_files_that_are_not_saved_needs_force(scene: Scene) -> None:
    (scene.ada / ".env").write_text("KEY=1\n")
    assert ".env" in scene.desk.refused(7, "worktree", "remove", "ada")["message"]
    assert scene.ada.exists()
    scene.desk.ok("worktree", "remove", "ada", "--force")
    assert not scene.ada.exists()


def test_worktree_prune_removes_only_what_is_merged_clean_and_free(scene: Scene) -> None:
    scene.claimed()
    commit(scene.bob, "unmerged", c="three\n")
    cid = Path(scene.desk.data("worktree", "add", "cid")["path"])
    (cid / "new").write_text("uncommitted\n")
    dan = Path(scene.desk.data("worktree", "add", "dan")["path"])
    told = scene.desk.data("worktree", "prune")
    assert [Path(one["path"]).name for one in told["removed"]] == ["dan"]
    assert {Path(one["path"]).name: one["why"].partition(" (--all")[0] for one in told["kept"]} == {
        "ada": "ada (F001) works there",
        "bob": "it holds unmerged commits",
        "cid": "it holds uncommitted work",
    }
    assert not dan.exists()
    told = scene.desk.data("worktree", "prune", "--all")
    assert sorted(Path(one["path"]).name for one in told["removed"]) == ["bob", "cid"]
    assert scene.ada.exists()
    assert git(scene.repository, "show", "marcus/bob:c") == "three\n"
    assert git(scene.repository, "show", "refs/tenure/rescue/left-over.cid/0:new") == "uncommitted\n"


def test_rescue_commands_list_show_apply_and_drop(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    scene.taken()
    (listed,) = scene.desk.data("rescue", "list", "F001")["rescues"]
    assert (listed["task_id"], listed["agent_id"]) == ("F001", "ada")
    assert scene.desk.data("rescue", "list", "F002")["rescues"] == []
    shown = scene.desk.ok("rescue", "show", "F001", "--patch", folder=scene.bob).out
    assert "M a\nA new\n" in shown
    assert "+changed by ada" in shown
    applied = scene.desk.ok("rescue", "apply", listed["name"], folder=scene.bob)
    assert "Brought in 2 files" in applied.out
    assert (scene.bob / "new").read_text() == "new\n"
    assert scene.desk.refused(7, "rescue", "apply", listed["name"], folder=scene.bob)["code"] == "worktree_dirty"
    dropped = scene.desk.data("rescue", "drop", listed["name"], folder=scene.bob)
    assert dropped["commit"] == listed["commit"]
    assert scene.desk.refused(3, "rescue", "show", "F001")["code"] == "rescue_not_found"


def test_rescue_commands_need_no_store(scene: Scene, tmp_path: Path) -> None:
    scene.claimed()
    scene.lapse()
    scene.taken()
    scene.desk.store = tmp_path / "nowhere.db"
    assert scene.desk.data("rescue", "list")["rescues"]


@pytest.mark.parametrize(
    "words", ["worktree list", "worktree add cid", "worktree remove ada", "worktree prune", "rescue list"]
)
def test_json_of_git_commands_is_one_envelope(scene: Scene, words: str) -> None:
    ran = scene.desk.ok(*words.split(), "--json")
    assert envelope(ran.out)["ok"] is True
    assert ran.err == ""


@pytest.mark.parametrize("words", ["worktree list", "worktree add cid", "rescue list", "rescue apply F001"])
def test_git_commands_outside_a_repository_are_refused(scene: Scene, tmp_path: Path, words: str) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    error = scene.desk.refused(3, *words.split(), folder=folder)
    assert error["code"] == "repository_not_found"
    assert json.dumps(error)


@pytest.mark.parametrize("word", ["..", "a/b", "a b", "x.lock"])
def test_worktree_add_of_an_id_that_could_be_something_else_is_refused(scene: Scene, word: str) -> None:
    assert scene.desk.refused(2, "worktree", "add", word)["code"] == "invalid_argument"
