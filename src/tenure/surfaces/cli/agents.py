"""`tenure agent ...`"""

from __future__ import annotations

from tenure.surfaces.cli.context import must
from tenure.surfaces.cli.output import Result, ago, clean, duration, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context


_EXPORT = "export TENURE_AGENT="


def join(context: Context) -> Result:
    """Register an agent that works here."""
    from tenure.engine.agents import agents_in, register
    from tenure.surfaces import shapes

    named = context.get("id") or context.environ.get("TENURE_AGENT") or _same_name_here(context)
    agent = must(
        register(
            context.store,
            agent_id=named,
            name=context.get("name", ""),
            role=context.get("role", ""),
            skills=context.get("skill", []),
            profile="cli",
            **context.place(),
            **context.project(),
        )
    )
    lines = [f"Joined as {agent.agent_id}" + (f" ({clean(agent.name)})" if agent.name != agent.agent_id else "")]
    others = [one.agent_id for one in must(agents_in(context.store, worktree=agent.worktree)) if one != agent]
    if others:
        # From here on the folder alone does not tell who is calling.
        work = "works" if len(others) == 1 else "work"
        lines.append(f"{', '.join(others)} {work} in this folder too, so say who you are: {_EXPORT}{agent.agent_id}")
    else:
        lines.append(f"In other folders say: {_EXPORT}{agent.agent_id}")
    return Result(data=shapes.agent(agent), lines=lines, next=["tenure ready", "tenure next"])


def _same_name_here(context: Context) -> str | None:
    """The agent of this name that already works in this folder: joining again, say at each session, resumes it."""
    from tenure.engine.agents import agents_in

    name = context.get("name")
    here = must(agents_in(context.store, worktree=context.worktree())) if name else ()
    same = [agent.agent_id for agent in here if agent.name == name]
    return same[0] if len(same) == 1 else None


def list_agents(context: Context) -> Result:
    """List the agents."""
    from tenure.engine import agents
    from tenure.surfaces import shapes

    limit = context.get("limit", 100)
    found = must(agents.list_agents(context.store, limit=limit, **context.project()))
    rows = [
        [one.agent_id, clean(one.name, 30), one.state, ago(one.seen_at_ms, context.now_ms), clean(one.role, 30)]
        for one in found
    ]
    lines = table(rows, ("ID", "NAME", "STATE", "SEEN", "ROLE")) if rows else ["No agents."]
    more = []
    if len(found) >= limit:
        more = [context.more("agent list", limit)]
        lines.append(f"More: {more[0]}")
    return Result(data={"agents": [shapes.agent(one) for one in found]}, lines=lines, next=more)


def show(context: Context) -> Result:
    """Show one agent."""
    from tenure.engine.agents import show_agent
    from tenure.surfaces import shapes

    agent_id = context.agent_id()
    seen = must(show_agent(context.store, agent_id=agent_id))
    agent, now = seen.agent, context.now_ms
    lines = [
        f"{agent.agent_id} - {clean(agent.name)}",
        "",
        f"State: {agent.state}, {'linked' if seen.linked else 'not linked'}",
        f"Seen: {ago(agent.seen_at_ms, now)}",
        f"Branch: {agent.branch}",
    ]
    where = f" on {clean(agent.host)}" if agent.host else ""
    lines += [f"Worktree: {clean(agent.worktree)}{where}"] if agent.worktree else []
    skills = ", ".join(clean(skill) for skill in agent.skills.split("\n"))
    lines += [f"Role: {clean(agent.role)}"] if agent.role else []
    lines += [f"Skills: {skills} (sent as capabilities with every claim)"] if skills else []
    lines += [
        f"Holds: {lease.task_id} ({lease.state}, expires in {duration(lease.expires_at_ms - now)})"
        for lease in seen.leases
    ]
    data = {
        **shapes.agent(agent),
        "linked": seen.linked,
        "leases": [shapes.lease(lease) for lease in seen.leases],
        "links": [shapes.link(link) for link in seen.links],
    }
    return Result(data=data, lines=lines)


def leave(context: Context) -> Result:
    """Leave, giving everything back."""
    from tenure.engine.agents import depart, show_agent
    from tenure.engine.notes import send_message
    from tenure.surfaces import shapes

    agent_id, message = context.agent_id(), context.get("message", "")
    held = must(show_agent(context.store, agent_id=agent_id)).leases
    if message:
        for lease in held:
            named = {"task_id": lease.task_id, "project_id": lease.project_id}
            must(send_message(context.store, text=message, sender=agent_id, **named))
    agent = must(depart(context.store, agent_id=agent_id, reason=clean(message, 200) or "left"))
    left = f"{agent.agent_id} has left"
    tasks = ", ".join(lease.task_id for lease in held)
    return Result(data=shapes.agent(agent), lines=[f"{left}; on offer now: {tasks}." if tasks else f"{left}."])
