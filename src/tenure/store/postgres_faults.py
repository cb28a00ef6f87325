"""Which of PostgreSQL's errors are faults of the store, which are worth another try, and what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from tenure.store.store import fault

if TYPE_CHECKING:
    from tenure.store.store import StoreFault

# The classes and codes of SQLSTATE, longest first: our code and what to say.
FAULTS = {
    "53100": ("store_full", "The database's disk is full"),
    "53": ("store_busy", "The database has no room for another request"),
    "55P03": ("store_busy", "The rows were locked by others for too long"),
    "57014": ("store_busy", "The database did not finish in time"),
    "40": ("store_busy", "The rows were changed by others again and again"),
    "25006": ("store_unavailable", "The database does not take writes"),
    "08": ("store_unavailable", "The database cannot be reached"),
    "57": ("store_unavailable", "The database is stopping or starting"),
    "28": ("store_unavailable", "The database refuses this user"),
    "3D": ("store_unavailable", "There is no such database"),
    "3F": ("store_unavailable", "The schema that the address names has to be made first"),
    "42501": ("store_unavailable", "This user may not use the store's tables"),
    "58": ("store_unavailable", "The database's disk failed to read or write"),
    "XX": ("store_corrupt", "The database reports damage"),
}

# The transaction was undone because of what others did at the same time: run again, it may well succeed.
CONTENTION = (errors.SerializationFailure, errors.DeadlockDetected)
# A row that two made at once, or one that is gone: run again, the verb finds the other's work and says so.
CONSTRAINTS = (errors.UniqueViolation, errors.ForeignKeyViolation, errors.ExclusionViolation)
# The server that was asked does not serve (any more); another of the address's hosts may.
GONE = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.ReadOnlySqlTransaction,
    # Someone between us and the server gave this connection another session, without what was prepared in ours.
    errors.InvalidSqlStatementName,
)


def as_fault(error: psycopg.Error, where: str) -> StoreFault | None:
    """The fault behind an error, or None for a mistake of ours (a constraint, bad SQL)."""
    state = error.sqlstate or ""
    known = next((FAULTS[state[:length]] for length in (5, 2) if state[:length] in FAULTS), None)
    if known is None and not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        # What the client library found out itself: no server answers, or the connection broke.
        known = ("store_unavailable", "The database cannot be reached")
    if known is None:
        return None
    said = " ".join(str(error).split())
    return fault(known[0], f"{known[1]} ({said}).", store=where, sqlstate=state)


def is_lost(error: BaseException, connection: psycopg.Connection | None) -> bool:
    """Whether the connection is of no use any more: it broke, or its server does not take writes."""
    if isinstance(error, GONE):
        return True
    return connection is None or connection.closed or connection.broken
