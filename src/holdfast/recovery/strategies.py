"""Ways to a good state, each of which finds one or says why it cannot.

| name | what it returns to | what is lost |
| --- | --- | --- |
| `as_it_is` | the newest state, if all of it can be read | nothing |
| `named` | the checkpoint or entry that the failure names | what came after it |
| `point_in_time` | the state at the time that the failure names | what came after it |
| `keys` | the newest state, damaged keys as in the newest whole checkpoint | those keys |
| `journal` | the newest entry whose state is whole, later entries replayed | damaged entries |
| `newest_valid` | the newest whole checkpoint that no restore left behind | what came after it |
| `timeline` | the newest state of another timeline that can be read whole | what that one lacks |
| `copy` | the newest state that any copy of the store holds | what the copy lacks |
| `defaults` | an empty state with the defaults given, and a warning | everything but sticky keys |

What a check refuses is passed over, as far as that shows before it is put back; what failed in an
earlier attempt of the same recovery is not found again by the same strategy. A copy that cannot be
reached, or a strategy of a user's own that raises, has failed, and the next is tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.lineage import Lineage
from holdfast.checkpoints.locate import candidates, examine
from holdfast.checkpoints.partial import is_put_together
from holdfast.checkpoints.request import Locator
from holdfast.checkpoints.restore_past_damage import damaged_keys
from holdfast.errors import (
    MissingError,
    PrunedError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.recovery import failures
from holdfast.recovery.changes_of_others import Makers, changed_since, changes_after, lost_text
from holdfast.recovery.changes_of_others import named as names_of
from holdfast.recovery.erased_agents import is_erased, stays_erased
from holdfast.recovery.foreign_subjects import check_opens
from holdfast.recovery.records import SUCCEEDED, Records
from holdfast.recovery.salvage import Salvage
from holdfast.recovery.state_checks import is_trial, refused_at
from holdfast.recovery.tails import MAIN
from holdfast.recovery.target import Target, Unfit, Unreached, failing, target_of
from holdfast.recovery.user_calls import called
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.journal import entry as entries
from holdfast.store.journal.feed_heads import names
from holdfast.store.journal.tombstones import erased_ids
from holdfast.store.names import rowkinds
from holdfast.store.upkeep.losses import loss_text

if TYPE_CHECKING:
    from holdfast.recovery.context import Context

_UNFIT = ("recovery", "post_operation")
"""Types of checkpoints that are made when something went wrong, or say what became of something."""


NO_CHECKPOINT = "no checkpoint is whole; those that a restore left behind are not asked"


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
    unreached: bool = False
    """Whether one of them may serve when it is tried again."""


def look(context: Context, order: tuple[str, ...]) -> Looked:
    """Try strategies until one finds a target.

    What one finds before its turn, because the order was learned, serves at once only if it loses
    nothing: else those whose turn comes before are tried first.
    """
    looked, turns = Looked(), context.turns(order)
    for name in order:
        target = _tried(context, name, looked)
        if target is None:
            continue
        if target.lost != "nothing":
            for other in turns[: turns.index(name)]:
                if other not in looked.seconds:
                    looked.target = looked.target or _tried(context, other, looked)
        looked.target = looked.target or target
        break
    return looked


def _tried(context: Context, name: str, looked: Looked) -> Target | None:
    """What a strategy finds; None if it does not serve, which is noted."""
    begun = time.monotonic()
    try:
        return _found(context, name)
    except (Unfit, MissingError, StateIntegrityError) as error:
        looked.passed[name] = str(error)[:500]
        looked.unreached |= isinstance(error, Unreached)
        return None
    finally:
        looked.seconds[name] = time.monotonic() - begun


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
        raise failing(error) from error
    target = target_of(context, name, found)
    _check_not_barred(context, target.strategy, target.point, target.copy)
    return target


def _check_not_barred(context: Context, strategy: str, point: str, copy: int | None = None) -> None:
    """Refuse what a check refused before.

    The newest state, and that of a strategy of a user's own, is the same under another number.
    """
    own = context.strategies.get(strategy) is not STRATEGIES.get(strategy)
    for one in context.barred(strategy):
        if own or strategy == failures.NOTHING or (point, copy) == (one["point"], one["copy"]):
            raise Unfit(f"{one['point'] or 'its state'}: {one['why']}")


def _accepted(context: Context, handle: LineHandle, timeline: str, sequence: int) -> None:
    """Refuse a state that checks would refuse once it is put back."""
    why = refused_at(context, handle, timeline, sequence)
    if why is not None:
        raise Unfit(f"{timeline}@{sequence}: {why}")


def check_state(handle: LineHandle, timeline: str, sequence: int) -> int:
    """Read the whole state at an entry; how many values it has. Raises if anything is damaged."""
    history = handle.history
    return history.check_point(history.points.view(timeline, sequence), sequence, "full")[1]


def _is_whole(handle: LineHandle, sequence: int) -> bool:
    try:
        check_state(handle, handle.timeline, sequence)
        return True
    except (StateIntegrityError, MissingError):
        return False


def unreadable(handle: LineHandle) -> str | None:
    """Why the newest state cannot be read; None if it can, or there is no such scope."""
    try:
        check_state(handle, handle.timeline, handle.place()[2])
    except ScopeNotFoundError:
        return None
    except StateIntegrityError as error:
        return str(error)[:500]
    return None


def readable(handle: LineHandle) -> bool:
    """Whether all of the newest state can be read."""
    return unreadable(handle) is None


def is_empty(handle: LineHandle) -> bool:
    """Whether nothing of an agent is left: there is no such scope, or all its entries are lost.

    Recoveries that came to nothing may have left entries of theirs, and sticky keys, which are not
    undone. What one put there that succeeded, or that was ended where it stood, is a state.
    """
    try:
        line = handle.history.points.line()
    except ScopeNotFoundError:
        return True
    before = line.ledger.before
    if line.sequence == before:
        return True
    made, makers = set(), Makers(handle)
    try:
        for _, _, body in handle.history.entries():
            maker = makers.of(body.cause)
            if not maker or any(op[0] == entries.LOST for op in body.ops):
                return False
            made.add(maker)
        return not (changed_since(handle, before) or any(_succeeded(handle, id) for id in made))
    except (PrunedError, StateIntegrityError):
        return False  # there is something, and it is damaged, or goes on from what was pruned


def _succeeded(handle: LineHandle, recovery: str) -> bool:
    """Whether a recovery of an agent came to a good end, as far as is known here."""
    try:
        return Records(StoreHandle(handle.core), handle.scope).get(recovery).status == SUCCEEDED
    except MissingError:
        return False


def newest_of(handle: LineHandle) -> int:
    """The newest entry of a timeline; refused if there is none, since all of them are lost."""
    if is_empty(handle):
        raise Unfit(f"{handle.scope}: nothing of it is left")
    return int(handle.place()[2])


def _after(context: Context, sequence: int) -> str:
    """What lies between an entry and the newest one, for people."""
    try:
        head = context.first_head()
    except StateIntegrityError:
        return "all that came after it"
    return lost_text(changes_after(context.handle, sequence, head), 0)


def _whole(context: Context, strategy: str, timeline: str, sequence: int) -> Target:
    point = f"{timeline}@{sequence}"
    _check_not_barred(context, strategy, point)
    check_state(context.handle, timeline, sequence)
    _accepted(context, context.handle, timeline, sequence)
    if timeline == context.handle.timeline:
        return Target(strategy, point, _after(context, sequence))
    return Target(strategy, point, lacking(context.handle, timeline, context.first_head()))


def lacking(handle: LineHandle, timeline: str, head: int) -> str:
    """What is lost by taking the state of another timeline, for people."""
    for one in handle.history.timelines():
        if one.name == timeline and one.parent == handle.timeline:
            lost = lost_text(changes_after(handle, one.start, head), 0)
            return lost.replace("after it", f"after {handle.timeline}@{one.start}, where it began")
    return "what that timeline lacks"


def as_it_is(context: Context) -> Target:
    """The newest state."""
    if context.record.unread:
        raise Unfit("the state before could not be read")
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


def _valid_checkpoints(context: Context, strategy: str) -> Iterator[int]:
    """Entries of checkpoints that are whole and did not fail before, the newest first.

    Not those that a restore left behind: somebody did not want them.
    """
    handle, last = context.handle, context.first_head()
    barred = {one["point"] for one in context.barred(strategy)}
    known = Lineage(handle, last)
    for one in candidates(handle, Locator()):
        if one.type in _UNFIT or one.id in barred or one.sequence > last:
            continue
        if one.sequence not in known:
            continue
        if examine(handle, one).valid:
            yield one.sequence


def _none_left(context: Context, strategy: str, none: str, refused: Sequence[str] = ()) -> Unfit:
    """What is said if none is left: `none` at all, or why each was refused."""
    known = [f"{one['point']}: {one['why']}" for one in context.barred(strategy)]
    return Unfit("; ".join(["no other serves", *known, *refused]) if known or refused else none)


def newest_valid(context: Context) -> Target:
    """The newest checkpoint that is whole, and that no check refuses."""
    handle, refused = context.handle, []
    for sequence in _valid_checkpoints(context, failures.NEWEST):
        point = f"{handle.timeline}@{sequence}"
        why = refused_at(context, handle, handle.timeline, sequence)
        if why is None:
            return Target(failures.NEWEST, point, _after(context, sequence))
        refused.append(f"{point}: {why}")
    raise _none_left(context, failures.NEWEST, NO_CHECKPOINT, refused)


def keys(context: Context) -> Target:
    """The newest state, with damaged keys taken from the newest checkpoint that is whole."""
    handle = context.handle
    damaged = damaged_keys(handle.history.points.view(handle.timeline, handle.place()[2]))
    if not damaged:
        raise _none_left(context, failures.KEYS, "no key of the newest state is damaged")
    for sequence in _valid_checkpoints(context, failures.KEYS):
        point = f"{handle.timeline}@{sequence}"
        lost = f"changes of {len(damaged)} keys since {point}: {names_of(damaged)}"
        return Target(failures.KEYS, point, lost, tuple(damaged))
    raise _none_left(context, failures.KEYS, NO_CHECKPOINT)


def journal(context: Context) -> Target:
    """The newest entry whose state is whole, looked for between a whole one and a damaged one.

    What lies behind it is replayed, but for what is damaged. If nothing is, and the failure says
    that the newest state makes no sense, that is no way to a good one.
    """
    handle = context.handle
    head = min(newest_of(handle), context.first_head())
    low = next(_valid_checkpoints(context, failures.JOURNAL), 0)
    high = head + 1
    floor = handle.history.points.line().floor.sequence
    if low < floor and _is_whole(handle, floor):
        low = floor  # that there is no state below it, where all was pruned, is no damage
    while high - low > 1:
        middle = (low + high) // 2 if high <= head else head  # most often all of it is whole
        low, high = (middle, high) if _is_whole(handle, middle) else (low, middle)
    last, lost = head, "nothing"
    if low < last:
        salvage = Salvage(handle, low, last, context.record.anchors)
        lost = str(salvage.replay())
        if not salvage.result.applied:
            last = low
    if not low and not last:
        raise Unfit("no entry leads to a state that can be read whole")
    if _is_suspect(context) and low == head:
        raise Unfit("all of the newest state can be read, and that is the one that makes no sense")
    point = f"{handle.timeline}@{low}"
    _check_not_barred(context, failures.JOURNAL, point)
    if last <= low:
        _accepted(context, handle, handle.timeline, low)
    return Target(failures.JOURNAL, point, lost, replay=last if last > low else 0)


def timeline(context: Context) -> Target:
    """The newest state of another timeline, the one written last."""
    handle = context.handle
    why = "there is no other timeline"
    lines = handle.history.timelines()
    others = [
        one
        for one in lines
        if not (one.name == MAIN or is_put_together(one.name) or is_trial(handle.on(one.name)))
    ]
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
    wrong = [] if context.copies else [Unfit("no copies of the store were given")]
    erased: set[bytes] = set()
    if context.copies:
        context.handle.place()  # raises if nothing can be written
        erased = erased_ids(context.store.core, context.agent)
    found: list[tuple[float, int, int]] = []
    for number, store in enumerate(context.copies):
        try:
            there = StoreHandle(store._core).line(context.agent)
            sequence = newest_of(there)
            if is_erased(context, there, erased):
                raise Unfit(stays_erased(context))
            check_state(there, MAIN, sequence)
            check_opens(context.store.core, there, sequence)
            _check_not_barred(context, failures.COPY, f"{MAIN}@{sequence}", number)
            if _keeps_more(context, there, sequence):
                raise Unfit("all that it has is here")
            _accepted(context, there, MAIN, sequence)
            found.append((_written(there), sequence, -number))
        except (Unfit, StateIntegrityError, MissingError) as error:
            wrong.append(Unfit(f"copy {number}: {error}"))
        except Exception as error:  # it may lie anywhere: another copy, or strategy, may serve
            wrong.append(failing(error, f"copy {number} failed"))
    if not found:
        later = any(isinstance(one, Unreached) for one in wrong)
        raise (Unreached if later else Unfit)("; ".join(map(str, wrong)))
    _, sequence, place = max(found)
    there = StoreHandle(context.copies[-place]._core).line(context.agent)
    lost = _copy_lacks(context, there, sequence)
    return Target(failures.COPY, f"main@{sequence}", lost, copy=-place)


def _is_suspect(context: Context) -> bool:
    """Whether the failure is one of the state itself, though all of it may be read."""
    return failures.kind_of(context.failure.kind).strategies[0] == failures.NEWEST


def _keeps_more(context: Context, there: LineHandle, sequence: int) -> bool:
    """Whether our own state can be read and kept, and goes on from the newest entry of a copy."""
    own = {failures.NOTHING, failures.JOURNAL} & set(context.order({}))
    suspect = _is_suspect(context) or context.barred()
    handle = context.handle
    if not own or suspect or is_empty(handle) or not readable(handle):
        return False
    if refused_at(context, handle, handle.timeline, handle.place()[2]) is not None:
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
    keys = [rowkinds.entry(mine.prefix, sequence)]
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
    _check_not_barred(context, failures.DEFAULTS, "")
    head = context.handle.place()[2]  # raises if nothing can be written
    if not context.defaults and not head:
        raise Unfit("the defaults are empty: with those there is nothing to begin with")
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
