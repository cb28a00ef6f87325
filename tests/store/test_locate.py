"""Every worktree of a repository finds the same store, without running git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tenure.store.locate import git_common_dir, store_location


def git(directory: Path, *arguments: str) -> str:
    """Run git, free of this user's configuration."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "T",
        "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "T",
        "GIT_COMMITTER_EMAIL": "t@example.org",
    }
    command = ["git", "-C", str(directory), "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.strip()


def gits_own(directory: Path) -> str:
    """Where git itself says the common directory is."""
    return git(directory, "rev-parse", "--path-format=absolute", "--git-common-dir")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


@pytest.fixture
def repository(root: Path) -> Path:
    """A repository with one commit."""
    directory = root / "repo"
    directory.mkdir()
    git(directory, "init", "-q", "-b", "main")
    git(directory, "commit", "-q", "--allow-empty", "-m", "First")
    return directory


def found(start: Path, **environ: str) -> str | None:
    return store_location(None, environ, str(start))


def test_locate_in_the_main_worktree_finds_the_git_directory(repository: Path) -> None:
    assert found(repository) == str(repository / ".git" / "tenure" / "tenure.db")
    assert git_common_dir(str(repository), {}) == gits_own(repository)


def test_locate_in_a_subfolder_finds_the_same_store(repository: Path) -> None:
    deep = repository / "src" / "deep"
    deep.mkdir(parents=True)
    assert found(deep) == found(repository)


def test_locate_inside_the_git_directory_finds_the_same_store(repository: Path) -> None:
    assert found(repository / ".git") == found(repository)
    assert found(repository / ".git" / "refs") == found(repository)


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_locate_in_a_linked_worktree_finds_the_main_ones_store(repository: Path, place: str) -> None:
    linked = repository / "trees" / "a1" if place == "inside" else repository.parent / "a1"
    git(repository, "worktree", "add", "-q", "-b", "marcus/a1", str(linked))
    (linked / "src").mkdir()
    assert found(linked) == found(repository)
    assert found(linked / "src") == found(repository)
    assert git_common_dir(str(linked), {}) == gits_own(linked)
    assert git_common_dir(gits_own(linked) + "/worktrees/a1", {}) == gits_own(linked)


def test_locate_in_a_submodule_finds_its_own_store(repository: Path, root: Path) -> None:
    library = root / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    git(library, "commit", "-q", "--allow-empty", "-m", "First")
    git(repository, "submodule", "--quiet", "add", str(library), "lib")
    submodule = repository / "lib"
    assert (submodule / ".git").is_file()
    assert git_common_dir(str(submodule), {}) == gits_own(submodule)
    assert found(submodule) == str(repository / ".git" / "modules" / "lib" / "tenure" / "tenure.db")


def test_locate_in_a_bare_repository_and_its_worktree_finds_one_store(repository: Path, root: Path) -> None:
    bare = root / "bare.git"
    git(root, "clone", "-q", "--bare", str(repository), str(bare))
    linked = root / "linked"
    git(bare, "worktree", "add", "-q", "-b", "marcus/a1", str(linked))
    assert found(bare) == str(bare / "tenure" / "tenure.db")
    assert found(linked) == found(bare)


def test_locate_past_a_stray_git_folder_goes_on_upward_as_git_does(repository: Path) -> None:
    """Container tools leave empty .git folders behind."""
    stray = repository / "mounted"
    (stray / ".git").mkdir(parents=True)
    assert git_common_dir(str(stray), {}) == gits_own(stray) == str(repository / ".git")


def test_locate_with_git_dir_set_follows_it(repository: Path, root: Path) -> None:
    linked = root / "a1"
    git(repository, "worktree", "add", "-q", "-b", "marcus/a1", str(linked))
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    own = git(linked, "rev-parse", "--path-format=absolute", "--git-dir")
    assert found(elsewhere, GIT_DIR=str(repository / ".git")) == found(repository)
    assert found(elsewhere, GIT_DIR=own) == found(repository), "hooks of a linked worktree run with its own GIT_DIR"
    assert found(elsewhere, GIT_DIR=own, GIT_COMMON_DIR=str(repository / ".git")) == found(repository)
    assert found(elsewhere, GIT_DIR="") is None


def test_locate_with_a_store_named_prefers_it(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    environ = {"TENURE_STORE": "mine.db", "GIT_DIR": str(repository / ".git")}
    assert store_location(None, environ, str(repository)) == str(repository / "mine.db")
    assert store_location("given.db", environ, str(repository)) == str(repository / "given.db")
    assert store_location("/abs/given.db", environ, str(repository)) == "/abs/given.db"
    address = "postgresql://db.example.org/tenure"
    assert store_location(address, environ, str(repository)) == address
    assert store_location(None, {"TENURE_STORE": address}, str(repository)) == address
    assert store_location(None, {"TENURE_STORE": ""}, str(repository)) == found(repository)


def test_locate_outside_git_finds_the_nearest_store_upward(root: Path) -> None:
    store = root / ".tenure" / "tenure.db"
    store.parent.mkdir()
    store.touch()
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    (root / "a" / ".tenure").mkdir()
    assert found(deep) == str(store), "a .tenure without a store is passed by"
    (root / "a" / ".tenure" / "tenure.db").touch()
    assert found(deep) == str(root / "a" / ".tenure" / "tenure.db")


def test_locate_with_nothing_anywhere_finds_nothing(root: Path) -> None:
    assert found(root) is None
    assert git_common_dir(str(root), {}) is None
    assert list(root.iterdir()) == [], "looking creates nothing"


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("host=db.example dbname=tenure", "postgresql:///?host=db.example&dbname=tenure"),
        (" dbname = tenure  port=5433 ", "postgresql:///?dbname=tenure&port=5433"),
        (r"dbname=t password='it\'s a \\ word'", "postgresql:///?dbname=t&password=it%27s%20a%20%5C%20word"),
        ("POSTGRESQL://db.example/tenure", "POSTGRESQL://db.example/tenure"),
        # Not an address that can be opened, and no path either: a file of that name would be nobody's wish.
        ("postgresql:/db.example/tenure", "postgresql:/db.example/tenure"),
    ],
)
def test_address_of_a_database_is_not_taken_for_a_path(named: str, meant: str) -> None:
    assert store_location(named, {}, "/") == meant
    assert store_location(None, {"TENURE_STORE": named}, "/") == meant


@pytest.mark.parametrize("named", ["colour=red.db", "/data/host=1/tenure.db", "host=a b.db"])
def test_path_with_an_equals_sign_is_a_path(named: str) -> None:
    assert store_location(named, {}, "/") == os.path.abspath(named)
