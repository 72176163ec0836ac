"""Repairing a conversation that a crash left with tool calls and without their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.agents.again import again
from holdfast.agents.agent_keys import own_change
from holdfast.agents.effect_book import Book
from holdfast.agents.effect_records import MOST_ID, MOST_NAME, Asked, Effect
from holdfast.agents.tool_calls import Answer, Call, completed, goes_whole, unpaired
from holdfast.errors import InvalidInputError
from holdfast.seal.codec import Typed
from holdfast.store.commit.exact_values import exact, subject_of
from holdfast.store.commit.request import ScopedChange
from holdfast.store.journal.lifetime import KEEP
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.subject_values import has_sealed
from holdfast.store.rules.subjects import Kept
from holdfast.store.tree import json

UNKNOWN = (
    "The outcome of this call is unknown: it was begun, and the agent stopped before it ended. "
    "It may have happened; find out before calling again."
)
NOT_DONE = "This call was not carried out: the agent stopped before it was begun."

LOST = "This call was carried out, and its result is not known any more. Do not call again."


@dataclass(frozen=True)
class Orphan:
    """A tool call that has no result."""

    call: Call
    effect: Effect | None
    """What is known of it; None if it was never planned or begun under `once`."""
    late: bool = False
    """Whether its result is there, but not directly behind it."""

    @property
    def answer(self) -> Answer:
        """The rule: what is known to have come of it, or what is known of it."""
        status = self.effect.status if self.effect is not None else "planned"
        if status == "done":
            assert self.effect is not None
            if self.effect.result_lost:
                return Answer(LOST, True)
            result = self.effect.result
            return Answer(result if isinstance(result, str) else json.dumps(result), False)
        return Answer(NOT_DONE if status == "planned" else UNKNOWN, True)


@dataclass(frozen=True)
class Repaired:
    """What a repair did."""

    answered: tuple[Orphan, ...]
    """Calls that have a result now, directly behind them."""
    removed: tuple[str, ...]
    """The ids of results that had no call, and are gone."""


def orphans(state: Any, book: Book, key: str) -> tuple[Orphan, ...]:
    """Tool calls without a result, with what is known of their effects."""
    return _orphans(book, _listed(state, key, state._handle.reader.get(key)))[0]


def repair(state: Any, book: Book, key: str) -> Repaired:
    """Give every call its result, in one change that rests on the conversation it has read."""

    def step() -> Repaired:
        parts = own_change(state, reason="tool calls without a result")
        part = parts.part(state._handle)
        messages = _listed(state, key, part.get(key))
        found, lone = _orphans(book, messages)
        kept = None
        if found or lone:
            answers = {(one.call.message, one.call.id): one.answer for one in found}
            made = completed(messages, lambda call: answers[call.message, call.id])
            kept = _write(part, key, messages, made)
        plan = parts.plan()
        if plan is not None:
            if kept is not None:
                kept.check(state.scope, key, plan[0].fences)
            state._handle.core.run(plan[0])
        return Repaired(found, lone)

    return again(step)


def _write(part: ScopedChange, key: str, messages: list[Any], made: list[Any]) -> Kept | None:
    """Note what a conversation becomes; whom it is sealed for, if that is one as a whole.

    Messages that stay are written as they are stored, and the key keeps its class and expiry.
    """
    stored = exact(part, key)
    assert stored is not None
    if type(stored.value) is Typed:  # a list is one only if all of it is sealed
        kept = subject_of(part, key, stored.value)
        part.operations.append(Operation("set", key, made, KEEP, kept.name))
        return kept
    places: dict[int, list[int]] = {}
    for place in reversed(range(len(messages))):
        places.setdefault(id(messages[place]), []).append(place)
    order = [places[id(one)].pop() if places.get(id(one)) else None for one in made]
    changed = set(range(len(messages))).difference(order)
    for place in sorted(changed):
        if has_sealed(stored.value[place]) and not goes_whole(messages[place]):
            raise InvalidInputError(
                f"{part._reader.scope}: item {place} of {key!r} is sealed for a subject, and the "
                "repair would have to write a part of it open: give the tool calls around it "
                "their results yourself, with subject="
            )
    items = [
        one if place is None else stored.value[place]
        for place, one in zip(order, made, strict=True)
    ]
    if order[: len(messages)] == list(range(len(messages))):
        part.extend(key, items[len(messages) :])
    else:
        part.operations.append(Operation("set", key, items, KEEP))
    return None


def _orphans(book: Book, messages: list[Any]) -> tuple[tuple[Orphan, ...], tuple[str, ...]]:
    """Orphans, and the ids of results that belong to none."""
    opened, without = unpaired(messages)
    found = tuple(Orphan(one.call, _effect(book, one.call), one.late is not None) for one in opened)
    lone = [id for _, id in without]
    for one in found:
        if one.late:
            lone.remove(one.call.id)
    return found, tuple(lone)


def _effect(book: Book, call: Call) -> Effect | None:
    named = isinstance(call.name, str) and 0 < len(call.name) <= MOST_NAME
    if not named or len(call.id) > MOST_ID:
        return None  # no effect can have such a name
    return book.effect(Asked.of(call.name, call.id, None))


def _listed(state: Any, key: str, found: Any) -> list[Any]:
    if found is None:
        return []
    if not isinstance(found, list) or any(isinstance(one, str) for one in found):
        raise InvalidInputError(
            f"{state.scope}: {key!r} is no list of messages, each a mapping or an object"
        )
    return found
