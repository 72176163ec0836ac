"""Ways to a good state, each of which finds one or says why it cannot.

| name | what it returns to | what is lost |
| --- | --- | --- |
| `as_it_is` | the newest state, if all of it can be read | nothing |
| `named` | the checkpoint or entry that the failure names | what came after it |
| `point_in_time` | the state at the time that the failure names | what came after it |
| `keys` | the newest state, damaged keys replayed from a whole checkpoint | damaged entries |
| `journal` | the newest entry whose state is whole, later entries replayed | damaged entries |
| `newest_valid` | the newest whole checkpoint that no restore left behind | what came after it |
| `copy` | the newest state that any copy of the store holds | what the copy lacks |
| `defaults` | an empty state with the defaults given, and a warning | everything but sticky keys |

What a check refuses is passed over, as far as that shows before it is put back; what failed in an
earlier attempt of the same recovery is not found again by the same strategy. A copy that cannot be
reached, or a strategy of a user's own that raises, has failed, and the next is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoints.locate import Lineage, candidates, examine
from holdfast.checkpoints.request import Locator
from holdfast.checkpoints.restore_request import damaged_keys, failed, is_damaged
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    MissingError,
    OutcomeUnknown,
    PrunedError,
    ReadOnlyError,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.recovery import failure_kinds
from holdfast.recovery.changes_of_others import (
    CHECK,
    WHOLE,
    changes_after,
    lost_text,
    maker_of,
    some,
    together,
)
from holdfast.recovery.context import Context
from holdfast.recovery.failure_kinds import DEFAULTS, LAST, NOTHING
from holdfast.recovery.lost_entries import MAIN, Salvage
from holdfast.recovery.records import stays_erased
from holdfast.store.inner import (
    TABLE,
    LineHandle,
    StoreHandle,
    Timeline,
    core_of,
    derived,
    erased_ids,
    index_of,
    keep_sticky,
    sticky_prefixes,
)
from holdfast.store.inner import entry as entries
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_count, check_text, listed
from holdfast.store.names.cause import acting
from holdfast.store.names.scope import RESERVED, check_key
from holdfast.store.names.threads import called
from holdfast.store.state import View

# Asking checks about a state: one that was recovered, or one that may be returned to.
#
# A state that a check refuses is not to be returned to. So checks are asked of a view of each
# before it is put back, unless sticky keys, which stay, are others by now; and of the agent itself
# once it is put back. A group goes back in one commit, so there they are asked before alone.

VALIDATE = "validate_state"
"""The type of step that asks them."""
UNANSWERED = (OSError, LeaseLostError, OutcomeUnknown, StoreClosedError, Unavailable)
"""Raised by a check that could not be made: that says nothing of the state, and is tried again."""


def refusal(
    checks: Iterable[Callable[[Any], Any]], state: Any, *, later: bool = False
) -> str | None:
    """Why a state is refused; None if it is not.

    With `later` they are asked again once the state is put back: one that wants what there is only
    on the agent's own timeline, or in a state that is no view, refuses nothing now.
    """
    for check in checks:
        try:
            with acting(component=CHECK):
                why = failed(called(check, state))
        except OSError as error:  # its own outside does not answer
            text = f"a check could not be made: {type(error).__name__}: {error}"
            raise Unavailable(text[:500]) from error
        except UNANSWERED:  # the store does not answer: no verdict
            raise
        except (Exception, SystemExit) as error:  # a check says no by raising, too
            # Some errors say that this is not the place to ask, and nothing of the state. What
            # derives from the second says what is wrong with data.
            unfit = later and (
                (isinstance(error, AttributeError) and error.obj is state)
                or type(error) is InvalidInputError
                or isinstance(error, ReadOnlyError)
            )
            why = None if unfit else f"{type(error).__name__}: {error}"
        if why is not None:
            return why
    return None


def missing_text(keys: Iterable[str]) -> str:
    """Which keys a state lacks, for people."""
    return f"missing keys: {', '.join(sorted(keys))}"


# States to return to, as strategies give them, and why there is none.


class UnfitTarget(HoldfastError):
    """A strategy does not serve here; the text says why."""


UNFIT = (UnfitTarget, MissingError, StateIntegrityError)
"""What says of a state that it does not serve: another may."""


class Unreached(UnfitTarget):
    """It could not be tried to the end; it may serve when it is tried again."""


PASSING = (Conflict, LeaseLostError, OutcomeUnknown, Unavailable, OSError)
"""What says nothing of a state: the strategy may serve when it is tried again."""


def failing(error: Exception, what: str = "failed") -> UnfitTarget:
    """What an error says of a strategy: that it may serve when it is tried again, or not."""
    kind = Unreached if isinstance(error, PASSING) else UnfitTarget
    return kind(f"{what}: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class RecoveryTarget:
    """A state to return to: what a strategy gives."""

    strategy: str
    """Its name; one of a user's own gets the name under which it was given."""
    point: str
    """TIMELINE@NUMBER; empty for `defaults`. Of a user's own also a checkpoint's name."""
    lost: str
    """What is lost by returning to it, for people."""
    keys: tuple[str, ...] = ()
    """Only these keys go back, sticky ones too, if there are any."""
    copy: int | None = None
    """Which of the copies it is in: its place in `copies`, from 0."""
    replay: int = 0
    """The last entry that is to be replayed behind the point; 0 for none."""

    def data(self) -> dict[str, Any]:
        """Plain data, kept as the result of a step."""
        return {name: getattr(self, name) for name in self.__slots__} | {"keys": list(self.keys)}


def target_of(context: Context, name: str, found: Any) -> RecoveryTarget:
    """What a user's own strategy gave, if it can be returned to; its point as TIMELINE@NUMBER.

    It is known by the name it was given under, unless it leaves the state, or defaults, to ours.
    """
    if not isinstance(found, RecoveryTarget):
        raise UnfitTarget(f"failed: a strategy gives a RecoveryTarget, not {type(found).__name__}")
    try:
        check_text(found.lost, "what is lost")
        if found.strategy == DEFAULTS and context.defaults is not None and not found.point:
            return RecoveryTarget(DEFAULTS, "", found.lost)
        keys = tuple(check_key(key, owner=True) for key in listed(found.keys, "keys"))
        handle = context.handle
        if found.copy is not None:
            check_count(found.copy, "the number of a copy")
            if found.copy >= len(context.copies):
                raise InvalidInputError(f"there is no copy {found.copy}")
            handle = StoreHandle(core_of(context.copies[found.copy])).line(context.agent)
        timeline, sequence = handle.history.points.find(found.point)
        check_count(found.replay, "the last entry to replay")
        if found.replay and (timeline, found.copy, keys) != (MAIN, None, ()):
            raise InvalidInputError("entries are replayed behind a point of main, with all keys")
        if found.replay and not sequence < found.replay <= handle.place()[2]:
            raise InvalidInputError(f"there is nothing to replay up to entry {found.replay}")
        if found.copy is not None and (keys or timeline != MAIN):
            raise InvalidInputError("of a copy all of the timeline main is taken")
    except InvalidInputError as error:
        raise UnfitTarget(f"failed: its Target cannot be used: {error}") from error
    point = f"{timeline}@{sequence}"
    if found.strategy == NOTHING and (timeline, sequence) == (MAIN, context.handle.place()[2]):
        name = NOTHING
    return RecoveryTarget(name, point, found.lost, keys, found.copy, found.replay)


# trying strategies

COPY_LACKS = "what the copy lacks"
_UNFIT = ("recovery", "post_operation")
"""Types of checkpoints that are made when something went wrong, or say what became of something."""
NO_CHECKPOINT = "no checkpoint is whole; those that a restore left behind are not asked"


@dataclass(slots=True)
class Looked:
    """What came of trying strategies in an order."""

    target: RecoveryTarget | None = None
    passed: dict[str, str] = field(default_factory=dict)
    """Those that did not serve, and why."""
    unreached: bool = False
    """Whether one of them may serve when it is tried again."""


def look(context: Context, order: tuple[str, ...]) -> Looked:
    """Try strategies until one finds a target."""
    looked = Looked()
    for name in order:
        try:
            looked.target = _found(context, name)
            break
        except UNFIT as error:  # the next may serve
            looked.passed[name] = str(error)[:500]
            looked.unreached |= isinstance(error, Unreached)
    return looked


def _found(context: Context, name: str) -> RecoveryTarget:
    """What a strategy finds. A user's own one may fail in any way: then it does not serve.

    What one of ours raises because storage does not answer just now is no reason to lose more than
    need be: it is raised, and the attempt made again.
    """
    strategy = context.strategies.get(name)
    if strategy is None:
        raise UnfitTarget("there is no such strategy")
    if strategy is STRATEGIES.get(name):
        return STRATEGIES[name](context)
    try:
        found = called(strategy, context)
    except Exception as error:  # a user's function may raise anything
        if isinstance(error, UNFIT):  # says itself why it does not serve
            raise
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
        if own or strategy == failure_kinds.NOTHING or (point, copy) == (one["point"], one["copy"]):
            raise UnfitTarget(f"{one['point'] or 'its state'}: {one['why']}")


def _accepted(context: Context, handle: LineHandle, timeline: str, sequence: int) -> None:
    """Refuse a state that checks would refuse once it is put back."""
    why = refused_at(context, handle, timeline, sequence)
    if why is not None:
        raise UnfitTarget(f"{timeline}@{sequence}: {why}")


def refused_at(
    context: Context, handle: LineHandle, timeline: str, sequence: int, line: Timeline | None = None
) -> str | None:
    """Why a state would be refused once it is returned to, as far as that shows before; `line` is
    that state, if others are put in place of some of its keys."""
    procedure = context.record.procedure
    asking = (*procedure.steps, *procedure.validation)
    steps = [step for step in asking if step.type == VALIDATE]
    checks = context.settings.validate if steps else ()
    keys = {key for step in steps for key in step.action.get("keys", ())}
    if not checks and not keys:
        return None
    there = LineHandle(handle.core, handle.scope, timeline, line) if line is not None else None
    then = View(there or handle.view(f"{timeline}@{sequence}"))
    missing = {key for key in keys if not then.exists(key)}
    if missing:
        sticky = sticky_prefixes(handle.reader.declared())
        missing = {key for key in missing if not key.startswith(sticky)}
    if missing:
        return missing_text(missing)
    if not checks:
        return None
    unlike, here = False, context.handle
    with suppress(StateIntegrityError):  # they cannot be read: then as it is
        now = here.reader.now() if handle.core is here.core else None
        if now is not None:  # whether it has other sticky keys of the user's once it is put back
            view = here.history.points.view(timeline, sequence)
            prefixes = sticky_prefixes(here.reader.declared())
            kept = keep_sticky(now.ledger.trees, index_of(view), index_of(now), prefixes)
            unlike = not all(key.startswith(RESERVED) for key in kept.keys)
    return None if unlike else refusal(checks, then, later=True)


def check_state(handle: LineHandle, timeline: str, sequence: int) -> int:
    """Read the whole state at an entry; how many values it has. Raises if anything is damaged."""
    history = handle.history
    return history.check_point(history.points.view(timeline, sequence), sequence, "full")[1]


def _is_whole(handle: LineHandle, sequence: int) -> bool:
    try:
        check_state(handle, handle.timeline, sequence)
        return True
    except (StateIntegrityError, MissingError):  # that is the question
        return False


def newest_whole(handle: LineHandle, low: int, head: int) -> int:
    """The newest entry up to one whose state is whole, if that of a `low` one is."""
    high = head + 1
    while high - low > 1:
        middle = (low + high) // 2 if high <= head else head  # most often all of it is whole
        low, high = (middle, high) if _is_whole(handle, middle) else (low, middle)
    return low


def unreadable(handle: LineHandle) -> str | None:
    """Why the newest state cannot be read; None if it can, or there is no such scope."""
    try:
        check_state(handle, handle.timeline, handle.place()[2])
    except ScopeNotFoundError:
        return None
    except StateIntegrityError as error:  # that is the question
        return str(error)[:500]
    return None


def is_empty(handle: LineHandle) -> bool:
    """Whether nothing of an agent is left: there is no such scope, or all its entries are lost.

    Recoveries that came to nothing may have left entries of theirs.
    """
    try:
        line = handle.history.points.line()
        if line.sequence == line.ledger.before:
            return True
        every = handle.history.entries()
        return all(maker_of(body.cause) for *_, body in every) and not any(
            key for key, _ in line.scan("") if not derived(key) and key != LAST
        )
    except ScopeNotFoundError:
        return True
    except (PrunedError, StateIntegrityError):
        return False  # there is something, and it is damaged, or goes on from what was pruned


def is_erased(context: Context, there: LineHandle) -> bool:
    """Whether what a copy has was erased here.

    If nothing but a recovery made the name again, nothing of it comes back, from whatever store.
    """
    erased = erased_ids(context.store.core, context.agent)
    if not erased:
        return False
    return is_empty(context.handle) or there.history.points.line().ledger.id in erased


def newest_of(handle: LineHandle) -> int:
    """The newest entry of a timeline; refused if there is none, since all of them are lost."""
    if is_empty(handle):
        raise UnfitTarget(f"{handle.scope}: nothing of it is left")
    return int(handle.place()[2])


def _after(context: Context, sequence: int) -> str:
    """What lies between an entry and the newest one, for people."""
    try:
        head = context.first_head()
    except StateIntegrityError:  # how much cannot be counted
        return "all that came after it"
    return lost_text(changes_after(context.handle, sequence, head), 0)


def _whole(context: Context, strategy: str, timeline: str, sequence: int) -> RecoveryTarget:
    point = f"{timeline}@{sequence}"
    _check_not_barred(context, strategy, point)
    check_state(context.handle, timeline, sequence)
    _accepted(context, context.handle, timeline, sequence)
    if timeline == context.handle.timeline:
        return RecoveryTarget(strategy, point, _after(context, sequence))
    return RecoveryTarget(strategy, point, f"what {point} lacks")


def as_it_is(context: Context) -> RecoveryTarget:
    """The newest state."""
    return _whole(
        context, failure_kinds.NOTHING, context.handle.timeline, newest_of(context.handle)
    )


def named(context: Context) -> RecoveryTarget:
    """What the failure names."""
    if context.failure.point is None:
        raise UnfitTarget("nobody named a point")
    return _whole(
        context, failure_kinds.NAMED, *context.handle.history.points.find(context.failure.point)
    )


def point_in_time(context: Context) -> RecoveryTarget:
    """What was there at the time that the failure names."""
    if context.failure.at is None:
        raise UnfitTarget("nobody named a time")
    return _whole(
        context, failure_kinds.TIME, *context.handle.history.points.find(context.failure.at)
    )


def _valid_checkpoints(context: Context, strategy: str) -> Iterator[int]:
    """Entries of checkpoints that are whole and did not fail before, the newest first.

    Not those that a restore left behind: somebody did not want them.
    """
    handle = context.handle
    barred = {one["point"] for one in context.barred(strategy)}
    known = Lineage(handle, context.first_head())
    for one in candidates(handle, Locator()):
        if one.type in _UNFIT or one.id in barred or one.sequence not in known:
            continue
        if examine(handle, one).valid:
            yield one.sequence


def _none_left(
    context: Context, strategy: str, none: str, refused: Sequence[str] = ()
) -> UnfitTarget:
    """What is said if none is left: `none` at all, or why each was refused."""
    known = [f"{one['point']}: {one['why']}" for one in context.barred(strategy)]
    return UnfitTarget(
        "; ".join(["no other serves", *known, *refused]) if known or refused else none
    )


def newest_valid(context: Context) -> RecoveryTarget:
    """The newest checkpoint that is whole, and that no check refuses."""
    handle, refused = context.handle, []
    for sequence in _valid_checkpoints(context, failure_kinds.NEWEST):
        point = f"{handle.timeline}@{sequence}"
        why = refused_at(context, handle, handle.timeline, sequence)
        if why is None:
            return RecoveryTarget(failure_kinds.NEWEST, point, _after(context, sequence))
        refused.append(f"{point}: {why}")
    raise _none_left(context, failure_kinds.NEWEST, NO_CHECKPOINT, refused)


def keys(context: Context) -> RecoveryTarget:
    """The newest state, with damaged keys taken from the newest checkpoint that is whole.

    What came after it is replayed for them, as far as it can be; unless a check refuses such a
    state.
    """
    handle = context.handle
    head = handle.place()[2]
    newest = handle.history.points.view(handle.timeline, head)
    damaged = sorted(damaged_keys(newest))
    # Once: what was refused rests on the newest whole checkpoint. An older one has less of the
    # keys, and other strategies may well bring back all of them.
    if not damaged or context.barred(failure_kinds.KEYS):
        raise _none_left(context, failure_kinds.KEYS, "no key of the newest state is damaged")
    sequence = next(_valid_checkpoints(context, failure_kinds.KEYS), None)
    if sequence is None:
        raise UnfitTarget(NO_CHECKPOINT)
    point, replay = f"{handle.timeline}@{sequence}", head
    salvage, back = replayed_keys(handle, sequence, head, damaged)
    mixed = Timeline(newest.ledger, newest.number)
    mixed.take_over(newest)
    mixed.overlay = newest.overlay | {key: salvage.line.slot(key) for key in damaged}
    if refused_at(context, handle, handle.timeline, head, mixed):
        replay, back = 0, damaged
    made, again = salvage.result, [key for key in damaged if key not in back]
    lost = made.of(again) if again else ""
    if back:
        count = sum(made.changes[key] for key in back) + len(made.lost)
        text = f"{count} changes of {len(back)} keys since {point}: {some(back)}"
        lost = together(lost, text)
    return RecoveryTarget(failure_kinds.KEYS, point, lost, tuple(damaged), replay=replay)


def replayed_keys(
    handle: LineHandle, sequence: int, last: int, keys: Iterable[str]
) -> tuple[Salvage, list[str]]:
    """The state at an entry with what came after it replayed, and those of the keys that are as
    they were there: a later change of a part was left out, or what it comes to cannot be read."""
    salvage = Salvage(handle, sequence, last)
    salvage.replay()
    line, then = salvage.line, handle.history.points.view(handle.timeline, sequence)
    back = []
    for key in keys:
        slot = line.slot(key)
        if key in salvage.result.left_out or (slot is not None and is_damaged(line, slot)):
            back.append(key)
            for one in filter(None, (key, TABLE.index.along(key))):
                line.overlay[one] = then.slot(one)
    return salvage, back


def journal(context: Context) -> RecoveryTarget:
    """The newest entry whose state is whole, looked for between a whole one and a damaged one.

    What lies behind it is replayed, but for what is damaged. If nothing is, and the failure says
    that the newest state makes no sense, that is no way to a good one.
    """
    handle = context.handle
    head = min(newest_of(handle), context.first_head())
    low = next(_valid_checkpoints(context, failure_kinds.JOURNAL), 0)
    floor = handle.history.points.line().floor.sequence
    if low < floor and _is_whole(handle, floor):
        low = floor  # that there is no state below it, where all was pruned, is no damage
    low = newest_whole(handle, low, head)
    last, lost = head, "nothing"
    if low < last:
        salvage = Salvage(handle, low, last)
        lost = str(salvage.replay())
        if not salvage.result.applied:
            last = low
    if not low and not last:
        raise UnfitTarget("no entry leads to a state that can be read whole")
    if _is_suspect(context) and low == head:
        raise UnfitTarget(
            "all of the newest state can be read, and that is the one that makes no sense"
        )
    point = f"{handle.timeline}@{low}"
    _check_not_barred(context, failure_kinds.JOURNAL, point)
    if last <= low:
        _accepted(context, handle, handle.timeline, low)
    return RecoveryTarget(failure_kinds.JOURNAL, point, lost, replay=last if last > low else 0)


def written_at(handle: LineHandle) -> float:
    """When the newest change of a timeline was made; 0 if there is none that can be read."""
    history = handle.history
    with suppress(ScopeNotFoundError, StateIntegrityError):  # as if it were the oldest
        for row in history.entries():
            entry = history.entry(*row)
            if entry.keys or WHOLE & set(entry.kinds):  # no checkpoint, which may come by itself
                return entry.time.timestamp()
    return 0.0


def copy(context: Context) -> RecoveryTarget:
    """The newest state of the same scope in any copy of the store, or backup.

    One that only has what is here does not serve, if what is here can be kept.
    """
    wrong = [] if context.copies else [UnfitTarget("no copies of the store were given")]
    if context.copies:
        context.handle.place()  # raises if nothing can be written
    found: list[tuple[float, int, int]] = []
    for number, store in enumerate(context.copies):
        try:
            there = StoreHandle(core_of(store)).line(context.agent)
            sequence = newest_of(there)
            if is_erased(context, there):
                raise UnfitTarget(stays_erased(context.agent))
            check_state(there, MAIN, sequence)
            other = there.core
            foreign = other.ring is not None and other.lineage != context.store.core.lineage
            if foreign and (other.storage.scan(b"U", b"V", limit=1) or any(other.subjects.cells())):
                raise UnfitTarget("what it seals for subjects opens with its own ring alone")
            _check_not_barred(context, failure_kinds.COPY, f"{MAIN}@{sequence}", number)
            if _keeps_more(context, there, sequence):
                raise UnfitTarget("all that it has is here")
            _accepted(context, there, MAIN, sequence)
            found.append((written_at(there), sequence, -number))
        except UNFIT as error:  # another copy may serve
            wrong.append(UnfitTarget(f"copy {number}: {error}"))
        except Exception as error:  # it may lie anywhere: another copy, or strategy, may serve
            wrong.append(failing(error, f"copy {number} failed"))
    if not found:
        later = any(isinstance(one, Unreached) for one in wrong)
        raise (Unreached if later else UnfitTarget)("; ".join(map(str, wrong)))
    _, sequence, place = max(found)
    there = StoreHandle(core_of(context.copies[-place])).line(context.agent)
    ours = _is_ours(context.handle, there, sequence)
    lost = _after(context, sequence) if ours else COPY_LACKS
    return RecoveryTarget(failure_kinds.COPY, f"main@{sequence}", lost, copy=-place)


def _is_suspect(context: Context) -> bool:
    """Whether the failure is one of the state itself, though all of it may be read."""
    return failure_kinds.kind_of(context.failure.kind).strategies[0] == failure_kinds.NEWEST


def _keeps_more(context: Context, there: LineHandle, sequence: int) -> bool:
    """Whether our own state can be read and kept, and goes on from the newest entry of a copy."""
    own = {failure_kinds.NOTHING, failure_kinds.JOURNAL} & set(context.order({}))
    suspect = _is_suspect(context) or context.barred()
    handle = context.handle
    if not own or suspect or is_empty(handle) or unreadable(handle) is not None:
        return False
    if refused_at(context, handle, handle.timeline, handle.place()[2]) is not None:
        return False
    return _is_ours(context.handle, there, sequence)


def _is_ours(handle: LineHandle, there: LineHandle, sequence: int) -> bool:
    """Whether an entry of a copy is here, too; the state before the first always is."""
    try:
        mine, other = (one.history.points.line() for one in (handle, there))
    except (MissingError, StateIntegrityError):  # then it is not known to be
        return False
    if (mine.ledger.prefix, mine.prefix) != (other.ledger.prefix, other.prefix):
        return False
    if sequence == mine.ledger.before:
        return True
    keys = [rowkinds.entry(mine.prefix, sequence)]
    ours, theirs = (one.ledger.storage.get(keys)[0] for one in (mine, other))
    return ours is not None and theirs is not None and entries.same_entry(ours, theirs)


def defaults(context: Context) -> RecoveryTarget:
    """An empty state with the defaults that were given."""
    if context.defaults is None:
        raise UnfitTarget("no defaults were given")
    _check_not_barred(context, failure_kinds.DEFAULTS, "")
    head = context.handle.place()[2]  # raises if nothing can be written
    if not context.defaults and not head:
        raise UnfitTarget("the defaults are empty: with those there is nothing to begin with")
    return RecoveryTarget(
        failure_kinds.DEFAULTS, "", "everything but sticky keys and what is in the history"
    )


STRATEGIES: dict[str, Callable[[Context], RecoveryTarget]] = {
    failure_kinds.NOTHING: as_it_is,
    failure_kinds.NAMED: named,
    failure_kinds.TIME: point_in_time,
    failure_kinds.KEYS: keys,
    failure_kinds.JOURNAL: journal,
    failure_kinds.NEWEST: newest_valid,
    failure_kinds.COPY: copy,
    failure_kinds.DEFAULTS: defaults,
}
