"""What watchers of processes ask and tell, besides the life of a link itself (engine/agents.py).

Which processes a host can watch; what a process printed last; and, for whoever runs one, how its leases stand.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.deadline import live
from tenure.core.errors import Refused, refuse
from tenure.core.model import Link
from tenure.core.record import Record
from tenure.engine import load
from tenure.engine.agents import link_named
from tenure.engine.callers import CALLER, known_agent
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.core.model import Lease
    from tenure.store.store import Transaction

TAIL_BYTES = 8_000


@query(
    boot_id=inputs.text(128, one_line=True, required=True),
    pid_ns=inputs.text(128, one_line=True, required=True),
    limit=inputs.limit,
)
def watched_links(tx: Transaction, *, boot_id: str, pid_ns: str, limit: int = 1_000) -> tuple[Link, ...]:
    """The links to processes of one boot and pid namespace: what someone there can check."""
    return tuple(Link(**row) for row in tx.all("links_watched", boot_id=boot_id, pid_ns=pid_ns, limit=limit))


@verb(link_id=inputs.ident, exited=inputs.text(500, one_line=True, required=True), output_tail=inputs.text(TAIL_BYTES))
def last_words(tx: Transaction, *, link_id: str, exited: str, output_tail: str = "") -> Link | Refused:
    """How a watched process ended and what it printed last, for its handoff.

    Told before the link ends. If someone else saw the death first, the words still reach the handoff.
    """
    link = link_named(tx, link_id)
    if isinstance(link, Refused):
        return link
    tx.do("say_last_words", link_id=link_id, exited=exited, output_tail=output_tail)
    if link.state != "up":
        agent = load.agent_named(tx, link.agent_id)
        lost = load.lease_by_id(tx, agent.lost_lease_id) if agent is not None and agent.lost_lease_id else None
        if lost is not None and lost.incarnation <= link.incarnation and _began_before_its_end(link, lost):
            tx.do("late_words", task_key=lost.task_key, token=lost.token, exited=exited, output_tail=output_tail)
    return link.replace(exited=exited, output_tail=output_tail)


def _began_before_its_end(link: Link, lost: Lease) -> bool:
    """Whether a run can have been the one that lost a lease: a later one has words about something else."""
    return lost.death_at_ms is None or link.linked_at_ms <= lost.death_at_ms


class Standing(Record):
    """What a run holds now, and the lease it asked about, however that stands."""

    leases: tuple[Lease, ...]
    lease: Lease | None = None


@query(agent_id=inputs.ident, incarnation=CALLER["incarnation"], lease_id=CALLER["lease_id"])
def standing(
    tx: Transaction, *, agent_id: str, incarnation: int | None = None, lease_id: str | None = None
) -> Standing | Refused:
    """How a run's leases stand. An older run of the agent is told `superseded`."""
    agent = known_agent(tx, agent_id, incarnation)
    if isinstance(agent, Refused):
        return agent
    lease = load.lease_by_id(tx, lease_id) if lease_id else None
    if lease_id and lease is None:
        return refuse("lease_not_found", f"There is no lease {lease_id}.", lease_id=lease_id)
    held = tuple(lease for lease in load.unended_of_agent(tx, agent_id) if live(lease, tx.now_ms))
    return Standing(leases=held, lease=lease)
