"""The ledger's verbs: submit, list, show, verify, seal, obligations.

A submitted receipt is also an act: `accepted` takes an offer up, `progress` renews, `complete` ends the attempt,
`escalate` hands the task to someone else. A receipt without `lease_id` binds to the live lease of (task_id,
source_system).
"""

from __future__ import annotations

import json

from tenure.core import inputs
from tenure.core import receipts as rules
from tenure.core.deadline import live
from tenure.core.errors import Refused, refuse
from tenure.core.model import Receipt, Task
from tenure.core.record import Record
from tenure.engine import change, claims, endings, foreign, holding, ledger, liveness, load, recovery
from tenure.engine.callers import CALLER, known_agent
from tenure.engine.ledger import Submitted as Submitted
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Lease
    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

SEAL_AT_MOST = 10_000


@verb(
    body=inputs.anything,
    project_id=CALLER["project_id"],
    incarnation=CALLER["incarnation"],
    agent_id=CALLER["agent_id"],
)
def submit_receipt(
    tx: Transaction,
    *,
    body: Any,
    project_id: str | None = None,
    incarnation: int | None = None,
    agent_id: str | None = None,
) -> Submitted | Refused:
    """Record a receipt and do what it says. `agent_id` is its sender where a credential tells, else source_system."""
    refused = rules.check_shape(body)
    if refused is not None:
        return refused
    bound = _bind(tx, body, project_id, agent_id)
    if isinstance(bound, Refused):
        elsewhere = foreign.record(tx, body, project_id, agent_id)
        return bound if elsewhere is None else elsewhere
    task, lease = bound
    repeated = _repeated(tx, body, task, lease)
    if repeated is not None:
        return repeated
    if lease is not None and incarnation is not None:
        agent = known_agent(tx, lease.agent_id, incarnation)
        if isinstance(agent, Refused):
            return agent
    settings = holding.settings_of(tx, task)
    alive = lease is not None and live(lease, tx.now_ms)
    if lease is not None and lease.state in ("offered", "active") and not alive:
        task, _ = recovery.recover_due(tx, task)
        lease = load.lease_by_id(tx, lease.lease_id)
    act = _ACTS[body["phase"]] if alive else _LATE[body["phase"]]
    return act(tx, body, task, lease, settings)


def _bind(
    tx: Transaction, body: dict[str, Any], project_id: str | None, agent_id: str | None
) -> tuple[Task, Lease | None] | Refused:
    """The task and lease a receipt is about."""
    # A sentinel says nothing, here as everywhere in a receipt.
    source = agent_id or (body.get("source_system") if rules.said(body.get("source_system")) else None)
    if rules.said(body.get("lease_id")):
        lease = load.lease_by_id(tx, body["lease_id"])
        if lease is None:
            return refuse("lease_not_found", f"There is no lease {body['lease_id']}.", lease_id=body["lease_id"])
        task = load.task_by_key(tx, lease.task_key)
        if rules.said(body.get("task_id")) and body["task_id"] != task.task_id:
            message = f"Lease {lease.lease_id} is on task {task.task_id}, not {inputs.shown(body['task_id'])}."
            return refuse("invalid_receipt", message, field="task_id")
        if project_id is not None and project_id != task.project_id:
            message = f"Lease {lease.lease_id} is in project {task.project_id}, not {project_id}."
            return refuse("invalid_receipt", message, field="project_id")
        if source is not None and source != lease.agent_id:
            message = f"Lease {lease.lease_id} belongs to {lease.agent_id}."
            return refuse("not_holder", message, lease_id=lease.lease_id, holder=lease.agent_id)
        return task, lease
    if not rules.said(body.get("task_id")):
        return refuse("invalid_receipt", "A receipt names its task_id or its lease_id.", field="task_id")
    found = load.task_named(tx, body["task_id"], project_id)
    if isinstance(found, Refused):
        return found
    mine = [lease for lease in load.unended_of_task(tx, found.key) if source in (None, lease.agent_id)]
    if mine:
        return found, mine[-1]
    row = tx.one("last_lease_of", task_key=found.key, agent_id=source)
    return found, load.lease_by_id(tx, row["lease_id"]) if row else None


def _repeated(tx: Transaction, body: dict[str, Any], task: Task, lease: Lease | None) -> Submitted | Refused | None:
    """The first answer, for a receipt whose dedupe_key is known; a refusal if its content is not the same."""
    key = body.get("dedupe_key")
    row = tx.one("receipt_by_dedupe_key", project_id=task.project_id, dedupe_key=key) if rules.said(key) else None
    if row is None:
        return None
    first = Receipt(**row)
    filled = rules.fill(
        body,
        receipt_id=first.receipt_id,
        now_ms=first.at_ms,
        task=task,
        source=lease.agent_id if lease else ledger.SOURCE,
    )
    if first.task_key == task.key and rules.content_key(filled) == rules.content_key(json.loads(first.body)):
        return Submitted(receipt=first, task=task, lease=lease, repeated=True)
    message = f"The dedupe_key {inputs.shown(key)} belongs to receipt {first.receipt_id}, which says something else."
    return refuse("dedupe_conflict", message, receipt_id=first.receipt_id)


# -- what a receipt of a live lease does ------------------------------------------------------------------------------


def _accepted(
    tx: Transaction, body: dict[str, Any], task: Task, lease: Lease | None, settings: Settings
) -> Submitted | Refused:
    assert lease is not None
    if lease.state == "active":
        return refuse("already_accepted", f"Lease {lease.lease_id} is accepted.", lease_id=lease.lease_id)
    appended = ledger.append(tx, task, body, settings=settings, lease=lease)
    if isinstance(appended, Refused):
        return appended
    task, taken = claims.take_up(tx, appended[0].replace(**ledger.opened(task, lease)), lease)
    return Submitted(receipt=appended[1], task=task, lease=taken)


def _progress(
    tx: Transaction, body: dict[str, Any], task: Task, lease: Lease | None, settings: Settings
) -> Submitted | Refused:
    assert lease is not None
    if lease.state == "offered":
        return holding.not_accepted(lease)
    appended = ledger.append(tx, task, body, settings=settings, lease=lease)
    if isinstance(appended, Refused):
        return appended
    task, receipt = appended
    percent = json.loads(receipt.body)["progress"]
    after = liveness.reported(tx, lease, task, settings, percent, _message(body))
    agent = _agent(tx, lease)
    after = change.extend(tx, lease, after.replace(incarnation=agent.incarnation))
    task = change.save_progress(tx, task.replace(progress=percent))
    change.record(tx, "reported", lease=after, progress=percent, message=_message(body)[:200])
    return Submitted(receipt=receipt, task=task, lease=after)


def _complete(
    tx: Transaction, body: dict[str, Any], task: Task, lease: Lease | None, settings: Settings
) -> Submitted | Refused:
    assert lease is not None
    if lease.state == "offered":
        return holding.not_accepted(lease)
    appended = ledger.append(tx, task, body, settings=settings, lease=lease)
    if isinstance(appended, Refused):
        return appended
    task, receipt = appended
    finish = {"success": endings.finish, "failure": endings.fail, "canceled": endings.cancel}[body["status"]]
    ended = finish(tx, task, lease, settings, message=_message(body))
    return Submitted(receipt=receipt, task=ended.task, lease=ended.lease)


def _escalate(
    tx: Transaction, body: dict[str, Any], task: Task, lease: Lease | None, settings: Settings
) -> Submitted | Refused:
    """The holder hands the task to someone else: the lease ends and the task waits, blocked, for them."""
    assert lease is not None
    if lease.state == "offered":
        return holding.not_accepted(lease)
    appended = ledger.append(tx, task, body, settings=settings, lease=lease)
    if isinstance(appended, Refused):
        return appended
    task, receipt = appended
    filled = json.loads(receipt.body)
    reason = f"escalated to {filled['escalation_to']}: {filled['escalation_reason']}"
    ended = change.end(tx, lease, "released", "escalated")
    task = recovery.hand_over(tx, task, ended, "escalated", settings, attempts=task.attempts)
    blocked = recovery.leave_to_others(tx, task, "blocked", reason)
    change.record(tx, "escalated", lease=ended, reason=reason)
    return Submitted(receipt=receipt, task=blocked, lease=ended)


_ACTS = {"accepted": _accepted, "progress": _progress, "complete": _complete, "escalate": _escalate}


# -- what a receipt that comes too late does --------------------------------------------------------------------------


def _too_late(
    tx: Transaction, body: dict[str, Any], task: Task, lease: Lease | None, settings: Settings
) -> Submitted | Refused:
    """Without a live lease nothing changes. An acceptance needs a live offer; progress and escalation a live lease."""
    holders = load.live_of_task(tx, task.key)
    facts: dict[str, Any] = {"task_id": task.task_id, "status": task.status}
    if holders:
        facts.update(holder=holders[0].agent_id)
    if lease is None:
        source = inputs.shown(body.get("source_system"))
        return refuse("not_holder", f"{source} has no lease on task {task.task_id}.", **facts)
    if _message(body):
        # A lost holder's news goes to the thread, for whoever goes on.
        recovery.post(tx, task, sender=lease.agent_id, kind="news", text=_message(body))
    message = f"Lease {lease.lease_id} on task {task.task_id} is {lease.state} ({lease.end_reason})."
    return refuse("lease_lost", message, lease_id=lease.lease_id, **facts)


def _late_complete(
    tx: Transaction, body: dict[str, Any], task: Task, lease: Lease | None, settings: Settings
) -> Submitted | Refused:
    """A late success closes an obligation that is still open: the work is done. Any other late end is only recorded.

    It must be the obligation that this very lease accepted: one that was opened since, after a reopening, is not its
    business. And it must be the lease's first word on its end: one that was completed before has had its say.
    """
    if lease is None or lease.accepted_at_ms is None:
        return _too_late(tx, body, task, lease, settings)
    profile = recovery.profile_of(lease, settings)
    if not profile.late_success:
        return _too_late(tx, body, task, lease, settings)
    appended = ledger.append(tx, task, body, settings=settings, lease=lease)
    if isinstance(appended, Refused):
        return appended
    task, receipt = appended
    owed = task.obligation in ("open", "overdue") and lease.token >= task.obligation_token
    if body["status"] == "success" and owed and lease.state != "completed" and task.status != "done":
        ended = endings.finish(tx, task, None, settings, message=_message(body), by=lease.agent_id)
        holding.note_return(tx, _agent(tx, lease), lease)
        return Submitted(receipt=receipt, task=ended.task, lease=lease)
    task = change.save_progress(tx, task)
    change.record(tx, "late", lease=lease, status=body["status"])
    return Submitted(receipt=receipt, task=task, lease=lease)


def _agent(tx: Transaction, lease: Lease) -> Any:
    agent = load.agent_named(tx, lease.agent_id)
    assert agent is not None
    return agent


_LATE = {"accepted": _too_late, "progress": _too_late, "complete": _late_complete, "escalate": _too_late}


def _message(body: dict[str, Any]) -> str:
    """What a receipt says in words, if it says anything."""
    return str(body["message"]) if rules.said(body.get("message")) else ""


# -- reading ----------------------------------------------------------------------------------------------------------


@query(
    task_id=inputs.optional(inputs.ident),
    project_id=CALLER["project_id"],
    phase=inputs.optional(inputs.one_of(*rules.PHASES)),
    principal=inputs.optional(inputs.text(256, one_line=True)),
    since_ms=inputs.moment_ms,
    until_ms=inputs.moment_ms,
    after=inputs.cursor,
    limit=inputs.limit,
)
def list_receipts(
    tx: Transaction,
    *,
    task_id: str | None = None,
    project_id: str | None = None,
    phase: str | None = None,
    principal: str | None = None,
    since_ms: int = 0,
    until_ms: int = inputs.FOREVER_MS,
    after: int = 0,
    limit: int = 100,
) -> tuple[Receipt, ...] | Refused:
    """Receipts in ledger order, a page at a time: `after` is the seq of the last one seen."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    rows = tx.all(
        "receipts",
        task_id=task_id,
        project_id=project_id,
        phase=phase,
        principal=principal,
        since_ms=since_ms,
        until_ms=until_ms,
        after=after,
        limit=limit,
    )
    return tuple(Receipt(**row) for row in rows)


@query(receipt_id=inputs.ident)
def show_receipt(tx: Transaction, *, receipt_id: str) -> Receipt | Refused:
    """One receipt."""
    row = tx.one("receipt_by_id", receipt_id=receipt_id)
    if row is None:
        return refuse("receipt_not_found", f"There is no receipt {receipt_id}.", receipt_id=receipt_id)
    return Receipt(**row)


@query(project_id=CALLER["project_id"], limit=inputs.limit, after=inputs.cursor)
def obligations(
    tx: Transaction, *, project_id: str | None = None, limit: int = 100, after: int = 0
) -> tuple[Task, ...] | Refused:
    """Tasks whose accepted obligation is open or overdue, by their key."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    return tuple(Task(**row) for row in tx.all("obligations", project_id=project_id, after=after, limit=limit))


# -- the chain and its seals ------------------------------------------------------------------------------------------


class Verified(Record):
    """What was checked, and every fault that was found."""

    tasks: int
    receipts: int
    # Seals cover the whole ledger, so they are checked only when all of it is.
    seals: int = 0
    unsealed: int = 0
    faults: tuple[str, ...] = ()


@query(task_id=inputs.optional(inputs.ident), project_id=CALLER["project_id"])
def verify(tx: Transaction, *, task_id: str | None = None, project_id: str | None = None) -> Verified | Refused:
    """Check the hash chain of one task, or of every task, and every seal."""
    refused = load.unknown_project(tx, project_id)
    if refused is not None:
        return refused
    if task_id is not None:
        task = load.task_named(tx, task_id, project_id)
        if isinstance(task, Refused):
            return task
        heads = [{"key": task.key, **task.as_dict()}]
    else:
        heads = tx.all("chain_heads", project_id=project_id)
    faults, count = [], 0
    for head in heads:
        chain = [Receipt(**row) for row in tx.all("chain", task_key=head["key"])]
        count += len(chain)
        fault = rules.verify_chain(
            head["project_id"], head["task_id"], chain, head["receipt_count"], head["receipt_hash"]
        )
        if fault is not None:
            faults.append(f"{head['project_id']}/{head['task_id']}: {fault.message}")
    if task_id is not None:
        return Verified(tasks=1, receipts=count, faults=tuple(faults))
    seals, sealed, seal_faults = _verify_seals(tx)
    unsealed = tx.one("count_unsealed", after=sealed)
    assert unsealed is not None
    return Verified(
        tasks=len(heads), receipts=count, seals=seals, unsealed=unsealed["n"], faults=(*faults, *seal_faults)
    )


def _verify_seals(tx: Transaction) -> tuple[int, int, list[str]]:
    faults, previous, sealed, count = [], "", 0, 0
    for seal in tx.all("seals"):
        count += 1
        covered = [Receipt(**row) for row in tx.all("receipts_between", first=seal["first_seq"], last=seal["last_seq"])]
        if seal["first_seq"] != sealed + 1:
            faults.append(f"Seal {seal['seal_id']} does not begin where the one before it ends.")
        fault = rules.verify_seal(previous, seal["first_seq"], seal["last_seq"], covered, seal["hash"])
        if fault is not None:
            faults.append(f"Seal {seal['seal_id']}: {fault.message}")
        previous, sealed = seal["hash"], seal["last_seq"]
    return count, sealed, faults


class Sealed(Record):
    """The range that was sealed; zero receipts when there was nothing new."""

    receipts: int
    first_seq: int = 0
    last_seq: int = 0
    hash: str = ""


@verb(limit=inputs.whole(1, SEAL_AT_MOST))
def seal(tx: Transaction, *, limit: int = SEAL_AT_MOST) -> Sealed:
    """Hash the receipts since the last seal into a checkpoint of the whole ledger."""
    tx.lock("seals")
    last = tx.one("last_seal")
    first = last["last_seq"] + 1 if last else 1
    covered = tx.all("hashes_from", first=first, limit=limit)
    if not covered:
        return Sealed(receipts=0)
    previous = last["hash"] if last else ""
    end = covered[-1]["seq"]
    digest = rules.seal_hash(previous, first, end, [row["hash"] for row in covered])
    tx.do("add_seal", first_seq=first, last_seq=end, at_ms=tx.now_ms, prev_hash=previous, hash=digest)
    return Sealed(receipts=len(covered), first_seq=first, last_seq=end, hash=digest)
