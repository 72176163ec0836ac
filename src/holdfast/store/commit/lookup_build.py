"""Building a lookup for keys that are there already, and removing one that is not declared.

Both go in entries of bounded size, each on the newest state, beside all other writers: those keep
the terms of what they change from the first of these entries on. `$lookup/NAME` says how far it
is, so that whoever comes next goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.store.commit.lookup_terms import (
    Progress,
    Terms,
    nothing,
    progress_atom,
    read_progress,
    staged_reader,
)
from holdfast.store.journal.key_range import behind, slot_from, timeline_range
from holdfast.store.rules.lookup import BUILT, MOST_TERMS, TERMS, Lookup

if TYPE_CHECKING:
    from holdfast.store.commit.stage import Stage
    from holdfast.store.journal.declared import Declared
    from holdfast.store.journal.entry import Body
    from holdfast.store.journal.slot import Slot
    from holdfast.store.journal.timeline import Timeline

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
        progress = read_progress(stage.ledger, slot, staged_reader(stage))
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
        reader = Terms(ledger, staged_reader(stage))
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
