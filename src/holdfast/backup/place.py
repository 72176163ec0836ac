"""Where backups lie: objects under names, in a folder, or in a bucket of S3 through obstore.

An object is written whole or not at all, and never changed. Names are ours: numbers and hashes.
Errors of the library may show pieces of requests, so that none of their text is ever passed on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from holdfast.errors import (
    BackupNotFoundError,
    DamagedBackupError,
    DiskFullError,
    InvalidInputError,
    MissingExtraError,
    Unavailable,
)
from holdfast.storage.sqlite.guard import sync_folder
from holdfast.store.names.arguments import check_filters

FORMS = "file:///FOLDER, dir:FOLDER or s3://BUCKET/PREFIX"
_RETRIES = 5
_PATIENCE = timedelta(seconds=60)
_MANY = 1000
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Found(NamedTuple):
    """An object that is there."""

    name: str
    size: int
    written: datetime
    """By the clock of the place."""


class Place:
    """A folder or a bucket; shows its address and no credentials. Safe for threads."""

    def __init__(
        self, url: str | Path, *, region: str | None = None, endpoint: str | None = None
    ) -> None:
        url = f"dir:{url}" if isinstance(url, Path) else url
        if not isinstance(url, str):
            raise InvalidInputError(f"a place for backups is {FORMS}")
        check_filters(region=region, endpoint=endpoint)
        self._folder: Path | None = None
        self._store: _Folder | _Bucket
        if url.startswith("s3://"):
            self._store, self.address = _bucket(url, region, endpoint)
        else:
            if region is not None or endpoint is not None:
                raise InvalidInputError("region and endpoint belong to a bucket: s3://BUCKET")
            self._folder = _folder(url)
            self.address = f"file://{self._folder}"
            self._store = _Folder(self._folder)

    def __repr__(self) -> str:
        return f"Place({self.address!r})"

    def make(self) -> None:
        """Make the folder, if it is not there; a bucket has to be."""
        if self._folder is not None:
            with self._talking(""), suppress(FileExistsError):  # a file: nothing is found there
                self._folder.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        """Write an object, durably; one that is there under the name is replaced by its equal."""
        with self._talking(name):
            self._store.put(name, data, "overwrite")

    def create(self, name: str, data: bytes) -> bool:
        """Write an object where there is none; False if another is there."""
        try:
            with self._talking(name):
                self._store.put(name, data, "create")
        except _TakenError:
            # An answer may have been lost, and the request been sent again.
            return self.get(name, len(data)) == data
        return True

    def get(self, name: str, most: int) -> bytes:
        """An object; one that is longer than `most` bytes is damaged, and not read."""
        with self._talking(name):
            size, read = self._store.get(name)
            if size > most:
                raise DamagedBackupError(f"{name} at {self.address} is longer than it was written")
            return bytes(read())

    def has(self, name: str) -> bool:
        """Whether an object is there."""
        try:
            with self._talking(name):
                self._store.get(name)
        except BackupNotFoundError:
            return False
        return True

    def objects(self, prefix: str) -> Iterator[Found]:
        """All objects below a prefix, in any order."""
        with self._talking(prefix):
            yield from self._store.objects(prefix)

    def folders(self, prefix: str) -> list[str]:
        """The next part of all names below a prefix that have another one behind it."""
        with self._talking(prefix):
            found = self._store.folders(prefix)
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def drop(self, names: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error."""
        for start in range(0, len(names), _MANY):
            with suppress(BackupNotFoundError), self._talking(names[start]):
                self._store.delete(names[start : start + _MANY])

    @contextmanager
    def _talking(self, name: str) -> Iterator[None]:
        """Errors of the library in our words."""
        try:
            yield
        except (FileNotFoundError, *self._store.missing):
            raise BackupNotFoundError(
                f"{name or 'the place'} is not at {self.address}"
                + ("" if self._folder else ", or there is no such bucket")
            ) from None
        except (FileExistsError, *self._store.taken):
            raise _TakenError from None
        except (PermissionError, *self._store.refused):
            raise Unavailable(
                f"{self.address} refuses access: check the credentials in the environment "
                "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or the rights of the folder"
            ) from None
        except (OSError, *self._store.failed) as error:
            if getattr(error, "errno", None) == 28 or "No space left" in str(error):
                raise DiskFullError(f"no room is left at {self.address}: free some") from None
            raise Unavailable(
                f"{self.address} cannot be used ({type(error).__name__}); check address, region, "
                "credentials and network, and try again: what was uploaded is not uploaded again"
            ) from None


class _TakenError(Exception):
    """There is an object of that name."""


class _Folder:
    """Objects as files; what is written is synced, and so are the names of it."""

    missing = taken = refused = failed = ()

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, data: bytes, mode: str) -> None:
        """Write a file whole: beside, and then under its name."""
        path, new = self._root / name, self._root / f".new-{os.urandom(8).hex()}"
        move = os.link if mode == "create" else os.replace
        try:
            with open(new, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                move(new, path)
            except FileNotFoundError:  # of the folder, which goes with the last file in it
                path.parent.mkdir(parents=True, exist_ok=True)
                move(new, path)
        finally:
            new.unlink(missing_ok=True)
        self.sync(name)

    def sync(self, name: str) -> None:
        """Let the name of a file last, and those of its folders."""
        path = self._root / name
        for one in (path, *path.parents[: name.count("/")]):
            sync_folder(str(one))

    def get(self, name: str) -> tuple[int, Callable[[], bytes]]:
        path = self._root / name
        return path.stat().st_size, path.read_bytes

    def _below(self, prefix: str) -> Path:
        if not self._root.is_dir():  # it is not empty: its name may be wrong
            why = f"there is no folder {self._root}; check the name, or make a backup there"
            raise BackupNotFoundError(why)
        return self._root / prefix

    def objects(self, prefix: str) -> Iterator[Found]:
        for folder, _, files in os.walk(self._below(prefix)):
            for path in (Path(folder, file) for file in files):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    about = path.stat()
                    written = datetime.fromtimestamp(about.st_mtime, UTC)
                    yield Found(path.relative_to(self._root).as_posix(), about.st_size, written)

    def folders(self, prefix: str) -> list[str]:
        return [one.name for one in self._below(prefix).glob("*/")]

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)
            if name.count("/") > 1:  # the folder of a run, which is written to once
                with suppress(OSError):  # another file is in it
                    (self._root / name).parent.rmdir()


class _Bucket:
    """Objects of a bucket, which answers when one is safe."""

    def __init__(self, store: Any) -> None:
        import obstore
        from obstore import exceptions

        self._store, self._obstore = store, obstore
        self.missing: Any = (exceptions.NotFoundError,)
        self.taken: Any = (exceptions.AlreadyExistsError,)
        self.refused: Any = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        self.failed: Any = (exceptions.BaseError,)

    def put(self, name: str, data: bytes, mode: Any) -> None:
        self._obstore.put(self._store, name, data, mode=mode, use_multipart=False)

    def get(self, name: str) -> tuple[int, Callable[[], Any]]:
        found = self._obstore.get(self._store, name)
        return found.meta["size"], found.bytes

    def objects(self, prefix: str) -> Iterator[Found]:
        for page in self._obstore.list(self._store, prefix, chunk_size=_MANY):
            for one in page:
                yield Found(one["path"], one["size"], one["last_modified"])

    def folders(self, prefix: str) -> list[str]:
        return list(self._obstore.list_with_delimiter(self._store, prefix)["common_prefixes"])

    def delete(self, names: Sequence[str]) -> None:
        self._obstore.delete(self._store, names)


def _folder(url: str) -> Path:
    if url.startswith("dir:") and url != "dir:":
        return Path(os.path.realpath(os.path.expanduser(url[4:])))
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise InvalidInputError(f"a place for backups is {FORMS}")
    return Path(os.path.realpath(unquote(parts.path)))


def _bucket(url: str, region: str | None, endpoint: str | None) -> tuple[_Bucket, str]:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError as error:
        text = "backups in a bucket need obstore: pip install 'holdfast[backup]'"
        raise MissingExtraError(text) from error
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if "@" in url or "?" in url or not _BUCKET.fullmatch(bucket):
        raise InvalidInputError(
            "a bucket is s3://BUCKET/PREFIX: credentials are in the environment, and region and "
            "endpoint are given beside it"
        )
    prefix = prefix.strip("/")
    more: dict[str, Any] = {"region": region} if region is not None else {}
    if endpoint is not None:
        if not re.fullmatch(r"https?://[^/@\s]+(/[^@\s]*)?", endpoint):
            raise InvalidInputError("an endpoint is http://HOST:PORT or https://HOST:PORT")
        more["endpoint"] = endpoint
        # One without encryption on the way is used only where it is named as such.
        more["client_options"] = {"allow_http": endpoint.startswith("http://")}
    try:
        store = S3Store(
            bucket,
            prefix=prefix or None,
            retry_config={"max_retries": _RETRIES, "retry_timeout": _PATIENCE},
            **more,
        )
    except (BaseError, ValueError):
        raise InvalidInputError(
            "the bucket cannot be used as it is named, or as the environment (AWS_...) says"
        ) from None
    return _Bucket(store), f"s3://{bucket}/{prefix}".rstrip("/")
