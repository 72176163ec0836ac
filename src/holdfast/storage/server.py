"""What all engines share that keep a store on a server."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from holdfast.errors import InvalidInputError, StoreClosedError, StoreForkedError
from holdfast.storage import contract

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


class Life:
    """Whether a handle may be used: not when it is closed, nor in a forked child."""

    def __init__(self) -> None:
        self._pid = contract.process_number
        self._closed = False

    def check(self) -> None:
        """Refuse a handle that may not be used."""
        if self._pid != contract.process_number:
            raise StoreForkedError(
                "this storage was opened before os.fork(); open it again in the child"
            )
        if self._closed:
            raise StoreClosedError("this storage is closed; open it again")

    def end(self) -> bool:
        """Whether there is something to close; the first call in the process that opened it."""
        first = self._pid == contract.process_number and not self._closed
        self._closed = self._closed or first
        return first


class Tally:
    """Which of the commits that a server has counted are this handle's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
