"""Immutable records that cost nothing to import.

A coding agent's hook runs `tenure touch` on every tool call, so the rules and the model must load hardly slower than
Python itself. `dataclasses` alone doubles the start of the interpreter (it imports `inspect`); this base class gives
what we use of it: keyword construction, defaults, equality, `replace`, and a readable repr. Type checkers see a frozen,
keyword-only dataclass.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

    _T = TypeVar("_T")
else:

    def dataclass_transform(**_: Any) -> Callable[[_T], _T]:
        """Stands in for typing's marker, which only type checkers read."""
        return lambda cls: cls


# More combinations than any record is made of; who makes them up as they go must not fill the memory.
_SHAPES_MAX = 100


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """Base of every value the engine passes around. Fields are the annotations; class attributes are their defaults."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()
    # Every field in its order with its default, for `as_dict`.
    _template: ClassVar[dict[str, Any]] = {}
    # The combinations of fields, in the order they were given, that are known to make a record.
    _shapes: ClassVar[set[tuple[str, ...]]] = set()

    def __init_subclass__(cls) -> None:
        names: dict[str, None] = {}
        for base in reversed(cls.__mro__):
            if base is not object and base is not Record:
                names.update(dict.fromkeys(name for name in base.__annotations__ if not name.startswith("_")))
        cls._fields = tuple(names)
        cls._names = frozenset(names)
        cls._required = frozenset(name for name in names if not hasattr(cls, name))
        cls._template = {name: getattr(cls, name, None) for name in names}
        cls._shapes = set()

    def __init__(self, **values: Any) -> None:
        # The same few calls make all records of a class: whether their names fit is found out once for each.
        if tuple(values) not in self._shapes:
            self._check(values)
        # The keyword arguments are a dict of our own already; a copy would be the dearest part of a record.
        _fill(self, values)

    @classmethod
    def _check(cls, values: dict[str, Any]) -> None:
        if not cls._required <= values.keys():
            raise TypeError(f"{cls.__name__} misses {', '.join(sorted(cls._required - values.keys()))}")
        if not values.keys() <= cls._names:
            raise TypeError(f"{cls.__name__} has no field {', '.join(sorted(values.keys() - cls._names))}")
        if len(cls._shapes) >= _SHAPES_MAX:
            cls._shapes.clear()
        cls._shapes.add(tuple(values))

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        """The record of a row that is known to fit: its columns were named after the fields. Keeps the dict."""
        record = _new(cls)
        _fill(record, row)
        return record

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; use replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash(tuple(self.as_dict().items()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"{type(self).__name__}({shown})"

    def as_dict(self) -> dict[str, Any]:
        """Every field with its value, defaults included, in declaration order."""
        return self._template | self.__dict__

    def replace(self, **changes: Any) -> Self:
        """The same record with some fields changed."""
        before = self.__dict__
        values = before | changes
        if len(values) > len(before) and not changes.keys() <= self._names:
            self._check(values)
        changed = _new(type(self))
        _fill(changed, values)
        return changed


_new = object.__new__
# How an immutable record gets its values: by the way that its __setattr__ closes to everybody else.
_fill = Record.__dict__["__dict__"].__set__
