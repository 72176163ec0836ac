"""What a change rests on and what it tells, looked up while its entries are built."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    HoldfastError,
    InternalError,
    OutcomeUnknown,
    ScopeNotFoundError,
    Unavailable,
)
from holdfast.storage.contract import Storage
from holdfast.store.commit.operations import staged_length
from holdfast.store.journal.declared import PREFIX
from holdfast.store.journal.floor import NO_FLOOR
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds
from holdfast.store.rules.sticky import sticky_prefixes
from holdfast.store.rules.trim import going

if TYPE_CHECKING:
    from holdfast.store.commit.change import Change, Target, Ticket
    from holdfast.store.commit.stage import Stage
    from holdfast.store.journal.directory import Directory
    from holdfast.store.journal.entry import Body
    from holdfast.store.rules.ephemeral import Ephemerals


def answer_of(stage: Stage, op: tuple[Any, ...]) -> Any:
    """What an operation tells the caller besides the entry's number."""
    if op[0] == "delete":
        return stage.live(op[1]) is not None
    return going(staged_length(stage, op[1]), op[2]) if op[0] == "trim" else None


def declares(target: Target) -> bool:
    """Whether it changes declarations, which is done alone, also where one is damaged."""
    return bool(target.ops) and target.ops[0][1].startswith(PREFIX)


def check_expected(target: Target, stage: Stage, ephemerals: Ephemerals) -> None:
    """Refuse a change that rests on something that has changed since."""
    if target.head is not None and stage.sequence != (target.head or stage.ledger.before):
        raise Conflict(
            f"{target.scope}: entry {stage.sequence} was written since; read again and retry",
            [str(target.scope)],
        )
    expects, version = target.expects.items(), ephemerals.version
    changed = [key for key, expected in expects if version(stage, key) != expected]
    if changed:
        raise Conflict(
            f"{target.scope}: {', '.join(map(repr, changed[:5]))} changed since it was read; "
            "read again and retry",
            changed,
        )


def forget_erased(core: Directory, change: Change, stages: Iterable[Stage]) -> bool:
    """Forget scopes of a change that were erased while it was built; whether there are any."""
    scopes = {target.scope for target in change.targets}
    ledgers = {stage.ledger.number: stage.ledger for stage in stages}
    erased = [one for one in ledgers.values() if one.scope in scopes and one.erased()]
    for ledger in erased:
        core.forget(ledger)
    return bool(erased)


def name_each_other(staged: list[tuple[Target, Stage]], bodies: list[Body]) -> None:
    """Note in each entry of a change which others belong to it, or were read for it.

    Whose its id is can be told from that: an entry alone that has one of the store rests on the
    state before it.
    """
    written: list[tuple[int, int, int]] = []
    reads: list[tuple[int, int, int]] = []
    entries: list[Body] = []
    for (target, stage), body in zip(staged, bodies, strict=True):
        place = (stage.ledger.number, stage.timeline.number)
        if target.ops or target.special:
            written.append((*place, stage.sequence + 1 + target.backup))
            entries.append(body)
        else:
            reads.append((*place, stage.sequence))
    if len(bodies) == 1 and bodies[0].change is not None:
        reads = [(*place, stage.sequence)]
    for number, body in enumerate(entries):
        body.also = written[:number] + written[number + 1 :]
        body.reads = reads


def failure(error: BaseException) -> HoldfastError:
    """What a caller is told of an error; any other than ours is a bug."""
    if isinstance(error, HoldfastError):
        return error
    if not isinstance(error, Exception):
        return interrupted(error)
    wrapped = InternalError(f"{type(error).__name__} while building an entry")
    wrapped.__cause__ = error
    return wrapped


def keyless(unknown: OutcomeUnknown) -> Unavailable:
    """What is told where nobody knows whether the keys of new scopes are stored."""
    error = Unavailable("the keys of a new scope may not be stored; nothing was written: try again")
    error.__cause__ = unknown
    return error


def interrupted(error: BaseException) -> OutcomeUnknown:
    """What is told of a change during whose commit the thread that made it was stopped."""
    return OutcomeUnknown(
        f"{type(error).__name__} came while this change was committed together with others; "
        "whether it was applied is not known: look, or give changes an id and send it again"
    )


def outrun(storage: Storage, tickets: Iterable[Ticket]) -> HoldfastError:
    """Why changes that were built anew and anew are never taken.

    Where reads do not find what the commit finds, that is no contest but damage; so it is where
    something lies in the way of a timeline that is to be made.
    """
    lines = [target.line for ticket in tickets for target in ticket.change.targets]
    for line in lines:
        claim = rowkinds.line(b"T", line.ledger.number, line.number) if line is not None else b""
        if line is not None and storage.get([claim])[0] is None:
            for key, _ in storage.scan(line.prefix, rowkinds.after(line.prefix), limit=1):
                place = rowkinds.describe(key)
                return DamagedRecordError(
                    f"{line.ledger.scope}: {place}: it lies where the next timeline is to begin, "
                    "and belongs to none. Nothing was applied; verify names it: run recovery, or "
                    "restore the file from a backup",
                    place,
                )
    if storage.check():
        return DamagedRecordError(
            "the store's file is damaged: reads do not show what commits meet there. Nothing was "
            "applied; verify names the damage: run recovery, or restore the file from a backup",
            "store",
        )
    return Unavailable("other writers were always faster; try again")


Keep = Callable[["Stage"], Iterable[str]]
"""Gives, in the commit of a restore, how keys begin that stay as they are."""


def sticky_of(stage: Stage) -> tuple[str, ...]:
    """The same, of the state that the next entry rests on: what a restore keeps by itself."""
    return sticky_prefixes(stage.declared)


def stand_on(stage: Stage, source: Timeline, sequence: int, number: int) -> None:
    """Let a commit that rests on an older state fail if that is pruned meanwhile, or deleted.

    `number` is that of the newest anchor when it was found that the state is kept.
    """
    ledger = stage.ledger
    if ledger.number != source.ledger.number:
        raise ScopeNotFoundError(
            f"{ledger.scope} was deleted meanwhile; one that is made again under its name is new"
        )
    coming = ledger.pruning.get(source.number, NO_FLOOR)
    if not coming.holds(sequence, ledger.before):
        raise Conflict(f"{ledger.scope}: entry {sequence} is being pruned; try again")
    stage.absent.append(rowkinds.anchor(ledger.number, source.number, number + 1))


def stand_beside_pruning(stage: Stage, anchors: int) -> None:
    """Refuse what shares parts with a value that was read before the timeline was pruned."""
    line = stage.timeline
    if line.floor.number != anchors or line.number in stage.ledger.pruning:
        raise Conflict(
            f"{stage.ledger.scope}: the timeline was pruned while this value was written, and "
            "parts that it shares with the one before may be gone; write it again"
        )
