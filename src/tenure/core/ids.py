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
    return _instant(now_ms) + base32(int.from_bytes(random[:10], "big"), 16)


_INSTANTS: dict[int, str] = {}
_INSTANTS_MAX = 100


def _instant(now_ms: int) -> str:
    """The time in a ULID: 48 bits in ten digits. What is made at one instant shares it."""
    digits = _INSTANTS.get(now_ms)
    if digits is None:
        if len(_INSTANTS) >= _INSTANTS_MAX:
            _INSTANTS.clear()
        digits = _INSTANTS[now_ms] = base32(now_ms & (1 << 48) - 1, 10)
    return digits


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
    rest = value if one_line else value.replace("\n", "").replace("\t", "").replace("\r", "")
    # Nearly every text can be printed, and then it holds nothing of the kind. Other texts may still be harmless.
    if not rest.isprintable():
        for character in rest:
            if character < " " or "\x7f" <= character <= "\x9f":
                return f"contains the control character U+{ord(character):04X}"
            if "\ud800" <= character <= "\udfff":
                return "contains half of a surrogate pair, which is not text"
    return f"is longer than {max_bytes} bytes" if len(value.encode()) > max_bytes else None
