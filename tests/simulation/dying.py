"""Connections that die or run out of disk at a chosen statement.

A killed process does not clean up after itself. From the chosen statement on, a dying connection answers nothing and
claims to have no open transaction, so that the store's own rollback cannot run; the world then closes the real
connection without a commit, which is what the operating system would do.
"""

from __future__ import annotations

import sqlite3
from typing import Any


class Killed(BaseException):
    """The process is gone. Not an Exception, so that nothing between here and the world handles it."""


class Doomed:
    """A connection with a fate. Statements are counted from 1, BEGIN included."""

    def __init__(
        self,
        real: sqlite3.Connection,
        *,
        dies_before: int = 0,
        dies_after_commit: bool = False,
        full_at: int = 0,
        full_ends_transaction: bool = False,
    ) -> None:
        self.real = real
        self.dies_before = dies_before
        self.dies_after_commit = dies_after_commit
        self.full_at = full_at
        self.full_ends_transaction = full_ends_transaction
        self.count = 0
        self.dead = False
        self.committed = False
        self.was_full = False

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        """Run a statement, unless it is the one at which fate strikes."""
        if self.dead:
            raise Killed
        self.count += 1
        if self.count == self.dies_before:
            self.dead = True
            raise Killed
        if self.count == self.full_at:
            self._fill_the_disk()
        cursor = self.real.execute(sql, values)
        if sql.startswith("BEGIN"):
            # A verb that commits in its middle and goes on has not committed yet.
            self.committed = False
        if sql == "COMMIT":
            self.committed = True
            if self.dies_after_commit:
                self.dead = True
                raise Killed
        return cursor

    def _fill_the_disk(self) -> None:
        self.was_full = True
        if self.full_ends_transaction and self.real.in_transaction:
            # SQLite itself rolls back when it cannot write its journal.
            self.real.execute("ROLLBACK")
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    @property
    def in_transaction(self) -> bool:
        """A dead process has nothing to roll back."""
        return not self.dead and self.real.in_transaction

    def close(self) -> None:
        """Closing without a commit undoes what was open."""
        self.real.close()
