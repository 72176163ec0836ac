"""Making a backup: all rows of one moment, of which those are sent that the place does not have.

What is to be sent is put into a passing file first: the moment lasts no longer than it takes to
read the rows, however slow the network is. Cut short anywhere, there is no backup, and what was
sent is found by the next one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import IO

import msgspec

from holdfast.backup import manifest
from holdfast.backup.manifest import (
    CELLS,
    RECORDS,
    RING,
    RING_CELLS,
    Backup,
    Part,
    Row,
    damaged,
    packed,
    rows_at,
)
from holdfast.backup.place import Found, Place
from holdfast.errors import (
    BackupNotFoundError,
    Conflict,
    DiskFullError,
    HoldfastError,
    InvalidInputError,
    MissingError,
    StateIntegrityError,
    Unavailable,
    UntrustedSignerError,
)
from holdfast.store.inner import Core, announce
from holdfast.store.names.threads import safe_point, undivided

# ---- claims -------------------------------------------------------------------------------------
# Making a backup beside deleting another one, without a lock.
#
# Whoever makes a backup first says which runs' objects it may rest on (a claim), then looks which
# runs are doomed, and then which objects there are. Whoever deletes objects first dooms their runs,
# then looks what is claimed, then what backups name, and deletes only what is neither. So of the
# two at least one sees the other. A claim goes behind the manifest, so that one of both is there.
#
# A process that was killed leaves its claim, or its dooms, behind. After a day, by the clock of the
# place, they count no more, and whoever deletes next removes them. One that lives all the same (its
# machine slept) finds that out before it relies on them (`_alive`). A restore claims nothing: every
# object is compared with its hash, and one that is deleted meanwhile ends it.


DEAD = timedelta(days=1)
_LARGEST = 64 << 20
_MANY = 1000
"""Objects that are deleted between two looks whether that is still allowed."""


def claim(place: Place, run: str, rests_on: Iterable[str]) -> None:
    """Say that objects of these runs may not be deleted while this run lasts."""
    place.create(f"pending/{run}", msgspec.json.encode([run, *rests_on]))


def check_claim(place: Place, run: str) -> None:
    """Refuse to go on if others took this run for dead: what it rests on may be deleted."""
    _alive(place, "pending", [f"pending/{run}"])


def runs(place: Place) -> list[str]:
    """The runs that have objects at a place."""
    return [one for one in place.folders("objects") if manifest.is_id(one)]


def collect(place: Place) -> tuple[int, int]:
    """Delete the objects that no backup names and nobody claims: how many, and their bytes.

    A manifest or a claim that cannot be read may name anything: then nothing is deleted.
    """
    there = set(manifest.ids(place))
    left = [run for run in runs(place) if run not in there]
    if not left:
        return 0, 0
    token = os.urandom(8).hex()
    marks = [f"doomed/{run}/{token}" for run in left]
    try:
        for mark in marks:
            place.put(mark, b"")
        kept = _claimed(place, marks)
        named = _named(place)
        found = [one for run in left if run not in kept for one in place.objects(f"objects/{run}")]
        unnamed = [one for one in found if one.name not in named]
        waiting = iter(unnamed)
        while batch := list(islice(waiting, _MANY)):
            _alive(place, "doomed", marks)
            place.drop([one.name for one in batch])
        return len(unnamed), sum(one.size for one in unnamed)
    finally:
        place.drop(marks)


def _alive(place: Place, folder: str, mine: Sequence[str]) -> list[Found]:
    """What lies in a folder; refuses to go on if something of one's own is gone from there, which
    others took for a dead process's."""
    found = list(place.objects(folder))
    if not {one.name for one in found}.issuperset(mine):
        raise Unavailable(
            f"it lasted over a day by the clock of {place.address}, and others go by that: it "
            "was ended before it could do harm; try again"
        )
    return found


def _claimed(place: Place, marks: Sequence[str]) -> set[str]:
    """The runs that are claimed by somebody who lives."""
    doomed = _alive(place, "doomed", marks)
    now = max(one.written for one in doomed)
    found: set[str] = set()
    dead = [one.name for one in doomed if now - one.written > DEAD]
    for one in place.objects("pending"):
        if now - one.written > DEAD:
            dead.append(one.name)
            continue
        try:
            data = place.get(one.name, _LARGEST)
        except BackupNotFoundError:
            continue  # it is over, and its manifest, if it has one, is there to be read
        try:
            found.update(msgspec.json.decode(data, type=list[str]))
        except msgspec.MsgspecError:
            raise damaged(one.name) from None
    place.drop(dead)
    return found


def _named(place: Place) -> set[str]:
    """The names of all objects that backups are made of."""
    found: set[str] = set()
    for id in manifest.ids(place):
        try:
            backup = manifest.read(place, id)
            found.update(part.name for part in manifest.parts_of(place, backup))
            found.add(backup.parts.name)
        except BackupNotFoundError:
            if place.has(manifest.path_of(id)):
                raise  # it has lost its list, and may name anything
    return found


# ---- make ---------------------------------------------------------------------------------------


AT_ONCE = 8
"""Objects that are sent beside each other."""


def make(core: Core, place: Place, *, name: str, keys: bool, full: bool, unsigned: bool) -> Backup:
    """Make a backup of a store as it is now."""
    if keys and core.ring is None:
        raise InvalidInputError("the store is not encrypted: there are no keys to put in a backup")
    if core.signer is None and not unsigned:
        raise UntrustedSignerError(
            "the store's signer is not here, so that nobody could tell the backup from a forged "
            "one: open the store with signer=, or give unsigned=True"
        )
    created = datetime.fromtimestamp(core.clock.claimed() / 1_000_000, UTC)
    signer = core.signer.public.hex() if core.signer is not None else ""
    run = manifest.next_id(place, created, core.lineage.hex(), signer)
    known = runs(place)
    claim(place, run, known)
    try:
        gone = set(place.folders("doomed"))  # somebody may be deleting objects of these
        made = _Making(core, place, run, [] if full else [one for one in known if one not in gone])
        with tempfile.TemporaryFile(prefix="holdfast-backup-") as spool:
            made.read(spool, keys)
            announce(core, "backup.progress", name=name, id=run, step="read")
            made.send(spool)
        return made.finish(name, created, keys, full)
    except BackupNotFoundError:
        # Sent and gone before it was synced: whoever took this run for dead removed it.
        check_claim(place, run)
        raise
    except OSError as error:  # of the passing file; those of the place are told in words of ours
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFullError(
            "no room is left for what is to be sent, in the folder for temporary files "
            "(TMPDIR names another one); no backup was made"
        ) from None
    finally:
        with suppress(HoldfastError):
            place.drop([f"pending/{run}"])


class _Making:
    def __init__(self, core: Core, place: Place, run: str, runs: list[str]) -> None:
        self._core = core
        self._place = place
        self._run = run
        self._known = {
            (one.name.rpartition("/")[2], one.size): other
            for other in runs
            for one in place.objects(f"objects/{other}")
        }
        """Whose objects there are, by hash and size."""
        self._parts: list[Part] = []
        self._new: list[Part] = []
        self._bytes = 0

    def read(self, spool: IO[bytes], keys: bool) -> None:
        """Read all rows at one moment, and keep what is to be sent."""
        with self._core.storage.moment() as moment:
            rows = rows_at(moment, RECORDS, CELLS)
            for data, count in packed(chain(rows, self._ring_rows()) if keys else rows):
                safe_point()
                hash = hashlib.sha256(data)
                run = self._known.get((hash.hexdigest(), len(data)))
                part = Part(run or self._run, hash.digest(), len(data), count)
                self._parts.append(part)
                self._bytes += len(data)
                if run is None:
                    self._new.append(part)
                    spool.write(data)

    def _ring_rows(self) -> Iterator[Row]:
        """Read behind the rows of the store: a key is in the ring before it is used."""
        assert self._core.ring is not None
        with self._core.ring.storage.moment() as moment:
            yield from rows_at(moment, RING, RING_CELLS)

    def send(self, spool: IO[bytes]) -> None:
        """Send what the place does not have."""
        spool.seek(0)
        waiting = iter(self._new)
        with ThreadPoolExecutor(AT_ONCE, "holdfast-backup") as pool:
            while batch := list(islice(waiting, AT_ONCE)):
                safe_point()
                pieces = [(part.name, spool.read(part.size)) for part in batch]
                list(pool.map(lambda piece: self._place.put(*piece), pieces))

    def finish(self, name: str, created: datetime, keys: bool, full: bool) -> Backup:
        """Write the manifest, which makes it a backup."""
        data = msgspec.msgpack.encode(self._parts)
        listed = Part(self._run, hashlib.sha256(data).digest(), len(data), len(self._parts))
        self._place.put(listed.name, data)
        core, parent = self._core, "" if full else self._newest()
        # In a small store a change touches every object: then it rests on none, and was made behind
        # its parent all the same.
        again = parent or len(self._new) < len(self._parts)
        backup = Backup(
            id=self._run,
            name=name,
            created=created,
            type="incremental" if again else "full",
            parent=parent,
            lineage=core.lineage.hex(),
            encrypted=core.ring is not None,
            keys=keys,
            signer=core.signer.public.hex() if core.signer is not None else "",
            rows=sum(part.rows for part in self._parts),
            bytes=self._bytes,
            objects=len(self._parts),
            uploaded=sum(part.size for part in self._new) + len(data),
            parts=listed,
        )
        check_claim(self._place, self._run)
        with undivided():
            if not self._place.create(
                manifest.path_of(backup.id), manifest.sign(backup, core.signer)
            ):
                raise Conflict(f"there is another backup {backup.id}; try again", [])
        return backup

    def _newest(self) -> str:
        """The newest backup of this store."""
        for id in manifest.ids(self._place):
            with suppress(StateIntegrityError, MissingError):  # damaged, or deleted meanwhile
                if manifest.read(self._place, id).lineage == self._core.lineage.hex():
                    return id
        return ""
