"""Keeping lookups: the terms of each key that an entry changes, in that entry.

What a value was and what it becomes are both looked at by the writer, and what differs between
their terms becomes further operations. Of a value kept as a tree only the parts are read that the
paths lead to: an append to a list that a lookup is about reads those of all its items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import HoldfastError, LimitExceededError, StateIntegrityError
from holdfast.store.commit.stage import Ops, Packer, Stage
from holdfast.store.journal import entry
from holdfast.store.journal.declared import PREFIX as DECLARED
from holdfast.store.journal.declared import Declared
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.slot import Slot, slot_of
from holdfast.store.journal.timeline import Timeline, behind, slot_from, timeline_range
from holdfast.store.rules.lookup import (
    BUILT,
    EACH,
    MOST_TERMS,
    TERMS,
    Lookup,
    Steps,
    encoded,
    parts_at,
    terms_at,
)
from holdfast.store.tree import refs
from holdfast.store.tree.split import Atom
from holdfast.store.tree.tree import Node

_DECLARATION = f"{DECLARED}{Lookup.kind}/"
_NOTHING = b"\xc0"
"""The value of a key that stands for a term."""
MOST_KEPT = 500
"""Sticky keys whose terms a restore brings in line itself."""
MOST_BYTES = 256 * 1024
"""Of the terms of these keys."""
HELD, HELD_EACH = 1024, 16
"""Keys of a scope whose terms are remembered, if they have so few: those that change often."""
Read = Callable[[bytes, Any], bytes]
"""The bytes of an atom, by its ref and place."""


class Progress(NamedTuple):
    """What `$lookup/NAME` says: the declaration that it is built for, and how far."""

    fingerprint: bytes
    behind: str | None
    """Keys up to this one have their terms; None if all have."""


def read_progress(ledger: Ledger, slot: Slot | None, read: Read | None = None) -> Progress | None:
    """What is kept of how far a lookup is built; None if nothing is."""
    if slot is None:
        return None
    value = ledger.codec.plain_reader.decode((read or ledger.atom)(slot.ref, slot.location))
    return Progress(*value)


class Terms:
    """Reads the terms of values of one scope; `read` gives the bytes of atoms."""

    def __init__(self, ledger: Ledger, read: Read | None = None) -> None:
        self._ledger = ledger
        self._read = read or ledger.atom
        self._decode = ledger.codec.plain_reader.decode

    def keys(self, lookup: Lookup, key: str, slot: Slot) -> frozenset[str]:
        """The keys that stand for a key in a lookup."""
        if lookup.leaves_out(key, slot.meta):
            return frozenset()
        ref, place, memo = slot.ref, slot.location, self._ledger.terms
        held = memo.get((lookup.fingerprint, key))
        if held is not None and held[0] == ref:  # equal refs are equal values
            return held[1]
        if ref[0] in (refs.ATOM_INLINE, refs.ATOM):
            value = self._decode(self._read(ref, place))
            found = [terms_at(value, steps) for steps in lookup.paths]
        else:
            found = [encoded(self._parts(ref, place, steps)) for steps in lookup.paths]
        names = lookup.keys_of(key, found)
        if len(memo) >= HELD:
            memo.clear()
        if len(names) <= HELD_EACH:
            memo[(lookup.fingerprint, key)] = (ref, names)
        return names

    def _parts(self, ref: bytes, location: Any, steps: Steps) -> Iterator[Any]:
        """The parts that a path leads to, with only what lies on the way read."""
        if ref[0] == refs.TYPED and not steps:
            return  # an object is no term
        ref = refs.bare(ref)
        if ref[0] != refs.TREE:
            yield from parts_at(self._decode(self._read(ref, location)), steps)
            return
        kind, hash_, count, _ = refs.read_tree(ref)
        trees = self._ledger.trees
        if not steps:
            if kind in (refs.TEXT, refs.BYTES):
                elements = trees.all(trees.load(location, hash_))
                data = b"".join([self._decode(self._read(e[1], e[2])) for e in elements])
                yield data if kind == refs.BYTES else data.decode()
            return
        step, rest = steps[0], steps[1:]
        if kind == refs.MAP and type(step) is str:
            every = trees.all(trees.load(location, hash_))
            chosen = [element for element in every if element[0] == step]
        elif kind == refs.LIST and type(step) is int:
            low, high = (0, count) if step == EACH else (step, step + 1)
            chosen = list(trees.slice(trees.load(location, hash_), low, high))
        else:
            return
        for _, inner, place in chosen:
            yield from self._parts(inner, place, rest)


def keep_lookups(stage: Stage, ops: Ops, packer: Packer) -> Callable[[int, list[Any]], None] | None:
    """What keeps the lookups while an entry is built, before its operations are applied."""
    rules = [stage.rule(op[1]) for op in ops]
    lookups = {one.name: one for rule in rules if rule for one in rule.lookups}
    if not lookups and not any(op[1].startswith(_DECLARATION) for op in ops):
        return None
    keeper = Keeper(stage, packer, [*lookups.values()])
    for op in ops:
        keeper.before(op)
    return keeper.after


class Keeper:
    """The lookups of a scope while one entry is built."""

    def __init__(self, stage: Stage, packer: Packer, lookups: Sequence[Lookup]) -> None:
        self._stage = stage
        self._packer = packer
        self._atom = partial(stage.atom, laid=packer.laid)
        self._terms = Terms(stage.ledger, self._atom)
        self._lookups = [one for one in lookups if self._kept(one)]
        self._was: dict[str, Slot | None] = {}
        """What each key was."""
        self._more: list[tuple[Any, ...]] = []

    def _kept(self, lookup: Lookup) -> bool:
        slot = self._stage.slot(lookup.built)
        if slot is not None and slot.ref[1:] == lookup.whole:
            return True
        progress = read_progress(self._stage.ledger, slot, self._atom)
        return progress is not None and progress.fingerprint == lookup.fingerprint

    def before(self, op: tuple[Any, ...]) -> None:
        """Note what a key is before an operation on it."""
        kind, key = op[0], op[1]
        if kind == "expire":
            return  # its value stays; the terms of what has expired go with the key
        if key.startswith(_DECLARATION):
            built = BUILT + key[len(_DECLARATION) :]
            if self._stage.slot(built) is not None:
                self._more.append(("delete", built))
            return
        if key not in self._was and any(lookup.covers(key) for lookup in self._lookups):
            self._was[key] = self._stage.slot(key)

    def restored(self, then: Node, keys: Sequence[str]) -> list[Any]:
        """Operations for sticky keys, which a restore to `then` left as they are now: take it that
        they were what they are there.

        If they are many, the lookup is forgotten instead, and is built anew behind the restore.
        """
        fits = False
        for key in keys:
            if any(lookup.covers(key) for lookup in self._lookups):
                element = self._stage.ledger.trees.find(then, key)
                self._was[key] = slot_of(element) if element is not None else None
        with suppress(LimitExceededError):
            if len(self._was) <= MOST_KEPT:
                self._differences()
                fits = sum(len(op[1]) for op in self._more) <= MOST_BYTES
        if not fits:
            self._more = [("delete", lookup.built) for lookup in self._lookups]
        made: list[Any] = []
        self._follow(self._stage.sequence + 1, made)
        return made

    def after(self, sequence: int, made: list[Any]) -> None:
        """Apply what follows from the operations, and add it to what the entry says."""
        self._differences()
        self._follow(sequence, made)

    def _differences(self) -> None:
        for key, was in self._was.items():
            for lookup in [one for one in self._lookups if one.covers(key)]:
                old, now = self._old_keys(lookup, key, was), self._stage.slot(key)
                new = self._keys(lookup, key, now)
                gone, come = old - new, new - old
                if len(new) > MOST_TERMS and come:
                    raise lookup.too_many(key)
                self._more += [("delete", name) for name in sorted(gone)]
                self._more += [("set", name, nothing(self._stage.ledger)) for name in sorted(come)]

    def _follow(self, sequence: int, made: list[Any]) -> None:
        """What `operate` does with these, which are of two kinds and have nothing besides."""
        stage, packer = self._stage, self._packer
        for op in self._more:
            if op[0] == "delete":
                stage._put(op[1], None)
                made.append([entry.DELETE, op[1]])
            else:
                made.append(stage._set(sequence, op[1], op[2], packer))

    def _old_keys(self, lookup: Lookup, key: str, slot: Slot | None) -> Set[str]:
        try:
            return self._keys(lookup, key, slot)
        except StateIntegrityError:
            # A damaged value can be overwritten: then the lookup itself is searched for the key.
            walk = self._stage.range(lookup.home, lookup.end)
            return {name for name, _ in walk if name.endswith(key) and lookup.key_in(name) == key}

    def _keys(self, lookup: Lookup, key: str, slot: Slot | None) -> Set[str]:
        if slot is None:
            return set()
        return self._terms.keys(lookup, key, self._stage.timeline.settled(slot))


def nothing(ledger: Ledger) -> Atom:
    """The value of a key that stands for a term."""
    return ledger.splitter.atom(_NOTHING)


def progress_atom(ledger: Ledger, progress: Progress) -> Atom:
    """The value of `$lookup/NAME`."""
    return ledger.splitter.atom(msgspec.msgpack.encode(progress))


# ---- building -----------------------------------------------------------------------------------
# Building a lookup for keys that are there already, and removing one that is not declared.
#
# Both go in entries of bounded size, each on the newest state, beside all other writers: those keep
# the terms of what they change from the first of these entries on. `$lookup/NAME` says how far it
# is, so that whoever comes next goes on from there.


KEYS = 500
"""Keys whose terms one entry adds, at most."""
BYTES = 256 * 1024
"""Of keys that one entry adds or removes, about."""
_Ops = list[tuple[Any, ...]]


def all_built(timeline: Timeline) -> bool:
    """Whether every lookup that is declared is whole in a state, as far as can be read."""
    try:
        lookups = timeline.declared.of(Lookup)
        return not any(Step(one.name).wanted(timeline) for one in lookups)
    except HoldfastError:
        return True  # damage is for others to find: nothing can be built on it


def check_values(timeline: Timeline | None, lookup: Lookup) -> None:
    """Refuse what could not be built to its end, before anything is changed for it.

    Values that may have too many terms are read; where a lookup of that name would be lost, all.
    """
    if timeline is None:
        return
    lookup = lookup.beside(timeline.declared.all)
    every = timeline.slot(lookup.built) is not None
    reader = Terms(timeline.ledger)
    for low, high in lookup.spans():
        walk = ((found[0], slot_from(found)) for found in timeline_range(timeline, low, high))
        while page := list(islice(walk, KEYS)):
            wanted = [pair for pair in page if every or lookup.most(pair[1]) > MOST_TERMS]
            timeline.ledger.fetch_atoms((slot.ref, slot.location) for _, slot in wanted)
            for key, slot in wanted:
                if len(reader.keys(lookup, key, timeline.settled(slot))) > MOST_TERMS:
                    raise lookup.too_many(key)


def present(timeline: Timeline) -> set[str]:
    """The lookups of which there is anything, declared or not."""
    found = set()
    for home in (TERMS, BUILT):
        low = home
        while first := next(timeline_range(timeline, low, behind(home)), None):
            name = first[0][len(home) :].partition("/")[0]
            found.add(name)
            low = behind(f"{home}{name}/")
    return found


class Step:
    """The next entry on the way to a lookup that is whole, or gone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.home = f"{TERMS}{name}/"

    def wanted(self, timeline: Timeline) -> bool:
        """Whether there is anything left to do."""
        lookup = declared_lookup(timeline.declared, self.name)
        progress = read_progress(timeline.ledger, timeline.slot(BUILT + self.name))
        if lookup is None:
            terms = timeline_range(timeline, self.home, behind(self.home))
            return progress is not None or next(terms, None) is not None
        return progress != Progress(lookup.fingerprint, None)

    def take(self, stage: Stage, body: Body) -> None:
        """Build the entry, on whatever the state is by now."""
        kind = stage.timeline.due() if stage.sequence == stage.start and not stage.saves else None
        if kind is not None:  # many keys come together here: they are saved as they come
            stage.save(kind)
        lookup = declared_lookup(stage.declared, self.name)
        slot = stage.slot(BUILT + self.name)
        progress = read_progress(stage.ledger, slot, stage.atom)
        if lookup is not None and progress and progress.fingerprint == lookup.fingerprint:
            if progress.behind is not None:
                stage.add(self._build(stage, lookup, progress.behind), body)
            return
        ops = self._clear(stage, lookup)
        if progress is not None and (not ops or ops[-1][0] == "delete"):
            ops.append(("delete", BUILT + self.name))
        if ops:
            stage.add(ops, body)

    def _clear(self, stage: Stage, lookup: Lookup | None) -> _Ops:
        """Remove terms; when none is left, begin to build."""
        ops: _Ops = []
        used = 0
        for name, _ in stage.range(self.home, behind(self.home)):
            ops.append(("delete", name))
            used += len(name)
            if used > BYTES or len(ops) >= 4 * KEYS:
                return ops
        if lookup is not None:
            start = progress_atom(stage.ledger, Progress(lookup.fingerprint, ""))
            ops.append(("set", lookup.built, start))
        return ops

    def _build(self, stage: Stage, lookup: Lookup, last: str | None) -> _Ops:
        """Add the terms of the next keys."""
        ledger = stage.ledger
        ops: _Ops = []
        used = 0
        reader = Terms(ledger, stage.atom)
        page = list(islice(self._keys(stage, lookup, last or ""), KEYS + 1))
        stored = [slot for _, slot in page if slot.sequence <= stage.start]
        ledger.fetch_atoms((slot.ref, slot.location) for slot in stored)
        for key, slot in page[:KEYS]:
            if used > BYTES:
                break
            names = reader.keys(lookup, key, stage.timeline.settled(slot))
            if len(names) > MOST_TERMS:
                raise lookup.too_many(key)
            # Also those that a writer has added: to look for each would take longer.
            ops += [("set", name, nothing(ledger)) for name in sorted(names)]
            used += sum(map(len, names))
            last = key
        whole = not page or last == page[-1][0]
        progress = Progress(lookup.fingerprint, None if whole else last)
        ops.append(("set", lookup.built, progress_atom(ledger, progress)))
        return ops

    def _keys(self, stage: Stage, lookup: Lookup, last: str) -> Iterator[tuple[str, Slot]]:
        """The keys behind the last one, and what is known of them."""
        for low, high in lookup.spans():
            for found in stage.range(max(low, last), high) if last < high else ():
                if found[0] != last:
                    yield found[0], slot_from(found)


def declared_lookup(declared: Declared, name: str) -> Lookup | None:
    """The lookup of a name, if one is declared."""
    return next((one for one in declared.of(Lookup) if one.name == name), None)
