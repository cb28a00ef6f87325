"""Holding on: renew (or heartbeat) and report. Both honour a lease while it is live, grace included, and not after."""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.deadline import live, marked, seen
from tenure.core.errors import Refused
from tenure.core.phases import phase_of
from tenure.core.record import Record
from tenure.engine import change, claims, holding, load, recovery
from tenure.engine.callers import CALLER, see
from tenure.engine.touch import EXPECT_SILENCE_S
from tenure.engine.verb import verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Unpack

    from tenure.core.model import Lease, Task
    from tenure.core.settings import Settings
    from tenure.engine.callers import CallerArgs
    from tenure.store.store import Transaction


class Kept(Record):
    """A lease that goes on."""

    lease: Lease
    task: Task
    # True when the lease had been lost and was given back ("lease not found, recreating").
    healed: bool = False


@verb(
    **CALLER,
    ttl_s=inputs.optional(inputs.ttl_s),
    expect_silence_s=EXPECT_SILENCE_S,
    server_id=inputs.optional(inputs.ident),
)
def renew(
    tx: Transaction,
    *,
    ttl_s: int | None = None,
    expect_silence_s: int = 0,
    server_id: str | None = None,
    **caller: Unpack[CallerArgs],
) -> Kept | Refused:
    """Extend one live lease to now + its term. A heartbeat is this, by lease id."""
    held = holding.find(tx, holding.Caller(**caller))
    if isinstance(held, Refused):
        return held
    if isinstance(held, holding.Lost):
        return held.refusal
    lease = held.lease
    if lease.state == "offered":
        return holding.not_accepted(lease)
    if ttl_s is not None and lease.fixed:
        lease = lease.replace(term_ms=ttl_s * 1000)
    after = seen(lease, tx.now_ms, extends=True, expect_silence_ms=expect_silence_s * 1000)
    after = _counted(tx, after, holding.settings_of(tx, held.task), server_id=server_id or lease.server_id)
    see(tx, held.agent)
    return Kept(lease=change.extend(tx, held.lease, after), task=held.task)


@verb(
    **CALLER,
    progress=inputs.percent,
    message=inputs.body,
    expect_silence_s=EXPECT_SILENCE_S,
    server_id=inputs.optional(inputs.ident),
)
def report(
    tx: Transaction,
    *,
    progress: int,
    message: str = "",
    expect_silence_s: int = 0,
    server_id: str | None = None,
    **caller: Unpack[CallerArgs],
) -> Kept | Refused:
    """A renewal with progress: it moves the phase, feeds the cadence, and takes a lost but free task back."""
    held, healed = find_or_heal(tx, holding.Caller(**caller))
    if isinstance(held, Refused):
        return held
    if isinstance(held, holding.Lost):
        holding.news(tx, held, f"{held.agent.agent_id}, who lost this task, reports {progress}%. {message}".strip())
        return held.refusal
    if held.lease.state == "offered":
        return holding.not_accepted(held.lease)
    settings = holding.settings_of(tx, held.task)
    lease = reported(tx, held.lease, held.task, settings, progress, message, expect_silence_s * 1000)
    lease = change.extend(tx, held.lease, lease.replace(server_id=server_id or lease.server_id))
    task = change.save_progress(tx, held.task.replace(progress=progress))
    see(tx, held.agent)
    change.record(
        tx,
        "reported",
        lease=lease,
        progress=progress,
        message=message[: change.TOLD],
        phase="fixed" if lease.fixed else phase_of(lease.reports, progress),
    )
    return Kept(lease=lease, task=task, healed=healed)


def reported(
    tx: Transaction,
    lease: Lease,
    task: Task,
    settings: Settings,
    progress: int,
    message: str,
    expect_silence_ms: int = 0,
) -> Lease:
    """The lease after a report, not yet written: counted, marked, in its new phase, extended."""
    lease = _counted(
        tx, lease, settings, reports=lease.reports + 1, progress=progress, message=message or lease.message
    )
    if not lease.fixed:
        profile = recovery.profile_of(lease, settings)
        terms = claims.terms_of(
            task, profile, settings, None, None, reports=lease.reports, progress=progress, renewals=lease.renewals
        )
        assert not isinstance(terms, Refused)
        lease = lease.replace(term_ms=terms[0], grace_ms=terms[1])
    lease = marked(lease, tx.now_ms, settings.task_lease.silence_multiplier)
    return seen(lease, tx.now_ms, extends=True, expect_silence_ms=expect_silence_ms)


def _counted(tx: Transaction, lease: Lease, settings: Settings, **changes: Any) -> Lease:
    """Count a renewal, which changes this too, and raise the flags that follow from it, each once. A flag never ends a
    lease."""
    lease = lease.replace(renewals=lease.renewals + 1, **changes)
    if lease.renewals >= settings.task_lease.stuck_threshold_renewals and not lease.stuck:
        lease = lease.replace(stuck=1)
        change.record(tx, "stuck", lease=lease, renewals=lease.renewals)
    if lease.renewals >= settings.task_lease.max_renewals and not lease.over_max:
        lease = lease.replace(over_max=1)
        change.record(tx, "max_renewals", lease=lease, renewals=lease.renewals)
    return lease


def mark(tx: Transaction, lease: Lease, settings: Settings) -> Lease:
    """A decision or an artifact under a live lease: a touch that also feeds the cadence. Written here."""
    after = marked(lease, tx.now_ms, settings.task_lease.silence_multiplier)
    return change.extend(tx, lease, seen(after, tx.now_ms, extends=bool(lease.touch_extends)))


def find_or_heal(tx: Transaction, caller: holding.Caller) -> tuple[holding.Held | holding.Lost | Refused, bool]:
    """The caller's live lease; a lost one is given back if its task is free and the caller holds no other."""
    held = holding.find(tx, caller)
    if not isinstance(held, holding.Lost) or not _may_heal(tx, held, caller):
        return held, False
    assert held.last is not None
    settings = holding.settings_of(tx, held.task)
    # note_return may have changed the task's counts.
    task = load.task_by_key(tx, held.task.key)
    lease = claims.regrant(tx, task, held.agent, held.last, settings)
    tx.do("withdraw_handoff", lease_id=held.last.lease_id)
    tx.do("told_lost", agent_id=held.agent.agent_id)
    change.record(tx, "healed", lease=lease, note="lease not found, recreating", previous=held.last.lease_id)
    task = load.task_by_key(tx, task.key)
    return holding.Held(task=task, agent=held.agent, lease=lease), True


def _may_heal(tx: Transaction, lost: holding.Lost, caller: holding.Caller) -> bool:
    last = lost.last
    if last is None or last.state != "expired" or last.accepted_at_ms is None:
        return False
    if last.agent_id != lost.agent.agent_id or last.incarnation > lost.agent.incarnation:
        return False
    settings = holding.settings_of(tx, lost.task)
    if not recovery.profile_of(last, settings).self_heals:
        return False
    if (caller.lease_id or last.lease_id) != last.lease_id or (caller.token or last.token) != last.token:
        return False
    others = load.live_of_task(tx, lost.task.key)
    if claims.refusal_to_give(tx, lost.task, others, lost.agent.agent_id, None, settings) is not None:
        return False
    return not any(live(lease, tx.now_ms) for lease in load.unended_of_agent(tx, lost.agent.agent_id))
