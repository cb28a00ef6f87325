"""`/lease`: the worker protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused, refuse
from tenure.core.ids import worker_id_is_valid
from tenure.engine import claims, endings, liveness
from tenure.surfaces import shapes
from tenure.surfaces.http import answers, wire
from tenure.surfaces.http.requests import body_of, header, node_of, refusal_to_speak, speaker_of, whole

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def poll(request: Request) -> Response:
    """Offer work to a worker; with `wait`, hold the poll until there is some."""
    asked = await body_of(request, wire.Lease)
    if isinstance(asked, Refused):
        return answers.problem(asked)
    if not worker_id_is_valid(asked.worker_id):
        return answers.problem(refuse("invalid_worker_id", "must match pattern {type}.{instance}"))
    refused = refusal_to_speak(request, asked.worker_id)
    if refused is not None:
        return answers.problem(refused)
    node = node_of(request)
    wait_s = _wait_s(request, asked)
    if isinstance(wait_s, Refused):
        return answers.problem(wait_s)
    arguments: dict[str, Any] = {
        "agent_id": asked.worker_id,
        "capabilities": asked.capabilities,
        "max_tasks": asked.max_tasks,
        "preferred_kinds": asked.preferred_kinds,
        "profile": asked.profile,
        "server_id": node.server_id,
    }
    if asked.project is not None:
        arguments["project_id"] = asked.project
    key = asked.idempotency_key or header(request, b"idempotency-key")
    if key is not None:
        arguments["idempotency_key"] = key
    given = await node.call(claims.offer, **arguments)
    if wait_s and isinstance(given, Refused) and given.code == "nothing_ready":
        waited = await node.polls.wait(arguments, given.facts["project_id"], wait_s, request.receive)
        given = given if waited is None else waited
    if isinstance(given, Refused):
        return answers.no_content() if given.code == "nothing_ready" else answers.problem(given)
    headers = answers.offer_headers(given)
    if asked.max_tasks > 1:
        return answers.reply({"leases": [answers.offered(grant) for grant in given]}, headers=headers)
    return answers.reply(answers.offered(given[0]), headers=headers)


def _wait_s(request: Request, asked: wire.Lease) -> float | Refused:
    """How long the worker is willing to wait: in the body, or as `Prefer: wait=`."""
    wait = asked.wait
    if wait is None and header(request, b"prefer") is not None:
        # It may be said on several lines, which are one list.
        for preference in ",".join(request.headers.getlist("prefer")).split(","):
            name, _, value = preference.strip().partition("=")
            if name.lower() == "wait":
                try:
                    wait = float(value)
                except ValueError:
                    return refuse("invalid_argument", "Prefer: wait= needs a number of seconds.", argument="wait")
    if wait is None:
        return 0.0
    if not 0 <= wait <= wire.WAIT_MAX_S:
        return refuse("invalid_argument", f"wait must be from 0 to {wire.WAIT_MAX_S:g} seconds.", argument="wait")
    return wait


async def mine(request: Request) -> Response:
    """The live leases of a worker: what it finds of its own after a restart."""
    worker_id = request.query_params.get("worker_id", "")
    if not worker_id_is_valid(worker_id):
        return answers.problem(refuse("invalid_worker_id", "must match pattern {type}.{instance}"))
    refused = refusal_to_speak(request, worker_id)
    if refused is not None:
        return answers.problem(refused)
    found = await node_of(request).call(claims.leases_of, agent_id=worker_id)
    if isinstance(found, Refused):
        return answers.reply({"leases": []}) if found.code == "agent_not_found" else answers.problem(found)
    return answers.reply({"leases": [shapes.lease(lease) for lease in found]})


async def heartbeat(request: Request) -> Response:
    """Extend a lease to now + its duration."""
    asked = await body_of(request, wire.Heartbeat, empty=True)
    if isinstance(asked, Refused):
        return answers.problem(asked)
    node = node_of(request)
    caller: dict[str, Any] = {
        "lease_id": request.path_params["lease_id"],
        "agent_id": speaker_of(request),
        "expect_silence_s": asked.expect_silence_s,
        "server_id": node.server_id,
    }
    incarnation = whole(header(request, b"tenure-incarnation"))
    if incarnation is not None:
        caller["incarnation"] = incarnation
    if asked.progress is None:
        kept = await node.call(liveness.renew, **caller)
    else:
        kept = await node.call(liveness.report, progress=asked.progress, message=asked.message, **caller)
    if isinstance(kept, Refused):
        return answers.problem(kept)
    return answers.reply(answers.held(kept.lease, kept.lease.seen_at_ms))


async def release(request: Request) -> Response:
    """Give an offer or a task back."""
    asked = await body_of(request, wire.Release, empty=True)
    if isinstance(asked, Refused):
        return answers.problem(asked)
    ended = await node_of(request).call(
        endings.release,
        lease_id=request.path_params["lease_id"],
        agent_id=speaker_of(request),
        message=asked.message,
    )
    if isinstance(ended, Refused):
        return answers.problem(ended)
    return answers.reply({"task_id": ended.task.task_id, "status": ended.task.status, "repeated": ended.repeated})
