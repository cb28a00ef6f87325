"""The fleet: every agent with what can be seen of it, and its leases in time.

`fleet` is a page of agents with the last leases of each; `timeline` is one agent with more of them, its signs of life
and what is told of each lease. A lease's bar runs from its grant to its end, or to now.
"""

from __future__ import annotations

import json

from tenure.core import inputs
from tenure.core.deadline import PULSE_VALID_MS, live
from tenure.core.errors import Refused
from tenure.core.model import Event, Lease, Link
from tenure.core.record import Record
from tenure.core.signs import carried_by, health
from tenure.core.story import sentence
from tenure.engine import agents, callers, load
from tenure.engine.verb import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.core.model import Agent
    from tenure.store.store import Transaction

SPANS_SHOWN, SPANS_MAX, TOLD_MAX = 40, 400, 2_000


class Told(Record):
    """An event of a lease, told as `why` tells it."""

    at_ms: int
    kind: str
    text: str


class Span(Record):
    """A lease in time: its row, whether it is live, what carries it now, and what is told of it."""

    lease: Lease
    live: bool
    carried: str
    handed_over_at_ms: int | None
    told: tuple[Told, ...]


class Member(Record):
    """An agent as the fleet shows it. `link` is linked, unlinked or departed; `health` None says: nothing ended yet."""

    agent: Agent
    link: str
    links: tuple[Link, ...]
    health: int | None
    # Newest first.
    spans: tuple[Span, ...]


class Fleet(Record):
    """A page of the fleet; the next begins after its last agent."""

    members: tuple[Member, ...]
    next_after: str | None
    now_ms: int


@query(
    project_id=inputs.optional(inputs.ident),
    after=inputs.text(128, one_line=True),
    limit=inputs.whole(1, 500),
    spans=inputs.whole(1, SPANS_MAX),
)
def fleet(
    tx: Transaction, *, project_id: str | None = None, after: str = "", limit: int = 100, spans: int = SPANS_SHOWN
) -> Fleet | Refused:
    """Agents by id, a page at a time, each with its link, its health and its last leases."""
    found = agents.list_agents.body(tx, project_id=project_id, after=after, limit=limit)
    if isinstance(found, Refused):
        return found
    return Fleet(
        members=tuple(_member(tx, agent, spans) for agent in found),
        next_after=found[-1].agent_id if len(found) == limit else None,
        now_ms=tx.now_ms,
    )


class Timeline(Record):
    """One agent in time."""

    member: Member
    now_ms: int


@query(agent_id=inputs.ident, spans=inputs.whole(1, SPANS_MAX))
def timeline(tx: Transaction, *, agent_id: str, spans: int = SPANS_MAX) -> Timeline | Refused:
    """One agent with its leases in time, its signs of life and what is told of each."""
    agent = callers.known_agent(tx, agent_id, None)
    if isinstance(agent, Refused):
        return agent
    return Timeline(member=_member(tx, agent, spans), now_ms=tx.now_ms)


def _member(tx: Transaction, agent: Agent, most: int) -> Member:
    past = [Lease(**row) for row in tx.all("past_of_agent", agent_id=agent.agent_id, limit=most)]
    leases = [*reversed(load.unended_of_agent(tx, agent.agent_id)), *past]
    links = tuple(Link(**row) for row in tx.all("links_of", agent_id=agent.agent_id))
    pulses = any(tx.now_ms - link.pulsed_at_ms <= PULSE_VALID_MS for link in links)
    return Member(
        agent=agent,
        link="departed" if agent.state == "departed" else "linked" if pulses else "unlinked",
        links=links,
        health=health(leases),
        spans=tuple(_spans(tx, leases)),
    )


def _spans(tx: Transaction, leases: Sequence[Lease]) -> list[Span]:
    if not leases:
        return []
    ids = json.dumps([lease.lease_id for lease in leases])
    handed = {row["lease_id"]: row["recovered_at_ms"] for row in tx.all("handed_over", lease_ids=ids)}
    told: dict[str | None, list[Told]] = {}
    for row in tx.all("told_of_leases", lease_ids=ids, limit=TOLD_MAX):
        event = Event(**row)
        told.setdefault(event.lease_id, []).append(Told(at_ms=event.at_ms, kind=event.kind, text=sentence(event)))
    return [
        Span(
            lease=lease,
            live=live(lease, tx.now_ms),
            carried=carried_by(lease, tx.now_ms),
            handed_over_at_ms=handed.get(lease.lease_id),
            told=tuple(told.get(lease.lease_id, ())),
        )
        for lease in leases
    ]
