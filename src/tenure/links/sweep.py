"""A claimant's look at its own host: linked processes that are gone are written down as dead.

Where no server runs, nobody else would notice that a watcher was killed together with what it watched. The claim that
follows recovers what they held.
"""

from __future__ import annotations

from tenure.core.errors import Refused
from tenure.engine.agents import link_down
from tenure.engine.links import watched_links
from tenure.links.identity import ProcessIdentity, here, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.core.model import Link
    from tenure.store.store import Store

DETAIL = "its process is gone"


def identity_of(link: Link) -> ProcessIdentity:
    """The process that a link is to."""
    return ProcessIdentity(boot_id=link.boot_id, pid_namespace=link.pid_ns, pid=link.pid, start_ticks=link.start_ticks)


def gone_among(links: Iterable[Link]) -> list[Link]:
    """Those of these links whose process is known to have ended."""
    return [link for link in links if state(identity_of(link)) == "gone"]


def bury_the_dead(store: Store) -> int:
    """Write down the death of every linked process of this host that is gone; says how many links that ended.

    What the store refuses is left to the next look: a claim must not fail because of it.
    """
    boot_id, namespace = here()
    if not namespace:
        return 0
    found = watched_links(store, boot_id=boot_id, pid_ns=namespace)
    if isinstance(found, Refused):
        return 0
    ended = [link_down(store, link_id=link.link_id, died=True, detail=DETAIL) for link in gone_among(found)]
    return sum(not isinstance(answer, Refused) for answer in ended)
