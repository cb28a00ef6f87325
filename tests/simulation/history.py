"""What can only be seen over time: tokens, recoveries, the ledger and its obligations, handoffs.

The chronicle reads what each step appended to the events and the receipts and keeps its own books from that.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from typing import Any

from tests.simulation.rows import Snapshot, Violation, demand

HANDOFF_MS = 24 * 3_600_000
# Handoffs this close to their end are not judged: the exact instant belongs to the engine's own tests.
MARGIN_MS = 5_000


class Chronicle:
    """The simulation's own books."""

    def __init__(self) -> None:
        self.last_event = 0
        self.last_receipt = 0
        self.receipt_count = 0
        self.tokens: dict[str, int] = {}
        self.known_leases: set[str] = set()
        self.recovered: Counter[str] = Counter()
        self.heads: dict[int, tuple[int, str]] = {}
        self.obligations: dict[int, str] = {}
        # Leases whose success is in the ledger: a second one is a late receipt, recorded and without effect.
        self.closers: set[str | None] = set()
        # The token of the lease whose acceptance opened the present obligation of a task.
        self.openers: dict[int, int] = {}
        self.opened = 0
        self.closed = 0
        # task key: [(lease, when it was recovered in time that passed)]
        self.handoffs: dict[int, list[tuple[str, int]]] = {}
        self.seen: Counter[str] = Counter()

    def follow(self, eyes: sqlite3.Connection, state: Snapshot, elapsed_ms: int) -> None:
        """Read what the last step appended, and judge it."""
        self._tokens(state)
        self._events(eyes, state, elapsed_ms)
        self._receipts(eyes, state)

    # -- 2: tokens ----------------------------------------------------------------------------------------------------

    def _tokens(self, state: Snapshot) -> None:
        new = [lease for lease_id, lease in state.leases.items() if lease_id not in self.known_leases]
        for lease in sorted(new, key=lambda lease: lease["token"]):
            name = lease["task_id"]
            highest = self.tokens.get(name, 0)
            demand(lease["token"] > highest, "2 tokens only grow", task=name, token=lease["token"], highest=highest)
            self.tokens[name] = lease["token"]
            self.known_leases.add(lease["lease_id"])
        for task in state.tasks.values():
            highest = self.tokens.get(task["task_id"], 0)
            demand(task["last_token"] == highest, "2 the task knows its last token", task=task["task_id"])

    # -- 7, 11: recoveries and their handoffs -------------------------------------------------------------------------

    def _events(self, eyes: sqlite3.Connection, state: Snapshot, elapsed_ms: int) -> None:
        rows = eyes.execute(
            "SELECT seq, kind, task_key, lease_id, data FROM events WHERE seq > ? ORDER BY seq", (self.last_event,)
        ).fetchall()
        for seq, kind, task_key, lease_id, data in rows:
            self.last_event = seq
            self.seen["event " + kind] += 1
            if kind == "recovered":
                self._recovery(eyes, state, task_key, lease_id, elapsed_ms, json.loads(data))
            elif kind == "healed":
                previous = json.loads(data)["previous"]
                kept = [entry for entry in self.handoffs.get(task_key, []) if entry[0] != previous]
                self.handoffs[task_key] = kept
            elif kind == "completed":
                self.handoffs.pop(task_key, None)
        if rows:
            counted = eyes.execute("SELECT value FROM counters WHERE name = 'recoveries'").fetchone()
            demand((counted[0] if counted else 0) == self.recovered.total(), "11 recoveries are counted once each")

    def _recovery(
        self, eyes: sqlite3.Connection, state: Snapshot, task_key: int, lease_id: str, elapsed_ms: int, data: Any
    ) -> None:
        self.recovered[lease_id] += 1
        demand(self.recovered[lease_id] == 1, "11 recovery at most once per lease", lease=lease_id)
        self.seen["recovered " + data["reason"]] += 1
        if task_key not in state.tasks:
            return
        lease = state.leases[lease_id]
        demand(lease["state"] == "expired" and lease["accepted_at_ms"] is not None, "11 a recovery ends a lease")
        written = eyes.execute("SELECT count(*) FROM handoffs WHERE lease_id = ?", (lease_id,)).fetchone()[0]
        demand(written == 1, "7 a recovery writes one handoff", lease=lease_id, written=written)
        told = "SELECT count(*) FROM messages WHERE task_key = ? AND kind = 'handoff'"
        demand(eyes.execute(told, (task_key,)).fetchone()[0] > 0, "7 the thread tells of it", lease=lease_id)
        owed = "SELECT count(*) FROM receipts WHERE lease_id = ? AND phase = 'escalate'"
        demand(eyes.execute(owed, (lease_id,)).fetchone()[0] > 0, "6 the ledger tells of it", lease=lease_id)
        self.handoffs.setdefault(task_key, []).append((lease_id, elapsed_ms))

    def check_grant(self, task_key: int, shown: list[str], elapsed_ms: int) -> None:
        """7: whoever is given a recovered task is shown what the lost holders left, newest first, five at most."""
        fresh = [lease for lease, at in self.handoffs.get(task_key, []) if elapsed_ms - at < HANDOFF_MS - MARGIN_MS]
        missing = [lease for lease in fresh[-5:] if lease not in shown]
        # Releases and revocations leave handoffs too, and newer ones push old recoveries off the list of five.
        demand(not missing or len(shown) == 5, "7 the next holder sees the handoff", missing=missing, shown=shown)
        if fresh:
            demand(fresh[-1] in shown or len(shown) == 5, "7 the next holder sees the last handoff", last=fresh[-1])
            self.seen["handoff shown"] += 1

    # -- 6: the ledger ------------------------------------------------------------------------------------------------

    def _receipts(self, eyes: sqlite3.Connection, state: Snapshot) -> None:
        rows = eyes.execute(
            "SELECT seq, task_key, project_id, task_id, position, phase, at_ms, lease_id, body, prev_hash, hash"
            " FROM receipts WHERE seq > ? ORDER BY seq",
            (self.last_receipt,),
        ).fetchall()
        for seq, key, project_id, task_id, position, phase, at_ms, lease_id, body, prev_hash, digest in rows:
            self.last_receipt = seq
            self.receipt_count += 1
            count, head = self.heads.get(key, (0, _digest("tenure.genesis.v1", project_id, task_id)))
            facts = {"task": task_id, "position": position}
            demand(position == count + 1 and prev_hash == head, "the chain continues", **facts)
            demand(digest == _digest("tenure.receipt.v1", prev_hash, body), "a receipt hashes to its hash", **facts)
            self.heads[key] = (position, digest)
            self._oblige(state, key, phase, json.loads(body), lease_id, at_ms)
        if rows:
            total = eyes.execute("SELECT count(*) FROM receipts").fetchone()[0]
            demand(total == self.receipt_count, "receipts are never removed", total=total, known=self.receipt_count)
        for key, task in state.tasks.items():
            count, head = self.heads.get(key, (0, ""))
            demand((task["receipt_count"], task["receipt_hash"]) == (count, head), "the task knows its chain's head")
            obligation = self.obligations.get(key, "none")
            facts = {"task": task["task_id"], "kept": task["obligation"], "told": obligation}
            demand(task["obligation"] == obligation, "6 the obligation is what the receipts say", **facts)

    def _oblige(self, state: Snapshot, key: int, phase: str, body: Any, lease_id: str | None, at_ms: int) -> None:
        """Open and close the task's obligation by its receipts alone. A close of something closed is a fault."""
        obligation = self.obligations.get(key, "none")
        lease = state.leases.get(lease_id) if lease_id else None
        self.seen[f"receipt {phase}"] += 1
        if phase == "accepted":
            if obligation in ("none", "closed"):
                self.opened += 1
                self.openers[key] = lease["token"] if lease is not None else 0
            self.obligations[key] = "open"
        elif phase == "escalate":
            reason = body["escalation_reason"]
            self.seen[f"escalated {reason}"] += 1
            if reason == "max_retries_exceeded":
                self._close(key, obligation, must=True)
            elif reason == "lease_expired" and obligation == "open":
                self.obligations[key] = "overdue"
        elif phase == "complete" and body["status"] == "success":
            first_word = lease_id not in self.closers
            ended = lease is not None and (lease["end_reason"], lease["ended_at_ms"]) == ("completed", at_ms)
            # A late success is for the obligation that its own lease accepted, and for its first word on its end.
            late = lease is None or (first_word and lease["token"] >= self.openers.get(key, 0))
            if ended or late:
                self._close(key, obligation, must=ended and first_word)
            if ended:
                self.closers.add(lease_id)
        elif lease is not None and (lease["end_reason"], lease["ended_at_ms"]) == ("canceled", at_ms):
            # A cancellation by its holder. A late one is recorded and does nothing.
            self.closers.add(lease_id)
            self._close(key, obligation, must=False)
        elif lease is not None and (lease["end_reason"], lease["ended_at_ms"]) == ("failed", at_ms):
            # A failure that ended its lease. A late one is recorded and does nothing.
            self.closers.add(lease_id)

    def _close(self, key: int, obligation: str, *, must: bool) -> None:
        if obligation in ("open", "overdue"):
            self.closed += 1
            self.obligations[key] = "closed"
        elif must:
            raise Violation(f"6 an obligation closes exactly once: task key {key} was {obligation}")


def _digest(domain: str, *parts: str) -> str:
    digest = hashlib.sha256(domain.encode())
    for part in parts:
        data = part.encode()
        digest.update(b"\n%d:" % len(data) + data)
    return digest.hexdigest()
