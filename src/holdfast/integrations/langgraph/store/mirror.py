"""What searches look at: the items of the namespaces that were searched, kept in memory.

A process reads a namespace when it is first searched. From then on it follows the journal, its
own entries and those of other processes alike, so that every search sees every write that
returned before it began, and only what changed is read again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.errors import Conflict, DamagedIndexError
from holdfast.integrations.langgraph.store.filters import ORDERED, fits, has_operators
from holdfast.integrations.langgraph.store.item_keys import HASHED, ITEMS, decode, path, vectors_of
from holdfast.integrations.langgraph.store.vectors import Matrix, np
from holdfast.store.inner import LineHandle

MEMORY = 256 << 20
"""Bytes of values that are kept, roughly counted."""
CHUNK = 1000
ROUNDS = 10
MOST_ENTRIES = 1000
"""Further behind than so many entries, and than it has items, a mirror is made anew."""


class Mirror:
    """Items by namespace, newest last, at one entry of the scope. Use it under its lock."""

    def __init__(self, handle: LineHandle, dims: int | None, memory: int) -> None:
        self.lock = threading.RLock()
        self._handle = handle
        self._dims = dims
        self._memory = memory
        self._life = 0
        self._clear()

    def _clear(self) -> None:
        self._sequence = 0
        self._rows: dict[str, Row] = {}
        self._loaded: set[tuple[str, ...]] = set()
        self._weight = 0
        self._finder = Columns(self.values)
        self._matrix = Matrix(self._dims) if self._dims is not None else None

    # following

    def follow(self, prefixes: Iterable[tuple[str, ...]]) -> None:
        """Be at the newest entry, with everything below these namespaces."""
        wanted = list(prefixes)
        try:
            self._follow(wanted)
        except DamagedIndexError:  # the entries give the same state
            self._handle.reader.rebuild()
            self._clear()
            self._follow(wanted)

    def _follow(self, prefixes: list[tuple[str, ...]]) -> None:
        for _ in range(ROUNDS):
            self._catch_up()  # also with what changed while something was read
            missing = [prefix for prefix in prefixes if not self._covered(prefix)]
            if not missing:
                return
            for prefix in missing:
                self._load(prefix)
        raise Conflict(f"{self._handle.scope} is restored again and again; search later")

    def _covered(self, namespace: tuple[str, ...]) -> bool:
        loaded = self._loaded
        return any(namespace[:depth] in loaded for depth in range(len(namespace) + 1))

    def _catch_up(self) -> None:
        line = self._handle.reader.now()
        life, head = (line.ledger.number, line.sequence) if line is not None else (0, 0)
        behind = head - self._sequence
        if life != self._life or behind > max(MOST_ENTRIES, len(self._rows)):
            self._clear()
        elif behind and self._loaded:
            changed = self._changed(self._sequence + 1, head)
            if changed is None:
                self._clear()
            else:
                self._sequence = head
                self._read_again(changed)
        self._life, self._sequence = life, head

    def _changed(self, first: int, last: int) -> list[str] | None:
        """The keys that entries changed; None if one of them moved the whole state, or was pruned
        and does not tell any more."""
        log = self._handle.history.log
        keys: dict[str, None] = {}
        for entry in log(since=first, until=last, limit=None, newest_first=False):
            if "restore" in entry.kinds:
                return None
            for key in entry.keys:
                if key.startswith((ITEMS, HASHED)):
                    keys.pop(key, None)  # the order of the last changes
                    keys[key] = None
        line = self._handle.reader.now()
        pruned = line is None or line.floor.sequence >= first
        return None if pruned else list(keys)

    def _read_again(self, keys: list[str]) -> None:
        for start in range(0, len(keys), CHUNK):
            page = keys[start : start + CHUNK]
            records = self.records(page)
            vectors = self._vectors(records)
            for key in page:
                self._drop(key)
                if key in records:
                    self._add(key, records[key])
                    self._attach(key, vectors.get(vectors_of(key), b""))

    def _vectors(self, records: Mapping[str, Any]) -> dict[str, bytes]:
        if self._matrix is None:
            return {}
        return self.records([vectors_of(key) for key in records if "vectors" in records[key]])

    def records(self, keys: list[str]) -> dict[str, Any]:
        """Records as they are at the mirror's entry."""
        reader = self._handle.reader
        found = reader.get_many(keys)
        line = reader.now()
        life, sequence = (line.ledger.number, line.sequence) if line is not None else (0, 0)
        if life != self._life:
            raise Conflict(f"{reader.scope} was deleted while it was searched; search again")
        if sequence != self._sequence:
            found = self._handle.view(self._sequence).reader.get_many(keys)
        return found

    def _load(self, prefix: tuple[str, ...]) -> None:
        """Read all below a namespace; what changes meanwhile is read again by who calls."""
        roots = [path(prefix)] if self._loaded else [path(prefix), HASHED]
        self._loaded.add(prefix)
        for root in roots:
            for key, record in self._pages(root):
                if key not in self._rows:
                    self._add(key, record)
            if self._matrix is not None:
                self._matrix.reserve(sum(row.vectors for row in self._rows.values()))
                where, cut = vectors_of(root), len(vectors_of(root))
                for key, packed in self._pages(where):
                    self._attach(root + key[cut:], packed)

    def _pages(self, root: str) -> Iterator[tuple[str, Any]]:
        """Keys and values in the order in which they were written: they lie together like that."""
        reader = self._handle.reader
        line = reader.now()
        if line is None:
            return
        pairs = list(line.scan(root))
        pairs.sort(key=lambda pair: pair[1].location if type(pair[1].location) is tuple else ())
        for start in range(0, len(pairs), CHUNK):
            page = pairs[start : start + CHUNK]
            line.ledger.fetch_atoms((slot.ref, slot.location) for _, slot in page)
            for key, slot in page:
                yield key, reader.value(line, key, slot)

    # keeping

    def _add(self, key: str, record: Mapping[str, Any]) -> None:
        row = Row(key, record)
        if not key.startswith(HASHED) and not self._covered(row.namespace):
            return
        self._rows[key] = row
        self._finder.add(row)
        weight = _weight(row.value)
        if self._weight + weight > self._memory:
            row.value = None
        else:
            row.weight = weight
            self._weight += weight

    def _attach(self, key: str, packed: bytes) -> None:
        """Take in an item's vectors, unless the item is none of ours or has none any more."""
        row = self._rows.get(key)
        if row is not None and row.vectors and not row.places and self._matrix is not None:
            row.places = self._matrix.add(row.number, packed, row.vectors)

    def _drop(self, key: str) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            self._weight -= row.weight
            self._finder.drop(row)
            if self._matrix is not None:
                self._matrix.drop(row.places)

    # looking

    def search(
        self,
        prefix: tuple[str, ...],
        wanted: Mapping[str, Any] | None,
        query: Any,
        bounds: tuple[int, int],
        now: int,
    ) -> list[tuple[Row, float | None]]:
        """Items first..last that fit, nearest to a query first, or newest first without one.

        Items without a vector come behind those with one.
        """
        first, last = bounds
        selection = self._finder.select(prefix, wanted, now)
        if query is None:
            return [(row, None) for row in self._finder.newest(selection, first, last)]
        assert self._matrix is not None
        best = self._matrix.nearest(query, selection, last)
        found: list[tuple[Row, float | None]] = [
            *zip(self._finder.rows(list(best)), best.values(), strict=True)
        ]
        if len(found) < last:
            others = self._matrix.without(selection)
            more = self._finder.newest(others, 0, last - len(found))
            found += [(row, None) for row in more]
        return found[first:last]

    def namespaces(self, prefix: tuple[str, ...], now: int) -> set[tuple[str, ...]]:
        """The namespaces below one that hold items."""
        return self._finder.namespaces(self._finder.select(prefix, None, now))

    def expired(self, now: int) -> list[str]:
        """Keys of the items whose time is over."""
        return [row.key for row in self._rows.values() if row.expires <= now]

    def values(self, rows: list[Row]) -> Iterator[tuple[Row, dict[str, Any]]]:
        """Items with their values, which must not be changed."""
        for start in range(0, len(rows), CHUNK):
            page = rows[start : start + CHUNK]
            absent = [row.key for row in page if row.value is None]
            records = self.records(absent) if absent else {}
            for row in page:
                yield row, row.value if row.value is not None else records[row.key]["value"]


def _weight(value: Any) -> int:
    """Roughly the bytes that a value takes in memory."""
    if type(value) is dict:
        return 200 + sum(60 + len(key) + _weight(item) for key, item in value.items())
    if type(value) is list:
        return 60 + sum(map(_weight, value))
    if type(value) is str or type(value) is bytes:
        return 60 + len(value)
    return 32


# ---- columns ------------------------------------------------------------------------------------
# Finding items by namespace, by filter and by age, without looking at each of them.
#
# `Columns` keeps the fields that were ever filtered on as arrays of numbers: a filter over 100,000
# items takes a millisecond.


FOREVER = (1 << 63) - 1
_FIRST = 1024


class Row:
    """One item as searches see it. It is never changed, only replaced."""

    __slots__ = (
        "created", "expires", "key", "name", "namespace", "number", "places", "ttl", "updated",
        "value", "vectors", "weight",
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


class Columns:
    """Keeps what is selected by in arrays; a selection is a mask over the items' numbers."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._rows: list[Row | None] = []
        self._free: list[int] = []
        self._updated = np.zeros(_FIRST, dtype=np.int64)
        self._expires = np.zeros(_FIRST, dtype=np.int64)
        self._space = np.zeros(_FIRST, dtype=np.int32)
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
        resized = np.resize
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
        count = len(self._rows)
        mask = self._expires[:count] > now
        if prefix:
            inside = np.zeros(len(self._spaces), dtype=bool)
            inside[self._below.get(prefix, [])] = True
            mask &= inside[self._space[:count]]
        for field, one in (wanted or {}).items():
            mask &= self._column(field).mask(one, count)
        return mask

    def _column(self, field: str) -> _Column:
        column = self._columns.get(field)
        if column is None:
            column = _Column(len(self._updated))
            present = [row for row in self._rows if row is not None]
            for row, value in self._values(present):
                column.put(row.number, value.get(field))
            self._columns[field] = column
        return column

    def newest(self, selection: Any, first: int, last: int) -> list[Row]:
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
        codes = np.unique(self._space[: len(selection)][selection])
        return {self._spaces[code] for code in codes.tolist()}


class _Column:
    """One field of all items: a number for every value that differs, and an array of those."""

    def __init__(self, size: int) -> None:
        self.codes = np.zeros(size, dtype=np.int32)
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
            found = np.ones(count, dtype=bool)
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
        fitting = np.fromiter(table, dtype=bool, count=len(self.values))
        return fitting[self.codes[:count]]

    def _floats(self) -> Any:
        """The values as numbers, nan where they are none: it is neither less nor greater."""
        if self._numbers is None or len(self._numbers) != len(self.values):
            numbers = map(_number, self.values)
            self._numbers = np.fromiter(numbers, dtype=float, count=len(self.values))
        return self._numbers


def _hashable(value: Any) -> bool:
    return not isinstance(value, dict | list) and getattr(value, "__hash__", None) is not None


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
