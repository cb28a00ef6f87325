"""What git's hooks ask. `pre-push` advises an agent in its own repository; `pre-receive` enforces on a server.

An agent without a live lease may push its own branch, where its work is safe and in nobody's way, and nothing else:
whoever holds the task now must not find the shared branches changed under it. People are not hindered: only a process
that says who it is (TENURE_AGENT), or that works in an agent's own worktree or on its branch, is taken for an agent.
`pre-push` lets everything through when it cannot tell; it can be skipped anyway. `pre-receive` lets nothing through
while it cannot ask its store.
"""

from __future__ import annotations

import os
import sys

from tenure.core.errors import Refused, refuse
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from tenure.core.model import Agent
    from tenure.surfaces.cli.context import Context

HEADS = "refs/heads/"
ALLOWED = Result(data={"allowed": True})
# A push waits for a person; a busy store should not make it wait long.
BUSY_TIMEOUT_S = 5.0


# -- pre-push ---------------------------------------------------------------------------------------------------------


def pre_push(context: Context) -> Result:
    """Refuse an agent's push to anything but its own branch while it has no live lease."""
    context.busy_timeout_s = BUSY_TIMEOUT_S
    refs = [words[2] for words in _lines(4)]
    named = context.environ.get("TENURE_AGENT", "")
    try:
        agents = _identities(context, named)
        refusal = _judged(context, agents, refs) if agents else None
    except Stop as stop:
        return _unchecked(stop.refusal, named)
    except Exception as error:
        return _unchecked(refuse("internal_error", f"{type(error).__name__}: {error}"), named)
    if refusal is not None:
        raise Stop(refusal)
    return ALLOWED


def _unchecked(refusal: Refused, named: str) -> Result:
    """Let it through, and say so; but a person in a repository without a store is not bothered."""
    told = f"tenure did not check this push: {refusal.message}"
    return ALLOWED.replace(warnings=[told] if named or refusal.code != "store_unavailable" else [])


def _identities(context: Context, named: str) -> list[Agent | str]:
    """Which agents this process may be; none for a person. An id that nobody knows stands for itself."""
    from tenure.engine.agents import agents_in, show_agent

    if "TENURE_AGENT" in context.environ:
        if not named:
            return []
        seen = show_agent(context.store, agent_id=context.named_agent(named))
        if isinstance(seen, Refused) and seen.code != "agent_not_found":
            raise Stop(seen)
        return [named] if isinstance(seen, Refused) else [seen.agent]
    root = context.worktree()
    here = must(agents_in(context.store, worktree=root, **context.project()))
    branch = context.branch().get("branch")
    linked = _is_linked(root)
    prefix = _prefix(context)
    return [agent for agent in here if linked or branch in _branches(agent, prefix)]


def _is_linked(root: str) -> bool:
    """Whether a folder is a worktree beside the main one; a submodule has a .git file too, and is none."""
    try:
        with open(os.path.join(root, ".git"), encoding="utf-8", errors="surrogateescape") as file:
            git_dir = file.read().strip().removeprefix("gitdir:").strip()
    except OSError:
        return False
    return os.path.isfile(os.path.join(root, git_dir, "commondir"))


def _branches(agent: Agent | str, prefix: str) -> list[str]:
    """An agent's own branches. The one it was seen on is its own if it is of the agents' kind: nobody owns main."""
    if isinstance(agent, str):
        return [prefix + agent]
    return [prefix + agent.agent_id, *([agent.branch] if agent.branch.startswith(prefix) else [])]


def _judged(context: Context, agents: list[Agent | str], refs: list[str]) -> Refused | None:
    from tenure.engine.claims import leases_of

    lease_id = context.environ.get("TENURE_LEASE", "")
    for agent in agents:
        if not isinstance(agent, str):
            leases = must(leases_of(context.store, agent_id=agent.agent_id))
            if any(lease.state == "active" and lease_id in ("", lease.lease_id) for lease in leases):
                return None
    prefix = _prefix(context)
    own = [HEADS + branch for agent in agents for branch in _branches(agent, prefix)]
    refused = [ref for ref in refs if ref not in own]
    return _refusal(context, agents, refused, own[0]) if refused else None


def _refusal(context: Context, agents: list[Agent | str], refused: list[str], own: str) -> Refused:
    ids = [agent if isinstance(agent, str) else agent.agent_id for agent in agents]
    remote = context.get("remote") or "origin"
    task_id = context.environ.get("TENURE_TASK", "")
    claim = f"tenure task claim {task_id}" if task_id else "tenure next"
    held = f"{' or '.join(ids)} holds no live lease{_holder(context, task_id)}"
    message = f"{held}, so it may not push {', '.join(refused)}."
    hint = (
        f"Your work is safe on your own branch: git push {remote} HEAD:{own}. To go on, claim again: {claim} "
        "(then push). If you are not this agent: git push --no-verify"
    )
    return refuse("not_permitted", message, hint, agents=ids, refs=refused, own_branch=own)


def _holder(context: Context, task_id: str) -> str:
    """Who has the task now, where it is known which task is meant."""
    from tenure.engine.observe import show_task

    if not task_id:
        return ""
    shown = show_task(context.store, task_id=task_id, **context.project())
    if isinstance(shown, Refused):
        return ""
    view = shown.view
    holders = [lease.agent_id for lease in view.leases if lease.state == "active"]
    return f" on {task_id} ({holders[0]} has it)" if holders and not view.due else f" on {task_id}"


def _prefix(context: Context) -> str:
    from tenure.engine.projects import show_settings

    prefix: str = must(show_settings(context.store, **context.project())).branch_prefix
    return prefix


# -- pre-receive ------------------------------------------------------------------------------------------------------


def pre_receive(context: Context) -> Result:
    """Refuse every ref but agents' branches, unless the push proves a live lease by its token."""
    context.busy_timeout_s = BUSY_TIMEOUT_S
    refs = [words[2] for words in _lines(3)]
    prefix = _prefix(context)
    guarded = [ref for ref in refs if not ref.startswith(HEADS + prefix)]
    if not guarded or _exempt(context.environ):
        return ALLOWED
    answer = _proven(context)
    if not isinstance(answer, Refused):
        return Result(data={"allowed": True, "agent_id": answer.agent_id, "task_id": answer.task_id})
    hint = (
        "Push with the proof of your live lease: git push -o tenure-token=TOKEN, or -o tenure-lease=LEASE "
        "(both are in the claim's --json). "
        f"Without one, push to a branch of your own: {prefix}AGENT"
    )
    message = f"{answer.message.removesuffix('.')}, so {', '.join(guarded)} stays as it is."
    raise Stop(refuse("not_permitted", message, hint, refs=guarded, reason=answer.code))


def _proven(context: Context) -> Any:
    """The live lease that the push options name, or why none is proven."""
    from tenure.engine.fence import fence

    options = _options(context.environ)
    token, lease_id = options.get("tenure-token"), options.get("tenure-lease")
    if token is None and lease_id is None:
        return refuse("lease_lost", "The push carries no token of a live lease.")
    # A token alone is a number: one that is none is a lease's id.
    if token is not None and not (token.isascii() and token.isdigit() and len(token) < 19):
        token, lease_id = None, lease_id or token
    return fence(
        context.store,
        token=None if token is None else int(token),
        lease_id=lease_id,
        task_id=options.get("tenure-task"),
        **context.project(),
    )


def _options(environ: Mapping[str, str]) -> dict[str, str]:
    """The push options that are ours; of several of a name the last."""
    try:
        count = min(int(environ.get("GIT_PUSH_OPTION_COUNT", "0")), 1000)
    except ValueError:
        return {}
    given = (environ.get(f"GIT_PUSH_OPTION_{number}", "").partition("=") for number in range(count))
    return {name: value for name, equals, value in given if equals and name.startswith("tenure-")}


def _exempt(environ: Mapping[str, str]) -> bool:
    """Whether the pusher is one of the people that the repository lets through (git config tenure.exempt)."""
    names = environ.get("TENURE_EXEMPT", "").split("\n")
    return bool(pusher := environ.get("TENURE_PUSHER", "")) and pusher in names


def _lines(words: int) -> Iterator[list[str]]:
    """The refs that git gives on standard input."""
    try:
        given = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    except (OSError, ValueError, AttributeError):
        return
    for line in given.decode("utf-8", "surrogateescape").split("\n"):
        parts = line.split(" ")
        if len(parts) == words:
            yield parts
