"""Backups of a store."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.backup import manifest
from holdfast.backup.backup_restore import RestoredBackup, restore
from holdfast.backup.make import collect, make
from holdfast.backup.manifest import Backup
from holdfast.backup.place import Place
from holdfast.errors import (
    BackupNotFoundError,
    InvalidInputError,
    NewerFormatError,
    StateIntegrityError,
    UntrustedSignerError,
)
from holdfast.store.inner import Core, Trust, announce, announced, core_of
from holdfast.store.names.arguments import check_flag, check_text
from holdfast.store.names.face import faced, writes
from holdfast.store.names.threads import safe_point
from holdfast.store.store import Store

MOST_NAME = 200


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What `verify` found of a backup."""

    id: str
    objects: int
    """That were read."""
    rows: int
    bytes: int
    findings: tuple[str, ...]
    """What is missing, damaged or not signed by who is trusted; empty when all is well."""

    @property
    def ok(self) -> bool:
        """Whether a store can be restored from it."""
        return not self.findings

    def __str__(self) -> str:
        said = "whole" if self.ok else f"{len(self.findings)} findings"
        lines = [f"backup {self.id}: {said}, {self.objects} objects, {self.rows} rows"]
        return "\n".join([*lines, *(f"  {one}" for one in self.findings)])


@dataclass(frozen=True, slots=True)
class PrunedBackups:
    """What deleting backups has removed."""

    deleted: tuple[str, ...]
    objects: int
    bytes: int
    notes: tuple[str, ...] = ()
    """Why objects that no backup may need were left; the next deletion looks at them again."""


@faced
class Backups:
    """The backups of a store at a place: a folder (`file:///FOLDER`, `dir:FOLDER`, a `Path`) or a
    bucket (`s3://BUCKET/PREFIX`).

    `store` is an open store, or None: then backups can be listed, verified, restored and deleted.
    Credentials of a bucket are taken from the environment; `endpoint` is for servers other than
    Amazon's. With `encryption=True` the backup of a plain store is refused. `trust` are public
    keys, in hexadecimal, of whom backups are taken that this store's own signer did not sign.
    """

    def __init__(
        self,
        store: Store | None,
        url: str | Path,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        encryption: bool = False,
        trust: Sequence[str] | None = None,
    ) -> None:
        if store is not None and not isinstance(store, Store):
            raise InvalidInputError("Backups takes an open store, or None")
        self._core: Core | None = core_of(store) if store is not None else None
        self._trusted = Trust.of(() if trust is None else trust, None).keys
        if self._core is not None:
            self._core.check_store()
            self._trusted |= {self._core.public}
        if check_flag(encryption, "encryption") and self._core and self._core.ring is None:
            raise InvalidInputError(
                "encryption was asked for, and this store is plain: its backups would be, too. "
                "Make the store with a key, or leave encryption out"
            )
        self._place = Place(url, region=region, endpoint=endpoint)

    def __repr__(self) -> str:
        return f"Backups({self._place.address!r})"

    @writes
    def create(
        self,
        name: str = "",
        *,
        keys: bool = False,
        full: bool = False,
        unsigned: bool = False,
    ) -> Backup:
        """Make a backup of the store as it is at one moment; agents go on working meanwhile.

        Only what the place does not have is sent, unless `full=True`. Rows of an encrypted store
        are sent as they are: sealed. Its ring is not in the backup but with `keys=True`, and then
        as it lies in its file: wrapped by the master key. Where the signer is not at hand, a
        backup is made with `unsigned=True` only.
        """
        if self._core is None:
            raise InvalidInputError("a backup is made of an open store: Backups(store, ...)")
        check_text(name, "the name of a backup", MOST_NAME)
        for flag, what in ((keys, "keys"), (full, "full"), (unsigned, "unsigned")):
            check_flag(flag, what)
        with announced(self._core, "backup.", name=name) as told:
            self._place.make()
            made = make(self._core, self._place, name=name, keys=keys, full=full, unsigned=unsigned)
            told["id"] = made.id
        return made

    def list(self) -> builtins.list[Backup]:
        """The backups at the place, newest first, but those whose manifest cannot be read."""
        return [one for one in self._read().values() if one is not None]

    def damaged(self) -> tuple[str, ...]:
        """The ids of backups whose manifest cannot be read; `verify` says why."""
        return tuple(id for id, one in self._read().items() if one is None)

    def _read(self) -> dict[str, Backup | None]:
        found: dict[str, Backup | None] = {}
        for id in manifest.ids(self._place):
            with suppress(BackupNotFoundError):  # deleted meanwhile
                try:
                    found[id] = manifest.read(self._place, id)
                except (StateIntegrityError, NewerFormatError):
                    # listed as damaged: others are whole
                    found[id] = None
        return found

    def verify(self, id: str) -> BackupReport:
        """Read all of a backup: every object is there, and is what the signed manifest says."""
        announce(self._core, "validation.started", id=id)
        report = self._verified(id)
        end = "completed" if report.ok else "failed"
        announce(self._core, f"validation.{end}", id=id, findings=list(report.findings[:10]))
        return report

    def _verified(self, id: str) -> BackupReport:
        findings: list[str] = []
        objects = count = size = 0
        try:
            backup = manifest.read(self._place, id)
            parts = manifest.parts_of(self._place, backup)
        except (StateIntegrityError, BackupNotFoundError) as error:  # what a report is for
            if not self._place.has(manifest.path_of(id)):
                raise
            return BackupReport(id, 0, 0, 0, (str(error),))
        try:
            manifest.check_signer(backup, self._trusted)
        except UntrustedSignerError as error:
            findings.append(str(error))
        last = (-1, b"")
        for part in parts:
            safe_point()
            try:
                rows = manifest.rows_of(self._place, part)
                last = manifest.in_order(rows, last, part.name)
            except (StateIntegrityError, BackupNotFoundError) as error:
                # the other objects are looked at, too
                findings.append(str(error))
                continue
            objects, count, size = objects + 1, count + len(rows), size + part.size
        return BackupReport(id, objects, count, size, tuple(findings))

    @writes
    def restore(self, id: str, url: str | Path, *, untrusted: bool = False) -> RestoredBackup:
        """Make a new store of a backup at a URL where none is.

        Every object is checked before it is used. A backup that nobody signed who is trusted is
        taken with `untrusted=True` only. What was erased in the open store since is erased in the
        new one, too.
        """
        backup = manifest.read(self._place, id)
        if not check_flag(untrusted, "untrusted"):
            manifest.check_signer(backup, self._trusted)
        with announced(self._core, "restore.", id=id):
            return restore(self._core, self._place, backup, url)

    @writes
    def delete(self, id: str) -> PrunedBackups:
        """Delete a backup, and the objects that no other one needs.

        If another one cannot be read, all objects stay, and `notes` of what is returned say why.
        """
        manifest.path_of(id)
        if id not in manifest.ids(self._place):
            manifest.read(self._place, id)
        return self._delete([id])

    @writes
    def prune(self, keep: int, *, max_age: timedelta | None = None) -> PrunedBackups:
        """Delete all backups but the newest `keep`; with `max_age`, only those that are older.

        Backups of other stores at the same place are left alone; without a store, `keep` of each
        stay. So many stay of each signer, too, and of those that nobody signed: what somebody
        else puts there does not count as a newer backup of this store.

        An age is by the clock. One that jumps while the store is open is not followed; one that is
        wrong from the start is believed, and then `keep` alone is what stays.
        """
        if type(keep) is not int or keep < 1:
            raise InvalidInputError("keep is a number of backups, 1 or more")
        if max_age is not None and (not isinstance(max_age, timedelta) or max_age < timedelta(0)):
            raise InvalidInputError("max_age is a timedelta")
        found, now = self.list(), datetime.now(UTC)
        if self._core is not None:
            found = [one for one in found if one.lineage == self._core.lineage.hex()]
            now = datetime.fromtimestamp(self._core.clock.checked() / 1_000_000, UTC)
        seen: Counter[tuple[str, str]] = Counter()
        old: list[str] = []
        for one in found:
            # A manifest is read only if the signer that it names has signed it.
            seen[one.lineage, one.signer] += 1
            newest = seen[one.lineage, one.signer] <= keep
            if not newest and (max_age is None or now - one.created > max_age):
                old.append(one.id)
        with announced(self._core, "cleanup.", backups=len(old)):
            return self._delete(old)

    def _delete(self, ids: Sequence[str]) -> PrunedBackups:
        self._place.drop([manifest.path_of(id) for id in ids])
        for id in ids:
            announce(self._core, "backup.deleted", id=id)
        try:
            objects, size = collect(self._place)
        except (StateIntegrityError, NewerFormatError, BackupNotFoundError) as error:
            # The backups are gone all the same, and what is damaged is another one.
            return PrunedBackups(tuple(ids), 0, 0, (f"no object was deleted: {error}",))
        return PrunedBackups(tuple(ids), objects, size)
