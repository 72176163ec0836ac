# Written by scripts/stubs.py from the blocking classes; not to be edited.

from holdfast.backup.backup_restore import RestoredBackup as RestoredBackup
from holdfast.backup.backups import BackupReport as BackupReport
from holdfast.backup.backups import Backups as Backups
from holdfast.backup.backups import PrunedBackups as PrunedBackups
from holdfast.backup.manifest import Backup as Backup
