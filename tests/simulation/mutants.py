"""Rules broken on purpose. Each is a mistake somebody could make; the simulation has to notice every one.

A mutant replaces a function wherever it was imported by name, or a query's text. `python -m tests.simulation.mutants`
prints which seed notices which mutant, and by which invariant.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tenure.core import assignment, deadline, ids
from tenure.engine import agents, callers, change, claims, holding, idempotency, load, recovery, touch
from tenure.store import queries, store
from tests.simulation.runner import run_seed

Patch = pytest.MonkeyPatch


def everywhere(patch: Patch, original: Any, mutant: Any) -> None:
    """Replace a function under every name the engine knows it by."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tenure."):
            for attribute, value in list(vars(module).items()):
                if value is original:
                    patch.setattr(module, attribute, mutant)


def sql(patch: Patch, **rewritten: Callable[[str], str]) -> None:
    """Rewrite named queries in every store that is opened from now on."""
    load_all = queries.load

    def loaded(*filenames: str) -> dict[str, str]:
        found = load_all(*filenames)
        for name, rewrite in rewritten.items():
            text = rewrite(found[name])
            assert text != found[name], f"the mutant of {name} changes nothing"
            found[name] = text
        return found

    patch.setattr(queries, "load", loaded)


def boundary_is_live(patch: Patch) -> None:
    """The instant of the deadline still counts as live."""
    original = deadline.live
    everywhere(patch, original, lambda lease, now_ms: original(lease, now_ms - 1))


def death_is_ignored(patch: Patch) -> None:
    """A process that was seen to exit keeps its lease."""
    everywhere(patch, deadline.recover_at_ms, _undead)


def _undead(lease: Any) -> int:
    if lease.fixed or lease.state == "offered":
        return int(lease.expires_at_ms)
    return max(deadline.rule_ms(lease), deadline.pulse_ms(lease), deadline.announcement_ms(lease))


def lease_id_is_not_compared(patch: Patch) -> None:
    """A caller is matched by agent alone: a zombie of the same name acts on its successor's lease."""
    patch.setattr(holding, "_is_of", lambda lease, caller, agent_id: lease.agent_id == agent_id)


def handoff_is_forgotten(patch: Patch) -> None:
    """A recovery writes no handoff."""
    patch.setattr(recovery, "hand_over", lambda tx, task, lease, reason, settings, *, attempts: task)


def handoff_is_not_shown(patch: Patch) -> None:
    """The next holder is not told what the last one left."""
    patch.setattr(load, "handoffs_of", lambda tx, task_key: [])


def token_is_the_time(patch: Patch) -> None:
    """The token is the clock alone, which stands still and runs backwards."""
    original = change.grant

    def grant(tx: Any, task: Any, *rest: Any, **named: Any) -> Any:
        return original(tx, task.replace(last_token=0), *rest, **named)

    patch.setattr(change, "grant", grant)


def graves_are_not_asked(patch: Patch) -> None:
    """A task that is added again under a deleted one's name begins with new tokens."""
    sql(patch, grave=lambda text: text.replace("max(last_token)", "0 * max(last_token)"))


def unmet_is_ignored(patch: Patch) -> None:
    """The queue gives out what waits for something unfinished."""
    sql(patch, ready=lambda text: text.replace(" AND r.unmet = 0", ""))


def unmet_is_ignored_by_name(patch: Patch) -> None:
    """A claim by name does not ask whether the dependencies are done."""
    met = assignment.Condition(name="dependencies", holds=True, detail="all done")
    patch.setattr(assignment, "_dependencies", lambda task, unmet: met)


def touch_revives(patch: Patch) -> None:
    """A touch extends a lease that is due but not recovered yet."""
    patch.setattr(touch, "live", lambda lease, now_ms: lease.state in ("offered", "active"))


def pulse_revives(patch: Patch) -> None:
    """A pulse carries a lease that is due already."""
    patch.setattr(agents, "live", lambda lease, now_ms: lease.state in ("offered", "active"))


def completion_leaves_the_obligation(patch: Patch) -> None:
    """A finished task still owes."""
    kept = "obligation = CASE WHEN :status = 'done' THEN obligation ELSE :obligation END"
    sql(patch, save_task=lambda text: text.replace("obligation = :obligation", kept))


def completion_unlocks_nobody(patch: Patch) -> None:
    """Dependants are not told that what they wait for is done."""
    sql(patch, unlock_dependants=lambda text: text.replace("unmet - 1", "unmet"))


def reopening_locks_nobody(patch: Patch) -> None:
    """Dependants of a reopened task stay ready."""
    sql(patch, lock_dependants=lambda text: text.replace("unmet + 1", "unmet"))


def clock_step_moves_nothing(patch: Patch) -> None:
    """A step of the wall clock ages everybody."""
    sql(patch, shift_leases=lambda text: text.replace("+ :by_ms", "+ 0 * :by_ms"))


def boot_gives_no_term(patch: Patch) -> None:
    """A reboot does not give a fresh term."""
    sql(patch, reboot_leases=lambda text: text.replace("expires_at_ms = :now_ms + term_ms", "expires_at_ms = :now_ms"))


def pulses_carry_for_ever(patch: Patch) -> None:
    """A pulsing link carries a hung agent without limit."""
    everywhere(patch, deadline.pulse_ms, lambda lease: 0 if lease.pulsed_at_ms is None else lease.pulsed_at_ms + 15_000)


def deafness_is_ignored(patch: Patch) -> None:
    """Silence counts although nobody could hear."""
    everywhere(patch, deadline.judged_at_ms, lambda lease, now_ms: now_ms)


def one_exit_is_death(patch: Patch) -> None:
    """An exit seen by one link is believed while another link pulses."""
    patch.setattr(agents, "_pulses", lambda link, now_ms: False)


def old_incarnations_speak(patch: Patch) -> None:
    """An older run of an agent is taken for the present one."""
    original = callers.known_agent
    everywhere(patch, original, lambda tx, agent_id, incarnation: original(tx, agent_id, None))


def retries_are_forgotten(patch: Patch) -> None:
    """A retried claim is a new claim."""
    patch.setattr(idempotency, "replay", lambda tx, key, kept_hours: None)


def healing_steals(patch: Patch) -> None:
    """A returning holder is given its task back without asking the assignment filter."""
    patch.setattr(claims, "refusal_to_give", lambda *given: None)


def recovery_ends_nothing(patch: Patch) -> None:
    """A recovery or a release leaves the lease unended, so that the next look recovers it again."""
    sql(patch, end_lease=lambda text: text.replace("state = :state,", "state = state,"))


def timer_is_not_lowered(patch: Patch) -> None:
    """An earlier deadline does not wake anybody earlier."""
    original = change.extend

    def extend(tx: Any, before: Any, after: Any) -> Any:
        return original(tx, before.replace(wake_at_ms=0), after)

    everywhere(patch, original, extend)


def refusals_roll_forward(patch: Patch) -> None:
    """A refused step keeps what it wrote before it was refused."""

    def attempt(self: Any, step: Callable[[], Any]) -> Any:
        return step()

    patch.setattr(store.Transaction, "attempt", attempt)


def commit_in_the_middle(patch: Patch) -> None:
    """A verb commits what it settled at once, so that a kill leaves half of it."""

    def settle(self: Any) -> None:
        self._cursor.execute("COMMIT")
        self._cursor.execute("BEGIN IMMEDIATE")

    patch.setattr(store.Transaction, "settle", settle)


def lease_ids_repeat(patch: Patch) -> None:
    """Lease ids carry no randomness, so that knowing one proves nothing."""
    patch.setattr(ids, "lease_id", lambda style, now_ms, random: f"lease-{now_ms}")


MUTANTS: tuple[Callable[[Patch], None], ...] = (
    boundary_is_live,
    death_is_ignored,
    lease_id_is_not_compared,
    handoff_is_forgotten,
    handoff_is_not_shown,
    token_is_the_time,
    graves_are_not_asked,
    unmet_is_ignored,
    unmet_is_ignored_by_name,
    touch_revives,
    pulse_revives,
    completion_leaves_the_obligation,
    completion_unlocks_nobody,
    reopening_locks_nobody,
    clock_step_moves_nothing,
    boot_gives_no_term,
    pulses_carry_for_ever,
    deafness_is_ignored,
    one_exit_is_death,
    old_incarnations_speak,
    retries_are_forgotten,
    healing_steals,
    recovery_ends_nothing,
    timer_is_not_lowered,
    refusals_roll_forward,
    commit_in_the_middle,
    lease_ids_repeat,
)


def first_seed_that_notices(mutant: Callable[[Patch], None], seeds: int) -> tuple[int, str] | None:
    """The first seed that fails under this mutant, and what it says."""
    for seed in range(seeds):
        with pytest.MonkeyPatch.context() as patch:
            mutant(patch)
            outcome = run_seed(seed)
        if outcome.failure:
            return seed, outcome.failure.strip().splitlines()[-1].partition(",")[0][:110]
    return None


if __name__ == "__main__":
    for mutant in MUTANTS:
        noticed = first_seed_that_notices(mutant, 200)
        print(f"{mutant.__name__:34} {'NOBODY' if noticed is None else f'seed {noticed[0]}: {noticed[1]}'}", flush=True)
