"""What people, hosts and the monitor do: tasks come and change, clocks jump, machines restart, timers are looked at."""

from __future__ import annotations

from typing import Any

from tenure.core.errors import Refused
from tenure.engine import agents, claims, dependencies, endings, explain, notes, observe, projects, recovery, tasks
from tenure.engine import receipts as ledger
from tests.simulation.actors import CAPABILITIES, KINDS, Fleet
from tests.simulation.rows import Snapshot, deadline, demand
from tests.simulation.world import World

TASK_IDS = [f"T{number}" for number in range(8)]
HOUR_S = 3_600
DAY_S = 86_400


class Operators:
    """Everybody who is not an agent."""

    def __init__(self, world: World, fleet: Fleet) -> None:
        self.world = world
        self.fleet = fleet
        self.rng = world.rng

    def _task(self) -> str:
        """Mostly a task that exists."""
        there: list[str] = sorted(task["task_id"] for task in self.world.state.tasks.values())
        return self.rng.choice(there if there and self.rng.random() < 0.85 else TASK_IDS)

    def _who(self) -> str | None:
        return self.rng.choice((*self.fleet.ids, "Marcus", "Maria", None, None))

    def configure(self) -> None:
        """Some seeds run under other settings, so that rarer limits are reached."""
        tenure = self.rng.choice(({}, {"hung_after_s": 100}, {"hung_after_s": 100, "silence_cap_s": 120}))
        if tenure:
            self.world.call(projects.configure, document={"tenure": tenure}, safely=True)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def add(self) -> None:
        """A task, perhaps one that existed before."""
        missing = [task_id for task_id in TASK_IDS if self.world.state.named(task_id) is None]
        task_id = self.rng.choice(missing) if missing else self._task()
        fields: dict[str, Any] = {"priority": self.rng.choice(("critical", "high", "medium", "low"))}
        if self.rng.random() < 0.4:
            fields["after"] = self.rng.sample(TASK_IDS, self.rng.randint(1, 2))
            fields["allow_missing"] = self.rng.random() < 0.7
        if self.rng.random() < 0.15:
            fields["not_before_ms"] = self.world.now + self.rng.choice((-5_000, 20_000, 4_000_000))
        if self.rng.random() < 0.2:
            fields["requires"] = self.rng.sample(CAPABILITIES, 1)
        if self.rng.random() < 0.3:
            fields["slots"] = 2
        if self.rng.random() < 0.25:
            fields["max_attempts"] = self.rng.randint(1, 3)
        if self.rng.random() < 0.1:
            fields["lease_duration_s"] = self.rng.choice((2, 60))
        if self.rng.random() < 0.15:
            fields["assigned_to"] = self._who()
        if self.rng.random() < 0.3:
            fields["kind"] = self.rng.choice(KINDS)
        self.world.call(tasks.add_task, task_id=task_id, title=f"Task {task_id}", **fields)

    def edit(self) -> None:
        """A task says something else of itself."""
        changes: tuple[dict[str, Any], ...] = (
            {"priority": self.rng.choice(("critical", "low"))},
            {"not_before_ms": self.world.now + self.rng.choice((-1_000, 0, 30_000))},
            {"requires": self.rng.sample(CAPABILITIES, self.rng.randint(0, 1))},
            {"max_attempts": self.rng.choice((None, 1, 5))},
            {"title": "Another title"},
        )
        self.world.call(tasks.edit_task, task_id=self._task(), **self.rng.choice(changes))

    def connect(self) -> None:
        """Edges come and go; some would close a cycle."""
        if self.rng.random() < 0.6:
            more = {"allow_missing": True} if self.rng.random() < 0.3 else {}
            self.world.call(dependencies.add_dependency, task_id=self._task(), needs=self._task(), **more)
            return
        edges = self.world.state.edges
        if edges and self.rng.random() < 0.8:
            key, needs, _ = self.rng.choice(edges)
            self.world.call(dependencies.remove_dependency, task_id=self.world.state.tasks[key]["task_id"], needs=needs)
        else:
            self.world.call(dependencies.remove_dependency, task_id=self._task(), needs=self._task())

    def govern(self) -> None:
        """A person decides something about a task."""
        task_id = self._task()
        choice = self.rng.randrange(13)
        if choice == 0:
            self.world.call(endings.revoke, task_id=task_id, reason=self.rng.choice(("operator", "preempted")))
        elif choice in (1, 12):
            self.world.call(tasks.delete_task, task_id=task_id, force=self.rng.random() < 0.5)
        elif choice == 2:
            self.world.call(endings.block, task_id=task_id, reason="stop", force=self.rng.random() < 0.5)
        elif choice == 3:
            self.world.call(endings.release, task_id=task_id, force=True, message="please stop")
        elif choice == 4:
            self.world.call(endings.complete, task_id=task_id, force=True)
        elif choice == 5:
            self.world.call(tasks.assign_task, task_id=task_id, assigned_to=self._who())
        elif choice == 6:
            to = self.rng.choice((None, *self.fleet.ids))
            self.world.call(notes.send_message, text="have a look", sender="Maria", task_id=task_id, to=to)
        elif choice == 7:
            self.world.call(notes.inbox, agent_id=self.rng.choice(self.fleet.ids))
        elif choice == 8:
            self.world.call(ledger.seal)
        elif choice == 9:
            self.world.call(observe.prune)
        else:
            self.mend()

    def mend(self) -> None:
        """What is blocked, dead or done gets another start."""
        verbs: dict[str, Any] = {"blocked": tasks.unblock_task, "dead": tasks.requeue_task, "done": tasks.reopen_task}
        stuck = [task for task in self.world.state.tasks.values() if task["status"] in verbs]
        if stuck and self.rng.random() < 0.8:
            task = self.rng.choice(sorted(stuck, key=lambda task: str(task["task_id"])))
            self.world.call(verbs[task["status"]], task_id=task["task_id"])
        else:
            self.world.call(self.rng.choice(list(verbs.values())), task_id=self._task())

    # -- looking ------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """A read of some kind; the world checks that it writes nothing."""
        task_id, agent_id = self._task(), self.rng.choice(self.fleet.ids)
        reads: tuple[tuple[Any, dict[str, Any]], ...] = (
            (observe.list_tasks, {"status": self.rng.choice(("todo", "in_progress", "done"))}),
            (observe.ready_tasks, {}),
            (observe.show_task, {"task_id": task_id}),
            (observe.statistics, {}),
            (observe.gridlock, {}),
            (observe.events, {"limit": 50}),
            (explain.why, {"task_id": task_id, "agent_id": agent_id}),
            (explain.briefing, {"task_id": task_id, "agent_id": agent_id}),
            (claims.leases_of, {"agent_id": agent_id}),
            (agents.show_agent, {"agent_id": agent_id}),
            (notes.thread, {"task_id": task_id}),
            (dependencies.graph, {}),
            (ledger.obligations, {}),
        )
        verb, arguments = self.rng.choice(reads)
        answer = self.world.call(verb, **arguments)
        now = self.world.state.now
        if now is None or isinstance(answer, Refused):
            return
        if verb is observe.statistics:
            self._count(answer, self.world.state, now)
        if verb is observe.ready_tasks:
            self._ready(answer, self.world.state, now)

    def _count(self, answer: Any, state: Snapshot, now: int) -> None:
        live = [lease for leases in state.unended.values() for lease in leases if state.live(lease, now)]
        active = sum(lease["state"] == "active" for lease in live)
        facts = {"said": (answer.active, answer.offered), "counted": (active, len(live) - active)}
        demand(
            (answer.active, answer.offered) == (active, len(live) - active), "statistics count what is live", **facts
        )

    def _ready(self, answer: Any, state: Snapshot, now: int) -> None:
        """What is shown as ready and unheld can be claimed; what can be claimed at once is shown."""
        shown = {view.task.task_id for view in answer}
        for task in state.tasks.values():
            free = task["slots"] - len(state.unended.get(task["key"], ())) > 0
            waits = max(task["not_before_ms"], task["retry_at_ms"]) > now
            offered = task["status"] == "todo" and task["assigned_to"] is None and free and not waits
            if offered and not state.unmet_of(task["key"]):
                demand(task["task_id"] in shown, "what is ready is listed", task=task["task_id"], shown=shown)
            elif task["status"] in ("done", "dead", "blocked") or state.unmet_of(task["key"]):
                held = bool(state.unended.get(task["key"]))
                demand(held or task["task_id"] not in shown, "what is listed is ready", task=task["task_id"])

    # -- the monitor and the servers ----------------------------------------------------------------------------------

    def advance(self) -> None:
        """A monitor in another process looks at the timers."""
        self.world.call(recovery.advance, store=1, limit=self.rng.choice((1, 2, 32)))

    def serve(self) -> None:
        """A server starts, restarts or pulses."""
        known = "server-1" in self.world.state.servers
        if not known or self.rng.random() < 0.25:
            lifted = self.world.call(agents.start_server, server_id="server-1")
            self.world.seen["lease lifted"] += lifted if isinstance(lifted, int) else 0
        else:
            for _ in range(self.rng.choice((1, 4))):
                self.world.call(agents.pulse_server, server_id="server-1")
                self.world.advance_ms(self.rng.randint(1_000, 6_000))

    # -- time ---------------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Time passes: a little, a lot, or to the very edge of something."""
        choice = self.rng.random()
        if choice < 0.35:
            self.world.advance_ms(self.rng.randint(1, 20_000))
        elif choice < 0.55:
            self.world.advance_ms(self.rng.randint(20_000, 200_000))
        elif choice < 0.97:
            self._to_an_edge()
        else:
            self.world.advance_ms(self.rng.choice((20 * 60, 2 * HOUR_S, 25 * HOUR_S)) * 1000)

    def _to_an_edge(self) -> None:
        """To the last live instant of something, to its first dead one, or just past that."""
        state, now = self.world.state, self.world.now
        edges = [deadline(lease) for leases in state.unended.values() for lease in leases]
        edges += [lease["expires_at_ms"] for leases in state.unended.values() for lease in leases]
        edges += [max(task["not_before_ms"], task["retry_at_ms"]) for task in state.tasks.values() if task["waiting"]]
        edges += [pulsed + 15_000 for pulsed in state.servers.values()]
        ahead = sorted(edge for edge in edges if now + 1 < edge < now + HOUR_S * 1000)
        if ahead:
            edge = ahead[0] if self.rng.random() < 0.5 else self.rng.choice(ahead)
            self.world.advance_ms(max(1, edge - now + self.rng.choice((-1, 0, 0, 1))))

    def upset_clock(self) -> None:
        """A suspend, a step of the wall clock, or a drift too small to matter."""
        seconds, word = self.rng.choice(
            ((700, "suspend"), (9 * HOUR_S, "suspend"), (-HOUR_S, "step back"), (DAY_S, "step forward"), (1, "drift"))
        )
        self.world.step_clock(seconds, word)
        if self.rng.random() < 0.6:
            self.anchor()

    def reboot(self) -> None:
        """A restart; rarely a boot that had been replaced comes back, which means two machines share the file."""
        boots = self.world.boots
        self.fleet.runs.clear()
        if len(boots) > 1 and self.rng.random() < 0.25:
            self._return_of(self.rng.choice(boots[:-1]))
            return
        boots.append(f"boot-{len(boots) + 1}")
        self.world.reboot(boots[-1], self.rng.choice((5, 90, 4_000)))
        if self.rng.random() < 0.3:
            self.world.lose_power()
        if self.rng.random() < 0.6:
            self.anchor()

    def _return_of(self, boot_id: str) -> None:
        world = self.world
        # The present boot must have written, or it was never replaced by the next one.
        self.anchor()
        world.reboot(boot_id, 10)
        answer = world.call(recovery.advance, store=1, safely=True)
        if isinstance(answer, Refused):
            demand(answer.code == "store_shared", "two machines are told apart", code=answer.code)
            world.seen["store_shared"] += 1
            for store in world.stores[:1]:
                store.adopt()
            world.note("adopted")
            world.observe(None, stale=True)
        world.boots.remove(boot_id)
        world.boots.append(boot_id)

    def anchor(self) -> None:
        """A writer that does nothing but fit the store's clock to the machine's. What it moves is checked exactly."""
        world = self.world
        before = world.state
        world.stores[0].run(lambda transaction: None)
        world.note("anchored")
        world.observe(None, stale=True)
        after = world.state
        assert after.now is not None
        if before.now is None and before.anchor[0] == after.anchor[0]:
            self._check_shift(before, after, after.now)
        elif before.now is None:
            self._check_boot(before, after, after.now)
        else:
            demand(before.raw_leases == after.raw_leases, "a fitting anchor is left alone")

    def _check_shift(self, before: Snapshot, after: Snapshot, now: int) -> None:
        """Nobody aged while the clock moved: who was live then is live now, with as much time left."""
        then = before.anchor[1] + self.world.clock.mono - before.anchor[2]
        by = now - then
        demand(by != 0, "a shift moves something")
        for lease_id, lease in before.leases.items():
            moved = after.leases[lease_id]
            if lease["state"] not in ("offered", "active"):
                demand(moved is lease, "a shift leaves what has ended", lease=lease_id)
                continue
            for name in ("recover_at_ms", "expires_at_ms", "seen_at_ms", "wake_at_ms", "granted_at_ms"):
                demand(
                    moved[name] == lease[name] + by, "a shift moves every deadline", lease=lease_id, field=name, by=by
                )
            demand(before.live(lease, then) == after.live(moved, now), "4 a shift changes nobody's liveness")
        for key, task in before.tasks.items():
            left = task["retry_at_ms"] - then
            demand(left <= 0 or after.tasks[key]["retry_at_ms"] - now == left, "a shift moves retries")

    def _check_boot(self, before: Snapshot, after: Snapshot, now: int) -> None:
        """One fresh term for every unrecovered lease whose holder was not seen to die, and no more."""
        for leases in before.unended.values():
            for lease in leases:
                fresh = after.leases[lease["lease_id"]]
                facts = {"lease": lease["lease_id"], "recover_at": fresh["recover_at_ms"], "now": now}
                if lease["death_at_ms"] is not None:
                    demand(not after.live(fresh, now), "the dead stay dead through a boot", **facts)
                    continue
                demand(fresh["expires_at_ms"] == now + lease["term_ms"], "a boot gives one fresh term", **facts)
                demand(fresh["pulsed_at_ms"] is None, "links of the old boot prove nothing", **facts)
                demand(after.live(fresh, now), "a boot kills nobody", **facts)

    # -- the end ------------------------------------------------------------------------------------------------------

    def silence(self) -> None:
        """No immortals: when nobody calls any more, every lease ends."""
        world = self.world
        self.anchor()
        unended = [lease for leases in world.state.unended.values() for lease in leases]
        latest = max((deadline(lease) + lease["hung_after_ms"] for lease in unended), default=world.now)
        world.advance_ms(max(0, latest - world.now) + 60_000)
        for _ in range(400):
            answer = world.call(recovery.advance, store=1, safely=True, limit=self.rng.choice((1, 8, 32)))
            if answer.wait_ms is None or answer.wait_ms > 0:
                break
        demand(not world.state.unended, "nobody is immortal", unended=list(world.state.unended))
