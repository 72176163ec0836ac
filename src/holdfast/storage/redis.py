"""A cache of records in Redis: a hint, which may be gone, late, old or wrong at any time.

Nothing is decided by it. Who gets a record here checks it against a hash that came from the engine,
and asks the engine where it does not fit; that a record is not here says nothing.

It never fails its caller, and keeps it waiting once at most: after a call that failed the server is
left alone for a while, and then one call tries it again.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast
from urllib.parse import parse_qsl

from holdfast.errors import InvalidInputError, MissingExtraError, OutcomeUnknown
from holdfast.storage import contract
from holdfast.storage.contract import MAX_RECORD, Batch, Storage
from holdfast.storage.server import hosts_and_path, take_options, whole
from holdfast.storage.wrappers import Around

REST, SHARE = 5.0, 20
"""Seconds for which a server that failed is left alone; more, if it took more than one part in so
many of that to fail, as where a name is looked up for long."""
_T = TypeVar("_T")
log = logging.getLogger("holdfast.cache")


def check_driver() -> None:
    """Refuse where the driver is not installed. It is loaded by who has a cache: all others need
    this file, too, for they look at what `open` is given."""
    try:
        import redis  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "a cache in Redis needs its driver: pip install 'holdfast[redis]'"
        ) from error


class RedisCache:
    """Records of one store, by their keys. Thread safe.

    `prefix` stands before every key, so that stores can share a server. Records expire after `ttl`
    seconds.
    """

    def __init__(self, address: Address, prefix: str, ttl: float) -> None:
        check_driver()
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self.address = address
        self.ttl = ttl
        self.tell: Callable[[str, str, int], None] = lambda *_: None
        """Is told what was asked for (write, remove), how it ended, and of how many records."""
        self._prefix = prefix
        self._reached, self._written = _Fuse(address, "reached"), _Fuse(address, "written")
        self._pid = contract.process_number
        seconds = address.timeout / 1000
        try:
            self._redis = redis.Redis.from_url(
                address.url,
                socket_timeout=seconds,
                socket_connect_timeout=seconds,
                retry=Retry(NoBackoff(), 0),
                protocol=2,  # which every server speaks
            )
        except ValueError:  # its text may show pieces of the URL
            raise InvalidInputError(f"a cache is given as {FORM}") from None

    def reach(self) -> bool:
        """Whether the server answers; if not, that is logged, as whenever it is noticed."""
        return self._reached.run(self._redis.ping) is not None

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes] | None:
        """Those of the records that it has, or says that it has; None if it does not answer."""
        names = [self._name(key) for key in keys]
        found = self._reached.run(lambda: cast("list[bytes | None]", self._redis.mget(names)))
        if found is None:
            return None
        return {
            key: row for key, row in zip(keys, found, strict=True) if row and len(row) <= MAX_RECORD
        }

    def put(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep records until they expire, or are pushed out by others."""
        given, expires = list(rows), max(1, int(self.ttl * 1000))
        if not given:
            return

        def ask() -> bool:
            with self._redis.pipeline(transaction=False) as pipe:
                for key, row in given:
                    pipe.set(self._name(key), row, px=expires)
                pipe.execute()
            return True

        # A server without room, or one that only reads, still answers what it is asked.
        there = not self._reached.blown or self.reach()
        self._tell_done("write", self._written.run(ask) if there else None, len(given))

    def drop(self, keys: Collection[bytes]) -> None:
        """Remove records."""
        names = [self._name(key) for key in keys]
        done = self._reached.run(lambda: self._redis.unlink(*names) is not None)
        self._tell_done("remove", done, len(names))

    def close(self) -> None:
        """Release the connections; in a forked child they are the parent's."""
        if self._pid == contract.process_number:
            self._redis.close()

    def _tell_done(self, what: str, done: bool | None, count: int) -> None:
        self.tell(what, "done" if done else "failed", count)

    def _name(self, key: bytes) -> str:
        return self._prefix + key.hex()


class _Fuse:
    """Lets calls through until one fails; then, each time after a while, one that tries again."""

    def __init__(self, address: Address, what: str) -> None:
        self._address = address
        self._what = what
        self.blown = False
        self._again = 0.0
        self._lock = threading.Lock()  # of several threads, one tries again what has failed

    def run(self, call: Callable[[], _T]) -> _T | None:
        """What the call gives; None if it failed, or was not made."""
        begun = time.monotonic()
        with self._lock:
            if self.blown and begun < self._again:
                return None
            self._again = begun + REST  # one tries; others leave it alone meanwhile
        try:
            made = call()
        except Exception as error:  # whatever it is, nothing rests on it
            now = time.monotonic()
            with self._lock:
                first, self.blown = not self.blown, True
                self._again = now + max(REST, SHARE * (now - begun))
            if first:
                # The driver's text may name what nobody is to see; the kind of error says enough.
                log.warning(
                    "the cache %s cannot be %s (%s); the store goes on without it, and tries again "
                    "now and then",
                    self._address,
                    self._what,
                    type(error).__name__,
                )
            return None
        if self.blown:
            self.blown = False
            log.info("the cache %s can be %s again", self._address, self._what)
        return made


# ---- redis url ----------------------------------------------------------------------------------
# Where a cache in Redis is, as its URL says it.


SCHEMES = ("redis", "rediss")
FORM = "redis://USER:PASSWORD@HOST:PORT/NUMBER (rediss:// with TLS)"
TIMEOUT = 250
"""Milliseconds that the cache may take to connect or to answer: a store is not to wait for it."""
_PLACE = re.compile(r"(?:\[[^\]]+\]|[^,:/\[\]]+)(?::(?P<port>[0-9]{1,5}))?(?:/[0-9]{0,5})?")
_THEIRS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


@dataclass(frozen=True, slots=True)
class Address:
    """A server and a database there. Its text shows neither user nor password."""

    url: str = field(repr=False)
    """What the driver understands; it may hold a password."""
    place: str
    timeout: int = TIMEOUT

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL: `timeout` is ours, `ssl_ca_certs` and the like are the driver's."""
        scheme = url.partition(":")[0]
        if scheme not in SCHEMES:
            raise InvalidInputError(f"a cache is given as {FORM}")
        theirs, ours = take_options(url, what="cache")
        given = [name for name, _ in parse_qsl(theirs.partition("?")[2], keep_blank_values=True)]
        theirs_known = _THEIRS if scheme == "rediss" else ()
        if {*ours} - {"timeout"} or {*given} - {*theirs_known}:
            raise InvalidInputError(
                "the URL of the cache has an option that is none of timeout and, for rediss://, "
                f"{', '.join(_THEIRS)}"
            )
        place = hosts_and_path(url) or ""
        found = _PLACE.fullmatch(place)
        if found is None or int(found["port"] or 0) > 65535:
            raise InvalidInputError(f"a cache is given as {FORM}, with one host")
        return cls(theirs, f"{scheme}://{place}", whole(ours, "timeout", TIMEOUT, "cache"))

    def __str__(self) -> str:
        return self.place


# ---- cache --------------------------------------------------------------------------------------
# A storage with a cache of records in front of it.


class Cached(Around):
    """The storage itself, but that what leaves it leaves the cache, too.

    Its reads are the engine's: all that is decided by rows is decided by those. Who knows what a
    record must be asks `cache` for it first, and puts there what it had to read from the engine.
    """

    def __init__(self, storage: Storage, cache: RedisCache) -> None:
        super().__init__(storage)
        self.cache = cache

    def commit(self, batch: Batch) -> None:
        try:
            super().commit(batch)
        except OutcomeUnknown:  # what is missing in a cache is no loss
            self._forget(batch)
            raise
        self._forget(batch)

    def _forget(self, batch: Batch) -> None:
        if batch.drops or batch.blanks or batch.swaps:
            self.cache.drop({*batch.drops, *batch.blanks, *(swap[0] for swap in batch.swaps)})

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.cache.close()
