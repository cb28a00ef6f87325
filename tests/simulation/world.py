"""The world of one seed: a file, three connections, a clock, and the rule that after every step everything is checked.

Two `SqliteStore`s stand for two processes; a third, plain connection is the simulation's own eyes. Calls go through
`call`, which may kill the process at any statement, fill the disk, or lose the reply.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections import Counter, deque
from typing import Any

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import observe, receipts
from tenure.engine.verb import Verb
from tenure.store.sqlite import SqliteStore
from tests.simulation import invariants, transitions
from tests.simulation.dying import Doomed, Killed
from tests.simulation.history import Chronicle
from tests.simulation.rows import Snapshot, Violation, demand, dump
from tests.simulation.transitions import Call

STEPS_SHOWN = 40
# Verbs whose retry must find what the first try did.
RETRIED = ("claim", "claim_next", "release", "complete", "submit_receipt")


class World:
    """Everything one seed decides."""

    def __init__(self, seed: int, directory: str, *, verbose: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.noise = random.Random(f"noise {seed}")
        self.directory = directory
        self.verbose = verbose
        self.clock = ManualClock()
        self.boots = ["boot-1"]
        self.files = 0
        self.path = os.path.join(directory, "tenure-0.db")
        self.steps = 0
        self.elapsed_ms = 0
        self.log: deque[str] = deque(maxlen=STEPS_SHOWN)
        self.answers: Counter[str] = Counter()
        self.chronicle = Chronicle()
        self.seen = self.chronicle.seen
        # How often things go wrong in this seed: some seeds are calm, some are not.
        self.kill_rate = self.rng.choice((0.0, 0.03, 0.08))
        self.full_rate = self.rng.choice((0.0, 0.0, 0.04))
        self.loss_rate = self.rng.choice((0.0, 0.1, 0.3))
        self.open()
        self.stores[0].run(lambda transaction: None)
        self.state = Snapshot(self.eyes, self.clock)

    # -- processes and files ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the processes."""
        self.stores = [self._process(), self._process()]
        self.eyes = sqlite3.connect(self.path, isolation_level=None, cached_statements=64)

    def _process(self) -> SqliteStore:
        return SqliteStore(self.path, clock=self.clock, random=self.noise.randbytes)

    def close(self) -> None:
        """Stop everything."""
        for store in self.stores:
            store.close()
        self.eyes.close()

    def lose_power(self) -> None:
        """Everything stops; what the disk holds at this instant is all there is, and the next boot opens that."""
        self.files += 1
        path = os.path.join(self.directory, f"tenure-{self.files}.db")
        for suffix in ("", "-wal"):
            if os.path.exists(self.path + suffix):
                shutil.copyfile(self.path + suffix, path + suffix)
        self.close()
        self.path = path
        self.open()
        self.seen["power lost"] += 1

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The store's time, or the wall clock while nobody has anchored the store to it."""
        return self.clock.wall if self.state.now is None else self.state.now

    def advance_ms(self, by_ms: int) -> None:
        """Time passes."""
        self.clock.wall += by_ms
        self.clock.mono += by_ms
        self.elapsed_ms += by_ms
        self.note(f"+{by_ms / 1000:g} s")
        self.look_again()

    def step_clock(self, seconds: int, word: str) -> None:
        """The wall clock moves and nobody aged."""
        self.clock.step(seconds)
        if self.state.anchor[0] != self.clock.boot:
            # Between a boot and its first write a step cannot be told from time that passed.
            self.elapsed_ms += seconds * 1000
        self.note(f"{word} {seconds:+} s")
        self.seen[word] += 1
        self.look_again()

    def reboot(self, boot_id: str, down_s: int) -> None:
        """The machine restarts."""
        boot, wall0, mono0 = self.state.anchor
        then = wall0 + self.clock.mono - mono0 if boot == self.clock.boot else self.clock.wall
        self.clock.reboot(boot_id, down_s)
        # Nobody can tell how long the machine was down but by its wall clock, steps that nobody had seen included.
        self.elapsed_ms += self.clock.wall - then
        self.note(f"reboot into {boot_id} after {down_s} s")
        self.seen["reboot"] += 1
        self.look_again()

    def look_again(self) -> None:
        """After the clock moved: the rows are the same, the instant is not."""
        self.state = Snapshot(self.eyes, self.clock, self.state)

    def note(self, text: str) -> None:
        """Keep a line of the story, and print it when asked to."""
        self.steps += 1
        line = f"{self.steps:4} {text}"
        self.log.append(line)
        if self.verbose:
            print(line, flush=True)

    # -- calling ------------------------------------------------------------------------------------------------------

    def call(self, verb: Verb[..., Any], *, store: int | None = None, safely: bool = False, **arguments: Any) -> Any:
        """Call a verb as one of the processes. None means that nobody heard the answer."""
        index = self.rng.randrange(2) if store is None else store
        call = Call(verb.name, arguments)
        fate = 1.0 if safely or not verb.writes else self.rng.random()
        if fate < self.kill_rate:
            self._kill(verb, call, index)
            return None
        if fate < self.kill_rate + self.full_rate:
            return self._fill_disk(verb, call, index)
        self._perform(verb, call, self.stores[index])
        if fate < self.kill_rate + self.full_rate + self.loss_rate and verb.name in RETRIED:
            return self._retry(verb, call, index)
        return call.answer

    def _perform(self, verb: Verb[..., Any], call: Call, store: SqliteStore) -> None:
        before_changes = store.connection.total_changes
        stale = self.state.now is None
        try:
            call.answer = verb(store, **call.arguments)
            call.answered = True
        except Exception as error:
            self.note(str(call))
            raise Violation(f"{verb.name} raised {type(error).__name__}: {error}") from error
        self.note(str(call))
        if not verb.writes and not stale:
            written = store.connection.total_changes - before_changes
            demand(written == 0, "a read writes nothing", call=str(call), written=written)
        code = call.answer.code if isinstance(call.answer, Refused) else "ok"
        self.answers[f"{verb.name} {code}"] += 1
        self.observe(call, stale)

    def observe(self, call: Call | None, stale: bool) -> None:
        """Look at what a step did, and check everything."""
        before = self.state
        self.state = after = Snapshot(self.eyes, self.clock, before)
        invariants.check(after)
        if call is not None and not stale and after.now is not None:
            transitions.check(before, call, after)
            self.seen.update(transitions.phenomena(before, call, after))
        self.chronicle.follow(self.eyes, after, self.elapsed_ms)
        if call is not None and call.answered and not call.refused:
            self._check_handoffs(before, call)
        if after.now is not None:
            self._compare_views(after, after.now)

    def _check_handoffs(self, before: Snapshot, call: Call) -> None:
        answer = call.answer if isinstance(call.answer, tuple) else (call.answer,)
        if call.verb not in ("claim", "claim_next", "offer"):
            return
        for grant in answer:
            if grant.lease.lease_id not in before.leases:
                shown = [handoff.lease_id for handoff in grant.handoffs]
                self.chronicle.check_grant(grant.task.key, shown, self.elapsed_ms)

    def _compare_views(self, state: Snapshot, now: int) -> None:
        """4 and 5: what a process shows of every task is what the rows mean, from whichever process one looks."""
        store = self.stores[self.steps % 2]
        before = store.connection.total_changes
        views = observe.list_tasks(store, limit=1000)
        assert not isinstance(views, Refused)
        demand(store.connection.total_changes == before, "a list writes nothing")
        demand(len(views) == len(state.tasks), "every task is listed")
        for view in views:
            task = state.tasks[view.task.key]
            expected = state.shown(task, now)
            facts = {"task": task["task_id"], "shown": view.status, "expected": expected, "now": now}
            demand(view.status == expected, "5 the status shown is the derived one", **facts)
            listed = {lease.lease_id for lease in view.leases}
            expected_live = {lease["lease_id"] for lease in state.live_of(task["key"], now)}
            demand(listed == expected_live, "4 liveness is the same from every process", live=expected_live, **facts)
            due = task["status"] == "in_progress" and expected == "todo"
            demand(view.due == due, "5 due is shown until it is recovered", **facts)

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def _kill(self, verb: Verb[..., Any], call: Call, index: int) -> None:
        """Kill the process inside a verb. Afterwards all of it happened, or none."""
        after_commit = self.rng.random() < 0.2
        # A verb that recovers something on its way has forty statements, a touch has six.
        statement = self.rng.choice((self.rng.randint(1, 8), self.rng.randint(8, 40)))
        doomed = Doomed(
            self.stores[index].connection,
            dies_before=0 if after_commit else statement,
            dies_after_commit=after_commit,
        )
        before = dump(self.eyes)
        stale = self.state.now is None
        self.stores[index].connection = doomed  # type: ignore[assignment]
        try:
            call.answer = verb(self.stores[index], **call.arguments)
            call.answered = True
        except Killed:
            pass
        except Exception as error:
            raise Violation(f"{verb.name} raised {type(error).__name__}: {error}") from error
        self.note(f"killed at statement {doomed.count}{' after commit' if doomed.committed else ''}: {call}")
        call.answered = call.answered and doomed.committed
        if self.rng.random() < 0.25:
            # Copied while the transaction is open, as a power cut would leave the files.
            self.lose_power()
        else:
            doomed.close()
            self.stores[index] = self._process()
        if not doomed.committed:
            self.seen["killed before commit"] += 1
            demand(dump(self.eyes) == before, "10 a killed verb leaves nothing behind", call=str(call))
            self.look_again()
            return
        self.seen["killed after commit"] += 1
        self.observe(call, stale)
        if verb.name in ("claim", "claim_next") and call.arguments.get("idempotency_key") and not call.refused:
            self._retry(verb, call, index)

    def _fill_disk(self, verb: Verb[..., Any], call: Call, index: int) -> Any:
        """The disk is full at some statement. What the verb had settled may stand, the rest may not."""
        store = self.stores[index]
        real = store.connection
        doomed = Doomed(real, full_at=self.rng.randint(2, 20), full_ends_transaction=self.rng.random() < 0.5)
        stale = self.state.now is None
        before = dump(self.eyes)
        store.connection = doomed  # type: ignore[assignment]
        try:
            call.answer = verb(store, **call.arguments)
            call.answered = True
        except Exception as error:
            raise Violation(f"{verb.name} raised {type(error).__name__}: {error}") from error
        finally:
            store.connection = real
        self.note(f"disk full: {call}" if doomed.was_full else str(call))
        if doomed.was_full:
            self.seen["disk full"] += 1
            demand(call.refused and call.answer.code == "store_full", "a full disk is told", call=str(call))
            if not doomed.committed:
                demand(dump(self.eyes) == before, "10 a failed verb leaves nothing behind", call=str(call))
            else:
                self.seen["recovery kept on a full disk"] += 1
        self.observe(call, stale)
        return call.answer

    def _retry(self, verb: Verb[..., Any], first: Call, index: int) -> Any:
        """The reply was lost; the caller sends the same again, perhaps after a while."""
        self.seen["reply lost"] += 1
        if self.rng.random() < 0.5:
            self.advance_ms(self.rng.randrange(3_000))
        known = set(self.state.leases)
        second = Call(verb.name, first.arguments)
        self._perform(verb, second, self.stores[index])
        if first.answered and not first.refused:
            self._compare_retry(first, second, known)
        return second.answer

    def _compare_retry(self, first: Call, second: Call, known: set[str]) -> None:
        said, answer = first.arguments, second.answer
        facts = {"first": str(first), "second": str(second)}
        if first.verb in ("claim", "claim_next") and said.get("idempotency_key"):
            demand(not second.refused and answer.resumed, "a retried claim finds its lease", **facts)
            same = answer.lease.lease_id == first.answer.lease.lease_id
            demand(same and set(self.state.leases) == known, "a retried claim grants nothing new", **facts)
            self.seen["claim replayed"] += 1
        elif first.verb in ("release", "complete") and said.get("lease_id") and not said.get("force"):
            demand(not second.refused and answer.repeated, "a retried end is told it is done", **facts)
            self.seen["end replayed"] += 1
        elif first.verb == "submit_receipt" and said["body"].get("dedupe_key"):
            demand(not second.refused and answer.repeated, "a retried receipt is recognised", **facts)
            same = answer.receipt.receipt_id == first.answer.receipt.receipt_id
            demand(same, "a retried receipt is the first one", **facts)
            self.seen["receipt replayed"] += 1

    # -- the end ------------------------------------------------------------------------------------------------------

    def sound(self) -> None:
        """What is too slow for every step: SQLite's own checks, and the engine's verification of the whole ledger."""
        faults = self.stores[0].integrity_faults()
        demand(not faults, "the file is sound", faults=faults)
        verified = receipts.verify(self.stores[1])
        assert not isinstance(verified, Refused)
        demand(not verified.faults, "the ledger verifies", faults=verified.faults)
