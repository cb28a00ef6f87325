"""The settings of a gate: what is taken, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.settings import DEFAULTS, is_gate_url, parse
from tests.support import ok, refused

GOOD = ["http://127.0.0.1:7420", "https://gate.example", "https://gate.example/ledger/", "http://[::1]:80"]
BAD = [
    "gate.example",
    "ftp://gate.example",
    "http://",
    "http:///receipts",
    "https://user:secret@gate.example",
    "https://gate.example?token=secret",
    "https://gate.example#x",
    "http://gate.example:99999",
    "http://gate.example:0",
    "http://gate.example:port",
    "http://gate example",
    "http://gäte.example",
    "http://gate.example\n",
    "http://[::1",
    "http://" + "x" * 2048,
]


def test_parse_without_a_gate_has_none() -> None:
    assert (DEFAULTS.receiptgate_url, DEFAULTS.receiptgate_project, DEFAULTS.receiptgate_poll_s) == ("", "", 5)
    assert DEFAULTS.foreign_receipts is False


@pytest.mark.parametrize("url", GOOD)
def test_parse_an_address_is_taken(url: str) -> None:
    assert ok(parse({"tenure": {"receiptgate_url": url, "receiptgate_project": "p"}})).receiptgate_url == url


@pytest.mark.parametrize("url", BAD)
def test_parse_an_address_that_is_none_or_holds_a_secret_is_refused_without_showing_it(url: str) -> None:
    assert not is_gate_url(url)
    refusal = refused(parse({"tenure": {"receiptgate_url": url}}), "invalid_settings")
    assert refusal.facts["setting"] == "tenure.receiptgate_url"
    assert "secret" not in refusal.message


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"receiptgate_url": 5}, "tenure.receiptgate_url"),
    ({"receiptgate_project": "p"}, "tenure.receiptgate_project"),
    ({"receiptgate_url": GOOD[0], "receiptgate_project": "a b"}, "tenure.receiptgate_project"),
    ({"receiptgate_poll_s": 0}, "tenure.receiptgate_poll_s"),
    ({"receiptgate_poll_s": 3601}, "tenure.receiptgate_poll_s"),
    ({"foreign_receipts": "yes"}, "tenure.foreign_receipts"),
    ({"receiptgate_pol_s": 5}, "tenure.receiptgate_pol_s"),
    ({"receiptgate_token": "secret"}, "tenure.receiptgate_token"),
]


@pytest.mark.parametrize(("document", "setting"), REFUSED, ids=[str(document) for document, _ in REFUSED])
def test_parse_a_bad_setting_of_a_gate_is_refused_by_name(document: dict[str, Any], setting: str) -> None:
    refusal = refused(parse({"tenure": document}), "invalid_settings")
    assert refusal.facts["setting"] == setting


def test_parse_a_token_is_refused_with_the_place_where_it_belongs() -> None:
    refusal = refused(parse({"tenure": {"receiptgate_token": "s3cret"}}), "invalid_settings")
    assert "TENURE_RECEIPTGATE_TOKEN" in refusal.next
    assert "s3cret" not in refusal.message + refusal.next + str(refusal.facts)
