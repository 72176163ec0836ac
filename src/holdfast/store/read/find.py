"""Asking a lookup: which keys have these terms, in order and page by page.

What is asked of the first terms bounds the part of the lookup that is read; what is asked of
further ones is compared with the terms that stand there. Values are read only on demand.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import InvalidInputError, LookupNotBuiltError, LookupNotFoundError
from holdfast.seal.ring import subkey
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import timeline_range
from holdfast.store.names.arguments import check_filters, check_limit
from holdfast.store.read.lookup_terms import Terms, read_progress
from holdfast.store.rules.lookup import (
    AFTER,
    EACH,
    Lookup,
    begins_bounds,
    check_lookup_name,
    equal_bounds,
    range_bounds,
)

if TYPE_CHECKING:
    from holdfast.store.journal.timeline import Timeline

_MISSING: Any = object()
_NONCE = 12


@dataclass(frozen=True, init=False)
class Range:
    """A range of terms of one type: above (`gt`, `ge`) and below (`lt`, `le`) a bound."""

    bounds: tuple[str, str]

    def __init__(
        self, *, gt: Any = _MISSING, ge: Any = _MISSING, lt: Any = _MISSING, le: Any = _MISSING
    ) -> None:
        object.__setattr__(self, "bounds", range_bounds(gt, ge, lt, le, _MISSING))

    def __repr__(self) -> str:
        return "Range(...)"


@dataclass(frozen=True, init=False)
class Begins:
    """Texts, or bytes, that begin with one of at most 64 characters."""

    bounds: tuple[str, str]

    def __init__(self, text: str | bytes) -> None:
        object.__setattr__(self, "bounds", begins_bounds(text))

    def __repr__(self) -> str:
        return "Begins(...)"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a lookup."""

    lookup: str
    where: Mapping[str, Any]
    order: str | None = None
    limit: int | None = None
    after: str | None = None


def question(
    lookup: str,
    where: Mapping[str, Any] | None,
    more: Mapping[str, Any],
    order: str | None,
    limit: int | None,
    after: str | None,
) -> Question:
    """A question from the arguments of `find`."""
    if where is not None and not isinstance(where, Mapping):
        raise InvalidInputError("what is asked for is a mapping from terms to values")
    check_filters(order=order, after=after)
    check_limit(limit)
    return Question(check_lookup_name(lookup), {**(where or {}), **more}, order, limit, after)


def lookup_named(timeline: Timeline, name: str) -> Lookup:
    """A lookup that is declared and built, else a clear error."""
    known = {one.name: one for one in timeline.declared.of(Lookup)}
    lookup = known.get(name)
    scope = timeline.ledger.scope
    if lookup is None:
        shown = f"; there are {', '.join(known)}" if known else ""
        raise LookupNotFoundError(f"{scope} declares no lookup {name!r}{shown}")
    progress = read_progress(timeline.ledger, timeline.slot(lookup.built))
    if progress is None or progress.fingerprint != lookup.fingerprint:
        raise LookupNotBuiltError(
            f"{scope}: the lookup {name!r} is declared and not built for this state; "
            "declare it again to build it"
        )
    if progress.behind is not None:
        done = f"up to {progress.behind!r}" if progress.behind else "no key"
        raise LookupNotBuiltError(
            f"{scope}: the lookup {name!r} is being built, {done} so far; if nobody builds it any "
            "more, declare it again to go on"
        )
    return lookup


class Search:
    """One question, put to one state."""

    def __init__(
        self, timeline: Timeline, asked: Question, judged: Callable[[Slot], Slot | None]
    ) -> None:
        self.timeline = timeline
        self._judged = judged
        self.asked = asked
        self.lookup = lookup_named(timeline, asked.lookup)
        self.reverse = bool(asked.order and asked.order.startswith("-"))
        self._terms = Terms(timeline.ledger)
        names = list(self.lookup.terms)
        unknown = [name for name in asked.where if name not in names]
        if unknown:
            raise InvalidInputError(
                f"the lookup {self.lookup.name!r} has no term {unknown[0]!r}; "
                f"it has {', '.join(names)}"
            )
        self.bounds = [_bounds(asked.where[n]) if n in asked.where else None for n in names]
        self._equal = [
            n in asked.where and not isinstance(asked.where[n], Range | Begins) for n in names
        ]
        self._further = False
        """Whether more is asked than what bounds the part that is read."""
        self.low, self.high = self._span()
        if asked.order is None:
            return
        name = asked.order.removeprefix("-")
        if name not in names:
            raise InvalidInputError(
                f"the lookup {self.lookup.name!r} has no term {name!r} to sort by; "
                f"it has {', '.join(names)}"
            )
        loose = [n for n, one in zip(names, self._equal, strict=True) if not one]
        if name in loose and name != loose[0]:
            raise InvalidInputError(
                f"the lookup {self.lookup.name!r} sorts by {loose[0]!r} first; ask for one value "
                f"of it, or declare a lookup with {name!r} before it"
            )

    def _span(self) -> tuple[str, str]:
        """The part of the lookup that the bounds of its first terms leave."""
        low = self.lookup.home
        for number, (bounds, exact) in enumerate(zip(self.bounds, self._equal, strict=True)):
            self._further = any(self.bounds[number + 1 :])
            if bounds is None:
                break
            if not exact:
                return low + bounds[0], low + bounds[1]
            low += bounds[0]
        if low == self.lookup.home:
            return low, self.lookup.end
        return low, low + AFTER

    def names(self) -> Iterator[str]:
        """The keys of the lookup that fit, in order: one more than asked for, if there is one."""
        low, high = self.low, self.high
        if self.asked.after is not None:
            behind = self.lookup.home + self._place(self.asked.after)
            low, high = (low, min(high, behind)) if self.reverse else (max(low, behind), high)
        left = None if self.asked.limit is None else self.asked.limit + 1
        repeats = any(EACH in steps for steps in self.lookup.paths) and not all(self._equal)
        for name, _ in timeline_range(self.timeline, low, high, reverse=self.reverse):
            if left == 0:
                return
            if name == low and self.asked.after is not None and not self.reverse:
                continue
            if self._further and not self._fits(name):
                continue
            slot = self.timeline.slot(self.lookup.key_in(name))
            if slot is not None and self._judged(slot) is None:
                continue  # it stands for a key that has expired, and was not swept yet
            if not (repeats and self._seen_before(name)):
                yield name
                left = left - 1 if left is not None else None

    def _fits(self, name: str) -> bool:
        found = self.lookup.terms_in(name)
        return all(
            bounds is None or bounds[0] <= term < bounds[1]
            for bounds, term in zip(self.bounds, found, strict=True)
        )

    def _seen_before(self, name: str) -> bool:
        """Whether a key fits by several terms, and this is not the first of them in order."""
        key = self.lookup.key_in(name)
        every = self._terms.keys(self.lookup, key, self.slot(key))
        fitting = [one for one in every if self._fits(one)]
        first = max(fitting, default=name) if self.reverse else min(fitting, default=name)
        return first != name

    def slot(self, key: str) -> Slot:
        """What is known of a key that was found."""
        slot = self.timeline.slot(key)
        if slot is None:
            raise self.lookup.not_whole(self.timeline.ledger.scope, key)
        return self.timeline.settled(slot)

    def cursor(self, name: str) -> str:
        """What to go on behind, as text that can be carried anywhere and tells nothing."""
        home, place = self.lookup.home.encode(), name[len(self.lookup.home) :].encode()
        nonce = subkey(self.timeline.ledger.page_key, b"nonce", name.encode())[:_NONCE]
        sealed = nonce + self._seal.encrypt(nonce, place, home)
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def _place(self, cursor: str) -> str:
        """The opposite of `cursor`."""
        try:
            sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
            nonce, home = sealed[:_NONCE], self.lookup.home.encode()
            return self._seal.decrypt(nonce, sealed[_NONCE:], home).decode()
        except (ValueError, InvalidTag):
            raise InvalidInputError(
                f"{self.timeline.ledger.scope}: after is what a page of the lookup "
                f"{self.lookup.name!r} gave as `after`, nothing else"
            ) from None

    @cached_property
    def _seal(self) -> AESGCM:
        """Under what places leave the store; in a plain store, who has its files has the key."""
        return AESGCM(self.timeline.ledger.page_key)


def _bounds(condition: Any) -> tuple[str, str]:
    if isinstance(condition, Range | Begins):
        return condition.bounds
    return equal_bounds(condition)
