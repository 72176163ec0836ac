"""Who wrote each part of a value.

From the newest version of a key back to the first, each version is compared with the one before:
a part that is the same in both was written earlier, any other by the entry of the newer one.
Nothing is stored for this. What an index says of a key names the entry that wrote it, also across
restores and forks, so that going back finds the entry that had the idea, not the one that brought
it back. Versions are looked at one at a time; only two values are held.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import DamagedRecordError, InvalidInputError, MissingError, PrunedError
from holdfast.seal.codec import Codec, Typed
from holdfast.store.history.checkpoint import History
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal import entry
from holdfast.store.journal import entry as entries
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_count, check_flag
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import MASK
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.read.reader import anew, masks, moment, rules_of
from holdfast.store.rules.ephemeral import refuse_ephemeral
from holdfast.store.tree import refs
from holdfast.store.tree.difference import identity, into, same, shorten
from holdfast.store.tree.sequence import changes
from holdfast.store.tree.value import AHEAD

DEPTH = 16
"""How deep a value is taken apart; what is deeper is one part."""
MOST = 10_000
"""Parts that are told apart; a mapping or list that would exceed it is one part."""
At = tuple[int, int]
"""Timeline and sequence of an entry."""
_NOTHING = Cause()


@dataclass(frozen=True, slots=True)
class Blamed:
    """One part of a value, and the entry that wrote it."""

    path: str
    """The key, then the way into the value: `plan.steps[3].done`; into one that is masked only as
    far as was asked for."""
    value: Any
    timeline: str
    entry: int
    time: datetime
    cause: Cause
    exact: bool = True
    """False if it may be older: it is the same in all the versions that were looked at, which are
    `limit`, or all that are not pruned."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Who wrote each part of a value, in the order of its parts."""

    scope: Scope
    key: str
    parts: list[Blamed]
    versions: int
    """Versions of the key that were looked at."""

    @property
    def complete(self) -> bool:
        """Whether every part was led back to the entry that wrote it."""
        return all(part.exact for part in self.parts)

    def __iter__(self) -> Iterator[Blamed]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __str__(self) -> str:
        lines = [
            (
                f"{'' if part.exact else '≤ '}{part.timeline}@{part.entry}",
                part.time.isoformat(" ", "seconds"),
                part.cause.actor or "-",
                part.cause.correlation or "-",
                f"{part.path}: {shorten(part.value)}",
            )
            for part in self.parts
        ]
        widths = [max((len(line[column]) for line in lines), default=0) for column in range(4)]
        return "\n".join(
            "  ".join([*(line[n].ljust(widths[n]) for n in range(4)), line[4]]) for line in lines
        )


def blame_value(
    handle: LineHandle,
    key: str,
    path: str | Sequence[str | int] | None,
    limit: int,
    reveal: bool = False,
) -> Blame:
    """Lead each part of a key's value back to the entry that wrote it."""
    key = check_key(key, owner=True)
    check_count(limit, "limit")
    check_flag(reveal, "reveal")
    if limit == 0:
        raise InvalidInputError("limit is the number of versions to look at: 1 or more")
    steps = _steps(path)

    def walk(saves: bool) -> Blame:
        return _Walk(handle, key, reveal, saves).run(steps, limit)

    reader = handle.reader
    return reader.past_damage(walk) if reader.at else anew(lambda: reader.past_damage(walk))


_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def _steps(path: str | Sequence[str | int] | None) -> list[str | int]:
    """The way into a value, taken apart."""
    if path is None:
        return []
    if not isinstance(path, str):
        if not isinstance(path, Sequence) or not all(type(step) in (str, int) for step in path):
            raise InvalidInputError(
                "a path is text (`steps[3].done`) or a list of names and numbers"
            )
        return list(path)
    found: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise InvalidInputError(
                f"{path[:80]!r} is no path; write steps[3].done, or give a list: "
                '["steps", 3, "done"]'
            )
        found.append(match[1] if match[1] is not None else int(match[2]))
        at = match.end()
    return found


class _Part:
    """A part of the newest value while it is led back; `step` is where it is in an older one."""

    __slots__ = ("children", "exact", "path", "source", "step", "value", "writer")

    def __init__(self, path: str, step: Any, value: Any) -> None:
        self.path = path
        self.step = step
        self.value = value
        self.children: list[_Part] | None = None
        self.writer: At | None = None
        self.exact = True
        self.source: _Part | None = None

    def twin(self) -> _Part:
        """A copy that is led back along the other side of a merge."""
        made = _Part(self.path, self.step, self.value)
        made.source = self
        if self.children is not None:
            made.children = [child.twin() for child in self.children]
        return made

    def only_of(self, entry: At) -> bool:
        """Leave out the leaves that an entry did not write in the original; whether any is left."""
        if self.children is None:
            return self.source is not None and self.source.writer == entry
        self.children = [child for child in self.children if child.only_of(entry)]
        return bool(self.children)

    def leaves(self) -> Iterator[_Part]:
        """The parts that are not taken apart any further."""
        if self.children is None:
            yield self
        else:
            for child in self.children:
                yield from child.leaves()


class _Walk:
    """From the newest version of one key to older ones."""

    def __init__(self, handle: LineHandle, key: str, reveal: bool, saves: bool) -> None:
        self.handle = handle
        self.key = key
        self.saves = saves
        line = handle.reader.now()
        if line is not None:
            refuse_ephemeral(line, key, "history")
        slot = handle.reader.live(line, key) if line is not None else None
        if line is None or slot is None:
            when = "now" if handle.reader.at is None else "there"
            raise MissingError(f"{handle.scope} has no key {key!r} {when}; `keys()` lists them")
        rules = rules_of((handle.reader, line))
        self.masked = masks(handle.reader, line, key, [slot], rules, reveal=reveal)
        self.ledger = line.ledger
        self.at: At = (slot.timeline, slot.sequence)
        self.value = self._read(line, slot)
        self.names = {n: name for n, name, _, _ in handle.core.timelines(self.ledger)}
        self.told: dict[At, tuple[int, Cause]] = {}
        """Time and cause of the entries that were looked at."""
        self.newest: tuple[At, Body] | None = None
        """The entry that was looked at last."""
        self.parts = 1
        self.versions = 0

    def run(self, steps: list[str | int], limit: int) -> Blame:
        """Go back until every part is known, or `limit` versions were looked at."""
        top = _Part(self.key, None, self.value)
        self._take_apart(top, steps, DEPTH)
        leaves, path = list(top.leaves()), _asked_for(top, steps).path
        self._lead_back(top, limit)
        if self.masked:
            leaves = _masked(leaves, path)
        parts = [self._told(leaf) for leaf in leaves]
        return Blame(self.handle.scope, self.key, parts, self.versions)

    def _lead_back(self, top: _Part, limit: int) -> None:
        """Along the versions of one line; then what merges wrote, along the lines they merged."""
        older: _Part | None = top
        merges: list[tuple[At, _Part, At, Any]] = []
        while older is not None and self.versions < limit:
            self.versions += 1
            try:
                merges += self._merged(older)
                older = self._step_back(older)
            except PrunedError:
                break  # nobody can tell what wrote the rest
        if older is not None:
            self._close(older, exact=False)
        for merge, other, at, value in merges:
            # Nothing else is looked for there: where lines were merged to and fro, looking for all
            # of it would lead through every merge again from every other one.
            if not other.only_of(merge):
                continue
            leaves = list(other.leaves())
            self.at, self.value = at, value
            self._lead_back(other, limit)
            for leaf in leaves:
                assert leaf.source is not None
                leaf.source.writer, leaf.source.exact = leaf.writer, leaf.exact

    def _merged(self, top: _Part) -> Iterator[tuple[At, _Part, At, Any]]:
        """If a merge wrote this version: it, what the merged line had, in which version."""
        op = self._body(self.at).ops[0]
        if op[0] != entries.MERGE:
            return
        line = self._line_at(op[1], op[2])
        slot = line.slot(self.key)
        if slot is not None:
            value = self._read(line, slot)
            other = self._compare(top.twin(), self.value, value)
            if other is not None:
                yield self.at, other, (slot.timeline, slot.sequence), value

    # parts

    def _take_apart(self, part: _Part, steps: list[str | int], depth: int) -> None:
        inner = _inner(part.value)
        if steps:
            step = steps[0]
            there = (type(inner) is dict and step in inner) or (
                type(inner) is list and type(step) is int and 0 <= step < len(inner)
            )
            if not there:
                raise InvalidInputError(f"{self.handle.scope}: {part.path} has no part {step!r}")
            part.children = [_child(part, inner, step)]
            self._take_apart(part.children[0], steps[1:], depth)
        elif type(inner) in (dict, list) and inner and depth:
            if self.parts + len(inner) > MOST:
                return
            self.parts += len(inner)
            names = inner if type(inner) is dict else range(len(inner))
            part.children = [_child(part, inner, name) for name in names]
            for child in part.children:
                self._take_apart(child, [], depth - 1)

    def _close(self, part: _Part, *, exact: bool = True) -> None:
        """The entry that is looked at now wrote all of a part that is not known yet."""
        for leaf in part.leaves():
            leaf.writer, leaf.exact = self.at, exact

    def _told(self, leaf: _Part) -> Blamed:
        assert leaf.writer is not None
        if leaf.writer not in self.told:
            self._body(leaf.writer)
        time, cause = self.told[leaf.writer]
        timeline, sequence = leaf.writer
        name = self.names.get(timeline, "?")
        opened = self.handle.core.codec.plain_viewer.opened
        value = MASK if self.masked else opened(leaf.value)
        return Blamed(leaf.path, value, name, sequence, moment(time), cause, leaf.exact)

    # versions

    def _step_back(self, top: _Part) -> _Part | None:
        """Compare a version with the one before; what of the parts is older than it."""
        ops = [op for op in self._body(self.at).ops if op[0] <= entries.DELETE]
        ops = [op for op in ops if op[1] == self.key]
        left: _Part | None
        if len(ops) == 1 and ops[0][0] == entries.APPEND and type(self.value) is list:
            if top.children is None:
                self._close(top)
                return None
            added = sum(part if type(part) is int else 1 for part in ops[0][2])
            del self.value[len(self.value) - added :]
            left = self._cut(top, top.children)
            before = self._previous() if left is not None else None
        else:
            before = self._previous()
            if before is None:
                self._close(top)
                return None
            old = self._value_at(before)
            left = self._compare(top, self.value, old)
            self.value = old
        if left is not None:
            assert before is not None
            self.at = before
        return left

    def _cut(self, top: _Part, items: list[_Part]) -> _Part | None:
        """Items that the list did not have before were appended by the entry looked at."""
        while items and items[-1].step >= len(self.value):
            self._close(items.pop())
        return top if items else None

    def _compare(self, part: _Part, new: Any, old: Any) -> _Part | None:
        """What of a part is older than the version that is looked at."""
        if same(new, old):
            return part
        if type(new) is Typed and type(old) is Typed:
            kept = (new.name, new.version) == (old.name, old.version)
            new, old = (new.value, old.value) if kept else (new, None)
        if part.children is None or type(new) is not type(old) or type(new) not in (dict, list):
            self._close(part)
            return None
        pairs = _fields(part, old) if type(new) is dict else _items(part, new, old)
        older = []
        for child, step in pairs:
            if step is None:
                self._close(child)
                continue
            left = self._compare(child, new[child.step], old[step])
            if left is not None:
                left.step = step
                older.append(left)
        part.children = older
        return part if older else None

    def _previous(self) -> At | None:
        """The version before the one that is looked at; None if the key was not there."""
        timeline, sequence = self.at
        prefix = rowkinds.line(b"E", self.ledger.number, timeline)
        low = rowkinds.entry(prefix, self.ledger.before + 1)
        page = self.ledger.storage.scan(
            low, rowkinds.entry(prefix, sequence), limit=200, reverse=True
        )
        look = sequence - 1 - len(page)
        for row_key, row in page:
            body = self.ledger.open_entry(row_key, row)[1]
            found = [op[0] for op in body.ops if op[0] <= entries.DELETE and op[1] == self.key]
            if found:
                at = (timeline, rowkinds.sequence_of(row_key))
                return at if found[-1] != entries.DELETE else None
            if any(op[0] in (entries.RESTORE, entries.FORK) for op in body.ops):
                look = rowkinds.sequence_of(row_key)
                break
        if look <= self.ledger.before:
            return None
        slot = self._line_at(timeline, look).slot(self.key)
        return (slot.timeline, slot.sequence) if slot is not None else None

    def _value_at(self, at: At) -> Any:
        timeline, sequence = at
        name = self.names.get(timeline)
        if name is not None:
            history = History(self.handle.core, self.handle.scope, name)
            found = [one for one in trace(history, {self.key}, sequence, sequence) if one.key]
            if len(found) == 1 and found[0].kind == "set" and found[0].value is not PATCHED:
                return found[0].value
        line = self._line_at(timeline, sequence)
        slot = line.slot(self.key)
        assert slot is not None
        return self._read(line, slot)

    def _line_at(self, timeline: int, sequence: int) -> Timeline:
        return Timeline(self.ledger, timeline).load(sequence, saves=self.saves)

    def _read(self, line: Timeline, slot: Slot) -> Any:
        slot = line.settled(slot)
        return self.ledger.value_of(self.key, slot, self.ledger.codec.plain_reader)

    def _body(self, at: At) -> Body:
        if self.newest is not None and self.newest[0] == at:
            return self.newest[1]
        *_, body = self.ledger.entry_at(*at)
        self.told[at] = (body.time, body.cause or _NOTHING)
        self.newest = (at, body)
        return body


def _asked_for(top: _Part, steps: list[str | int]) -> _Part:
    """The part that a path leads to."""
    for _ in steps:
        assert top.children is not None
        (top,) = top.children
    return top


def _masked(leaves: list[_Part], path: str) -> list[_Part]:
    """One part for each entry that wrote some, no further in the value than was asked for.

    Names in a path are part of the value, and how many parts there are tells of it, too.
    """
    found: dict[tuple[At | None, bool], _Part] = {}
    for leaf in leaves:
        leaf.path = path
        found.setdefault((leaf.writer, leaf.exact), leaf)
    return list(found.values())


def _inner(value: Any) -> Any:
    return value.value if type(value) is Typed else value


def _child(part: _Part, inner: Any, step: Any) -> _Part:
    path = into(part.path, step) if type(inner) is dict else f"{part.path}[{step}]"
    return _Part(path, step, inner[step])


def _fields(part: _Part, old: dict[Any, Any]) -> Iterator[tuple[_Part, Any]]:
    """Parts of a mapping with the field of the older one that each is compared with."""
    for child in part.children or ():
        yield child, child.step if child.step in old else None


def _items(part: _Part, new: list[Any], old: list[Any]) -> Iterator[tuple[_Part, Any]]:
    """Parts of a list with the item of the older one that each is compared with."""
    ranges = changes([identity(item) for item in old], [identity(item) for item in new])
    number = shift = 0
    for child in part.children or ():
        while number < len(ranges) and ranges[number][3] <= child.step:
            shift = ranges[number][1] - ranges[number][3]
            number += 1
        if number < len(ranges) and child.step >= ranges[number][2]:
            low, high, first, _ = ranges[number]
            step = low + child.step - first
            yield child, step if step < high else None
        else:
            yield child, child.step + shift


# ---- trace --------------------------------------------------------------------------------------
# What entries wrote: values as the journal holds them, without building older states.
#
# Looking at many points one after the other by `at` would fold the index once for each; entries
# that set a key whole, or append to it, hold the value themselves.


_decode_pack = msgspec.msgpack.Decoder(list[bytes]).decode

PATCHED: Any = object()
"""Stands for a value that an entry changed in parts, or that was written ahead of it: `at` its
sequence has it whole."""


class Trace(NamedTuple):
    """One operation of an entry."""

    sequence: int
    kind: str
    """set, append, delete; or the kind of an entry that names no key (restore, checkpoint …)"""
    key: str
    value: Any
    """What was set, the list of what was appended, None, or `PATCHED`"""


def trace(
    history: History, keys: Container[str] | None, low: int, high: int | None = None
) -> Iterator[Trace]:
    """Operations of entries low..high on these keys (None: on all), oldest first.

    Objects of registered types are given as `Typed`. Each entry is checked as on every read.
    """
    ledger: Ledger | None = None
    for row_key, _, body in history.entries(newest_first=False, low=low, high=high):
        ledger = ledger or history.points.line().ledger
        yield from _operations(ledger, row_key, body, keys)


def _operations(
    ledger: Ledger, row_key: bytes, body: Body, keys: Container[str] | None
) -> Iterator[Trace]:
    sequence = rowkinds.sequence_of(row_key)
    atoms = iter(_atoms(ledger, row_key, body))
    codec = ledger.codec.plain_reader
    for op in body.ops:
        kind = op[0]
        if kind == entry.META:
            continue
        if kind > entry.DELETE:
            yield Trace(sequence, entry.NAMES.get(kind, "?"), "", None)
            continue
        wanted = keys is None or op[1] in keys
        if kind == entry.PATCH:
            for _ in range(_patched(op[2])):
                next(atoms)
            value = PATCHED
        elif kind == entry.SET and op[2] != 1 and op[2][0] == AHEAD:
            value = PATCHED
        elif kind == entry.DELETE:
            value = None
        else:
            parts = op[2] if kind == entry.APPEND else [op[2]]
            found = _values(parts, atoms, codec if wanted else None)
            value = found if kind == entry.APPEND else found[0]
        if wanted:
            yield Trace(sequence, entry.NAMES[kind], op[1], value)


def _atoms(ledger: Ledger, row_key: bytes, body: Body) -> list[bytes]:
    """All atoms of an entry, those in its packs too."""
    if not body.packs:
        return body.atoms
    found = list(body.atoms)
    number = rowkinds.line_of(row_key)
    line = rowkinds.line(b"V", ledger.number, number)
    sequence = rowkinds.sequence_of(row_key)
    keys = [rowkinds.pack(line, sequence, ordinal + 1) for ordinal in range(len(body.packs))]
    for key, row, commitment in zip(keys, ledger.storage.get(keys), body.packs, strict=True):
        plain = ledger.open_row(key, row)
        if ledger.commit_pack(plain) != commitment:
            raise ledger.damage(key, "it is not the one that its entry commits to")
        found.extend(_decode_pack(plain))
    return found


def _values(parts: list[Any], atoms: Iterator[bytes], codec: Codec | None) -> list[Any]:
    """The values that shapes describe; without a codec the atoms are only passed over."""
    found: list[Any] = []
    for part in parts:
        if type(part) is int:
            for _ in range(part):
                data = next(atoms)
                found.append(codec.decode(data) if codec else None)
        else:
            found.append(_value(part, atoms, codec))
    return found


def _value(shape: list[Any], atoms: Iterator[bytes], codec: Codec | None) -> Any:
    kind = shape[0]
    if kind == 5:
        return Typed(shape[1], shape[2], _value(shape[3], atoms, codec))
    if kind == refs.LIST:
        return _values(shape[1], atoms, codec)
    if kind == refs.MAP:
        return dict(zip(shape[1], _values(shape[2], atoms, codec), strict=True))
    if kind in (refs.BYTES, refs.TEXT):
        chunks = _values([shape[1]], atoms, codec)
        if codec is None:
            return None
        data = b"".join(chunks)
        return data if kind == refs.BYTES else data.decode()
    raise DamagedRecordError("an entry describes a value in a way that is not known")


def _patched(steps: list[Any]) -> int:
    """How many atoms a patch takes."""
    total = 0
    for step in steps:
        total += _patched(step[1]) if len(step) == 2 else sum(map(_taken, step[3]))
    return total


def _taken(part: Any) -> int:
    if type(part) is int:
        return part
    kind = part[0]
    if kind == 5:
        return _taken(part[3])
    if kind in (refs.BYTES, refs.TEXT):
        return int(part[1])
    return sum(map(_taken, part[2 if kind == refs.MAP else 1]))
