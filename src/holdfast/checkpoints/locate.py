"""Finding a checkpoint by what is known of it; damaged ones are passed over and named."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from holdfast.checkpoints.create import Dependency, dependencies_of, stored_bytes
from holdfast.checkpoints.request import Locator
from holdfast.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    MissingError,
    PrunedError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.seal import compress
from holdfast.store.inner import (
    BEFORE,
    Ancestry,
    Ledger,
    LineHandle,
    Node,
    Point,
    count_keys,
    entry,
    held,
    index_of,
    is_backup,
    leaves,
    read_save,
    refs,
    slot_of,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_limit
from holdfast.store.names.items import Checkpoint, said


@dataclass(frozen=True, slots=True)
class Tried:
    """A checkpoint that was looked at when one that is whole was wanted."""

    id: str
    name: str
    valid: bool
    reason: str = ""
    """What is wrong with it; empty if nothing is."""


def locate(handle: LineHandle, where: Locator, tried: list[Tried] | None = None) -> Checkpoint:
    """The newest checkpoint that fits; `tried` is told of each whose content was looked at."""
    where.check()
    noted: list[Tried] = [] if tried is None else tried
    for found in (good if where.valid else candidates)(handle, where, noted):
        if where.valid:
            noted.append(examine(handle, found))
            if not noted[-1].valid:
                continue
        return found
    passed = ", ".join(one.id for one in noted)
    more = f"; damaged: {passed}" if passed else "; `checkpoints()` lists them"
    raise CheckpointNotFoundError(f"{handle.scope}: there is no checkpoint ({where}){more}")


def find(handle: LineHandle, where: Locator, limit: int | None = None) -> list[Checkpoint]:
    """All checkpoints that fit, newest first."""
    check_limit(limit)
    where.check()
    whole = (
        one for one in candidates(handle, where) if not where.valid or examine(handle, one).valid
    )
    return list(islice(whole, limit))


def candidates(
    handle: LineHandle, where: Locator, noted: list[Tried] | None = None
) -> Iterator[Checkpoint]:
    """Checkpoints that fit, newest first, whole or not; `noted` gets those that cannot be read."""
    if where.id is not None:
        timeline, _, number = where.id.rpartition("@")
        if not timeline or not number.isdecimal():
            raise InvalidInputError("the id of a checkpoint is TIMELINE@NUMBER")
        timeline, sequence = handle.history.points.find(where.id)
        last = _last_before(handle.on(timeline), where.before)
        found = handle.history.checkpoint_at(timeline, sequence)
        if (last is None or sequence <= last) and fits(found, where):
            yield found
        return
    last = _last_before(handle, where.before)
    history = handle.history
    passed: list[tuple[int, str]] = []

    def note() -> None:
        if noted is not None:
            noted.extend(Tried(f"{handle.timeline}@{n}", "", False, why) for n, why in passed)
        passed.clear()

    for line, sequence, envelope, body in history.points.statements(passed=passed):
        note()
        one = history.described(line, handle.timeline, sequence, envelope, body)
        if (last is None or sequence <= last) and fits(one, where):
            yield one
    note()


def good(handle: LineHandle, where: Locator, noted: list[Tried]) -> Iterator[Checkpoint]:
    """Those of `candidates` that somebody may want back who does not say which.

    Not the backups of restores, nor what else a restore left behind: that was left on purpose, and
    to return to the newest of it would undo the restore, and the next time that. They are given if
    they are named; whoever says before which point or time looks at all that was left there.
    """
    named = where.id is not None or where.name is not None or where.type is not None
    then = where.at is not None or where.before is not None
    known = None if named or then else Lineage(handle)
    for one in candidates(handle, where, noted):
        left = known is not None and one.sequence not in known
        if named or not (left or is_backup(handle, one)):
            yield one


def fits(one: Checkpoint, where: Locator) -> bool:
    """Whether a checkpoint is what a locator says, but for an entry that it lies before."""
    return (
        (where.name is None or one.name == where.name)
        and (where.type is None or one.type == where.type)
        and (where.tag is None or where.tag in one.tags)
        and (where.trigger is None or one.metadata.get("trigger") == where.trigger)
        and (where.at is None or one.time <= where.at)
        and (not isinstance(where.before, datetime) or one.time < where.before)
    )


def _last_before(handle: LineHandle, before: Any) -> int | None:
    """The last entry before a point; None if a time is given, which each one is compared with."""
    if before is None or isinstance(before, datetime):
        return None
    timeline, sequence = handle.history.points.find(before)
    if timeline != handle.timeline:
        raise InvalidInputError(
            f"{handle.scope}: that point is of timeline {timeline!r}; look there for what is before"
        )
    return sequence - 1


def examine(handle: LineHandle, found: Checkpoint, verify: str = "full") -> Tried:
    """Look at all that a checkpoint covers. A storage that does not answer is not damage."""
    history = handle.history
    try:
        source = history.points.view(found.timeline, found.sequence)
        history.check_point(source, found.sequence, verify)
    except StateIntegrityError as error:  # an older one may be whole
        return Tried(found.id, found.name, False, str(error))
    return Tried(found.id, found.name, True)


# ---- lineage ------------------------------------------------------------------------------------
# Which entries of a timeline its newest state comes from.
#
# A restore leaves a stretch behind: the entries after the point it returned to, up to itself.
# Whoever asks for the newest good state does not mean one that was left on purpose. A restore that
# returns into such a stretch takes it up again. An import leaves nothing: its timeline begins
# empty, so what was before it is what there was, and no state that somebody returned from.


class Lineage:
    """The stretches of a timeline that its newest state, or that at an entry, comes from."""

    def __init__(self, handle: LineHandle, at: int | None = None) -> None:
        self._stretches = list(_stretches(handle, at))

    def __contains__(self, sequence: int) -> bool:
        return any(low <= sequence <= high for low, high in self._stretches)


def _stretches(handle: LineHandle, at: int | None) -> Iterator[tuple[int, int]]:
    """First and last entry of each, the newest first; also if the newest state is damaged.

    Where a restore cannot be read any more, nobody knows what it left: nothing, then.
    """
    line = handle.history.points.line()
    ledger = line.ledger
    timeline, last = line.number, line.sequence if at is None else at
    while last > ledger.before:
        try:
            # The newest restore or fork up to an entry, which the index saved last names.
            saves, origin = rowkinds.line(b"S", ledger.number, timeline), 0
            low, high = rowkinds.entry(saves, 0), rowkinds.entry(saves, last) + b"\0"
            for key, row in ledger.storage.scan(low, high, limit=1, reverse=True):
                save = read_save(ledger.open_row(key, row))
                origin = rowkinds.sequence_of(key) if save.kind == BEFORE else save.origin
            first = origin
            key = rowkinds.entry(rowkinds.line(b"E", ledger.number, timeline), origin)
            came = (
                ledger.open_entry(key, ledger.storage.get([key])[0])[1].ops[0] if origin else None
            )
        except (MissingError, StateIntegrityError):  # nobody knows what it left
            first, came = 0, None
        own = timeline == line.number
        if own:
            yield first, last
            before = first - 1
        if came is None:
            return
        timeline, last = came[1], came[2]
        if last <= ledger.before and not own:  # it came from outside
            timeline, last = line.number, before


# ---- describe -----------------------------------------------------------------------------------
# All that is known of a checkpoint: where it comes from, what it takes, whether it is whole.


_METHODS = {method: name for name, method in compress.NAMES.items()}
_PAGE = 64


@dataclass(frozen=True, slots=True)
class Compression:
    """How the values of a state are stored. Small ones lie in the index, and are not counted."""

    records: dict[str, int]
    """Records that hold values of the state, by how each is packed: none, lz4, zstd, padded."""
    stored: int
    """Bytes of these records; they may hold values of other states, too."""


@dataclass(frozen=True, slots=True)
class Integrity:
    """Whether a checkpoint is what was written, as far as that was looked at."""

    hash: str
    """Commitment to the whole state."""
    checksum: str
    """Hash of the checkpoint's entry, which covers all of the history before it."""
    signed_by: str
    verification: str
    """full (every value was read), references (every record exists) or none"""
    valid: bool
    reason: str
    tamper_proof: bool
    """Whether a change would be found: it is signed, and what is signed was found to fit."""


@dataclass(frozen=True, slots=True)
class Description:
    """All that is known of a checkpoint."""

    checkpoint: Checkpoint
    trigger: str
    parent: str | None
    """The checkpoint that its state comes from, by way of restores and forks, too; None if there is
    none, or what lies between the two is pruned or damaged."""
    children: tuple[str, ...]
    """Checkpoints whose parent it is, of all timelines."""
    priority: str
    retention: dict[str, Any]
    dependencies: tuple[Dependency, ...]
    held: str
    """Why it may not be removed: operation, restore, or nothing."""
    group: str
    size: int
    """Bytes that the checkpoint itself takes."""
    keys: int
    state_size: int
    """Encoded bytes of the state that it covers."""
    compression: Compression | None
    """None if the state is damaged, or was not read."""
    integrity: Integrity


def describe(handle: LineHandle, which: Any, verify: str = "full") -> Description:
    """All that is known of the checkpoint at a point.

    The time that it takes grows with the state, unless `verify` is none, and with the number of
    checkpoints of the scope, which are all asked for their parents.
    """
    history = handle.history
    timeline, sequence = history.points.find(which)
    found = history.checkpoint_at(timeline, sequence)
    looked = examine(handle, found, verify)
    about = found.metadata
    parents = parents_of(handle)
    view = history.points.view
    root = index_of(view(found.timeline, found.sequence)) if looked.valid else None
    ledger = history.points.line(timeline).ledger
    needed = {one.checkpoint.id: one.why for one in held(handle.on(timeline))}
    read = root is not None and verify == "full"
    return Description(
        found,
        said(about, "trigger", ""),
        parents.get(found.id),
        tuple(id for id, parent in parents.items() if parent == found.id),
        said(about, "priority", "medium"),
        said(about, "retention", {}),
        tuple(dependencies_of(handle, about)),
        needed.get(found.id, ""),
        said(about, "group", ""),
        stored_bytes(handle, found),
        count_keys(ledger.trees, root) if root is not None else 0,
        root.size if root is not None else 0,
        _compression(ledger, root) if read and root else None,
        Integrity(
            found.root,
            found.hash,
            found.signed_by,
            verify,
            looked.valid,
            looked.reason,
            bool(found.signed_by) and looked.valid and verify != "none",
        ),
    )


def _compression(ledger: Ledger, root: Node) -> Compression:
    places: set[tuple[int, int, int]] = set()
    for element in ledger.trees.walk(root):
        slot = slot_of(element)
        atoms = leaves(ledger, slot.ref, slot.location)
        places.update(place[:3] for ref, place in atoms if ref[0] == refs.ATOM)
    wanted = [ledger.row_of(place) for place in sorted(places)]
    methods: Counter[str] = Counter()
    stored = 0
    for start in range(0, len(wanted), _PAGE):
        page = wanted[start : start + _PAGE]
        for key, row in zip(page, ledger.storage.get(page), strict=True):
            if row is not None:
                sealed = entry.split_row(row)[1] if key[:1] == b"E" else row
                methods[_METHODS[sealed[0] >> 1 & 3]] += 1
                stored += len(row)
    return Compression(dict(methods), stored)


def parents_of(handle: LineHandle) -> dict[str, str | None]:
    """Which checkpoint the state of each one comes from, over all timelines of a scope."""
    ledger = handle.history.points.line().ledger
    ancestry, names = Ancestry(ledger), {n: name for n, name, _, _ in handle.core.timelines(ledger)}
    known: dict[int, list[int]] = {}
    """Numbers of the entries that are checkpoints, by timeline, oldest first."""
    for number, name in names.items():
        with suppress(TimelineNotFoundError):  # it was ended, and has none
            found = handle.on(name).history.points.statements()
            known[number] = [sequence for _, sequence, _, _ in found][::-1]

    def parent(point: Point) -> str | None:
        last = point[1] - 1
        try:
            while True:
                number = point[0]
                origin = ancestry.origin(point)  # of what is kept, also if `last` is not
                made = known.get(number, [])
                at = bisect_right(made, last)
                if at and made[at - 1] > origin:
                    return f"{names[number]}@{made[at - 1]}"
                if not origin:
                    return None
                _, point = next(ancestry.parents(number, origin, 0))
                last = point[1]
        except (PrunedError, StateIntegrityError):
            return None  # what lies between the two is pruned or damaged

    return {
        f"{names[number]}@{sequence}": parent((number, sequence))
        for number, made in known.items()
        for sequence in made[::-1]
    }
