"""What follows a command's commit: git is looked at where a holder was lost.

It never changes what the command did, and its own failure is nobody's: a handoff that nobody could look at says so and
waits for somebody else.
"""

from __future__ import annotations

from tenure.worktree.attach import attach_to_lease, attach_waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.core.errors import Refused
    from tenure.core.model import Handoff
    from tenure.store.store import Store


def look_after(store: Store, refusal: Refused | None) -> Refused | None:
    """Look at what the holders left whose leases this command ended, and at what a lost one did since."""
    try:
        if store.handed_over:
            attach_waiting(store)
        lost = refusal.facts.get("your_lease") if refusal is not None and refusal.code == "lease_lost" else None
        handoff = attach_to_lease(store, str(lost)) if lost else None
        return refusal if refusal is None or handoff is None else _with_rescue(refusal, handoff)
    except Exception:
        import logging

        logging.getLogger("tenure").exception("git could not be looked at")
        return refusal


def _with_rescue(refusal: Refused, handoff: Handoff) -> Refused:
    """The refusal with where the work is now."""
    import json

    ref = json.loads(handoff.git or "{}").get("rescue_ref")
    if not ref or ref == refusal.facts.get("saved"):
        return refusal
    # Before the last sentence, which says what to do.
    told, stop, last = refusal.next.rpartition(". ")
    text = f"{told}{stop}Uncommitted work is saved in {ref}. {last}"
    return refusal.replace(next=text, facts={**refusal.facts, "saved": ref})
