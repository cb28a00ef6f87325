"""Identifiers and texts: how ours are made, and what a user's may look like."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.ids import CROCKFORD, base32, id_fault, lease_id, short_id, text_fault, ulid, worker_id_is_valid

ULID = re.compile(rf"[{CROCKFORD}]{{26}}")


@pytest.mark.parametrize(
    ("style", "pattern"),
    [
        ("cli", rf"L[{CROCKFORD}]{{8}}"),
        ("worker", rf"lease-[{CROCKFORD}]{{26}}"),
        ("agent", rf"lease-[{CROCKFORD}]{{26}}"),
    ],
)
def test_make_lease_id_in_its_style(style: str, pattern: str) -> None:
    assert re.fullmatch(pattern, lease_id(style, 1_767_225_600_000, bytes(range(10))))


def test_make_ulid_has_time_first() -> None:
    assert ulid(0, bytes(10)) == "0" * 26
    assert ulid(1_767_225_600_000, bytes(10)) < ulid(1_767_225_600_001, bytes(10))
    assert ulid(1_767_225_600_000, b"\xff" * 10) < ulid(1_767_225_600_001, bytes(10))


@given(st.integers(0, (1 << 48) - 1), st.integers(0, (1 << 48) - 1), st.binary(min_size=10, max_size=10))
def test_make_ulid_sorts_by_time(one: int, other: int, random: bytes) -> None:
    assert (ulid(one, random) < ulid(other, random)) == (one < other)
    assert ULID.fullmatch(ulid(one, random))


@given(st.integers(0, (1 << 130) - 1))
def test_write_base32_has_no_letters_to_misread(value: int) -> None:
    assert not set("ILOU") & set(base32(value, 26))


def test_make_short_id_uses_all_of_its_randomness() -> None:
    assert len({short_id("T-", bytes([0] * 7 + [byte])) for byte in range(256)}) == 256


@pytest.mark.parametrize(
    "good", ["F001", "a", "0", "worker.codegen-aws-i-1234567", "A1+x@host", "x" * 128, "T-01HTZQ8S3C8Y8Y1QJQ5Y8Z9F6G"]
)
def test_check_id_takes_what_people_use(good: str) -> None:
    assert id_fault(good) is None


@pytest.mark.parametrize(
    ("value", "because"),
    [
        ("", "nothing"),
        ("-x", "a command line would take it for a flag"),
        (".hidden", "git refuses a component that begins with a dot"),
        ("_x", "begins with no letter or digit"),
        ("a..b", "git refuses two dots"),
        ("a.", "git refuses a dot at the end"),
        ("a.lock", "git refuses .lock"),
        ("a/b", "a path"),
        ("a b", "a space"),
        ("a\nb", "a line break"),
        ("a\x00", "a control character"),
        ("é", "not ASCII: two spellings of one name"),
        ("\ud800", "half a surrogate pair"),
        ("NA", "a receipt's word for nothing"),
        ("TBD", "a receipt's word for nothing"),
        ("x" * 129, "too long"),
        ("x" * 1_000_000, "far too long"),
    ],
)
def test_check_id_refuses(value: str, because: str) -> None:
    assert id_fault(value) is not None, because


def test_check_kind_may_have_slashes_and_colons() -> None:
    assert id_fault("code/generate:v2", kind=True) is None
    assert id_fault("code.generate/", kind=True) is not None


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("worker.codegen-aws-i-1234567", True),
        ("worker.a.b", True),
        ("worker", False),
        ("worker.", False),
        (".a", False),
        ("worker..a", False),
        ("wor ker.a", False),
        ("", False),
    ],
)
def test_check_worker_id_is_type_dot_instance(value: str, valid: bool) -> None:
    assert worker_id_is_valid(value) is valid


@pytest.mark.parametrize(
    ("value", "one_line", "faulty", "because"),
    [
        ("Grüße 🎉", True, False, "any script, any symbol"),
        ("a\nb\tc\r\n", False, False, "a text has lines"),
        ("a\nb", True, True, "a line has none"),
        ("a\tb", True, True, "nor tabs"),
        ("a\x1b[31m", False, True, "a terminal's escape"),
        ("a\x00", False, True, "NUL"),
        ("\u200d\u00a0\ue000\u2028", True, False, "what cannot be printed may still be harmless"),
        ("\u200d\u00a0\x1b", True, True, "and may hide what is not"),
        ("a\nb\x85", False, True, "a line's end of its own"),
        ("a\x7f", False, True, "DEL"),
        ("a\x9b", False, True, "the one-character escape"),
        ("a\ud800", False, True, "half a surrogate pair"),
        ("x" * 100, False, False, "exactly the limit"),
        ("x" * 101, False, True, "one byte more"),
        ("é" * 51, False, True, "bytes count, not characters"),
    ],
)
def test_check_text(value: str, one_line: bool, faulty: bool, because: str) -> None:
    assert (text_fault(value, 100, one_line=one_line) is not None) is faulty, because


def test_check_text_far_too_long_costs_nothing() -> None:
    """The length is judged before the characters: a megabyte of nonsense must not keep the server busy."""
    text = "x" * 20_000_000
    before = time.process_time()
    for _ in range(20):
        assert text_fault(text, 100, one_line=True) is not None
    assert time.process_time() - before < 0.5
