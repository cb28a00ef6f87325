"""`tenure doctor`: what is wrong, and the repair."""

from __future__ import annotations

import os

from tenure.core.errors import refuse
from tenure.core.record import Record
from tenure.store.store import StoreFault
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, clean, counted, duration, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tenure.surfaces.cli.context import Context

SKEW_MAX_MS = 5_000


class Finding(Record):
    """One check: what was looked at, whether it is well, and what to do if not."""

    check: str
    well: bool
    detail: str
    repair: str = ""


def doctor(context: Context) -> Result:
    """Run every check; with --fix, repair what can be repaired and check again."""
    fixed = _fix(context) if context.get("fix") else []
    findings: list[Finding] = []
    refusal = None
    try:
        findings.extend(_examine(context))
    except (Stop, StoreFault) as stop:
        refusal = stop.refusal
        findings.append(Finding(check="store", well=False, detail=refusal.message, repair=refusal.next))
    ill = [finding for finding in findings if not finding.well]
    lines = [f"{paint('fixed', 'green')}  {line}" for line in fixed]
    for finding in findings:
        mark = paint("ok   ", "green") if finding.well else paint("WRONG", "red")
        lines.append(f"{mark}  {finding.check}: {clean(finding.detail, 500)}")
        if not finding.well:
            lines.append(f"       repair: {finding.repair}")
    data = {"findings": [finding.as_dict() for finding in findings], "fixed": fixed}
    if ill and refusal is None:
        checks = [finding.check for finding in ill]
        refusal = refuse("unhealthy", f"Not well: {', '.join(checks)}.", checks=checks)
    return Result(data=data, lines=lines, next=[finding.repair for finding in ill], refusal=refusal)


def _examine(context: Context) -> Iterator[Finding]:
    yield Finding(check="store", well=True, detail=context.store.path)
    checks: tuple[Callable[[Context], Iterator[Finding]], ...] = (
        _integrity,
        _clock,
        _overdue,
        _worktrees,
        _ledger,
        _gridlock,
        _designs,
        _boards,
        _gates,
    )
    for check in checks:
        yield from check(context)


def _integrity(context: Context) -> Iterator[Finding]:
    faults = context.store.integrity_faults()
    version = context.store.schema_version()
    yield Finding(
        check="integrity",
        well=not faults,
        detail="; ".join(faults[:3]) or f"intact, schema {version}",
        repair="restore a backup, or save what can be read: tenure export",
    )


def _clock(context: Context) -> Iterator[Finding]:
    """Whether this machine may write, and how far its wall clock is from the store's time."""
    refusal = None
    try:
        context.store.run(lambda tx: None)
    except StoreFault as fault:
        refusal = fault.refusal
    skew = abs(context.store.wall_ms() - context.now_ms)
    detail = refusal.message if refusal else f"the store's time is {duration(skew)} from the wall clock"
    yield Finding(
        check="clock",
        well=refusal is None and skew <= SKEW_MAX_MS,
        detail=detail,
        repair="tenure doctor --fix (this machine keeps the file), or use one machine only",
    )


def _overdue(context: Context) -> Iterator[Finding]:
    from tenure.engine.observe import statistics

    # Nothing is wrong with a lease that ran out while nobody looked: whoever claims its task recovers it first.
    due = must(statistics(context.store)).due
    detail = f"{counted(due, 'task')} of dead holders on offer, not taken back yet" if due else "nothing is due"
    yield Finding(check="recovery", well=True, detail=detail)


def _worktrees(context: Context) -> Iterator[Finding]:
    stale = [f"{agent_id} ({path})" for agent_id, path in _stale_worktrees(context)]
    yield Finding(
        check="worktrees",
        well=not stale,
        detail="gone: " + ", ".join(stale) if stale else "every agent's folder exists",
        repair="tenure doctor --fix (those agents leave)",
    )


def _stale_worktrees(context: Context) -> list[tuple[str, str]]:
    from tenure.engine.agents import list_agents
    from tenure.store.locate import this_host

    here = ("", this_host())
    return [
        (agent.agent_id, agent.worktree)
        for agent in must(list_agents(context.store, limit=10_000))
        if agent.state == "present" and agent.host in here and agent.worktree and not os.path.isdir(agent.worktree)
    ]


def _ledger(context: Context) -> Iterator[Finding]:
    from tenure.engine.receipts import verify

    checked = must(verify(context.store))
    yield Finding(
        check="ledger",
        well=not checked.faults,
        detail="; ".join(checked.faults[:3]) or f"{counted(checked.receipts, 'receipt')} checked",
        repair="the ledger was changed from outside: compare with a backup",
    )


def _gridlock(context: Context) -> Iterator[Finding]:
    from tenure.engine.observe import gridlock
    from tenure.engine.projects import list_projects

    for project in must(list_projects(context.store)):
        found = must(gridlock(context.store, project_id=project.project_id))
        ill = found.gridlocked or bool(found.cycles) or bool(found.missing)
        yield Finding(
            check=f"gridlock in {project.project_id}",
            well=not ill,
            detail=" ".join(found.sentences()) if ill else "work can go on",
            repair="finish, unblock or remove what is named: tenure task depend TASK --remove OTHER",
        )


def _designs(context: Context) -> Iterator[Finding]:
    """The reserved owner's tasks: what its program could not do, and what no server does."""
    from tenure.engine.design import design_faults

    faults = must(design_faults(context.store))
    told = [
        f"{fault.task_id}: {fault.error}" + (" (the built-in brief stands in)" if fault.substituted else "")
        for fault in faults[:5]
    ]
    yield Finding(
        check="designs",
        well=not faults,
        detail="; ".join(told) or "none has failed",
        repair="mend the program (tenure config show design), see tenure why TASK; without a server: tenure up",
    )


def _boards(context: Context) -> Iterator[Finding]:
    from tenure.surfaces.cli.boards import findings_for_doctor

    repair = "tenure board check, then tenure reconcile or tenure board retry"
    for check, well, detail in findings_for_doctor(context):
        yield Finding(check=check, well=well, detail=detail, repair=repair)


def _gates(context: Context) -> Iterator[Finding]:
    from tenure.surfaces.cli.gates import findings_for_doctor

    repair = "see tenure gate; when the cause is gone: tenure gate resend"
    for check, well, detail in findings_for_doctor(context):
        yield Finding(check=check, well=well, detail=detail, repair=repair)


def _fix(context: Context) -> list[str]:
    """Repair: adopt a shared file, let agents whose folder is gone leave, take back what is due (theirs included)."""
    from tenure.engine.agents import depart
    from tenure.engine.recovery import advance

    fixed = []
    if _shared(context):
        context.store.adopt()
        fixed.append("this machine keeps the file; every lease has a fresh term")
    for agent_id, path in _stale_worktrees(context):
        must(depart(context.store, agent_id=agent_id, reason="its folder is gone"))
        fixed.append(f"{agent_id} has left: {path} is gone")
    done = must(advance(context.store, limit=10_000))
    if done.recovered:
        fixed.append(f"took back {counted(done.recovered, 'task')} of dead holders")
    return fixed


def _shared(context: Context) -> bool:
    """Whether another machine writes to the same file."""
    try:
        context.store.run(lambda tx: None)
    except StoreFault as fault:
        if fault.refusal.code != "store_shared":
            raise
        return True
    return False
