"""Ways to a good state, each of which finds one or says why it cannot.

| name | what it returns to | what is lost |
| --- | --- | --- |
| `as_it_is` | the newest state, if all of it can be read | nothing |
| `named` | the checkpoint or entry that the failure names | what came after it |
| `point_in_time` | the state at the time that the failure names | what came after it |
| `keys` | the newest state, damaged keys as in the newest whole checkpoint | those keys |
| `journal` | the newest entry whose state is whole, later entries replayed | damaged entries |
| `newest_valid` | the newest checkpoint that is whole | what came after it |
| `timeline` | the newest state of another timeline that can be read whole | what that one lacks |
| `copy` | the newest state that any copy of the store holds | what the copy lacks |
| `defaults` | an empty state with the defaults given, and a warning | everything but sticky keys |

Points that failed in an earlier attempt of the same recovery are not found again. A copy that
cannot be reached, or a strategy of a user's own that raises, has failed, and the next is tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.locating import candidates, examine
from holdfast.checkpoints.requests import Locator
from holdfast.errors import (
    HoldfastError,
    MissingError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.recovery import failures
from holdfast.recovery.background import called
from holdfast.recovery.meanwhile import lost_text, of_a_recovery
from holdfast.recovery.salvaging import Salvage
from holdfast.recovery.tails import MAIN
from holdfast.store import entries, rows
from holdfast.store.check import leaves
from holdfast.store.feed_heads import names
from holdfast.store.handles import LineHandle, StoreHandle
from holdfast.store.losses import loss_text
from holdfast.store.scopes import RESERVED

if TYPE_CHECKING:
    from holdfast.recovery.context import Context

_UNFIT = ("recovery", "post_operation")
"""Types of checkpoints that are made when something went wrong, or say what became of something."""


FEW = 100
"""Keys that are looked at to see whether a state holds any of the user's."""


class Unfit(HoldfastError):
    """A strategy does not serve here; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A state to return to."""

    strategy: str
    point: str
    """TIMELINE@NUMBER; empty for `defaults`"""
    lost: str
    """What is lost by returning to it, for people."""
    keys: tuple[str, ...] = ()
    """Only these keys go back, if there are any."""
    copy: int | None = None
    """Which of the copies it is in."""
    replay: int = 0
    """The last entry that is to be replayed behind the point, if there are such."""

    def data(self) -> dict[str, Any]:
        """Plain data, kept as the result of a step."""
        return {name: getattr(self, name) for name in self.__slots__} | {"keys": list(self.keys)}

    @classmethod
    def of(cls, data: Any) -> Target:
        """What `data` gave."""
        fields = {name: data[name] for name in cls.__slots__}
        return cls(**{**fields, "keys": tuple(data["keys"])})


Strategy = Callable[["Context"], Any]
"""Gives a `Target`, or raises `Unfit`, which says why there is none; may be async."""


@dataclass(slots=True)
class Looked:
    """What came of trying strategies in an order."""

    target: Target | None = None
    passed: dict[str, str] = field(default_factory=dict)
    """Those that did not serve, and why."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each took that was tried."""


def look(context: Context, order: tuple[str, ...]) -> Looked:
    """Try strategies until one finds a target."""
    looked = Looked()
    for name in order:
        begun = time.monotonic()
        try:
            looked.target = _found(context, name)
        except (Unfit, MissingError, StateIntegrityError) as error:
            looked.passed[name] = str(error)[:500]
        looked.seconds[name] = time.monotonic() - begun
        if looked.target is not None:
            break
    return looked


def _found(context: Context, name: str) -> Target:
    """What a strategy finds. A user's own one may fail in any way: then it does not serve.

    What one of ours raises because storage does not answer just now is no reason to lose more than
    need be: it is raised, and the attempt made again.
    """
    strategy = context.strategies.get(name)
    if strategy is None:
        raise Unfit("there is no such strategy")
    if strategy is STRATEGIES.get(name):
        return STRATEGIES[name](context)
    try:
        found = called(strategy, context)
    except (Unfit, MissingError, StateIntegrityError):
        raise
    except Exception as error:
        raise Unfit(f"failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, Target):
        raise Unfit(f"failed: a strategy gives a Target, not {type(found).__name__}")
    return found


def check_state(handle: LineHandle, timeline: str, sequence: int) -> int:
    """Read the whole state at an entry; how many values it has. Raises if anything is damaged."""
    history = handle.history
    return history.check_point(history.points.view(timeline, sequence), sequence, "full")[1]


def readable(handle: LineHandle) -> bool:
    """Whether all of the newest state can be read."""
    try:
        check_state(handle, handle.timeline, handle.place()[2])
    except StateIntegrityError:
        return False
    return True


def is_empty(handle: LineHandle) -> bool:
    """Whether nothing of an agent is left: there is no such scope, or all its entries are lost.

    Recoveries that came to nothing may have left entries of theirs; one that did not has let the
    timeline tell of the loss.
    """
    try:
        line = handle.history.points.line()
    except ScopeNotFoundError:
        return True
    if line.sequence == line.ledger.before:
        return True
    try:
        keys = handle.reader.keys("", FEW, "")
        if len(keys) == FEW or not all(key.startswith(RESERVED) for key in keys):
            return False
        return not any(
            not of_a_recovery(body.cause) or any(op[0] == entries.LOST for op in body.ops)
            for _, _, body in handle.history.entries()
        )
    except StateIntegrityError:
        return False  # there is something, and it is damaged


def newest_of(handle: LineHandle) -> int:
    """The newest entry of a timeline; refused if there is none, since all of them are lost."""
    if is_empty(handle):
        raise Unfit(f"{handle.scope}: nothing of it is left")
    return int(handle.place()[2])


def _after(context: Context, sequence: int) -> str:
    """What lies between an entry and the newest one, for people."""
    try:
        count = context.first_head() - sequence
    except StateIntegrityError:
        return "all that came after it"
    return lost_text(count, 0)


def _whole(context: Context, strategy: str, timeline: str, sequence: int) -> Target:
    point = f"{timeline}@{sequence}"
    if point in context.bad_points():
        raise Unfit(f"{point} failed in an earlier attempt")
    check_state(context.handle, timeline, sequence)
    if timeline == context.handle.timeline:
        return Target(strategy, point, _after(context, sequence))
    return Target(strategy, point, lacking(context.handle, timeline, context.first_head()))


def lacking(handle: LineHandle, timeline: str, head: int) -> str:
    """What is lost by taking the state of another timeline, for people."""
    for one in handle.history.timelines():
        if one.name == timeline and one.parent == handle.timeline:
            lost = lost_text(head - one.start, 0)
            return lost.replace("after it", f"after {handle.timeline}@{one.start}, where it began")
    return "what that timeline lacks"


def as_it_is(context: Context) -> Target:
    """The newest state."""
    return _whole(context, failures.NOTHING, context.handle.timeline, newest_of(context.handle))


def named(context: Context) -> Target:
    """What the failure names."""
    if context.failure.point is None:
        raise Unfit("nobody named a point")
    return _whole(
        context, failures.NAMED, *context.handle.history.points.find(context.failure.point)
    )


def point_in_time(context: Context) -> Target:
    """What was there at the time that the failure names."""
    if context.failure.at is None:
        raise Unfit("nobody named a time")
    return _whole(context, failures.TIME, *context.handle.history.points.find(context.failure.at))


def _valid_checkpoints(context: Context) -> Iterator[int]:
    """Entries of checkpoints that are whole, the newest first."""
    handle, bad = context.handle, context.bad_points()
    for one in candidates(handle, Locator()):
        if one.type not in _UNFIT and one.id not in bad and examine(handle, one).valid:
            yield one.sequence


def newest_valid(context: Context) -> Target:
    """The newest checkpoint that is whole."""
    for sequence in _valid_checkpoints(context):
        point = f"{context.handle.timeline}@{sequence}"
        return Target(failures.NEWEST, point, _after(context, sequence))
    raise Unfit("no checkpoint is whole")


def keys(context: Context) -> Target:
    """The newest state, with damaged keys taken from the newest checkpoint that is whole."""
    damaged = damaged_keys(context.handle)
    if not damaged:
        raise Unfit("no key of the newest state is damaged")
    for sequence in _valid_checkpoints(context):
        point = f"{context.handle.timeline}@{sequence}"
        lost = f"changes of {len(damaged)} keys since {point}"
        return Target(failures.KEYS, point, lost, tuple(damaged))
    raise Unfit("no checkpoint is whole")


def damaged_keys(handle: LineHandle) -> list[str]:
    """Keys of the newest state whose values cannot be read; an index that is damaged raises."""
    line = handle.history.points.view(handle.timeline, handle.place()[2])
    found = []
    for key, slot in line.scan():
        settled = line.settled(slot)
        try:
            for ref, place in leaves(line.ledger, settled.ref, settled.location):
                line.ledger.atom(ref, place)
        except StateIntegrityError:
            found.append(key)
    return found


def journal(context: Context) -> Target:
    """The newest entry whose state is whole, looked for between a whole one and a damaged one.

    What lies behind it is replayed, but for what is damaged.
    """
    handle, bad = context.handle, context.bad_points()
    head = newest_of(handle)
    low = next(_valid_checkpoints(context), 0)
    high = head + 1
    while high - low > 1:
        middle = (low + high) // 2 if high <= head else head  # most often all of it is whole
        try:
            if f"{handle.timeline}@{middle}" in bad:
                raise Unfit("it failed before")
            check_state(handle, handle.timeline, middle)
            low = middle
        except (StateIntegrityError, MissingError, Unfit):
            high = middle
    last = min(head, context.first_head())
    lost = "nothing"
    if low < last:
        salvage = Salvage(handle, low, last)
        lost = str(salvage.replay())
        if not salvage.result.applied:
            last = low
    if not low and not last:
        raise Unfit("no entry leads to a state that can be read whole")
    point = f"{handle.timeline}@{low}"
    return Target(failures.JOURNAL, point, lost, replay=last if last > low else 0)


def timeline(context: Context) -> Target:
    """The newest state of another timeline, the one written last."""
    handle = context.handle
    why = "there is no other timeline"
    others = [one for one in handle.history.timelines() if one.name != handle.timeline]
    for one in sorted(others, key=lambda info: _written(handle.on(info.name)), reverse=True):
        try:
            sequence = handle.on(one.name).place()[2]
            return _whole(context, failures.TIMELINE, one.name, sequence)
        except (Unfit, StateIntegrityError, MissingError) as error:
            why = f"{one.name}: {error}"
    raise Unfit(why)


def _written(handle: LineHandle) -> float:
    """When the newest entry of a timeline was written; 0 if that cannot be read."""
    try:
        for entry in handle.history.log(limit=1):
            return entry.time.timestamp()
    except StateIntegrityError:
        pass
    return 0.0


def copy(context: Context) -> Target:
    """The newest state of the same scope in any copy of the store, or backup.

    One that only has what is here does not serve, if what is here can be kept.
    """
    why = "no copies of the store were given"
    if context.copies:
        context.handle.place()  # raises if nothing can be written
    found: list[tuple[float, int, int]] = []
    for number, store in enumerate(context.copies):
        try:
            there = StoreHandle(store._core).line(context.agent)
            sequence = newest_of(there)
            check_state(there, "main", sequence)
            if _keeps_more(context, there, sequence):
                raise Unfit("all that it has is here")
            found.append((_written(there), sequence, -number))
        except (Unfit, StateIntegrityError, MissingError) as error:
            why = f"copy {number}: {error}"
        except Exception as error:  # it may lie anywhere: another copy, or strategy, may serve
            why = f"copy {number} failed: {type(error).__name__}: {error}"
    if not found:
        raise Unfit(why)
    _, sequence, place = max(found)
    there = StoreHandle(context.copies[-place]._core).line(context.agent)
    lost = _copy_lacks(context, there, sequence)
    return Target(failures.COPY, f"main@{sequence}", lost, copy=-place)


def _keeps_more(context: Context, there: LineHandle, sequence: int) -> bool:
    """Whether our own state can be read and kept, and goes on from the newest entry of a copy."""
    kind = context.failure.kind
    own = {failures.NOTHING, failures.JOURNAL} & set(context.order({}))
    suspect = failures.kind_of(kind).strategies[0] == failures.NEWEST or context.bad_points()
    if not own or suspect or is_empty(context.handle) or not readable(context.handle):
        return False
    return _is_ours(context.handle, there, sequence)


def _is_ours(handle: LineHandle, there: LineHandle, sequence: int) -> bool:
    """Whether an entry of a copy is here, too; the state before the first always is."""
    try:
        mine, other = (one.history.points.line() for one in (handle, there))
    except (MissingError, StateIntegrityError):
        return False
    if (mine.ledger.prefix, mine.prefix) != (other.ledger.prefix, other.prefix):
        return False
    if sequence == mine.ledger.before:
        return True
    keys = [rows.entry(mine.prefix, sequence)]
    ours, theirs = (one.ledger.storage.get(keys)[0] for one in (mine, other))
    return ours is not None and theirs is not None and entries.same_entry(ours, theirs)


def _copy_lacks(context: Context, there: LineHandle, sequence: int) -> str:
    """What is lost by taking the newest state of a copy, if that is one of our own line."""
    gone, handle = (context.record.gone or {}).get(MAIN), context.handle
    unknown = "what the copy lacks"
    if gone is None:
        return _after(context, sequence) if _is_ours(handle, there, sequence) else unknown
    left = gone[0] - 1  # up to there both are the same, and what the copy has more the feed names
    if not _is_ours(handle, there, min(sequence, left)):
        return unknown
    newest = there.history.points.line()
    if sequence > left and not names(handle.core.storage, newest.ledger.number, newest):
        return unknown
    first = max(gone[0], sequence + 1)
    parts = [loss_text(first, gone[1])] if first <= gone[1] else []
    after = _after(context, min(sequence, left))
    return "; ".join([*parts, *([after] if after != "nothing" else [])]) or "nothing"


def defaults(context: Context) -> Target:
    """An empty state with the defaults that were given."""
    if context.defaults is None:
        raise Unfit("no defaults were given")
    context.handle.place()  # raises if nothing can be written
    return Target(failures.DEFAULTS, "", "everything but sticky keys and what is in the history")


STRATEGIES: dict[str, Callable[[Context], Target]] = {
    failures.NOTHING: as_it_is,
    failures.NAMED: named,
    failures.TIME: point_in_time,
    failures.KEYS: keys,
    failures.JOURNAL: journal,
    failures.NEWEST: newest_valid,
    failures.TIMELINE: timeline,
    failures.COPY: copy,
    failures.DEFAULTS: defaults,
}
