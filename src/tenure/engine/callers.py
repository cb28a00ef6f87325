"""Who calls: the arguments by which a verb is told, and whether this run may still speak for its agent.

Kept apart from engine/holding.py, which loads the whole machinery of recovery: a touch needs only this.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.engine import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from tenure.core.model import Agent
    from tenure.store.store import Transaction

    class CallerArgs(TypedDict, total=False):
        """The keyword arguments of CALLER, as a holder's verb passes them on."""

        task_id: str | None
        project_id: str | None
        agent_id: str | None
        incarnation: int | None
        lease_id: str | None
        token: int | None


# How often a call is written down as a sign of its agent's life; what it does to a lease is written each time.
SEEN_EVERY_MS = 1_000

# The arguments by which every holder's verb says who calls, with their checks.
CALLER = {
    "task_id": inputs.optional(inputs.ident),
    "project_id": inputs.optional(inputs.ident),
    "agent_id": inputs.optional(inputs.ident),
    "incarnation": inputs.optional(inputs.whole(1, 1 << 31)),
    "lease_id": inputs.optional(inputs.ident),
    "token": inputs.optional(inputs.whole(1, inputs.FOREVER_MS)),
}


def known_agent(tx: Transaction, agent_id: str, incarnation: int | None) -> Agent | Refused:
    """The agent, if this incarnation may still speak for it."""
    agent = load.agent_named(tx, agent_id)
    if agent is None:
        return refuse("agent_not_found", f"Nobody is registered as {agent_id}.", agent_id=agent_id)
    if incarnation is None or incarnation == agent.incarnation:
        return agent
    if incarnation > agent.incarnation:
        message = f"{incarnation} of {agent_id} has not begun; the present one is {agent.incarnation}"
        return inputs.bad("incarnation", message)
    return refuse(
        "superseded",
        f"A newer run of {agent_id} (incarnation {agent.incarnation}) has taken over from this one ({incarnation}).",
        agent_id=agent_id,
        incarnation=agent.incarnation,
    )


def see(tx: Transaction, agent: Agent) -> None:
    """Write down that the agent called, unless that was written a moment ago."""
    if agent.state != "present" or not seen_just_now(tx, agent):
        tx.do("see_agent", agent_id=agent.agent_id, now_ms=tx.now_ms)


def seen_just_now(tx: Transaction, agent: Agent) -> bool:
    """Whether the agent's last call is so fresh that another need not be written down. One in the future is not: the
    clock was set back meanwhile."""
    return 0 <= tx.now_ms - agent.seen_at_ms < SEEN_EVERY_MS
