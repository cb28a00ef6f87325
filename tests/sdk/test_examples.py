"""The examples of docs/workers.md run against a server, and print what they say."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenure import Client, Worker
from tests.sdk.servers import DEADLINE_S, TENURE, ServerProcess

TEXT = (Path(__file__).parents[2] / "docs" / "workers.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```py\n(.*?)^```$.*?^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("example", "printed"), EXAMPLES)
def test_example_prints_what_it_says(example: str, printed: str, server: ServerProcess) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        env={**os.environ, "TENURE_URL": server.url},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (run.stdout, run.returncode) == (printed, 0), run.stderr


def test_every_example_is_tested() -> None:
    assert len(EXAMPLES) == TEXT.count("```py\n") == 3


def test_example_of_an_executable_runs(server: ServerProcess, client: Client, tmp_path: Path) -> None:
    found = re.search(r"^```sh\ntenure (.*)\n```$", TEXT, re.MULTILINE)
    assert found is not None
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/sh\necho done\n", encoding="utf-8")
    script.chmod(0o755)
    client.add_task("Run", task_id="T1", task_type="shell.run")
    words = found[1].replace(" -- ", " --limit 1 -- ").split()
    environment = {**os.environ, "TENURE_URL": server.url}
    run = subprocess.run([str(TENURE), *words], cwd=tmp_path, env=environment, timeout=DEADLINE_S)
    assert run.returncode == 0
    assert client.show_task("T1")["status"] == "done"


def test_every_method_of_the_client_and_option_with_a_number_is_named() -> None:
    methods = {name for name, one in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    for name in methods - {"close", "send"}:
        assert f"`{name}`" in TEXT, name
    defaults = inspect.signature(Worker).parameters
    for name, shown in (("wait_s", "30 s"), ("patience_s", "900 s"), ("drain_s", "30 s")):
        assert f"`{name}`" in TEXT
        assert f"{defaults[name].default:g} s" == shown
        assert shown in TEXT
