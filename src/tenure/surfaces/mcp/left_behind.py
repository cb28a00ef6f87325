"""What the holders before left, looked at where the next one is given the task: git, in a thread of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tenure.worktree.attach import settled

if TYPE_CHECKING:
    from tenure.engine.claims import Grant
    from tenure.store.store import Store
    from tenure.surfaces.http.node import Node


async def look(node: Node, grant: Grant) -> None:
    """Attach what git shows to the handoffs of a grant, before its instructions are written."""
    if any(one.look for one in grant.handoffs):
        await asyncio.to_thread(_look, node.store, grant, str(node.place.get("worktree", "")))


def _look(store: Store, grant: Grant, here: str) -> None:
    own = store.clone()
    try:
        settled(own, grant, here=here)
    finally:
        own.close()
