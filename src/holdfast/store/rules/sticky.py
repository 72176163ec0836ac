"""Sticky keys: covered by checkpoints, left alone by restore.

A restore names the older entry whose state it returns to and the prefixes that it left alone; the
state is then that of the older entry with the keys of now under those prefixes. So its entry
stays short, however many sticky keys there are, and only where the two states differ is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from holdfast.errors import InvalidInputError
from holdfast.store.journal.fold import fold
from holdfast.store.rules.checkpoint_marks import PREFIX as MARKS
from holdfast.store.rules.declared import PREFIX, Declared, PrefixDeclaration
from holdfast.store.tree.difference import tree_changes
from holdfast.store.tree.tree import Node, Trees

if TYPE_CHECKING:
    from holdfast.store.commit.stage import Stage

COLLECTED = "$shutdown/"
"""Below it is what was collected as a process ended, until it is given back: once, so neither going
back nor another state that is taken over brings it again."""
Keep = Callable[["Stage"], Iterable[str]]
"""Gives, in the commit of a restore, how keys begin that stay as they are."""


@dataclass(frozen=True)
class Sticky(PrefixDeclaration):
    """Keys that begin with the prefix are left alone by a restore.

    For what has happened in the world and is not undone by going back: effects done, money
    spent. Checkpoints cover such keys like all others.
    """

    kind: ClassVar[str] = "sticky"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.prefix:
            raise InvalidInputError(
                "Sticky takes a prefix that is not empty: else a restore would restore nothing"
            )


class Kept(NamedTuple):
    """A state to return to, with the sticky keys of now."""

    root: Node
    prefixes: tuple[str, ...]
    """What was left alone; empty if there nothing differs."""
    keys: tuple[str, ...]
    """Sticky keys that differ from what they were then, without those of declarations."""


def sticky_prefixes(declared: Declared) -> tuple[str, ...]:
    """The prefixes that a restore leaves alone, in the form that it needs.

    Declarations and marks are among them whatever is declared: nobody lifts a hold by going back.
    So is what was collected: who has been given it has it.
    """
    return apart([PREFIX, MARKS, COLLECTED, *(one.prefix for one in declared.of(Sticky))])


def sticky_of(stage: Stage) -> tuple[str, ...]:
    """The same, of the state that the next entry rests on: what a restore keeps by itself."""
    return sticky_prefixes(stage.declared)


def apart(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Prefixes sorted, none the beginning of another."""
    found: list[str] = []
    for prefix in sorted(prefixes):
        if not found or not prefix.startswith(found[-1]):
            found.append(prefix)
    return tuple(found)


def keep_sticky(trees: Trees, then: Node, now: Node, prefixes: tuple[str, ...]) -> Kept:
    """The index of then with the keys of now under some prefixes."""
    edits = [
        (key, after[1] if after else None, after[2] if after else None)
        for prefix in prefixes
        for key, _, after in tree_changes(trees, then, now, prefix)
    ]
    if not edits:
        return Kept(then, (), ())
    keys = tuple(key for key, _, _ in edits if not key.startswith(PREFIX))
    return Kept(fold(trees, then, edits), prefixes, keys)
