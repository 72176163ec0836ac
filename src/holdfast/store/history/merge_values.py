"""Two versions of a value, made from one, as one value again.

What only one side changed is taken from that side; what both changed alike, once. Mappings are
merged field by field and lists item by item, at any depth. Where both changed the same thing in
different ways, somebody has to decide: `decide` is asked, and only there.

- **Fields** stand in the order of the side that changed the order, ours if both did; fields that
  only theirs has follow.
- **Items** that a side changed, removed or put in are found by comparing. An item
  that both changed is merged like any value. What both put in at the same place (at the end,
  mostly) is kept, ours first; what both begin with there is kept once.
- What both sides have made a mapping, or both a list, is merged as if it had been empty before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.errors import NewerFormatError, StateIntegrityError
from holdfast.seal.codec import Typed
from holdfast.store.commit.stage import operate
from holdfast.store.journal.declared import Declared
from holdfast.store.journal.lifetime import Meta
from holdfast.store.rules.classes import SENSITIVE, Classed, Rules, class_by, class_of
from holdfast.store.tree.difference import DELETED, identity, into, same
from holdfast.store.tree.sequence import aligned

if TYPE_CHECKING:
    from holdfast.store.commit.stage import Packer, Stage
    from holdfast.store.journal.timeline import Timeline


Items = list[Any]
Steps = tuple[Any, ...]
"""The way into a value as data, as of a `Difference`: a path is for people, nobody parses it."""
Decide = Callable[[str, Steps, Any, Any, Any], Any]
"""From path, steps and what stands there before, in ours and in theirs (`DELETED` where there is
nothing) to what shall stand there: a value or `DELETED`."""


def merge_values(
    path: str, base: Any, ours: Any, theirs: Any, decide: Decide, steps: Steps = ()
) -> Any:
    """One value of two; `DELETED` stands for none."""
    if same(ours, theirs) or same(base, theirs):
        return ours
    if same(base, ours):
        return theirs
    if type(ours) is type(theirs) is dict:
        before = base if type(base) is dict else {}
        first, second = (theirs, ours) if list(ours) == list(before) else (ours, theirs)
        merged: dict[Any, Any] = {}
        for name in {**first, **second}:
            was, here, there = (side.get(name, DELETED) for side in (before, ours, theirs))
            value = merge_values(into(path, name), was, here, there, decide, (*steps, name))
            if value is not DELETED:
                merged[name] = value
        return merged
    if type(ours) is type(theirs) is list:
        return _items(path, base if type(base) is list else [], ours, theirs, decide, steps)
    kinds = [_kind(side) for side in (base, ours, theirs)]
    if kinds[1] is not None and kinds[1] == kinds[2]:
        # Registered objects: their fields, if they are of one type and version.
        inner = base.value if kinds[0] == kinds[1] else DELETED
        value = merge_values(path, inner, ours.value, theirs.value, decide, steps)
        return Typed(ours.name, ours.version, value)
    return decide(path, steps, base, ours, theirs)


def _kind(value: Any) -> tuple[str, int, type] | None:
    """Type, version and form of an object; None of what is none, or has no parts to tell apart."""
    if type(value) is not Typed or type(value.value) not in (dict, list):
        return None
    return value.name, value.version, type(value.value)


# lists


def _fate(base: Items, new: Items) -> tuple[Items, dict[int, Items]]:
    """What each item of a list has become on a side (`DELETED` if it was removed), and what was put
    in before an item, or (by the number of items) at the end.

    In a range that was replaced, items are changed one for one; what is left over was removed, or
    put in behind them.
    """
    items, added = list(base), dict[int, Items]()
    for low, high, first, last in aligned(*([*map(identity, side)] for side in (base, new))):
        middle = low + min(high - low, last - first)
        items[low:middle] = new[first : first + middle - low]
        items[middle:high] = [DELETED] * (high - middle)
        if rest := new[first + middle - low : last]:
            added[high] = rest
    return items, added


def _items(path: str, base: Items, ours: Items, theirs: Items, decide: Decide, steps: Steps) -> Any:
    (mine, our_own), (other, their_own) = _fate(base, ours), _fate(base, theirs)
    merged: list[Any] = []
    at = 0  # where we are in ours
    for number in range(len(base) + 1):
        here = our_own.get(number, [])
        at += len(here)
        merged += joined(here, their_own.get(number, []))
        if number == len(base):
            break
        was, item, there = base[number], mine[number], other[number]
        value = item
        if item is not was or there is not was:
            value = merge_values(f"{path}[{at}]", was, item, there, decide, (*steps, at))
        if value is not DELETED:
            merged.append(value)
        at += item is not DELETED
    return merged


def joined(ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Items of both, ours first; what both begin with, once."""
    alike = 0
    while alike < min(len(ours), len(theirs)) and same(ours[alike], theirs[alike]):
        alike += 1
    return ours + theirs[alike:]


# ---- merge meta ---------------------------------------------------------------------------------
# Expiry and class of what comes from another timeline or scope.


def classes_along(there: Iterable[Timeline], here: Declared) -> list[Classed]:
    """What states of another timeline declare sensitive, where this one declares nothing of it.

    Nothing, of one that cannot be read: the state can be taken over all the same.
    """
    known, found = here.prefixes(Classed), dict[Classed, None]()
    for state in there:
        with suppress(StateIntegrityError, NewerFormatError):  # this shall not stop the restore
            found |= dict.fromkeys(state.declared.of(Classed))
    return [one for one in found if one.class_ == SENSITIVE and one.prefix not in known]


def declare_along(stage: Stage, packer: Packer, there: Iterable[Timeline]) -> list[Any]:
    """Behind a restore, in its entry: operations by which what is sensitive there stays so."""
    ops: list[Any] = []
    for one in classes_along(there, stage.declared):
        part = stage.ledger.splitter.split(one.data())
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
