"""What a command-line process pays before it can work: whole processes, as ratios to `python -c 'import sqlite3'`.

    python benchmarks/imports.py

Hooks call `tenure touch` on every tool use of a coding agent, so it must start hardly slower than Python with sqlite3;
a claim may take a little longer. The cases run in turns and their medians are compared. Bytecode is kept in a
temporary directory and warmed up first, as an installed package has it; PYTHONDONTWRITEBYTECODE, which many containers
set, would otherwise have every process compile every module.

A touch and a claim also wait for the disk, several times when theirs is the only process that has the store open, so
the processor time is shown beside the wall clock. Ends with status 1 when a case reaches its limit by both, and then
shows which modules cost most (python -X importtime).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 40
SHOWN = 12

PREPARE = """
from tenure.store.sqlite import SqliteStore
from tenure.engine import claims, tasks
store = SqliteStore({path!r})
tasks.add_tasks(store, tasks=[{{"task_id": f"F{{n}}", "title": "A task"}} for n in range({tasks})])
claims.claim(store, task_id="F0", agent_id="A1", profile="cli", ttl_s=86_400)
store.close()
"""
OPEN = """
from tenure.store.sqlite import SqliteStore
store = SqliteStore({path!r}, create=False)
"""
TOUCH = (
    OPEN
    + """
from tenure.engine.touch import touch
assert touch(store, agent_id="A1").leases
"""
)
CLAIM = (
    OPEN
    + """
from tenure.engine.claims import claim
assert claim(store, task_id="F{number}", agent_id="A1", profile="cli").lease
"""
)

# case: (script, the most it may take, as a ratio to the base)
BASE = "python, sqlite3"
CASES: dict[str, tuple[str, float | None]] = {
    "python": ("pass", None),
    BASE: ("import sqlite3", None),
    "import of touch": ("import tenure.engine.touch, tenure.store.sqlite", None),
    "a whole touch": (TOUCH, 1.6),
    "import of claims": ("import tenure.engine.claims, tenure.store.sqlite", None),
    "a whole claim": (CLAIM, 2.5),
}


def environment(directory: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPYCACHEPREFIX": os.path.join(directory, "bytecode")}


def run(script: str, env: dict[str, str]) -> tuple[float, float]:
    """How long a process took, and how much processor time it used."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", script], env=env)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, script
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime


def measure(path: str, env: dict[str, str]) -> dict[str, tuple[float, float]]:
    """The median wall clock and processor time of each case."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for number in range(ROUNDS + 1):
        for name, (script, _) in CASES.items():
            # A claim takes another task each time; the first one is held by the agent that touches.
            costs = run(script.format(path=path, number=number + 1), env)
            # The first round only warms the bytecode up.
            if number:
                spent[name].append(costs)
    return {
        name: (statistics.median(wall for wall, _ in costs), statistics.median(cpu for _, cpu in costs))
        for name, costs in spent.items()
    }


def importtime(script: str, env: dict[str, str]) -> list[str]:
    """The modules that cost most themselves, worst first."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script], env=env, check=True, capture_output=True, text=True
    )
    rows = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines()[1:]]
    costs = sorted(((int(own), name.strip()) for own, _, name in rows), reverse=True)
    return [f"    {own / 1000:6.1f} ms  {name}" for own, name in costs[:SHOWN]]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="tenure-imports-") as directory:
        path, env = os.path.join(directory, "tenure.db"), environment(directory)
        run(PREPARE.format(path=path, tasks=ROUNDS + 3), env)
        costs = measure(path, env)
        print(f"{'':<20} {'median':>10} {'ratio':>6} {'cpu':>10} {'ratio':>6} {'limit':>6}")
        over = []
        for name, (script, limit) in CASES.items():
            ratios = [cost / base for cost, base in zip(costs[name], costs[BASE], strict=True)]
            columns = " ".join(
                f"{cost * 1000:>7.1f} ms {ratio:>6.2f}" for cost, ratio in zip(costs[name], ratios, strict=True)
            )
            print(f"{name:<20} {columns} {'' if limit is None else limit:>6}")
            if limit is not None and min(ratios) >= limit:
                over.append((name, script))
        for name, script in over:
            print(f"\nToo slow to start: {name}. Its modules, by their own cost:")
            print("\n".join(importtime(script.format(path=path, number=ROUNDS + 2), env)))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
