"""Which of SQLite's errors are faults of the store, and what they are called."""

from __future__ import annotations

from tenure.store.store import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3

    from tenure.store.store import StoreFault

# SQLite's result code (its name without SQLITE_, up to an extension): our code and what to say.
FAULTS = {
    "BUSY": ("store_busy", "The store's write lock was held by others for too long"),
    "LOCKED": ("store_busy", "The store's write lock was held by others for too long"),
    "FULL": ("store_full", "The disk is full"),
    "CORRUPT": ("store_corrupt", "The store's file is damaged"),
    "NOTADB": ("store_corrupt", "The store's file is not a database"),
    "READONLY": ("store_unavailable", "The store cannot be written"),
    "CANTOPEN": ("store_unavailable", "The store cannot be opened"),
    "PERM": ("store_unavailable", "The store may not be opened"),
    "PROTOCOL": ("store_busy", "The store's write lock was held by others for too long"),
    "IOERR": ("store_unavailable", "The disk failed to read or write"),
}


def as_fault(error: sqlite3.Error, path: str) -> StoreFault | None:
    """The fault behind an SQLite error, or None for a mistake of ours (a constraint, bad SQL)."""
    name = getattr(error, "sqlite_errorname", None) or ""
    known = FAULTS.get(name.removeprefix("SQLITE_").partition("_")[0])
    return None if known is None else fault(known[0], f"{known[1]} ({error}).", path=path, sqlite=name)
