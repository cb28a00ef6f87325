"""Who calls, and through what: the one place where a call becomes a touch.

The caller is known from the call's own argument, else from its connection (`register_agent` binds it), else from its
credential. A connection speaks for one incarnation of an agent: the one it began when it registered the agent or first
named it, or the one it was told to speak for (`TENURE_INCARNATION`, `Tenure-Incarnation`). A newer connection under the
same id begins a newer incarnation, and what the older one calls is answered with `superseded`. The 2026-07-28 protocol
has no connections over HTTP; there a call speaks for its agent's present incarnation unless it names one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.engine import agents
from tenure.engine.touch import touch
from tenure.surfaces.http.credentials import ANYONE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from tenure.core.model import Agent
    from tenure.engine.touch import Touched
    from tenure.surfaces.http.node import Node


class Connection:
    """What is known of one client that stays: an HTTP session, or the client of a stdio server."""

    def __init__(self, node: Node, credential: str | None = None) -> None:
        self.node = node
        self.credential = credential
        # The agent that a call without a name is made for, and the incarnation of each agent this client speaks for.
        self.agent_id: str | None = None
        self.incarnations: dict[str, int] = {}
        # Those it began itself: they end with it.
        self.began: set[str] = set()

    async def arrive(self, agent_id: str) -> int | Refused:
        """Speak for a known agent from now on, as a new incarnation."""
        agent = await self.node.call(agents.arrive, agent_id=agent_id)
        if isinstance(agent, Refused):
            return agent
        await self.bind(agent, began=True)
        return agent.incarnation

    async def bind(self, agent: Agent, *, began: bool) -> None:
        """Remember whom this client speaks for, and whether that incarnation is its own."""
        self.agent_id = agent.agent_id
        self.incarnations[agent.agent_id] = agent.incarnation
        if began:
            self.began.add(agent.agent_id)


class Caller:
    """One message's sender, before it is known which agent it means."""

    def __init__(
        self,
        node: Node,
        connection: Connection | None,
        credential: str | None = None,
        incarnation: int | None = None,
        hung_up: asyncio.Event | None = None,
    ) -> None:
        self.node = node
        self.connection = connection
        self.credential = credential
        self.incarnation = incarnation
        self.hung_up = hung_up

    @property
    def is_operator(self) -> bool:
        """Whether the credential says so; without tokens nobody's does."""
        return self.credential == ANYONE

    @property
    def own(self) -> str | None:
        """The agent that the credential belongs to; None where it may speak for any."""
        return None if self.credential in (None, ANYONE) else self.credential

    def named(self, arguments: Mapping[str, Any], speaker: str = "agent_id") -> str | Refused | None:
        """The agent a call is made for: by argument, else by connection, else by credential."""
        asked = arguments.get("agent_id") or arguments.get(speaker)
        own = self.own
        if asked is not None and own is not None and asked != own:
            message = f"This token speaks for {own}, not for {ascii(asked)[:80]}."
            return refuse("not_permitted", message, "Use a token of that agent, or an operator's.", agent_id=own)
        if asked is not None:
            return inputs.ident("agent_id", asked)
        return (self.connection.agent_id if self.connection else None) or own

    async def speaks_for(self, agent_id: str) -> int | Refused | None:
        """The incarnation this sender speaks for; None for whichever is present."""
        if self.incarnation is not None:
            return self.incarnation
        if self.connection is None:
            return None
        spoken = self.connection.incarnations
        if agent_id in spoken:
            return spoken[agent_id]
        # A connection that speaks for somebody and names another (by mistake, or to ask about it) is no new run of that
        # one, and does not supersede it.
        return None if spoken else await self.connection.arrive(agent_id)

    async def touched(self, agent_id: str) -> Touched | Refused:
        """Tell the engine that the agent is alive, as whom this sender speaks for."""
        incarnation = await self.speaks_for(agent_id)
        if isinstance(incarnation, Refused):
            return incarnation
        return await self.node.call(touch, agent_id=agent_id, incarnation=incarnation, server_id=self.node.server_id)


class Call:
    """One call on behalf of one agent, after it was touched. `agent_id` is None where nobody can tell."""

    def __init__(self, caller: Caller, agent_id: str | None = None, touched: Touched | None = None) -> None:
        self.caller = caller
        self.node = caller.node
        self.agent_id = agent_id
        self.lost = touched.lost if touched else None

    @property
    def incarnation(self) -> int | None:
        """The incarnation the call speaks for, as far as its connection knows."""
        if self.caller.incarnation is not None or self.agent_id is None or self.caller.connection is None:
            return self.caller.incarnation
        return self.caller.connection.incarnations.get(self.agent_id)

    def speaker(self) -> dict[str, Any] | Refused:
        """The arguments by which a verb is told who calls; a refusal when nobody can tell."""
        if self.agent_id is None:
            hint = "Give agent_id, or register_agent on this connection first."
            return refuse("agent_required", "It is not clear which agent this is.", hint)
        return {"agent_id": self.agent_id, "incarnation": self.incarnation}

    async def on_task(self, verb: Any, arguments: dict[str, Any]) -> Any:
        """Run a verb on a task that is named without its project: the only one of that name, else the agent's own."""
        answer = await self.node.call(verb, **arguments)
        if not isinstance(answer, Refused) or answer.code != "ambiguous_task" or self.agent_id is None:
            return answer
        known = await self.node.call(agents.show_agent, agent_id=self.agent_id)
        if isinstance(known, Refused) or known.agent.project_id not in answer.facts["projects"]:
            return answer
        return await self.node.call(verb, **arguments, project_id=known.agent.project_id)
