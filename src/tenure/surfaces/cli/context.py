"""What a command works with: the values given, the store, and who is calling."""

from __future__ import annotations

import os

from tenure.core.errors import CODES, Refused, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tenure.core.model import Agent
    from tenure.engine.observe import TaskView
    from tenure.store.store import Clock, Store


# The longest page a verb gives.
LIMIT_MAX = 10_000


class Stop(Exception):
    """Carries a refusal out of a command, so that commands read straight on."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def must(answer: Any) -> Any:
    """The answer of a verb; a refusal ends the command."""
    if isinstance(answer, Refused):
        raise Stop(answer)
    return answer


class Context:
    """One invocation. The store is opened when it is first needed."""

    clock: Clock | None = None
    # How long to wait for the write lock; None for the store's own patience.
    busy_timeout_s: float | None = None

    def __init__(self, values: dict[str, Any], environ: Mapping[str, str], folder: str) -> None:
        self.values = values
        self.environ = environ
        self.folder = folder
        self._store: Store | None = None

    def get(self, name: str, default: Any = None) -> Any:
        """A value the user gave, or the default."""
        return self.values.get(name, default)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of the named values that the user gave, as arguments for a verb."""
        return {name: self.values[name] for name in names if name in self.values}

    @property
    def store(self) -> Store:
        """The store the user means."""
        if self._store is None:
            self._store = self.open(create=False)
        return self._store

    def open(self, *, create: bool) -> Store:
        """Open the store; a missing one is made only by `tenure init`."""
        from tenure.app import open_store

        opened = open_store(
            self.get("store"),
            environ=self.environ,
            start=self.folder,
            clock=self.clock,
            create=create,
            busy_timeout_s=self.busy_timeout_s,
        )
        if isinstance(opened, Refused):
            # A database that does not answer, or an address that is none, is not a store that is missing.
            missing = opened.next == CODES["store_unavailable"][2] and "sqlstate" not in opened.facts and not create
            raise Stop(opened.replace(next=self._init(opened)) if missing else opened)
        self._store = opened
        return opened

    def _init(self, missing: Refused) -> str:
        """How to make the store that was named. An address is shown as it may be: without its password."""
        import shlex

        named = self.get("store")
        if named is None:
            return "Run: tenure init"
        return f"Run: tenure init --store {shlex.quote(str(missing.facts.get('store', named)))}"

    def release(self) -> None:
        """Leave the open store to someone else, who closes it."""
        self._store = None

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def look_after(self, refusal: Refused | None) -> Any:
        """After the commit: whoever ended a lease looks at what was left behind, and so does one that lost its own.

        Answers the refusal, with where the caller's own work is now.
        """
        lost = refusal is not None and refusal.code == "lease_lost" and refusal.facts.get("your_lease")
        if self._store is None or not (self._store.handed_over or lost):
            return refusal
        from tenure.surfaces.cli.aftermath import look_after

        return look_after(self._store, refusal)

    @property
    def now_ms(self) -> int:
        """The time of the last answer, by which it is to be read."""
        return self.store.answered_at_ms

    @property
    def project_id(self) -> str | None:
        """The project the user names, or None for the verb's own default."""
        named: str | None = self.get("project") or self.environ.get("TENURE_PROJECT")
        return named

    def project(self) -> dict[str, Any]:
        """The project as an argument for a verb."""
        return {} if self.project_id is None else {"project_id": self.project_id}

    def agent_id(self, task_id: str | None = None) -> str:
        """Who is calling: --agent, else TENURE_AGENT, else the agent that works in this folder."""
        named: str | None = self.get("agent") or self.environ.get("TENURE_AGENT")
        if named:
            return self.named_agent(named)
        from tenure.engine.agents import agents_in

        here = must(agents_in(self.store, worktree=self.worktree(), task_id=task_id, **self.project()))
        if len(here) == 1:
            found: str = here[0].agent_id
            return found
        if here:
            names = [agent.agent_id for agent in here]
            message = f"Several agents work in this folder: {', '.join(names)}."
            hint = "Say which one: --agent ID, or TENURE_AGENT. One that is gone leaves: tenure agent leave --agent ID"
            raise Stop(refuse("agent_required", message, hint, agents=names))
        hint = "Say who you are: --agent ID, or TENURE_AGENT, or join from this folder: tenure agent join --name NAME"
        raise Stop(refuse("agent_required", "It is not clear which agent this is.", hint))

    def named_agent(self, named: str) -> str:
        """The id of the agent that is meant: the one with this id, else the only one with this name."""
        if self._known(named) is None:
            from tenure.engine.agents import list_agents

            same: list[str] = []
            page = must(list_agents(self.store, limit=LIMIT_MAX))
            while page:
                same += [agent.agent_id for agent in page if agent.name == named]
                page = must(list_agents(self.store, limit=LIMIT_MAX, after=page[-1].agent_id))
            if len(same) == 1:
                return same[0]
        return named

    def _known(self, agent_id: str) -> Agent | None:
        from tenure.engine.agents import show_agent

        seen = show_agent(self.store, agent_id=agent_id)
        if isinstance(seen, Refused):
            if seen.code.startswith("store_"):
                raise Stop(seen)
            return None
        agent: Agent = seen.agent
        return agent

    def names(self, views: Sequence[TaskView]) -> dict[str, str]:
        """What stands beside the ids of holders that have a name of their own."""
        if not any(view.leases for view in views):
            return {}
        from tenure.engine.agents import list_agents
        from tenure.surfaces.cli.output import clean

        known = must(list_agents(self.store, limit=LIMIT_MAX))
        return {one.agent_id: f" ({clean(one.name, 30)})" for one in known if one.name not in ("", one.agent_id)}

    def capabilities(self, agent_id: str | None) -> list[str] | None:
        """What the caller says it can do: --capability, else the skills it joined with; None when it never said."""
        if self.get("capability") is not None or agent_id is None:
            said: list[str] | None = self.get("capability")
            return said
        from tenure.core.ids import id_fault

        agent = self._known(agent_id)
        skills = agent.skills.split("\n") if agent is not None and agent.skills else []
        return [skill for skill in skills if id_fault(skill) is None] or None

    def caller(self, task_id: str | None = None) -> dict[str, Any]:
        """The arguments by which a holder's verb is told who calls."""
        agent_id = self.agent_id(task_id)
        caller = {"agent_id": agent_id, **self.run_of(agent_id), **self.project()}
        if task_id is not None:
            caller["task_id"] = task_id
        lease_id = self.get("lease") or self._lease_of_environment(task_id, caller)
        if lease_id:
            caller["lease_id"] = lease_id
        return caller

    def run_of(self, agent_id: str) -> dict[str, Any]:
        """The run of the agent that this command speaks for, as an argument for a verb: `tenure run` names it."""
        named = self.environ.get("TENURE_INCARNATION", "")
        if agent_id != self.environ.get("TENURE_AGENT") or not (named.isascii() and named.isdigit()):
            return {}
        return {"incarnation": int(named)}

    def _lease_of_environment(self, task_id: str | None, caller: dict[str, Any]) -> str | None:
        """TENURE_LEASE, unless it is another task's, or the run is named: that fences as well, and a run that got its
        task back after a recovery holds it under a lease that its environment cannot know."""
        if "incarnation" in caller or self.environ.get("TENURE_TASK", task_id) != task_id:
            return None
        return self.environ.get("TENURE_LEASE")

    def again(self, words: str, *, without: Sequence[str] = (), **changes: Any) -> str:
        """The command line for the next page: as it was given, but for the changes."""
        from shlex import quote

        parts = ["tenure", words]
        for name, value in {**self.values, **changes}.items():
            if name not in ("json", "format", *without):
                text = ",".join(value) if isinstance(value, list) else str(value)
                parts += (
                    [f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", quote(text)]
                )
        return " ".join(parts)

    def more(self, words: str, limit: int, *, without: Sequence[str] = ()) -> str:
        """The same command with ten times as many lines."""
        return self.again(words, without=without, limit=min(limit * 10, LIMIT_MAX))

    def branch(self) -> dict[str, Any]:
        """The branch that is checked out here, as an argument for a verb; nothing outside git or off any branch."""
        root = self.worktree()
        git_dir = os.path.join(root, ".git")
        try:
            if os.path.isfile(git_dir):
                with open(git_dir, encoding="utf-8", errors="surrogateescape") as file:
                    git_dir = os.path.join(root, file.read().strip().removeprefix("gitdir:").strip())
            with open(os.path.join(git_dir, "HEAD"), encoding="utf-8", errors="surrogateescape") as file:
                head = file.read(1000).strip()
        except OSError:
            return {}
        name = head.removeprefix("ref: refs/heads/")
        # A repository with reftables keeps its HEAD elsewhere and says .invalid here.
        known = name != head and name != ".invalid" and name.isprintable() and len(name.encode()) <= 256
        return {"branch": name} if known else {}

    def place(self) -> dict[str, Any]:
        """Where the caller works, as arguments for a verb: folder, machine, branch."""
        from tenure.store.locate import this_host

        return {"worktree": self.worktree(), "host": this_host(), **self.branch()}

    def worktree(self) -> str:
        """The root of the worktree around the working folder, else the folder itself."""
        directory = os.path.realpath(self.folder)
        while True:
            if os.path.exists(os.path.join(directory, ".git")):
                return directory
            parent = os.path.dirname(directory)
            if parent == directory:
                return os.path.realpath(self.folder)
            directory = parent
