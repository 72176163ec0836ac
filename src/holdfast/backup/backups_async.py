"""Backups of a store on the async face: the same, on a thread."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.backup import backups as blocking
from holdfast.backup.backups import BackupReport, PrunedBackups
from holdfast.backup.manifest import Backup
from holdfast.backup.restore import RestoredBackup
from holdfast.store.names.threads import read_away, to_the_end


class Backups:
    """The backups of a store at a place: `file:///FOLDER`, `dir:FOLDER` or `s3://BUCKET/PREFIX`.

    `store` is an open store, or None: then backups can be listed, verified, restored and deleted.
    Credentials of a bucket are taken from the environment; `endpoint` is for servers other than
    Amazon's. With `encryption=True` the backup of a plain store is refused. `trust` are public
    keys, in hexadecimal, of whom backups are taken that this store's own signer did not sign.
    """

    def __init__(
        self,
        store: Any,
        url: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        encryption: bool = False,
        trust: Sequence[str] | None = None,
    ) -> None:
        self._blocking = blocking.Backups(
            store, url, region=region, endpoint=endpoint, encryption=encryption, trust=trust
        )

    def __repr__(self) -> str:
        return repr(self._blocking)

    async def create(
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
        return await to_the_end(
            self._blocking.create, name, keys=keys, full=full, unsigned=unsigned
        )

    async def list(self) -> builtins.list[Backup]:
        """The backups at the place, newest first, but those whose manifest cannot be read."""
        return await read_away(self._blocking.list)

    async def damaged(self) -> tuple[str, ...]:
        """The ids of backups whose manifest cannot be read; `verify` says why."""
        return await read_away(self._blocking.damaged)

    async def verify(self, id: str) -> BackupReport:
        """Read all of a backup: every object is there, and is what the signed manifest says."""
        return await read_away(self._blocking.verify, id)

    async def restore(self, id: str, url: str, *, untrusted: bool = False) -> RestoredBackup:
        """Make a new store of a backup at a URL where none is.

        Every object is checked before it is used. A backup that nobody signed who is trusted is
        taken with `untrusted=True` only. What was erased in the open store since is erased in the
        new one, too.
        """
        return await to_the_end(self._blocking.restore, id, url, untrusted=untrusted)

    async def delete(self, id: str) -> PrunedBackups:
        """Delete a backup, and the objects that no other one needs.

        If another one cannot be read, all objects stay, and `notes` of what is returned say why.
        """
        return await to_the_end(self._blocking.delete, id)

    async def prune(self, keep: int, *, max_age: timedelta | None = None) -> PrunedBackups:
        """Delete all backups but the newest `keep`; with `max_age`, only those that are older.

        Backups of other stores at the same place are left alone; without a store, `keep` of each
        stay. So many stay of each signer, too, and of those that nobody signed: what somebody
        else puts there does not count as a newer backup of this store.
        """
        return await to_the_end(self._blocking.prune, keep, max_age=max_age)
