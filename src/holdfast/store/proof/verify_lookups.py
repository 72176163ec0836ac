"""Verifying lookups: the terms that the values give, compared with those that are kept.

Of each timeline's newest state. What older states held was written by the entries, which are
checked as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.store.commit.lookup_terms import Progress, Terms, read_progress
from holdfast.store.journal.key_range import slot_from, timeline_range
from holdfast.store.proof.verify_nodes import DAMAGE
from holdfast.store.rules.lookup import Lookup

if TYPE_CHECKING:
    from holdfast.store.journal.slot import Slot
    from holdfast.store.journal.timeline import Timeline
    from holdfast.store.proof.verify import _Check

PAGE = 500
NAMED = 1000
"""Keys that a finding names at most."""


def check_lookups(check: _Check, line: Timeline) -> None:
    """Compare every lookup that is built with the values."""
    try:
        lookups = line.declared.of(Lookup)
        for lookup in lookups:
            progress = read_progress(line.ledger, line.slot(lookup.built))
            if progress == Progress(lookup.fingerprint, None):
                _LookupCheck(check, line, lookup).run()
    except DAMAGE:
        return  # what cannot be read has been found and named before


class _LookupCheck:
    def __init__(self, check: _Check, line: Timeline, lookup: Lookup) -> None:
        self.check = check
        self.line = line
        self.lookup = lookup
        self.terms = Terms(line.ledger)

    def run(self) -> None:
        """First what is missing, then, if the numbers do not fit, what is too much."""
        count = 0
        missing: list[str] = []
        for key, slot in self._keys():
            names = self._names(key, slot)
            count += len(names)
            absent = [name for name in names if self.line.slot(name) is None]
            count -= len(absent)
            if absent:
                missing.append(key)
        self._find("it lacks terms of", missing)
        stored = timeline_range(self.line, self.lookup.home, self.lookup.end)
        if sum(1 for _ in stored) != count:
            self._find("it has terms that are not those of", list(self._surplus()))

    def _keys(self) -> Iterator[tuple[str, Slot]]:
        for low, high in self.lookup.spans():
            walk = timeline_range(self.line, low, high)
            while page := [(found[0], slot_from(found)) for found in islice(walk, PAGE)]:
                with suppress(*DAMAGE):  # found by its own check; here it only saves time
                    atoms = ((slot.ref, slot.location) for _, slot in page)
                    self.line.ledger.fetch_atoms(atoms)
                yield from page

    def _names(self, key: str, slot: Slot) -> frozenset[str]:
        try:
            return self.terms.keys(self.lookup, key, self.line.settled(slot))
        except DAMAGE:
            return frozenset()  # the value's own finding names it

    def _surplus(self) -> Iterator[str]:
        for name, _ in timeline_range(self.line, self.lookup.home, self.lookup.end):
            try:
                key = self.lookup.key_in(name)
            except (ValueError, IndexError):
                yield "?"
                continue
            slot = self.line.slot(key)
            try:
                keys = self.terms.keys(self.lookup, key, self.line.settled(slot)) if slot else ()
            except DAMAGE:
                continue
            if name not in keys:
                yield key

    def _find(self, what: str, keys: list[str]) -> None:
        if not keys:
            return
        name, scope = self.lookup.name, str(self.line.ledger.scope)
        some = ", ".join(dict.fromkeys(keys[:10]))
        self.check.find(
            "lookup",
            f"lookup {name} of {scope}",
            f"{what} {len(keys)} keys: {some}; state.rebuild({name!r}) makes it anew",
            scope,
            keys[:NAMED],
        )
