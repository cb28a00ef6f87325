"""Server-Sent Events, as far as `/events` uses them: fields until an empty line make one event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from tenure.surfaces.sdk.errors import Unavailable

if TYPE_CHECKING:
    from tenure.surfaces.sdk.facts import EventFacts

# The server says that it is still there every 15 seconds; three times that is silence.
SILENCE_S = 45.0
# A broken stream is read on from where it was; there is no work to be lost in between, only time.
RECONNECT_S = (0.5, 1.0, 2.0, 5.0, 10.0)


class EventReader:
    """Takes lines, gives events, and remembers where it is: `last_id` is what a new connection resumes after."""

    def __init__(self, after: int | None) -> None:
        self.last_id = after
        self._data: list[str] = []
        self._kind = ""

    def feed(self, line: str) -> EventFacts | None:
        """The event that this line completes, if it does."""
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._kind = value
            elif name == "id" and value.isdigit():
                self.last_id = int(value)
            return None
        data, kind = "\n".join(self._data), self._kind
        self._data, self._kind = [], ""
        if not data:
            return None
        if kind == "error":
            raise Unavailable(f"the event stream ended: {data}")
        return cast("EventFacts", json.loads(data))

    def headers(self) -> dict[str, str]:
        """What a connection sends to go on from here."""
        return {} if self.last_id is None else {"Last-Event-ID": str(self.last_id)}
