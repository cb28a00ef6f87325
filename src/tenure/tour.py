"""A short tour of the engine: one task through claim, silence, recovery, handoff, a zombie and completion.

It runs the real engine on a real embedded store in a temporary folder. Only time is played: a manual clock jumps, so
that the tour takes a moment instead of three minutes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TypeVar

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import agents, claims, endings, explain, liveness, notes, observe, receipts, recovery, tasks, touch
from tenure.store.sqlite import SqliteStore

T = TypeVar("T")


def ok(answer: T | Refused) -> T:
    """The answer of a verb that the tour expects to succeed."""
    if isinstance(answer, Refused):
        raise SystemExit(f"The tour expected a success and was refused: {answer.code}: {answer.message}")
    return answer


class Tour:
    """The steps in order, each printed as it happens."""

    def __init__(self, store: SqliteStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.began_ms = clock.wall_ms()

    def say(self, text: str) -> None:
        seconds = (self.clock.wall_ms() - self.began_ms) / 1000
        print(f"  {seconds:>8.3f} s  {text}")

    def run(self) -> None:
        store, say = self.store, self.say
        ok(tasks.add_task(store, task_id="F001", title="Implement authentication"))
        ok(tasks.add_task(store, task_id="F002", title="Document authentication", after=["F001"]))
        for agent_id in ("Agent-A", "Agent-B"):
            ok(agents.register(store, agent_id=agent_id))
        say("Two tasks, F002 waits for F001. Agent-A and Agent-B have registered.")
        self.work_and_fall_silent()
        self.recover()
        self.hand_over()
        self.finish()

    def work_and_fall_silent(self) -> None:
        store, say = self.store, self.say
        grant = ok(claims.claim_next(store, agent_id="Agent-A", profile="agent"))
        say(f"Agent-A asks for work and gets {grant.task.task_id}, with a lease of 60 s + 20 s grace.")
        self.clock.advance(15)
        ok(notes.log_decision(store, task_id="F001", agent_id="Agent-A", decision="Sessions, not tokens."))
        say("Agent-A logs a decision: any call is a sign of life.")
        self.clock.advance(25)
        kept = ok(liveness.report(store, task_id="F001", agent_id="Agent-A", progress=15, message="login form done"))
        say(f"Agent-A reports 15%: the lease is now {kept.lease.term_ms // 1000} s + {kept.lease.grace_ms // 1000} s.")
        self.clock.advance(15)
        ok(touch.touch(store, agent_id="Agent-A"))
        say("Agent-A makes its last call. Its process is killed; nobody sees it.")

    def recover(self) -> None:
        self.clock.advance(119.999)
        self.say(f"Nobody else may take F001 yet: it reads {self.status('F001')}.")
        self.clock.advance(0.001)
        self.say(f"The deadline: it reads {self.status('F001')}, before anyone has written anything.")
        ok(recovery.advance(self.store))
        story = [line.text for line in ok(explain.why(self.store, task_id="F001")).story]
        told = next(text for text in reversed(story) if text.startswith("recovered"))
        self.say(f"{told[0].upper()}{told[1:]}.")

    def hand_over(self) -> None:
        self.clock.advance(5)
        grant = ok(claims.claim_next(self.store, agent_id="Agent-B", profile="agent"))
        self.say(f"Agent-B asks for work and gets {grant.task.task_id}, under a higher token, with this handoff:")
        text = ok(explain.briefing(self.store, task_id="F001", agent_id="Agent-B"))
        addendum = text.partition("## 1.1")[2].partition("## 1 ")[0]
        for line in addendum.strip().splitlines()[2:9]:
            print(f"              | {line}")
        self.clock.advance(10)
        refusal = liveness.report(self.store, task_id="F001", agent_id="Agent-A", progress=90, message="I am back")
        assert isinstance(refusal, Refused)
        self.say(f"Agent-A returns as a zombie and is refused ({refusal.code}): {refusal.next}")

    def finish(self) -> None:
        ended = ok(endings.complete(self.store, task_id="F001", agent_id="Agent-B"))
        self.say(f"Agent-B completes F001; unlocked in the same transaction: {', '.join(ended.unlocked)}.")
        ok(receipts.seal(self.store))
        checked = ok(receipts.verify(self.store))
        self.say(f"The ledger has {checked.receipts} receipts in {checked.seals} seal, faults: {len(checked.faults)}.")

    def status(self, task_id: str) -> str:
        view = ok(observe.show_task(self.store, task_id=task_id)).view
        return f"{view.status} (due)" if view.due else view.status


def main() -> int:
    """Run the tour in a temporary folder."""
    print("Tenure: work that survives the agent holding it. A tour of the engine, on a manual clock.\n")
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(os.path.join(folder, "tenure.db"), clock=clock)
        Tour(store, clock).run()
        store.close()
    print("\nThe verbs used here are functions in tenure.engine; README.md says what works so far.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
