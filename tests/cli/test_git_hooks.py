"""`tenure setup git` with real pushes: what an agent may push, what a server takes, and who is left alone."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from shutil import which

import pytest

from tests.cli.shell import GIT_NAME, TENURE, Ran, Shell, git

MAIN, OWN = "refs/heads/main", "refs/heads/marcus/A1"


class Site:
    """A repository with a store and a remote, and a home of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path / "home"
        self.home.mkdir()
        self.remote = tmp_path / "remote.git"
        self.folder = tmp_path / "repository"
        for folder, words in ((self.remote, ("--bare",)), (self.folder, ())):
            folder.mkdir()
            git(folder, "init", "--quiet", "--initial-branch=main", *words)
        path = f"{Path(TENURE).parent}{os.pathsep}{os.environ['PATH']}"
        self.shell = Shell(self.folder, {**GIT_NAME, "HOME": str(self.home), "PATH": path})
        self.shell.env.pop("XDG_STATE_HOME", None)
        git(self.folder, "remote", "add", "origin", str(self.remote))
        git(self.folder, "commit", "--quiet", "--allow-empty", "-m", "first")
        self.shell.ok("init")
        self.shell.ok("task", "add", "Title", "--id", "F001")

    def git(self, *words: str, folder: Path | None = None, **env: str) -> Ran:
        ran = subprocess.run(
            ["git", *words],
            cwd=folder or self.folder,
            env={**self.shell.env, **env},
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def push(self, *words: str, folder: Path | None = None, **env: str) -> Ran:
        return self.git("push", "origin", *words, folder=folder, **env)

    def refs(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname)", folder=self.remote).out.split()

    @property
    def hook(self) -> Path:
        return self.folder / ".git" / "hooks" / "pre-push"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def guarded(site: Site) -> Site:
    site.shell.ok("setup", "git")
    return site


# -- pre-push ---------------------------------------------------------------------------------------------------------


def test_push_of_an_agent_without_a_lease_is_refused_but_to_its_own_branch(guarded: Site) -> None:
    guarded.shell.ok("agent", "join", "--id", "A1")
    ran = guarded.push(f"HEAD:{MAIN}", TENURE_AGENT="A1", TENURE_TASK="F001")
    assert ran.status != 0
    assert "A1 holds no live lease on F001" in ran.err
    assert f"git push origin HEAD:{OWN}" in ran.err
    assert "tenure task claim F001" in ran.err
    assert guarded.refs() == []
    assert guarded.push(f"HEAD:{OWN}", TENURE_AGENT="A1").status == 0
    assert guarded.push("HEAD:refs/tags/v1", TENURE_AGENT="A1").status != 0
    assert guarded.push(f"HEAD:{OWN}-b", TENURE_AGENT="A1").status != 0
    # One ref that it may not push stops the push.
    assert guarded.push(f"HEAD:{OWN}", f"HEAD:{MAIN}", TENURE_AGENT="A1").status != 0
    assert guarded.push("--delete", OWN, TENURE_AGENT="A1").status == 0
    assert guarded.refs() == []


def test_push_of_a_holder_is_let_through_until_it_gives_the_task_back(guarded: Site) -> None:
    lease = guarded.shell.data("task", "claim", "F001", "--agent", "A1")
    assert guarded.push(f"HEAD:{MAIN}", TENURE_AGENT="A1").status == 0
    assert guarded.push("HEAD:refs/heads/b", TENURE_AGENT="A1", TENURE_LEASE=lease["lease_id"]).status == 0
    assert guarded.push("HEAD:refs/heads/c", TENURE_AGENT="A1", TENURE_LEASE="L0000000").status != 0
    guarded.shell.ok("task", "release", "F001", "--agent", "A1")
    guarded.shell.ok("task", "claim", "F001", "--agent", "B1")
    ran = guarded.push("HEAD:refs/heads/c", TENURE_AGENT="A1", TENURE_TASK="F001")
    assert ran.status != 0
    assert "B1 has it" in ran.err
    assert guarded.push("HEAD:refs/heads/c", TENURE_AGENT="B1").status == 0


def test_push_of_a_person_is_not_hindered(guarded: Site) -> None:
    # Somebody works here as an agent, but on no branch or worktree of its own.
    guarded.shell.ok("agent", "join", "--id", "A1")
    ran = guarded.push(f"HEAD:{MAIN}")
    assert ran.status == 0
    assert "did not check" not in ran.err
    git(guarded.folder, "switch", "--quiet", "--create", "marcus/A1")
    assert guarded.push("HEAD:refs/heads/b").status != 0
    assert guarded.push("HEAD:refs/heads/b", TENURE_AGENT="").status == 0
    assert guarded.push("--no-verify", "HEAD:refs/heads/c").status == 0


def test_push_from_an_agents_own_worktree_is_the_agents(guarded: Site, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(guarded.folder, "worktree", "add", "--quiet", "-b", "work", str(tree))
    inside = Shell(tree, guarded.shell.env)
    inside.ok("agent", "join", "--id", "A1")
    assert guarded.push(f"HEAD:{MAIN}", folder=tree).status != 0
    assert guarded.push(f"HEAD:{OWN}", folder=tree).status == 0
    inside.ok("task", "claim", "F001")
    assert guarded.push(f"HEAD:{MAIN}", folder=tree).status == 0
    # A person's worktree is a person's.
    other = tmp_path / "other"
    git(guarded.folder, "worktree", "add", "--quiet", "-b", "mine", str(other))
    assert guarded.push("HEAD:refs/heads/mine", folder=other).status == 0


def test_push_of_an_agent_that_nobody_knows_is_refused(guarded: Site) -> None:
    assert guarded.push(f"HEAD:{MAIN}", TENURE_AGENT="A9").status != 0
    assert guarded.push("HEAD:refs/heads/marcus/A9", TENURE_AGENT="A9").status == 0


@pytest.mark.parametrize("damage", ["broken", "gone"])
def test_push_with_a_store_that_cannot_be_read_is_let_through_and_says_so(guarded: Site, damage: str) -> None:
    store = guarded.folder / ".git" / "tenure" / "tenure.db"
    for path in store.parent.iterdir():
        path.unlink()
    if damage == "broken":
        store.write_bytes(b"not a database" * 1000)
    ran = guarded.push(f"HEAD:{MAIN}", TENURE_AGENT="A1")
    assert ran.status == 0
    assert "tenure did not check this push" in ran.err


def test_push_without_tenure_is_let_through_and_says_so_to_an_agent(guarded: Site, tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("git", "sh", "cat", "dirname", "id"):
        found = which(name)
        assert found is not None
        (bare / name).symlink_to(found)
    ran = guarded.push(f"HEAD:{MAIN}", TENURE_AGENT="A1", PATH=str(bare))
    assert ran.status == 0
    assert "did not check this push" in ran.err
    assert "did not check" not in guarded.push("HEAD:refs/heads/b", PATH=str(bare)).err


# -- installing -------------------------------------------------------------------------------------------------------


def write_hook(path: Path, script: str) -> tuple[bytes, int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o750)
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode)


def test_setup_runs_a_hook_that_was_there_first_and_puts_it_back(site: Site, tmp_path: Path) -> None:
    record = tmp_path / "record"
    script = f'#!/bin/sh\necho "$@" > {record}\ncat >> {record}\n[ ! -e {record}.no ] || exit 5\n'
    before = write_hook(site.hook, script)
    assert site.shell.run("setup", "git", "--check").status == 7
    site.shell.ok("setup", "git")
    site.shell.ok("setup", "git")
    assert site.shell.run("setup", "git", "--check").status == 0
    assert site.push(f"HEAD:{MAIN}").status == 0
    told = record.read_text().splitlines()
    assert told[0] == f"origin {site.remote}"
    assert told[1].split()[2] == MAIN
    assert site.push("HEAD:refs/heads/b", TENURE_AGENT="A1").status != 0
    Path(f"{record}.no").touch()
    assert site.push("HEAD:refs/heads/c").status != 0
    assert site.refs() == [MAIN]
    site.shell.ok("setup", "git", "--remove")
    assert (site.hook.read_bytes(), stat.S_IMODE(site.hook.stat().st_mode)) == before
    assert sorted(path.name for path in site.hook.parent.glob("pre-push*")) == ["pre-push", "pre-push.sample"]
    assert "No pre-push hook" in site.shell.ok("setup", "git", "--remove").out


def test_setup_from_a_worktree_and_a_subfolder_reaches_the_shared_hooks(site: Site, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(site.folder, "worktree", "add", "--quiet", "-b", "work", str(tree))
    (tree / "inner").mkdir()
    Shell(tree / "inner", site.shell.env).ok("setup", "git")
    assert site.hook.exists()
    assert site.push(f"HEAD:{MAIN}", TENURE_AGENT="A1").status != 0
    site.shell.ok("setup", "git", "--remove")
    assert not site.hook.exists()


@pytest.mark.parametrize("relative", [True, False])
def test_setup_honours_core_hooks_path(site: Site, tmp_path: Path, relative: bool) -> None:
    folder = site.folder / ".husky" if relative else tmp_path / "hooks"
    git(site.folder, "config", "core.hooksPath", ".husky" if relative else str(folder))
    inner = site.folder / "inner"
    inner.mkdir()
    ran = Shell(inner, site.shell.env).ok("setup", "git")
    assert "core.hooksPath" in ran.err
    assert (folder / "pre-push").exists()
    assert not site.hook.exists()
    assert site.push(f"HEAD:{MAIN}", TENURE_AGENT="A1").status != 0
    site.shell.ok("setup", "git", "--remove")
    assert not folder.exists()


def test_setup_of_a_hook_that_was_changed_is_told_and_repaired(guarded: Site) -> None:
    text = guarded.hook.read_text()
    guarded.hook.write_text(text + "# older\n")
    assert "differs" in guarded.shell.run("setup", "git", "--check").out
    guarded.shell.ok("setup", "git")
    assert guarded.hook.read_text() == text
    guarded.hook.chmod(0o644)
    assert guarded.shell.run("setup", "git", "--check").status == 7
    guarded.shell.ok("setup", "git")
    assert os.access(guarded.hook, os.X_OK)


def test_setup_outside_of_a_repository_or_in_the_wrong_kind_is_refused(site: Site, tmp_path: Path) -> None:
    assert Shell(tmp_path, site.shell.env).run("setup", "git").status == 7
    assert site.shell.run("setup", "git", "--server").status == 7
    assert Shell(site.remote, site.shell.env).run("setup", "git").status == 7


# -- pre-receive ------------------------------------------------------------------------------------------------------


@pytest.fixture
def enforced(site: Site) -> Site:
    """The remote asks the repository's store, which stands for the one that the fleet shares."""
    store = site.folder / ".git" / "tenure" / "tenure.db"
    Shell(site.remote, site.shell.env).ok("setup", "git", "--server", "--store", str(store))
    return site


def test_server_takes_a_shared_branch_only_with_the_token_of_a_live_lease(enforced: Site) -> None:
    ran = enforced.push(f"HEAD:{MAIN}")
    assert ran.status != 0
    assert "no token of a live lease" in ran.err
    assert "tenure-token" in ran.err
    lease = enforced.shell.data("task", "claim", "F001", "--agent", "A1")
    token = f"tenure-token={lease['token']}"
    assert enforced.push("-o", token, f"HEAD:{MAIN}").status == 0
    assert enforced.push("-o", f"tenure-lease={lease['lease_id']}", "HEAD:refs/heads/b").status == 0
    assert enforced.push("-o", token, "-o", "tenure-task=F001", "HEAD:refs/heads/c").status == 0
    assert enforced.push("-o", token, "-o", "tenure-task=F009", "HEAD:refs/heads/d").status != 0
    assert enforced.push("-o", f"tenure-token={lease['token'] + 1}", "HEAD:refs/heads/d").status != 0
    assert enforced.push("-o", "tenure-token=x' OR 1", "HEAD:refs/heads/d").status != 0
    assert enforced.push("-o", "ci.skip", "HEAD:refs/heads/d").status != 0
    assert enforced.refs() == ["refs/heads/b", "refs/heads/c", MAIN]


def test_server_refuses_the_token_of_a_lease_that_was_lost(enforced: Site) -> None:
    old = enforced.shell.data("task", "claim", "F001", "--agent", "A1")
    enforced.shell.ok("task", "release", "F001", "--agent", "A1")
    new = enforced.shell.data("task", "claim", "F001", "--agent", "B1")
    ran = enforced.push("-o", f"tenure-token={old['token']}", f"HEAD:{MAIN}")
    assert ran.status != 0
    assert f"Token {old['token']} is not of a live lease" in ran.err
    assert enforced.push("-o", f"tenure-token={new['token']}", f"HEAD:{MAIN}").status == 0


def test_server_takes_branches_of_agents_and_exempt_people_without_a_token(enforced: Site) -> None:
    assert enforced.push(f"HEAD:{OWN}").status == 0
    assert enforced.push(f"HEAD:{MAIN}", TENURE_EXEMPT="ada", TENURE_PUSHER="ada").status != 0
    git(enforced.remote, "config", "--add", "tenure.exempt", "ada")
    assert enforced.push(f"HEAD:{MAIN}", REMOTE_USER="eve").status != 0
    assert enforced.push(f"HEAD:{MAIN}", REMOTE_USER="ada").status == 0


def test_server_without_its_store_takes_nothing_but_says_why(enforced: Site) -> None:
    git(enforced.remote, "config", "tenure.store", str(enforced.home / "none.db"))
    ran = enforced.push(f"HEAD:{MAIN}")
    assert ran.status != 0
    assert "none.db" in ran.err


def test_server_setup_is_taken_out_to_the_last_byte(site: Site) -> None:
    inside = Shell(site.remote, site.shell.env)
    config = site.remote / "config"
    before = config.read_bytes()
    hook = write_hook(site.remote / "hooks" / "pre-receive", "#!/bin/sh\nexit 0\n")
    assert inside.run("setup", "git", "--server").status == 9
    assert config.read_bytes() == before
    inside.ok("init")
    inside.ok("setup", "git", "--server")
    after = config.read_bytes()
    assert after != before
    inside.ok("setup", "git", "--server")
    assert config.read_bytes() == after
    assert inside.run("setup", "git", "--server", "--check").status == 0
    inside.ok("setup", "git", "--server", "--remove")
    assert config.read_bytes() == before
    path = site.remote / "hooks" / "pre-receive"
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == hook
