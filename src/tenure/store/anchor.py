"""The store's clock on one machine.

A row (boot_id, wall0, mono0) gives every process of this boot the same `now = wall0 + CLOCK_MONOTONIC - mono0`, which
does not see suspends or steps of the wall clock. The first writer that finds the wall clock more than 2 s away moves
every pending deadline by the difference and re-anchors, in its own transaction: time that nobody could use does not
count against anyone, and stamps stay close to what people see on their watches.

A new boot has a new monotonic origin. Nothing tells how long the machine was down, so every unrecovered lease gets one
fresh term; links of the old boot are dead, and so do not prolong it.

A boot that was replaced and comes back means that two kernels write to one file (a network share, a synchronised
folder). Their clocks cannot be compared and SQLite's locks do not reach that far, so writes are refused.
"""

from __future__ import annotations

from tenure.store.store import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.store.store import Clock

DRIFT_MAX_MS = 2_000


class Stale(Exception):
    """The anchor does not fit this machine's clocks; a writer must re-anchor first."""


def read_now(cursor: Any, queries: dict[str, str], clock: Clock) -> int:
    """The store's time, or Stale."""
    row = cursor.execute(queries["clock"]).fetchone()
    if row is None:
        raise Stale
    boot_id, wall0, mono0 = row
    mono = clock.mono_ms()
    if boot_id != clock.boot_id() or mono < mono0:
        raise Stale
    now: int = wall0 + mono - mono0
    if abs(clock.wall_ms() - now) > DRIFT_MAX_MS:
        raise Stale
    return now


def advised_now(cursor: Any, queries: dict[str, str], clock: Clock) -> int:
    """The best a reader can do where it may not write: the anchored time of this boot, else the wall clock."""
    row = cursor.execute(queries["clock"]).fetchone()
    if row is not None and row[0] == clock.boot_id() and clock.mono_ms() >= row[2]:
        return int(row[1]) + clock.mono_ms() - int(row[2])
    return clock.wall_ms()


def re_anchor(cursor: Any, queries: dict[str, str], clock: Clock) -> int:
    """Fit the anchor to this machine's clocks, moving what is pending. Must hold the write lock."""
    boot, wall, mono = clock.boot_id(), clock.wall_ms(), clock.mono_ms()
    row = cursor.execute(queries["clock"]).fetchone()
    if row is not None:
        if row[0] == boot and mono >= row[2]:
            _shift(cursor, queries, wall - (row[1] + mono - row[2]), wall)
        else:
            _new_boot(cursor, queries, row[0], boot, wall)
    cursor.execute(queries["set_clock"], {"boot_id": boot, "wall0_ms": wall, "mono0_ms": mono})
    cursor.execute(queries["know_boot"], {"boot_id": boot})
    return wall


def _shift(cursor: Any, queries: dict[str, str], by_ms: int, now_ms: int) -> None:
    values = {"by_ms": by_ms, "now_ms": now_ms}
    for name in (
        "leases",
        "lease_timers",
        "retries",
        "task_timers",
        "links",
        "servers",
        "handoffs",
        "agents",
        "idempotency",
        "board_cards",
        "alerts",
        "requests",
        "gates",
    ):
        cursor.execute(queries["shift_" + name], values)


def _new_boot(cursor: Any, queries: dict[str, str], old: str, boot: str, now_ms: int) -> None:
    known = cursor.execute(queries["boot"], {"boot_id": boot}).fetchone()
    if known is not None and known[0] is not None:
        raise fault(
            "store_shared",
            "This file is written by two machines: a boot that another had replaced has come back.",
            boot_id=boot,
        )
    values = {"now_ms": now_ms, "boot_id": boot, "old_boot_id": old}
    cursor.execute(queries["replace_boot"], values)
    for name in ("leases", "timers", "retries", "links", "servers", "board_cards"):
        cursor.execute(queries["reboot_" + name], values)
