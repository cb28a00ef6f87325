"""Idempotency keys: a retried request gets the lease its first try made, never another one.

A key is unique per (project, agent, verb) and is kept for a day. The same key with the same arguments returns the lease in
its present state, which may well be ended by then; with other arguments it is refused.
"""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.core.record import Record
from tenure.engine import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Lease
    from tenure.store.store import Transaction


class Key(Record):
    """A caller's key with what it was used for."""

    project_id: str
    agent_id: str
    verb: str
    key: str
    digest: str

    @classmethod
    def of(cls, project_id: str, agent_id: str, verb: str, key: str | None, **arguments: Any) -> Key | None:
        """The key of a request, or None when it carries none."""
        if key is None:
            return None
        import hashlib
        import json

        text = json.dumps(arguments, sort_keys=True, default=list)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(project_id=project_id, agent_id=agent_id, verb=verb, key=key, digest=digest)


def replay(tx: Transaction, key: Key | None) -> Lease | Refused | None:
    """What a request with this key made before: None for a new one."""
    if key is None:
        return None
    row = tx.one("idempotency", **key.as_dict())
    if row is None:
        return None
    if row["digest"] != key.digest:
        message = f"The idempotency key {key.key!r} was used for a different {key.verb} of {key.agent_id}."
        return refuse("idempotency_conflict", message, key=key.key)
    lease = load.lease_by_id(tx, row["lease_id"])
    if lease is None:
        return refuse("lease_not_found", f"The lease made under {key.key!r} is gone with its task.", key=key.key)
    return lease


def remember(tx: Transaction, key: Key | None, lease: Lease) -> None:
    """Keep what a request made, for its retries."""
    if key is not None:
        tx.do("remember", **key.as_dict(), lease_id=lease.lease_id, at_ms=tx.now_ms)
