"""Expiry and class of what a merge writes."""

from __future__ import annotations

from holdfast.store.classes import SENSITIVE, class_of
from holdfast.store.declared import Declared
from holdfast.store.lifetimes import Meta


def merge_meta(bases: list[Meta], ours: Meta, theirs: Meta) -> Meta:
    """Those of a value that both sides have, or that was made of both.

    Of the side that changed it, ours if both did; what was sensitive on one of them stays so.
    """
    found = theirs if all(base == ours for base in bases) else ours
    if SENSITIVE in (ours.class_, theirs.class_):
        return found._replace(class_=SENSITIVE)
    return found


def meta_beside(key: str, beside: str, theirs: Meta, declared: Declared) -> Meta:
    """Those of a copy under another name: they are what they were, whatever that name tells."""
    class_ = class_of(key, theirs.pack(), declared)
    if class_of(beside, theirs.pack(), declared) == class_:
        return theirs
    return theirs._replace(class_=class_)
