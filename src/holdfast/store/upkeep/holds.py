"""What keeps an entry or a checkpoint from going: one function, asked by all that remove.

`REASONS` (`rules.hold_reasons`) is the table; here is where each reason is found. Marks are keys
of the main timeline: pinned, on hold, or to go on from. Three kinds of checkpoints are held from
the moment they are made: the one before an operation, until the operation is over, the backup of a
restore, until the restore is confirmed, and the state before a recovery, until the recovery is
over. A release is a checkpoint itself, of type `post_operation`, that names in its metadata
(`releases`) what it releases: it is an entry of the same history, so it is signed, verified and
never half there, and no restore takes it back. What checkpoints of other scopes rest on is said by
cells. The layer above makes and releases all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
from holdfast.storage.rows import each, pages
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal import entry
from holdfast.store.journal.floor import floor_of, is_stated
from holdfast.store.journal.save import BEFORE, Save, read_save
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import cell_at
from holdfast.store.names.items import Checkpoint, Hold, said
from holdfast.store.names.scope import check_key
from holdfast.store.names.threads import Breath
from holdfast.store.rules.hold_reasons import (
    END,
    REASONS,
    mark_prefix,
    marked_id,
)
from holdfast.store.rules.upload_pins import SWEPT

if TYPE_CHECKING:
    from holdfast.store.commit.group import Core
    from holdfast.store.commit.stage import Stage
    from holdfast.store.journal.ledger import Ledger
    from holdfast.store.journal.timeline import Timeline


class Need(NamedTuple):
    """Something that is kept."""

    reason: str
    """Its row in the table."""
    at: int
    """The entry; 0: none, but rows that no entry names."""
    said: str = ""
    by: Callable[[], str] = str
    """Who needs it; asked only if it is told."""

    @property
    def text(self) -> str:
        """What is told of it."""
        text = REASONS[self.reason].text
        return text.format(said=self.said, by=self.by() if "{by}" in text else "")

    @property
    def until(self) -> str:
        """What ends it."""
        return REASONS[self.reason].until


def needs(line: LineHandle, deed: str | None = None) -> Iterator[Need]:
    """What of a timeline is kept, whatever would remove it, or from one deed, by which reason.

    All who remove anything ask here. Who is at work for long asks again for what may come
    meanwhile: see `prune`.
    """
    for names, find in _FIND.items():
        if any(REASONS[name].stops(deed) for name in names):
            yield from (need for need in find(line) if REASONS[need.reason].stops(deed))


def why_kept(handle: LineHandle, point: Any) -> list[Hold]:
    """What keeps a point, or anything of the timeline; see `State.why_kept`."""
    at = None
    if point is not None:
        timeline, at = handle.history.points.find(point)
        handle = handle.on(timeline)
    found = list(needs(handle))
    if at is not None:
        begun = any(REASONS[one.reason].onward and one.at < at for one in found)
        found = [one for one in found if one.at == at] + [Need("since", at)] * begun
    ids = [f"{handle.timeline}@{one.at}" if one.at else "" for one in found]
    return [
        Hold(id_, one.reason, one.text, one.by(), one.until)
        for id_, one in zip(ids, found, strict=True)
    ]


def refuse_end(line: LineHandle) -> None:
    """Refuse to end a timeline of which something is kept."""
    for need in needs(line, END):
        raise StillNeededError(
            f"{line.scope}: {line.timeline} cannot be ended because of {line.timeline}@{need.at}: "
            f"{need.text}; {need.until}"
        )


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
        else:
            backup = True
            with suppress(StateIntegrityError):  # it leaves that open: what may be needed stays
                backup = is_backup(handle, one)
            found += [Held(one, "restore")] if backup else []
    return found


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
    key = f"{mark_prefix(kind)}{id_}"
    try:
        if check_key(key, owner=True) == key:
            return key
    except InvalidKeyError:
        pass
    timeline, _, number = id_.rpartition("@")
    return f"{mark_prefix(kind)}@{main.history.points.line(timeline).number}@{number}"


def marks_of(main: LineHandle, kind: str) -> Iterator[tuple[str, str]]:
    """(id, key) of the marks of a kind that a scope has."""
    line = main.reader.now()
    if line is not None:
        for key, _ in line.scan(mark_prefix(kind)):
            yield marked_id(main.core, line.ledger, key), key


def marked(main: LineHandle) -> Iterator[tuple[str, Need]]:
    """The ids of the checkpoints of a scope that are marked to stay, and why each is."""
    for name, reason in REASONS.items():
        for id_, key in marks_of(main, name) if reason.mark else ():
            at, told = int(id_.rpartition("@")[2]), str(main.reader.get(key))

            def by(key: str = key) -> str:  # who put it there
                item = main.reader.item(key)
                return item.cause.actor or "" if item is not None else ""

            yield id_, Need(name, at, told, by)


def marked_entries(line: LineHandle) -> set[int]:
    """Entries of a timeline that are marked to stay."""
    return {need.at for need in _marked(line)}


def _marked(line: LineHandle) -> Iterator[Need]:
    for id_, need in marked(line.on("main")):
        if id_.rpartition("@")[0] == line.timeline:
            yield need


def _held(line: LineHandle) -> Iterator[Need]:
    for one in held(line, passed=[]):
        made = one.checkpoint
        by = one.operation or said(made.metadata, "recovery", "") or made.cause.actor or ""
        yield Need(one.why, made.sequence, by=partial(str, by))


def _sources(line: LineHandle) -> Iterator[Need]:
    own = line.history.points.line()
    ledger = own.ledger
    for number, name, _, _ in line.core.timelines(ledger):
        if number in ledger.ended:
            continue
        for source, at in sources_of(ledger, number, floor_of(ledger, number).sequence + 1):
            if source == own.number and at > ledger.before:
                reason = "restored" if number == own.number else "source"
                yield Need(reason, at, by=partial(str, name))


def _uploads(line: LineHandle) -> Iterator[Need]:
    scope = rowkinds.pin(line.history.points.line().ledger.number, 0)[:7]
    for _, cell in each(line.core.storage.cells, scope, rowkinds.after(scope)):
        if cell != SWEPT:
            yield Need("upload", 0, by=cell[:-8].hex)


_FIND: dict[tuple[str, ...], Callable[[LineHandle], Iterator[Need]]] = {
    ("hold", "pin", "restart"): _marked,
    ("fork",): lambda line: (
        Need("fork", info.start, by=partial(str, info.name))
        for info in line.on("main").history.timelines()
        if info.parent == line.timeline
    ),
    ("operation", "restore", "recovery"): _held,
    ("dependency",): lambda line: (
        Need("dependency", one.sequence, by=partial(one.name, line.core)) for one in rests_of(line)
    ),
    ("newest",): lambda line: iter([Need("newest", line.history.points.line().sequence)]),
    ("source", "restored"): _sources,
    ("upload",): _uploads,
}
"""Where each reason is found."""


def saves_of(ledger: Ledger, timeline: int, low: int) -> Iterator[tuple[int, Save]]:
    """(sequence, save) of the saved indexes of a timeline from an entry on."""
    for key, row in ledger.rows_of(b"S", timeline, low, limit=64):
        yield rowkinds.sequence_of(key), read_save(ledger.open_row(key, row))


def sources_of(ledger: Ledger, timeline: int, low: int) -> Iterator[tuple[int, int]]:
    """(timeline, entry) that restores and forks of a timeline, from an entry on, begin from."""
    for sequence, save in saves_of(ledger, timeline, low):
        if save.kind == BEFORE:
            try:
                *_, body = ledger.entry_at(timeline, sequence)
            except StateIntegrityError as error:  # lost, it needs nothing more
                if not is_stated(ledger, error):
                    raise
                continue
            yield body.ops[0][1], body.ops[0][2]


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
        key = self.directory[:21] + bytes([rowkinds.THERE])
        number = rowkinds.line_of(self.by)
        try:
            ledger = core.ledger_of(key, core.storage.get([key])[0] or b"")
            names = {line: name for line, name, _, _ in core.timelines(ledger)} if number else {}
        except (ScopeNotFoundError, StateIntegrityError):  # erased since, or `verify` names it
            return f"a scope that cannot be told, {rowkinds.describe(self.by)},"
        return f"{ledger.scope} {names.get(number, 'main')}@{rowkinds.sequence_of(self.by)}"


TOKEN = 16
"""Bytes that say who prunes a scope, at the beginning of its cell: see `prune.Pruner`."""


def counted(held: bytes, *, beat: bool = False) -> bytes:
    """Such a cell with one more in its count: somebody came to rest on the scope; or who prunes it
    goes on (`beat`), which the upper half counts."""
    more = 1 << 32 if beat else 1
    return held[:TOKEN] + (int.from_bytes(held[TOKEN:], "big") + more).to_bytes(8, "big")


def rest_on(core: Core, stage: Stage, line: Timeline, sequence: int, anchors: int) -> None:
    """Let the next entry of a stage, a checkpoint, rest on an entry of another scope.

    `anchors` is the number of the newest anchor when it was found that the state there is kept.
    """
    other = line.ledger
    if other.number in core.announcing:
        raise Conflict(f"{other.scope}: it is being pruned; try again")
    at = rowkinds.entry(line.prefix, sequence)
    by = rowkinds.entry(stage.timeline.prefix, stage.sequence + 1)
    stage.absent.append(rowkinds.anchor(other.number, line.number, anchors + 1))
    # Whoever prunes the other scope is told, by a count behind its token.
    pruner = rowkinds.pruner(other.number)
    held = cell_at(core.storage, pruner)
    stage.cells.append((pruner, held, counted(held) if held is not None else None))
    stage.cells.append((rowkinds.rest(at, by), None, stage.ledger.tombstone))


def rests_of(line: LineHandle) -> Iterator[Rest]:
    """The checkpoints of other scopes that rest on entries of a timeline."""
    timeline = line.history.points.line()
    return (one for one in rests_on(timeline.ledger) if one.timeline == timeline.number)


def rests_on(ledger: Ledger) -> Iterator[Rest]:
    """The checkpoints that rest on entries of a scope."""
    for key, directory, there in _cells(ledger):
        if there:
            at, by = rowkinds.ends_of(key)
            yield Rest(rowkinds.line_of(at), rowkinds.sequence_of(at), by, directory)


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
    prefix = rowkinds.rests(ledger.number)
    for page in pages(ledger.storage.cells, prefix, rowkinds.after(prefix), limit=SLICE):
        wanted = [(rowkinds.deletion(d), d, rowkinds.ends_of(key)[1]) for key, d in page]
        found = iter(ledger.storage.get([key for keys in wanted for key in keys]))
        for key, directory in page:
            deleted, erased, row = next(found), next(found), next(found)
            ended = deleted is not None or erased is not None
            pruned = False
            with suppress(StateIntegrityError):  # of what is pruned the envelope stays
                pruned = row is not None and not entry.split_row(row)[1]
            yield key, directory, not ended and not pruned
            breath()
