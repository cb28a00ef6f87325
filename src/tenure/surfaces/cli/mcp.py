"""`tenure mcp`."""

from __future__ import annotations

import os

from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.surfaces.cli.context import Context


def _place(context: Context, path: str) -> dict[str, Any]:
    """Where the client works, if that is in the repository of the store: a client may start its servers anywhere."""
    from tenure.store.locate import store_location

    own = store_location(None, {}, context.folder)
    same = own is not None and os.path.realpath(own) == os.path.realpath(path)
    return context.place() if same else {}


def mcp(context: Context) -> Result:
    """Speak MCP on standard input and output until the client is done. The store is made if there is none."""
    from tenure.surfaces.mcp.stdio import run

    store = context.open(create=True)
    context.release()
    run(store, context.environ, context.get("tools", "agent"), _place(context, store.path))
    return Result(data=None)
