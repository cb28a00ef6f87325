"""What is kept of a program's output: its last lines, as a reader of the handoff can use them."""

from __future__ import annotations

import re

from tenure.core.handoff import plain_lines
from tenure.engine.links import TAIL_BYTES

KEPT_BYTES = 64 * 1024
LINES = 60
# A line that was drawn over: what stands before a carriage return was replaced by what follows it.
_DRAWN_OVER = re.compile(r"[^\n]*\r(?=[^\n\r])")


class Tail:
    """The end of everything a program wrote, whatever stream or terminal it wrote it to."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """More output."""
        self._kept += data
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]

    def text(self) -> str:
        """The last lines, without colours and control characters, within what a handoff takes."""
        text = self._kept[-KEPT_BYTES:].decode(errors="replace").replace("\r\n", "\n")
        lines = [line for line in plain_lines(_DRAWN_OVER.sub("", text)) if line]
        kept = "\n".join(lines[-LINES:])
        return kept.encode()[-TAIL_BYTES:].decode(errors="ignore")
