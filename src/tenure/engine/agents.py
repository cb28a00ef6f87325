"""Agents, their incarnations, and the links that see their processes.

An incarnation is one run of an agent. It starts at register or at a link-up that names none; whoever speaks for an
older one is told `superseded`. A link pulses while it sees the process; a process seen to exit is a death, unless
another link of the agent still pulses.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.deadline import PULSE_VALID_MS, live
from tenure.core.errors import Refused, refuse
from tenure.core.ids import short_id, ulid
from tenure.core.model import DEFAULT_PROJECT, Agent, Link
from tenure.core.profiles import profile_named
from tenure.core.record import Record
from tenure.engine import change, load
from tenure.engine.callers import CALLER, known_agent, seen_just_now
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.core.model import Lease
    from tenure.core.profiles import Profile
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

LINK_KINDS = ("run", "mcp", "server", "stream")


@verb(
    agent_id=inputs.optional(inputs.ident),
    name=inputs.line,
    role=inputs.line,
    skills=inputs.each(inputs.text(100, one_line=True, required=True)),
    project_id=CALLER["project_id"],
    profile=inputs.optional(inputs.ident),
    incarnation=CALLER["incarnation"],
    worktree=inputs.text(4096, one_line=True),
    host=inputs.text(256, one_line=True),
    branch=inputs.text(256, one_line=True),
)
def register(
    tx: Transaction,
    *,
    agent_id: str | None = None,
    name: str = "",
    role: str = "",
    skills: Sequence[str] = (),
    project_id: str | None = None,
    profile: str | None = None,
    incarnation: int | None = None,
    worktree: str = "",
    host: str = "",
    branch: str = "",
) -> Agent | Refused:
    """Register an agent, or begin a new incarnation of a known one. Passing the present incarnation keeps it.

    What is not said of a known agent stays as it was.
    """
    agent_id = agent_id or short_id("A", tx.random(8))
    tx.lock("agent", agent_id=agent_id)
    known = load.agent_named(tx, agent_id)
    if incarnation is not None:
        current = known_agent(tx, agent_id, incarnation)
        if isinstance(current, Refused):
            return current
    project_id = project_id or (known.project_id if known else DEFAULT_PROJECT)
    profile = profile or (known.profile if known else "agent")
    settings = load.settings_for(tx, project_id)
    if isinstance(settings, Refused):
        return settings
    refused = reserved(agent_id, settings) or reserved(name, settings)
    if refused is not None:
        return refused
    rules = profile_named(profile, settings)
    if isinstance(rules, Refused):
        return rules
    number = 1 if known is None else known.incarnation + (incarnation is None)
    agent = Agent(
        agent_id=agent_id,
        name=name or (known.name if known else agent_id),
        role=role or (known.role if known else ""),
        skills="\n".join(skills) or (known.skills if known else ""),
        project_id=project_id,
        profile=profile,
        incarnation=number,
        worktree=worktree or (known.worktree if known else ""),
        host=host if worktree or known is None else known.host,
        branch=branch or (known.branch if known else settings.branch_prefix + agent_id),
        registered_at_ms=known.registered_at_ms if known else tx.now_ms,
        seen_at_ms=tx.now_ms,
        lost_lease_id=known.lost_lease_id if known else None,
    )
    tx.do("save_agent", **agent.as_dict())
    change.record(tx, "registered", agent_id=agent_id, incarnation=number)
    return agent


def reserved(name: str, settings: Settings) -> Refused | None:
    """The reserved owner's name is nobody's to take, however it is spelt."""
    if name.strip().casefold() != settings.reserved_owner.casefold():
        return None
    return refuse("reserved_name", f"{settings.reserved_owner} is the system's own name.", name=name)


def ensure_agent(
    tx: Transaction,
    known: Agent | Refused,
    agent_id: str,
    *,
    project_id: str,
    profile: Profile,
    settings: Settings,
) -> Agent | Refused:
    """The claimant's agent, not written yet; profiles that register do so on the first claim. `known` is what
    `known_agent` says."""
    if not isinstance(known, Refused) or known.code != "agent_not_found" or not profile.registers:
        return known
    refused = reserved(agent_id, settings)
    if refused is not None:
        return refused
    return Agent(
        agent_id=agent_id,
        name=agent_id,
        project_id=project_id,
        profile=profile.name,
        branch=settings.branch_prefix + agent_id,
        registered_at_ms=tx.now_ms,
    )


def present(tx: Transaction, agent: Agent, worktree: str, host: str, branch: str) -> Agent:
    """Write a claimant down as present, where it works; this registers one that is new."""
    new = agent.seen_at_ms == 0
    before = (agent.worktree, agent.host, agent.branch)
    # A folder's name means nothing without its machine, so that the two change together.
    after = (worktree or agent.worktree, host if worktree else agent.host, branch or agent.branch)
    moved = before != after
    if not (new or moved) and agent.state == "present" and seen_just_now(tx, agent):
        return agent
    agent = agent.replace(
        state="present",
        seen_at_ms=tx.now_ms,
        worktree=after[0],
        host=after[1],
        branch=after[2],
    )
    if new or moved:
        tx.do("save_agent", **agent.as_dict())
    else:
        tx.do("see_agent", agent_id=agent.agent_id, now_ms=tx.now_ms)
    if new:
        change.record(tx, "registered", agent_id=agent.agent_id, incarnation=agent.incarnation)
    return agent


@verb(agent_id=inputs.ident)
def arrive(tx: Transaction, *, agent_id: str) -> Agent | Refused:
    """A new connection speaks for a known agent: it begins a new incarnation, and older ones are superseded."""
    known = known_agent(tx, agent_id, None)
    if isinstance(known, Refused):
        return known
    agent = known.replace(incarnation=known.incarnation + 1, state="present", seen_at_ms=tx.now_ms)
    tx.do("save_agent", **agent.as_dict())
    change.record(tx, "registered", agent_id=agent_id, incarnation=agent.incarnation)
    return agent


@verb(agent_id=inputs.ident, incarnation=CALLER["incarnation"], reason=inputs.line)
def depart(tx: Transaction, *, agent_id: str, incarnation: int | None = None, reason: str = "left") -> Agent | Refused:
    """The agent says that it is leaving: what it holds is on offer at once."""
    agent = known_agent(tx, agent_id, incarnation)
    if isinstance(agent, Refused):
        return agent
    _die(tx, agent, agent.incarnation, "departed")
    tx.do("end_links", agent_id=agent_id, state="down")
    gone = agent.replace(state="departed", seen_at_ms=tx.now_ms)
    tx.do("save_agent", **gone.as_dict())
    change.record(tx, "departed", agent_id=agent_id, reason=reason)
    return gone


@query(project_id=inputs.optional(inputs.ident), limit=inputs.limit, after=inputs.text(128, one_line=True))
def list_agents(
    tx: Transaction, *, project_id: str | None = None, limit: int = 100, after: str = ""
) -> tuple[Agent, ...] | Refused:
    """Agents by id, a page at a time."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    rows = tx.all("agents", project_id=project_id, after=after, limit=limit)
    return tuple(Agent(**row) for row in rows)


@query(
    worktree=inputs.text(4096, one_line=True, required=True), task_id=CALLER["task_id"], project_id=CALLER["project_id"]
)
def agents_in(
    tx: Transaction, *, worktree: str, task_id: str | None = None, project_id: str | None = None
) -> tuple[Agent, ...]:
    """The present agents that work in a folder; those of them that hold the named task, if any does."""
    here = [Agent(**row) for row in tx.all("agents_in", worktree=worktree)]
    task = load.task_named(tx, task_id, project_id) if task_id is not None else None
    if task is None or isinstance(task, Refused):
        return tuple(here)
    holders = {lease.agent_id for lease in load.unended_of_task(tx, task.key)}
    return tuple(agent for agent in here if agent.agent_id in holders) or tuple(here)


class AgentView(Record):
    """An agent with what can be seen of it."""

    agent: Agent
    leases: tuple[Lease, ...]
    links: tuple[Link, ...]
    linked: bool


@query(agent_id=inputs.ident)
def show_agent(tx: Transaction, *, agent_id: str) -> AgentView | Refused:
    """One agent, its live leases and its links."""
    agent = known_agent(tx, agent_id, None)
    if isinstance(agent, Refused):
        return agent
    links = tuple(Link(**row) for row in tx.all("links_of", agent_id=agent_id))
    return AgentView(
        agent=agent,
        leases=tuple(lease for lease in load.unended_of_agent(tx, agent_id) if live(lease, tx.now_ms)),
        links=links,
        linked=any(_pulses(link, tx.now_ms) for link in links),
    )


# -- links ------------------------------------------------------------------------------------------------------------


@verb(
    agent_id=inputs.ident,
    incarnation=CALLER["incarnation"],
    kind=inputs.one_of(*LINK_KINDS),
    boot_id=inputs.text(128, one_line=True),
    pid_ns=inputs.text(128, one_line=True),
    pid=inputs.whole(0, 1 << 31),
    start_ticks=inputs.whole(0, 1 << 62),
)
def link_up(
    tx: Transaction,
    *,
    agent_id: str,
    incarnation: int | None = None,
    kind: str = "run",
    boot_id: str = "",
    pid_ns: str = "",
    pid: int = 0,
    start_ticks: int = 0,
) -> Link | Refused:
    """Begin to see an agent's process. Without an incarnation this begins a new one."""
    tx.lock("agent", agent_id=agent_id)
    agent = known_agent(tx, agent_id, incarnation)
    if isinstance(agent, Refused):
        return agent
    if incarnation is None:
        agent = agent.replace(incarnation=agent.incarnation + 1, state="present", seen_at_ms=tx.now_ms)
        tx.do("save_agent", **agent.as_dict())
    link = Link(
        link_id="link-" + ulid(tx.now_ms, tx.random(10)),
        agent_id=agent_id,
        incarnation=agent.incarnation,
        kind=kind,
        weak=int(kind == "stream"),
        boot_id=boot_id,
        pid_ns=pid_ns,
        pid=pid,
        start_ticks=start_ticks,
        linked_at_ms=tx.now_ms,
        pulsed_at_ms=tx.now_ms,
    )
    tx.do("add_link", **link.as_dict())
    _carry(tx, agent_id)
    change.record(tx, "linked", agent_id=agent_id, link=kind, incarnation=agent.incarnation, pid=pid)
    return link


@verb(link_id=inputs.ident)
def pulse(tx: Transaction, *, link_id: str) -> Link | Refused:
    """The link still sees the process. A pulse proves life; it is not a sign of work."""
    link = link_named(tx, link_id)
    if isinstance(link, Refused):
        return link
    if link.state != "up":
        return refuse("link_not_found", f"Link {link_id} has ended ({link.state}).", link_id=link_id, state=link.state)
    agent = known_agent(tx, link.agent_id, link.incarnation)
    if isinstance(agent, Refused):
        return agent
    tx.do("pulse_link", link_id=link_id, now_ms=tx.now_ms)
    _carry(tx, link.agent_id)
    return link.replace(pulsed_at_ms=tx.now_ms)


@verb(link_id=inputs.ident, died=inputs.flag, detail=inputs.line)
def link_down(tx: Transaction, *, link_id: str, died: bool, detail: str = "") -> Link | Refused:
    """The link ends. With `died`, the process was seen to exit: a death, unless another link still pulses."""
    link = link_named(tx, link_id)
    if isinstance(link, Refused) or link.state != "up":
        return link
    # A weak link proves nothing when it drops.
    dead = died and not link.weak
    ended = link.replace(state="dead" if dead else "down")
    tx.do("end_link", link_id=link_id, state=ended.state)
    change.record(tx, "unlinked", agent_id=link.agent_id, link=link.kind, died=dead, detail=detail)
    others = [Link(**row) for row in tx.all("links_of", agent_id=link.agent_id)]
    if dead:
        others = _without_the_dead(tx, link, others)
    if dead and not any(_pulses(other, tx.now_ms) for other in others):
        agent = load.agent_named(tx, link.agent_id)
        assert agent is not None
        _die(tx, agent, link.incarnation, "process_exited")
        change.record(tx, "died", agent_id=agent.agent_id, incarnation=link.incarnation, detail=detail)
    return ended


def _without_the_dead(tx: Transaction, dead: Link, others: list[Link]) -> list[Link]:
    """The links to other processes. Those that watch the one that died have nothing left to see, and end with it."""
    left = []
    for other in others:
        # A pid alone names no process.
        if dead.pid_ns and dead.start_ticks and _process(other) == _process(dead):
            tx.do("end_link", link_id=other.link_id, state="down" if other.weak else "dead")
        else:
            left.append(other)
    return left


def _process(link: Link) -> tuple[str, str, int, int]:
    """Which process a link watches."""
    return link.boot_id, link.pid_ns, link.pid, link.start_ticks


def link_named(tx: Transaction, link_id: str) -> Link | Refused:
    row = tx.one("link_by_id", link_id=link_id)
    if row is None:
        return refuse("link_not_found", f"There is no link {link_id}.", link_id=link_id)
    return Link(**row)


def _pulses(link: Link, now_ms: int) -> bool:
    """Not pulsed for 15 s, a link is unknown, never up."""
    return link.state == "up" and now_ms - link.pulsed_at_ms <= PULSE_VALID_MS


def _carry(tx: Transaction, agent_id: str) -> None:
    """Let a pulse carry the agent's live leases."""
    for lease in load.unended_of_agent(tx, agent_id):
        if live(lease, tx.now_ms):
            change.extend(tx, lease, lease.replace(pulsed_at_ms=tx.now_ms))


def _die(tx: Transaction, agent: Agent, incarnation: int, reason: str) -> None:
    """Write a death down. A waiting claimant, the monitor or the next claim recovers."""
    for lease in load.unended_of_agent(tx, agent.agent_id):
        if lease.incarnation <= incarnation and live(lease, tx.now_ms):
            change.extend(tx, lease, lease.replace(death_at_ms=tx.now_ms, end_reason=reason))


# -- servers ----------------------------------------------------------------------------------------------------------


@verb(server_id=inputs.ident)
def start_server(tx: Transaction, *, server_id: str) -> int:
    """A server starts hearing. First it lifts the leases that were live at its last pulse by the time it was deaf."""
    lifted = _hear_again(tx, server_id)
    tx.do("start_server", server_id=server_id, now_ms=tx.now_ms)
    change.record(tx, "server_started", server=server_id, lifted=lifted)
    return lifted


@verb(server_id=inputs.ident)
def pulse_server(tx: Transaction, *, server_id: str) -> None:
    """The server can hear. After a pause of its own it could not, and lifts as a starting one does."""
    _hear_again(tx, server_id)
    tx.do("pulse_server", server_id=server_id, now_ms=tx.now_ms)


def _hear_again(tx: Transaction, server_id: str) -> int:
    """Give back the time in which nobody could hear the holders that talk through this server."""
    row = tx.one("server", server_id=server_id)
    if row is None or tx.now_ms - row["pulsed_at_ms"] <= PULSE_VALID_MS:
        return 0
    return tx.do("lift_leases", server_id=server_id, pulsed_at_ms=row["pulsed_at_ms"], now_ms=tx.now_ms)
