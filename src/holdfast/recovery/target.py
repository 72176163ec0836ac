"""States to return to, as strategies give them, and why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    OutcomeUnknown,
    Unavailable,
)
from holdfast.recovery.failures import DEFAULTS, NOTHING
from holdfast.recovery.tails import MAIN
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.arguments import check_count, check_text, listed
from holdfast.store.names.scope import check_key

if TYPE_CHECKING:
    from holdfast.recovery.context import Context


class Unfit(HoldfastError):
    """A strategy does not serve here; the text says why."""


class Unreached(Unfit):
    """It could not be tried to the end; it may serve when it is tried again."""


PASSING = (Conflict, LeaseLostError, OutcomeUnknown, Unavailable)


def failing(error: Exception, what: str = "failed") -> Unfit:
    """What an error says of a strategy: that it may serve when it is tried again, or not.

    Of Holdfast's errors those that say so, and what the system raises (`OSError`), may pass; other
    built-in ones are bugs, which stay; what libraries raise, nobody knows.
    """
    if isinstance(error, HoldfastError):
        passes = isinstance(error, PASSING)
    else:
        passes = isinstance(error, OSError) or type(error).__module__ != "builtins"
    return (Unreached if passes else Unfit)(f"{what}: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Target:
    """A state to return to: what a strategy gives."""

    strategy: str
    """Its name; one of a user's own gets the name under which it was given."""
    point: str
    """TIMELINE@NUMBER; empty for `defaults`. Of a user's own also a checkpoint's name."""
    lost: str
    """What is lost by returning to it, for people."""
    keys: tuple[str, ...] = ()
    """Only these keys go back, sticky ones too, if there are any."""
    copy: int | None = None
    """Which of the copies it is in: its place in `copies`, from 0."""
    replay: int = 0
    """The last entry that is to be replayed behind the point; 0 for none."""

    def data(self) -> dict[str, Any]:
        """Plain data, kept as the result of a step."""
        return {name: getattr(self, name) for name in self.__slots__} | {"keys": list(self.keys)}

    @classmethod
    def of(cls, data: Any) -> Target:
        """What `data` gave."""
        fields = {name: data[name] for name in cls.__slots__}
        return cls(**{**fields, "keys": tuple(data["keys"])})


def target_of(context: Context, name: str, found: Any) -> Target:
    """What a user's own strategy gave, if it can be returned to; its point as TIMELINE@NUMBER.

    It is known by the name it was given under, unless it leaves the state, or defaults, to ours.
    """
    if not isinstance(found, Target):
        raise Unfit(f"failed: a strategy gives a Target, not {type(found).__name__}")
    try:
        check_text(found.lost, "what is lost")
        if found.strategy == DEFAULTS and context.defaults is not None and not found.point:
            return Target(DEFAULTS, "", found.lost)
        keys = tuple(check_key(key, owner=True) for key in listed(found.keys, "keys"))
        handle = context.handle
        if found.copy is not None:
            check_count(found.copy, "the number of a copy")
            if found.copy >= len(context.copies):
                raise InvalidInputError(f"there is no copy {found.copy}")
            handle = StoreHandle(context.copies[found.copy]._core).line(context.agent)
        timeline, sequence = handle.history.points.find(found.point)
        check_count(found.replay, "the last entry to replay")
        if found.replay and (timeline, found.copy, keys) != (MAIN, None, ()):
            raise InvalidInputError("entries are replayed behind a point of main, with all keys")
        if found.replay and not sequence < found.replay <= handle.place()[2]:
            raise InvalidInputError(f"there is nothing to replay up to entry {found.replay}")
        if found.copy is not None and (keys or timeline != MAIN):
            raise InvalidInputError("of a copy all of the timeline main is taken")
    except InvalidInputError as error:
        raise Unfit(f"failed: its Target cannot be used: {error}") from error
    point = f"{timeline}@{sequence}"
    if found.strategy == NOTHING and (timeline, sequence) == (MAIN, context.handle.place()[2]):
        name = NOTHING
    return Target(name, point, found.lost, keys, found.copy, found.replay)
