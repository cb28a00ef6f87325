"""The one deadline. Everything that decides when a holder counts as dead lives in this file.

A lease is live while it has not ended and now < recover_at; the boundary instant is expired. `recover_at` is stored on
the lease and computed by `recover_at_ms` at each write, so that every process gives the same answer at the same
instant without knowing any settings:

    rule         = expires_at + grace, and at least seen_at + silence_multiplier x median gap between marks
    pulse        = min(pulsed_at + 15 s, seen_at + hung_after)      while a link pulses
    announcement = min(silent_until, seen_at + silence_cap)         after expect_silence
    recover_at   = min(death_at, max(rule, pulse, announcement))    phases (profile agent)
    recover_at   = min(death_at, expires_at)                        fixed TTL (profiles cli and worker), and any offer

The rule alone is the specification's: expired past grace, and silent for longer than this agent's own cadence
explains. Evidence beats it in both directions. A pulse from someone who sees the process keeps a silent agent, but not
for ever (hung_after), because a process can be alive and stuck. An announcement keeps it too, up to a cap. A death that
was seen ends it now.

The cadence is in force from the third mark on: one gap between two marks says nothing about a habit.

Silence counts only while someone could hear. A lease whose holder talks through a server is judged as of that server's
last pulse once the pulse is stale, and at most hung_after past its deadline, so that a server that never returns does
not make its agents immortal. A seen death needs nobody to hear it.

What is not promised: a live agent that is silent, unlinked and unannounced for longer than the rule allows is declared
dead. Section 3 of the design gives the measured rate. It can do no harm afterwards, and its next report takes the task
back if it is still free.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.core.model import Lease, Status, Task

PULSE_EVERY_MS = 5_000
PULSE_VALID_MS = 15_000
GAPS_KEPT = 64
GAPS_NEEDED = 2
SIGNS_KEPT = 64
# A call that leaves itself no more than this part of its term comes close to being late, however short the term is.
CLOSE_PART = 3


def rule_ms(lease: Lease) -> int:
    """Expired past grace, and silent for longer than this agent's own cadence explains."""
    return max(lease.expires_at_ms + lease.grace_ms, lease.seen_at_ms + lease.cadence_ms)


def pulse_ms(lease: Lease) -> int:
    """How far a pulsing link carries a silent holder."""
    if lease.pulsed_at_ms is None:
        return 0
    return min(lease.pulsed_at_ms + PULSE_VALID_MS, lease.seen_at_ms + lease.hung_after_ms)


def announcement_ms(lease: Lease) -> int:
    """How far an announced silence carries it."""
    if lease.silent_until_ms is None:
        return 0
    return min(lease.silent_until_ms, lease.seen_at_ms + lease.silence_cap_ms)


def recover_at_ms(lease: Lease) -> int:
    """The instant from which the holder counts as dead, as far as is known at this write."""
    if lease.fixed or lease.state == "offered":
        deadline = lease.expires_at_ms
    else:
        deadline = max(rule_ms(lease), pulse_ms(lease), announcement_ms(lease))
    return deadline if lease.death_at_ms is None else min(deadline, lease.death_at_ms)


def warn_at_ms(lease: Lease) -> int | None:
    """When to warn in this term, or None: warned already, or the term is no longer than the warning."""
    if lease.warned or lease.term_ms <= lease.warning_ms:
        return None
    return lease.expires_at_ms - lease.warning_ms


def close_call(lease: Lease) -> bool:
    """Whether the holder's last call came close to being late: within the warning time, or a third of its term if less.

    Judged by what was left before the call. What it bought is a whole term, which for a lease shorter than the warning
    would always be little, and for any other never.
    """
    gap, slash, allowed = lease.signs.rpartition(" ")[2].partition("/")
    left_ms = (int(allowed) - int(gap)) * 100 if slash else lease.term_ms
    return left_ms <= min(lease.warning_ms, lease.term_ms // CLOSE_PART)


def next_wake_ms(lease: Lease) -> int:
    """The next instant at which someone should look at this lease."""
    warn_at = warn_at_ms(lease)
    return lease.recover_at_ms if warn_at is None else min(warn_at, lease.recover_at_ms)


def settled(lease: Lease) -> Lease:
    """The lease with its deadline recomputed. Every write of a live lease passes through here.

    `wake_at` only ever falls here; it is raised when its timer fires. A touch therefore moves no index.
    """
    recover_at = recover_at_ms(lease)
    warn_at = warn_at_ms(lease)
    wake_at = recover_at if warn_at is None else min(warn_at, recover_at)
    return lease.replace(recover_at_ms=recover_at, wake_at_ms=min(lease.wake_at_ms, wake_at))


def is_deaf(lease: Lease, now_ms: int) -> bool:
    """Whether the holder's server has not pulsed for so long that nobody could have heard the holder."""
    return lease.server_pulsed_at_ms is not None and now_ms - lease.server_pulsed_at_ms > PULSE_VALID_MS


def judged_at_ms(lease: Lease, now_ms: int) -> int:
    """The instant as of which this lease is judged: now, or the last pulse of a server that cannot hear."""
    if not is_deaf(lease, now_ms) or now_ms >= lease.recover_at_ms + lease.hung_after_ms:
        return now_ms
    assert lease.server_pulsed_at_ms is not None
    return lease.server_pulsed_at_ms


def live(lease: Lease, now_ms: int) -> bool:
    """Whether the holder may still act. The one test of liveness."""
    if lease.state not in ("offered", "active"):
        return False
    if lease.death_at_ms is not None and lease.death_at_ms <= now_ms:
        return False
    return judged_at_ms(lease, now_ms) < lease.recover_at_ms


def shown_status(task: Task, leases: Sequence[Lease], now_ms: int) -> tuple[Status, bool]:
    """The task's status as anyone should see it, and whether a recovery of it is due.

    A lease that is not live any more reads as todo before anyone has recovered it.
    """
    held = [lease for lease in leases if lease.state == "active"]
    if task.status != "in_progress" or task.owner != "agent" or any(live(lease, now_ms) for lease in held):
        return task.status, False
    return "todo", True


def seen(lease: Lease, now_ms: int, *, extends: bool, expect_silence_ms: int = 0) -> Lease:
    """The lease after a call of its holder. Its silence begins anew; an announcement made before is over.

    With a fixed TTL there is no silence to allow, so an announcement longer than the TTL buys that one longer term. An
    offer is not held yet, and nothing but accepting it keeps it.
    """
    announced = min(expect_silence_ms, lease.silence_cap_ms)
    expires_at_ms, warned = lease.expires_at_ms, lease.warned
    if extends and lease.state != "offered":
        term_ms = max(lease.term_ms, announced) if lease.fixed else lease.term_ms
        expires_at_ms, warned = now_ms + term_ms, 0
    return lease.replace(
        seen_at_ms=now_ms,
        touches=lease.touches + 1,
        signs=_signed(lease, now_ms),
        silent_until_ms=now_ms + announced if announced and not lease.fixed else None,
        expires_at_ms=expires_at_ms,
        warned=warned,
    )


def _signed(lease: Lease, now_ms: int) -> str:
    """The last signs of life, with this one: how long the holder was silent, and how long it might have been, in tenths
    of a second. No deadline is decided by them: they show why it is where it is, and tell a holder that came close."""
    gap = max(0, now_ms - lease.seen_at_ms) // 100
    allowed = max(0, lease.recover_at_ms - lease.seen_at_ms) // 100
    kept = lease.signs.split(" ")[1 - SIGNS_KEPT :] if lease.signs else []
    return " ".join((*kept, f"{gap}/{allowed}"))


def marked(lease: Lease, now_ms: int, silence_multiplier: float) -> Lease:
    """The lease after a mark: a report, decision, artifact or blocker. Marks feed the cadence, touches do not."""
    gaps = [int(gap) for gap in lease.mark_gaps.split()]
    if lease.marked_at_ms is not None:
        gaps = [*gaps, max(0, now_ms - lease.marked_at_ms)][-GAPS_KEPT:]
    cadence = round(median_ms(gaps) * silence_multiplier) if len(gaps) >= GAPS_NEEDED else 0
    return lease.replace(mark_gaps=" ".join(map(str, gaps)), marked_at_ms=now_ms, cadence_ms=cadence)


def median_gap_ms(lease: Lease) -> float | None:
    """The specification's median_update_interval, in milliseconds; None before the second mark."""
    gaps = [int(gap) for gap in lease.mark_gaps.split()]
    return median_ms(gaps) if gaps else None


def median_ms(gaps: list[int]) -> float:
    """The median, by hand: `statistics` costs more to import than the rest of a touch."""
    ordered = sorted(gaps)
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
