"""Checkpoints that something still needs: nothing may remove them until they are released.

Three kinds are held from the moment they are made: the checkpoint before an operation, until the
operation is over, the backup of a restore, until the restore is confirmed, and the state before a
recovery, until the recovery is over. A release is a checkpoint itself, of type `post_operation`,
that names in its metadata (`releases`) what it releases: it is an entry of the same history, so it
is signed, verified and never half there, and no restore takes it back. Others are marked: pinned,
on hold, or to go on from (`store.rules.sticky`). The layer above makes and releases them;
here is what has to look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import (
    Conflict,
    InvalidKeyError,
    PrunedError,
    ScopeNotFoundError,
    StateIntegrityError,
    StillNeededError,
)
from holdfast.storage.contract import Batch
from holdfast.storage.rows import pages
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal import entry
from holdfast.store.names import rowkinds
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.items import Checkpoint, Pruned, said
from holdfast.store.names.scope import check_key
from holdfast.store.names.threads import Breath
from holdfast.store.rules.sticky import MARKS, NEEDED, marked_id, on_hold
from holdfast.store.upkeep.prune import notices, prune_state

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.commit.stage import Stage
    from holdfast.store.journal.ledger import Ledger
    from holdfast.store.journal.timeline import Timeline


REASONS = {
    "operation": "its operation is not over",
    "restore": "the backup of a restore that is not confirmed",
    "recovery": "the state before a recovery that is not over",
}

_RELEASED = {
    "mark": "take that back first (`Retention.unpin`, `Retention.lift`)",
    "restore": "confirm that first (`Checkpoints.confirm`)",
    "operation": "let it end, or decide about it first (`Checkpoints.finish`)",
    "recovery": "let it end first (`Recovery.resume`, `Recovery.abandon`)",
}
"""How what keeps a checkpoint is ended."""


@dataclass(frozen=True, slots=True)
class Held:
    """A checkpoint that is needed."""

    checkpoint: Checkpoint
    why: str
    """operation, restore or recovery"""
    operation: str = ""
    """Of an operation that is not over: what its entries carry in their causes."""
    on_error: str = ""
    """Of an operation: what is to be done if it does not end well, revert or keep."""


def held(
    handle: LineHandle, since: int = 0, *, passed: list[tuple[int, str]] | None = None
) -> list[Held]:
    """Checkpoints of a timeline, from an entry on, that are not released yet, newest first.

    One behind which damage leaves open whether it is the backup of a restore counts as that.
    `passed`: see `Points.statements`.
    """
    released: set[str] = set()
    found = []
    history, breath = handle.history, Breath()
    for line, sequence, envelope, body in history.points.statements(passed=passed):
        if sequence < since:
            break
        breath()
        one = history.described(line, handle.timeline, sequence, envelope, body)
        released.update(map(str, said(one.metadata, "releases", [])))
        if one.id in released:
            continue
        operation = said(one.metadata, "operation", "")
        if one.type == "pre_operation" and operation:
            on_error = said(one.metadata, "on_error", "")
            found.append(Held(one, "operation", operation, on_error))
        elif one.type == "recovery" and said(one.metadata, "recovery", ""):
            found.append(Held(one, "recovery"))
        elif _may_be_backup(handle, one):
            found.append(Held(one, "restore"))
    return found


def _may_be_backup(handle: LineHandle, one: Checkpoint) -> bool:
    try:
        return is_backup(handle, one)
    except StateIntegrityError:  # damage leaves it open: what may be needed stays
        return True


def is_backup(handle: LineHandle, one: Checkpoint) -> bool:
    """Whether it was made by a restore: the next entry, of the same commit, is that restore."""
    if one.type != "recovery":
        return False
    if "restores" in one.metadata:
        return True
    line = handle.history.points.line()
    key = rowkinds.entry(line.prefix, one.sequence + 1)
    row = line.ledger.storage.get([key])[0]
    if row is None:
        return False
    try:
        _, body = line.ledger.open_entry(key, row)
    except PrunedError:
        return False  # a restore would have stayed
    return any(op[0] == entry.RESTORE for op in body.ops)


def mark_key(main: LineHandle, kind: str, id_: str) -> str:
    """The key of a mark on a checkpoint of a scope."""
    key = f"{MARKS}{kind}/{id_}"
    try:
        if check_key(key, owner=True) == key:
            return key
    except InvalidKeyError:
        pass
    timeline, _, number = id_.rpartition("@")
    return f"{MARKS}{kind}/@{main.history.points.line(timeline).number}@{number}"


def marks_of(main: LineHandle, kind: str) -> Iterator[tuple[str, str]]:
    """(id, key) of the marks of a kind that a scope has."""
    line = main.reader.now()
    if line is not None:
        for key, _ in line.scan(f"{MARKS}{kind}/"):
            yield marked_id(main.core, line.ledger, key), key


def marked(main: LineHandle) -> dict[str, str]:
    """Ids of the checkpoints of a scope that are pinned, on hold or to go on from, and why."""
    return {
        id_: f"{word}: {main.reader.get(key)}"
        for kind, word in NEEDED.items()
        for id_, key in marks_of(main, kind)
    }


def marked_entries(line: LineHandle) -> dict[int, str]:
    """The same of one timeline, by the number of the checkpoint's entry."""
    split = ((id_.rpartition("@"), why) for id_, why in marked(line.on("main")).items())
    return {int(at[2]): why for at, why in split if at[0] == line.timeline}


def refuse_held(main: LineHandle) -> None:
    """The same, before anything is done."""
    for id_, _ in marks_of(main, "hold"):
        raise on_hold(main.scope, id_)


def _needed(line: LineHandle) -> dict[int, str]:
    """Entries of the checkpoints of a timeline that somebody needs: why, and who lets them go."""
    found = {
        one.checkpoint.sequence: f"held: {REASONS[one.why]}; {_RELEASED[one.why]}"
        for one in held(line, passed=[])
    }
    marks = marked_entries(line).items()
    return found | {number: f"{why}; {_RELEASED['mark']}" for number, why in marks}


def prune_unneeded(
    handle: LineHandle,
    before: Any,
    *,
    keep: Iterable[Any] | None,
    dry_run: bool,
    reason: str | None,
) -> Pruned:
    """Prune as somebody asks for it: refused if what is needed would go; see `State.prune`.

    What comes to be held meanwhile lies behind the point, where nothing goes; what is marked
    meanwhile may not, and stays, too.
    """
    if isinstance(keep, Iterable) and not isinstance(keep, str):
        keep = list(keep)
        points = handle.history.points
        last, kept = points.find(before)[1], {points.find(point)[1] for point in keep}
        for number, why in sorted(_needed(handle).items()):
            if number < last and number not in kept:
                raise StillNeededError(
                    f"{handle.scope}: {handle.timeline}@{number} is {why}, or name it in keep="
                )
    return prune_state(
        handle,
        before,
        keep=keep,
        dry_run=dry_run,
        reason=reason,
        needed=lambda: marked_entries(handle),
    )


# ---- dependencies -------------------------------------------------------------------------------
# What checkpoints of other scopes rest on: cells, from which retention learns what is in use.
#
# A cell names both ends by their numbers: an entry of one scope, and the checkpoint of another that
# rests on it. It is put by the commit that makes the checkpoint, which fails if that entry is
# pruned by then, and which whoever prunes that scope notices (`pruner`). It outlives the
# checkpoint: whoever asks looks whether that is still there, and retention drops cells that stand
# for nothing more.


SLICE = 256
"""Cells that are looked at, or dropped, together."""


DEPENDS = "depends"
"""What the metadata of a checkpoint calls what it rests on."""


def depends_in(metadata: Mapping[str, Any]) -> list[tuple[str, str, int, str]]:
    """(scope, timeline, entry, hash) of what the metadata of a checkpoint says that it rests on.

    Somebody may have put something else there: then nothing.
    """
    noted, kinds = metadata.get(DEPENDS), [str, str, int, str]
    found = noted if type(noted) is list else []
    return [tuple(one) for one in found if type(one) is list and [*map(type, one)] == kinds]


class Rest(NamedTuple):
    """A checkpoint that rests on an entry of another scope."""

    timeline: int
    sequence: int
    """The entry that it rests on."""
    by: bytes
    """Key of the checkpoint's entry."""
    directory: bytes
    """Key of the tombstone that its scope would have."""

    def name(self, core: Core) -> str:
        """What people call the checkpoint; which row it is if its scope cannot be told."""
        key = self.directory[:21] + bytes([rows.THERE])
        number = rows.line_of(self.by)
        try:
            ledger = core.ledger_of(key, core.storage.get([key])[0] or b"")
            names = {line: name for line, name, _, _ in core.timelines(ledger)} if number else {}
        except (ScopeNotFoundError, StateIntegrityError):  # erased since, or `verify` names it
            return f"a scope that cannot be told, {rows.describe(self.by)},"
        return f"{ledger.scope} {names.get(number, 'main')}@{rows.sequence_of(self.by)}"


def rest_on(core: Core, stage: Stage, line: Timeline, sequence: int, anchors: int) -> None:
    """Let the next entry of a stage, a checkpoint, rest on an entry of another scope.

    `anchors` is the number of the newest anchor when it was found that the state there is kept.
    """
    other = line.ledger
    if other.number in core.announcing:
        raise Conflict(f"{other.scope}: it is being pruned; try again")
    at = rows.entry(line.prefix, sequence)
    by = rows.entry(stage.timeline.prefix, stage.sequence + 1)
    stage.absent.append(rows.anchor(other.number, line.number, anchors + 1))
    stage.cells += notices(core.storage, other.number, at, by)
    stage.cells.append((rows.rest(at, by), None, stage.ledger.tombstone))


def rests_on(ledger: Ledger) -> Iterator[Rest]:
    """The checkpoints that rest on entries of a scope."""
    for key, directory, there in _cells(ledger):
        if there:
            at, by = rows.ends_of(key)
            yield Rest(rows.line_of(at), rows.sequence_of(at), by, directory)


def forget_rests(ledger: Ledger) -> None:
    """Drop the cells of checkpoints that are there no longer."""
    over = [(key, directory, None) for key, directory, there in _cells(ledger) if not there]
    for start in range(0, len(over), SLICE):
        with suppress(Conflict):  # somebody else was faster; what is left goes next time
            ledger.storage.commit(Batch(cells=[*over[start : start + SLICE]]))


def _cells(ledger: Ledger) -> Iterator[tuple[bytes, bytes, bool]]:
    """Each cell, and whether its checkpoint is there: scope not deleted, entry not pruned.

    Where damage leaves that open it is: nobody can tell, and what it rests on stays.
    """
    breath = Breath()
    prefix = rows.rests(ledger.number)
    for page in pages(ledger.storage.cells, prefix, rows.after(prefix), limit=SLICE):
        wanted = [(rows.deletion(d), d, rows.ends_of(key)[1]) for key, d in page]
        found = iter(ledger.storage.get([key for keys in wanted for key in keys]))
        for key, directory in page:
            deleted, erased, row = next(found), next(found), next(found)
            ended = deleted is not None or erased is not None
            yield key, directory, not ended and _may_be_whole(row)
            breath()


def _may_be_whole(row: bytes | None) -> bool:
    """Of what is pruned the envelope stays; a row that is lost or damaged says nothing of it."""
    try:
        return row is None or bool(entry.split_row(row)[1])
    except StateIntegrityError:
        return True  # nobody can tell: what it rests on stays
