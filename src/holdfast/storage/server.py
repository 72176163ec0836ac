"""What all engines share that keep a store on a server."""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from holdfast.errors import ForeignSchemaError, InvalidInputError
from holdfast.storage.batch import (
    Life,
    Ranges,
    check_batch,
    check_durability,
    check_own,
    opened_for_reading,
)
from holdfast.storage.contract import Batch, Limits

SCHEMES = ("postgresql", "postgres", "mongodb", "mongodb+srv")
POOL_SIZE = 20
TIMEOUT = 30_000
"""Milliseconds that a call may take."""
_OPTIONS = ("pool_size", "timeout", "ring")
_HOST = r"(?:\[[^\]@/]*\]|[^:@/#\[\]]*)(?::[0-9]*)?"
_PLACE = re.compile(rf"//(?:[^@/#]*@)?(?P<place>{_HOST}(?:,{_HOST})*(?:/[^@/#]*)?)")


def on_server(url: str) -> bool:
    """Whether a URL names a store on a server."""
    return url.partition(":")[0] in SCHEMES


def shown(url: str) -> str:
    """A URL of any storage as errors may show it: without user, password and options."""
    if not on_server(url):
        return re.sub(r":[^:@/]*@", ":***@", url)
    scheme = url.partition(":")[0]
    scheme = "postgresql" if scheme == "postgres" else scheme
    found = hosts_and_path(url)
    return f"{scheme}://{found}" if found is not None else f"{scheme}:"


def hosts_and_path(url: str) -> str | None:
    """What a URL says behind user and password; None if it cannot be told where those end.

    A password with a sign that ends it in a URL would be taken for a host, path or option.
    """
    rest, _, query = url.partition(":")[2].partition("?")
    given = _PLACE.fullmatch(rest)
    if given is None or not all("=" in part for part in query.split("&") if query):
        return None
    return given["place"]


def take_options(url: str, *more: str, what: str = "store") -> tuple[str, dict[str, str]]:
    """The URL as the server's driver understands it, and the options in it that are ours."""
    if hosts_and_path(url) is None:
        raise InvalidInputError(
            f"the URL of the {what} is not of the form SCHEME://USER:PASSWORD@HOST:PORT/DATABASE?"
            "OPTION=VALUE; in a user's name and a password write @ as %40, / as %2F, ? as %3F, "
            "# as %23"
        )
    start, _, query = url.partition("?")
    ours: dict[str, str] = {}
    theirs = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name not in (*_OPTIONS, *more):
            theirs.append(part)
        elif name in ours:
            raise InvalidInputError(f"the URL of the {what} gives {name} twice")
        else:
            ours[name] = unquote(value)
    return "?".join([start, "&".join(theirs)]) if theirs else start, ours


def whole(given: dict[str, str], name: str, default: int, what: str = "store") -> int:
    """An option that is a whole number."""
    value = given.get(name)
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or not 0 < int(value) <= 1_000_000_000:
        unit = "milliseconds" if name == "timeout" else "connections"
        raise InvalidInputError(f"{name} in the URL of the {what} is a whole number of {unit}")
    return int(value)


def _common(given: dict[str, str]) -> tuple[int, int, str | None]:
    """The options that every store on a server has: the last fields of its address."""
    timeout = whole(given, "timeout", TIMEOUT)
    return whole(given, "pool_size", POOL_SIZE), timeout, given.get("ring")


class Tally:
    """Which of the commits that a server has counted are this handle's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # both numbers are of one moment
        self._flying = 0
        """Commits of this handle on their way."""
        self._own = 0
        """Commits of this handle that the server has counted for sure."""

    @contextmanager
    def flight(self) -> Iterator[Callable[[], None]]:
        """While a commit is on its way; what is given is called when the server has counted it."""
        counted: list[bool] = []
        with self._lock:
            self._flying += 1
        try:
            yield lambda: counted.append(True)
        finally:
            with self._lock:
                self._flying -= 1
                self._own += bool(counted)

    def others(self, ask: Callable[[], tuple[int, object]]) -> object:
        """A token that stays equal while the server has counted no commits of others, and what
        else it says of its count is equal, too."""
        with self._lock:
            own, flying = self._own, self._flying
        commits, more = ask()
        with self._lock:
            # While this handle commits, nobody can tell whose commits were counted.
            if flying or self._flying or own != self._own:
                return object()
        return commits - own, more


class ServerStorage(Ranges):
    """A handle on a store on a server; several handles, processes and machines may share it.
    Connections that break are replaced: the handle itself does not die."""

    limits: Limits

    def __init__(self, durability: str, *, read_only: bool) -> None:
        check_durability(durability, self.limits)
        self._read_only = read_only
        self._life = Life()
        self._tally = Tally()

    def commit(self, batch: Batch) -> None:
        if not batch.own or check_own:
            check_batch(batch, self.limits)
        self._life.check()
        if self._read_only:
            raise opened_for_reading()
        self._commit(batch)

    @abstractmethod
    def _commit(self, batch: Batch) -> None:
        """Apply a batch that was checked."""

    def version(self) -> object:
        self._life.check()
        return self._tally.others(self._commits)

    @abstractmethod
    def _commits(self) -> tuple[int, object]:
        """How many commits the server has counted, and what else must be equal."""

    def turn(self, *, durable: bool = True) -> AbstractContextManager[object]:
        # A lock that is held while a client reads would be held by one that has stopped, too; and
        # commits that meet are no slower without one.
        self._life.check()
        return nullcontext()

    def settle(self) -> bool:
        # Dropped rows stay in the server's files until these are cleaned or reused, and in its log.
        self._life.check()
        return False


def differences(found: Collection[str], expected: Collection[str]) -> list[str]:
    """What a server has and should not have, or the other way round; [] if it is ours."""
    more = [f"{line} was not made by Holdfast" for line in sorted({*found} - {*expected})]
    # What is missing because its table is would only hide that.
    missing = sorted({*expected} - {*found}, key=lambda line: (not line.startswith("table"), line))
    return more + [f"{line} is missing" for line in missing]


def not_as_made(what: str, wrong: list[str], other: str) -> ForeignSchemaError:
    """The error for what holds something else than was made there."""
    named = "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
    return ForeignSchemaError(
        f"the {what} is not as it was made: {named}. Nothing was touched: remove what was added, "
        f"restore the database from a backup, or name another {other}"
    )


# ---- url ----------------------------------------------------------------------------------------
# Where a store in PostgreSQL lies, as its URL says it.


SCHEMA = "holdfast"
_SCHEMA_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
POSTGRES_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A server, a database and a schema in it. Its text shows neither user nor password."""

    conninfo: str = field(repr=False)
    """What libpq understands; it may hold a password."""
    schema: str = SCHEMA
    pool_size: int = POOL_SIZE
    timeout: int = TIMEOUT
    ring: str | None = field(default=None, repr=False)
    """Where the keys of an encrypted store lie: a file, or the URL of other storage."""

    @classmethod
    def of(cls, url: str) -> PostgresAddress:
        """Read a URL: `schema`, `pool_size`, `timeout` and `ring` are ours, others are libpq's."""
        conninfo, ours = take_options(url, "schema")
        made = cls(conninfo, ours.get("schema", SCHEMA), *_common(ours))
        if not _SCHEMA_NAME.fullmatch(made.schema):
            raise InvalidInputError(
                "the schema of a store has up to 63 small letters, digits and _, begins with no "
                "digit and not with pg_"
            )
        return made

    @property
    def place(self) -> tuple[str, ...]:
        """What tells stores apart."""
        return self.conninfo, self.schema

    def check(self) -> None:
        """Refuse what libpq does not understand."""
        self._parts()

    def _parts(self) -> dict[str, Any]:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        try:
            return conninfo_to_dict(self.conninfo)
        except psycopg.ProgrammingError:  # its text shows pieces of the URL
            raise InvalidInputError(
                f"the URL of a store in PostgreSQL is {POSTGRES_FORM}"
            ) from None

    def defaults(self) -> dict[str, Any]:
        """Options for connections, where the URL gives no other."""
        parts = self._parts()
        mine: dict[str, Any] = {
            "application_name": "holdfast",
            "connect_timeout": max(2, -(-self.timeout // 1000)),
        }
        if "," in str(parts.get("host", "")):
            mine["target_session_attrs"] = "primary"
        return {name: value for name, value in mine.items() if name not in parts}

    def hide(self, message: str) -> str:
        """A message of libpq on one line, without the password."""
        password = self._parts().get("password")
        message = " ".join(message.split())
        return message.replace(str(password), "***") if password else message

    def __str__(self) -> str:
        parts = self._parts()
        host, port = parts.get("host") or "localhost", parts.get("port") or 5432
        return f"postgresql://{host}:{port}/{parts.get('dbname', '')}?schema={self.schema}"


# ---- url ----------------------------------------------------------------------------------------
# Where a store in MongoDB lies, as its URL says it.


MONGO_FORM = "mongodb://USER:PASSWORD@HOST:PORT/DATABASE"
_DATABASE_NAME = re.compile(r'[^/\\. "$*<>:|?\0]{1,63}')
_TAKEN = ("admin", "config", "local")


@dataclass(frozen=True, slots=True)
class MongoAddress:
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
    def of(cls, url: str) -> MongoAddress:
        """Read a URL: `pool_size`, `timeout` and `ring` are ours, others are the driver's."""
        theirs, ours = take_options(url)
        hosts, _, name = shown(url).partition("://")[2].partition("/")
        database = unquote(name)
        if not hosts or not _DATABASE_NAME.fullmatch(database) or database in _TAKEN:
            raise InvalidInputError(
                f"the URL of a store in MongoDB is {MONGO_FORM}, where the database is one that "
                "holds nothing else"
            )
        return cls(theirs, hosts, database, *_common(ours))

    @property
    def place(self) -> tuple[str, ...]:
        """What tells stores apart."""
        return "mongodb", self.hosts, self.database

    def __str__(self) -> str:
        return shown(self.url)
