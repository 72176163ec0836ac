"""Where backups lie: objects under names, in a folder or in a bucket of S3, through obstore.

An object is written whole or not at all, and never changed. Names are ours: numbers and hashes.
Errors of the library may show pieces of requests, so that none of their text is ever passed on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
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
from holdfast.store.names.arguments import check_filters

try:
    import obstore
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        NotFoundError,
        PermissionDeniedError,
        UnauthenticatedError,
    )
    from obstore.store import LocalStore, S3Store
except ImportError as error:
    raise MissingExtraError("backups need obstore: pip install 'holdfast[backup]'") from error

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
        self._store: LocalStore | S3Store
        if url.startswith("s3://"):
            self._store, self.address = _bucket(url, region, endpoint)
        else:
            if region is not None or endpoint is not None:
                raise InvalidInputError("region and endpoint belong to a bucket: s3://BUCKET")
            self._folder = _folder(url)
            self.address = f"file://{self._folder}"
            with self._talking(""):
                self._store = LocalStore(self._folder, mkdir=True, automatic_cleanup=True)

    def __repr__(self) -> str:
        return f"Place({self.address!r})"

    def put(self, name: str, data: bytes) -> None:
        """Write an object, durably; one that is there under the name is replaced by its equal."""
        with self._talking(name):
            obstore.put(self._store, name, data, mode="overwrite", use_multipart=False)
        self._sync(name)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object where there is none; False if another is there."""
        try:
            with self._talking(name):
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except _TakenError:
            # An answer may have been lost, and the request been sent again.
            return self.get(name, len(data)) == data
        self._sync(name)
        return True

    def get(self, name: str, most: int) -> bytes:
        """An object; one that is longer than `most` bytes is damaged, and not read."""
        with self._talking(name):
            found = obstore.get(self._store, name)
            if found.meta["size"] > most:
                raise DamagedBackupError(f"{name} at {self.address} is longer than it was written")
            return bytes(found.bytes())

    def has(self, name: str) -> bool:
        """Whether an object is there."""
        try:
            with self._talking(name):
                obstore.head(self._store, name)
        except BackupNotFoundError:
            return False
        return True

    def objects(self, prefix: str) -> Iterator[Found]:
        """All objects below a prefix, in any order."""
        with self._talking(prefix):
            for page in obstore.list(self._store, prefix, chunk_size=_MANY):
                for one in page:
                    yield Found(one["path"], one["size"], one["last_modified"])

    def folders(self, prefix: str) -> list[str]:
        """The next part of all names below a prefix that have another one behind it."""
        with self._talking(prefix):
            found = obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def drop(self, names: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error."""
        many = _MANY if self._folder is None else 1
        for start in range(0, len(names), many):
            with suppress(BackupNotFoundError), self._talking(names[start]):
                obstore.delete(self._store, names[start : start + many])

    @contextmanager
    def _talking(self, name: str) -> Iterator[None]:
        """Errors of the library in our words."""
        try:
            yield
        except (NotFoundError, FileNotFoundError):
            raise BackupNotFoundError(
                f"{name or 'the place'} is not at {self.address}"
                + ("" if self._folder else ", or there is no such bucket")
            ) from None
        except (AlreadyExistsError, FileExistsError):
            raise _TakenError from None
        except (PermissionDeniedError, UnauthenticatedError, PermissionError):
            raise Unavailable(
                f"{self.address} refuses access: check the credentials in the environment "
                "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or the rights of the folder"
            ) from None
        except (BaseError, OSError) as error:
            if getattr(error, "errno", None) == 28 or "No space left" in str(error):
                raise DiskFullError(f"no room is left at {self.address}: free some") from None
            raise Unavailable(
                f"{self.address} cannot be used ({type(error).__name__}); check address, region, "
                "credentials and network, and try again: what was uploaded is not uploaded again"
            ) from None

    def _sync(self, name: str) -> None:
        """A bucket answers when an object is safe; a folder's files are not until they are
        synced, and neither are their names."""
        if self._folder is None:
            return
        path = self._folder / name
        with self._talking(name):
            for one in (path, *path.parents[: len(Path(name).parts)]):
                handle = os.open(one, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)


class _TakenError(Exception):
    """There is an object of that name."""


def _folder(url: str) -> Path:
    if url.startswith("dir:") and url != "dir:":
        return Path(os.path.realpath(os.path.expanduser(url[4:])))
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise InvalidInputError(f"a place for backups is {FORMS}")
    return Path(os.path.realpath(unquote(parts.path)))


def _bucket(url: str, region: str | None, endpoint: str | None) -> tuple[S3Store, str]:
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
    return store, f"s3://{bucket}/{prefix}".rstrip("/")
