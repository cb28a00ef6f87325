"""What a command works with: the values given, the store, and who is calling."""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tenure.store.sqlite import SqliteStore
    from tenure.store.store import Clock


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

    def __init__(self, values: dict[str, Any], environ: Mapping[str, str], folder: str) -> None:
        self.values = values
        self.environ = environ
        self.folder = folder
        self._store: SqliteStore | None = None

    def get(self, name: str, default: Any = None) -> Any:
        """A value the user gave, or the default."""
        return self.values.get(name, default)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of the named values that the user gave, as arguments for a verb."""
        return {name: self.values[name] for name in names if name in self.values}

    @property
    def store(self) -> SqliteStore:
        """The store the user means."""
        if self._store is None:
            self._store = self.open(create=False)
        return self._store

    def open(self, *, create: bool) -> SqliteStore:
        """Open the store; a missing one is made only by `tenure init`."""
        from tenure.app import open_store

        opened = open_store(self.get("store"), environ=self.environ, start=self.folder, clock=self.clock, create=create)
        if isinstance(opened, Refused):
            hint = "Run: tenure init" if opened.code == "store_unavailable" and not create else opened.next
            raise Stop(opened.replace(next=hint))
        self._store = opened
        return opened

    def release(self) -> None:
        """Leave the open store to someone else, who closes it."""
        self._store = None

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

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
            return named
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

    def caller(self, task_id: str | None = None) -> dict[str, Any]:
        """The arguments by which a holder's verb is told who calls."""
        caller = {"agent_id": self.agent_id(task_id), **self.project()}
        if task_id is not None:
            caller["task_id"] = task_id
        lease_id = self.get("lease") or self.environ.get("TENURE_LEASE")
        if lease_id:
            caller["lease_id"] = lease_id
        return caller

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
