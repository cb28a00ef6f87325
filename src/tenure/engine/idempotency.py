"""Idempotency keys: a retried request gets the lease its first try made, never another one.

A key is unique per (project, agent, verb) and is kept for a day. The same key with the same arguments returns the lease
in its present state, which may well be ended by then; with other arguments it is refused.
"""

from __future__ import annotations

from tenure.core.deadline import live
from tenure.core.errors import Refused, refuse
from tenure.core.model import UNENDED
from tenure.core.record import Record
from tenure.engine import load, recovery

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
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


def replay(tx: Transaction, key: Key | None, kept_hours: float) -> list[Lease] | Refused | None:
    """What a request with this key made before: None for a new one, or for a key that is past its time."""
    if key is None:
        return None
    tx.lock("request", **key.as_dict())
    row = tx.one("idempotency", **key.as_dict())
    if row is None or row["at_ms"] + kept_hours * 3_600_000 <= tx.now_ms:
        return None
    if row["digest"] != key.digest:
        message = f"The idempotency key {key.key!r} was used for a different {key.verb} of {key.agent_id}."
        return refuse("idempotency_conflict", message, key=key.key)
    found = [_present(tx, lease_id) for lease_id in row["leases"].split()]
    leases = [lease for lease in found if lease is not None]
    if not leases:
        return refuse("lease_not_found", f"The lease made under {key.key!r} is gone with its task.", key=key.key)
    return leases


def _present(tx: Transaction, lease_id: str) -> Lease | None:
    """A lease in its present state; one that is due is ended, although nobody had written that yet."""
    lease = load.lease_by_id(tx, lease_id)
    if lease is not None and lease.state in UNENDED and not live(lease, tx.now_ms):
        recovery.recover_due(tx, load.task_by_key(tx, lease.task_key))
        return load.lease_by_id(tx, lease_id)
    return lease


def remember(tx: Transaction, key: Key | None, leases: Sequence[Lease]) -> None:
    """Keep what a request made, for its retries."""
    if key is not None:
        made = " ".join(lease.lease_id for lease in leases)
        tx.do("remember", **key.as_dict(), leases=made, at_ms=tx.now_ms)
