"""The vocabulary of refusal: exit statuses are pinned, and the table holds exactly the codes that the source uses."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tenure
from tenure.core import errors
from tenure.core.errors import CODES, Refused, refuse

SOURCE = Path(tenure.__file__).parent
# Codes that are built from a status (holding.py): f"task_{status}".
BUILT = {"task_blocked", "task_dead"}
# Codes of surfaces that are specified and not written yet; each must leave this list with its surface.
AWAITED = {"internal_error", "invalid_worker_id", "not_permitted", "overloaded", "unhealthy"}


def test_exit_statuses_are_pinned() -> None:
    assert {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")} == {
        "EXIT_OK": 0,
        "EXIT_INTERNAL": 1,
        "EXIT_USAGE": 2,
        "EXIT_NOT_FOUND": 3,
        "EXIT_HELD": 4,
        "EXIT_NOTHING_READY": 5,
        "EXIT_LEASE_LOST": 6,
        "EXIT_STATE": 7,
        "EXIT_NOT_PERMITTED": 8,
        "EXIT_STORE": 9,
    }


@pytest.mark.parametrize(
    ("exit_status", "codes", "because"),
    [
        (1, {"internal_error"}, "our own mistake"),
        (4, {"already_claimed", "task_assigned"}, "a claim refused because someone has it, and nothing else"),
        (5, {"nothing_ready"}, "nothing to do"),
        (6, {"lease_lost", "superseded"}, "a holder that is none any more"),
    ],
)
def test_exit_status_with_one_meaning_has_only_its_codes(exit_status: int, codes: set[str], because: str) -> None:
    assert {code for code, row in CODES.items() if row[0] == exit_status} == codes, because


@pytest.mark.parametrize("code", ["not_holder", "reserved_name", "not_permitted"])
def test_exit_status_of_what_is_not_permitted_is_eight(code: str) -> None:
    assert CODES[code][0] == 8


def test_exit_status_follows_the_name_of_a_code() -> None:
    for code, (exit_status, http_status, what_next) in CODES.items():
        assert what_next.endswith("."), code
        assert 400 <= http_status < 600, code
        assert code.endswith("_not_found") == (exit_status == 3), code
        assert exit_status == 9 or not code.startswith("store_"), code
        assert http_status == 503 or exit_status != 9, code
        assert exit_status == 2 or not code.startswith("invalid_"), code


def test_refuse_takes_status_and_advice_from_the_table() -> None:
    plain = refuse("lease_lost", "Gone.", holder="A2")
    assert (plain.exit_status, plain.http_status, plain.next) == (6, 409, CODES["lease_lost"][2])
    assert plain.facts == {"holder": "A2"}
    assert refuse("lease_lost", "Gone.", "Do this.").next == "Do this."


def test_refuse_with_a_code_nobody_knows_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        refuse("no_such_code", "?")


def _words() -> set[str]:
    """Every string in the source that is not a docstring, except in the table itself."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        if path.name == "errors.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def _refused_codes() -> set[str]:
    """The literal first arguments of refuse(...), fault(...) and of the settings' and receipts' own helpers."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name in ("refuse", "fault") and isinstance(node.args[0].value, str):
                    found.add(node.args[0].value)
    return found


def test_every_code_in_the_source_is_in_the_table() -> None:
    assert len(_refused_codes()) > 20, "the search finds them"
    assert _refused_codes() <= set(CODES)


def test_every_code_in_the_table_is_used() -> None:
    unused = set(CODES) - _words() - BUILT
    assert unused <= AWAITED, "remove what nothing can be refused with"


def test_refusal_is_immutable() -> None:
    with pytest.raises(AttributeError):
        refuse("lease_lost", "Gone.").code = "task_done"  # type: ignore[misc]
    assert isinstance(refuse("lease_lost", "Gone."), Refused)
