"""What Tenure needs of a board. Another board is one file that has these methods (docs/boards.md shows how).

Three things can go wrong, and only three. `BoardDown`: the board cannot be used now; nothing is known, everything is
tried again later. `BoardFault`: this call failed, and may still have taken effect; what it was about is read and tried
again. A card that is not there is `None`, and only a server that was reached and said so may answer that.

Cards are named by `card_id` and `born`: boards use ids again, and a card that was made at another time is another card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tenure.core.reconcile import CardState
from tenure.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class BoardDown(Exception):
    """The board cannot be used now."""


class BoardFault(Exception):
    """One call failed; it may have taken effect."""


class Card(Record):
    """A card as read. `state.needs` is None; `links` are read apart, because that is a call for each card."""

    card_id: str
    born: str
    reference: str
    state: CardState
    # Put away by somebody: counts as done, and is not imported.
    closed: bool = False
    # What the board itself needs to write this card (a swimlane, a position).
    more: Mapping[str, Any] = {}


class Change(Record):
    """Something that people did, by the board's own account. `comment` is what they wrote, if that is what they did."""

    card_id: str
    author: str
    comment: str = ""
    comment_id: str = ""
    links: bool = False


class Finding(Record):
    """One line of a report: what was looked at, whether it is well, and what to do if not."""

    check: str
    well: bool
    detail: str
    repair: str = ""


class BoardApi(Protocol):
    """A board, for one project of ours. Used by one thread at a time."""

    def check(self) -> Sequence[Finding]:
        """Whether it can be reached, and whether the mapping fits what is there."""

    def listing(self) -> Sequence[Card]:
        """Every card, or an exception. Never a part of them."""

    def card(self, card_id: str) -> Card | None:
        """One card; None if the server says that there is none."""

    def find(self, reference: str) -> Card | None:
        """The card that carries this reference, if there is one."""

    def create(self, reference: str, state: CardState) -> None:
        """Make a card that carries the reference. Found again with `find`, because the answer may be lost."""

    def write(self, card: Card, changes: Mapping[str, Any]) -> None:
        """Write fields of a card (all but needs)."""

    def links(self, card_id: str) -> Sequence[str]:
        """The ids of the cards that this one waits for."""

    def link(self, card_id: str, other: str, wanted: bool) -> None:
        """Make a card wait for another, or not any more."""

    def comments(self, card_id: str) -> Sequence[str]:
        """The texts of a card's comments."""

    def comment(self, card_id: str, text: str) -> None:
        """Post a comment."""

    def retire(self, card_id: str) -> None:
        """Put away the card of a task that was deleted."""

    def changed(self, cursor: str) -> tuple[Sequence[Change], str]:
        """What people did after a place in the board's activity, and the new place. An empty cursor: only the place."""

    def shown(self, state: CardState) -> CardState:
        """The state as this board is able to show it."""

    def close(self) -> None:
        """Give back connections."""
