"""Backups: whole stores in object storage, each of one moment, of which only what is new is sent.

- **Place** (`place`): a folder, or a bucket of S3: objects under names.
- **Part** (`manifest`): rows that lie beside each other, as one object under the hash of its bytes.
  Where one ends follows from the rows themselves, so that equal rows are equal parts.
- **Run**: one making of a backup. Objects lie under its id; a later backup names those of earlier
  runs again instead of sending them.
- **Manifest** (`manifest`): what a backup is, signed by the store's signer. It is written last,
  where there is none: what has no manifest is no backup.
- **Claim** and **doom** (`make`): what keeps one who makes a backup and one who deletes another
  from getting in each other's way, without a lock.
- **Making**, **reading**, **restoring**: what is done with them.

    backups/ID.json      the manifest
    objects/RUN/HASH     a part, or the list of a backup's parts
    pending/RUN          the runs whose objects a backup that is being made rests on
    doomed/RUN           somebody is about to delete objects of a run
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.backup.backup_restore": "RestoredBackup",
    "holdfast.backup.backups": "BackupReport Backups PrunedBackups",
    "holdfast.backup.manifest": "Backup",
}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES)
