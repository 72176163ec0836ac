"""What stands between a SQLite file and the ways in which it loses data.

- **place**: the folder exists, the file system keeps POSIX locks;
- **header**: the file is ours, found out before anything could change it;
- **lock**: `PATH.lock`, held shared by every open handle, exclusively while one handle, alone,
  creates the file or makes a leftover write-ahead log safe;
- **log**: SQLite drops all that stands behind a damaged frame of a leftover log and says nothing:
  it is looked at before, and kept and mended if commits were lost that had returned;
- **identity**: device and inode of the files, compared before a commit is acknowledged, and now
  and then before others' commits are looked for.

The database and its `-wal` are opened here without SQLite only while nobody has the store
open: closing any descriptor of a file drops all POSIX locks that the process has on it.
"""

from __future__ import annotations

import errno
import filecmp
import os
import shlex
import struct
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, BinaryIO

import apsw

from holdfast.errors import (
    DamagedStorageError,
    DiskFullError,
    ForeignSchemaError,
    HoldfastError,
    InvalidInputError,
    NewerFormatError,
    NotAStoreError,
    StorageReadOnlyError,
    StoreClosedError,
    StoreLockedError,
    StoreNotFoundError,
    Unavailable,
    UnsafePlaceError,
)

if sys.platform != "win32":
    import fcntl

PAGE = 8192
APPLICATION_ID = 0x486F6C64
FORMAT = 1
UNFINISHED = 0x6D656E64
"""In place of the format's number: made anew, and copies have yet to give their rows."""
BUSY_SECONDS = 10.0
"""How long a call waits for another program before it gives up."""
RETRY_SECONDS = 0.0003
"""Between two tries for a lock. With SQLite's own pauses one of two processes starved: 1 commit
against 3,362; so 717 and 638 in a second."""
MOUNTS = "/proc/self/mountinfo"
_LOCKS = "/proc/locks"
_SHARED_MOUNTS = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "vmhgfs"}
    | {"drvfs", "prl_fs", "ceph", "afs", "lustre", "glusterfs", "gfs2", "ocfs2", "gpfs"}
    | {"beegfs", "davfs", "coda", "ncpfs", "fuse", "fuseblk"}
)
MAGIC = b"SQLite format 3\x00"
_HEADER = 100
_BESIDE = 32
_SQLITE_LOCKS_FROM = 0x40000000
_COPY = 1 << 20
_BOOT = "/proc/sys/kernel/random/boot_id"
_NOTE = 41
_LOG_HEAD, _FRAME, _LOG_VERSION = 32, 24 + PAGE, 3007000

Identity = tuple[int, int]
OPEN: Counter[Identity] = Counter()
"""Databases that this process has open, by device and inode."""
ALONE: set[str] = set()
"""Paths of those that this process mends: it holds their lock, and nobody else opens them."""


def identity(path: str) -> Identity | None:
    """Device and inode of what is at the path now, None if nothing is."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


Pair = tuple[Identity | None, Identity | None]
"""A database's file and its log."""


def pair(path: str) -> Pair:
    """The database at the path, and its log."""
    return identity(path), identity(path + "-wal")


def replaced(path: str, mine: Pair) -> bool:
    """Whether other files are there now, or none. There may have been no log to read."""
    here = pair(path)
    return here[0] != mine[0] or (mine[1] is not None and here[1] != mine[1])


def remember(opened: Identity | None) -> None:
    """Note that this process has the file open once more."""
    if opened:
        OPEN[opened] += 1


def forget(closed: Identity | None) -> None:
    """Note that one of this process's handles on the file is gone."""
    if closed and OPEN[closed] > 1:
        OPEN[closed] -= 1
    elif closed:
        OPEN.pop(closed, None)


def remove(path: str) -> None:
    """Take away a database that was never finished, and what SQLite put beside it."""
    for end in ("", "-journal", "-wal", "-shm"):
        with suppress(OSError):
            os.remove(path + end)


def file_size(path: str) -> int:
    """Bytes of the file, 0 if it is not there."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def check_file(path: str, *, create: bool) -> None:
    """Refuse a place where no store is or, with `create`, could be."""
    check_place(path)
    if file_size(path):
        check_header(path)
    elif not create:
        if os.path.exists(path):
            raise NotAStoreError(f"{path!r} is empty; open it with create=True")
        raise StoreNotFoundError(
            f"there is no store at {path!r}; check the path or open with create=True"
        )


def check_place(path: str) -> None:
    """Refuse a place where no database can be kept safely."""
    folder = os.path.dirname(path) or "."
    if "\x00" in path:
        raise InvalidInputError("the path of a store cannot hold a zero byte")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"the path {path!r} is not UTF-8, which SQLite needs; give the file and its folders "
            "other names"
        ) from None
    if not os.path.isdir(folder):
        raise StoreNotFoundError(f"the folder {folder!r} does not exist; create it first")
    if os.path.isdir(path):
        raise NotAStoreError(f"{path!r} is a folder; name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise NotAStoreError(f"{path!r} is a pipe, a socket or a device; name a file")
    if os.path.islink(path):  # the real path of one that leads somewhere is no link
        raise NotAStoreError(f"{path!r} is a link that leads to itself; name another file")
    try:
        os.stat(path + "-" * _BESIDE)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InvalidInputError(
                f"the name {os.path.basename(path)[:40]!r}… is too long: files with names up to "
                f"{_BESIDE} characters longer lie beside it; give a shorter one"
            ) from None
    kind = mount_type(folder)
    if kind in _SHARED_MOUNTS or kind.startswith("fuse."):
        raise UnsafePlaceError(
            f"{folder!r} is on a {kind} mount, where locks and syncs cannot be trusted; "
            "put the store on a local disk"
        )


def mount_type(folder: str) -> str:
    """The name of the file system that holds the folder; "" where it cannot be told."""
    if not sys.platform.startswith("linux"):
        return ""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open(MOUNTS, encoding="utf-8", errors="replace") as table:
        for line in table:
            fields, _, rest = line.partition(" - ")
            if fields.split(" ", 3)[2] == wanted:
                return rest.split(" ", 1)[0]
    return ""


def beginning(path: str, size: int) -> bytes:
    """The first bytes of a file."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except PermissionError:
        raise StorageReadOnlyError(f"{path!r} may not be read; check its permissions") from None
    except OSError as error:
        raise Unavailable(f"{path!r} cannot be read: {error.strerror}") from None


def check_header(path: str) -> None:
    """Refuse a file that is no store of this format, without changing anything.

    Skipped where a handle of this process has the file open: it was checked then, and
    closing our descriptor would drop that handle's locks.
    """
    if identity(path) in OPEN:
        return
    head = beginning(path, _HEADER)
    if len(head) < _HEADER or not head.startswith(MAGIC):
        if half_made(path):
            return  # SQLite rolls it back; the schema is checked afterwards
        raise damaged(path) if was_store(path) else not_a_store(path)
    format_number, application = struct.unpack(">60xI4xI28x", head)
    check_format(path, application, format_number)
    if int.from_bytes(head[16:18], "big") != PAGE:  # SQLite would take the log for another's
        raise damaged(path)


def pages_behind(path: str) -> int:
    """Pages that a file has behind those that its header counts, which SQLite neither reads nor
    keeps: the file was copied while others wrote. 0 while it has a log, which may count others."""
    if file_size(path + "-wal") >= _LOG_HEAD + _FRAME:
        return 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size  # before the header: it grows after that
        head = file.read(_HEADER)
    said = int.from_bytes(head[28:32], "big") if head[24:28] == head[92:96] else size // PAGE
    return max(0, size // PAGE - said)


def not_a_store(path: str) -> NotAStoreError:
    """The error for a file that is no database."""
    return NotAStoreError(f"{path!r} is not a store; name another file")


def was_store(path: str) -> bool:
    """Whether a store was at the path before: its lock, its signer or its ring are still there."""
    return any(os.path.exists(path + end) for end in (".lock", ".sign", ".keys"))


def frozen(path: str) -> bool:
    """Whether the folder is on a read-only file system and all is in the database itself."""
    try:
        read_only = os.statvfs(os.path.dirname(path) or ".").f_flag & os.ST_RDONLY
    except (OSError, AttributeError):
        return False
    return bool(read_only) and not file_size(path + "-wal")


def half_made(path: str) -> bool:
    """Whether a creation was cut short: the tables are made with a journal, later changes
    with a log."""
    return os.path.exists(path + "-journal")


def check_format(path: str, application: int, format_number: int) -> None:
    """Refuse another program's database, a newer format, and what is not mended yet."""
    if application != APPLICATION_ID:
        raise NotAStoreError(f"{path!r} is a database of another program; name another file")
    if format_number == UNFINISHED and path not in ALONE:
        raise damaged(path, "lacks rows, for its repair goes on or was cut short (begin it again)")
    if FORMAT < format_number < 100:  # a larger number is damage
        raise NewerFormatError(
            f"{path!r} has format {format_number}, this version knows up to {FORMAT}; "
            "update holdfast"
        )
    if format_number not in (FORMAT, UNFINISHED):
        raise damaged(path)


def foreign(path: str, name: str) -> ForeignSchemaError:
    """The error for a schema that is not exactly ours."""
    return ForeignSchemaError(
        f"{path!r} holds {name}, which Holdfast did not make or which it misses; "
        "nothing was touched: remove what was added; if nothing was, the file is damaged: run "
        f"`holdfast --store {shlex.quote(path)} repair`, or restore it from a backup"
    )


class StoreLock:
    """`PATH.lock`: shared while a handle is open, exclusive for whoever prepares the file.

    The kernel frees it with the process. The file stays with the store. Whoever could make none
    takes it away, alone; one who waited for it meanwhile has locked a file that is no more there,
    and begins anew.
    """

    def __init__(self, path: str, *, optional: bool) -> None:
        self._fd = -1
        self._path = path + ".lock"
        self._optional = optional
        LOCKS.add(self)
        if sys.platform != "win32" and path not in ALONE:  # who mends it has its lock
            self._open()  # else SQLite's own locks remain, and a leftover log is left to it

    def _open(self) -> None:
        try:
            flags = os.O_RDONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            self._fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            if self._optional:
                return
            raise StorageReadOnlyError(
                f"{self._path!r} cannot be created ({error.strerror}); "
                "make the folder writable, or open the store with read_only=True"
            ) from None

    def share(self, ready: Callable[[], bool], prepare: Callable[[bool], None]) -> None:
        """Hold the lock shared. If nobody else does, `prepare(True)` runs alone before;
        where there is no lock, `prepare(False)`.

        Our own connections are opened after this returns: turning the exclusive lock into a
        shared one has a gap, in which another process may prepare once more.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            if self._fd < 0:
                prepare(False)
            elif self._try(exclusive=True):
                prepare(True)
            if self._try(exclusive=False) and ready():
                return
            if time.monotonic() > deadline:
                raise StoreLockedError(
                    "another program is preparing the store; wait for it to end, or end it"
                )
            time.sleep(RETRY_SECONDS)

    def note(self, *, full: bool, alone: bool) -> None:
        """Say in the file, before the first commit, in which start of the machine the log was
        begun, and whether each commit is synced before the next one."""
        there = self._noted()
        told = f"{this_boot() if alone else there[:36]:36} {'full' if full else 'some'}"
        if self._fd >= 0 and there != told:
            with suppress(OSError), open(self._path, "r+b", buffering=0) as file:
                file.write(told.encode())
                os.fsync(file.fileno())

    def _noted(self) -> str:
        return os.pread(self._fd, _NOTE, 0).decode(errors="replace") if self._fd >= 0 else ""

    def log_is_whole(self) -> bool:
        """Whether all commits but the last must be in the log: they were synced, or the machine,
        and with it what was not yet on the disk, has not stopped since."""
        boot, _, level = self._noted().partition(" ")
        return level.endswith("full") or (bool(boot) and boot == this_boot())

    def remove(self) -> None:
        """Take the file away, where no store came to be; not if others hold it."""
        if self._fd >= 0 and self._try(exclusive=True):
            with suppress(OSError):
                os.remove(self._path)

    def release(self) -> None:
        """Let go. In a forked child this leaves the parent's lock alone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def keep(self) -> bool:
        """Hold it exclusively from now on; False if others have it."""
        return self._try(exclusive=True)

    def _try(self, *, exclusive: bool) -> bool:
        if sys.platform != "win32" and self._fd >= 0:
            kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            found = os.fstat(self._fd)
            if identity(self._path) != (found.st_dev, found.st_ino):
                self.release()
                self._open()
                return False
        return True


LOCKS: weakref.WeakSet[StoreLock] = weakref.WeakSet()
"""Those of this process: a child lets go of what it inherits."""


def in_use(path: str) -> bool:
    """Whether any program has the database open in SQLite.

    Other programs than ours do not know our lock file; theirs is seen on Linux only.
    """
    here = identity(path)
    if here in OPEN:
        return True
    try:
        with open(_LOCKS, encoding="ascii", errors="replace") as table:
            rows = [line.split() for line in table]
    except OSError:
        return False
    for row in rows:
        inode, start = row[-3].rpartition(":")[2], row[-2]
        if here and inode == str(here[1]) and int(start) >= _SQLITE_LOCKS_FROM:
            return True
    return False


def rewrite_wal(path: str) -> None:
    """Write a leftover log's bytes again in place, and sync them.

    After a failed sync the kernel takes pages for clean that never reached the disk, and a
    later sync reports success without writing them. Writing the bytes again makes them dirty
    again, so that what recovery builds on is on the disk before anything is acknowledged.
    Only for a caller who holds the lock exclusively.
    """
    try:
        with open(path + "-wal", "r+b", buffering=0) as log:
            at = 0
            while chunk := os.pread(log.fileno(), _COPY, at):
                at += os.pwrite(log.fileno(), chunk, at)
            os.fsync(log.fileno())
        sync_folder(path)
    except OSError as error:
        raise StorageReadOnlyError(
            f"the log {path + '-wal'!r} left by a crash cannot be written again "
            f"({error.strerror}); nothing can be acknowledged before: check the disk, or open "
            "the store with read_only=True"
        ) from None


@cache
def this_boot() -> str:
    """What names this start of the machine; "" where it cannot be told."""
    with suppress(OSError), open(_BOOT, encoding="ascii") as file:
        return file.read(36)
    return ""


def _lost_commits(log: str) -> tuple[int, int, list[bool]]:
    """Commits of a leftover log that had returned, and that SQLite will not read; how many frames
    it has up to the last of these; and of each frame, whether it is one of the log.

    A checksum goes on from that of the frame before, so that frames behind a damaged one are seen
    to belong together. One commit among them tells nothing: a writer that was killed, or whose
    sync failed, leaves one, also behind shorter commits of others. Of two, the first had returned
    when the second was begun. Frames of an earlier round of the log have other salts.
    """
    run = lost = end = 0
    ours: list[bool] = []
    with suppress(OSError), open(log, "rb") as file:  # SQLite meets that as well, and says so
        salts, order, before, whole = _log_head(file)
        while len(frame := file.read(_FRAME)) == _FRAME:
            commit, mine = frame[4:8] != bytes(4), frame[8:16] == salts
            sum_fits = _checksum(frame[:8] + frame[24:], before, order) == frame[16:24]
            ours.append(mine or sum_fits)
            before, whole = frame[16:24], whole and mine and sum_fits
            run = 0 if whole else (run if mine and sum_fits else 0) + (mine and commit)
            lost = max(lost, run)
            end = len(ours) if run > 1 and commit else end
    return (lost, end, ours) if lost > 1 else (0, 0, [])


def _log_head(file: BinaryIO) -> tuple[bytes, str, bytes, bool]:
    """Of a log its salts, the order of its bytes, the checksum that goes on in its first frame, and
    whether the header that says so is whole; else its first two frames that belong together say it.
    Its frames are next."""
    head = file.read(_LOG_HEAD).ljust(_LOG_HEAD)
    order, salts, last = ">" if head[3] == 0x83 else "<", head[16:24], b""
    whole = head[:3] == b"\x37\x7f\x06" and _checksum(head[:24], bytes(8), order) == head[24:]
    while not whole and len(frame := file.read(_FRAME)) == _FRAME:
        for one in "<>" if last[8:16] == frame[8:16] else ():
            if _checksum(frame[:8] + frame[24:], last[16:24], one) == frame[16:24]:
                file.seek(_LOG_HEAD)
                return frame[8:16], one, head[24:], False
        last = frame
    file.seek(_LOG_HEAD)
    return salts, order, head[24:], whole


def mended_log(log: str) -> Iterator[bytes]:
    """What a leftover log that has lost commits is made to, so that SQLite reads them: its header,
    and each frame with its page as it is, for rows that are damaged there show it; or b"" for a
    frame of which nobody can tell where it belongs, or whether its commit had returned."""
    _, end, ours = _lost_commits(log)
    if not end:
        return
    with open(log, "rb") as file:
        salts, order, *_ = _log_head(file)
        magic = 0x377F0682 + (order == ">")
        head = struct.pack(">IIII", magic, _LOG_VERSION, PAGE, 0) + salts
        yield head + (before := _checksum(head, bytes(8), order))
        file.seek(_LOG_HEAD + _FRAME * (end - 1) + 4)
        pages = int.from_bytes(file.read(4), "big")
        file.seek(_LOG_HEAD)
        for number, is_ours in enumerate(ours):
            frame = file.read(_FRAME)
            if number >= end and not is_ours:  # of an earlier round of the log
                return
            if number < end and is_ours and 0 < int.from_bytes(frame[:4], "big") <= pages:
                before = _checksum(frame[:8] + frame[24:], before, order)
                yield frame[:8] + salts + before + frame[24:]
            else:
                yield b""


def _checksum(data: bytes, before: bytes, order: str) -> bytes:
    """SQLite's, which goes on from the one before."""
    one, other = struct.unpack(">II", before)
    for first, second in struct.iter_unpack(order + "II", data):
        one = one + first + other & 0xFFFFFFFF
        other = other + second + one & 0xFFFFFFFF
    return struct.pack(">II", one, other)


def give(new: str, path: str) -> None:
    """Let a new file be whose the one at a path is, and as open to others."""
    was = os.stat(path)
    os.chmod(new, was.st_mode & 0o777)
    with suppress(OSError):  # only root can give a file to another
        os.chown(new, was.st_uid, was.st_gid)


def private(path: str, flags: int) -> int:
    """For `open`: what it makes is for nobody else."""
    return os.open(path, flags, 0o600)


def check_log(path: str, lock: StoreLock) -> None:
    """Refuse to go on without commits of a leftover log, as SQLite does, until a copy of the log is
    kept beside it: then it is mended. Only for a caller who holds the lock exclusively."""
    log, kept, new = (path + end for end in ("-wal", "-wal.damaged", "-wal.new"))
    lost = _lost_commits(log)[0] if lock.log_is_whole() else 0
    if not lost:
        return
    if not (os.path.exists(kept) and filecmp.cmp(log, kept, shallow=False)):
        raise DamagedStorageError(
            f"the log {log!r} that a process left is damaged, and SQLite would drop {lost} commits "
            "in it, or more; nothing is touched: copy the file and its log to another disk, then "
            f"run `holdfast --store {shlex.quote(path)} repair --yes`, which keeps the log and "
            "takes all of it that is whole, or restore the store from a backup",
            place=log,
        )
    try:
        with open(new, "wb", opener=private) as file:
            file.writelines(mended_log(log))
            os.fsync(file.fileno())
        give(new, log)
        os.replace(new, log)  # as a whole: the one that was kept is compared with it
        sync_folder(path)
    except OSError as error:
        raise StorageReadOnlyError(
            f"the log {log!r} cannot be mended ({error.strerror}): check who may write it"
        ) from None


def sync_folder(path: str) -> None:
    """Make the names in the file's folder durable. SQLite does too, but hides a failure."""
    if sys.platform == "win32":
        return
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def translate(error: apsw.Error, path: str) -> HoldfastError:
    """Our error for one of SQLite, when nothing was applied. No SQL, no parameters."""
    if isinstance(error, apsw.ConnectionClosedError):
        return StoreClosedError("this storage is closed; open it again")
    if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)):
        return StoreLockedError(
            f"another program holds {path!r} for longer than {BUSY_SECONDS:g} s; "
            "close it there (a database browser, a backup?) and try again"
        )
    # Without room for its `-shm` file, SQLite cannot even read.
    no_room = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    if no_room or isinstance(error, apsw.FullError):
        return DiskFullError(f"no room is left for {path!r}; free some space and try again")
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError)):
        return StorageReadOnlyError(
            f"{path!r} or its folder cannot be opened or written: check owner and permissions, or "
            "open the store with read_only=True"
        )
    if is_damage(error) or isinstance(error, (apsw.FormatError, apsw.ConstraintError)):
        return damaged(path)
    if isinstance(error, (apsw.SQLError, apsw.SchemaChangeError)):
        return foreign(path, "a changed schema")
    kind = type(error).__name__
    return Unavailable(f"SQLite could not serve {path!r} ({kind}); check the disk and try again")


def is_damage(error: apsw.Error) -> bool:
    """Whether SQLite says that the file is damaged, also where it takes that for a failed read: a
    page that ends before its time, because the file was cut off; or a length that is none."""
    cut = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)
    kinds = (apsw.CorruptError, apsw.NotADBError, apsw.TooBigError)  # its header was read before
    return isinstance(error, kinds) or getattr(error, "extendedresult", 0) in cut


def damaged(path: str, how: str = "is damaged") -> DamagedStorageError:
    """The error for what SQLite cannot make sense of, or would give in a senseless order."""
    return DamagedStorageError(
        f"the file {path!r} {how}, and nothing is written to it until it is repaired: close "
        f"the store everywhere, then run `holdfast --store {shlex.quote(path)} repair`, or restore "
        "it from a backup",
        place=path,
    )


Rows = list[tuple[bytes, bytes]]


def sound(found: list[Any], low: bytes, high: bytes, path: str) -> Rows:
    """The rows that SQLite gives for a range, up or down, if a sound index can give them: with a
    key of elsewhere among them, a reader would go round in circles or take it for its own. A
    value that is NULL is read as no bytes."""
    try:
        keys = [key for key, _ in found]
        up = sorted(keys)
        if up and not (low <= up[0] and up[-1] < high and (keys == up or keys[::-1] == up)):
            raise damaged(path)
    except TypeError:  # NULL, which does not compare
        raise damaged(path) from None
    for _, value in found:
        if value is None:
            return [(key, value or b"") for key, value in found]
    return found
