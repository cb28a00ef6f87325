"""Touch: a sign of life. It must start hardly slower than Python itself, because hooks call it on every tool use.

It therefore imports nothing but the deadline and the store. A touch extends the agent's live leases by their present
terms, and clears or sets an announced silence. A holder that was declared dead is only told.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.deadline import live, seen
from tenure.core.errors import Refused
from tenure.core.record import Record
from tenure.engine import change, load
from tenure.engine.callers import CALLER, known_agent, see
from tenure.engine.verb import verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.core.model import Lease
    from tenure.store.store import Transaction

EXPECT_SILENCE_S = inputs.whole(0, inputs.TTL_MAX_S)


class Touched(Record):
    """What the touch reached: the leases the agent holds, and the one it lost since it was last told."""

    agent_id: str
    leases: tuple[Lease, ...]
    lost: Lease | None = None


@verb(
    agent_id=inputs.ident,
    incarnation=CALLER["incarnation"],
    expect_silence_s=EXPECT_SILENCE_S,
    server_id=inputs.optional(inputs.ident),
)
def touch(
    tx: Transaction,
    *,
    agent_id: str,
    incarnation: int | None = None,
    expect_silence_s: int = 0,
    server_id: str | None = None,
) -> Touched | Refused:
    """The agent is alive. Extends what it holds, unless only heartbeats do."""
    tx.ahead("unended_of_agent", agent_id=agent_id)
    agent = known_agent(tx, agent_id, incarnation)
    if isinstance(agent, Refused):
        return agent
    leases, lost = [], None
    for lease in load.unended_of_agent(tx, agent_id):
        if not live(lease, tx.now_ms):
            # Too late, although nobody has written its recovery yet: the holder hears it now.
            lost = lease.replace(state="expired", end_reason=lease.end_reason or "lease_expired")
            continue
        after = seen(lease, tx.now_ms, extends=bool(lease.touch_extends), expect_silence_ms=expect_silence_s * 1000)
        # Whoever proves to be alive holds what it extends: the exit of an older run is not its death.
        after = after.replace(incarnation=agent.incarnation, server_id=server_id or lease.server_id)
        leases.append(change.extend(tx, lease, after))
    see(tx, agent)
    if agent.lost_lease_id is not None:
        from tenure.engine.holding import note_return

        told = load.lease_by_id(tx, agent.lost_lease_id)
        if told is not None:
            note_return(tx, agent, told)
            tx.do("look_again", lease_id=told.lease_id)
        lost = told or lost
        tx.do("told_lost", agent_id=agent_id)
    return Touched(agent_id=agent_id, leases=tuple(leases), lost=lost)
