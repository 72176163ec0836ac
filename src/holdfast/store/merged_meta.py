"""Expiry and class of what a merge writes."""

from __future__ import annotations

from holdfast.store.classes import SENSITIVE, class_of
from holdfast.store.declared import Declared
from holdfast.store.judging import Rules, class_by
from holdfast.store.lifetimes import Meta


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
