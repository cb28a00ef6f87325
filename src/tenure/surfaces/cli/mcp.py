"""`tenure mcp`."""

from __future__ import annotations

from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context


def mcp(context: Context) -> Result:
    """Speak MCP on standard input and output until the client is done. The store is made if there is none."""
    from tenure.surfaces.mcp.stdio import run

    store = context.open(create=True)
    context.release()
    run(store, context.environ, context.get("tools", "agent"))
    return Result(data=None)
