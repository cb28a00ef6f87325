"""What can be seen of a holder: its signs of life in time, what carries its deadline, and how well it has done lately.

Nothing here decides anything: the deadline is judged in core/deadline.py alone.

The health score of an agent is a number from 0 to 100 over its last leases that ended: a completed one counts 1, one
that it gave back, that was taken from it or whose recovery proved false counts 1/2, and one that was recovered, or that
failed, counts 0. A stuck lease costs 20. An agent of which nothing has ended yet has no score.
"""

from __future__ import annotations

from tenure.core.deadline import announcement_ms, live, pulse_ms, rule_ms
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.core.model import Lease

HEALTH_OF = 20
STUCK_COSTS = 20


class Sign(Record):
    """A call of a holder: when, after how long a silence, and how long that might have been."""

    at_ms: int
    gap_ms: int
    allowed_ms: int


def signs_of(lease: Lease) -> tuple[Sign, ...]:
    """The last signs of life under a lease, in order. The newest is the last call; each older one lies a gap before."""
    found: list[Sign] = []
    at_ms = lease.seen_at_ms
    for entry in reversed(lease.signs.split()):
        gap, _, allowed = entry.partition("/")
        found.append(Sign(at_ms=at_ms, gap_ms=int(gap) * 100, allowed_ms=int(allowed) * 100))
        at_ms -= int(gap) * 100
    return tuple(reversed(found))


def carried_by(lease: Lease, now_ms: int) -> str:
    """What keeps a live holder at this instant: its term, its grace, its cadence, a link, or an announcement."""
    if not live(lease, now_ms):
        return "nothing"
    if now_ms < lease.expires_at_ms or lease.fixed or lease.state == "offered":
        return "term"
    if now_ms < lease.expires_at_ms + lease.grace_ms:
        return "grace"
    return extension_of(lease) or "server"


def extension_of(lease: Lease) -> str:
    """What moves the deadline beyond term and grace, if anything does: cadence, link or announcement."""
    if lease.fixed or lease.recover_at_ms <= lease.expires_at_ms + lease.grace_ms:
        return ""
    reaches = {"cadence": rule_ms(lease), "link": pulse_ms(lease), "announcement": announcement_ms(lease)}
    return max(reaches, key=lambda name: reaches[name])


def health(leases: Sequence[Lease]) -> int | None:
    """The score of an agent from its leases, newest first; None when none has ended yet."""
    ended = [lease for lease in leases if lease.ended_at_ms is not None][:HEALTH_OF]
    if not ended:
        return None
    cost = STUCK_COSTS if any(lease.stuck and lease.ended_at_ms is None for lease in leases) else 0
    return max(0, round(100 * sum(map(_worth, ended)) / len(ended)) - cost)


def _worth(lease: Lease) -> float:
    if lease.state == "completed":
        return 1.0 if lease.end_reason == "completed" else 0.0
    if lease.state == "expired":
        return 0.5 if lease.returned_at_ms is not None else 0.0
    return 0.5
