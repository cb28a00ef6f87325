"""Where the dashboard's parts are served."""

from __future__ import annotations

from starlette.routing import Route

from tenure.surfaces.dashboard import acts, page, reads, stream

ROUTES = [
    Route("/", page.index, methods=["GET"]),
    Route("/dashboard/static/{name}", page.static, methods=["GET"]),
    Route("/dashboard/session", acts.session, methods=["GET"]),
    Route("/dashboard/session", acts.sign_in, methods=["POST"]),
    Route("/dashboard/session", acts.sign_out, methods=["DELETE"]),
    Route("/dashboard/projects", reads.projects_known, methods=["GET"]),
    Route("/dashboard/board", reads.board, methods=["GET"]),
    Route("/dashboard/agents", reads.agents, methods=["GET"]),
    Route("/dashboard/agents/{agent_id}", reads.agent, methods=["GET"]),
    Route("/dashboard/tasks/{task_id}", reads.task, methods=["GET"]),
    Route("/dashboard/numbers", reads.numbers, methods=["GET"]),
    Route("/dashboard/stream", stream.stream, methods=["GET"]),
    Route("/dashboard/do/{act}", acts.act, methods=["POST"]),
]
