"""`tenure worktree ...`: the folders that agents work in."""

from __future__ import annotations

import os

from tenure.core.errors import Refused, refuse
from tenure.core.record import Record
from tenure.engine.agents import AgentView, list_agents, show_agent
from tenure.store.locate import this_host
from tenure.surfaces.cli.context import LIMIT_MAX, Stop, must
from tenure.surfaces.cli.output import Result, clean, table
from tenure.worktree import attach, clearing, facts, trees
from tenure.worktree.changes import is_dirty
from tenure.worktree.git import TIMEOUT_S, Git, GitFailed
from tenure.worktree.rescue import Caps, Saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.settings import Settings
    from tenure.surfaces.cli.context import Context
    from tenure.worktree.trees import Listed


class Seen(Record):
    """A worktree with those who work in it and what is in it."""

    tree: Listed
    agents: tuple[AgentView, ...] = ()
    dirty: bool = False
    merged: bool = True

    @property
    def at_work(self) -> list[AgentView]:
        """Those who hold a task or whose process is seen."""
        return [one for one in self.agents if one.leases or one.linked]


def _settings(context: Context) -> Settings:
    from tenure.engine.projects import show_settings

    settings: Settings = must(show_settings(context.store, **context.project()))
    return settings


def _see(context: Context, settings: Settings, tree: Listed) -> Seen:
    """Look at one worktree. Where git fails, it counts as holding work."""
    here = [
        must(show_agent(context.store, agent_id=agent.agent_id))
        for agent in must(list_agents(context.store, limit=LIMIT_MAX))
        if agent.host in ("", this_host())
        and agent.worktree
        and os.path.realpath(agent.worktree) == os.path.realpath(tree.path)
    ]
    if tree.missing or tree.bare:
        return Seen(tree=tree, agents=tuple(here))
    try:
        dirty = is_dirty(tree.path, timeout_s=TIMEOUT_S)
    except GitFailed:
        dirty = True
    merged = facts.is_merged(tree.path, tree.branch, settings.base_branch)
    return Seen(tree=tree, agents=tuple(here), dirty=dirty, merged=merged is True)


def _listed(context: Context) -> list[Listed]:
    try:
        return trees.worktrees(context.folder)
    except GitFailed as failed:
        raise Stop(failed.refusal) from failed


def list_(context: Context) -> Result:
    """List the worktrees of this repository, who works in them, and what is in them."""
    settings = _settings(context)
    seen = [_see(context, settings, tree) for tree in _listed(context)]
    rows = [[clean(one.tree.path, 120), one.tree.branch or "(no branch)", _who(one), _state(one)] for one in seen]
    lines = table(rows, ("PATH", "BRANCH", "AGENT", "STATE"))
    return Result(data={"worktrees": [_shape(one) for one in seen]}, lines=lines)


def _who(seen: Seen) -> str:
    names = []
    for one in seen.agents:
        held = ", ".join(lease.task_id for lease in one.leases)
        names.append(one.agent.agent_id + (f" ({held})" if held else ""))
    return ", ".join(names)


def _state(seen: Seen) -> str:
    if seen.tree.missing:
        return "gone"
    words = ["uncommitted work"] if seen.dirty else []
    words += [] if seen.merged or seen.tree.main else ["unmerged commits"]
    return ", ".join(words) or "clean"


def _shape(seen: Seen) -> dict[str, Any]:
    return {
        "path": seen.tree.path,
        "branch": seen.tree.branch or None,
        "head": seen.tree.head or None,
        "main": seen.tree.main,
        "missing": seen.tree.missing,
        "dirty": seen.dirty,
        "merged": seen.merged,
        "agents": [one.agent.agent_id for one in seen.agents],
        "tasks": [lease.task_id for one in seen.agents for lease in one.leases],
    }


def add(context: Context) -> Result:
    """Give an agent a worktree and a branch of its own."""
    agent_id = context.named_agent(context.get("agent_id"))
    path = context.get("path")
    tree = must(
        attach.tree_for(
            context.store,
            context.folder,
            agent_id=agent_id,
            settings=_settings(context),
            base=context.get("base"),
            path=os.path.join(context.folder, path) if path else None,
        )
    )
    word = "Made" if tree.created else "Using"
    lines = [f"{word} {tree.path}", f"  Branch: {tree.branch}", f"  At: {tree.base[:12]}"]
    data = {"agent_id": agent_id, **tree.as_dict()}
    return Result(data=data, lines=lines, next=[f"cd {tree.path}"])


def remove(context: Context) -> Result:
    """Remove a worktree; what is uncommitted in it is saved first, and its branch stays."""
    settings = _settings(context)
    seen = _see(context, settings, _named(context, settings))
    saved = must(_remove(context, settings, seen, force=bool(context.get("force"))))
    lines = [f"Removed {seen.tree.path}"]
    lines += [f"  Uncommitted work is saved: {saved.ref}"] if saved.ref else []
    lines += [f"  Its commits stay on {seen.tree.branch}"] if seen.tree.branch else []
    return Result(data={**_shape(seen), "rescue_ref": saved.ref or None}, lines=lines)


def _named(context: Context, settings: Settings) -> Listed:
    """The worktree that is meant: by its path, its branch, or its agent."""
    word = context.get("worktree")
    path = os.path.realpath(os.path.join(context.folder, word))
    for tree in _listed(context):
        if os.path.realpath(tree.path) == path or tree.branch in (word, settings.branch_prefix + word):
            return tree
    raise Stop(
        refuse("worktree_not_found", f"There is no worktree {word}.", "See which there are: tenure worktree list")
    )


def _remove(context: Context, settings: Settings, seen: Seen, *, force: bool) -> Saved | Refused:
    tree = seen.tree
    if tree.main:
        return refuse("worktree_held", f"{tree.path} is the repository's main worktree.", path=tree.path)
    if seen.at_work:
        names = _who(seen.replace(agents=tuple(seen.at_work)))
        message = f"{names} works in {tree.path}."
        advice = "Wait until nobody holds a task there, or take it back: tenure task release TASK --force"
        return refuse("worktree_held", message, advice, path=tree.path)
    try:
        if tree.missing:
            Git(_listed(context)[0].path).do("worktree", "prune")
            return Saved()
        caps = Caps(file_bytes=settings.rescue_file_mb << 20, total_bytes=settings.rescue_total_mb << 20)
        return clearing.remove(tree.path, _holding(context, settings, seen), caps=caps, force=force)
    except GitFailed as failed:
        return failed.refusal


def _holding(context: Context, settings: Settings, seen: Seen) -> clearing.Holding:
    """Whose work it is: of the agent's last task, where one is known."""
    from tenure.engine.handoffs import handoffs_named

    agent_id = seen.agents[0].agent.agent_id if seen.agents else ""
    agent_id = agent_id or seen.tree.branch.removeprefix(settings.branch_prefix).replace("/", "-") or "nobody"
    left = handoffs_named(context.store, agent_id=agent_id)
    if isinstance(left, Refused) or not left:
        return clearing.left_over(agent_id)
    return clearing.Holding(agent_id=agent_id, task_id=left[0].task_id, token=left[0].handoff.token)


def prune(context: Context) -> Result:
    """Remove the worktrees of agents that hold nothing and whose work is merged; say why others stay."""
    settings = _settings(context)
    gone, kept = [], []
    for tree in _listed(context):
        if tree.main or not (tree.missing or tree.branch.startswith(settings.branch_prefix)):
            continue
        seen = _see(context, settings, tree)
        why = _why_not(seen, bool(context.get("all")))
        removed = Saved() if why else _remove(context, settings, seen, force=False)
        if isinstance(removed, Refused):
            why = removed.message
            kept.append({"path": tree.path, "why": why})
        elif why:
            kept.append({"path": tree.path, "why": why})
        else:
            gone.append({"path": tree.path, "rescue_ref": removed.ref or None})
    lines = [f"Removed {one['path']}" + (f" (saved: {one['rescue_ref']})" if one["rescue_ref"] else "") for one in gone]
    lines += [f"Kept {one['path']}: {one['why']}" for one in kept]
    return Result(data={"removed": gone, "kept": kept}, lines=lines or ["There is nothing to remove."])


def _why_not(seen: Seen, everything: bool) -> str:
    if seen.at_work:
        return f"{_who(seen.replace(agents=tuple(seen.at_work)))} works there"
    if everything or seen.tree.missing or (seen.merged and not seen.dirty):
        return ""
    return f"it holds {_state(seen)} (--all saves and removes it)"
