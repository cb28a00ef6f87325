"""What a command costs from the shell: whole `tenure` processes, as ratios to `python -c 'import sqlite3'`.

    python benchmarks/cli.py

Agents call the command line from hooks on every tool use, so starting fast is a feature. Every command runs in turns
with the base, and the medians of one run are compared, so that whatever else the machine does falls on both. Bytecode
is compiled first, as an installed package has it; PYTHONDONTWRITEBYTECODE, which many containers set, would have every
process compile every module again.

A command also waits for the disk, several times when its process is the only one that has the store open; the
processor time is therefore shown beside the wall clock, and a row fails only when it is above its limit by both. Ends
with status 1 when a row fails, and then shows which modules cost most (python -X importtime).
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tenure.core.errors import Refused
from tenure.engine import agents, claims, tasks
from tenure.store.sqlite import SqliteStore

ROUNDS = 25
SHOWN = 12
SOURCE = Path(__file__).resolve().parent.parent / "src"
TENURE = Path(sys.executable).parent / "tenure"
BASE = [sys.executable, "-c", "import sqlite3"]
AGENT = "A1234ABCD"


class Row(NamedTuple):
    """One command at one size; `{number}` in it is the round's."""

    command: str
    tasks: int
    limit: float

    def words(self, number: int) -> list[str]:
        return [str(TENURE), *self.command.format(number=number).split()]


ROWS = (
    *(
        Row(command, size, limit)
        for size in (100, 5_000)
        for command, limit in (
            (f"touch --agent {AGENT}", 1.6),
            (f"task claim C{{number}} --agent {AGENT}", 2.5),
            (f"task renew HELD --agent {AGENT}", 2.5),
            (f"task done D{{number}} --agent {AGENT}", 2.5),
            ("status", 2.5),
            ("ready", 2.5),
        )
    ),
    Row("ready", 100_000, 3.5),
)


class Cost(NamedTuple):
    """What one process took: the wall clock, and the processor's time, in seconds."""

    wall_s: float
    cpu_s: float


def ok(answer: object) -> None:
    assert not isinstance(answer, Refused), answer


def prepare(path: str, size: int, rounds: int) -> None:
    """A store of `size` tasks: one held for long, one per round to claim, one per round to finish, and the rest."""
    store = SqliteStore(path)
    names = ["F0", "HELD", *(f"{letter}{number}" for letter in "CD" for number in range(rounds))]
    ok(tasks.add_tasks(store, tasks=[{"task_id": name, "title": f"Task {name}"} for name in names]))
    copy(store, "F0", size - len(names))
    ok(agents.register(store, agent_id=AGENT, profile="cli"))
    for name in ("HELD", *(f"D{number}" for number in range(rounds))):
        ok(claims.claim(store, task_id=name, agent_id=AGENT, profile="cli", ttl_s=86_400))
    store.close()


def copy(store: SqliteStore, task_id: str, count: int) -> None:
    """Fill the store by SQL: adding this many by verbs would take longer than the measurement."""
    columns = [row[1] for row in store.connection.execute("PRAGMA table_info(tasks)") if row[1] != "key"]
    changes = {"task_id": "'F' || n.i", "rank_ms": "o.rank_ms + n.i % 1000"}
    store.connection.execute(
        f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
        f"INSERT INTO tasks ({', '.join(columns)}) "
        f"SELECT {', '.join(changes.get(name, 'o.' + name) for name in columns)} FROM n, tasks o WHERE o.task_id = ?",
        (task_id,),
    )


def environment(path: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TENURE_"))}
    return {**kept, "TENURE_STORE": path}


def cost(words: list[str], env: dict[str, str]) -> Cost:
    """Run one process to its end."""
    begun = time.perf_counter()
    process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, " ".join(words)
    return Cost(took, used.ru_utime + used.ru_stime)


def median(costs: list[Cost]) -> Cost:
    return Cost(statistics.median(one.wall_s for one in costs), statistics.median(one.cpu_s for one in costs))


def measure(rows: list[Row], env: dict[str, str], rounds: int) -> Iterator[tuple[Row, Cost, Cost]]:
    """Each row's median with that of the base, which ran right before it each time."""
    spent: dict[Row, tuple[list[Cost], list[Cost]]] = {row: ([], []) for row in rows}
    for number in range(rounds):
        for row, (base, own) in spent.items():
            base.append(cost(BASE, env))
            own.append(cost(row.words(number), env))
    for row, (base, own) in spent.items():
        # The first round only warms up.
        yield row, median(base[1:]), median(own[1:])


def importtime(words: list[str], env: dict[str, str]) -> list[str]:
    """The modules that cost most themselves, worst first."""
    done = subprocess.run([sys.executable, "-X", "importtime", *words], env=env, capture_output=True, text=True)
    rows = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines() if line.count("|") == 2]
    costs = sorted(((int(own), name.strip()) for own, _, name in rows[1:]), reverse=True)
    return [f"    {own / 1000:6.1f} ms  {name}" for own, name in costs[:SHOWN]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Ratios of whole commands to Python's own start.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each command (default {ROUNDS})")
    rounds = parser.parse_args(arguments).rounds + 1
    # An installed package's bytecode is already there.
    compileall.compile_dir(SOURCE, quiet=2)
    print(f"{'command':<18} {'tasks':>7} {'base':>8} {'wall':>8} {'ratio':>6} {'cpu':>8} {'ratio':>6} {'limit':>6}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="tenure-cli-") as directory:
        for size in sorted({row.tasks for row in ROWS}):
            path = os.path.join(directory, f"{size}.db")
            prepare(path, size, rounds)
            env = environment(path)
            for row, base, own in measure([row for row in ROWS if row.tasks == size], env, rounds):
                ratios = own.wall_s / base.wall_s, own.cpu_s / base.cpu_s
                over = min(ratios) > row.limit
                name = " ".join(word for word in row.command.split()[:2] if word.isalpha() and word.islower())
                print(
                    f"{name:<18} {row.tasks:>7,} {base.wall_s * 1000:>5.1f} ms {own.wall_s * 1000:>5.1f} ms"
                    f" {ratios[0]:>6.2f} {own.cpu_s * 1000:>5.1f} ms {ratios[1]:>6.2f} {row.limit:>6}"
                    + ("  TOO SLOW" if over else "")
                )
                if over:
                    failed = True
                    print("\n".join(importtime(row.words(0), env)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
