"""The links monitor: a server watches the linked processes of its own host.

It notices a death that nobody else could report, because the watcher was killed with what it watched. And it pulses for
a process whose own watcher has fallen silent (killed, or stopped together with its terminal) while the process itself
goes on, and for processes that registered with nothing but their pid.

The exit of a process that `tenure run` still watches is left to it for a moment: it knows how the process ended and
what it printed last. Processes of other hosts and containers are not judged here at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.deadline import PULSE_EVERY_MS
from tenure.core.errors import Refused
from tenure.engine.agents import link_down, pulse
from tenure.engine.links import watched_links
from tenure.links.identity import here
from tenure.links.sweep import DETAIL, identity_of
from tenure.links.watch import Watcher
from tenure.monitors.recovery import MonitorFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.core.model import Link
    from tenure.store.store import Store

EVERY_S = 1.0
# A link whose own watcher should have pulsed by now.
OVERDUE_MS = PULSE_EVERY_MS * 3 // 2
# How long the watcher of a process may take to tell of its end.
PATIENCE_MS = 700


class LinksMonitor:
    """Checks every link of this host, and sleeps until a process exits or something is due."""

    name = "links"
    # New links are to be watched at once, and the watcher pokes the loop when a process exits.
    watches_writes = True

    def __init__(self, store: Store, poke: Callable[[], None]) -> None:
        self._store = store
        self._watcher = Watcher(poke)
        # When the end of a process was first seen, by link.
        self._seen_gone: dict[str, int] = {}
        # Links whose pulse is not wanted any more; only the exit of their process still is.
        self._superseded: set[str] = set()
        self.deaths = 0

    def tick(self) -> float:
        boot_id, namespace = here()
        if not namespace:
            return 60.0
        links = watched_links(self._store, boot_id=boot_id, pid_ns=namespace)
        if isinstance(links, Refused):
            raise MonitorFailure(links)
        now_ms = self._store.answered_at_ms
        self._watcher.keep(identity_of(link) for link in links)
        self._superseded &= {link.link_id for link in links}
        self._seen_gone = {link.link_id: self._seen_gone.get(link.link_id, now_ms) for link in self._gone(links)}
        waits = [self._attend(link, now_ms) for link in links]
        return min(waits, default=EVERY_S)

    def close(self) -> None:
        """Watch no process any more."""
        self._watcher.close()

    def _gone(self, links: tuple[Link, ...]) -> list[Link]:
        return [link for link in links if self._watcher.state(identity_of(link)) == "gone"]

    def _attend(self, link: Link, now_ms: int) -> float:
        """Do what one link needs; says in how many seconds to look at it again."""
        since = self._seen_gone.get(link.link_id)
        if since is not None:
            watched = link.kind == "run" and now_ms - link.pulsed_at_ms <= OVERDUE_MS
            left_ms = since + PATIENCE_MS - now_ms if watched else 0
            if left_ms > 0:
                return left_ms / 1000
            self._told(link_down(self._store, link_id=link.link_id, died=True, detail=DETAIL), link)
            self.deaths += 1
        elif self._wants_pulse(link, now_ms):
            self._told(pulse(self._store, link_id=link.link_id), link)
        return EVERY_S

    def _wants_pulse(self, link: Link, now_ms: int) -> bool:
        due_ms = PULSE_EVERY_MS if link.kind == "server" else OVERDUE_MS
        if link.link_id in self._superseded or now_ms - link.pulsed_at_ms < due_ms:
            return False
        return self._watcher.state(identity_of(link)) == "alive"

    def _told(self, answer: Link | Refused, link: Link) -> None:
        """A newer run of the agent has links of its own, and one that has just ended needs nothing more."""
        if not isinstance(answer, Refused):
            return
        if answer.code == "superseded":
            self._superseded.add(link.link_id)
        elif answer.code != "link_not_found":
            raise MonitorFailure(answer)
