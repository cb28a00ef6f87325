"""`tenure worker`: any executable as a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure import Client, Escalate
from tenure.surfaces.cli.worker import outcome_of
from tests.sdk.servers import DEADLINE_S, TENURE, ServerProcess, eventually


def script(folder: Path, text: str) -> Path:
    path = folder / "script.sh"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run(server: ServerProcess, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(TENURE),
        "worker",
        "--kind",
        "shell.run",
        "--url",
        server.url,
        "--limit",
        "1",
        *options,
        "--",
        str(path),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@contextmanager
def at_work(server: ServerProcess, path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(TENURE), "worker", "--kind", "shell.run", "--url", server.url, "--instance", "one", "--", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("Worker worker.one does shell.run for http")
            yield process
        finally:
            process.kill()


def end_of(client: Client) -> dict[str, Any]:
    found = client.list_receipts(task_id="T1", phase="complete")["receipts"]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def task(client: Client) -> None:
    client.add_task("Run", task_id="T1", task_type="shell.run", inputs={"n": 3}, principal_ai="delegate.root")


@pytest.mark.usefixtures("task")
def test_worker_gives_the_task_on_stdin_and_takes_text_as_the_result(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    ended = run(server, script(tmp_path, 'cat; echo "$TENURE_TASK $TENURE_LEASE $TENURE_URL"'))
    assert ended.returncode == 0, ended.stderr
    receipt = end_of(client)
    told, names = receipt["outcome_text"].splitlines()
    given = json.loads(told)
    assert (given["task_id"], given["task_type"], given["inputs"], given["attempt"]) == ("T1", "shell.run", {"n": 3}, 1)
    assert names == f"T1 {given['lease_id']} {server.url}"
    assert (receipt["status"], receipt["outcome_kind"]) == ("success", "response_text")


@pytest.mark.usefixtures("task")
def test_worker_takes_an_object_of_outcome_fields(server: ServerProcess, client: Client, tmp_path: Path) -> None:
    fields = {"outcome_text": "made", "artifact_location": "s3://b/x", "artifact_mime": "text/plain", "message": "ok"}
    run(server, script(tmp_path, f"echo '{json.dumps(fields)}'"))
    receipt = end_of(client)
    assert {name: receipt[name] for name in fields} == fields
    assert receipt["outcome_kind"] == "mixed"


@pytest.mark.usefixtures("task")
def test_worker_fails_with_the_end_of_stderr(server: ServerProcess, client: Client, tmp_path: Path) -> None:
    run(server, script(tmp_path, "yes line | head -n 5000 >&2; echo 'the real reason' >&2; exit 3"))
    receipt = end_of(client)
    assert receipt["status"] == "failure"
    assert "exited with 3" in receipt["outcome_text"]
    assert receipt["outcome_text"].endswith("the real reason")
    assert receipt["message"].endswith("the real reason")
    assert client.show_task("T1")["attempts"] == 1


@pytest.mark.usefixtures("task")
def test_worker_is_not_held_up_by_a_child_that_keeps_the_output(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    run(server, script(tmp_path, "sleep 600 & echo done"))
    assert end_of(client)["outcome_text"] == "done"


def test_worker_kills_the_whole_group_before_the_lease_can_lapse(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    client.add_task("Run", task_id="T1", task_type="shell.run", lease_duration_s=6)
    note = tmp_path / "pids"
    # Neither the shell nor its child obeys a request to end.
    path = script(tmp_path, f"trap '' TERM; sleep 600 & echo $$ $! > {note}.new; mv {note}.new {note}; wait; wait")
    with at_work(server, path):
        pids = [
            int(pid) for pid in eventually(lambda: note.read_text().split() if note.exists() else None, "the program")
        ]
        server.kill()
        eventually(lambda: not any(alive(pid) for pid in pids), "their end")


def test_worker_that_is_killed_takes_its_program_with_it(server: ServerProcess, client: Client, tmp_path: Path) -> None:
    client.add_task("Run", task_id="T1", task_type="shell.run")
    note = tmp_path / "pid"
    path = script(tmp_path, f"echo $$ > {note}.new; mv {note}.new {note}; exec sleep 600")
    with at_work(server, path) as worker:
        pid = int(eventually(lambda: note.read_text() if note.exists() else None, "the program"))
        worker.kill()
        eventually(lambda: not alive(pid), "its end")


def test_worker_drains_on_sigterm(server: ServerProcess, client: Client, tmp_path: Path) -> None:
    client.add_tasks([{"task_summary": "Run", "task_id": name, "task_type": "shell.run"} for name in ("T1", "T2")])
    began, go_on = tmp_path / "began", tmp_path / "go_on"
    os.mkfifo(go_on)
    with at_work(server, script(tmp_path, f"touch {began}; cat {go_on}")) as worker:
        eventually(began.exists, "the program")
        worker.send_signal(signal.SIGTERM)
        go_on.write_text("late but finished", encoding="utf-8")
        assert worker.wait(DEADLINE_S) == 0
    assert sorted(task["status"] for task in client.list_tasks()["tasks"]) == ["done", "todo"]


@pytest.mark.parametrize(
    "words",
    [
        ["worker", "--kind", "shell.run"],
        ["worker", "--", "true"],
        ["worker", "--kind", "shell.run", "--", "./no-such-program"],
        ["worker", "--kind", "shell.run", "--concurrency", "0", "--", "true"],
        ["worker", "--kind", "shell.run", "--type", "a b", "--", "true"],
    ],
)
def test_worker_that_is_called_wrongly_says_so(words: list[str], tmp_path: Path) -> None:
    run = subprocess.run([str(TENURE), *words], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    assert run.returncode == 2
    assert run.stderr.startswith("Error: ")
    assert not list(tmp_path.iterdir())


def test_output_is_an_object_of_outcome_fields_or_else_text() -> None:
    assert outcome_of(b"plain\n").text == "plain"
    assert outcome_of(b'{"answer": 42}').text == '{"answer": 42}'
    assert outcome_of(b"{}").text == "{}"
    assert outcome_of(b'{"outcome_text": "x", "metadata": {"a": 1}}').metadata == {"a": 1}
    assert outcome_of(b"\xff").text == "\ufffd"
    with pytest.raises(Escalate) as raised:
        outcome_of(b'{"escalation_class": "owner", "escalation_reason": "which?", "escalation_to": "root"}')
    assert (raised.value.escalation_class, raised.value.reason, raised.value.to) == ("owner", "which?", "root")


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
