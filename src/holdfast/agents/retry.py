"""Which failures of a request are tried again, how often, and after how long.

A failure has a kind, if one can be told: what a function of yours or the error itself (`kind`)
says, else what Python's own errors, a status of HTTP, and errors of the storage stand for.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import Conflict, InvalidInputError, Unavailable
from holdfast.store.names.arguments import (
    check_count,
    check_plain_function,
    check_text,
    is_seconds,
    listed,
)

log = logging.getLogger("holdfast.mailbox")

RESTART = "daemon_restart"
"""The kind of an attempt whose process ended before it did."""
RETRYABLE = (
    "timeout",
    "network_error",
    "api_rate_limit",
    RESTART,
    "provider_error",
    "temporary_failure",
)
"""Kinds that may pass by themselves."""
LONGEST_KIND = 64
CAUSES = 10
"""How many causes of an error are looked at."""
_STATUS = {408: "timeout", 504: "timeout", 429: "api_rate_limit"}
_NETWORK = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What becomes of a letter whose processing failed.

    A failure of one of these kinds is tried again, `max_attempts` times in all: after `delay`
    seconds, then `factor` times as long each time, never longer than `longest`. Any other failure,
    and the last one, sets the letter aside at once. `kinds=None` stands for every failure.
    """

    max_attempts: int = 3
    delay: float = 2.0
    factor: float = 2.0
    longest: float = 60.0
    kinds: tuple[str, ...] | None = RETRYABLE
    kind_of: Callable[[BaseException], str | None] | None = None
    """Says the kind of an error; None if it does not know, then the rules of `failure_kind`."""

    def __post_init__(self) -> None:
        check_count(self.max_attempts, "max_attempts", 1)
        for name in ("delay", "longest"):
            if not is_seconds(getattr(self, name), most=10.0**9):
                raise InvalidInputError(f"{name} is a number of seconds from 0 to 10**9")
        if not is_seconds(self.factor, least=1.0, most=1000.0):
            raise InvalidInputError("factor is a number from 1 to 1000")
        if self.kinds is not None:
            object.__setattr__(self, "kinds", tuple(listed(self.kinds, "kinds")))
            for kind in self.kinds:
                check_text(kind, "a kind of failure", LONGEST_KIND, least=1)
        if self.kind_of is not None:
            check_plain_function(self.kind_of, "kind_of")

    @classmethod
    def every(cls, max_attempts: int) -> RetryPolicy:
        """Whatever the failure is, so many attempts in all, one right after the other."""
        return cls(max_attempts, delay=0.0, kinds=None)

    def kind(self, error: BaseException) -> str:
        """The kind of a failure; empty if nobody can tell."""
        try:
            told = self.kind_of(error) if self.kind_of is not None else None
            if told is not None:
                check_text(told, "what kind_of says", LONGEST_KIND, least=1)
                return told
        except Exception:  # that it cannot be told must not keep the failure from being counted
            log.warning("kind_of failed about %s", type(error).__name__, exc_info=True)
        return failure_kind(error)

    def again(self, kind: str, attempts: int) -> bool:
        """Whether what has failed so, for the time of this number, is tried once more."""
        return attempts < self.max_attempts and (self.kinds is None or kind in self.kinds)

    def pause(self, attempts: int) -> float:
        """Seconds from a failure, the attempt of this number, to the next attempt."""
        if self.delay == 0:
            return 0.0
        wait: float = self.delay
        for _ in range(attempts - 1):
            wait *= self.factor
            if wait >= self.longest:
                break
        return float(min(wait, self.longest))


def failure_kind(error: BaseException) -> str:
    """The kind of a failure, told by the error or by what it was raised from; empty if by none."""
    one: BaseException | None = error
    for _ in range(CAUSES):  # libraries wrap the one that says what happened
        if one is None:
            break
        kind = getattr(one, "kind", None)
        if isinstance(kind, str) and kind in RETRYABLE:
            return kind
        # The status of an answer by HTTP, where clients of services put it.
        status: Any = getattr(one, "status_code", None)
        if status is None:
            status = getattr(getattr(one, "response", None), "status_code", None)
        told = ""
        if type(status) is int:
            told = _STATUS.get(status, "provider_error" if 500 <= status <= 599 else "")
        if found := told or _by_type(one):
            return found
        one = one.__cause__
    return ""


def _by_type(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionError | socket.gaierror):
        return "network_error"
    if isinstance(error, OSError) and error.errno in _NETWORK:
        return "network_error"
    return "temporary_failure" if isinstance(error, Conflict | Unavailable) else ""
