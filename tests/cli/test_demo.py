"""The demo as a viewer sees it: with a store of its own, and against a server's."""

from __future__ import annotations

import json

from tests.cli.shell import GIT_NAME, PATIENCE_S, Shell
from tests.links.kills import serving


def test_demo_shows_every_step_in_plain_text(shell: Shell) -> None:
    ran = shell.ok("demo")
    for told in (
        "Now: kill -9",
        "bob died",
        "REPORT: recovered from bob (process_exited)",
        "uncommitted work of bob was saved",
        "was ended by SIGKILL",
        "git merge marcus/bob --no-edit",
        "refused (exit status 6)",
        "REPORT: completed by cat",
        "python main.py prints: Report 3",
        "the death was noticed after",
    ):
        assert told in ran.out, ran.out
    assert "\x1b" not in ran.out, "no colours where nobody looks"


def test_demo_against_a_server_uses_its_store_and_a_project_of_its_own(shell: Shell) -> None:
    shell = shell.having(**GIT_NAME)
    store = str(shell.folder / ".git" / "tenure" / "tenure.db")
    with serving(shell):
        timings = json.loads(shell.ok("demo", "--store", store, "--json").out)["data"]
    # The demo itself takes about five seconds; a loaded machine may need many times that.
    assert timings["noticed_s"] <= timings["completed_s"] < PATIENCE_S
    projects = [project["project_id"] for project in shell.data("project", "list")["projects"]]
    assert len([name for name in projects if name.startswith("demo-")]) == 1
    assert shell.data("status", "--project", "default")["tasks"]["done"] == 0, "nothing of it is in the default project"


def test_demo_without_a_store_at_the_place_named_is_refused(shell: Shell) -> None:
    ran = shell.run("demo", "--store", "nowhere.db")
    assert ran.status != 0
    assert "There is no store" in ran.err
