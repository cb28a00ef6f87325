"""`tenure rescue ...`: uncommitted work that was saved from lost holders."""

from __future__ import annotations

from tenure.surfaces.cli.context import must
from tenure.surfaces.cli.output import Result, clean, counted, table
from tenure.worktree import saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.surfaces.cli.context import Context
    from tenure.worktree.saved import Rescued

FILES_SHOWN = 50


def _shape(one: Rescued) -> dict[str, Any]:
    from tenure.core.times import iso

    return {
        "name": one.name,
        "ref": one.ref,
        "task_id": one.task_id,
        "token": one.token,
        "agent_id": one.agent_id,
        "commit": one.commit,
        "base": one.base,
        "staged_tree": one.staged,
        "saved_at": iso(one.saved_at_ms),
    }


def list_(context: Context) -> Result:
    """List what was saved in this repository."""
    from tenure.core.times import iso

    found = must(saved.list_rescued(context.folder, context.get("task") or ""))
    rows = [[one.name, clean(one.agent_id), iso(one.saved_at_ms), one.commit[:12]] for one in found]
    lines = table(rows, ("NAME", "AGENT", "SAVED", "COMMIT")) if rows else ["Nothing is saved."]
    following = [f"tenure rescue show {found[0].name}"] if found else []
    return Result(data={"rescues": [_shape(one) for one in found]}, lines=lines, next=following)


def show(context: Context) -> Result:
    """Show what one rescue changes."""
    seen = must(saved.show(context.folder, context.get("name"), patch=bool(context.get("patch"))))
    one = seen.rescued
    base = f"on {one.base[:12]}" if one.base else "before any commit"
    lines = [f"{one.ref}", f"Saved from {clean(one.agent_id)} {base}", ""]
    lines += [f"{status} {clean(path, 500)}" for status, path in seen.changes[:FILES_SHOWN]]
    if len(seen.changes) > FILES_SHOWN:
        lines.append(f"[and {len(seen.changes) - FILES_SHOWN} more: --json shows all]")
    if one.staged:
        lines += [
            "",
            f"What was staged differs, and is kept too: git diff {one.base or ''} {one.staged}".replace("  ", " "),
        ]
    if seen.patch:
        from tenure.core.handoff import plain_lines

        lines += ["", *plain_lines(seen.patch)]
    data = {
        **_shape(one),
        "files": [{"status": status, "path": path} for status, path in seen.changes],
        "diffstat": seen.diffstat,
        **({"patch": seen.patch} if context.get("patch") else {}),
    }
    return Result(data=data, lines=lines, next=[f"tenure rescue apply {one.name}"])


def apply(context: Context) -> Result:
    """Bring a rescue into this worktree."""
    brought = must(saved.apply(context.folder, context.get("name")))
    how = "merged into what is checked out" if brought.merged else "as they were"
    lines = [f"Brought in {counted(len(brought.paths), 'file')} of {brought.rescued.name}, {how}"]
    lines.append("They are uncommitted: look with git status, then commit")
    warnings = [f"{path} is a submodule: run git submodule update" for path in brought.submodules]
    data = {**_shape(brought.rescued), "paths": list(brought.paths), "merged": brought.merged}
    return Result(data=data, lines=lines, next=["git status"], warnings=warnings)


def drop(context: Context) -> Result:
    """Forget one rescue."""
    gone = must(saved.drop(context.folder, context.get("name")))
    back = f"git update-ref {gone.ref} {gone.commit}"
    return Result(data=_shape(gone), lines=[f"Dropped {gone.name}", f"To have it back: {back}"], next=[back])
