"""A real Kanboard for the tests: Debian's package, unpacked into a private folder and run on the loopback.

    python -m tests.boards.kanboard            fetch what is missing and serve until interrupted
    python -m tests.boards.kanboard --fetch    only fetch, and see whether it starts

Nothing of the machine is changed: apt gets package lists and a cache of its own, and packages are unpacked, not
installed. The package is only in the unstable suite; its source entry is the machine's own with the suite replaced.
PHP and its libraries come from the machine's own suite. Who cannot reach an archive gets `Unavailable`, and the tests
that need the server say so and are skipped.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

EXTENSIONS = (
    "pdo", "ctype", "dom", "xml", "iconv", "mbstring", "curl", "gd", "simplexml", "xmlwriter", "xmlreader",
    "pdo_sqlite", "sqlite3", "zip", "fileinfo", "posix", "tokenizer", "phar", "intl",
)  # fmt: skip
PHP_PACKAGES = ("cli", "common", "sqlite3", "xml", "gd", "mbstring", "curl", "zip", "intl")
LIBRARIES = (
    "christianriesen-otp", "eluceo-ical", "parsedown", "gregwar-captcha", "matthiasmullie-minify", "pimple", "psr-log",
    "swiftmailer", "symfony-console", "symfony-event-dispatcher", "symfony-event-dispatcher-contracts",
    "symfony-finder", "symfony-service-contracts", "symfony-string", "symfony-deprecation-contracts",
)  # fmt: skip
FETCH_S = 240
START_S = 180


class Unavailable(Exception):
    """The server cannot be had on this machine; says why."""


def cache() -> Path:
    """Where the unpacked server is kept between runs."""
    base = os.environ.get("TENURE_KANBOARD_CACHE")
    return Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tenure-kanboard"


_unavailable: list[Unavailable] = []


def fetched() -> Path:
    """The root of the unpacked packages; fetched on the first call of this machine, and tried once in a run."""
    root = cache() / "root"
    if root.exists():
        return root
    if os.environ.get("TENURE_NO_KANBOARD"):
        raise Unavailable("TENURE_NO_KANBOARD is set, so it is not fetched")
    if _unavailable:
        raise _unavailable[0]
    try:
        _make(root)
    except Unavailable as error:
        _unavailable.append(error)
        raise
    return root


def _make(root: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(f"{tool} is not on this machine")
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "lock", "w", encoding="utf-8") as lock:
        # Several processes of one test run want it at the same time; one fetches it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _build(root)


def _build(root: Path) -> None:
    building = Path(tempfile.mkdtemp(prefix="building-", dir=cache()))
    try:
        _fetch(building)
        _configure(building / "root", root)
        # Last, and at once: a root that is there is whole.
        (building / "root").rename(root)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _fetch(folder: Path) -> None:
    entries = _sources()
    if not entries:
        raise Unavailable("apt has no Debian source on this machine")
    unstable = [re.sub(r"^(deb (?:\[[^]]*\] )?\S+) \S+", r"\1 unstable", entry) for entry in entries]
    # Security and updates have no counterpart in unstable: the plain archive alone has it.
    plain = [line for line in dict.fromkeys(unstable) if "security" not in line][:1]
    _apt(folder / "unstable", plain, ["update"])
    _apt(folder / "unstable", plain, ["download", "kanboard"], at=folder)
    _apt(folder / "stable", entries, ["update"])
    wanted = [f"php-{name}" for name in (*PHP_PACKAGES, *LIBRARIES)]
    install = ["install", "-y", "--no-install-recommends", "--download-only", "--reinstall", *wanted]
    _apt(folder / "stable", entries, install)
    (folder / "root").mkdir()
    for package in [*folder.glob("kanboard_*.deb"), *(folder / "stable" / "cache" / "archives").glob("*.deb")]:
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder / "root")], check=True, timeout=60)


def _sources() -> list[str]:
    """The machine's own Debian entries in the one-line form, whichever form they are written in."""
    found = []
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for path in places:
        if path.suffix == ".list" and path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            found += [line for line in lines if line.startswith("deb ") and "debian" in line]
        elif path.suffix == ".sources":
            found += _deb822(path.read_text(encoding="utf-8"))
    return found


def _deb822(text: str) -> list[str]:
    lines = []
    for block in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.+)$", block, re.MULTILINE))
        if "debian" not in fields.get("URIs", "") or "deb" not in fields.get("Types", "").split():
            continue
        signed = f"[signed-by={fields['Signed-By']}] " if fields.get("Signed-By", "").startswith("/") else ""
        for uri in fields["URIs"].split():
            lines += [f"deb {signed}{uri} {suite} main" for suite in fields["Suites"].split()]
    return lines


def _apt(folder: Path, sources: list[str], words: list[str], at: Path | None = None) -> None:
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text("\n".join(sources) + "\n", encoding="utf-8")
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
    }
    command = ["apt-get", "-qq", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    try:
        run = subprocess.run([*command, *words], cwd=at, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"apt-get {words[0]} took longer than {FETCH_S} s") from error
    if run.returncode != 0:
        raise Unavailable(f"apt-get {words[0]} failed: {(run.stderr or run.stdout).strip()[-300:]}")


def _configure(unpacked: Path, root: Path) -> None:
    """Let the packages find each other where they will be, and not where they would have been installed."""
    for script in unpacked.rglob("autoload.php"):
        text = script.read_text(encoding="utf-8")
        # Composer is only used to load plugins, and there are none.
        text = re.sub(r"^.*/usr/share/php/Composer/.*\n", "", text, flags=re.MULTILINE)
        script.write_text(text.replace("'/usr/share/php", f"'{root}/usr/share/php"), encoding="utf-8")
    (unpacked / "usr/share/kanboard/config.php").unlink(missing_ok=True)
    folders = sorted((unpacked / "usr/lib/php").glob("2*"))
    if not folders:
        raise Unavailable("the PHP packages have no extensions")
    present = [name for name in EXTENSIONS if (folders[0] / f"{name}.so").exists()]
    lines = [f"extension={name}" for name in present]
    lines += [f"extension_dir={root / folders[0].relative_to(unpacked)}", f'include_path=".:{root}/usr/share/php"']
    if (folders[0] / "opcache.so").exists():
        # Four times as fast; the sources never change.
        lines += ["zend_extension=opcache", "opcache.enable_cli=1", "opcache.validate_timestamps=0"]
    (unpacked / "php.ini").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Kanboard:
    """One server with its own data. `stop` and `start` again keep the data: that is an outage."""

    def __init__(self, data: Path, workers: int = 1) -> None:
        self.root = fetched()
        self.data = data
        self.workers = workers
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/jsonrpc.php"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Kanboard:
        self.data.mkdir(parents=True, exist_ok=True)
        php = sorted((self.root / "usr/bin").glob("php[0-9]*"))[0]
        libraries = ":".join(str(path) for path in (self.root / "usr/lib").glob("*-linux-gnu*"))
        environ = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": libraries,
            "DATA_DIR": str(self.data),
            "PLUGINS_DIR": str(self.data / "no-plugins"),
            "LOG_DRIVER": "stderr",
            "WEBHOOK_ALLOW_PRIVATE_NETWORKS": "true",
        }
        if self.workers > 1:
            # Without a write-ahead log, as on most installations of before it was the default: readers and writers get
            # in each other's way, and calls fail that took effect.
            environ.update(PHP_CLI_SERVER_WORKERS=str(self.workers), DB_WAL_MODE="false")
        command = [str(php), "-n", "-c", str(self.root / "php.ini"), "-S", f"127.0.0.1:{self.port}"]
        with open(self.data / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                [*command, "-t", str(self.root / "usr/share/kanboard")],
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_it_answers()
        settings = dict(sqlite3.connect(self.data / "db.sqlite").execute("SELECT option, value FROM settings"))
        self.token = settings["api_token"]
        self.webhook_token = settings["webhook_token"]
        return self

    def _wait_until_it_answers(self) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            assert self.process is not None
            if self.process.poll() is not None:
                break
            # The first request creates the database, so that it must be the only one.
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(self.url.replace("jsonrpc.php", ""), timeout=START_S),
            ):
                if (self.data / "db.sqlite").exists():
                    return
            time.sleep(0.05)
        log = (self.data / "server.log").read_text(encoding="utf-8", errors="replace")
        raise Unavailable(f"the server did not start: {log[-500:]}")

    def stop(self) -> None:
        """End the server and its workers, as a crash would."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                # The workers are in the server's own group, which we made.
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=START_S)
            self.process = None

    def call(self, method: str, user: tuple[str, str] | None = None, /, **params: Any) -> Any:
        """One call of the API: with the application's token, or as a user, whose acts show in the activity."""
        name, secret = user or ("jsonrpc", self.token)
        credential = base64.b64encode(f"{name}:{secret}".encode()).decode()
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"Authorization": f"Basic {credential}", "Content-Type": "application/json"}
        told: dict[str, Any] = {}
        for attempt in range(20):
            with urllib.request.urlopen(urllib.request.Request(self.url, body, headers), timeout=START_S) as answer:
                told = json.loads(answer.read())
            if "error" not in told:
                return told["result"]
            if "locked" not in json.dumps(told) or method.startswith("create"):
                break
            time.sleep(0.01 * attempt)
        raise AssertionError(f"{method}: {told['error']}")

    def set_webhook(self, url: str) -> None:
        """Kanboard's API cannot set it; its settings page writes this row."""
        with sqlite3.connect(self.data / "db.sqlite", timeout=60) as database:
            database.execute("UPDATE settings SET value = ? WHERE option = 'webhook_url'", (url,))


class Person:
    """Somebody who works on the board by hand."""

    def __init__(self, server: Kanboard, project: int, name: str) -> None:
        self.server = server
        self.project = project
        self.name = name
        self.secret = "secret-" + name
        known = server.call("getUserByName", username=name)
        self.user_id = known["id"] if known else server.call("createUser", username=name, password=self.secret)
        server.call("addProjectUser", project_id=project, user_id=self.user_id, role="project-manager")
        columns = server.call("getColumns", project_id=project)
        self.columns = {column["title"]: column["id"] for column in columns}

    def do(self, method: str, **params: Any) -> Any:
        return self.server.call(method, (self.name, self.secret), **params)

    def add(self, title: str, column: str = "Backlog", **more: Any) -> int:
        return int(self.do("createTask", title=title, project_id=self.project, column_id=self.columns[column], **more))

    def drag(self, card: int, column: str) -> None:
        lane = self.server.call("getTask", task_id=card)["swimlane_id"]
        place = {"column_id": self.columns[column], "position": 1, "swimlane_id": lane}
        assert self.do("moveTaskPosition", project_id=self.project, task_id=card, **place)

    def assign(self, card: int, user_id: int) -> None:
        assert self.do("updateTask", id=card, owner_id=user_id)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            server = Kanboard(Path(folder)).start()
        except Unavailable as error:
            raise SystemExit(f"no Kanboard here: {error}") from error
        if "--fetch" in sys.argv:
            server.stop()
            print(f"Kanboard is in {cache()}, and starts")
            return
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(f"{server.url} token {server.token}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            server.stop()


if __name__ == "__main__":
    main()
