"""Where a cache in Redis is, as its URL says it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from holdfast.errors import InvalidInputError
from holdfast.storage.server import hosts_and_path, take_options, whole

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
