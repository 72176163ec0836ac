"""Expiry and class of what comes from another timeline or scope."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.errors import NewerFormatError, StateIntegrityError
from holdfast.store.commit.stage import operate
from holdfast.store.journal.declared import Declared
from holdfast.store.journal.lifetime import Meta
from holdfast.store.rules.classes import SENSITIVE, Classed, Rules, class_by, class_of

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.commit.stage import Packer, Stage
    from holdfast.store.journal.timeline import Timeline


def classes_along(there: Iterable[Timeline], here: Declared) -> list[Classed]:
    """What states of another timeline declare sensitive, where this one declares nothing of it.

    Nothing, of one that cannot be read: the state can be taken over all the same.
    """
    known, found = here.prefixes(Classed), dict[Classed, None]()
    for state in there:
        with suppress(StateIntegrityError, NewerFormatError):
            found |= dict.fromkeys(state.declared.of(Classed))
    return [one for one in found if one.class_ == SENSITIVE and one.prefix not in known]


def declare_along(core: Core, stage: Stage, packer: Packer, there: Iterable[Timeline]) -> list[Any]:
    """Behind a restore, in its entry: operations by which what is sensitive there stays so."""
    ops: list[Any] = []
    for one in classes_along(there, stage.declared):
        part = core.split(stage.ledger, one.key, one.data())
        operate(stage, stage.sequence + 1, ("set", one.key, part), packer, ops)
    return ops


def meta_along(key: str, meta: Meta, there: Rules, here: Declared) -> Meta:
    """Those of a value that comes from elsewhere: what is sensitive by the rules of there stays so.

    Where the rules of here say the same, they go on doing so.
    """
    packed = meta.pack()
    if class_of(key, packed, here) == SENSITIVE or class_by(key, packed, there) != SENSITIVE:
        return meta
    return meta._replace(class_=SENSITIVE)


def merge_meta(key: str, bases: list[Meta], ours: Meta, theirs: Meta, declared: Declared) -> Meta:
    """Those of a value that both sides have, or that was made of both.

    Of the side that changed it, ours if both did; what was sensitive on one of them stays so, by
    what is declared or by itself.
    """
    found = theirs if all(base == ours for base in bases) else ours
    kinds = [class_of(key, meta.pack(), declared) for meta in (found, ours, theirs)]
    if kinds[0] != SENSITIVE and SENSITIVE in kinds:
        return found._replace(class_=SENSITIVE)
    return found


def meta_beside(key: str, beside: str, theirs: Meta, declared: Declared) -> Meta:
    """Those of a copy under another name: they are what they were, whatever that name tells."""
    class_ = class_of(key, theirs.pack(), declared)
    if class_of(beside, theirs.pack(), declared) == class_:
        return theirs
    return theirs._replace(class_=class_)
