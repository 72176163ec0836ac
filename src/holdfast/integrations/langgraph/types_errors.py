"""Exceptions: LangGraph stores those that nodes raised.

Kept are the class, the arguments and the attributes; not the traceback, the cause and the context.
Where arguments or attributes cannot be kept, or the class is not loaded when it is read, a
`StoredException` comes back, which says what the exception was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.integrations.langgraph import types_names as names
from holdfast.seal.codec import Refusal


class StoredException(RuntimeError):
    """Stands for an exception that cannot be built again; its text is that one's repr."""

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        """module:qualname of the class that it had."""

    def __reduce__(self) -> Any:
        return (StoredException, (str(self), self.kind))


def apart(error: BaseException, take: Callable[[Any], Any]) -> dict[str, Any]:
    """The plain form of an exception; `take` takes its parts apart."""
    if type(error) is StoredException:
        return {"class": error.kind, "text": str(error)}
    found = {"class": names.long_name(type(error)), "text": _text(error)}
    try:
        return {**found, "args": take(list(error.args)), "attributes": take(vars(error))}
    except (Refusal, RecursionError):
        return found


def _text(error: BaseException) -> str:
    try:
        return repr(error)
    except Exception:
        return f"{type(error).__qualname__}()"


def build(held: dict[str, Any], trusts: Callable[[type], bool]) -> BaseException:
    """The exception, or what stands for it. Nothing of the class itself is run."""
    stand_in = StoredException(held["text"], held["class"])
    cls = names.find(held["class"])
    if "args" not in held or cls is None or not issubclass(cls, BaseException):
        return stand_in
    if hasattr(cls, "__del__") or not trusts(cls):
        return stand_in
    builtin: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    try:
        made: BaseException = builtin.__new__(cls, *held["args"])
        builtin.__init__(made, *held["args"])
    except (TypeError, ValueError):
        return stand_in  # made of more than its arguments
    made.args = tuple(held["args"])
    vars(made).update(held["attributes"])
    return made
