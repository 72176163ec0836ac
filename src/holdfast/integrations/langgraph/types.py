"""Python objects of a graph's state, in plain form and back.

What goes in comes out equal and of the same type, or is refused with the path of the part and what
to do about it. Data classes that are loaded in the process need no registering. Not kept: that two
parts were one and the same object; what a `cached_property` computed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol, maybe_add_typed_methods

from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    LimitExceededError,
    UnknownTypeError,
)
from holdfast.integrations.langgraph.kinds import (
    BUILDERS,
    BUILTIN,
    listed,
    numpy_kind,
    storable,
)
from holdfast.integrations.langgraph.objects import BASES, kind_of
from holdfast.seal.codec import Refusal, Typed
from holdfast.seal.registry import MAX_NAME, Entry, Registry, Upgrade, construct

MESSAGE, LISTED = "m", "ms"
_KINDS = frozenset((*BUILDERS, MESSAGE, LISTED))
_SCALARS = frozenset((type(None), bool, int, float, str, bytes))
_LOW, _HIGH = -(1 << 63), (1 << 64) - 1

Out = Callable[[BaseMessage], Any]
In = Callable[[Typed], Any]


class Types:
    """Which classes a graph's state may hold, and how they are stored.

    Classes made of data (dataclasses, pydantic models, `msgspec.Struct`, enums, NamedTuples) are
    stored under `module:qualname`. Reading looks that name up among the modules loaded already,
    never imports it, and builds such classes only, from their fields. With `strict`, only
    registered classes and those of LangChain and LangGraph are.
    A class made inside a function is found in the process that stored it; register it for others.

    Safe to use from several threads; register before.
    """

    keeps_messages_apart = True
    """Whether a list of messages is stored message by message."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self._registered = Registry(kind_of)
        self._found: dict[type, Entry] = {}
        self._short: dict[str, type] = {}
        self._local: WeakValueDictionary[str, type] = WeakValueDictionary()

    def register(
        self,
        cls: Any = None,
        *,
        name: str | None = None,
        version: int = 1,
        upgrade: Upgrade | None = None,
        also: Iterable[str] = (),
    ) -> Any:
        """Allow objects of a class; also usable as a decorator.

        `name` is what records hold (default: `module:qualname`) and must stay the same. A class
        that was renamed or moved lists its older names in `also`. Raise `version` when fields
        change; `upgrade(stored_version, fields)` then gives today's fields for older ones. A
        class that gained a field with a default needs neither.
        """
        also = [also] if isinstance(also, str) else list(also)
        if cls is None:
            return partial(self.register, name=name, version=version, upgrade=upgrade, also=also)
        if isinstance(cls, type):
            if cls in BASES or cls in BUILTIN:
                raise InvalidInputError(f"{cls.__qualname__} need not be registered")
            name = name_of(cls) if name is None else name
        for each in (name, *also):
            if each in _KINDS or (each in SHORT and find_class(str(each)) is not cls):
                raise InvalidInputError(f"{each!r} is the name of another type; choose another one")
        return self._registered.register(
            cls, name=name, version=version, upgrade=upgrade, also=also
        )

    def plain(self, value: Any, message: Out | None = None) -> Any:
        """The value in plain form: data that the core stores exactly, and `Typed`.

        Nothing of it is shared with the value. `message` is given each message that is met, and
        may return what stands for it. Raises `InvalidValueError` with the path of the first part
        that cannot be kept.
        """
        try:
            return _Apart(self, message).any(value)
        except Refusal as refusal:
            raise refusal.error() from None
        except RecursionError:
            raise LimitExceededError(
                "$: nested too deeply, or contains itself; flatten it", "$"
            ) from None

    def build(self, plain: Any, message: In | None = None) -> Any:
        """The value of a plain form; nothing of the form is shared with it.

        `message` is given each `Typed` named `MESSAGE` and returns the object. Raises
        `UnknownTypeError` if a class is not there, `InvalidValueError` if it does not fit.
        """
        try:
            return _Built(self, message).any(plain)
        except RecursionError:
            raise LimitExceededError("$: a stored value is nested too deeply", "$") from None

    def known(self, cls: type) -> Entry | None:
        """How objects of a class are stored, if that has been found out already."""
        return self._registered.find(cls) or self._found.get(cls)

    def entry(self, cls: type) -> Entry:
        """How objects of a class are stored; a `Refusal` says why they are not."""
        found = self.known(cls)
        if found is not None:
            return found
        try:
            kind = kind_of(cls)
        except InvalidInputError as error:
            raise Refusal(f"a {_told(cls)} would not come back as it was: {error}") from None
        line = f"add saver.types.register({cls.__name__})"
        if self.strict and not is_own(cls):
            raise Refusal(f"a {_told(cls)} is not registered, and strict is on; {line}")
        name = name_of(cls)
        if "<locals>" in name and len(name) <= MAX_NAME:
            # No name leads to it. Here it is remembered; elsewhere reading asks to register it.
            self._local[name] = cls
        elif find_class(name) is not cls or len(name) > MAX_NAME or not name.isprintable():
            raise Refusal(f"a {_told(cls)} would not be found by its name when it is read; {line}")
        found = self._found[cls] = kind(cls, name, 1, None)
        return found

    def named(self, name: str) -> Entry:
        """How objects that were stored under a name are built."""
        found = self._registered.by_name(name)
        if found is not None:
            return found
        cls = self._short.get(name) or self._local.get(name) or find_class(name)
        if cls is None:
            raise UnknownTypeError(
                f"a stored value is a {name!r}, and no such class is loaded or registered here; "
                "import its module before reading, or, if the class has another name now: "
                f"saver.types.register(TheClass, also=[{name!r}])"
            )
        if name in SHORT:  # others are looked up again: a class may have been made anew
            self._short[name] = cls
        try:
            return self.entry(cls)
        except Refusal as refusal:
            raise UnknownTypeError(f"a stored value is a {name!r}: {refusal}") from None


def _told(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


class _Apart:
    """One pass over one value, taking it apart."""

    __slots__ = ("_message", "_types")

    def __init__(self, types: Types, message: Out | None) -> None:
        self._types = types
        self._message = message

    def any(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is dict:
            if all(map(_is_key, value)):
                return {
                    key: part if type(part) in _SCALARS else self._part(key, part)
                    for key, part in value.items()
                }
            pairs = [
                [self._part(told, key), self._part(told, part)]
                for key, part in value.items()
                for told in (key if type(key) in (str, int) else f"({type(key).__name__})",)
            ]
            return Typed("dict", 1, pairs)
        if kind is list:
            return [
                part if type(part) in _SCALARS else self._part(number, part)
                for number, part in enumerate(value)
            ]
        entry = self._types.known(kind)
        if entry is None:
            found = self._builtin(value, kind)
            if found is not None:
                return found
            entry = self._types.entry(kind)
        if self._message is not None and isinstance(value, BaseMessage):
            stands = self._message(value)
            if stands is not None:
                return stands
        try:
            payload = entry.to_plain(value)
        except (AttributeError, KeyError, TypeError) as error:
            told = f"a {_told(entry.cls)} lacks a part ({type(error).__name__})"
            raise Refusal(f"{told}; set all fields before storing it") from None
        return Typed(entry.name, entry.version, self.any(payload))

    def _part(self, step: str | int, part: Any) -> Any:
        """A part; a refusal gathers the steps to it."""
        try:
            return self.any(part)
        except Refusal as refusal:
            refusal.steps.append(step)
            raise

    def _builtin(self, value: Any, kind: type) -> Any:
        """The plain form; None if an entry may stand for the value's class."""
        if kind is set or kind is frozenset:
            return Typed(kind.__name__, 1, listed(map(self.any, value)))
        if kind is datetime and storable(value):
            return value
        found = BUILTIN.get(kind) or numpy_kind(kind)
        return Typed(found.name, 1, self.any(found.apart(value))) if found is not None else None


def _is_key(key: Any) -> bool:
    """Whether the core takes it for the key of a mapping: no text with lone surrogates."""
    if type(key) is not str:
        return type(key) is int and _LOW <= key <= _HIGH
    try:
        return key.isascii() or bool(key.encode())
    except UnicodeEncodeError:
        return False


class _Built:
    """One pass over one plain form, building its value."""

    __slots__ = ("_entries", "_message", "_types")

    def __init__(self, types: Types, message: In | None) -> None:
        self._types = types
        self._message = message
        self._entries: dict[str, Entry] = {}

    def any(self, plain: Any) -> Any:
        kind = type(plain)
        if kind is dict:
            return {
                key: part if type(part) in _SCALARS else self.any(part)
                for key, part in plain.items()
            }
        if kind is list:
            return [part if type(part) in _SCALARS else self.any(part) for part in plain]
        if kind is Typed:
            return self.typed(plain)
        return plain

    def typed(self, plain: Typed) -> Any:
        name = plain.name
        entry = self._entries.get(name)
        if entry is None:
            if name in _KINDS:
                return self._builtin(plain)
            entry = self._entries[name] = self._types.named(name)
        return construct(entry, plain.version, self.any(plain.value))

    def _builtin(self, plain: Typed) -> Any:
        if plain.version != 1:
            raise UnknownTypeError(
                f"a stored {plain.name!r} is of version {plain.version}, which this version does "
                "not know; update holdfast"
            )
        if plain.name == MESSAGE:
            if self._message is None:
                raise UnknownTypeError(
                    "a message is stored elsewhere in its thread; read it through the saver"
                )
            return self._message(plain)
        held = self.any(plain.value)
        try:
            return BUILDERS[plain.name](held)
        except (HoldfastError, RecursionError):
            raise
        except Exception as error:
            raise InvalidValueError(
                f"a stored {plain.name!r} cannot be built ({type(error).__name__}); it was not "
                "written by this saver"
            ) from None


# ---- serializer ---------------------------------------------------------------------------------
# Values that a serializer of the user's own turns into bytes.


_NAME = "serialized"


class Serialised(Types):
    """Takes whatever the serializer takes, as bytes that nobody looks into.

    Such values are stored whole each time they change, and what the serializer does when it
    reads them, running code perhaps, is its own.
    """

    keeps_messages_apart = False

    def __init__(self, serde: SerializerProtocol) -> None:
        super().__init__()
        self._serde = maybe_add_typed_methods(serde)

    def plain(self, value: Any, message: Out | None = None) -> Any:
        """The value as the serializer writes it."""
        kind, data = self._serde.dumps_typed(value)
        return Typed(_NAME, 1, [kind, data])

    def build(self, plain: Any, message: In | None = None) -> Any:
        """The value as the serializer reads it; others as `Types` does."""
        if type(plain) is Typed and plain.name == _NAME:
            return self._serde.loads_typed((plain.value[0], plain.value[1]))
        if type(plain) is list:
            return [self.build(part, message) for part in plain]
        return super().build(plain, message)

    def register(self, *_: Any, **__: Any) -> Any:
        """Refused: the serializer decides."""
        raise InvalidValueError("a saver with a serializer of its own registers no classes", "$")


# ---- class names --------------------------------------------------------------------------------
# Names of classes, and the classes that they lead to.
#
# A class is called `module:qualname`. A name leads to what is loaded already: reading never imports
# a module that the data names, and looks into namespaces without running what they may define.
# Classes of LangChain and LangGraph that many graphs store have short names, which stay the same
# when their modules move; only these are imported.


_MESSAGES = {
    "base": "BaseMessage BaseMessageChunk",
    "human": "HumanMessage HumanMessageChunk",
    "ai": "AIMessage AIMessageChunk",
    "system": "SystemMessage SystemMessageChunk",
    "chat": "ChatMessage ChatMessageChunk",
    "tool": "ToolMessage ToolMessageChunk",
    "function": "FunctionMessage FunctionMessageChunk",
    "modifier": "RemoveMessage",
}
SHORT = {
    **{
        name: f"langchain_core.messages.{module}:{name}"
        for module, names in _MESSAGES.items()
        for name in names.split()
    },
    **{
        name: f"langgraph.types:{name}"
        for name in ("Command", "Interrupt", "Overwrite", "Send", "TimeoutPolicy")
    },
    "DeltaSnapshot": "langgraph.checkpoint.serde.types:_DeltaSnapshot",
    "Document": "langchain_core.documents.base:Document",
    "Item": "langgraph.store.base:Item",
    "SearchItem": "langgraph.store.base:SearchItem",
}
_SHORT_OF = {name: short for short, name in SHORT.items()}
_OWN = frozenset(("langchain", "langchain_core", "langgraph", "langgraph_sdk"))


def name_of(cls: type) -> str:
    """What a class is called in records."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    return _SHORT_OF.get(name, name)


def is_own(cls: type) -> bool:
    """Whether a class is of LangChain, LangGraph or Python itself."""
    package = str(cls.__module__).partition(".")[0]
    return package in _OWN or package == "builtins"


def find_class(name: str) -> type | None:
    """The class that a name leads to in this process; None if it is not there."""
    module, _, path = SHORT.get(name, name).partition(":")
    if name in SHORT:
        with suppress(ImportError):
            import_module(module)
    found: Any = sys.modules.get(module)
    for step in path.split("."):
        # Not getattr: a module or a class may import or compute what it is asked for.
        try:
            found = object.__getattribute__(found, "__dict__").get(step)
        except AttributeError:
            return None
    return found if isinstance(found, type) else None
