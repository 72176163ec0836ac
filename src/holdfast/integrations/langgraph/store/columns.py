"""Finding items by namespace, by filter and by age, without looking at each of them.

`Columns` keeps the fields that were ever filtered on as arrays of numbers: a filter over 100,000
items takes a millisecond. `Listing` does the same item by item where numpy is not installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from holdfast.integrations.langgraph.store.filters import ORDERED, accepts, fits, has_operators
from holdfast.integrations.langgraph.store.item_keys import decode

FOREVER = (1 << 63) - 1
_FIRST = 1024


class Row:
    """One item as searches see it. It is never changed, only replaced."""

    __slots__ = (
        "created",
        "expires",
        "key",
        "name",
        "namespace",
        "number",
        "places",
        "ttl",
        "updated",
        "value",
        "vectors",
        "weight",
    )  # fmt: skip

    def __init__(self, key: str, record: Mapping[str, Any]) -> None:
        self.key = key
        self.namespace, self.name = decode(key, record)
        self.value: dict[str, Any] | None = record["value"]
        """None if memory is full: then it is read when it is needed."""
        self.created: int = record["created"]
        self.updated: int = record["updated"]
        self.ttl: float | None = record.get("ttl")
        self.expires: int = record.get("expires", FOREVER)
        self.vectors: int = record.get("vectors", 0)
        self.number = -1
        self.places: tuple[int, ...] = ()
        self.weight = 0


Values = Callable[[list[Row]], Iterator[tuple[Row, dict[str, Any]]]]
"""Gives the values of items, also of those that are not held in memory."""


class Finder(Protocol):
    """What finds items. A selection is the finder's own affair."""

    def add(self, row: Row) -> None:
        """Take in an item, whose value is there."""

    def drop(self, row: Row) -> None:
        """Forget an item."""

    def select(self, prefix: tuple[str, ...], wanted: Mapping[str, Any] | None, now: int) -> Any:
        """The items below a namespace that fit a filter and have not expired."""

    def newest(self, selection: Any, first: int, last: int) -> list[Row]:
        """Items first..last of a selection, newest first."""

    def namespaces(self, selection: Any) -> set[tuple[str, ...]]:
        """The namespaces that a selection's items are in."""


class Listing:
    """Looks at every item."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._rows: dict[str, Row] = {}

    def add(self, row: Row) -> None:
        self._rows[row.key] = row

    def drop(self, row: Row) -> None:
        del self._rows[row.key]

    def select(
        self, prefix: tuple[str, ...], wanted: Mapping[str, Any] | None, now: int
    ) -> list[Row]:
        depth, accept = len(prefix), accepts(wanted)
        rows = self._rows.values()
        found = [row for row in rows if row.namespace[:depth] == prefix and row.expires > now]
        if accept is not None:
            found = [row for row, value in self._values(found) if accept(value)]
        return found

    def newest(self, selection: list[Row], first: int, last: int) -> list[Row]:
        return sorted(selection, key=lambda row: row.updated, reverse=True)[first:last]

    def namespaces(self, selection: list[Row]) -> set[tuple[str, ...]]:
        return {row.namespace for row in selection}


class Columns:
    """Keeps what is selected by in arrays; a selection is a mask over the items' numbers."""

    def __init__(self, numpy: Any, values: Values) -> None:
        self._np = numpy
        self._values = values
        self._rows: list[Row | None] = []
        self._free: list[int] = []
        self._updated = numpy.zeros(_FIRST, dtype=numpy.int64)
        self._expires = numpy.zeros(_FIRST, dtype=numpy.int64)
        self._space = numpy.zeros(_FIRST, dtype=numpy.int32)
        self._codes: dict[tuple[str, ...], int] = {}
        self._spaces: list[tuple[str, ...]] = []
        self._below: dict[tuple[str, ...], list[int]] = {}
        self._columns: dict[str, _Column] = {}

    # keeping

    def add(self, row: Row) -> None:
        if self._free:
            row.number = self._free.pop()
            self._rows[row.number] = row
        else:
            row.number = len(self._rows)
            self._rows.append(row)
            if row.number == len(self._updated):
                self._grow()
        self._updated[row.number] = row.updated
        self._expires[row.number] = row.expires
        self._space[row.number] = self._code(row.namespace)
        assert row.value is not None
        for field, column in list(self._columns.items()):
            column.put(row.number, row.value.get(field))
            if len(column.values) > 2 * len(self._rows) + _FIRST:
                del self._columns[field]  # mostly values that are no more: made anew when needed

    def _grow(self) -> None:
        size = len(self._updated) * 3 // 2
        resized = self._np.resize
        self._updated = resized(self._updated, size)
        self._expires = resized(self._expires, size)
        self._space = resized(self._space, size)
        for column in self._columns.values():
            column.codes = resized(column.codes, size)

    def _code(self, namespace: tuple[str, ...]) -> int:
        code = self._codes.get(namespace)
        if code is None:
            code = self._codes[namespace] = len(self._spaces)
            self._spaces.append(namespace)
            for depth in range(len(namespace) + 1):
                self._below.setdefault(namespace[:depth], []).append(code)
        return code

    def drop(self, row: Row) -> None:
        self._rows[row.number] = None
        self._expires[row.number] = 0
        self._free.append(row.number)

    # finding

    def select(self, prefix: tuple[str, ...], wanted: Mapping[str, Any] | None, now: int) -> Any:
        np, count = self._np, len(self._rows)
        mask = self._expires[:count] > now
        if prefix:
            inside = np.zeros(len(self._spaces), dtype=bool)
            inside[self._below.get(prefix, [])] = True
            mask &= inside[self._space[:count]]
        accepts(wanted)  # which refuses what is no filter
        for field, one in (wanted or {}).items():
            mask &= self._column(field).mask(one, count)
        return mask

    def _column(self, field: str) -> _Column:
        column = self._columns.get(field)
        if column is None:
            column = _Column(self._np, len(self._updated))
            present = [row for row in self._rows if row is not None]
            for row, value in self._values(present):
                column.put(row.number, value.get(field))
            self._columns[field] = column
        return column

    def newest(self, selection: Any, first: int, last: int) -> list[Row]:
        np = self._np
        numbers = np.flatnonzero(selection)
        if len(numbers) > last > 0:
            ages = self._updated[numbers]
            numbers = numbers[np.argpartition(ages, len(ages) - last)[-last:]]
        order = np.argsort(-self._updated[numbers], kind="stable")
        return self.rows(numbers[order][first:last].tolist())

    def rows(self, numbers: list[int]) -> list[Row]:
        """The items that have these numbers."""
        found = [self._rows[number] for number in numbers]
        return [row for row in found if row is not None]

    def namespaces(self, selection: Any) -> set[tuple[str, ...]]:
        codes = self._np.unique(self._space[: len(selection)][selection])
        return {self._spaces[code] for code in codes.tolist()}


class _Column:
    """One field of all items: a number for every value that differs, and an array of those."""

    def __init__(self, numpy: Any, size: int) -> None:
        self._np = numpy
        self.codes = numpy.zeros(size, dtype=numpy.int32)
        self.values: list[Any] = [None]
        """By code. Values that are equal (1, 1.0 and True) share one, as filters ask for."""
        self._known: dict[Any, int] = {None: 0}
        self._numbers: Any = None

    def put(self, number: int, value: Any) -> None:
        """Note the value of an item."""
        code = self._code(value)
        if code is None:
            code = len(self.values)
            self.values.append(value)
            if _hashable(value):
                self._known[value] = code
        self.codes[number] = code

    def _code(self, value: Any) -> int | None:
        if not _hashable(value) or value != value:  # not equal to itself: nan
            return None
        return self._known.get(value)

    def mask(self, wanted: Any, count: int) -> Any:
        """Which of the first so many items fit a condition."""
        if isinstance(wanted, Mapping) and has_operators(wanted):
            found = self._np.ones(count, dtype=bool)
            for name, bound in wanted.items():
                found &= self._operator(name, bound, count)
            return found
        if isinstance(wanted, Mapping | list | tuple):
            return self._each(wanted, count)
        return self._equal(wanted, count)

    def _operator(self, name: str, bound: Any, count: int) -> Any:
        if name in ORDERED and type(bound) in (int, float) and abs(bound) <= sys.float_info.max:
            return ORDERED[name](self._floats(), float(bound))[self.codes[:count]]
        if name in ("$eq", "$ne") and _hashable(bound):
            equal = self._equal(bound, count)
            return equal if name == "$eq" else ~equal
        return self._each({name: bound}, count)

    def _equal(self, wanted: Any, count: int) -> Any:
        code = self._code(wanted)
        return self.codes[:count] == (-1 if code is None else code)

    def _each(self, wanted: Any, count: int) -> Any:
        table = (fits(value, wanted) for value in self.values)
        fitting = self._np.fromiter(table, dtype=bool, count=len(self.values))
        return fitting[self.codes[:count]]

    def _floats(self) -> Any:
        """The values as numbers, nan where they are none: it is neither less nor greater."""
        if self._numbers is None or len(self._numbers) != len(self.values):
            numbers = map(_number, self.values)
            self._numbers = self._np.fromiter(numbers, dtype=float, count=len(self.values))
        return self._numbers


def _hashable(value: Any) -> bool:
    return not isinstance(value, dict | list) and getattr(value, "__hash__", None) is not None


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
