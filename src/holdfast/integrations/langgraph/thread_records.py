"""How a thread's checkpoints are laid out in its scope.

A thread is the scope `custom:langgraph/THREAD`. The state after an entry that puts a checkpoint
*is* that checkpoint, so an older one is the state at its entry and nothing is copied:

| key | what |
| --- | --- |
| `head` | the newest checkpoint: everything but its long values |
| `channel/NAME` | a long value of a channel; a list grows by appending |
| `log` | the entries that put the checkpoints before, in order and in lots of some; the head has
|       | those since the last lot |
| `mixed` | there if ids, which tell the time, are not in the order of putting, as if a clock went
|         | back: the greatest id that a lesser one followed; true if that is not known |
| `writes` | what tasks wrote on top of the newest checkpoint; the next one takes it away, and what
|          | was written on top of an older one is told by the entries that wrote it |
| `$needs/deltas` | the entry that put the oldest checkpoint which delta channels of the newest one
|          | are made of: pruning the scope stops before it |
| `late/ID` | what was written on top of a checkpoint that was not the head any more |
| `parts` | every message once, without its id; the others refer to it by number |
| `names` | channels and nodes; records refer to them by number |

Those of a namespace of its own are `head:NS`, `channel:NS/NAME` and so on; parts and names are
shared. A message passes through the input, a task's writes and a channel; it is stored once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, chain
from operator import sub
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from holdfast.errors import DamagedRecordError, InvalidInputError
from holdfast.integrations import NEEDS
from holdfast.store.names.scope import KEY_LENGTH, Scope

PARTS = "parts"
NAMES = "names"
COPYING = "copying"
SCOPES = "langgraph/"
RECENT = 10
"""Where a packed record names entries."""
PULL = "~__pregel_pull, "
"""How the path of a task begins that runs a node; the node's name follows."""
COUNTERS = "counters_since_delta_snapshot"
"""What LangGraph notes of delta channels, in the metadata."""
LOT = 16
"""Entries that go into the log together."""
INLINE = 512
"""Encoded bytes up to which a channel's value lies in the head itself."""
_NO_TEXT = "%"
"""The empty id, which LangGraph's own savers take; no other id is quoted like this."""
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_GREGORIAN = 0x01B21DD213814000
"""From 1582, where UUIDs begin, to 1970: in their steps, of which ten are a microsecond."""


def scope_of(thread_id: Any) -> Scope:
    """The scope of a thread. Ids may be any text or number; what a scope may not hold is quoted."""
    text = str(thread_id)
    tame = not (".." in text or "//" in text or text[:1] == "/" or text[-1:] == "/")
    safe = " :@._-+|,;=()[]{}<>!?*&#'~$/" if tame else ""
    quoted = quote(text, safe=safe, errors="surrogatepass").replace("..", "%2E%2E") or _NO_TEXT
    name = SCOPES + quoted
    if len(name) > KEY_LENGTH:
        raise InvalidInputError(
            f"the id of a thread is too long: {len(quoted)} characters, with those that have to be "
            f"quoted (such as é as %C3%A9); at most {KEY_LENGTH - len(SCOPES)}"
        )
    return Scope("custom", name)


def is_thread(scope: Scope) -> bool:
    """Whether a scope is a thread's."""
    return scope.kind == "custom" and scope.id.startswith(SCOPES)


def thread_of(scope: Scope) -> str:
    """The thread that a scope belongs to."""
    quoted = scope.id.removeprefix(SCOPES)
    return "" if quoted == _NO_TEXT else unquote(quoted, errors="surrogatepass")


class Space:
    """The keys of one namespace of a thread."""

    def __init__(self, ns: str) -> None:
        self.ns = ns
        self.channel = cache(self._channel)
        """Key of a long value."""
        self.head = self._key("head")
        """Key of the newest checkpoint."""
        self.log = self._key("log")
        """Key of the list of those before."""
        self.mixed = self._key("mixed")
        """Key of the greatest id that a lesser one followed."""
        self.writes = self._key("writes")
        """Key of the list of what tasks wrote."""
        self.needs = NEEDS + self._key("deltas")
        """Key of the first entry that delta channels of the newest checkpoint are made of."""

    def _key(self, kind: str) -> str:
        return f"{kind}:{quote(self.ns, safe=':|_-')}" if self.ns else kind

    @classmethod
    def of(cls, head: str) -> Space:
        """The namespace that a head belongs to."""
        return cls(unquote(head[5:]))

    def late(self, id: str) -> str:
        """Key of what tasks wrote too late."""
        return f"{self._key('late')}/{quote(id, safe='-')}"

    def _channel(self, name: str) -> str:
        return f"{self._key('channel')}/{quote(name, safe=':+_-')}"


class Names:
    """Channels and nodes by number: records repeat them all, numbers take a byte or two."""

    MOST = 10_000

    def __init__(self) -> None:
        self._known: list[str] = []
        self._numbers: dict[str, int] = {}
        self._fresh: dict[str, int] = {}

    @property
    def new(self) -> list[str]:
        """Names that got a number and are not stored yet, in the order of their numbers."""
        return list(self._fresh)

    def begin(self) -> None:
        """Start a change: names that are not stored lose the number they had got."""
        self._fresh = {}

    def stored(self) -> None:
        """What was new is durable now."""
        self.learn([*self._known, *self._fresh])
        self._fresh = {}

    def learn(self, known: list[str]) -> None:
        """Read the names that are stored. A change that is being put together keeps its own."""
        if known != self._known:
            self._numbers = {name: number for number, name in enumerate(known)}
            self._known = known

    def short(self, name: str) -> int | str:
        """What stands for a name; it is stored with the change if it is new."""
        number = self._numbers.get(name, self._fresh.get(name))
        if number is None:
            number = len(self._known) + len(self._fresh)
            if number >= self.MOST:
                return name
            self._fresh[name] = number
        return number

    def long(self, found: int | str) -> str:
        """The opposite of `short`."""
        return self._known[found] if type(found) is int else str(found)

    def shorts(self, mapping: dict[str, Any], newest: int = 0) -> list[Any]:
        """A mapping as a flat list, with numbers for names.

        Versions are told by how far they are behind the newest, if that is given: in fewer bytes.
        """
        flat: list[Any] = []
        for name, value in mapping.items():
            flat += (self.short(name), newest - value if newest else value)
        return flat

    def longs(self, flat: list[Any], newest: int = 0) -> dict[str, Any]:
        """The opposite of `shorts`."""
        found = {self.long(flat[n]): flat[n + 1] for n in range(0, len(flat), 2)}
        return {name: newest - age for name, age in found.items()} if newest else found


class Record(NamedTuple):
    """A checkpoint without its long values."""

    id: str
    parent: str | None
    v: int
    ts: str
    versions: dict[str, Any]
    seen: dict[str, dict[str, Any]]
    updated: Any
    """False if the checkpoint does not tell"""
    metadata: Any
    """in plain form"""
    values: dict[str, Any]
    """short values, in plain form"""
    apart: list[str]
    """channels whose values have a key of their own"""
    recent: tuple[int, ...] = ()
    """entries that put checkpoints before it and are not in the log yet"""
    more: Any = None
    """what else the checkpoint holds, in plain form"""

    def pack(self, names: Names) -> list[Any]:
        """The list that is stored."""
        id = short_id(self.id)
        every = [*chain.from_iterable(map(dict.values, (self.versions, *self.seen.values())))]
        newest = max(every) if {*map(type, every)} == {int} else 0  # 0: they are not all numbers
        seen = {node: names.shorts(seen, newest) for node, seen in self.seen.items()}
        found = [
            id,
            short_id(self.parent),
            self.v,
            _short_time(self.ts, id),
            [newest, *names.shorts(self.versions, newest)],
            names.shorts(seen),
            [*map(names.short, self.updated)] if type(self.updated) is list else self.updated,
            _short_metadata(self.metadata),
            names.shorts(self.values),
            [*map(names.short, self.apart)],
            short_entries(self.recent),
        ]
        return [*found, self.more] if self.more else found

    @classmethod
    def unpack(cls, found: Any, names: Names) -> Record:
        """The opposite of `pack`."""
        try:
            newest, *versions = found[4]
            seen = names.longs(found[5])
            return cls(
                long_id(found[0]) or "",
                long_id(found[1]),
                found[2],
                _long_time(found[3], found[0]),
                names.longs(versions, newest),
                {node: names.longs(flat, newest) for node, flat in seen.items()},
                [*map(names.long, found[6])] if type(found[6]) is list else found[6],
                _long_metadata(found[7]),
                names.longs(found[8]),
                [*map(names.long, found[9])],
                long_entries(found[RECENT]),
                found[RECENT + 1] if len(found) > RECENT + 1 else None,
            )
        except (TypeError, ValueError, IndexError, KeyError):
            raise DamagedRecordError(
                "a thread's record is not in the form it was written"
            ) from None


def run_in(metadata: Any) -> str | None:
    """The id of the run that metadata name; it may be given as a number."""
    run = metadata.get("run_id") if type(metadata) is dict else None
    return str(run) if isinstance(run, (str, int, float)) and run != "" else None


def deltas_in(record: Record) -> set[str]:
    """Delta channels whose values are not in a checkpoint, but have to be made of those before.

    LangGraph counts for those, too, that were never written: they have no version, and no value.
    """
    counters = record.metadata.get(COUNTERS) if type(record.metadata) is dict else None
    found = set(counters) if isinstance(counters, dict) else set()
    return found.intersection(record.versions).difference(record.values, record.apart)


class Writes(NamedTuple):
    """What one call of `put_writes` brought."""

    checkpoint: str
    task: str
    path: str
    items: list[tuple[int, str, Any]]
    """(index, channel, value in plain form)"""
    run: str | None = None
    """Whose it is, if not of the run that put the checkpoint."""

    def pack(self, names: Names) -> list[Any]:
        """The list that is stored."""
        items = [[index, names.short(name), value] for index, name, value in self.items]
        path = names.short(self.path.removeprefix(PULL)) if self.path.startswith(PULL) else ""
        found = [
            short_id(self.checkpoint),
            short_id(self.task),
            path if type(path) is int else self.path,
            items,
        ]
        return [*found, short_id(self.run)] if self.run else found

    @classmethod
    def unpack(cls, found: Any, names: Names) -> Writes:
        """The opposite of `pack`."""
        try:
            items = [(index, names.long(name), value) for index, name, value in found[3]]
            path = PULL + names.long(found[2]) if type(found[2]) is int else found[2]
            run = long_id(found[4]) if len(found) > 4 else None
            return cls(long_id(found[0]) or "", long_id(found[1]) or "", path, items, run)
        except (TypeError, ValueError, IndexError, KeyError):
            raise DamagedRecordError("a thread's write is not in the form it was written") from None


def merged(calls: list[Writes], checkpoint: str) -> list[tuple[str, str, Any]]:
    """(task, channel, value) of all writes on a checkpoint, by task path, task and index.

    A write that is sent again changes nothing; errors, interrupts and resume values (negative
    indices) are replaced.
    """
    found: dict[tuple[str, int], tuple[str, str, Any]] = {}
    for call in calls:
        if call.checkpoint != checkpoint:
            continue
        for index, channel, value in call.items:
            place = (call.task, index)
            if index < 0 or place not in found:
                found[place] = (call.path, channel, value)
    order = sorted(found.items(), key=lambda item: (item[1][0], *item[0]))
    return [(task, channel, value) for (task, _), (_, channel, value) in order]


def short_entries(entries: Sequence[int]) -> Any:
    """Entries in order, which are mostly close to each other: the first, and the gaps as bytes."""
    try:
        return [entries[0], bytes(map(sub, entries[1:], entries))]
    except (IndexError, ValueError):  # there are none, or a gap does not fit into a byte
        return list(entries)


def long_entries(found: Any) -> tuple[int, ...]:
    """The opposite of `short_entries`."""
    if len(found) == 2 and type(found[1]) is bytes:
        return tuple(accumulate(found[1], initial=found[0]))
    return tuple(found)


def short_id(text: str | None) -> Any:
    """A UUID as 16 bytes; any other text as it is."""
    if text is None or len(text) != 36 or not _UUID.fullmatch(text):
        return text
    return bytes.fromhex(text.replace("-", ""))


def long_id(found: Any) -> str | None:
    """The opposite of `short_id`."""
    if type(found) is not bytes:
        return found  # type: ignore[no-any-return]
    text = found.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_SOURCES = ("input", "loop", "update", "fork")


def _short_metadata(metadata: Any) -> Any:
    """[source, step] for what LangGraph writes by itself; anything else as it is."""
    if (
        type(metadata) is dict
        and list(metadata) == ["source", "step", "parents"]
        and metadata["source"] in _SOURCES
        and metadata["parents"] == {}
    ):
        return [_SOURCES.index(metadata["source"]), metadata["step"]]
    return metadata


def _long_metadata(found: Any) -> Any:
    if type(found) is list:
        return {"source": _SOURCES[found[0]], "step": found[1], "parents": {}}
    return found


def _short_time(text: str, id: Any) -> Any:
    """Microseconds since what the id tells, for a time as LangGraph writes it; else the text."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not UTC or moment.isoformat() != text:
            return text
    except (TypeError, ValueError):
        return text
    return (moment - _EPOCH) // _MICROSECOND - _time_of(id)


def _long_time(found: Any, id: Any) -> Any:
    if type(found) is int:
        return (_EPOCH + (found + _time_of(id)) * _MICROSECOND).isoformat()
    return found


def _time_of(id: Any) -> int:
    """Microseconds since 1970 that a UUID of version 6 tells; 0 for any other id."""
    if type(id) is not bytes or id[6] >> 4 != 6:
        return 0
    ticks = int.from_bytes(id[:6], "big") << 12 | int.from_bytes(id[6:8], "big") & 0xFFF
    return (ticks - _GREGORIAN) // 10
