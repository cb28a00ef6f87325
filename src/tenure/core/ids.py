"""Identifiers: how ours are made, and what a user's may look like.

Randomness and time are arguments, so that a simulated fleet is the same fleet every time it is run from its seed.
"""

from __future__ import annotations

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in CROCKFORD for low in CROCKFORD]
ID_MAX = 128
RESERVED_WORDS = ("NA", "TBD")

_FIRST = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_REST = _FIRST + "._-+@"
_KIND = _REST + "/:"


def base32(value: int, length: int) -> str:
    """The lowest `length` base-32 digits of a number, in Crockford's alphabet (no I, L, O, U to misread)."""
    pairs = [_PAIRS[value >> shift & 1023] for shift in range(10 * ((length - 1) // 2), -1, -10)]
    return "".join(pairs)[length % 2 :]


def ulid(now_ms: int, random: bytes) -> str:
    """A ULID: 48 bits of time, then 80 random bits; 26 characters that sort by time."""
    return base32((now_ms & (1 << 48) - 1) << 80 | int.from_bytes(random[:10], "big"), 26)


def short_id(prefix: str, random: bytes) -> str:
    """A prefix and eight characters: what people read aloud and type (`L1234ABCD`)."""
    return prefix + base32(int.from_bytes(random[:8], "big"), 8)


def lease_id(style: str, now_ms: int, random: bytes) -> str:
    """A new lease's id. It is random because, inside the engine, knowing it is what fences."""
    return short_id("L", random) if style == "cli" else "lease-" + ulid(now_ms, random)


def id_fault(value: str, *, kind: bool = False) -> str | None:
    """What is wrong with a user's identifier, or None. Every id must be safe as one component of a git ref."""
    if not value:
        return "is empty"
    if len(value) > ID_MAX:
        return f"is longer than {ID_MAX} characters"
    if value in RESERVED_WORDS:
        return "is a word by which receipts say that there is nothing"
    if value[0] not in _FIRST:
        return "must start with a letter or a digit"
    # Stripped of what is allowed, nothing is left.
    if value.strip(_KIND if kind else _REST):
        return "may hold only letters, digits and . _ - + @" + (" / :" if kind else "")
    if ".." in value or value.endswith((".", ".lock", "/")):
        return "may not contain '..' or end in '.' or '.lock', since branches and refs are named after it"
    return None


def worker_id_is_valid(value: str) -> bool:
    """`{type}.{instance}`, both parts present."""
    kind, dot, instance = value.partition(".")
    return bool(dot and kind and instance) and id_fault(value) is None


def text_fault(value: str, max_bytes: int, *, one_line: bool) -> str | None:
    """What is wrong with a user's text, or None. Control characters could rewrite the terminal of whoever reads it."""
    # The length first, so that a hostile megabyte costs nothing.
    if len(value) > max_bytes:
        return f"is longer than {max_bytes} bytes"
    allowed = "" if one_line else "\n\t\r"
    for character in value:
        if (character < " " and character not in allowed) or "\x7f" <= character <= "\x9f":
            return f"contains the control character U+{ord(character):04X}"
        if "\ud800" <= character <= "\udfff":
            return "contains half of a surrogate pair, which is not text"
    return f"is longer than {max_bytes} bytes" if len(value.encode()) > max_bytes else None
