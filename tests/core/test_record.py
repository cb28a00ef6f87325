"""Records: what makes one, what does not, and that none ever changes."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.record import Record


class Point(Record):
    x: int
    y: int = 2
    name: str = ""


def test_record_given_its_fields_has_them_and_its_defaults() -> None:
    assert Point(x=1).as_dict() == {"x": 1, "y": 2, "name": ""}
    assert list(Point(name="a", x=1).as_dict()) == ["x", "y", "name"], "in the order they were declared"
    assert Point(x=1) == Point(y=2, x=1)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "Point misses x"),
        ({"y": 1}, "Point misses x"),
        ({"x": 1, "z": 1}, "Point has no field z"),
    ],
)
def test_record_given_other_fields_is_refused_each_time(fields: dict[str, Any], says: str) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=says):
            Point(**fields)


def test_record_given_more_combinations_than_it_remembers_still_knows_its_fields() -> None:
    class Wide(Record):
        a: int = 0
        b: int = 0
        c: int = 0
        d: int = 0
        e: int = 0

    names = "abcde"
    for number in range(5**4):
        chosen = dict.fromkeys(names[(number // 5**place) % 5] for place in range(4))
        assert Wide(**dict.fromkeys(chosen, 1)).as_dict() == dict.fromkeys(names, 0) | dict.fromkeys(chosen, 1)
    with pytest.raises(TypeError, match="has no field z"):
        Wide(z=1)  # type: ignore[call-arg]


def test_replace_given_a_field_changes_a_copy() -> None:
    before = Point(x=1)
    assert before.replace(x=3, name="b") == Point(x=3, name="b")
    assert before == Point(x=1)


@pytest.mark.parametrize("before", [Point(x=1), Point(x=1, y=1, name="a")], ids=["with defaults", "with all fields"])
def test_replace_given_no_field_of_it_is_refused(before: Point) -> None:
    with pytest.raises(TypeError, match="Point has no field z"):
        before.replace(z=1)


def test_record_is_not_changed_by_assignment() -> None:
    point = Point(x=1)
    with pytest.raises(AttributeError, match="immutable"):
        point.x = 2  # type: ignore[misc]
    assert point.x == 1
