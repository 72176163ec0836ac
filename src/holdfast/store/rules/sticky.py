"""Sticky keys: covered by checkpoints, left alone by restore.

A restore names the older entry whose state it returns to and the prefixes that it left alone; the
state is then that of the older entry with the keys of now under those prefixes. So its entry
stays short, however many sticky keys there are, and only where the two states differ is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from holdfast.store.journal.declared import PREFIX, Declared, PrefixDeclaration
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.owned import TABLE


@dataclass(frozen=True)
class Sticky(PrefixDeclaration):
    """Keys that begin with the prefix are left alone by a restore.

    For what has happened in the world and is not undone by going back: effects done, money
    spent. Checkpoints cover such keys like all others.
    """

    kind: ClassVar[str] = "sticky"
    not_empty: ClassVar[str] = "else a restore would restore nothing"


def sticky_prefixes(declared: Declared) -> tuple[str, ...]:
    """The prefixes that a restore leaves alone, in the form that it needs.

    Declarations are among them whatever is declared, and what always stays (`Owned`): nobody lifts
    a hold by going back.
    """
    return apart([PREFIX, *TABLE.index.always, *(one.prefix for one in declared.of(Sticky))])


def sticky_along(
    operations: Sequence[Operation], *asked: Callable[[], Declared]
) -> list[Operation]:
    """What a change has to declare with the first records of features that restores leave alone.

    `asked` tell what is declared: the first that knows enough is enough.
    """
    of = TABLE.index.sticky
    prefixes = {of(one.key) for one in operations if one.kind in ("set", "append")} - {""}
    for declared in asked:
        if not prefixes:
            return []
        prefixes -= set(declared().prefixes(Sticky))
    noted = {one.key for one in operations}
    made = [Operation("set", one.key, one.data()) for one in map(Sticky, sorted(prefixes))]
    return [one for one in made if one.key not in noted]


def apart(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Prefixes sorted, none the beginning of another."""
    found: list[str] = []
    for prefix in sorted(prefixes):
        if not found or not prefix.startswith(found[-1]):
            found.append(prefix)
    return tuple(found)
