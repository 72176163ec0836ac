"""Where a store in MongoDB lies, as its URL says it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from holdfast.errors import InvalidInputError
from holdfast.storage.server import POOL_SIZE, TIMEOUT, shown, take_options, whole

FORM = "mongodb://USER:PASSWORD@HOST:PORT/DATABASE"
_NAME = re.compile(r'[^/\\. "$*<>:|?\0]{1,63}')
_TAKEN = ("admin", "config", "local")


@dataclass(frozen=True, slots=True)
class Address:
    """A server, or the members of a replica set, and a database there, which holds one store and
    nothing else. Its text shows neither user nor password."""

    url: str = field(repr=False)
    """What the driver understands; it may hold a password."""
    hosts: str
    database: str
    pool_size: int = POOL_SIZE
    timeout: int = TIMEOUT
    ring: str | None = field(default=None, repr=False)
    """Where the keys of an encrypted store lie: a file, or the URL of other storage."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL: `pool_size`, `timeout` and `ring` are ours, others are the driver's."""
        theirs, ours = take_options(url)
        hosts, _, name = shown(url).partition("://")[2].partition("/")
        database = unquote(name)
        if not hosts or not _NAME.fullmatch(database) or database in _TAKEN:
            raise InvalidInputError(
                f"the URL of a store in MongoDB is {FORM}, where the database is one that holds "
                "nothing else"
            )
        return cls(
            theirs,
            hosts,
            database,
            whole(ours, "pool_size", POOL_SIZE),
            whole(ours, "timeout", TIMEOUT),
            ours.get("ring"),
        )

    @property
    def place(self) -> tuple[str, ...]:
        """What tells stores apart."""
        return "mongodb", self.hosts, self.database

    def __str__(self) -> str:
        return shown(self.url)
