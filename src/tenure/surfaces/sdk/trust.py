"""How long a worker may believe that it holds its lease. Pure: times are seconds on the worker's own clock.

The server counts a lease's term from the moment it handles a request, which is never before the worker began to send
it. So a term counted from the *start* of the request ends before the server's does, however long the answer took:

    trusted until  =  start of the last request that renewed  +  term  −  margin

The margin is for stopping the handler. Work ends before the lease can lapse, never after. A heartbeat is due after a
third of the term, so that two may fail in a row before anything is lost.

A long poll is a request too, and may have waited long before its offer was made: then the trust that the offer gives is
short or over, a heartbeat is due at once, and the worker sends it before it starts the handler.

Limit: a clock that stands still (a suspended machine) or a process that is not scheduled cannot stop anything in time.
The engine refuses what comes from a lapsed lease; what the handler does elsewhere must be fenced there, by the token.
"""

from __future__ import annotations

from dataclasses import dataclass

BEAT_SHARE = 1 / 3
MARGIN_SHARE, MARGIN_MIN_S, MARGIN_MAX_S = 1 / 10, 0.1, 10.0
RETRY_SHARE, RETRY_MIN_S, RETRY_MAX_S = 1 / 12, 0.25, 5.0


@dataclass
class Trust:
    """What a worker knows about one lease. A term of None is not known yet: only a heartbeat tells."""

    renewed_at_s: float
    term_s: float | None = None
    # The user's margin; None for a tenth of the term, within bounds. Never more than half of it.
    wanted_margin_s: float | None = None
    retry_at_s: float | None = None

    @property
    def margin_s(self) -> float:
        """How long before the lease can lapse the work must have been stopped."""
        term_s = self.term_s or 0.0
        usual_s = min(max(term_s * MARGIN_SHARE, MARGIN_MIN_S), MARGIN_MAX_S)
        return min(usual_s if self.wanted_margin_s is None else self.wanted_margin_s, term_s / 2)

    @property
    def until_s(self) -> float:
        """Until when the lease is trusted."""
        return self.renewed_at_s + (self.term_s or 0.0) - self.margin_s

    @property
    def beat_at_s(self) -> float:
        """When the next heartbeat is due."""
        return self.renewed_at_s + (self.term_s or 0.0) * BEAT_SHARE if self.retry_at_s is None else self.retry_at_s

    def holds(self, now_s: float) -> bool:
        """Whether work may go on now."""
        return now_s < self.until_s

    def renewed(self, started_at_s: float, term_s: float) -> None:
        """A heartbeat that began then was answered with this term."""
        self.renewed_at_s, self.term_s, self.retry_at_s = started_at_s, term_s, None

    def retry_s(self) -> float:
        """How soon to repeat what was not answered: the sooner, the shorter the term."""
        return min(max((self.term_s or 0.0) * RETRY_SHARE, RETRY_MIN_S), RETRY_MAX_S)

    def missed(self, now_s: float) -> None:
        """A heartbeat was not answered."""
        self.retry_at_s = now_s + self.retry_s()
