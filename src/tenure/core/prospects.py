"""What an agent is told when nothing is ready for it: when to ask again and why then, or that it may go.

An agent that polls spends tokens on every look, so the answer names the nearest instant at which something can become
ready, as far as that can be known now:

    returns    a holder's task comes back if the holder stays silent (its deadline, and the delay before a retry)
    waits      a task waits for a time: its not_before, or the delay after a lost attempt
    unlocks    the holders of all that a task still needs will have finished, at the speed they have shown so far

A holder that its link shows to be alive is not waited for to die before its link would no longer be believed. A speed
needs a reported percentage; without one only the deadline is known. The nearest of these is the answer, rounded up to
a second and at most MOST_S, since new work can be added at any time. When nothing is known, the answer is a default by
what is in the way.

`should_exit` is said only when nothing can become ready without a person: everything is done, what is left is blocked
or dead, or the project is gridlocked (core/gridlock.py). Nothing is in progress then. A task that this agent is not
able to do is no reason to go: whoever is able may unlock others by doing it.

What is not promised: an estimate is an estimate, and tasks can be added, unblocked or released earlier than it says.
"""

from __future__ import annotations

from tenure.core.gridlock import NAMES_SHOWN
from tenure.core.handoff import inline
from tenure.core.record import Record
from tenure.core.times import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal

    from tenure.core.gridlock import Gridlock

    Outlook = Literal["ready", "waiting", "empty", "finished", "blocked", "gridlocked"]

MOST_S = 300
# An estimate that is overdue is not asked about every second.
ESTIMATE_LEAST_S = 10
# By what is in the way, when no instant is known.
INTERNAL_S = 10
UNKNOWN_S = 60


class Held(Record):
    """A task in progress, or offered, under a lease. `returns_at_ms` is None when its end would not put it on offer."""

    task_id: str
    holder: str
    granted_at_ms: int
    progress: int = 0
    returns_at_ms: int | None = None
    announced_until_ms: int | None = None


class Locked(Record):
    """A todo task that waits for others; `needs` are those of them that are held, `others` counts the rest."""

    task_id: str
    needs: tuple[str, ...]
    others: int = 0


class Scene(Record):
    """What was seen of the project. Ids are in the order in which they are worth naming."""

    project_id: str
    # Whether there is any task, todo, in progress; what is blocked and dead (the first few, with the reasons).
    tasks: bool = False
    todo: bool = False
    in_progress: bool = False
    blocked: Mapping[str, str] = {}
    dead: Mapping[str, str] = {}
    ready: bool = False
    held: tuple[Held, ...] = ()
    locked: tuple[Locked, ...] = ()
    # Task: the instant at which its wait ends.
    waiting: Mapping[str, int] = {}
    # In progress without a lease: task to owner. The reserved owner's are the server's own work.
    internal: Mapping[str, str] = {}
    # Whether a server is up that would do them.
    served: bool = True
    external: Mapping[str, str] = {}
    # Ready for someone else: task to the agent it is kept for, and task to the capabilities that this agent lacks.
    kept: Mapping[str, str] = {}
    lacking: Mapping[str, tuple[str, ...]] = {}
    # The finding on a project in which nothing is in progress; None: not looked for, or too large to judge.
    gridlock: Gridlock | None = None


class Prospects(Record):
    """The answer. `retry_after_seconds` is None when the agent may go."""

    outlook: Outlook
    should_exit: bool
    retry_after_seconds: int | None
    retry_reason: str
    # The tasks that the reason names, and what a person has to do, one sentence each.
    waiting_for: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


class _Chance(Record):
    """One instant at which something can become ready."""

    at_ms: int
    reason: str
    task_id: str
    least_s: int = 1


def prospects(scene: Scene, now_ms: int) -> Prospects:
    """When something can become ready for this agent, or that nothing can."""
    if scene.ready:
        return _retry("ready", 1, "A task is ready now: ask again.")
    if not scene.tasks:
        return _retry("empty", UNKNOWN_S, f"Project {inline(scene.project_id)} has no tasks yet.")
    if not scene.todo and not scene.in_progress:
        return _over(scene)
    if scene.gridlock is not None and scene.gridlock.gridlocked and not scene.in_progress:
        said = tuple(scene.gridlock.sentences())
        return _exit("gridlocked", said[0], tuple(scene.gridlock.blocked)[:NAMES_SHOWN], said[1:])
    chances = [*_returns(scene), *_waits(scene), *_unlocks(scene, now_ms)]
    if not chances:
        return _unknown(scene)
    nearest = min(chances, key=lambda chance: (max(chance.at_ms, now_ms + chance.least_s * 1000), chance.task_id))
    wait_s = max(nearest.least_s, -(-(nearest.at_ms - now_ms) // 1000))
    return _retry("waiting", min(MOST_S, wait_s), nearest.reason, (nearest.task_id,), _problems(scene))


def finish_at_ms(held: Held, now_ms: int) -> int | None:
    """When the holder will be done if it goes on as it has; None before it has reported a percentage."""
    if held.progress <= 0:
        return None
    elapsed_ms = max(0, now_ms - held.granted_at_ms)
    return now_ms + elapsed_ms * (100 - held.progress) // held.progress


def _returns(scene: Scene) -> Iterable[_Chance]:
    for held in scene.held:
        if held.returns_at_ms is None:
            continue
        task, holder = inline(held.task_id), inline(held.holder)
        if held.announced_until_ms is not None:
            silence = f"{holder} announced silence until {iso(held.announced_until_ms)}"
            reason = f"{task} is held by {holder}; {silence} and its task returns then if nothing is heard."
        else:
            reason = f"{task} is held by {holder} and returns at {iso(held.returns_at_ms)} if nothing is heard from it."
        yield _Chance(at_ms=held.returns_at_ms, reason=reason, task_id=held.task_id)


def _waits(scene: Scene) -> Iterable[_Chance]:
    for task_id, at_ms in scene.waiting.items():
        yield _Chance(at_ms=at_ms, reason=f"{inline(task_id)} waits until {iso(at_ms)}.", task_id=task_id)


def _unlocks(scene: Scene, now_ms: int) -> Iterable[_Chance]:
    """A locked task is ready when the last of what it needs is done; one need that nobody works on leaves it open."""
    held = {one.task_id: one for one in scene.held}
    for locked in scene.locked:
        if locked.others or not locked.needs:
            continue
        finishes = [(finish_at_ms(held[need], now_ms), held[need]) for need in locked.needs if need in held]
        if len(finishes) < len(locked.needs) or any(at_ms is None for at_ms, _ in finishes):
            continue
        at_ms, last = max(finishes, key=lambda finish: finish[0] or 0)
        assert at_ms is not None
        reason = (
            f"{inline(locked.task_id)} waits for {inline(last.task_id)}, which {inline(last.holder)} has brought to "
            f"{last.progress}% and is expected to finish around {iso(at_ms // 1000 * 1000)}."
        )
        yield _Chance(at_ms=at_ms, reason=reason, task_id=last.task_id, least_s=ESTIMATE_LEAST_S)


def _unknown(scene: Scene) -> Prospects:
    """Something moves or could, and nobody can say when."""
    if scene.internal:
        task_id, owner = next(iter(scene.internal.items()))
        names = tuple(scene.internal)[:NAMES_SHOWN]
        if not scene.served:
            reason = (
                f"{inline(task_id)} is {inline(owner)}'s, which a server does, and none is up: tenure up starts one."
            )
            return _retry("waiting", UNKNOWN_S, reason, names, _problems(scene))
        reason = f"{inline(owner)} is at work on {inline(task_id)} inside the server."
        return _retry("waiting", INTERNAL_S, reason, names, _problems(scene))
    if scene.external:
        reason = f"What is left waits for others: {_pairs(scene.external, 'is with')}."
        return _retry("waiting", UNKNOWN_S, reason, tuple(scene.external)[:NAMES_SHOWN], _problems(scene))
    if scene.kept:
        reason = f"What is ready is kept for others: {_pairs(scene.kept, 'for')}."
        return _retry("waiting", UNKNOWN_S, reason, tuple(scene.kept)[:NAMES_SHOWN], _problems(scene))
    if scene.lacking:
        task_id, missing = next(iter(scene.lacking.items()))
        reason = f"{inline(task_id)} is ready but requires {', '.join(missing)}, which you did not declare."
        return _retry("waiting", UNKNOWN_S, reason, tuple(scene.lacking)[:NAMES_SHOWN], _problems(scene))
    names = tuple(held.task_id for held in scene.held)[:NAMES_SHOWN]
    reason = f"All that is ready is held: {_listed(names)}." if names else "Nothing is ready yet."
    return _retry("waiting", UNKNOWN_S, reason, names, _problems(scene))


def _over(scene: Scene) -> Prospects:
    """Nothing is todo and nothing is in progress: done, or only a person can go on."""
    project = inline(scene.project_id)
    stopped = (
        *(_stopped(task_id, "blocked", reason) for task_id, reason in scene.blocked.items()),
        *(_stopped(task_id, "dead", reason) for task_id, reason in scene.dead.items()),
    )
    if scene.blocked:
        reason = f"What is left of project {project} is blocked and needs a person."
        return _exit("blocked", reason, tuple(scene.blocked)[:NAMES_SHOWN], stopped)
    done = "Every task" if not scene.dead else "Every task that is not dead"
    return _exit("finished", f"{done} of project {project} is done.", tuple(scene.dead)[:NAMES_SHOWN], stopped)


def _problems(scene: Scene) -> tuple[str, ...]:
    """What will not go away by itself although other work goes on."""
    if scene.gridlock is not None:
        return tuple(scene.gridlock.sentences())
    return tuple(_stopped(task_id, "blocked", reason) for task_id, reason in scene.blocked.items())


def _stopped(task_id: str, status: str, reason: str) -> str:
    return f"{inline(task_id)} is {status}" + (f" (“{inline(reason)}”)." if reason else ".")


def _pairs(owners: Mapping[str, str], word: str) -> str:
    shown = [f"{inline(task_id)} {word} {inline(owner)}" for task_id, owner in list(owners.items())[:NAMES_SHOWN]]
    return "; ".join(shown)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(inline(name) for name in names)


def _retry(
    outlook: Outlook, seconds: int, reason: str, waiting_for: tuple[str, ...] = (), why: tuple[str, ...] = ()
) -> Prospects:
    return Prospects(
        outlook=outlook,
        should_exit=False,
        retry_after_seconds=seconds,
        retry_reason=reason,
        waiting_for=waiting_for,
        why=why,
    )


def _exit(outlook: Outlook, reason: str, waiting_for: tuple[str, ...], why: tuple[str, ...]) -> Prospects:
    return Prospects(
        outlook=outlook,
        should_exit=True,
        retry_after_seconds=None,
        retry_reason=reason,
        waiting_for=waiting_for,
        why=why,
    )
