"""The worker's tools: the lease protocol of workers, with the bodies that the HTTP surface has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core import inputs
from tenure.core import receipts as rules
from tenure.core.errors import Refused, refuse
from tenure.core.ids import worker_id_is_valid
from tenure.engine import liveness, receipts
from tenure.surfaces import shapes
from tenure.surfaces.http import answers
from tenure.surfaces.mcp.tool import (
    ANYTHING,
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXTS,
    WHOLE,
    WORKER,
    Tool,
    one_of,
    whole_if_equal,
)
from tenure.surfaces.mcp.waiting import offers

if TYPE_CHECKING:
    from tenure.surfaces.mcp.call import Call

NO_WORK_BACKOFF_S = 5
WAIT_MAX_S = 300
_WAIT_S = inputs.number(0, WAIT_MAX_S)
Answer = dict[str, Any] | Refused


async def lease(call: Call, given: dict[str, Any]) -> Answer:
    """Offer work to a worker."""
    worker_id = given.get("worker_id") or call.agent_id
    if not isinstance(worker_id, str) or not worker_id_is_valid(worker_id):
        return refuse("invalid_worker_id", "worker_id must match pattern {type}.{instance}.")
    wait_s = _WAIT_S("wait_s", given.get("wait_s") or 0)
    if isinstance(wait_s, Refused):
        return wait_s
    asked: dict[str, Any] = {
        "agent_id": worker_id,
        "profile": "worker",
        "capabilities": given.get("capabilities"),
        "max_tasks": whole_if_equal(given.get("max_tasks") or 1),
        "preferred_kinds": given.get("preferred_kinds") or [],
        "project_id": given.get("project_id"),
        "server_id": call.node.server_id,
    }
    grants = await offers(call, asked, wait_s)
    if isinstance(grants, Refused):
        if grants.code != "nothing_ready":
            return grants
        return {"leases": [], "retry_after_seconds": NO_WORK_BACKOFF_S}
    offered = [{**answers.offered(grant), "token": grant.lease.token} for grant in grants]
    return {**offered[0], "leases": offered}


async def heartbeat(call: Call, given: dict[str, Any]) -> Answer:
    """Extend a lease to now + its duration."""
    caller: dict[str, Any] = {
        "lease_id": given["lease_id"],
        "agent_id": call.caller.own,
        "expect_silence_s": whole_if_equal(given.get("expect_silence_s") or 0),
        "server_id": call.node.server_id,
    }
    if given.get("progress") is None:
        kept = await call.node.call(liveness.renew, **caller)
    else:
        progress, message = whole_if_equal(given["progress"]), given.get("message") or ""
        kept = await call.node.call(liveness.report, progress=progress, message=message, **caller)
    return kept if isinstance(kept, Refused) else answers.held(kept.lease, kept.lease.seen_at_ms)


async def submit_receipt(call: Call, given: dict[str, Any]) -> Answer:
    """Record a receipt and do what it says."""
    body = given["receipt"]
    source = body.get("source_system") if isinstance(body, dict) else None
    if rules.said(source):
        refused = call.caller.named({"agent_id": source})
        if isinstance(refused, Refused) and refused.code == "not_permitted":
            return refused
    done = await call.node.call(
        receipts.submit_receipt, body=body, agent_id=call.caller.own, project_id=given.get("project_id")
    )
    return done if isinstance(done, Refused) else {"receipt": shapes.receipt(done.receipt), "repeated": done.repeated}


async def list_receipts(call: Call, given: dict[str, Any]) -> Answer:
    """Receipts, a page at a time."""
    limit = whole_if_equal(given.get("limit") or 100)
    asked = {name: given[name] for name in ("task_id", "project_id", "phase") if given.get(name) is not None}
    if given.get("principal_ai") is not None:
        asked["principal"] = given["principal_ai"]
    found = await call.node.call(
        receipts.list_receipts, **asked, after=whole_if_equal(given.get("after") or 0), limit=limit
    )
    if isinstance(found, Refused):
        return found
    following = found[-1].seq if len(found) == limit else None
    return {"receipts": [shapes.receipt(one) for one in found], "next_after": following}


TOOLS = (
    Tool(
        name="lease",
        summary=(
            "Poll for work as worker_id ({type}.{instance}). An offer is yours until lease_expires_at; accept it with "
            "an accepted receipt. wait_s (max 300) waits for work."
        ),
        takes={
            "worker_id": TEXT,
            "capabilities": TEXTS,
            "max_tasks": WHOLE,
            "preferred_kinds": TEXTS,
            "wait_s": NUMBER,
            "project_id": TEXT,
        },
        required=("worker_id",),
        gives={
            "lease_id": TEXT,
            "lease_expires_at": TEXT,
            "task": OBJECT,
            "leases": OBJECTS,
            "retry_after_seconds": NUMBER,
        },
        act=lease,
        of=WORKER,
        speaker="worker_id",
    ),
    Tool(
        name="heartbeat",
        summary="Extend a lease you accepted to now + its duration.",
        takes={"lease_id": TEXT, "progress": WHOLE, "message": TEXT, "expect_silence_s": WHOLE},
        required=("lease_id",),
        gives={"lease_id": TEXT, "lease_expires_at": TEXT, "signals": TEXTS},
        act=heartbeat,
        of=WORKER,
        repeatable=True,
    ),
    Tool(
        name="submit_receipt",
        summary="Record a receipt (phase accepted, progress, complete or escalate) and do what it says.",
        takes={"receipt": OBJECT, "project_id": TEXT},
        required=("receipt",),
        gives={"receipt": OBJECT, "repeated": {"type": "boolean"}},
        act=submit_receipt,
        of=WORKER,
        renamed={"body": "receipt"},
    ),
    Tool(
        name="list_receipts",
        summary="Receipts in ledger order, a page at a time; next_after begins the next page.",
        takes={
            "task_id": TEXT,
            "project_id": TEXT,
            "phase": one_of(*rules.PHASES),
            "principal_ai": TEXT,
            "after": WHOLE,
            "limit": WHOLE,
        },
        gives={"receipts": OBJECTS, "next_after": ANYTHING},
        act=list_receipts,
        of=WORKER,
        reads=True,
    ),
)
