"""What agents do: work, hang, crash, come back as somebody they no longer are.

A `Run` is one process of an agent, with what it believes it holds. A run that crashed or was replaced becomes a ghost,
and ghosts go on calling: that is what fencing is for.
"""

from __future__ import annotations

from typing import Any

from tenure.core.errors import Refused
from tenure.engine import agents, claims, endings, liveness, notes, touch
from tenure.engine import receipts as ledger
from tests.simulation.world import World

PROFILES = ("agent", "agent", "cli", "worker", "worker")
CAPABILITIES = ("python", "gpu")
KINDS = ("", "code", "code.review")


class Hold:
    """What a run was given, as it remembers it."""

    def __init__(self, lease: Any) -> None:
        self.task_id: str = lease.task_id
        self.lease_id: str = lease.lease_id
        self.token: int = lease.token
        self.offered: bool = lease.state == "offered"


class Run:
    """One process of an agent."""

    def __init__(self, agent_id: str, profile: str, incarnation: int | None) -> None:
        self.agent_id = agent_id
        self.profile = profile
        self.incarnation = incarnation
        self.hung = False
        self.holds: list[Hold] = []
        self.links: list[str] = []
        self.server_id: str | None = None


class Fleet:
    """All agents of one world, and the actions a seed may pick from."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.ids = [f"w.{number}" for number in range(self.rng.randint(2, 5))]
        self.profiles = {agent_id: self.rng.choice(PROFILES) for agent_id in self.ids}
        self.runs: dict[str, Run] = {}
        self.ghosts: list[Run] = []
        self.keys = 0

    # -- beginning and ending -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """A process starts: a new incarnation, whatever the old one still believes."""
        agent_id = self.rng.choice(self.ids)
        self.retire(agent_id)
        profile = self.profiles[agent_id]
        if profile != "agent" and self.rng.random() < 0.3:
            # The command line and workers need not register; they then speak for whichever run is current.
            self.runs[agent_id] = Run(agent_id, profile, None)
            return
        answer = self.world.call(agents.register, agent_id=agent_id, profile=profile)
        if answer is None or isinstance(answer, Refused):
            return
        run = Run(agent_id, profile, answer.incarnation)
        if self.ghosts and self.ghosts[-1].agent_id == agent_id and self.rng.random() < 0.4:
            # A client that restarts goes on where it was, with what the run before it wrote down.
            run.holds = list(self.ghosts[-1].holds)
        if self.rng.random() < 0.3:
            run.server_id = "server-1"
        self.runs[agent_id] = run
        if self.rng.random() < 0.5:
            self.link(run)

    def retire(self, agent_id: str) -> None:
        """The present run of an agent is gone, or believed to be."""
        run = self.runs.pop(agent_id, None)
        if run is not None:
            self.ghosts = [*self.ghosts, run][-6:]

    def some(self) -> Run | None:
        """A run that is up and not hung."""
        awake = [run for run in self.runs.values() if not run.hung]
        return self.rng.choice(awake) if awake else None

    def holder(self) -> tuple[Run, Hold] | None:
        """A run that believes it holds something."""
        holding = [(run, hold) for run in self.runs.values() if not run.hung for hold in run.holds]
        return self.rng.choice(holding) if holding else None

    def hang(self) -> None:
        """The process is there and does nothing."""
        run = self.some()
        if run is not None:
            run.hung = True
            self.world.note(f"{run.agent_id} hangs")
            self.world.seen["hang"] += 1

    def wake(self) -> None:
        """A hung process goes on as if nothing had happened."""
        hung = [run for run in self.runs.values() if run.hung]
        if hung:
            run = self.rng.choice(hung)
            run.hung = False
            self.world.note(f"{run.agent_id} wakes")

    def crash(self) -> None:
        """The process exits; a link may see it, or nobody."""
        if not self.runs:
            return
        run = self.runs[self.rng.choice(sorted(self.runs))]
        self.retire(run.agent_id)
        self.world.note(f"{run.agent_id} exits")
        self.world.seen["crash"] += 1
        for link_id in run.links:
            if self.rng.random() < 0.7:
                self.world.call(agents.link_down, link_id=link_id, died=self.rng.random() < 0.8)
        if not run.links and run.incarnation is not None and self.rng.random() < 0.2:
            self.world.call(agents.depart, agent_id=run.agent_id, incarnation=run.incarnation)

    # -- links --------------------------------------------------------------------------------------------------------

    def link(self, run: Run | None = None) -> None:
        """Somebody begins to see a process; two at once happens."""
        run = run or self.some()
        if run is None or run.incarnation is None or len(run.links) >= 2:
            return
        kind = self.rng.choice(("run", "mcp", "server", "stream"))
        answer = self.world.call(
            agents.link_up, agent_id=run.agent_id, incarnation=run.incarnation, kind=kind, boot_id=self.world.clock.boot
        )
        if answer is not None and not isinstance(answer, Refused):
            run.links.append(answer.link_id)

    def pulse(self) -> None:
        """Links pulse for a while, whether or not the process does anything. Then they may stop."""
        linked = [run for run in (*self.runs.values(), *self.ghosts) if run.links]
        if not linked:
            return
        run = self.rng.choice(linked)
        for _ in range(self.rng.choice((1, 3, 8, 16))):
            self.world.advance_ms(self.rng.randint(4_000, 14_000))
            for link_id in list(run.links):
                answer = self.world.call(agents.pulse, link_id=link_id)
                if isinstance(answer, Refused):
                    run.links.remove(link_id)

    def unlink(self) -> None:
        """A link ends without its process."""
        linked = [run for run in self.runs.values() if run.links]
        if linked:
            run = self.rng.choice(linked)
            link_id = run.links.pop(self.rng.randrange(len(run.links)))
            self.world.call(agents.link_down, link_id=link_id, died=self.rng.random() < 0.3)

    # -- asking for work ----------------------------------------------------------------------------------------------

    def claim(self) -> None:
        """One task by its name, free or not."""
        run = self.some()
        if run is None or not self.world.state.tasks:
            return
        task = self.rng.choice(sorted(self.world.state.tasks))
        asked = self._claimant(run)
        self._given(run, self.world.call(claims.claim, task_id=self.world.state.tasks[task]["task_id"], **asked))

    def claim_next(self) -> None:
        """The best that is ready."""
        run = self.some()
        if run is not None:
            more: dict[str, Any] = {"resume": True} if self.rng.random() < 0.3 else {}
            if self.rng.random() < 0.3:
                more["preferred_kinds"] = [self.rng.choice(KINDS[1:])]
            self._given(run, self.world.call(claims.claim_next, **self._claimant(run), **more))

    def offer(self) -> None:
        """Work that is held back until it is accepted."""
        run = self.some()
        if run is not None:
            answer = self.world.call(claims.offer, **self._claimant(run), max_tasks=self.rng.randint(1, 2))
            for grant in answer if isinstance(answer, tuple) else ():
                self._given(run, grant)
            if isinstance(answer, tuple) and self.rng.random() < 0.5:
                self.accept()

    def _claimant(self, run: Run) -> dict[str, Any]:
        asked: dict[str, Any] = {"agent_id": run.agent_id, "profile": run.profile}
        if run.incarnation is not None and self.rng.random() < 0.9:
            asked["incarnation"] = run.incarnation
        if self.rng.random() < 0.5:
            self.keys += 1
            asked["idempotency_key"] = f"key-{self.keys}"
        if self.rng.random() < 0.3:
            asked["capabilities"] = self.rng.sample(CAPABILITIES, self.rng.randint(0, 2))
        if run.profile != "agent" and self.rng.random() < 0.5:
            asked["ttl_s"] = self.rng.choice((1, 30, 300))
        if run.server_id is not None:
            asked["server_id"] = run.server_id
        return asked

    def _given(self, run: Run, answer: Any) -> None:
        if isinstance(answer, claims.Grant) and answer.lease.state in ("offered", "active"):
            run.holds = [hold for hold in run.holds if hold.lease_id != answer.lease.lease_id][-2:]
            run.holds.append(Hold(answer.lease))

    def accept(self) -> None:
        """An offer is taken up, by the verb or by its receipt."""
        offers = [(run, hold) for run in self.runs.values() if not run.hung for hold in run.holds if hold.offered]
        if not offers:
            return
        run, hold = self.rng.choice(offers)
        if self.rng.random() < 0.5:
            answer = self.world.call(claims.accept, **self.caller(run, hold))
        else:
            answer = self._submit(run, hold, {"phase": "accepted"})
        hold.offered = answer is None or isinstance(answer, Refused)

    # -- working ------------------------------------------------------------------------------------------------------

    def caller(self, run: Run, hold: Hold) -> dict[str, Any]:
        """One of the ways in which a holder says who it is."""
        said: dict[str, Any] = {"task_id": hold.task_id, "agent_id": run.agent_id}
        style = self.rng.randrange(6)
        if style == 0:
            return {"lease_id": hold.lease_id}
        if run.incarnation is not None and style != 1:
            said["incarnation"] = run.incarnation
        if style in (2, 3):
            said["lease_id"] = hold.lease_id
        if style in (3, 4):
            said["token"] = hold.token
        return said

    def touch(self) -> None:
        """A sign of life, perhaps with an announced silence."""
        run = self.some()
        if run is not None:
            self._touch(run)

    def _touch(self, run: Run) -> None:
        said: dict[str, Any] = {"agent_id": run.agent_id}
        if run.incarnation is not None:
            said["incarnation"] = run.incarnation
        if self.rng.random() < 0.2:
            said["expect_silence_s"] = self.rng.choice((60, 900, 7_200))
        if run.server_id is not None:
            said["server_id"] = run.server_id
        self.world.call(touch.touch, **said)

    def work(self) -> None:
        """A holder does one of the things holders do."""
        found = self.holder()
        if found is not None:
            self.act(*found)

    def toil(self) -> None:
        """A holder reports several times in a row, with pauses: a cadence forms and phases pass."""
        found = self.holder()
        if found is not None:
            for _ in range(self.rng.randint(2, 6)):
                self._report(*found)
                self.world.advance_ms(self.rng.randint(2_000, 50_000))

    def haunt(self) -> None:
        """A ghost, a hung run or a run that lost its lease calls, with all it remembers."""
        lost = [(run, hold) for run in (*self.ghosts, *self.runs.values()) for hold in run.holds]
        if lost:
            run, hold = self.rng.choice(lost)
            self.world.seen["haunt"] += 1
            if self.rng.random() < 0.15:
                self._touch(run)
            else:
                self.act(run, hold)

    def act(self, run: Run, hold: Hold) -> None:
        """One of the holder's verbs."""
        choices = (self._report, self._renew, self._decide, self._make, self._release, self._complete, self._block)
        weights = (6, 4, 2, 2, 2, 4, 1)
        if self.rng.random() < (0.7 if run.profile == "worker" else 0.1):
            self._by_receipt(run, hold)
        else:
            self.rng.choices(choices, weights)[0](run, hold)

    def _report(self, run: Run, hold: Hold) -> None:
        said = self.caller(run, hold)
        if self.rng.random() < 0.1:
            said["expect_silence_s"] = 600
        progress = self.rng.choice((0, 10, 25, 50, 75, 80, 99))
        answer = self.world.call(liveness.report, progress=progress, message="as far as this", **said)
        self._heard(run, answer)

    def _renew(self, run: Run, hold: Hold) -> None:
        said = self.caller(run, hold)
        if self.rng.random() < 0.2:
            said["ttl_s"] = self.rng.choice((1, 45, 600))
        self.world.call(liveness.renew, **said)

    def _decide(self, run: Run, hold: Hold) -> None:
        self.world.call(notes.log_decision, decision="use the simpler way", **self._named(run, hold))

    def _make(self, run: Run, hold: Hold) -> None:
        self.world.call(notes.log_artifact, filename="result.txt", content="42", **self._named(run, hold))

    def _named(self, run: Run, hold: Hold) -> dict[str, Any]:
        said: dict[str, Any] = {"task_id": hold.task_id, "agent_id": run.agent_id}
        if run.incarnation is not None:
            said["incarnation"] = run.incarnation
        return said

    def _release(self, run: Run, hold: Hold) -> None:
        answer = self.world.call(endings.release, message="not for me", **self.caller(run, hold))
        self._heard(run, answer)

    def _complete(self, run: Run, hold: Hold) -> None:
        self._heard(run, self.world.call(endings.complete, outcome_text="it works", **self.caller(run, hold)))

    def _block(self, run: Run, hold: Hold) -> None:
        self._heard(run, self.world.call(endings.block, reason="no key for the service", **self.caller(run, hold)))

    def _by_receipt(self, run: Run, hold: Hold) -> None:
        body: dict[str, Any] = self.rng.choices(
            (
                {"phase": "progress", "progress": self.rng.randrange(101)},
                {"phase": "complete", "status": "success", "outcome_kind": "none"},
                {"phase": "complete", "status": "failure"},
                {"phase": "complete", "status": "canceled"},
                {"phase": "escalate", "escalation_class": "owner", "escalation_reason": "needs a decision"},
                {"phase": "accepted"},
            ),
            (6, 5, 4, 1, 1, 1),
        )[0]
        self._heard(run, self._submit(run, hold, body))

    def _submit(self, run: Run, hold: Hold, body: dict[str, Any]) -> Any:
        body = {**body, "task_id": hold.task_id, "source_system": run.agent_id}
        if self.rng.random() < 0.8:
            body["lease_id"] = hold.lease_id
        if self.rng.random() < 0.6:
            self.keys += 1
            body["dedupe_key"] = f"receipt-{self.keys}"
        said: dict[str, Any] = {"body": body}
        if run.incarnation is not None and self.rng.random() < 0.5:
            said["incarnation"] = run.incarnation
        return self.world.call(ledger.submit_receipt, **said)

    def _heard(self, run: Run, answer: Any) -> None:
        """What a run learns about what it holds. It never forgets old leases at once: that is how ghosts are made."""
        lease = getattr(answer, "lease", None)
        if lease is None:
            return
        if getattr(answer, "healed", False):
            self.world.seen["healed by report"] += 1
        if lease.state in ("offered", "active") and lease.agent_id == run.agent_id:
            run.holds = [hold for hold in run.holds if hold.lease_id != lease.lease_id][-2:]
            run.holds.append(Hold(lease))
        elif self.rng.random() < 0.7:
            run.holds = [hold for hold in run.holds if hold.lease_id != lease.lease_id]
