"""`/health`, `/metrics` and `/events`: seeing how the server does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from tenure.core.errors import Refused, refuse
from tenure.engine import alerts, observe
from tenure.engine.boards import list_boards
from tenure.surfaces import shapes
from tenure.surfaces.http import answers, boards, gates
from tenure.surfaces.http.requests import node_of, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from starlette.requests import Request

    from tenure.surfaces.http.node import Node

EVENTS_AT_ONCE = 200
KEEP_ALIVE_S = 15.0
# How long the store may take to say how it is: whoever probes wants to hear that it does not answer.
ANSWER_WITHIN_S = 5.0

# metric: (type, help, statistic)
METRICS = {
    "tenure_leases_active": ("gauge", "Live accepted leases.", "active"),
    "tenure_leases_offered": ("gauge", "Offers not accepted yet.", "offered"),
    "tenure_leases_expiring_soon": (
        "gauge",
        "Leases within the warning time of their expiry, or the last third of a term that is short.",
        "expiring_soon",
    ),
    "tenure_leases_expired": ("gauge", "Leases past their expiry and not recovered yet.", "expired"),
    "tenure_leases_due": ("gauge", "Leases whose holder counts as dead and that are not recovered yet.", "due"),
    "tenure_leases_stuck": ("gauge", "Leases renewed too often without finishing.", "stuck"),
    "tenure_recoveries_total": ("counter", "Tasks taken back from holders declared dead.", "recoveries"),
    "tenure_false_recoveries_total": ("counter", "Recoveries whose holder proved to be alive.", "false_recoveries"),
    "tenure_agents": ("gauge", "Agents that are present.", "agents"),
}


async def health(request: Request) -> Response:
    """Statistics, each monitor's last tick and next wake, and what waits."""
    return await _soon(_health(node_of(request)))


async def _soon(answer: Awaitable[Response]) -> Response:
    """An answer, or that there is none: a database that is away is waited for longer than a probe waits."""
    try:
        return await asyncio.wait_for(answer, ANSWER_WITHIN_S)
    except TimeoutError:
        message = f"The store has not answered within {ANSWER_WITHIN_S:g} s."
        return answers.problem(refuse("store_unavailable", message))


async def _health(node: Node) -> Response:
    numbers = await node.call(observe.statistics)
    if isinstance(numbers, Refused):
        return answers.problem(numbers)
    more = await boards.health(node)
    if isinstance(more, Refused):
        return answers.problem(more)
    outside = await gates.health(node)
    if isinstance(outside, Refused):
        return answers.problem(outside)
    body = {
        "status": "ok",
        "server_id": node.server_id,
        "statistics": numbers.as_dict(),
        "monitors": [status.as_dict() for status in node.monitors.statuses()],
        "waiting_polls": len(node.polls),
        "queued_verbs": node.runner.waiting,
        **more,
        **outside,
    }
    return answers.reply(body)


async def metrics(request: Request) -> Response:
    """The same numbers for Prometheus."""
    return await _soon(_metrics(node_of(request)))


async def _metrics(node: Node) -> Response:
    numbers = await node.call(observe.statistics)
    if isinstance(numbers, Refused):
        return answers.problem(numbers)
    facts = numbers.as_dict()
    lines = []
    for name, (kind, help_text, statistic) in METRICS.items():
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name} {facts[statistic]}"]
    lines += ["# HELP tenure_tasks Tasks by status.", "# TYPE tenure_tasks gauge"]
    lines += [f'tenure_tasks{{status="{status}"}} {count}' for status, count in facts["tasks"].items()]
    lines += await _board_metrics(node)
    lines += await gates.metrics(node)
    own = {
        "tenure_waiting_polls": ("gauge", "Polls that wait for work on this server.", len(node.polls)),
        "tenure_queued_verbs": ("gauge", "Verbs that wait for the writer or a reader.", node.runner.waiting),
        "tenure_written_verbs_total": ("counter", "Verbs committed by this server.", node.runner.written),
        "tenure_commits_total": ("counter", "Commits of this server; each holds many verbs.", node.runner.batches),
    }
    for name, (kind, help_text, value) in own.items():
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name} {value}"]
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


async def _board_metrics(node: Node) -> list[str]:
    """Who asks for work, and what waits for each board."""
    asking = await node.call(alerts.requesting_agents)
    lines = [
        "# HELP tenure_requesting_agents Different agents that asked for work in the last ten minutes.",
        "# TYPE tenure_requesting_agents gauge",
        f"tenure_requesting_agents {0 if isinstance(asking, Refused) else asking}",
    ]
    views = await node.call(list_boards)
    for name, told in (("pending", "Cards with a write to deliver."), ("parked", "Writes that a board will not take.")):
        lines += [f"# HELP tenure_board_{name} {told}", f"# TYPE tenure_board_{name} gauge"]
        for view in () if isinstance(views, Refused) else views:
            lines.append(f'tenure_board_{name}{{project="{view.project_id}"}} {getattr(view, name)}')
    return lines


async def events(request: Request) -> Response:
    """A stream of events. A reader that comes back with Last-Event-ID misses none."""
    last = whole(request.headers.get("last-event-id") or request.query_params.get("after"))
    filters: dict[str, Any] = {
        "project_id": request.query_params.get("project"),
        "task_id": request.query_params.get("task_id"),
        "agent_id": request.query_params.get("agent_id"),
    }
    node = node_of(request)
    first = await node.call(observe.events, after=0 if last is None else last, limit=EVENTS_AT_ONCE, **filters)
    if isinstance(first, Refused):
        return answers.problem(first)
    if last is None:
        newest = await node.call(observe.newest_event)
        last = 0 if isinstance(newest, Refused) else newest
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(node, last, filters), media_type="text/event-stream", headers=headers)


async def _stream(node: Node, after: int, filters: dict[str, Any]) -> AsyncIterator[bytes]:
    """Read on from where the reader is. The reader's own pace limits us: nothing is buffered for it here."""
    # Names where the reader is before anything happened, so that it misses nothing if it is cut off until then.
    yield b": connected\nid: %d\n\n" % after
    quiet_s = 0.0
    while not node.stopping:
        written = node.written
        found = await node.call(observe.events, after=after, limit=EVENTS_AT_ONCE, **filters)
        if isinstance(found, Refused):
            yield b"event: error\ndata: " + answers.encode({"code": found.code}) + b"\n\n"
            return
        for event in found:
            after = event.seq
            data = answers.encode(shapes.event(event))
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), data)
        if found:
            quiet_s = 0.0
            continue
        wait_s = node.store.held_back_s or KEEP_ALIVE_S
        done, _ = await asyncio.wait((written,), timeout=wait_s)
        quiet_s = 0.0 if done else quiet_s + wait_s
        if quiet_s >= KEEP_ALIVE_S:
            quiet_s = 0.0
            yield b": still here\n\n"
