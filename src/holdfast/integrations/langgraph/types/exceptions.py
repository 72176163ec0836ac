"""Exceptions in a graph's state.

Kept are the class, the arguments, the attributes (also those that Python itself keeps apart, such
as the name of a file), notes and the cause; not the traceback, the context, and the object that
lacked an attribute. What nodes raise is stored by LangGraph as text, and is none of this.
"""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.seal.codec import Refusal
from holdfast.seal.registry import Entry, Upgrade

_NOT_KEPT = frozenset((*vars(BaseException), "obj", "__weakref__", "__dict__"))


class ErrorEntry(Entry):
    """An exception class. Nothing of the class itself is run, only of the builtin one below it."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        self._builtin: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
        kinds = (MemberDescriptorType, GetSetDescriptorType)
        self._slots = tuple(
            slot
            for base in cls.__mro__
            for slot, what in vars(base).items()
            if isinstance(what, kinds) and slot not in _NOT_KEPT
        )

    def to_plain(self, obj: Any) -> Any:
        found: dict[str, Any] = {"args": list(obj.args)}
        try:
            bare = self._bare(found["args"])
        except (TypeError, ValueError):
            raise Refusal(
                f"a {self.cls.__qualname__} is made of more than its arguments, and would not come "
                "back; store its text: str(error)"
            ) from None
        slots = {}
        for slot in self._slots:
            value, known = getattr(obj, slot, None), getattr(bare, slot, None)
            if value is not known and (known is None or value != known):
                slots[slot] = value
        more = {"slots": slots, "attributes": vars(obj), "cause": obj.__cause__}
        return found | {name: part for name, part in more.items() if part}

    def from_plain(self, payload: Any) -> Any:
        made = self._bare(payload["args"])
        for slot, value in payload.get("slots", {}).items():
            if slot not in self._slots:
                raise InvalidInputError(f"it has no {slot!r}")
            object.__setattr__(made, slot, value)
        vars(made).update(payload.get("attributes", {}))
        if "cause" in payload:
            made.__cause__ = payload["cause"]
        return made

    def _bare(self, args: list[Any]) -> Any:
        made = self._builtin.__new__(self.cls, *args)
        self._builtin.__init__(made, *args)
        made.args = tuple(args)
        return made
