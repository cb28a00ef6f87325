"""One project and its board, kept in step: deliver, listen, sweep.

    deliver   what changed here goes there: read the card, apply what somebody did to it meanwhile, write what is left,
              read again, and keep what took. Then the card's comments, each looked up by its key before it is posted.
    listen    what the board's activity (or its webhook) says that people touched is read and judged.
    sweep     every card is listed and judged; cards nobody knows become tasks; cards that are missing are asked for.

Promised: what is committed here is delivered in the end, through restarts of either side; no card and no comment is
made twice; an act of a person is applied once; a failed, partial or empty listing changes nothing. One write that the
board will not take is parked and shown, and does not stop the others. Everything that talks to the board is outside of
transactions; everything that decides is inside of one.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tenure.boards.port import BoardDown, BoardFault
from tenure.core.reconcile import missing_cards
from tenure.core.record import Record
from tenure.engine import boards as steps
from tenure.engine.board_acts import BOARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tenure.boards.port import BoardApi, Card
    from tenure.core.reconcile import CardState
    from tenure.engine.board_acts import Acted
    from tenure.store.store import Store

CARDS_AT_ONCE = 50
# A round of deliveries lasts no longer than this, so that listening and stopping need not wait for a long backlog.
DELIVER_FOR_S = 5.0
# Begins the key of a comment, in its last line.
MARK = "tenure:"

log = logging.getLogger("tenure.boards")


class Swept(Record):
    """What a sweep or a reconciliation found: true counts of what it did."""

    cards: int = 0
    imported: int = 0
    kept: int = 0
    removed: int = 0
    restored: int = 0
    reassigned: int = 0
    external: int = 0
    completed: int = 0
    blocked: int = 0
    freed: int = 0
    deleted: int = 0
    edited: int = 0
    refused: int = 0
    reversions: int = 0
    # Cards that the server said are gone once, and are asked for again.
    suspected: int = 0
    # Delivered before the cards were judged, and what is still to be.
    delivered: int = 0
    pending: int = 0


_COUNTED = {
    "keep": "kept",
    "remove": "removed",
    "keep_for": "reassigned",
    "restore": "restored",
    "external": "external",
    "complete": "completed",
    "complete_by": "completed",
    "block": "blocked",
    "free": "freed",
}


class Sync:
    """Used by one thread at a time; other threads and other processes may run their own on the same store."""

    def __init__(
        self, store: Store, project_id: str, board: BoardApi, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._project = project_id
        self._board = board
        self._monotonic = monotonic
        # What was done since the sweep or the reconciliation under way began.
        self._counts: dict[str, int] = dict.fromkeys(Swept._fields, 0)

    def close(self) -> None:
        self._board.close()

    # -- deliver ----------------------------------------------------------------------------------------------------

    def deliver(self, for_s: float = DELIVER_FOR_S) -> int:
        """Deliver what is due, for some time; how many cards were delivered. Raises BoardDown."""
        while self._store.run(lambda tx: steps.collect(tx, self._project)):
            pass
        until = self._monotonic() + for_s
        done = 0
        while keys := self._store.look(lambda tx: steps.due(tx, self._project, CARDS_AT_ONCE)):
            for key in keys:
                done += self._deliver(key)
                if self._monotonic() > until:
                    return done
        return done

    def _deliver(self, key: int) -> bool:
        job = self._store.run(lambda tx: steps.take(tx, key))
        if job is None:
            return False
        try:
            if job.task is None:
                self._retire(job.row.key, job.row.card_id)
            else:
                self._state(job)
        except BoardDown as down:
            told = str(down)
            self._store.run(lambda tx: steps.failed(tx, key, told, counts=False))
            raise
        except BoardFault as fault:
            told = str(fault)
            log.info("card of %s: %s", job.row.task_id, told)
            self._store.run(lambda tx: steps.failed(tx, key, told, counts=True))
            return False
        return True

    def _retire(self, key: int, card_id: str) -> None:
        if card_id:
            card = self._board.card(card_id)
            if card is not None and not card.closed:
                self._board.retire(card_id)
        self._store.run(lambda tx: steps.retired(tx, key))

    def _state(self, job: steps.Job) -> None:
        """Bring one card to its task's state."""
        row = job.row
        card, fresh = self._card_of(job)
        links = self._needs(card.card_id)
        state = card.state.replace(needs=links)
        judged = self._store.run(
            lambda tx: steps.deliverable(tx, row.key, state, self._board.shown, BOARD, fresh=fresh)
        )
        if judged is None:
            return
        self._count(judged.acted)
        if judged.writes:
            self._write(card, judged.writes)
            again = self._board.card(card.card_id)
            if again is None:
                raise BoardFault(f"card {card.card_id} went away while it was written")
            after = again.state.replace(needs=self._needs(card.card_id) if "needs" in judged.writes else links)
        else:
            after = state
        missed = self._comments(card.card_id, judged.comments)
        failed = self._store.run(lambda tx: steps.acked(tx, judged, after, self._board.shown))
        if failed:
            raise BoardFault(f"the board did not take: {', '.join(failed)}")
        if missed:
            raise BoardFault(missed)

    def _card_of(self, job: steps.Job) -> tuple[Card, bool]:
        """The task's card, made if there is none; whether it was made here."""
        row, task = job.row, job.task
        assert task is not None
        if row.card_id:
            card = self._board.card(row.card_id)
            if card is None or card.born != row.born:
                raise BoardFault(f"card {row.card_id} is not there")
            return card, False
        card = self._board.find(task.task_id)
        fresh = card is None
        if card is None:
            wanted = self._store.look(lambda tx: steps.wanted_card(tx, task, None))
            fault = None
            try:
                self._board.create(task.task_id, self._board.shown(wanted))
            except BoardFault as error:
                # It may have taken effect all the same.
                fault = error
            card = self._board.find(task.task_id)
            if card is None:
                raise fault or BoardFault(f"the card of {task.task_id} was made and is not there")
        found = card
        if not self._store.run(lambda tx: steps.made(tx, row.key, found.card_id, found.born)):
            raise BoardFault(f"card {found.card_id} belongs to another task")
        return found, fresh

    def _needs(self, card_id: str) -> tuple[str, ...]:
        links = self._board.links(card_id)
        return self._store.look(lambda tx: steps.needs_from(tx, self._project, links))

    def _write(self, card: Card, writes: Any) -> None:
        """Write; an error is settled by what a read shows afterwards."""
        fields = {name: value for name, value in writes.items() if name != "needs"}
        try:
            if fields:
                self._board.write(card, fields)
            if "needs" in writes:
                self._link(card.card_id, writes["needs"])
        except BoardFault as fault:
            log.info("a write to card %s: %s", card.card_id, fault)

    def _link(self, card_id: str, needs: Iterable[str]) -> None:
        wanted = self._store.look(lambda tx: steps.cards_for(tx, self._project, list(needs)))
        cards = {card for card in wanted.values() if card}
        have = set(self._board.links(card_id))
        for other in sorted(cards - have):
            self._board.link(card_id, other, True)
        for other in sorted(have - cards):
            # A link to a card that is no task of ours is nobody's to remove but theirs who made it.
            if self._is_ours(other):
                self._board.link(card_id, other, False)

    def _is_ours(self, card_id: str) -> bool:
        return self._store.look(lambda tx: steps.card_named(tx, self._project, card_id)) is not None

    def _comments(self, card_id: str, comments: Sequence[tuple[str, str]]) -> str:
        """Post what the board does not have yet; what went wrong, if anything did."""
        if not comments:
            return ""
        have = self._board.comments(card_id)
        missed = ""
        for key, text in comments:
            mark = f"({MARK}{key})"
            if not any(mark in comment for comment in have):
                try:
                    self._board.comment(card_id, f"{text}\n\n{mark}")
                except BoardFault as fault:
                    missed = str(fault)
                    self._store.run(partial(steps.not_said, comment_key=key, error=missed))
                    continue
            self._store.run(partial(steps.said, comment_key=key))
        return missed

    # -- listen -----------------------------------------------------------------------------------------------------

    def listen(self, hints: Iterable[str] = ()) -> int:
        """Judge the cards that people touched, by the board's account or by a webhook's; how many."""
        board = self._store.look(lambda tx: steps.board_of(tx, self._project))
        if board is None:
            return 0
        changes, place = self._board.changed(board.feed)
        read_from = board.feed

        authors = {change.card_id: change.author for change in changes if not change.comment}
        linked = {change.card_id for change in changes if change.links}
        for card_id in hints:
            authors.setdefault(card_id, BOARD)
        touched = 0
        for card_id, author in authors.items():
            touched += self._look_at(card_id, author, links=card_id in linked)
        if changes or place != read_from:
            # Noted after the cards were judged: who dies in between reads the same rows again, and finds nothing to do.
            said = [
                steps.Heard(card_id=one.card_id, author=one.author, text=one.comment) for one in changes if one.comment
            ]
            self._store.run(lambda tx: steps.heard(tx, self._project, said, read_from, place))
        return touched

    def _look_at(self, card_id: str, actor: str, *, links: bool) -> bool:
        read_at = self._store.look(lambda tx: steps.changes_of(tx, self._project))
        try:
            card = self._board.card(card_id)
            if card is not None and links:
                card = card.replace(state=card.state.replace(needs=self._needs(card_id)))
        except BoardFault:
            # Of another project, or broken: the sweep says what it is.
            return False
        if card is None:
            return False
        self._count(self._meet(card, read_at, actor)[0])
        return True

    # -- sweep ------------------------------------------------------------------------------------------------------

    def sweep(self) -> Swept:
        """Look at every card. Raises BoardDown or BoardFault, and then nothing was changed."""
        self._counts = dict.fromkeys(Swept._fields, 0)
        self._sweep()
        return Swept(**self._counts)

    def _sweep(self, *, believe: bool = False) -> None:
        read_at = self._store.look(lambda tx: steps.changes_of(tx, self._project))
        cards = list(self._board.listing())
        known = self._store.look(lambda tx: steps.linked_cards(tx, self._project))
        names = [(row.card_id, row.born) for row in known]
        missing = missing_cards(names, [(card.card_id, card.born) for card in cards], believe=believe)
        if missing is None:
            told = f"a listing of {len(cards)} cards where {len(known)} are known is not believed"
            raise BoardFault(f"{told}; if people did delete them: tenure reconcile --believe")
        self._counts["cards"] = len(cards)
        imported = []
        for card in cards:
            acted, new = self._meet(card, read_at, BOARD)
            if new:
                self._counts["imported"] += 1
                imported.append(card)
            self._count(acted)
        self._import_links(imported)
        for row in known:
            if (row.card_id, row.born) in missing:
                self._ask_for(row.key, row.card_id, row.born)
        self._store.run(lambda tx: steps.swept(tx, self._project))

    def reconcile(self, *, believe: bool = False) -> Swept:
        """Listen, deliver what waits, look at every card, give every task a card, deliver again: a start's one pass.

        `believe`: somebody says that so many cards were deleted. Each is still asked for, and twice.
        """
        self._counts = dict.fromkeys(Swept._fields, 0)
        self.listen()
        delivered = self.deliver()
        self._sweep(believe=believe)
        if believe and self._counts["suspected"]:
            self._counts["suspected"] = 0
            self._sweep(believe=True)
        while self._store.run(lambda tx: steps.adopt_tasks(tx, self._project)):
            pass
        delivered += self.deliver()
        view = self._store.look(lambda tx: steps.show_board.body(tx, project_id=self._project))
        self._counts.update(delivered=delivered, pending=getattr(view, "pending", 0))
        return Swept(**self._counts)

    def _meet(self, card: Card, read_at: int, actor: str) -> tuple[Acted | None, bool]:
        """Judge a card that was read when the count of changes was `read_at`; a new one becomes a task."""

        def decide(tx: Any) -> tuple[Acted | None, bool]:
            state: CardState = card.state
            named = (card.card_id, card.born, card.reference)
            key, new = steps.meet(tx, self._project, *named, state, card.closed)
            if key is None or new:
                return None, new
            return steps.judge(tx, key, state, self._board.shown, actor, read_at=read_at), False

        return self._store.run(decide)

    def _import_links(self, cards: Iterable[Card]) -> None:
        """Dependencies of imported cards, when all of them are tasks."""
        for card in cards:
            read_at = self._store.look(lambda tx: steps.changes_of(tx, self._project))
            state = card.state.replace(needs=self._needs(card.card_id))
            if state.needs:
                self._store.run(partial(self._judge_links, card=card, state=state, read_at=read_at))

    def _judge_links(self, tx: Any, card: Card, state: CardState, read_at: int) -> None:
        row = steps.card_named(tx, self._project, card.card_id)
        if row is not None:
            steps.judge(tx, row.key, state, self._board.shown, BOARD, read_at=read_at)

    def _ask_for(self, key: int, card_id: str, born: str) -> None:
        """A card that a listing did not show: only the server's own word for its id counts, and only twice."""
        try:
            card = self._board.card(card_id)
        except BoardFault:
            return
        if card is not None and card.born == born:
            return
        certain = self._store.run(lambda tx: steps.gone(tx, key))
        self._counts["deleted" if certain else "suspected"] += 1

    def _count(self, acted: Acted | None) -> None:
        """Count what was done about a card."""
        if acted is None:
            return
        self._counts["edited" if acted.action is None else _COUNTED[acted.action]] += 1
        self._counts["refused"] += len(acted.refusals)
        self._counts["reversions"] += acted.reversion is not None
