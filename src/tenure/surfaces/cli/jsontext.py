"""Changes to a JSON file that keep every other byte of it: comments, order, spacing.

A client's settings belong to their user. So nothing is parsed and written again: a value is put in as text, right after
the bracket that opens its object or list, and taken out the same way. One change is one insertion, which makes the way
back exact. Comments and trailing commas (JSONC) are understood wherever they stand.
"""

from __future__ import annotations

import json

from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

SPACE = " \t\r\n\ufeff"


class Fault(ValueError):
    """The text is not JSON, or not of the shape that is needed."""


class Item(Record):
    """A member of an object or an element of a list, with where it stands."""

    key: str | None
    start: int
    value: Node


class Node(Record):
    """A value and its place in the text. `at` is the value itself where it is neither object nor list."""

    kind: str
    start: int
    end: int
    items: tuple[Item, ...] = ()
    at: Any = None

    def member(self, key: str) -> Node | None:
        """The value of a key; of several the last, which is the one that programs read."""
        found = [item.value for item in self.items if item.key == key]
        return found[-1] if self.kind == "object" and found else None

    def plain(self) -> Any:
        """The value as Python has it."""
        if self.kind == "object":
            return {item.key: item.value.plain() for item in self.items}
        if self.kind == "list":
            return [item.value.plain() for item in self.items]
        return self.at


def scan(text: str) -> Node:
    """The text's value with all places."""
    reader = _Reader(text)
    node = reader.value(0)
    reader.space()
    if reader.at != len(text):
        raise Fault(f"something stands behind its end ({reader.where()})")
    return node


class _Reader:
    """Reads JSON with comments and trailing commas."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def where(self) -> str:
        return f"line {self.text.count(chr(10), 0, self.at) + 1}"

    def space(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] in SPACE:
                self.at += 1
            elif self.text.startswith("//", self.at):
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text.startswith("/*", self.at):
                end = self.text.find("*/", self.at + 2)
                if end < 0:
                    raise Fault(f"a comment has no end ({self.where()})")
                self.at = end + 2
            else:
                return

    def value(self, depth: int) -> Node:
        self.space()
        if depth > 100:
            raise Fault(f"it is nested too deeply ({self.where()})")
        head = self.text[self.at : self.at + 1]
        if head in ("{", "["):
            return self.items("object" if head == "{" else "list", depth)
        start = self.at
        scalar = self.scalar()
        return Node(kind="scalar", start=start, end=self.at, at=scalar)

    def items(self, kind: str, depth: int) -> Node:
        start, close = self.at, "}" if kind == "object" else "]"
        items: list[Item] = []
        self.at += 1
        while True:
            self.space()
            if self.text[self.at : self.at + 1] == close:
                self.at += 1
                return Node(kind=kind, start=start, end=self.at, items=tuple(items))
            begin, key = self.at, None
            if kind == "object":
                key = self.scalar()
                self.space()
                if not isinstance(key, str) or self.text[self.at : self.at + 1] != ":":
                    raise Fault(f"a name and a colon are expected ({self.where()})")
                self.at += 1
            items.append(Item(key=key, start=begin, value=self.value(depth + 1)))
            self.space()
            mark = self.text[self.at : self.at + 1]
            if mark == ",":
                self.at += 1
            elif mark != close:
                raise Fault(f"a comma or {close} is expected ({self.where()})")

    def scalar(self) -> Any:
        try:
            value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except ValueError:
            raise Fault(f"a value is expected ({self.where()})") from None
        return value


def insertion(text: str, path: Sequence[str], value: Any, *, append: bool) -> tuple[int, str]:
    """Where to put what, so that `path` holds the value, or with `append` a list that has it as an element.

    Of the path as much as exists is used; the rest comes with the value.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    if not text.strip(SPACE):
        whole = _wrapped(path, [value] if append else value)
        return len(text), json.dumps(whole, indent=2, ensure_ascii=False).replace("\n", newline) + newline
    root = node = scan(text)
    rest = list(path)
    while rest:
        inner = node.member(rest[0])
        if inner is None:
            break
        node = inner
        rest.pop(0)
    wanted = "object" if rest else "list"
    if node.kind != wanted or (not rest and not append):
        name = ".".join(path[: len(path) - len(rest)]) or "the file"
        raise Fault(f"{name} is not {'an object' if wanted == 'object' else 'a list'}")
    if rest:
        inside = _wrapped(rest[1:], [value] if append else value)
        return _put(text, root, node, inside, f"{json.dumps(rest[0], ensure_ascii=False)}: ", newline)
    return _put(text, root, node, value, "", newline)


def _wrapped(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _put(text: str, root: Node, node: Node, value: Any, key: str, newline: str) -> tuple[int, str]:
    """The text of a new first item of an object or a list."""
    at = node.start + 1
    unit = _indent(text, root.items[0].start) if root.items else None
    unit = unit or "  "
    outer = _line_indent(text, node.start)
    first = _indent(text, node.items[0].start) if node.items else None
    if node.items and first is None:
        # Everything stands on one line, and so does the new item.
        return at, key + json.dumps(value, ensure_ascii=False) + ", "
    indent = outer + unit if first is None else first
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    body = newline + indent + key + (newline + indent).join(lines)
    return at, body + "," if node.items else body + newline + outer


def _indent(text: str, start: int) -> str | None:
    """What stands before an item on its line; None where it does not begin the line."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    return before if "\n" in text[:start] and not before.strip(" \t") else None


def _line_indent(text: str, start: int) -> str:
    """The indent of the line that something stands on."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    return line[: len(line) - len(line.lstrip(" \t"))]


def without(text: str, container: Node, item: Item) -> str:
    """The text without one item of an object or a list, with its comma and the space before it."""
    index = container.items.index(item)
    end = _comma(text, item.value.end)
    if index == 0 or end is not None:
        start = container.start + 1 if index == 0 else _comma(text, container.items[index - 1].value.end)
        assert start is not None
        return text[:start] + text[item.value.end if end is None else end :]
    return text[: container.items[index - 1].value.end] + text[item.value.end :]


def _comma(text: str, at: int) -> int | None:
    """The place behind the comma that follows, or None where none does."""
    reader = _Reader(text)
    reader.at = at
    reader.space()
    return reader.at + 1 if text[reader.at : reader.at + 1] == "," else None
