"""Changes to JSON texts: what is put in is read back, everything else stays, and cutting it out restores the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.surfaces.cli import edits, jsontext

KEYS = st.sampled_from(["a", "hooks", "mcpServers", "tenure\\", 'q"uote', "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
# What may stand between any two signs of a JSONC text.
GAPS = st.sampled_from(["", " ", "\n", "\n  ", "\r\n\t", " // it's, {[\n", "/* , ] } */", "\n    // more\n    "])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """An object as somebody may have written it."""

    def written(value: Any) -> str:
        gap = draw(GAPS)
        if isinstance(value, dict | list):
            opened, closed = ("{", "}") if isinstance(value, dict) else ("[", "]")
            items = (
                [f"{json.dumps(key)}{draw(GAPS)}:{written(inner)}" for key, inner in value.items()]
                if isinstance(value, dict)
                else [written(inner) for inner in value]
            )
            inside = f"{draw(GAPS)},{draw(GAPS)}".join(items)
            trailing = "," if draw(st.booleans()) and items else ""
            return f"{gap}{opened}{draw(GAPS)}{inside}{draw(GAPS)}{trailing}{draw(GAPS)}{closed}"
        return gap + json.dumps(value, ensure_ascii=draw(st.booleans()))

    return written(draw(st.dictionaries(KEYS, VALUES, max_size=4))) + draw(GAPS)


@given(texts(), st.lists(st.sampled_from(["hooks", "a", "é", "new"]), min_size=1, max_size=3), VALUES, st.booleans())
def test_insertion_is_read_back_and_cut_out_again(text: str, path: list[str], value: Any, append: bool) -> None:
    before = jsontext.scan(text).plain()
    try:
        at, inserted = jsontext.insertion(text, path, value, append=append)
    except jsontext.Fault:
        return
    after = text[:at] + inserted + text[at:]
    expected = json.loads(json.dumps(before))
    place = expected
    for key in path[:-1]:
        place = place.setdefault(key, {})
    if append:
        place[path[-1]] = [value, *place.get(path[-1], [])]
    else:
        assert path[-1] not in place
        place[path[-1]] = value
    assert jsontext.scan(after).plain() == expected
    assert edits.restored(edits.Note(path="x", inserted=(inserted,)), after) is not None
    assert after[:at] + after[at + len(inserted) :] == text


@given(texts())
def test_without_an_item_leaves_the_others(text: str) -> None:
    root = jsontext.scan(text)
    for item in root.items:
        left = {other.key: other.value.plain() for other in root.items if other is not item}
        assert jsontext.scan(jsontext.without(text, root, item)).plain() == left


@pytest.mark.parametrize(
    ("text", "inserted"),
    [
        ("{}", '\n  "k": 1\n'),
        ('{"a": 2}', '"k": 1, '),
        ('{\n\t"a": 2\n}', '\n\t"k": 1,'),
        ('{\r\n    "a": 2\r\n}', '\r\n    "k": 1,'),
        ("", '{\n  "k": 1\n}\n'),
        ("\n", '{\n  "k": 1\n}\n'),
    ],
)
def test_insertion_follows_the_style_of_the_text(text: str, inserted: str) -> None:
    assert jsontext.insertion(text, ["k"], 1, append=False)[1] == inserted


@pytest.mark.parametrize(
    "text", ["{", "{]", '{"a"}', '{"a": }', "{,}", '{"a": 1 "b": 2}', "{} x", "/* {}", "[" * 200, "{1: 2}", "NaN,"]
)
def test_scan_of_what_is_no_json_is_a_fault(text: str) -> None:
    with pytest.raises(jsontext.Fault):
        jsontext.scan(text)


def test_restored_finds_a_piece_that_is_part_of_another() -> None:
    note = edits.Note(path="x", inserted=("[piece]", "piece"))
    assert edits.restored(note, "a[piece]b piece c") == "ab  c"
    assert edits.restored(note, "a[piec]b piece c") is None
