"""Ephemeral keys: they live in the process only.

A value is held as a slot whose ref carries all of it, so that it is read like any other; nothing
of it reaches an entry, a saved index or a file. Which keys are ephemeral follows from what is
declared at the moment an entry is built, so that no writer stores such a key by being late.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any, ClassVar, Protocol

from msgspec.structs import replace

from holdfast.errors import (
    DamagedIndexError,
    DamagedRecordError,
    InvalidInputError,
    LimitExceededError,
    MissingError,
    NewerFormatError,
)
from holdfast.store.journal.declared import Declared, Plan, PrefixDeclaration
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.lifetime import KEEP, NONE, Meta, Terms
from holdfast.store.journal.slot import Slot, meta_of
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names.cause import Cause
from holdfast.store.rules.keep import going
from holdfast.store.tree.split import Atom, Part

MOST_BYTES = 64 * 1024 * 1024
"""Of all ephemeral values of one opened store, encoded."""
FIRST = 1 << 40
"""Versions of ephemeral keys begin here: no entry has such a number."""


@dataclass(frozen=True)
class Ephemeral(PrefixDeclaration):
    """Keys that begin with the prefix live in the process only.

    They are never stored: not in entries, not in checkpoints, not seen by other processes or by
    another opened store; closing the store ends them, and so does a restore. For scratch work and
    caches. An opened store holds at most 64 MiB of them.
    """

    kind: ClassVar[str] = "ephemeral"
    not_empty: ClassVar[str] = "declarations have to be stored"

    def onto(self, plan: Plan, key: str) -> Plan:
        """Nothing of its keys is stored."""
        return plan._replace(ephemeral=True) if key.startswith(self.prefix) else plan


class Staged(Protocol):
    """The state that the next entry rests on: as much of a stage as is needed here."""

    timeline: Timeline
    ledger: Ledger
    origin: int

    @property
    def now(self) -> int:
        """The time by which expiry is judged."""

    def ephemeral(self, key: str) -> bool:
        """Whether a key lives in the process only."""

    def version(self, key: str) -> int:
        """The entry that wrote a key, 0 if it is absent."""


class Held(Slot, gc=False, eq=False):
    """What is known of an ephemeral key."""

    time: int = 0
    cause: Cause | None = None


class Box:
    """The ephemeral keys of one timeline, for as long as the same is declared of it."""

    __slots__ = ("declared", "origin", "prefixes", "slots")

    def __init__(self, declared: Declared, origin: int, slots: dict[str, Held]) -> None:
        self.declared = declared
        self.origin = origin
        self.prefixes = ephemeral_prefixes(declared)
        self.slots = {k: slot for k, slot in slots.items() if k.startswith(self.prefixes)}

    def scan(
        self, stored: Iterable[tuple[str, Slot]], prefix: str, after: str
    ) -> Iterator[tuple[str, Slot]]:
        """Keys and slots in key order: those that are stored, and these."""
        mine = sorted(
            (key, slot)
            for key, slot in self.slots.copy().items()
            if key.startswith(prefix) and key > after
        )
        others = (pair for pair in stored if not pair[0].startswith(self.prefixes))
        return merge(mine, others, key=lambda pair: pair[0])


Made = dict[str, Held | None]
"""What a change makes of ephemeral keys; None where it removes them."""


class Ephemerals:
    """What an opened store holds of ephemeral keys."""

    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int], Box] = {}
        self._bytes = 0
        self._version = FIRST
        self._lock = threading.RLock()  # boxes and what they hold in all; a sweep applies, too

    def box(self, timeline: Timeline) -> Box | None:
        """The ephemeral keys of a timeline; None if none are declared."""
        try:
            declared = timeline.declared
        except DamagedIndexError:
            raise  # the entries give it again
        except (DamagedRecordError, NewerFormatError):
            return None  # writing is refused; what is stored can be read
        place = (timeline.ledger.number, timeline.number)
        box = self.boxes.get(place)
        if box is None and not declared.of(Ephemeral):
            return None
        if box is not None and box.declared is declared and box.origin == timeline.origin:
            return box
        with self._lock:
            old = self.boxes.pop(place, None)
            held = old.slots if old is not None and old.origin == timeline.origin else {}
            box = Box(declared, timeline.origin, held)
            if old is not None:
                self._bytes += _size(box.slots.values()) - _size(old.slots.values())
            if not box.prefixes:
                return None
            self.boxes[place] = box
            return box

    def forget(self, scope: int) -> None:
        """A scope is deleted: nothing of it stays."""
        with self._lock:
            for place in [place for place in self.boxes if place[0] == scope]:
                self._bytes -= _size(self.boxes.pop(place).slots.values())

    def clear(self) -> None:
        """The store is closed."""
        with self._lock:
            self.boxes.clear()
            self._bytes = 0

    def version(self, stage: Staged, key: str) -> int:
        """The version of a key, ephemeral or stored, that the next entry rests on."""
        if stage.ephemeral(key):
            slot = self._slots(stage).get(key)
            return slot.sequence if slot is not None and not slot.over(stage.now) else 0
        return stage.version(key)

    def _slots(self, stage: Staged) -> dict[str, Held]:
        """What is held of a timeline, unless a restore of this group has ended it."""
        box = self.box(stage.timeline) if stage.origin == stage.timeline.origin else None
        return box.slots if box is not None else {}

    def route(
        self, ops: Sequence[tuple[Any, ...]], stage: Staged, time: int, cause: Cause | None
    ) -> tuple[list[tuple[Any, ...]], Made, list[Any]]:
        """Take the ephemeral keys out of what is to become an entry.

        Gives what is left, what the keys become once the rest is committed, and an answer for
        each operation on them as an entry's would be.
        """
        others: list[tuple[Any, ...]] = []
        slots = self._slots(stage)
        made: Made = {}
        answers: list[Any] = []
        for op in ops:
            if not stage.ephemeral(op[1]):
                others.append(op)
                continue
            old = made[op[1]] if op[1] in made else slots.get(op[1])
            if old is not None and old.over(stage.now):
                old = None
            answers.append(old is not None if op[0] == "delete" else None)
            if op[0] in ("append", "trim"):
                op, gone = _as_set(stage, op, old)
                answers[-1] = gone
            made[op[1]] = self._held(stage, op, old, time, cause)
        growth = _size(made.values()) - _size(slots[key] for key in made if key in slots)
        if self._bytes + max(growth, 0) > MOST_BYTES:
            raise LimitExceededError(
                f"{stage.ledger.scope}: the ephemeral values of this store would take more than "
                f"{MOST_BYTES} bytes; delete some, or store them"
            )
        return others, made, answers

    def _held(
        self, stage: Staged, op: tuple[Any, ...], old: Held | None, time: int, cause: Cause | None
    ) -> Held | None:
        if op[0] == "delete":
            return None
        if op[0] == "expire":
            if old is None:
                raise MissingError(f"{stage.ledger.scope} has no key {op[1]!r} that could expire")
            meta = _meta(stage, op[2], old)._replace(class_=meta_of(old).class_)
            return replace(old, meta=meta.pack())
        data = _encoded(stage, op[2])
        meta = _meta(stage, op[3], old) if len(op) > 3 else NONE
        self._version += 1
        place = (None, stage.timeline.number, self._version, None)
        return Held(b"\0" + data, *place, meta.pack(), time, cause)

    def sweep(self, timeline: Timeline, now: int) -> int:
        """Drop what has expired; tells how many keys that were."""
        with self._lock:
            box = self.box(timeline)
            gone = [key for key, slot in box.slots.items() if slot.over(now)] if box else []
            self.apply(timeline, dict.fromkeys(gone))
        return len(gone)

    def apply(self, timeline: Timeline, made: Made) -> None:
        """The change is committed: let readers see its ephemeral keys."""
        with self._lock:
            box = self.box(timeline)
            for key, slot in made.items():
                if box is None or not key.startswith(box.prefixes):
                    continue  # no longer ephemeral, by an entry of the same commit
                old = box.slots.pop(key, None)
                self._bytes += _size([slot]) - _size([old])
                if slot is not None:
                    box.slots[key] = slot


def ephemeral_prefixes(declared: Declared) -> tuple[str, ...]:
    """The prefixes that are declared ephemeral."""
    return declared.prefixes(Ephemeral)


def refuse_ephemeral(declared: Declared, key: str, what: str) -> None:
    """Refuse what an ephemeral key does not have, because nothing of it is stored."""
    if key.startswith(ephemeral_prefixes(declared)):
        raise InvalidInputError(
            f"{key!r} is ephemeral: it lives in the process only and has no {what}"
        )


def _meta(stage: Staged, terms: Terms, old: Held | None) -> Meta:
    if terms.term:
        raise InvalidInputError("ephemeral keys do not slide: reading them writes nothing")
    return terms.meta(stage.now, meta_of(old))


def _as_set(
    stage: Staged, op: tuple[Any, ...], old: Held | None
) -> tuple[tuple[Any, ...], int | None]:
    """An append or a trim as the set or delete that it comes to, and how many items went."""
    kind, key, what = op
    codec, splitter = stage.ledger.codec, stage.ledger.splitter
    items = codec.plain_reader.decode(old.ref[1:]) if old is not None else []
    if type(items) is not list:
        raise InvalidInputError(
            f"{stage.ledger.scope}: the value of {key!r} is not a list; "
            "append and trim need a list or an absent key"
        )
    gone = None
    if kind == "trim":
        if old is None:
            return ("delete", key), 0
        gone = going(len(items), what)
        items = items[gone:]
    else:
        items += [codec.plain_reader.decode(_encoded(stage, part)) for part in what]
    return ("set", key, splitter.atom(codec.encode(codec.plain(items))), KEEP), gone


def _encoded(stage: Staged, part: Part) -> bytes:
    codec = stage.ledger.codec
    if type(part) is Atom:
        return part.data(codec)
    return codec.encode(stage.ledger.splitter.plain_of(part))


def _size(slots: Iterable[Held | None]) -> int:
    return sum(len(slot.ref) for slot in slots if slot is not None)
