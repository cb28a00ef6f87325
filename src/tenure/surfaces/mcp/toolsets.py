"""Which tools there are, by set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.surfaces.mcp import agent_tools, operator_tools, worker_tools
from tenure.surfaces.mcp.tool import AGENT, WORKER

if TYPE_CHECKING:
    from tenure.surfaces.mcp.tool import Tool

EVERY: dict[str, Tool] = {tool.name: tool for tool in (*agent_tools.TOOLS, *operator_tools.TOOLS, *worker_tools.TOOLS)}
_SETS = {
    AGENT: {name: tool for name, tool in EVERY.items() if tool.of == AGENT},
    WORKER: {name: tool for name, tool in EVERY.items() if tool.of == WORKER},
    "all": EVERY,
}


# Names that the specification has for them too. Not listed: each would cost every client a definition.
ALSO = {"force_reconciliation": "reconcile"}


def named(name: str) -> Tool | None:
    """The tool that a call means."""
    return EVERY.get(ALSO.get(name, name))


def allowed(tools: str) -> dict[str, Tool]:
    """The tools of a set: agent, worker, or all."""
    return _SETS[tools]
