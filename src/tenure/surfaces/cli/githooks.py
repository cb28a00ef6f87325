"""`tenure setup git`: the pre-push hook of a repository, or with --server the pre-receive hook of a bare one.

A hook that is there already is kept beside ours and runs first; what it refuses is refused. Taking ours out puts it
back as it was. Where hooks live is git's to say (core.hooksPath, worktrees).
"""

from __future__ import annotations

import os
import subprocess

from tenure.core.errors import refuse
from tenure.surfaces.cli import edits
from tenure.surfaces.cli.context import Stop
from tenure.surfaces.cli.output import Result, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context

MARK = "# Written by `tenure setup git"
KEPT = ".before-tenure"
GIT_LIMIT_S = 10

# What both begin with: the refs are read once, and a hook that was there before judges first.
_HEAD = """#!/bin/sh
{mark}{option}`; `tenure setup git{option} --remove` takes it out.
# {purpose}
refs=$(cat && printf x) && refs=${{refs%x}}
before=$(dirname "$0")/{name}{kept}
if [ -x "$before" ]; then
    printf '%s' "$refs" | "$before" "$@" || exit $?
fi
"""
PRE_PUSH = (
    _HEAD.format(
        mark=MARK,
        option="",
        purpose="Keeps an agent without a live lease from every branch but its own. Skip it with: git push --no-verify",
        name="pre-push",
        kept=KEPT,
    )
    + """if ! command -v tenure >/dev/null 2>&1; then
    [ -z "$TENURE_AGENT" ] || echo "tenure is not on PATH, and did not check this push" >&2
    exit 0
fi
printf '%s' "$refs" | tenure hook pre-push -- "$@"
"""
)
PRE_RECEIVE = (
    _HEAD.format(
        mark=MARK,
        option=" --server",
        purpose="Takes a push to a shared branch only with the token of a live lease: git push -o tenure-token=TOKEN",
        name="pre-receive",
        kept=KEPT,
    )
    + """TENURE_EXEMPT=$(git config --get-all tenure.exempt)
TENURE_PUSHER=${REMOTE_USER:-$(id -un)}
export TENURE_EXEMPT TENURE_PUSHER
printf '%s' "$refs" | tenure hook pre-receive --store "$(git config --get tenure.store)"
"""
)


def setup_git(context: Context) -> Result:
    """Install, check or remove the hook."""
    server = bool(context.get("server"))
    if context.get("user"):
        hint = "For all repositories, set core.hooksPath for your user; then run it in one of them without --user."
        raise Stop(refuse("usage", "setup git: hooks belong to a repository; --user is not for git", hint))
    bare = _git(context, "rev-parse", "--is-bare-repository") == "true"
    if server and not bare:
        raise Stop(
            refuse("wrong_state", "--server is for a bare repository, and this is none.", "Run it in the server's.")
        )
    if bare and not server:
        hint = "For its pre-receive hook: tenure setup git --server"
        raise Stop(refuse("wrong_state", "Nobody pushes from a bare repository.", hint))
    # A relative core.hooksPath counts from the top of the worktree, where git runs hooks.
    top = os.path.abspath(context.folder) if bare else context.worktree()
    folder = os.path.join(top, _git(context, "rev-parse", "--git-path", "hooks", folder=top))
    hook = Hook(folder, "pre-receive" if server else "pre-push", PRE_RECEIVE if server else PRE_PUSH)
    desk = edits.Desk(context.environ)
    config = os.path.join(top, _git(context, "rev-parse", "--git-path", "config", folder=top))
    try:
        if context.get("check"):
            return _checked(context, hook)
        if context.get("remove"):
            changed = hook.remove(desk)
            if server:
                changed += _unconfigured(desk, config)
            lines = [edits.undone(path) for path in changed] or [f"No {hook.name} hook of Tenure was installed here."]
            return Result(data={"client": "git", "changed": changed}, lines=lines)
        changed = _configured(context, desk, config) if server else []
        changed += hook.install(desk)
    except OSError as error:
        message = f"{error.filename or 'A file'} cannot be changed: {error.strerror}."
        raise Stop(refuse("not_permitted", message, "Make it writable, then repeat the command.")) from None
    return _told(context, hook, changed)


class Hook:
    """One hook of one repository."""

    def __init__(self, folder: str, name: str, script: str) -> None:
        self.name, self.script = name, script
        self.path = os.path.join(folder, name)
        self.kept = self.path + KEPT

    def state(self) -> str:
        """In place, missing (whatever else is there), or differs: another version of ours, or one that cannot run."""
        there = self._text()
        if there != self.script:
            return "differs" if MARK in there else "missing"
        return "in place" if os.access(self.path, os.X_OK) else "differs"

    def install(self, desk: edits.Desk) -> list[str]:
        state = self.state()
        if state == "in place":
            return []
        if state == "missing" and os.path.lexists(self.path):
            if os.path.lexists(self.kept):
                message = f"{self.path} and {self.kept} are both there: a hook was installed over ours."
                raise Stop(refuse("wrong_state", message, f"Keep one of them as {self.path}, then repeat the command."))
            os.rename(self.path, self.kept)
        made = not os.path.isdir(os.path.dirname(self.path))
        if made:
            os.makedirs(os.path.dirname(self.path))
            desk.keep(edits.Note(path=self.path, created=True, made=(os.path.dirname(self.path),)))
        edits.write(self.path, self.script, mode=0o755)
        return [self.path]

    def remove(self, desk: edits.Desk) -> list[str]:
        if MARK not in self._text():
            return []
        if os.path.lexists(self.kept):
            os.replace(self.kept, self.path)
            return [self.path]
        os.unlink(self.path)
        note = desk.note_of(self.path)
        for folder in note.made if note is not None else ():
            try:
                os.rmdir(folder)
            except OSError:
                break
        desk.forget(self.path)
        return [self.path]

    def _text(self) -> str:
        try:
            return edits.read(self.path) or ""
        except UnicodeDecodeError:
            # A program, and not ours.
            return ""


def _configured(context: Context, desk: edits.Desk, config: str) -> list[str]:
    """Let the server take push options, and say which store it asks."""
    from tenure.store.locate import is_address, store_location

    store = store_location(context.get("store"), context.environ, context.folder)
    assert store is not None
    if not is_address(store) and not os.path.exists(store):
        hint = "Name the store that the agents use: --store PATH. Or make one here: tenure init"
        raise Stop(refuse("store_unavailable", f"There is no store at {store}.", hint))
    quoted = store.replace("\\", "\\\\").replace('"', '\\"')
    block = f'[receive]\n\tadvertisePushOptions = true\n[tenure]\n\tstore = "{quoted}"\n'
    text = edits.read(config) or ""
    if block in text:
        return []
    note = desk.note_of(config)
    before = edits.restored(note, text) if note is not None else None
    if note is not None and before is not None:
        edits.take_back(desk, note, before)
        text = before
    elif note is not None:
        desk.forget(config)
    edits.insert(desk, config, [(len(text), ("" if text.endswith("\n") or not text else "\n") + block)])
    return [config]


def _unconfigured(desk: edits.Desk, config: str) -> list[str]:
    note, text = desk.note_of(config), edits.read(config)
    before = edits.restored(note, text) if note is not None and text is not None else None
    if note is None or before is None:
        return []
    edits.take_back(desk, note, before)
    return [config]


def _git(context: Context, *words: str, folder: str | None = None) -> str:
    """What git says about the repository around the working folder."""
    environ = {name: value for name, value in context.environ.items() if not name.startswith("GIT_")}
    kept = {name: value for name, value in context.environ.items() if name.startswith("GIT_CONFIG")}
    try:
        ran = subprocess.run(
            ["git", *words],
            cwd=folder or context.folder,
            env={**environ, **kept},
            capture_output=True,
            text=True,
            timeout=GIT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Stop(refuse("wrong_state", f"git could not be run: {error}", "Install git, then repeat.")) from None
    if ran.returncode != 0:
        message = f"{context.folder} is not in a git repository."
        raise Stop(refuse("wrong_state", message, "Run it inside of one, or make one: git init"))
    return ran.stdout.strip("\n")


def _checked(context: Context, hook: Hook) -> Result:
    state = hook.state()
    option = " --server" if context.get("server") else ""
    data = {"client": "git", "set_up": state == "in place", "pieces": [{"file": hook.path, "state": state}]}
    line = f"{paint(state, {'in place': 'green', 'missing': 'yellow'}.get(state, 'red'))}  {hook.path}"
    if state == "in place":
        chained = [f"It runs {hook.kept} first."] if os.path.exists(hook.kept) else []
        return Result(data=data, lines=[line, *chained])
    again = f"tenure setup git{option}"
    refusal = refuse("unhealthy", f"The {hook.name} hook is not set up here.", f"Run: {again}", client="git")
    return Result(data=data, lines=[line, refusal.message, refusal.next], next=[again], refusal=refusal)


def _told(context: Context, hook: Hook, changed: list[str]) -> Result:
    lines = [f"Wrote {path}" for path in changed] or ["git was set up already."]
    if changed and os.path.exists(hook.kept):
        lines.append(f"The hook that was there runs first: {hook.kept}")
    warnings = []
    if not context.get("server") and not os.path.realpath(hook.path).startswith(_common(context) + os.sep):
        warnings.append(f"core.hooksPath leads to {os.path.dirname(hook.path)}: other repositories may use it too")
    return Result(data={"client": "git", "changed": changed}, lines=lines, warnings=warnings)


def _common(context: Context) -> str:
    return os.path.realpath(os.path.join(context.folder, _git(context, "rev-parse", "--git-common-dir")))
