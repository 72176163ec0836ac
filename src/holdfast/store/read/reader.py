"""Reading the state of one timeline: the newest, or that at an older entry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import islice
from typing import Any, TypeVar, cast
from unicodedata import normalize

from holdfast.errors import (
    DamagedIndexError,
    DamagedRecordError,
    InvalidInputError,
    LookupNotFoundError,
    NewerFormatError,
    ScopeNotFoundError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.seal.codec import Codec, convert
from holdfast.seal.subject_keys import ERASED
from holdfast.store.commit.change import refresh
from holdfast.store.commit.group import Core
from holdfast.store.journal.declared import NOTHING, Declared
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import Anew, floor_of, pruned
from holdfast.store.journal.ledger import TOGETHER, RowCache
from holdfast.store.journal.lifetime import Terms, read_meta
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names.arguments import (
    check_count,
    check_flag,
    check_index,
    check_listing,
    check_moment,
    listed,
)
from holdfast.store.names.cause import Cause, cause_now
from holdfast.store.names.items import Item, Page
from holdfast.store.names.scope import RESERVED, Scope, check_key
from holdfast.store.names.threads import leave_loop
from holdfast.store.read.find import Question, Search
from holdfast.store.rules.classes import SENSITIVE, Classed, Rules, class_by, class_of, sensitive
from holdfast.store.rules.ephemeral import Box, Held
from holdfast.store.rules.gates import GateReading
from holdfast.store.rules.lookup import derived, passed_over
from holdfast.store.rules.subjects import Kept, erased, kept_subject
from holdfast.store.tree import refs

_NOTHING = Cause()
MANY, FEW = 1000, 64
"""Keys that are looked for in an event loop, and items that are read there however long."""
ATTEMPTS = 5
"""How often a read begins anew because its scope was erased meanwhile."""

_Method = TypeVar("_Method", bound=Callable[..., Any])
_T = TypeVar("_T")


def anew(do: Callable[[], _T]) -> _T:
    """Do something that begins anew if its scope is erased meanwhile."""
    for _ in range(ATTEMPTS):
        with suppress(ScopeNotFoundError):
            return do()
    return do()


def _rebuilding(method: _Method) -> _Method:
    """Read again if rows are missing that may have been pruned; from entries if the saved index is
    damaged; or if the scope was erased meanwhile.

    Then it is absent, or another one has its name.
    """

    @wraps(method)
    def read(self: Reader, *args: Any) -> Any:
        try:
            return method(self, *args)
        except DamagedRecordError as error:  # unless it was pruned meanwhile
            return self.past_damage(lambda _: method(self, *args), error)
        except ScopeNotFoundError:
            if self.at is not None:
                raise  # what it shows is gone
        return anew(lambda: method(self, *args))

    return cast(_Method, read)


@dataclass(eq=False, repr=False)
class Reader:
    """Reads of one timeline; `at` fixes the entry, else every read sees the newest."""

    core: Core
    scope: Scope
    timeline: str
    at: Timeline | None = None
    _time: int | None = None

    def now(self) -> Timeline | None:
        """The timeline to read; None if the scope does not exist."""
        self.core.check_open()
        line = self.at or self.core.current(self.scope, self.timeline)
        if self.core.near is not None and line is not None:
            near: RowCache | None = None
            with suppress(*_UNREAD):  # of what cannot be read anything may be sensitive
                classed = [one for rules in rules_of((self, line)) for one in rules.of(Classed)]
                if all(one.class_ != SENSITIVE for one in classed):
                    near = self.core.near
            line.ledger.near = near
        return line

    def live(self, timeline: Timeline, key: str) -> Slot | None:
        """What is known of a key, unless it has expired."""
        slot = self._slot(timeline, key)
        return slot if slot is None or not slot.meta else self.judged(slot)

    def judged(self, slot: Slot | None) -> Slot | None:
        """The slot, unless its key has expired at the time that is read."""
        return None if slot is not None and slot.meta and slot.over(self.time()) else slot

    def time(self) -> int:
        """The time by which expiry is judged: now, that of the view's entry, or the one given."""
        if self._time is not None:
            return self._time
        if self.at is None:
            return self.core.clock.checked()
        *_, body = self.at.ledger.entry_at(self.at.number, self.at.sequence)
        self._time = body.time
        return body.time

    def told(self, timeline: Timeline, read: Sequence[tuple[str, Slot]], rules: Rules = ()) -> None:
        """Keys are read: tell gates of the sensitive ones, put off expiry where it slides.

        `rules` say which ones these are, if others than those of this state do.
        """
        gates = self.core.gates
        if gates.readers:
            rules = rules or rules_of((self, timeline))
            found = [key for key, slot in read if sensitive(key, [slot], rules)]
            if found:
                place = (self.scope, self.timeline, timeline.sequence)
                gates.reading(GateReading(*place, tuple(found), cause_now() or _NOTHING))
        if self.at is not None:
            return
        due = [key for key, slot in read if slot.meta and read_meta(slot.meta).due(self.time())]
        if due:
            refresh(self.core, self.scope, self.timeline, due)

    @_rebuilding
    def lasts(self, key: str, terms: Terms) -> bool:
        """Whether a key is there and expires as terms say, or never does if they say so."""
        timeline = self.now()
        slot = self.live(timeline, key) if timeline is not None else None
        if slot is None:
            return False
        old = read_meta(slot.meta)
        kept = terms.meta(self.time(), old)._replace(class_=old.class_, schema=old.schema)
        return kept == old

    @_rebuilding
    def class_of(self, key: str) -> str:
        """The class of a key; of one that is absent, what it would have."""
        key = check_key(key, owner=True)
        timeline = self.now()
        if timeline is None:
            return class_of(key)
        slot = self.live(timeline, key)
        meta = slot.meta if slot is not None else b""
        return class_by(key, meta, rules_of((self, timeline)))

    def _slot(self, timeline: Timeline, key: str) -> Slot | None:
        """What is known of a key, also of one that lives in this process only.

        Of what follows from others nothing is: that is the store's own.
        """
        if self.core.guard is not None:
            self.core.guard.check(self.scope, key, looked=self.at is None)
        if key[:1] == RESERVED and derived(key):
            return None
        if timeline.known is NOTHING and not self.core.ephemerals.boxes:
            return timeline.slot(key)  # nothing is declared, as of most scopes
        box = self._box(timeline)
        if box is not None and key.startswith(box.prefixes):
            return box.slots.get(key)
        return timeline.slot(key)

    def _box(self, timeline: Timeline) -> Box | None:
        """Ephemeral keys; the past has none."""
        return self.core.ephemerals.box(timeline) if self.at is None else None

    def past_damage(
        self, look: Callable[[bool], _T], error: DamagedRecordError | None = None
    ) -> _T:
        """Do what reads, with saved indexes; without them where one is damaged.

        `error`: what it failed with before. What was pruned meanwhile is no damage.
        """
        anew, saves = Anew(), True
        while True:
            try:
                if error is None:
                    return look(saves)
            except DamagedRecordError as found:  # unless it was pruned meanwhile
                error = found
            at = self.at
            ledger = at.ledger if at is not None else self.core.ledger(self.scope)
            if at is not None:  # a view whose entry was pruned since: what is missing is no damage
                floor = floor_of(ledger, at.number)
                if not floor.holds(at.sequence, ledger.before):
                    raise pruned(ledger, self.timeline, at.sequence, floor)
            times = anew.times(ledger)
            if times > 2 or (times == 2 and not isinstance(error, DamagedIndexError)):
                raise error
            saves, error = times == 1, None
            self.reload(saves)

    def reload(self, saves: bool) -> None:
        """Read the state again, from what is saved now or from entries alone."""
        if self.at is None:
            self.core.reload(self.scope, self.timeline, saves)
            return
        self.at = Timeline(self.at.ledger, self.at.number).load(self.at.sequence, saves=saves)

    @_rebuilding
    def get(self, key: str, default: Any = None, as_: Any = None, plain: bool = False) -> Any:
        """The value of a key, or the default."""
        if plain and as_ is not None:
            raise InvalidInputError("get takes plain=True or as_=, not both")
        key = check_key(key, owner=True)
        timeline = self.now()
        slot = self.live(timeline, key) if timeline is not None else None
        if slot is None:
            return default
        assert timeline is not None
        value = self.value(timeline, key, slot, plain)
        if value is ERASED:
            raise erased(self.scope, key)
        if slot.meta or self.core.gates.readers:
            self.told(timeline, [(key, slot)])
        return convert(value, as_, f"{self.scope}: {key!r}") if as_ is not None else value

    def value(self, timeline: Timeline, key: str, slot: Slot, plain: bool = False) -> Any:
        """The value of a key that a slot describes; `plain`: with objects as `Typed`."""
        if slot.meta and timeline.declared.checks:
            return self._led(timeline, key, slot, plain)
        return timeline.ledger.value_of(key, timeline.settled(slot), self._codec(plain))

    def _led(self, timeline: Timeline, key: str, slot: Slot, plain: bool) -> Any:
        """A value that was checked by an older version of what is declared, as it is now."""
        rule, version = timeline.declared.check_of(key), read_meta(slot.meta).schema
        ledger, settled = timeline.ledger, timeline.settled(slot)

        def read(name: str) -> Any:
            found = timeline.slot(name)
            return ledger.value_of(name, timeline.settled(found)) if found is not None else None

        if rule is None or not version or not rule.leads(version, read):
            return ledger.value_of(key, settled, self._codec(plain))
        # Objects are built of what it is now: what it was may not fit their class any more.
        value = ledger.value_of(key, settled, self._codec(True))
        if value is not ERASED:
            value = rule.led(key, value, version, read)
        return (
            value if plain or value is ERASED else ledger.codec.decode(ledger.codec.encode(value))
        )

    @_rebuilding
    def to_update(self, key: str, default: Any) -> tuple[Any, int, Kept | None]:
        """A value that is about to be changed, its version, and the subject it is sealed for."""
        timeline = self.now()
        slot = self.live(timeline, key) if timeline is not None else None
        if timeline is None or slot is None:
            return default, 0, None
        with self.core.subjects.noting() as opened:
            value = self.value(timeline, key, slot)
        if value is ERASED:
            raise erased(self.scope, key)
        version, settled = timeline.version(slot), timeline.settled(slot)
        foreign = self.core.subjects.strange(opened)
        kept = kept_subject(self.core.subjects, timeline.ledger, settled, key, foreign)
        self.told(timeline, [(key, slot)])
        return value, version, kept

    def _codec(self, plain: bool) -> Codec | None:
        return self.core.codec.plain_viewer if plain else None

    @_rebuilding
    def get_many(self, keys: Iterable[str], plain: bool = False) -> dict[str, Any]:
        """Values of those keys that are there, of one moment."""
        names = [(key, check_key(key, owner=True)) for key in listed(keys, "get_many")]
        timeline = self.now()
        if timeline is None:
            return {}
        live = self.live
        with timeline.lock:
            found = [(key, slot) for key, name in names if (slot := live(timeline, name))]
        return dict(self._values(timeline, found, plain))

    def _values(
        self, timeline: Timeline, found: list[tuple[str, Slot]], plain: bool
    ) -> list[tuple[str, Any]]:
        """Keys and the values that slots describe, read with few calls."""
        if len(found) > MANY:
            leave_loop()
        ledger = timeline.ledger
        codec = self._codec(plain) or ledger.codec
        values: list[tuple[str, Any]] = []
        for start in range(0, len(found), TOGETHER):
            part = found[start : start + TOGETHER]
            made = ledger.together([(k, slot.ref, slot.location) for k, slot in part], codec)
            if made is not None and not timeline.declared.checks:
                values += zip([key for key, _ in part], made, strict=True)
            else:  # as they are told of if something is wrong with one of them
                values += [(key, self.value(timeline, key, slot, plain)) for key, slot in part]
        self.told(timeline, found)
        return values

    @_rebuilding
    def versioned(self, keys: Iterable[str], plain: bool = True) -> dict[str, tuple[Any, int]]:
        """(value, version) of those keys that are there, of one moment."""
        timeline = self.now()
        if timeline is None:
            return {}
        with timeline.lock:
            found = [(key, self.live(timeline, check_key(key, owner=True))) for key in keys]
            versions = [timeline.version(slot) for _, slot in found]
        return {
            key: (self.value(timeline, key, slot, plain), version)
            for (key, slot), version in zip(found, versions, strict=True)
            if slot is not None
        }

    @_rebuilding
    def item(self, key: str) -> Item | None:
        """The value of a key with its version, time and cause."""
        key = check_key(key, owner=True)
        timeline = self.now()
        slot = self.live(timeline, key) if timeline is not None else None
        if timeline is None or slot is None:
            return None
        origin: Held | Body
        if type(slot) is Held:
            origin = slot
        else:
            *_, origin = timeline.ledger.entry_at(slot.timeline, slot.sequence)
        expires = read_meta(slot.meta).expires
        item = Item(
            key,
            self.value(timeline, key, slot),
            timeline.version(slot),
            moment(origin.time),
            origin.cause or _NOTHING,
            moment(expires) if expires else None,
            class_by(key, slot.meta, rules_of((self, timeline))),
        )
        self.told(timeline, [(key, slot)])
        return item

    @_rebuilding
    def version(self, key: str) -> int:
        """The version of a key, 0 if it is absent."""
        timeline = self.now()
        return timeline.version(self.live(timeline, key)) if timeline is not None else 0

    @_rebuilding
    def versions(self, keys: Iterable[str]) -> list[int]:
        """The versions of keys, 0 for those that are absent, of one moment."""
        timeline = self.now()
        if timeline is None:
            return [0 for _ in keys]
        with timeline.lock:
            return [timeline.version(self.live(timeline, key)) for key in keys]

    @_rebuilding
    def exists(self, key: str) -> bool:
        """Whether a key is there."""
        key = check_key(key, owner=True)
        timeline = self.now()
        return timeline is not None and self.live(timeline, key) is not None

    @_rebuilding
    def keys(self, prefix: str = "", limit: int | None = None, after: str = "") -> list[str]:
        """Keys in order, from behind `after` on."""
        check_listing(prefix, limit, after)
        return [key for key, _ in self._slots(prefix, limit, after)]

    @_rebuilding
    def items(
        self, prefix: str = "", limit: int | None = None, after: str = "", plain: bool = False
    ) -> list[tuple[str, Any]]:
        """Keys and values in order, of one moment."""
        check_listing(prefix, limit, after)
        timeline = self.now()
        if timeline is None:
            return []
        return self._values(timeline, list(self._slots(prefix, limit, after, timeline)), plain)

    def may(self) -> tuple[str, ...]:
        """What keys begin with that may be read; "" if all may, as of a store that none guards."""
        held = self.core.guard.held(self.scope) if self.core.guard is not None else ("",)
        return ("",) if "" in held else held

    def scan(
        self, timeline: Timeline, prefix: str, after: str = "", box: Box | None = None
    ) -> Iterator[tuple[str, Slot]]:
        """Keys that may be read and what is known of each; a timeline's own scan tells of all."""
        found = timeline.scan(prefix, after)
        kept = found if box is None else box.scan(found, prefix, after)
        may = self.may()
        return kept if may == ("",) else (one for one in kept if one[0].startswith(may))

    def _slots(
        self, prefix: str, limit: int | None, after: str, timeline: Timeline | None = None
    ) -> Iterator[tuple[str, Slot]]:
        timeline = timeline or self.now()
        if timeline is None:
            return
        prefix, after = normalize("NFC", prefix), normalize("NFC", after)
        number, bound = 0, MANY if limit is None else min(limit, MANY)
        for key, slot in self.scan(timeline, prefix, after, self._box(timeline)):
            if number >= bound:
                if number == limit:
                    return
                leave_loop()
                bound = limit or sys.maxsize
            if key[0] == RESERVED and (home := passed_over(key, prefix)):
                # It may be much: on behind it.
                rest = limit - number if limit is not None else None
                yield from self._slots(prefix, rest, home + "\U0010ffff", timeline)
                return
            if slot.meta and self.judged(slot) is None:
                continue
            number += 1
            yield key, slot

    @_rebuilding
    def find(self, asked: Question, values: bool, plain: bool) -> Page:
        """Keys, or keys and values, that a lookup leads to."""
        check_flag(values, "values")
        check_flag(plain, "plain")
        timeline = self.now()
        if timeline is None:
            raise LookupNotFoundError(f"there is no scope {self.scope} in this store")
        with timeline.lock:
            search = Search(timeline, asked, self.judged)
            found = list(search.names())
            more = asked.limit is not None and len(found) > asked.limit
            found = found[: asked.limit]
            after = search.cursor(found[-1]) if more and found else None
            may = self.may()
            keys = [key for key in map(search.lookup.key_in, found) if key.startswith(may)]
            if not values:
                return Page(keys, after)
            slots = [(key, search.slot(key)) for key in keys]
        return Page(self._values(timeline, slots, plain), after)

    @_rebuilding
    def stored_keys(self, prefix: str) -> list[str]:
        """Some keys that are stored, whatever is declared of them."""
        timeline = self.now()
        found = timeline.scan(prefix) if timeline is not None else ()
        return [key for key, _ in islice(found, 10)]

    @_rebuilding
    def declared(self) -> Declared:
        """What is declared of the scope."""
        timeline = self.now()
        return timeline.declared if timeline is not None else NOTHING

    def declared_here(self) -> Declared:
        """The same as far as this process has read it, without looking for what is new."""
        ledger = self.core.held.get(self.scope)
        if ledger is None:
            return NOTHING
        number = 0 if self.timeline == "main" else ledger.names.get(self.timeline, -1)
        line = ledger.timelines.get(number)
        return line.declared if line is not None else NOTHING

    @_rebuilding
    def length(self, key: str) -> int:
        """Number of items of a list; 0 if the key is absent."""
        key = check_key(key, owner=True)
        timeline = self.now()
        slot = self.live(timeline, key) if timeline is not None else None
        if timeline is None or slot is None:
            return 0
        self.told(timeline, [(key, slot)])
        count = slot.length()
        return count if count is not None else len(self._small_list(timeline, slot, key, True))

    @_rebuilding
    def tail(self, key: str, count: int, plain: bool = False) -> list[Any]:
        """The last items of a list, without reading the rest."""
        check_count(count, "the count of tail")
        return self._part(key, -count, None if count else 0, plain)

    @_rebuilding
    def slice(
        self, key: str, start: int | None = None, stop: int | None = None, plain: bool = False
    ) -> list[Any]:
        """Items start..stop of a list, as with Python's slices, without reading the rest."""
        check_index(start, "start")
        check_index(stop, "stop")
        return self._part(key, start, stop, plain)

    def _part(self, key: str, start: int | None, stop: int | None, plain: bool) -> list[Any]:
        key = check_key(key, owner=True)
        timeline = self.now()
        slot = self.live(timeline, key) if timeline is not None else None
        if timeline is None or slot is None:
            return []
        length = slot.length()
        if length is None:
            found = self._small_list(timeline, slot, key, plain)[start:stop]
        else:
            low, high, _ = slice(start, stop).indices(length)
            found = self._items(timeline, slot, key, low, high, plain)
        self.told(timeline, [(key, slot)])
        return found

    def _small_list(
        self, timeline: Timeline, slot: Slot, key: str, plain: bool = False
    ) -> list[Any]:
        value = self.value(timeline, key, slot, plain) if slot.ref[0] != refs.TREE else None
        if value is ERASED:
            raise erased(self.scope, key)
        if type(value) is not list:
            raise InvalidInputError(f"{self.scope}: the value of {key!r} is not a list")
        return value

    def _items(
        self, timeline: Timeline, slot: Slot, key: str, low: int, high: int, plain: bool
    ) -> list[Any]:
        _, hash_, count, size = refs.read_tree(slot.ref)
        if high - low > FEW:
            leave_loop((high - low) * size // (count or 1))
        found: list[Any] = []
        if low < count:
            root = timeline.ledger.trees.load(slot.location, hash_)
            found = list(timeline.ledger.trees.slice(root, low, min(high, count)))
        if high > count:
            found.extend((slot.tail or ())[max(0, low - count) : high - count])
        return timeline.ledger.items_of(key, found, self._codec(plain))


_START = datetime.fromtimestamp(0, UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def moment(microseconds: int) -> datetime:
    """A claimed time as a datetime in UTC; what lies beyond its years is the first or last one."""
    try:
        return _START + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST if microseconds > 0 else _FIRST


def microseconds(time: datetime) -> int:
    """A datetime with zone as a claimed time."""
    check_moment(time, "a time")
    return (time - _START) // timedelta(microseconds=1)


# ---- masks --------------------------------------------------------------------------------------
# Whether something is sensitive, where several states say different things of its class.
#
# Each point and each timeline has its own declarations. What one of the states that are looked at
# calls sensitive is masked, and its reads are told; and so is what the newest state of a timeline
# calls so, in all of its past.


_UNREAD = (StateIntegrityError, NewerFormatError, ScopeNotFoundError, TimelineNotFoundError)
"""What stands in the way of reading what is declared in a state."""


def rules_of(*sides: tuple[Reader, Timeline]) -> Rules:
    """What is declared in states that are read, and in the newest of timelines whose past is."""
    found: dict[Declared, None] = {}
    for reader, line in sides:
        found[line.declared] = None
        if reader.at is not None:
            # What cannot be read, or is gone, says nothing: the past can be read all the same.
            with suppress(*_UNREAD):
                newest = Reader(reader.core, reader.scope, reader.timeline)
                found[newest.declared()] = None
    return list(found)


def masks(
    reader: Reader,
    line: Timeline,
    key: str,
    slots: Sequence[Slot | None],
    rules: Rules,
    *,
    reveal: bool = False,
) -> bool:
    """Whether values of a key are to be masked; if they are revealed, that is a read."""
    if not sensitive(key, slots, rules):
        return False
    if reveal:
        reader.told(line, [(key, slot) for slot in slots if slot is not None], rules)
    return not reveal
