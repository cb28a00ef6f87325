"""The one place that runs git.

Nothing is interpreted by a shell, every call has a time limit, and the environment is our own: no variable of the
caller's that redirects git, no prompt, no pager, no editor. Hooks, fsmonitor and background maintenance are off in
every call. Words that come from users (ids, refs, paths) stand behind `--` or `--end-of-options`, and ids were checked
by core/ids.py before they came here.

There are two ways to run it. `Git(folder)` reads the repository's own configuration: for what the user asked for, such
as a new worktree, whose checkout may need the user's filters. `private.py` runs it on a git directory of our own that
only borrows the repository's objects: for what a dead agent left behind, whose configuration must not be obeyed.

Both run as the owner of the folder: a superuser that looks at an agent's worktree becomes that agent's user first. One
who is neither is refused.
"""

from __future__ import annotations

import os
import subprocess

from tenure.core.errors import refuse
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.core.errors import Refused

TIMEOUT_S = 30.0
# What git prints on its error stream is quoted in messages; more than this helps nobody.
ERROR_CHARS = 300

# Before every subcommand. A hook or monitor is a program that somebody else chose.
SAFE = (
    "--no-pager",
    "--no-optional-locks",
    "--literal-pathspecs",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.askPass=",
    "-c", "credential.helper=",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "submodule.recurse=false",
    "-c", "commit.gpgSign=false",
    "-c", "advice.detachedHead=false",
    "-c", "protocol.allow=never",
)  # fmt: skip


class GitFailed(Exception):
    """Git could not do it. Carries the refusal to show."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Owner(Record):
    """Whose folder it is, and whether this process must become that user to look at it."""

    uid: int
    gid: int
    switch: bool


class Output(Record):
    """What a call gave back."""

    status: int
    out: bytes
    error: str

    @property
    def text(self) -> str:
        """The output as text; a name that is not UTF-8 survives the way back to the file system."""
        return os.fsdecode(self.out)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def fields(self) -> list[str]:
        """The output of a call with -z."""
        return [os.fsdecode(field) for field in self.out.split(b"\0") if field]


def owner_of(folder: str) -> Owner:
    """Who owns a folder. Raises GitFailed if it is gone, or belongs to a user that this process cannot become."""
    try:
        status = os.stat(folder)
    except OSError as error:
        message = f"{folder} cannot be read: {error.strerror}."
        raise GitFailed(refuse("worktree_not_found", message, path=folder)) from error
    own = os.geteuid()
    if status.st_uid == own or own == 0:
        return Owner(uid=status.st_uid, gid=status.st_gid, switch=status.st_uid != own)
    message = f"{folder} belongs to another user ({status.st_uid}), and git is run only as its owner."
    advice = "Run it as that user, or as the superuser."
    raise GitFailed(refuse("not_permitted", message, advice, path=folder, owner=status.st_uid))


def environment(owner: Owner, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a call: the caller's own without whatever steers git, or, as another user, almost nothing."""
    kept: dict[str, str] = {}
    if not owner.switch:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SSH_ASKPASS"))}
    else:
        kept = {"PATH": os.environ.get("PATH", os.defpath), "HOME": _home_of(owner.uid)}
    kept |= {"LC_ALL": "C", "LANGUAGE": "", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "false", "GIT_ASKPASS": "true"}
    # What is shown is what was committed, and nothing is fetched to show it.
    kept |= {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1"}
    return {**kept, **(extra or {})}


def _home_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/nonexistent"


def execute(
    command: Sequence[str],
    *,
    owner: Owner,
    folder: str = "/",
    environ: Mapping[str, str] | None = None,
    input: bytes = b"",
    timeout_s: float = TIMEOUT_S,
) -> Output:
    """Run a program as the owner. Raises GitFailed if it cannot be started or takes too long; its status is data."""
    try:
        done = subprocess.run(
            list(command),
            cwd=folder,
            env=environment(owner, environ),
            input=input,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            # A terminal's interrupt is for the command, not for a git that is writing an object.
            start_new_session=True,
            user=owner.uid if owner.switch else None,
            group=owner.gid if owner.switch else None,
            extra_groups=[] if owner.switch else None,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{_shown(command)} took longer than {timeout_s:g} s and was ended."
        raise GitFailed(refuse("git_failed", message, reason="timeout")) from error
    except OSError as error:
        missing = isinstance(error, FileNotFoundError) and os.path.isdir(folder)
        message = "Git is not installed here." if missing else f"{_shown(command)} cannot be started: {error.strerror}."
        raise GitFailed(refuse("git_failed", message, reason="missing" if missing else "start")) from error
    said = done.stderr.decode("utf-8", "replace").strip()
    return Output(status=done.returncode, out=done.stdout, error=said)


class Git:
    """Git in one folder, with the repository's own configuration, as the folder's owner."""

    def __init__(self, folder: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.folder = folder
        self.owner = owner_of(folder)
        self.timeout_s = timeout_s

    def ask(self, *arguments: str, input: bytes = b"") -> Output:
        """Run it; a failing status is for the caller to read."""
        return execute(
            ["git", *SAFE, *arguments], owner=self.owner, folder=self.folder, input=input, timeout_s=self.timeout_s
        )

    def do(self, *arguments: str, input: bytes = b"") -> Output:
        """Run it; anything but success raises GitFailed with what git said."""
        return checked(arguments, self.ask(*arguments, input=input))

    def commit_of(self, revision: str) -> str | None:
        """The commit that a revision names, or None."""
        if not is_revision(revision):
            return None
        found = self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return found.text.strip() or None if found.status == 0 else None


def checked(arguments: Sequence[str], output: Output) -> Output:
    """The output of a call that had to succeed."""
    if output.status == 0:
        return output
    said = " ".join(output.error.split())[-ERROR_CHARS:] or f"status {output.status}"
    raise GitFailed(refuse("git_failed", f"{_shown(['git', *arguments])} failed: {said}", reason="status"))


def is_revision(text: str) -> bool:
    """Whether a user's word may be handed to git as a revision: no option, nothing invisible."""
    return 0 < len(text) <= 512 and text.isprintable() and not text.startswith("-")


def _shown(command: Sequence[str]) -> str:
    """The program and its subcommand: enough to know what was tried."""
    words = [word for word in command if not word.startswith("-") and "=" not in word]
    return " ".join(words[:2])
