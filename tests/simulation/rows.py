"""What the simulation sees of the store: plain rows through a connection of its own, and its own notion of liveness.

Nothing here calls the engine. The rules are written down a second time, from section 2 of the design, so that a mistake
in the engine's copy is a difference and not an agreement.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from tenure.clock import ManualClock

Row = dict[str, Any]

PULSE_VALID_MS = 15_000
DRIFT_MAX_MS = 2_000
LINK_FIELDS = "agent_id, incarnation, weak, state, pulsed_at_ms"
UNENDED = ("offered", "active")


class Violation(AssertionError):
    """An invariant that does not hold."""


def demand(condition: object, invariant: str, **facts: Any) -> None:
    """Fail the run, naming the invariant and what was found."""
    if not condition:
        raise Violation(f"{invariant}: " + ", ".join(f"{name}={value!r}" for name, value in facts.items()))


class Snapshot:
    """Every row the invariants speak about, at one instant."""

    def __init__(self, eyes: sqlite3.Connection, clock: ManualClock, before: Snapshot | None = None) -> None:
        eyes.execute("BEGIN")
        try:
            self.tasks: dict[int, Row]
            self.leases: dict[str, Row]
            self.tasks, self.raw_tasks = _keyed(eyes, "tasks", *_known(before, "tasks"))
            self.leases, self.raw_leases = _keyed(eyes, "leases", *_known(before, "leases"))
            self.servers: dict[str, int] = dict(eyes.execute("SELECT server_id, pulsed_at_ms FROM servers"))
            self.agents: dict[str, int] = dict(eyes.execute("SELECT agent_id, incarnation FROM agents"))
            self.links = {row[0]: row[1:] for row in eyes.execute(f"SELECT link_id, {LINK_FIELDS} FROM links")}
            self.timers = {(row[0], row[1]): row[2] for row in eyes.execute("SELECT kind, ref, wake_at_ms FROM timers")}
            self.edges = list(eyes.execute("SELECT task_key, needs_id, needs_key FROM dependencies"))
            self.anchor = eyes.execute("SELECT boot_id, wall0_ms, mono0_ms FROM clock").fetchone()
        finally:
            eyes.execute("ROLLBACK")
        self.now = self.anchored_now(clock)
        # Times that have come once. A clock set back does not send a task into waiting again for the same time.
        self.came: set[tuple[int, int]] = set() if before is None else before.came
        if self.now is not None:
            due = ((key, task["not_before_ms"]) for key, task in self.tasks.items())
            self.came.update(entry for entry in due if entry[1] <= self.now)
        self.unended: dict[int, list[Row]] = {}
        for lease in self.leases.values():
            if lease["state"] in UNENDED:
                self.unended.setdefault(lease["task_key"], []).append(lease)

    def anchored_now(self, clock: ManualClock) -> int | None:
        """The store's time as every process must compute it; None while somebody has to re-anchor first."""
        if self.anchor is None or self.anchor[0] != clock.boot or clock.mono < self.anchor[2]:
            return None
        now: int = self.anchor[1] + clock.mono - self.anchor[2]
        return now if abs(clock.wall - now) <= DRIFT_MAX_MS else None

    def live(self, lease: Row, now: int) -> bool:
        """Section 2 of the design, in the simulation's own words."""
        if lease["state"] not in UNENDED:
            return False
        death = lease["death_at_ms"]
        if death is not None and now >= death:
            return False
        heard_at = self.servers.get(lease["server_id"]) if lease["server_id"] is not None else None
        if heard_at is not None and now > heard_at + PULSE_VALID_MS and now < deadline(lease) + lease["hung_after_ms"]:
            # Nobody could hear this holder, so it is judged as of the last instant at which somebody could.
            return bool(heard_at < deadline(lease))
        return bool(now < deadline(lease))

    def pulsing(self, agent_id: str, now: int) -> list[str]:
        """The links that see this agent's process."""
        return [
            link_id
            for link_id, (agent, _, _, state, pulsed) in self.links.items()
            if agent == agent_id and state == "up" and now - pulsed <= PULSE_VALID_MS
        ]

    def live_of(self, task_key: int, now: int) -> list[Row]:
        """The live leases of a task."""
        return [lease for lease in self.unended.get(task_key, ()) if self.live(lease, now)]

    def unmet_of(self, task_key: int) -> list[str]:
        """What a task waits for, counted from the edges and the states of the tasks they name."""
        found = []
        for key, needs_id, needs_key in self.edges:
            if key == task_key and (needs_key is None or self.tasks[needs_key]["status"] != "done"):
                found.append(needs_id)
        return found

    def named(self, task_id: str | None) -> Row | None:
        """The task of this name."""
        return next((task for task in self.tasks.values() if task["task_id"] == task_id), None)

    def ready_from(self, task: Row) -> int:
        """The instant before which a task waits."""
        came = (task["key"], task["not_before_ms"]) in self.came
        return int(task["retry_at_ms"] if came else max(task["not_before_ms"], task["retry_at_ms"]))

    def shown(self, task: Row, now: int) -> str:
        """The derived status."""
        if task["status"] != "in_progress" or task["owner"] != "agent":
            return str(task["status"])
        held = any(lease["state"] == "active" for lease in self.live_of(task["key"], now))
        return "in_progress" if held else "todo"


def deadline(lease: Row) -> int:
    """When this holder counts as dead, recomputed from what was seen of it."""
    if lease["fixed"] or lease["state"] == "offered":
        latest = lease["expires_at_ms"]
    else:
        latest = max(lease["expires_at_ms"] + lease["grace_ms"], lease["seen_at_ms"] + lease["cadence_ms"])
        if lease["pulsed_at_ms"] is not None:
            carried = min(lease["pulsed_at_ms"] + PULSE_VALID_MS, lease["seen_at_ms"] + lease["hung_after_ms"])
            latest = max(latest, carried)
        if lease["silent_until_ms"] is not None:
            announced = min(lease["silent_until_ms"], lease["seen_at_ms"] + lease["silence_cap_ms"])
            latest = max(latest, announced)
    death = lease["death_at_ms"]
    return int(latest if death is None else min(latest, death))


def _known(before: Snapshot | None, table: str) -> tuple[dict[Any, Row], dict[Any, tuple[Any, ...]]]:
    if before is None:
        return {}, {}
    return (before.tasks, before.raw_tasks) if table == "tasks" else (before.leases, before.raw_leases)


def _keyed(
    eyes: sqlite3.Connection, table: str, known: dict[Any, Row], raw_known: dict[Any, tuple[Any, ...]]
) -> tuple[dict[Any, Row], dict[Any, tuple[Any, ...]]]:
    """A table by its first column. A row that has not changed keeps its dict, so that `is` tells what moved."""
    cursor = eyes.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    rows: dict[Any, Row] = {}
    raws: dict[Any, tuple[Any, ...]] = {}
    for raw in cursor:
        key = raw[0]
        raws[key] = raw
        rows[key] = known[key] if raw_known.get(key) == raw else dict(zip(names, raw, strict=True))
    return rows, raws


def dump(eyes: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Every table, byte for byte."""
    tables = [row[0] for row in eyes.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    return {table: eyes.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall() for table in tables}
