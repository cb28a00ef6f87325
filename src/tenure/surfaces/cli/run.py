"""`tenure run`: any coding agent or command as an agent, with someone who sees its process.

It joins the agent, gives it a worktree if asked, claims a task if asked, tells the program through its environment who
it is, and holds a link to its process while it lives. The environment names this very run (TENURE_INCARNATION), so that
what the program says with `tenure` or over MCP is said for this run, and the exit that is seen here is the end of it.

How it ends, for every task that the run still holds then:

    killed, or crashed                           a death: the task is on offer at once, with a handoff
    we were told to end (SIGTERM, SIGHUP)        the program is told too, and the agent departs
    status 0, having reported 100 %              completed
    status 0, having never called at all         completed: its exit status is all that it says (not with --no-complete)
    status 0 otherwise, or any other status      released, with the exit status and the last lines of output
    by SIGINT, SIGTERM or SIGHUP                 released in the same way: somebody asked it to end

What the program itself completed, released or blocked stays as it said.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

from tenure.core.errors import Refused, refuse
from tenure.core.record import Record
from tenure.engine import agents, claims, endings, links
from tenure.links.identity import of_process
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, clean, duration
from tenure.surfaces.cli.run_child import Ending, Piped, Signals, signal_name
from tenure.surfaces.cli.run_keeper import Keeper, Run
from tenure.surfaces.cli.run_output import Tail

if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Agent, Lease
    from tenure.surfaces.cli.context import Context
    from tenure.surfaces.cli.run_child import Child

# How long a program that was told to end may take before it is killed; less before a lease lapses.
GRACE_S = 5.0
LAPSING_GRACE_S = 3.0
LOOK_EVERY_S = 1.0
TIMED_OUT = 124
# Signals with which a program is asked to end, by a person or a supervisor.
ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOWN = {"died": "is on offer again", "departed": "is on offer again", "nothing held": "was already let go"}
# What another run must not hand down to this one.
ABOUT_A_RUN = ("TENURE_AGENT", "TENURE_INCARNATION", "TENURE_TASK", "TENURE_LEASE")


def run(context: Context) -> Result:
    """Run a program as an agent."""
    command: list[str] = context.get("command")
    if context.get("hold"):
        from tenure.surfaces.cli.run_hold import hold

        return hold(context, command)
    if context.get("task") and context.get("next"):
        raise Stop(refuse("usage", "run: --task names a task and --next takes any; give one of them"))
    return Running(context, _start(context, command), command).result()


def check_command(command: list[str], folder: str) -> None:
    """Refuse what cannot be run before anything is claimed for it."""
    name = command[0]
    found = shutil.which(os.path.join(folder, name) if os.sep in name else name)
    if found is None:
        message = f"{name!a} cannot be run: there is no such executable."
        raise Stop(refuse("usage", message, "Name a program that can be run: tenure run -- ./script.sh"))


class Started(Record):
    """A run before its program starts: who, where, and for which task."""

    agent: Agent
    folder: str
    grant: claims.Grant | None = None
    # Whether the agent is there because of this run, and leaves with it.
    visiting: bool = True
    # Whether another run of the same agent started this one, and goes on after it.
    nested: bool = False


def _start(context: Context, command: list[str]) -> Started:
    """Make the worktree, join, claim."""
    agent_id = _agent_id(context)
    known = agents.show_agent(context.store, agent_id=agent_id)
    inside = {} if isinstance(known, Refused) else context.run_of(agent_id)
    place = _place(context, agent_id)
    folder = place["worktree"] if context.get("worktree") else context.folder
    check_command(command, folder)
    agent: Agent = must(
        agents.register(context.store, agent_id=agent_id, profile="agent", **place, **inside, **context.project())
    )
    visiting = not inside and (isinstance(known, Refused) or known.agent.state == "departed")
    started = Started(agent=agent, folder=folder, visiting=visiting, nested=bool(inside))
    grant = _claim(context, agent, place)
    return started.replace(grant=grant)


def _agent_id(context: Context) -> str:
    """Who runs: the one named, else the one that works in this folder, else a new one."""
    try:
        return context.agent_id(context.get("task"))
    except Stop as stop:
        if stop.refusal.code != "agent_required" or stop.refusal.facts.get("agents"):
            raise
        from tenure.core.ids import short_id

        return short_id("A", os.urandom(8))


def _place(context: Context, agent_id: str) -> dict[str, Any]:
    """Where the agent works: a worktree of its own, or here."""
    if not context.get("worktree"):
        return context.place()
    from tenure.engine.projects import show_settings
    from tenure.store.locate import this_host
    from tenure.worktree.attach import tree_for

    settings = must(show_settings(context.store, **context.project()))
    base = context.get("base")
    tree = must(tree_for(context.store, context.folder, agent_id=agent_id, settings=settings, base=base))
    return {"worktree": tree.path, "host": this_host(), "branch": tree.branch}


def _claim(context: Context, agent: Agent, place: dict[str, Any]) -> claims.Grant | None:
    """The task the run is for, if it is for one."""
    if not context.get("task") and not context.get("next"):
        return None
    from tenure.links.sweep import bury_the_dead
    from tenure.surfaces.cli.run_wait import claim_next

    claimant: dict[str, Any] = {
        "agent_id": agent.agent_id,
        "incarnation": agent.incarnation,
        "profile": "agent",
        "capabilities": context.capabilities(agent.agent_id),
        **place,
    }
    if context.get("task"):
        bury_the_dead(context.store)
        grant = claims.claim(context.store, task_id=context.get("task"), **claimant, **context.project())
    else:
        grant = claim_next(
            context.store,
            context.get("wait", 0),
            project_id=context.project_id or agent.project_id,
            preferred_kinds=context.get("prefer", []),
            resume=True,
            **claimant,
        )
    from tenure.worktree.attach import settled

    # What the previous holder left uncommitted is saved before anyone else works on the task.
    return settled(context.store, must(grant), here=place["worktree"])


class Running:
    """One program from its start to what follows from its end."""

    def __init__(self, context: Context, started: Started, command: list[str]) -> None:
        self._context = context
        self._store = context.store
        self._started = started
        self._command = command
        self._tail = Tail()
        lease = started.grant.lease if started.grant else None
        self._run = Run(agent_id=started.agent.agent_id, incarnation=started.agent.incarnation, lease=lease)
        self._stop_when_lost = context.get("on_lost", "tell" if interactive(context) else "stop") == "stop"
        # Why we ended the program ourselves, and which signal told us to.
        self._ended_because = ""
        self._told_by: int | None = None
        self._kill_at = float("inf")
        self._timed_out = False

    def result(self) -> Result:
        """Run it."""
        timeout_s = self._context.get("timeout", 0)
        with Signals() as signals:
            child = start_child(self._context, self._command, signals, self._tail, self._started.folder, self.environ())
            keeper = Keeper(self._store, self._run, of_process(child.pid), signals.wake, vouch_s=timeout_s)
            try:
                keeper.start()
                self._announce(child)
                child.release()
                ending = self._watch(child, keeper, signals, timeout_s)
            finally:
                keeper.stop()
                child.close()
            outcome = self._settle(ending, keeper)
        return self._told(ending, outcome)

    def environ(self) -> dict[str, str]:
        """Who the program is, for whatever it calls."""
        from tenure.surfaces.cli.server import DEFAULT_URL

        agent, lease = self._started.agent, self._run.lease
        environ = {name: value for name, value in self._context.environ.items() if name not in ABOUT_A_RUN}
        environ["TENURE_URL"] = self._context.get("url") or environ.get("TENURE_URL") or DEFAULT_URL
        environ["TENURE_STORE"] = self._location()
        environ["TENURE_AGENT"] = agent.agent_id
        environ["TENURE_INCARNATION"] = str(agent.incarnation)
        if self._context.project_id:
            environ["TENURE_PROJECT"] = self._context.project_id
        if lease is not None:
            environ["TENURE_TASK"] = lease.task_id
            environ["TENURE_LEASE"] = lease.lease_id
        return environ

    def _location(self) -> str:
        """The store as the program can open it: an address with all that was given for it, a file by its whole path."""
        from tenure.store.locate import is_address, store_location

        given = store_location(self._context.get("store"), self._context.environ, self._context.folder)
        return given if given is not None and is_address(given) else self._store.path

    def _announce(self, child: Child) -> None:
        grant, agent = self._started.grant, self._started.agent
        if not self._context.get("quiet"):
            holds = f" holds {grant.task.task_id} ({clean(grant.task.title, 60)})" if grant else ""
            child.say(f"{agent.agent_id}{holds} in {clean(self._started.folder)}, process {child.pid}")

    # -- while it runs -----------------------------------------------------------------------------------------------

    def _watch(self, child: Child, keeper: Keeper, signals: Signals, timeout_s: float) -> Ending:
        times_out_at = time.monotonic() + timeout_s if timeout_s else float("inf")
        told = ""
        while True:
            ending = child.attend(LOOK_EVERY_S)
            if ending is not None:
                return ending
            for number in signals.take():
                self._pass_on(child, keeper, number)
            now = time.monotonic()
            if now >= times_out_at and not self._ended_because:
                self._timed_out = True
                self._end(child, keeper, f"took longer than {duration(round(timeout_s * 1000))}", signal.SIGTERM)
            reason = keeper.lost or _lapsing(keeper, now)
            if reason and reason != told:
                told = reason
                child.say(f"{reason}; {self._ending_words()}")
                if self._stop_when_lost and not self._ended_because:
                    self._end(child, keeper, reason, signal.SIGTERM, LAPSING_GRACE_S)
            if now >= self._kill_at:
                child.signal(signal.SIGKILL)

    def _ending_words(self) -> str:
        if self._stop_when_lost:
            return "stopping the program"
        return "the program goes on, and is told with its next call"

    def _pass_on(self, child: Child, keeper: Keeper, number: int) -> None:
        """A signal to us: a new size, or an order to end, which is written down before anything else."""
        if number == signal.SIGWINCH:
            child.resized()
        elif number in (signal.SIGTERM, signal.SIGHUP):
            self._told_by = self._told_by or number
            self._end(child, keeper, f"was told to end by {signal_name(number)}", number)
        elif number in (signal.SIGINT, signal.SIGQUIT) and child.apart:
            # Otherwise the keyboard has sent it to the program as well.
            child.signal(number)

    def _end(self, child: Child, keeper: Keeper, reason: str, number: int, grace_s: float = GRACE_S) -> None:
        """End the program: ask it, and kill it if it does not comply. Said before it is done, in case we die first."""
        if not self._ended_because:
            self._ended_because = reason
            self._kill_at = time.monotonic() + grace_s
            self._say_last_words(keeper, reason)
        child.signal(number)
        # A stopped program hears nothing until it is continued.
        child.signal(signal.SIGCONT)

    def _say_last_words(self, keeper: Keeper, exited: str) -> None:
        if keeper.link_id is not None:
            links.last_words(self._store, link_id=keeper.link_id, exited=exited, output_tail=self._tail.text())

    # -- after its end -----------------------------------------------------------------------------------------------

    def _settle(self, ending: Ending, keeper: Keeper) -> str:
        """Write down how it ended and let go of what the run still holds; says in a word what became of that."""
        name = os.path.basename(self._command[0])
        because = f"; it {self._ended_because}" if self._ended_because else ""
        words = f"{name} {ending.words}{because}"
        self._say_last_words(keeper, words)
        held = self._held()
        died = ending.status is None and ending.signal not in ASKED
        if self._told_by is not None and not self._started.nested:
            agents.depart(self._store, reason=signal_name(self._told_by), **self._who())
            return "departed"
        if died and not self._ended_because and keeper.link_id is not None:
            agents.link_down(self._store, link_id=keeper.link_id, died=not self._started.nested, detail=words)
            if not self._started.nested:
                return "died"
        outcomes = [self._let_go(lease, ending, words, keeper) for lease in held]
        if keeper.link_id is not None:
            agents.link_down(self._store, link_id=keeper.link_id, died=False, detail=words)
        if self._started.visiting:
            agents.depart(self._store, reason=words, **self._who())
        return ", ".join(dict.fromkeys(outcomes)) or ("lost" if keeper.lost else "nothing held")

    def _who(self) -> dict[str, Any]:
        return {"agent_id": self._run.agent_id, "incarnation": self._run.incarnation}

    def _held(self) -> list[Lease]:
        """What this run still holds: everything of its agent's, or its own task alone inside another run."""
        seen = links.standing(self._store, **self._who())
        if isinstance(seen, Refused):
            return []
        ours = self._run.lease.task_key if self._run.lease else None
        return [
            lease
            for lease in seen.leases
            if lease.state == "active"
            and (lease.task_key == ours if self._started.nested else lease.incarnation == self._run.incarnation)
        ]

    def _let_go(self, lease: Lease, ending: Ending, words: str, keeper: Keeper) -> str:
        caller = {**self._who(), "lease_id": lease.lease_id, "task_id": lease.task_id, "project_id": lease.project_id}
        ours = self._run.lease
        # A resumed lease has calls of an earlier run on it.
        before = (ours.reports, ours.touches) if ours is not None else (0, 0)
        silent = (lease.reports, lease.touches - keeper.vouched) <= before
        # How it ended is written down anyway; the agent's own last message is not to be pushed out by it.
        message = "" if lease.message else words
        finished = ending.status == 0 and not self._ended_because and not self._context.get("no_complete")
        said_all = silent and ours is not None and lease.lease_id == ours.lease_id
        if finished and (lease.progress >= 100 or said_all):
            ended = endings.complete(self._store, message=message, **caller)
            if not isinstance(ended, Refused):
                return "completed"
        ended = endings.release(self._store, message=message, **caller)
        return "released" if not isinstance(ended, Refused) else "lost"

    def _told(self, ending: Ending, outcome: str) -> Result:
        lease, agent = self._run.lease, self._started.agent
        code = TIMED_OUT if self._timed_out else 128 + self._told_by if self._told_by else ending.code
        if not self._context.get("quiet"):
            what = f"{lease.task_id} {SHOWN.get(outcome, outcome)}" if lease else outcome
            print(f"tenure: {os.path.basename(self._command[0])} {ending.words}; {what}", file=sys.stderr)
        data = {
            "agent_id": agent.agent_id,
            "incarnation": agent.incarnation,
            "task_id": lease.task_id if lease else None,
            "lease_id": lease.lease_id if lease else None,
            "worktree": agent.worktree,
            "branch": agent.branch,
            "exit_status": ending.status,
            "signal": None if ending.signal is None else signal_name(ending.signal),
            "outcome": outcome,
        }
        refusal = None
        if outcome == "lost" and lease is not None:
            message = f"{self._ended_because or 'The lease was lost'}.".capitalize()
            refusal = refuse("lease_lost", message, task_id=lease.task_id, lease_id=lease.lease_id)
        return Result(data=data, status=code, refusal=refusal)


def _lapsing(keeper: Keeper, now: float) -> str:
    """The reason to end a program whose lease can no longer be relied on; empty while it can."""
    if keeper.trusted_until is None or now < keeper.trusted_until:
        return ""
    return "the lease is about to lapse: the program has made no call for too long, or the store cannot be reached"


def interactive(context: Context) -> bool:
    """Whether a person sits in front of it."""
    return os.isatty(0) and os.isatty(1) and not context.get("json") and context.get("format") != "json"


def start_child(
    context: Context, command: list[str], signals: Signals, tail: Tail, folder: str, environ: dict[str, str]
) -> Child:
    """The program, on a terminal of its own if we are on one."""
    if interactive(context):
        from tenure.surfaces.cli.run_terminal import OnTerminal

        return OnTerminal(command, signals, tail, folder=folder, environ=environ)
    # With --json standard output is for our own answer alone.
    as_json = context.get("json") or context.get("format") == "json"
    return Piped(command, signals, tail, folder=folder, environ=environ, stdout=2 if as_json else 1)
