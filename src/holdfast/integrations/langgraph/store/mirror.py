"""What searches look at: the items of the namespaces that were searched, kept in memory.

A process reads a namespace when it is first searched. From then on it follows the journal, its
own entries and those of other processes alike, so that every search sees every write that
returned before it began, and only what changed is read again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from holdfast.errors import Conflict, DamagedIndexError
from holdfast.integrations.langgraph.store.filters import test_of
from holdfast.integrations.langgraph.store.item_keys import HASHED, ITEMS, decode, path, vectors_of
from holdfast.integrations.langgraph.store.vectors import Matrix, units
from holdfast.store.inner import LineHandle

CHUNK = 1000
"""Items that are read together."""
ROUNDS = 10
"""What is restored meanwhile has to be read anew; beyond so often it would never end."""
MOST_ENTRIES = 1000
"""Further behind than so many entries, and than it has items, a mirror is made anew."""


class Mirror:
    """Items by namespace, newest last, at one entry of the scope. Use it under its lock."""

    def __init__(self, handle: LineHandle, dims: int | None) -> None:
        self.lock = threading.RLock()  # from catching up to the answer: it is of one entry
        self._handle = handle
        self._dims = dims
        self._life = 0
        self._may: tuple[str, ...] = ("",)
        """What the keys begin with that could be read: grants come and go."""
        self._clear()

    def _clear(self) -> None:
        self._sequence = 0
        self._rows: dict[str, Row] = {}
        self._spaces: dict[tuple[str, ...], dict[str, Row]] = {}
        """The same rows by namespace."""
        self._loaded: set[tuple[str, ...]] = set()
        self._matrix: tuple[Any, Matrix] | None = None
        """The vectors below the prefix that was searched last."""

    # following

    def follow(self, prefixes: Iterable[tuple[str, ...]]) -> None:
        """Be at the newest entry, with everything below these namespaces."""
        wanted = list(prefixes)
        try:
            self._follow(wanted)
        except DamagedIndexError:  # the entries give the same state
            self._handle.reader.reload(saves=False)
            self._clear()
            self._follow(wanted)

    def _follow(self, prefixes: list[tuple[str, ...]]) -> None:
        for _ in range(ROUNDS):
            self._catch_up()  # also with what changed while something was read
            missing = [prefix for prefix in prefixes if not self._covered(prefix)]
            for prefix in missing:
                self._load(prefix)
            if not missing or "" not in self._may:  # what is read anew each time is new enough
                return
        raise Conflict(f"{self._handle.scope} is restored again and again; search later")

    def _covered(self, namespace: tuple[str, ...]) -> bool:
        loaded = self._loaded
        return any(namespace[:depth] in loaded for depth in range(len(namespace) + 1))

    def _catch_up(self) -> None:
        line = self._handle.reader.now()
        life, head = (line.ledger.number, line.sequence) if line is not None else (0, 0)
        may = self._handle.reader.may()
        changed = self._changed(head) if (life, may) == (self._life, self._may) else None
        if changed is None:
            self._clear()
        self._life, self._sequence, self._may = life, head, may
        keys = iter(changed or ())
        while page := list(islice(keys, CHUNK)):
            self._read_again(page)

    def _changed(self, last: int) -> list[str] | None:
        """The keys that entries changed since. None if one of them moved the whole state, or was
        pruned and tells nothing; if they are many; or if who asks may read a part only."""
        first = self._sequence + 1
        if first > last or not self._loaded:
            return []
        if "" not in self._may or last - first >= max(MOST_ENTRIES, len(self._rows)):
            return None
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
        records = self.records(keys)
        vectors: dict[str, bytes] = {}
        if self._dims is not None:
            vectors = self.records([vectors_of(k) for k in records if "vectors" in records[k]])
        for key in keys:
            row = self._rows.pop(key, None)
            if row is not None:
                del self._spaces[row.namespace][key]
                row.units = None
                if self._matrix is not None:
                    self._matrix[1].gone += 1
            if key in records:
                self._add(key, records[key])
                self._attach(key, vectors.get(vectors_of(key), b""))

    def records(self, keys: list[str]) -> dict[str, Any]:
        """Records as they are at the mirror's entry; for who may not see the past, as of now."""
        reader = self._handle.reader
        found = reader.get_many(keys)
        line = reader.now()
        life, sequence = (line.ledger.number, line.sequence) if line is not None else (0, 0)
        if life != self._life:
            raise Conflict(f"{reader.scope} was deleted while it was searched; search again")
        if sequence != self._sequence and "" in self._may:
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
            if self._dims is not None:
                where, cut = vectors_of(root), len(vectors_of(root))
                for key, packed in self._pages(where):
                    self._attach(root + key[cut:], packed)

    def _pages(self, root: str) -> Iterator[tuple[str, Any]]:
        """Keys and values in the order in which they were written: they lie together like that."""
        reader = self._handle.reader
        line = reader.now()
        if line is None:
            return
        pairs = list(reader.scan(line, root))
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
        self._spaces.setdefault(row.namespace, {})[key] = row

    def _attach(self, key: str, packed: bytes) -> None:
        """Take in an item's vectors, unless the item is none of ours or has none any more."""
        row = self._rows.get(key)
        if row is not None and row.vectors and self._dims is not None:
            row.units = units(packed, self._dims, row.vectors)
            prefix, matrix = self._matrix or ((), None)
            if (
                matrix is not None
                and row.units is not None
                and row.namespace[: len(prefix)] == prefix
            ):
                matrix.later.append(row)

    # looking

    def search(
        self,
        prefix: tuple[str, ...],
        wanted: Mapping[str, Any] | None,
        query: Any,
        bounds: tuple[int, int],
        now: int,
    ) -> list[Scored]:
        """Items first..last that fit, nearest to a query first, or newest first without one.

        Items without a vector come behind those with one.
        """
        spaces = [rows for name, rows in self._spaces.items() if name[: len(prefix)] == prefix]
        rows = list(chain.from_iterable(map(dict.values, spaces)))
        found: Iterable[Scored] = _newest(rows)
        if query is not None:
            if self._matrix is None or self._matrix[0] != prefix or self._matrix[1].worn:
                self._matrix = (prefix, Matrix([row for row in rows if row.units is not None]))
            best = self._matrix[1].nearest(query)
            found = chain(best, _newest(row for row in rows if row.units is None))
        fits = test_of(wanted or {})  # asked only as far as is looked
        right = (one for one in found if fits(one[0].value) and one[0].expires > now)
        return list(islice(right, *bounds))

    def namespaces(self, prefix: tuple[str, ...], now: int) -> set[tuple[str, ...]]:
        """The namespaces below one that hold items."""
        return {
            name
            for name, rows in self._spaces.items()
            if name[: len(prefix)] == prefix and any(row.expires > now for row in rows.values())
        }

    def expired(self, now: int) -> list[str]:
        """Keys of the items whose time is over."""
        return [row.key for row in self._rows.values() if row.expires <= now]


# ---- rows ---------------------------------------------------------------------------------------


FOREVER = (1 << 63) - 1


class Row:
    """One item as searches see it. It is never changed, only replaced."""

    __slots__ = (
        "created", "expires", "key", "name", "namespace", "ttl", "units", "updated", "value",
        "vectors",
    )  # fmt: skip

    def __init__(self, key: str, record: Mapping[str, Any]) -> None:
        self.key = key
        self.namespace, self.name = decode(key, record)
        self.value: dict[str, Any] = record["value"]
        """Not to be changed."""
        self.created: int = record["created"]
        self.updated: int = record["updated"]
        self.ttl: float | None = record.get("ttl")
        self.expires: int = record.get("expires", FOREVER)
        self.vectors: int = record.get("vectors", 0)
        self.units: Any = None
        """Its vectors, if it has some of the right size."""


Scored = tuple[Row, float | None]
"""An item, and how near it is to a query; None if it has no vector, or there is no query."""


def _newest(rows: Iterable[Row]) -> Iterator[Scored]:
    """Items by their age; sorted when the first is asked for."""
    for row in sorted(rows, key=attrgetter("updated"), reverse=True):
        yield row, None
