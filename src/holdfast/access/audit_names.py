"""The names that notes of an audit stand for.

A note holds the number of a scope and tags of keys, made with what the scope alone has (its
commitment key, or its salt in a plain store). So notes outlive a scope that is erased, and its
names do not: from then on nobody can tell, or confirm a guess of, what a tag stood for.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.errors import KeyringError, PointNotFoundError, ScopeNotFoundError
from holdfast.errors import StateIntegrityError as Damage
from holdfast.store.commit.core import Core
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.timeline import folded_at
from holdfast.store.journal.tombstones import by_number
from holdfast.store.names import rowkinds


def key_tag(ledger: Ledger, key: str) -> bytes:
    """What stands for a key of a scope."""
    return ledger.tag(b"audit", key.encode("utf-8", "surrogatepass"))


class Names:
    """Finds scopes, timelines and keys by what notes hold of them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._directory = by_number(core)
        self._ledgers: dict[int, Ledger | None] = {}
        self._lines: dict[int, dict[int, str]] = {}
        self._keys: dict[int, dict[bytes, str]] = {}
        self._walked: set[tuple[int, int, int]] = set()

    def ledger(self, number: int) -> Ledger | None:
        """The scope, also one that is deleted; None if it is erased."""
        if number not in self._ledgers:
            self._ledgers[number] = None
            key, row = self._directory.get(number, (b"", b""))
            if key and key[21] != rowkinds.ERASED:
                with suppress(ScopeNotFoundError, KeyringError):
                    self._ledgers[number] = self._core.ledger_of(key, row)
        return self._ledgers[number]

    def timeline(self, ledger: Ledger, line: int) -> str | None:
        """The name of a timeline."""
        if ledger.number not in self._lines:
            found = self._core.timelines(ledger)
            self._lines[ledger.number] = {number: name for number, name, _, _ in found}
        return self._lines[ledger.number].get(line)

    def keys(self, ledger: Ledger, line: int, entry: int, tags: list[bytes]) -> list[str | None]:
        """The keys that tags stand for: they were there at the entry that was read."""
        known = self._keys.setdefault(ledger.number, {})
        place = (ledger.number, line, entry)
        if place not in self._walked and not known.keys() >= set(tags):
            self._walked.add(place)
            # What is pruned or damaged cannot be looked through: then a key may have no name.
            with suppress(PointNotFoundError, Damage):
                for element in ledger.trees.walk(folded_at(ledger, line, entry)):
                    known[key_tag(ledger, element[0])] = element[0]
        return [known.get(tag) for tag in tags]
