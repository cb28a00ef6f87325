"""What git shows of a lost holder is attached to its handoff after the transaction that wrote it.

Git is never run inside a transaction. Whoever recovered, shows a claim, or runs the monitor on the holder's machine
asks what is to be looked at, looks, and writes down what was seen. A handoff says `look` until somebody did, and says
it again when its holder proves to have gone on working.
"""

from __future__ import annotations

from tenure.core import inputs
from tenure.core.errors import Refused, refuse
from tenure.core.handoff import with_rescue
from tenure.core.model import Handoff
from tenure.core.record import Record
from tenure.engine import change, ledger, load, recovery
from tenure.engine.verb import query, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tenure.core.settings import Settings
    from tenure.store.store import Transaction

FACTS_MAX = 65_536
# A holder that is refused again and again is looked at no more often than this.
LOOK_EVERY_MS = 5_000


class Look(Record):
    """Something to look at: a handoff, its task, and the settings that say how."""

    handoff: Handoff
    task_id: str
    project_id: str
    settings: Settings


@query(host=inputs.text(256, one_line=True), limit=inputs.limit)
def handoffs_to_look_at(tx: Transaction, *, host: str, limit: int = 8) -> tuple[Look, ...]:
    """The handoffs whose holders worked on this machine and whose worktrees nobody has looked at yet."""
    rows = tx.all("handoffs_to_look_at", host=host, not_since_ms=tx.now_ms - LOOK_EVERY_MS, limit=limit)
    return tuple(_look(tx, Handoff(**row)) for row in rows)


@query(
    handoff_ids=inputs.each(inputs.ident),
    lease_id=inputs.optional(inputs.ident),
    agent_id=inputs.optional(inputs.ident),
)
def handoffs_named(
    tx: Transaction, *, handoff_ids: Sequence[str] = (), lease_id: str | None = None, agent_id: str | None = None
) -> tuple[Look, ...]:
    """Handoffs by their ids, the one of a lease, an agent's newest, with what is needed to look at git for them."""
    rows = [tx.one("handoff_by_id", handoff_id=handoff_id) for handoff_id in handoff_ids]
    rows += [tx.one("handoff_of_lease", lease_id=lease_id)] if lease_id is not None else []
    rows += [tx.one("last_handoff_of", agent_id=agent_id)] if agent_id is not None else []
    return tuple(_look(tx, Handoff(**row)) for row in rows if row is not None)


def _look(tx: Transaction, handoff: Handoff) -> Look:
    task = load.task_by_key(tx, handoff.task_key)
    settings = load.settings_for(tx, task.project_id)
    assert not isinstance(settings, Refused)
    return Look(handoff=handoff, task_id=task.task_id, project_id=task.project_id, settings=settings)


@verb(handoff_id=inputs.ident, facts=inputs.json_object(FACTS_MAX), looked=inputs.flag)
def attach_facts(
    tx: Transaction, *, handoff_id: str, facts: str | Mapping[str, Any], looked: bool = True
) -> Handoff | Refused:
    """Add to what a handoff knows: what git showed, what its process printed. Facts said before and not now stay.

    With `looked` false somebody else may still look: what is attached is only a part.
    """
    import json

    row = tx.one("handoff_by_id", handoff_id=handoff_id)
    if row is None:
        return refuse("handoff_not_found", f"There is no handoff {handoff_id}.", handoff_id=handoff_id)
    handoff = Handoff(**row)
    known = json.loads(handoff.git) if handoff.git else {}
    # The check turned what the caller gave into its text.
    added = json.loads(str(facts)) if facts else {}
    merged = {**known, **added}
    look = 0 if looked else handoff.look
    text = json.dumps(merged, sort_keys=True, ensure_ascii=True)
    instructions = with_rescue(handoff.instructions, merged)
    tx.do("attach_facts", handoff_id=handoff_id, git=text, instructions=instructions, look=look, now_ms=tx.now_ms)
    _note_rescue(tx, handoff, known, merged)
    _note_head(tx, handoff, merged)
    return handoff.replace(git=text, instructions=instructions, look=look, looked_at_ms=tx.now_ms)


def _note_rescue(tx: Transaction, handoff: Handoff, known: dict[str, Any], facts: dict[str, Any]) -> None:
    """Newly saved work is an event; if the task went on meanwhile, its thread is told."""
    commit = facts.get("rescue_commit")
    if not commit or commit == known.get("rescue_commit"):
        return
    task = load.task_by_key(tx, handoff.task_key)
    change.record(
        tx,
        "rescued",
        task=task,
        agent_id=handoff.recovered_from_agent,
        ref=facts.get("rescue_ref"),
        files=facts.get("rescue_files"),
    )
    if known.get("rescue_commit"):
        text = f"Uncommitted work of {handoff.recovered_from_agent} was saved once more, in {facts.get('rescue_ref')}."
        recovery.post(tx, task, sender=ledger.SOURCE, kind="news", text=text)


def _note_head(tx: Transaction, handoff: Handoff, facts: dict[str, Any]) -> None:
    """Commits that the last recovery did not know are a sign of work: the recoveries without one begin anew."""
    head = str(facts.get("head") or "") if facts.get("commits") else ""
    if not head:
        return
    task = load.task_by_key(tx, handoff.task_key)
    before, _, known = task.evidence.rpartition("|")
    if head != known:
        tx.do("set_evidence", key=task.key, evidence=f"{before}|{head}")
