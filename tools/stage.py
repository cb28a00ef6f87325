"""A fleet at work, played on a manual clock: what the screenshots show. The same every time.

Six agents work on the tasks of a small shop for the better part of an hour. One loses its process and is replaced, one
is silent for too long and comes back, one announces a long test run. The clock stops while a recovery is in progress.
"""

from __future__ import annotations

import random
from typing import Any, TypeVar

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import agents, claims, endings, handoffs, liveness, notes, observe, recovery, tasks, touch
from tenure.store.sqlite import SqliteStore

T = TypeVar("T")
START_MS = 1_773_305_400_000
MINUTES = 52

TASKS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("SHOP-101", "Data model for catalogue and stock", "design", "high", ()),
    ("SHOP-102", "Migrations for the catalogue tables", "code", "high", ("SHOP-101",)),
    ("SHOP-103", "Search endpoint with typo tolerance", "code", "medium", ("SHOP-102",)),
    ("SHOP-104", "Checkout: reserve stock in one transaction", "code", "critical", ("SHOP-102",)),
    ("SHOP-105", "Payment provider client with retries", "code", "critical", ("SHOP-101",)),
    ("SHOP-106", "Sessions and sign-in", "code", "high", ()),
    ("SHOP-107", "Rate limits per customer", "code", "medium", ("SHOP-106",)),
    ("SHOP-108", "Review the sign-in flow as an attacker would", "review", "high", ("SHOP-106",)),
    ("SHOP-109", "Order confirmation e-mail", "code", "medium", ("SHOP-104",)),
    ("SHOP-110", "Load test: 200 checkouts per second", "test", "high", ("SHOP-104", "SHOP-105")),
    ("SHOP-111", "Seed data for development", "code", "low", ("SHOP-102",)),
    ("SHOP-112", "Import the old catalogue (42,000 rows)", "data", "medium", ("SHOP-102",)),
    ("SHOP-113", "Accessible product page", "code", "medium", ()),
    ("SHOP-114", "Price rules: discounts and vouchers", "code", "high", ("SHOP-101",)),
    ("SHOP-115", "Write the operator's guide", "docs", "low", ("SHOP-104",)),
    ("SHOP-116", "Nightly backup and restore drill", "ops", "medium", ()),
    ("SHOP-117", "Translate the storefront into German", "docs", "low", ("SHOP-113",)),
    ("SHOP-118", "Refunds: partial and full", "code", "high", ("SHOP-105",)),
    ("SHOP-119", "Dashboards for stock and revenue", "code", "low", ("SHOP-103",)),
    ("SHOP-120", "Tax rates for eleven countries", "data", "medium", ("SHOP-114",)),
    ("SHOP-121", "Webhooks for shipping status", "code", "medium", ()),
    ("SHOP-122", "Flaky test in stock reservation", "bug", "critical", ()),
    ("SHOP-123", "Cache headers for images", "code", "low", ()),
    ("SHOP-124", "Review the payment client", "review", "high", ("SHOP-105",)),
    ("SHOP-125", "Export orders for accounting", "data", "medium", ()),
    ("SHOP-126", "Upgrade the ORM", "ops", "low", ()),
    ("SHOP-127", "Contract tests against the warehouse API", "test", "medium", ()),
    ("SHOP-128", "Customer data deletion on request", "code", "high", ()),
    ("SHOP-129", "Remove the legacy cart", "code", "low", ("SHOP-104", "SHOP-109")),
    ("SHOP-130", "Thumbnails in three sizes", "code", "medium", ()),
)
FLEET = ("claude-api", "claude-web", "codex-1", "gemini-docs", "opus-review", "pi-data")
SAYS = {
    15: "read the surrounding code, plan written",
    30: "first version compiles",
    45: "tests for the happy path pass",
    60: "edge cases listed, half of them done",
    75: "all tests pass locally",
    90: "cleaning up",
}


def ok(answer: T | Refused) -> T:
    """The answer of a verb that the play expects to succeed."""
    if isinstance(answer, Refused):
        raise RuntimeError(f"{answer.code}: {answer.message}")
    return answer


class Actor:
    """An agent in the play."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.task: str | None = None
        self.progress = 0
        self.next_s = chance.uniform(1, 40)
        self.pace = chance.uniform(0.7, 1.3)
        self.silent_until_s = 0.0


class Stage:
    """The play on a store."""

    def __init__(self, path: str) -> None:
        self.clock = ManualClock(wall_ms=START_MS)
        self.store = SqliteStore(path, clock=self.clock)
        self.chance = random.Random(20)
        self.actors = {name: Actor(name, self.chance) for name in FLEET}
        self.second = 0
        self.links: dict[str, str] = {}

    def play(self) -> None:
        """From the first task to the moment that is shown."""
        self._set_up()
        for self.second in range(MINUTES * 60):
            self._script()
            for actor in self.actors.values():
                if self.second >= max(actor.next_s, actor.silent_until_s):
                    self._act(actor)
            if self.second % 5 == 0:
                for link in self.links.values():
                    agents.pulse(self.store, link_id=link)
            if self.second % 2 == 0:
                recovery.advance(self.store)
            self.clock.advance(1)
        self._last_scene()

    def _set_up(self) -> None:
        store = self.store
        listed: list[dict[str, Any]] = [
            {
                "task_id": task_id,
                "title": title,
                "kind": kind,
                "priority": priority,
                "after": list(needs),
                "body": f"{title}.\n\nWork on your own branch. Keep the public API as documented; add a test "
                "that fails without your change.",
            }
            for task_id, title, kind, priority, needs in TASKS
        ]
        ok(tasks.add_tasks(store, tasks=listed))
        self._kill("SHOP-126")
        for name in FLEET:
            ok(agents.register(store, agent_id=name, role={"r": "reviewer"}.get(name[-1], "")))
        for name in ("claude-api", "opus-review", "pi-data"):
            self.links[name] = ok(agents.link_up(store, agent_id=name, kind="run", pid=4000 + len(self.links))).link_id

    def _act(self, actor: Actor) -> None:
        actor.next_s = self.second + actor.pace * self.chance.uniform(7, 24)
        if actor.task is None:
            given = claims.claim_next(self.store, agent_id=actor.name, profile="agent")
            if isinstance(given, Refused):
                actor.next_s = self.second + 20
                return
            actor.task, actor.progress = given.task.task_id, given.task.progress
            return
        if self.chance.random() < 0.62:
            touch.touch(self.store, agent_id=actor.name)
            return
        actor.progress = min(100, actor.progress + self.chance.choice((3, 4, 6)))
        if actor.progress >= 100:
            endings.complete(self.store, task_id=actor.task, agent_id=actor.name, message="Merged.")
            actor.task = None
            return
        said = SAYS.get(actor.progress - actor.progress % 15, "")
        answer = liveness.report(
            self.store, task_id=actor.task, agent_id=actor.name, progress=actor.progress, message=said
        )
        if isinstance(answer, Refused):
            actor.task = None

    def _script(self) -> None:
        """What goes wrong, and when."""
        minute, rest = divmod(self.second, 60)
        if rest:
            return
        if minute == 14:
            # Its process is gone; somebody starts it again a little later.
            self.actors["claude-web"].silent_until_s = self.second + 420
            self.actors["claude-web"].task = None
        elif minute == 27:
            # Alive, but silent for longer than its cadence explains.
            self.actors["codex-1"].silent_until_s = self.second + 240
        elif minute == 2:
            ok(
                endings.block(
                    self.store, task_id="SHOP-125", agent_id="operator", reason="Waits for the bank's format."
                )
            )
        elif minute == 38:
            ok(agents.link_down(self.store, link_id=self.links.pop("pi-data"), died=True, detail="exit 137"))
            self.actors["pi-data"].task = None
            self.actors["pi-data"].silent_until_s = self.second + 150
        elif minute == MINUTES - 6:
            for name in ("claude-web", "codex-1"):
                holder = self.actors[name]
                if holder.task is not None:
                    notes.log_decision(
                        self.store,
                        task_id=holder.task,
                        agent_id=name,
                        decision="Optimistic locking, not SELECT FOR UPDATE.",
                    )

    def _last_scene(self) -> None:
        """One holder was just recovered, one is in its grace, one is carried by its cadence, the others work."""
        store = self.store
        lost, quiet, slow = "claude-web", "gemini-docs", "codex-1"
        held = self.actors[slow].task
        if held is not None:
            endings.complete(store, task_id=held, agent_id=slow, message="Merged.")
            self.actors[slow].task = None
        for name in FLEET:
            self._hold(name)
        # Slow and regular: its own cadence carries it beyond term and grace.
        self._pass(6, but=(slow,))
        for progress in (20, 40, 55):
            self._report(slow, progress, "one module after the other")
            self._pass(112, but=(slow,))
        self._report(lost, 38, "reservation written, tests red")
        self._pass(12, but=(slow, lost))
        self._report(lost, 45, "two of five tests pass; the lock order in stock.py is still wrong")
        self._pass(1, but=(slow, lost))
        self._report(slow, 60, "one module after the other")
        self._pass(27, but=(slow, lost))
        self._report(quiet, 50, "half of the pages")
        self._report(quiet, 52, "half of the pages")
        self._pass(127, but=(slow, lost, quiet))
        task_id = self.actors[lost].task
        assert task_id is not None
        self._attach_git(task_id)
        ok(notes.send_message(store, task_id=task_id, sender="mira", text="The warehouse team needs this by Friday."))
        ok(tasks.add_task(store, task_id="SHOP-131", title="Gift cards", kind="code", priority="medium"))
        self._pass(3, but=(slow, lost, quiet))

    def _report(self, name: str, progress: int, message: str) -> None:
        task_id = self.actors[name].task
        assert task_id is not None
        ok(liveness.report(self.store, task_id=task_id, agent_id=name, progress=progress, message=message))

    def _hold(self, name: str) -> None:
        actor = self.actors[name]
        if actor.task is None:
            given = claims.claim_next(self.store, agent_id=name, profile="agent")
            if not isinstance(given, Refused):
                actor.task, actor.progress = given.task.task_id, given.task.progress

    def _pass(self, seconds: int, but: tuple[str, ...]) -> None:
        """Time passes while all but these give signs of life."""
        for _ in range(seconds):
            self.second += 1
            self.clock.advance(1)
            for actor in self.actors.values():
                if actor.name not in but and actor.task is not None and self.second >= actor.next_s:
                    actor.next_s = self.second + actor.pace * self.chance.uniform(7, 24)
                    touch.touch(self.store, agent_id=actor.name)
            if self.second % 5 == 0:
                for link in self.links.values():
                    agents.pulse(self.store, link_id=link)
            if self.second % 2 == 0:
                recovery.advance(self.store)

    def _attach_git(self, task_id: str) -> None:
        """What git would show of the lost holder's worktree."""
        detail = observe.show_task(self.store, task_id=task_id)
        assert not isinstance(detail, Refused)
        left = detail.handoffs[0]
        rescue = f"{task_id}/{left.token}"
        facts = {
            "commits": ["4be1f02 Reserve stock inside the order's transaction", "91d0c77 Test: two buyers, one item"],
            "ahead": 2,
            "base": "main",
            "diffstat": " shop/checkout.py       | 64 +++++++++++++++++++++----\n"
            " shop/stock.py          | 31 ++++++++---\n"
            " tests/test_checkout.py | 88 ++++++++++++++++++++++++++++++\n"
            " 3 files changed, 170 insertions(+), 13 deletions(-)",
            "merge": "clean",
            "head": "4be1f02",
            "rescue_ref": f"refs/tenure/rescue/{rescue}",
            "rescue_apply": f"tenure rescue apply {rescue}",
            "rescue_files": 3,
        }
        handoffs.attach_facts(self.store, handoff_id=left.handoff_id, facts=facts)

    def _kill(self, task_id: str) -> None:
        """A task whose attempts are all used."""
        for _ in range(3):
            given = claims.claim(self.store, task_id=task_id, agent_id="worker.9", profile="worker", ttl_s=1)
            if isinstance(given, Refused):
                return
            self.clock.advance(2)
            recovery.advance(self.store)
            self.clock.advance(31)
            recovery.advance(self.store)
