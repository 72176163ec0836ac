"""Making a backup beside deleting another one, without a lock.

Whoever makes a backup first says which runs' objects it may rest on (a claim), then looks which
runs are doomed, and then which objects there are. Whoever deletes objects first dooms their runs,
then looks what is claimed, then what backups name, and deletes only what is neither. So of the two
at least one sees the other. A claim goes behind the manifest, so that one of both is there.

A process that was killed leaves its claim, or its dooms, behind. After a day, by the clock of the
place, they count no more, and whoever deletes next removes them. One that lives all the same (its
machine slept) finds that out before it relies on them (`_alive`). A restore need not: every
object is compared with its hash, and one that is gone ends it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from holdfast.backup import manifest
from holdfast.backup.parts import damaged
from holdfast.backup.place import Found, Place
from holdfast.errors import BackupNotFoundError, Unavailable

DEAD = timedelta(days=1)
_LARGEST = 64 << 20
_MANY = 1000
"""Objects that are deleted between two looks whether that is still allowed."""


def claim(place: Place, run: str, rests_on: Iterable[str]) -> None:
    """Say that objects of these runs may not be deleted while this run lasts."""
    place.create(_pending(run), msgspec.json.encode([run, *rests_on]))


def check_claim(place: Place, run: str) -> None:
    """Refuse to go on if others took this run for dead: what it rests on may be deleted."""
    _alive(place, "pending", [_pending(run)])


def release(place: Place, run: str) -> None:
    """Say that a run is over."""
    place.drop([_pending(run)])


@contextmanager
def held(place: Place, rests_on: Iterable[str]) -> Iterator[None]:
    """Keep objects of runs from being deleted while they are read; not where one may only read."""
    run = manifest.new_id(datetime.now(UTC))
    with suppress(Unavailable):
        claim(place, run, rests_on)
    try:
        yield
    finally:
        with suppress(Unavailable):
            release(place, run)


def runs(place: Place) -> list[str]:
    """The runs that have objects at a place."""
    return [one for one in place.folders("objects") if manifest.is_id(one)]


def doomed(place: Place) -> set[str]:
    """The runs of which somebody may be deleting objects."""
    return set(place.folders("doomed"))


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


def _pending(run: str) -> str:
    return f"pending/{run}"


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
