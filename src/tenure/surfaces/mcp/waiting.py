"""Waiting for a task without holding a thread or a connection, and saying when to come back.

A long poll stands with all others that wait on this node (surfaces/http/polls.py). It looks up now and then whether
waiting still makes sense, so that the last agents of a finished project are sent home and not kept.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused
from tenure.engine import claims
from tenure.engine.prospects import prospects

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from tenure.engine.verb import Verb
    from tenure.surfaces.mcp.call import Call

# How often a waiting agent's chances are judged anew.
JUDGE_EVERY_S = 5.0


async def next_task(call: Call, asked: dict[str, Any], wait_s: float) -> claims.Grant | dict[str, Any] | Refused:
    """A grant; or, when there is nothing to do, what the agent should do instead."""
    until = time.monotonic() + wait_s
    await call.node.catch_up()
    given = await call.node.call(claims.claim_next, **asked)
    if not isinstance(given, Refused) or given.code != "nothing_ready":
        return given
    project_id: str = given.facts["project_id"]
    while True:
        answer = await _nothing(call, asked, project_id)
        now = time.monotonic()
        if now >= until or _is_over(call) or isinstance(answer, Refused) or answer["should_exit"]:
            return answer
        waited = await _waited(call, asked, project_id, min(until, now + JUDGE_EVERY_S), claims.claim_next)
        if waited is not None:
            return waited if isinstance(waited, Refused) else waited[0]


async def offers(call: Call, asked: dict[str, Any], wait_s: float) -> tuple[claims.Grant, ...] | Refused:
    """Offers for a worker; the refusal `nothing_ready` when there are none within the wait."""
    until = time.monotonic() + wait_s
    await call.node.catch_up()
    given = await call.node.call(claims.offer, **asked)
    if not isinstance(given, Refused) or given.code != "nothing_ready":
        return given
    waited = await _waited(call, asked, given.facts["project_id"], until, claims.offer)
    return given if waited is None else waited


async def _waited(
    call: Call, asked: dict[str, Any], project_id: str, until: float, verb: Verb[..., Any]
) -> tuple[claims.Grant, ...] | Refused | None:
    """What a poll was given until then; None for nothing. Where no monitor runs, it does what is due meanwhile."""
    while not _is_over(call) and (left_s := until - time.monotonic()) > 0:
        due_s = await call.node.due_in_s()
        pause_s = left_s if due_s is None else min(left_s, due_s)
        waited: tuple[claims.Grant, ...] | Refused | None = await call.node.polls.wait(
            asked, project_id, pause_s, _receive(call), verb
        )
        if waited is not None:
            return waited
        await call.node.catch_up()
    return None


def _is_over(call: Call) -> bool:
    """Whether waiting serves nobody any more."""
    return call.node.stopping or (call.caller.hung_up is not None and call.caller.hung_up.is_set())


def _receive(call: Call) -> Any:
    """What tells a poll that its client is gone; on a transport that cannot tell, nothing ever does."""
    hung_up = call.caller.hung_up or asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        await hung_up.wait()
        return {"type": "http.disconnect"}

    return receive


async def _nothing(call: Call, asked: dict[str, Any], project_id: str) -> dict[str, Any] | Refused:
    """What an agent is told when nothing is ready for it."""
    found = await call.node.call(
        prospects, project_id=project_id, agent_id=asked["agent_id"], capabilities=asked["capabilities"]
    )
    if isinstance(found, Refused):
        return found
    answer: dict[str, Any] = {
        "task": None,
        "retry_reason": found.retry_reason,
        "should_exit": found.should_exit,
        "waiting_for": list(found.waiting_for),
        "why": list(found.why),
    }
    if found.retry_after_seconds is not None:
        answer["retry_after_seconds"] = found.retry_after_seconds
    return answer
