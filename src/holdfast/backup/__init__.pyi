# Written by scripts/stubs.py from the blocking classes; not to be edited.

import builtins
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from holdfast.backup.backup_restore import RestoredBackup as RestoredBackup
from holdfast.backup.backups import BackupReport as BackupReport
from holdfast.backup.backups import PrunedBackups as PrunedBackups
from holdfast.backup.manifest import Backup as Backup
from holdfast.store.store_async import Store

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
    ) -> None: ...
    def __repr__(self) -> str: ...
    async def create(
        self, name: str = "", *, keys: bool = False, full: bool = False, unsigned: bool = False
    ) -> Backup:
        """Make a backup of the store as it is at one moment; agents go on working meanwhile.

        Only what the place does not have is sent, unless `full=True`. Rows of an encrypted store
        are sent as they are: sealed. Its ring is not in the backup but with `keys=True`, and then
        as it lies in its file: wrapped by the master key. Where the signer is not at hand, a
        backup is made with `unsigned=True` only.
        """
    async def list(self) -> builtins.list[Backup]:
        """The backups at the place, newest first, but those whose manifest cannot be read."""
    async def damaged(self) -> tuple[str, ...]:
        """The ids of backups whose manifest cannot be read; `verify` says why."""
    async def verify(self, id: str) -> BackupReport:
        """Read all of a backup: every object is there, and is what the signed manifest says."""
    async def restore(self, id: str, url: str | Path, *, untrusted: bool = False) -> RestoredBackup:
        """Make a new store of a backup at a URL where none is.

        Every object is checked before it is used. A backup that nobody signed who is trusted is
        taken with `untrusted=True` only. What was erased in the open store since is erased in the
        new one, too.
        """
    async def delete(self, id: str) -> PrunedBackups:
        """Delete a backup, and the objects that no other one needs.

        If another one cannot be read, all objects stay, and `notes` of what is returned say why.
        """
    async def prune(self, keep: int, *, max_age: timedelta | None = None) -> PrunedBackups:
        """Delete all backups but the newest `keep`; with `max_age`, only those that are older.

        Backups of other stores at the same place are left alone; without a store, `keep` of each
        stay. So many stay of each signer, too, and of those that nobody signed: what somebody
        else puts there does not count as a newer backup of this store.

        An age is by the clock. One that jumps while the store is open is not followed; one that is
        wrong from the start is believed, and then `keep` alone is what stays.
        """
