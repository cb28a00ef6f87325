"""What is remembered of checked inputs never lets a bad one pass."""

from __future__ import annotations

import pytest

from tenure.core import inputs
from tenure.core.errors import Refused


@pytest.mark.parametrize("value", ["", "NA", "a b", "a..b", "x" * 129, "-a", "é", None, 7, ["F001"], {}])
def test_ident_given_a_bad_one_refuses_it_each_time(value: object) -> None:
    for _ in range(3):
        assert isinstance(inputs.ident("task_id", value), Refused)


def test_ident_given_more_good_ones_than_it_remembers_still_knows_good_from_bad() -> None:
    for number in range(2 * inputs._GOOD_MAX + 1):
        assert inputs.ident("task_id", f"F{number}") == f"F{number}"
    assert len(inputs._GOOD) <= inputs._GOOD_MAX
    assert isinstance(inputs.ident("task_id", "F 1"), Refused)
    assert inputs.ident("task_id", "F1") == "F1"
