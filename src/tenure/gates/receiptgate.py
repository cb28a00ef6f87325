"""The monitor that carries receipts between our ledger and an external ReceiptGate.

Each project that names a gate has one link to it. A tick sends what the ledger has gained, in its order, and every few
seconds reads what the gate has gained: `accepted` and `complete` receipts of our tasks, which workers reported there,
act as if they had been reported to us.

Promised: the gate gets every receipt at least once and in order, and holds each once, since it knows a receipt again by
its id; what is read is applied exactly once; both go on where they stopped, after a restart as after an outage. One
receipt that the gate will never take is parked, one that we cannot apply is told in an event, and neither stops the
others. Parked receipts are sent again when an operator asks for it, before anything newer. Not promised: that a gate
which lost its own ledger gets the old receipts again; it needs another address or another project, which begin anew.

Several servers on one store may run this at once. They send the same receipts, which the gate tells apart; cursors only
grow, and what is read is applied by whoever commits first.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

from tenure.core.errors import Refused
from tenure.engine import gates
from tenure.engine.receipts import list_receipts
from tenure.monitors.recovery import MonitorFailure
from tenure.store.store import StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tenure.core.model import Receipt
    from tenure.core.settings import Settings
    from tenure.store.store import Store, Transaction

BACKOFF_S = (5.0, 10.0, 20.0, 40.0, 60.0)
# How long to sleep when no project names a gate; a changed setting wakes us earlier.
IDLE_S = 60.0
SEND_AT_ONCE = 100
# A tick sends no longer than this, so that stopping the server does not wait for a slow gate to take a long backlog.
SEND_FOR_S = 5.0
# Receipts of other projects are passed over without a note, until this many would have to be passed over again.
NOTE_EVERY = 1_000
# How far what the store says of our last exchange with a gate may lag while all is well.
NOTE_HEARD_S = 60.0

log = logging.getLogger("tenure.gates")


class Client(Protocol):
    """What a link needs of a gate (client.py)."""

    def submit(self, body: Mapping[str, Any]) -> str | None: ...
    def after(self, seq: int) -> list[tuple[int, dict[str, Any]]]: ...
    def close(self) -> None: ...


if TYPE_CHECKING:
    # Address, project at the gate, token.
    Connect = Callable[[str, str, str], Client]


def connect(url: str, project: str, token: str) -> Client:
    """A client over HTTP. Imported here, so that a server without a gate does not load an HTTP client."""
    from tenure.gates.client import GateClient

    return GateClient(url, project, token)


class Backoff:
    """When to try again: at once while all goes well, and ever later while it does not."""

    def __init__(self) -> None:
        self.failures = 0
        self.next_at = 0.0
        self.error = ""

    def failed(self, now: float, error: str) -> None:
        self.next_at = now + BACKOFF_S[min(self.failures, len(BACKOFF_S) - 1)]
        self.failures += 1
        self.error = error

    def succeeded(self, next_at: float) -> None:
        self.failures = 0
        self.next_at = next_at
        self.error = ""


class Link:
    """One project of ours and its gate. Sending and reading fail and recover each for itself."""

    def __init__(self, store: Store, name: gates.GateName, client: Client, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._name = name
        self._client = client
        self._monotonic = monotonic
        self._sending = Backoff()
        self._reading = Backoff()
        self._state = store.look(lambda tx: gates.state(tx, name))
        # How far our ledger was looked through; the saved cursor lags behind where there was nothing to send.
        self._looked_to = self._state.sent_seq
        self._counts = {"sent": 0, "applied": 0, "refused": 0}
        # When the gate last answered, when the store was last told so, and whether anything was asked in this tick.
        self._heard_at: float | None = None
        self._noted_at: float | None = None
        self._asked = False

    def close(self) -> None:
        self._client.close()

    def tick(self, poll_s: float) -> float:
        """Do what is due; return in how many seconds to be called again."""
        self._asked = False
        self._try("sending to", self._sending, self._send, 0.0)
        self._try("reading from", self._reading, self._read, poll_s)
        self._note()
        self._state = self._store.look(lambda tx: gates.state(tx, self._name))
        now = self._monotonic()
        # Sending has nothing to wait for but a write, which wakes us, and its backoff.
        at = [self._reading.next_at, *([self._sending.next_at] if self._sending.next_at else [])]
        return max(0.0, min(at) - now)

    def facts(self) -> dict[str, Any]:
        """What can be seen of this link."""
        heard_at = self._heard_at
        return {
            **self._name.as_dict(),
            **self._state.as_dict(),
            **self._counts,
            "error": self._error,
            "last_exchange_age_s": None if heard_at is None else round(max(0.0, self._monotonic() - heard_at), 3),
        }

    @property
    def _error(self) -> str:
        return self._sending.error or self._reading.error

    def _heard(self) -> None:
        """The gate answered us as a gate does; that it refused a receipt is an answer, too."""
        self._asked = True
        self._heard_at = self._monotonic()

    def _note(self) -> None:
        """Tell the store how the gate does, for those who look from elsewhere: when that changes, and now and then.

        Only after the gate was asked: of two servers that fare differently, each write would wake the other to write.
        """
        if not self._asked:
            return
        heard_at = self._heard_at
        lags = heard_at is not None and (self._noted_at is None or heard_at - self._noted_at >= NOTE_HEARD_S)
        error = self._error[: gates.DETAIL_CHARS]
        if not lags and error == self._state.error:
            return
        age_ms = None if heard_at is None else round(max(0.0, self._monotonic() - heard_at) * 1000)
        self._store.run(lambda tx: gates.heard(tx, self._name, age_ms, error))
        self._noted_at = heard_at

    def _try(self, what: str, backoff: Backoff, step: Callable[[], bool], pause_s: float) -> None:
        # Imported here for the same reason as in `connect`.
        from tenure.gates.client import GateDown

        now = self._monotonic()
        if now < backoff.next_at:
            return
        try:
            more = step()
        except GateDown as down:
            if not backoff.failures:
                log.warning("%s the gate %s failed: %s", what, self._name.gate, down)
            self._asked = True
            backoff.failed(self._monotonic(), str(down))
        else:
            now = self._monotonic()
            backoff.succeeded(now if more else now + pause_s if pause_s else 0.0)

    # -- sending ----------------------------------------------------------------------------------------------------

    def _send(self) -> bool:
        """Send a bounded part of what the gate still has to get; whether there is more."""
        until = self._monotonic() + SEND_FOR_S
        # First, because they are older than all that waits behind the cursor.
        if self._send_again(until):
            return True
        after = max(self._looked_to, self._state.sent_seq)
        page = list_receipts(self._store, after=after, limit=SEND_AT_ONCE)
        if isinstance(page, Refused):
            raise MonitorFailure(page)
        if not page:
            return False
        for receipt in self._store.look(lambda tx: gates.to_send(tx, self._name, page)):
            if self._monotonic() > until:
                self._sent_to(self._looked_to)
                return True
            try:
                reason = self._submit(receipt)
            except Exception:
                # What went before is delivered. This one may be, too; it is sent again, and the gate will know it.
                self._sent_to(self._looked_to)
                raise
            if reason is None:
                self._counts["sent"] += 1
            else:
                self._park(receipt, reason)
            self._looked_to = receipt.seq
        delivered = self._looked_to > after
        self._looked_to = page[-1].seq
        if delivered or self._looked_to - self._state.sent_seq > NOTE_EVERY:
            self._sent_to(self._looked_to)
        return len(page) == SEND_AT_ONCE

    def _send_again(self, until: float) -> bool:
        """Send parked receipts that are wanted sent again; whether there are more.

        Each leaves the queue by a commit of its own after the gate's answer. Until then it stays in it, and a gate that
        gets it twice knows it again.
        """
        queue = self._store.look(lambda tx: gates.to_resend(tx, self._name, SEND_AT_ONCE))
        for receipt in queue:
            if self._monotonic() > until:
                return True
            reason = self._submit(receipt)
            if reason is None:
                self._counts["sent"] += 1
                self._resent(receipt)
            else:
                self._park(receipt, reason, again=True)
        return len(queue) == SEND_AT_ONCE

    def _submit(self, receipt: Receipt) -> str | None:
        try:
            body = json.loads(receipt.body)
        except ValueError:
            # Somebody changed the store by hand; `verify` names it, and the others must still get through.
            return "its stored body is not JSON any more"
        reason = self._client.submit(body)
        self._heard()
        return reason

    def _park(self, receipt: Receipt, reason: str, *, again: bool = False) -> None:
        log.warning("the gate %s refused receipt %s: %s", self._name.gate, receipt.receipt_id, reason)
        park = gates.park_again if again else gates.park
        self._store.run(lambda tx: park(tx, self._name, receipt, reason))

    def _resent(self, receipt: Receipt) -> None:
        self._store.run(lambda tx: gates.resent(tx, self._name, receipt))

    def _sent_to(self, seq: int) -> None:
        if seq > self._state.sent_seq:
            self._store.run(lambda tx: gates.sent(tx, self._name, seq))

    # -- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Apply a page of what the gate has gained; whether there was anything, and so perhaps more."""
        page = self._client.after(self._state.read_seq)
        self._heard()
        if not page:
            return False
        ours = self._store.look(lambda tx: [(seq, body) for seq, body in page if self._concerns_us(tx, body)])
        for seq, body in ours:
            outcome = self._take(seq, body)
            if outcome in self._counts:
                self._counts[outcome] += 1
        self._store.run(lambda tx: gates.read(tx, self._name, page[-1][0]))
        return True

    def _concerns_us(self, tx: Transaction, body: dict[str, Any]) -> bool:
        return gates.concerns_us(tx, self._name, body) is not None

    def _take(self, seq: int, body: dict[str, Any]) -> str:
        try:
            return self._store.run(lambda tx: gates.take(tx, self._name, seq, body))
        except StoreFault:
            raise
        except Exception as error:
            # Nothing of it was written. Trying the same again would fail the same way and hold up the others.
            log.exception("a receipt of the gate %s could not be applied", self._name.gate)
            reason = f"internal_error: {type(error).__name__}"
            self._store.run(lambda tx: gates.skip(tx, self._name, seq, body, reason))
            return "refused"


class ReceiptGate:
    """Keeps a link for every project whose settings name a gate."""

    name = "receiptgate"
    watches_writes = True

    def __init__(
        self,
        store: Store,
        token: str = "",
        *,
        connect: Connect = connect,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._token = token
        self._connect = connect
        self._monotonic = monotonic
        self._links: dict[gates.GateName, Link] = {}

    def tick(self) -> float:
        wanted = self._store.look(gates.configured)
        for name in [name for name in self._links if name not in wanted]:
            self._links.pop(name).close()
        waits = [self._link(name, settings).tick(settings.receiptgate_poll_s) for name, settings in wanted.items()]
        return min(waits, default=IDLE_S)

    def facts(self) -> list[dict[str, Any]]:
        """What can be seen of every link, for whoever asks how the server does. Reads no store: any thread may ask."""
        return [link.facts() for link in list(self._links.values())]

    def close(self) -> None:
        """Close every connection."""
        while self._links:
            self._links.popitem()[1].close()

    def _link(self, name: gates.GateName, settings: Settings) -> Link:
        if name not in self._links:
            project = settings.receiptgate_project or name.project_id
            client = self._connect(settings.receiptgate_url, project, self._token)
            self._links[name] = Link(self._store, name, client, self._monotonic)
        return self._links[name]
