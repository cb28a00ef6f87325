"""Which process is meant, and whether it is still there.

A number is not a process: it is given again after a few thousand others, and it means something else in every
container. A process is therefore named by four things: the boot of the kernel, the pid namespace, the pid, and the
start time in the kernel's own ticks (field 22 of /proc/<pid>/stat, as it stands there). Only someone in the same boot
and the same namespace may judge it.

    alive      a process with that pid and those ticks exists; stopped (SIGSTOP) or traced ones do
    gone       there is no such pid, or it was given to another process, or what is left of it is defunct
    unknown    another boot, another namespace, no /proc, or one that does not show the process

Unknown is never dead: whoever cannot see leaves the judgement to others, or to the rule of silence.

Three traps are avoided here. The name of a program may hold spaces and parentheses, so the fields are counted from the
last parenthesis. A /proc that hides other people's processes says "not found" of a living one, so nothing is gone
before the kernel itself denies its pid. And a /proc that was mounted for another namespace shows other processes under
the same numbers; it is recognised because it does not call us by our own pid.
"""

from __future__ import annotations

import os

from tenure.clock import SystemClock
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    State = Literal["alive", "gone", "unknown"]

# Where the fields of /proc/<pid>/stat stand, counted from the one after the name.
_STATE, _THREADS, _START = 0, 17, 19
_DEFUNCT = ("Z", "X", "x")
_clock = SystemClock()


class ProcessIdentity(Record):
    """One process, told apart from every other that has its pid in another boot, namespace or time."""

    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int


def here() -> tuple[str, str]:
    """The boot and the pid namespace of this process. The namespace is empty where none can be read."""
    try:
        return _clock.boot_id(), os.readlink("/proc/self/ns/pid")
    except OSError:
        return _clock.boot_id(), ""


def of_process(pid: int) -> ProcessIdentity | None:
    """Who has this pid now; None when nobody does, or it cannot be seen from here."""
    boot_id, namespace = here()
    fields = _fields(pid) if namespace and _sees_us() else None
    if fields is None or _defunct(fields):
        return None
    return ProcessIdentity(boot_id=boot_id, pid_namespace=namespace, pid=pid, start_ticks=int(fields[_START]))


def state(identity: ProcessIdentity) -> State:
    """Whether that very process still runs, as far as can be told from here."""
    if identity.pid <= 0 or not identity.pid_namespace or (identity.boot_id, identity.pid_namespace) != here():
        return "unknown"
    if not _sees_us():
        return "unknown"
    fields = _fields(identity.pid)
    if fields is None:
        return "gone" if _denied_by_kernel(identity.pid) else "unknown"
    if int(fields[_START]) != identity.start_ticks or _defunct(fields):
        return "gone"
    return "alive"


def _fields(pid: int) -> list[str] | None:
    """What the kernel says of a process after its name, or None when it says nothing."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 1 :].decode("ascii", "replace").split()
    return fields if len(fields) > _START else None


def _defunct(fields: list[str]) -> bool:
    """Whether only the exit status is left. A program whose first thread ended while others work is not."""
    return fields[_STATE] in _DEFUNCT and int(fields[_THREADS]) <= 1


def _sees_us() -> bool:
    """Whether /proc shows our own pid namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _denied_by_kernel(pid: int) -> bool:
    """Whether the kernel itself says that there is no such process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
