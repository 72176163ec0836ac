"""How objects of classes are taken apart and built: one entry a kind of class.

Objects are built without their constructors: a new object is made and its fields are set, so that
nothing of the class runs, and what was computed once is not computed again. Exceptions: the
constructor of a `msgspec.Struct` (with its `__post_init__`), the lookup of an enum's member, and
defaults of fields that a class gained since.

Of a class are stored its fields by name. What else there is to an object is in the field `$`:

    set      names of a model's fields that count as set, if not just those that are stored
    extra    a model's extra fields, if any
    private  a model's private attributes, if any
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property, partial
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage
from langgraph.store.base import Item, SearchItem
from langgraph.types import Send
from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import PydanticUndefined

from holdfast.errors import InvalidInputError, InvalidValueError
from holdfast.seal.codec import Refusal
from holdfast.seal.registry import DataclassEntry, Entry, EnumEntry, StructEntry, Upgrade

BASES = (str, bytes, int, float, complex, tuple, list, dict, set, frozenset)
_UNCHANGING = frozenset((type(None), bool, int, float, str, bytes))
_ABSENT = object()


_ASKED = {"__orig_class__"}
"""What Python notes on an object that was made by `Box[int](3)`; nothing of the object's own."""


class _Fields(Entry):
    """The base of classes with named fields: what is missing, and what is too much."""

    names: tuple[str, ...]
    defaults: dict[str, Callable[[], Any]]

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade and partial(_upgraded, upgrade))
        bases = [base for base in cls.__mro__ if base is not object]
        slots = {slot for base in bases for slot in _slots(base)}
        self._slots = slots - {"__dict__", "__weakref__"}
        self._computed = {
            name for b in bases for name, v in vars(b).items() if isinstance(v, cached_property)
        }

    def check_rest(self, obj: Any, held: Any) -> None:
        """Refuse what an object has besides its fields; what was computed from them may go."""
        names = set(self.names)
        left = held - names - self._computed - _ASKED
        left |= {slot for slot in self._slots - names if hasattr(obj, slot)}
        if left:
            raise Refusal(
                f"a {self.cls.__qualname__} has the attribute {min(left)!r}, which is not one of "
                "its fields and would be lost; declare it as a field"
            )

    def missing(self, name: str) -> InvalidValueError:
        """The error for a field that is neither stored nor has a default."""
        return InvalidValueError(f"the field {name!r} is not stored and has no default")

    def unknown(self, fields: Any) -> InvalidValueError:
        """The error for fields that the class does not have."""
        names = sorted(set(fields) - {*self.names, "$"})
        return InvalidValueError(f"the class has no field {names[0]!r}")

    def values(self, payload: Any) -> list[Any]:
        """What all fields hold, as it is stored or else by default."""
        for name in self.names:
            if name not in payload:
                if name not in self.defaults:
                    raise self.missing(name)
                payload[name] = self.defaults[name]()
        if len(payload) > len(self.names):
            raise self.unknown(payload)
        return [payload[name] for name in self.names]


def _upgraded(upgrade: Upgrade, version: int, payload: Any) -> Any:
    """Upgraded fields; `$` is not the user's business."""
    odd = payload.pop("$", None)
    fields = upgrade(version, payload)
    if odd is None:
        return fields
    if "set" in odd:
        known = fields.keys() | (odd.get("extra") or {}).keys()
        odd["set"] = [name for name in odd["set"] if name in known]
    return {**fields, "$": odd}


def _slots(base: type) -> tuple[str, ...]:
    found = vars(base).get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


class ObjectEntry(_Fields):
    """A class whose objects are fields and nothing else: dataclasses, and the like of `Send`."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        self.defaults = {}
        if cls in _PLAIN_CLASSES:
            self.names = _PLAIN_CLASSES[cls]
        else:
            self.names = DataclassEntry(cls, name, version, upgrade).fields
            for field in dataclasses.fields(cls):
                if field.default is not dataclasses.MISSING:
                    self.defaults[field.name] = partial(getattr, field, "default")
                elif field.default_factory is not dataclasses.MISSING:
                    self.defaults[field.name] = field.default_factory

    def to_plain(self, obj: Any) -> Any:
        fields = {name: getattr(obj, name) for name in self.names}
        self.check_rest(obj, vars(obj).keys() if hasattr(obj, "__dict__") else set())
        return fields

    def from_plain(self, payload: Any) -> Any:
        obj = object.__new__(self.cls)
        for name, value in zip(self.names, self.values(payload), strict=True):
            object.__setattr__(obj, name, value)
        return obj


_PLAIN_CLASSES: dict[type, tuple[str, ...]] = {
    Send: ("node", "arg", "timeout"),
    Item: tuple(Item.__slots__),
    SearchItem: (*Item.__slots__, *SearchItem.__slots__),
    SecretStr: ("_secret_value",),
    SecretBytes: ("_secret_value",),
}


class TupleEntry(_Fields):
    """A NamedTuple: its fields."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        self.names = self.cls._fields
        given = self.cls._field_defaults
        self.defaults = {name: partial(given.get, name) for name in given}

    def to_plain(self, obj: Any) -> Any:
        if len(obj) != len(self.names):
            raise Refusal(f"a {self.cls.__qualname__} does not have as many items as fields")
        _check_bare(obj)
        return dict(zip(self.names, obj, strict=True))

    def from_plain(self, payload: Any) -> Any:
        return tuple.__new__(self.cls, self.values(payload))


class MemberEntry(EnumEntry):
    """An enum; a member has to be one that its name leads to."""

    def to_plain(self, obj: Any) -> Any:
        found = super().to_plain(obj)
        if type(found) is str and self.cls.__members__.get(found) is not obj:
            raise Refusal(f"a {self.cls.__qualname__} is no member that its name leads to")
        return found


class RecordEntry(StructEntry):
    """A `msgspec.Struct`; with `dict=True` it may hold more than its fields."""

    def to_plain(self, obj: Any) -> Any:
        _check_bare(obj)
        return super().to_plain(obj)


class SubclassEntry(Entry):
    """A subclass of a builtin type: what the builtin type holds, and nothing else."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        self.base: Any = next(base for base in cls.__mro__ if base in BASES)

    def to_plain(self, obj: Any) -> Any:
        _check_bare(obj)
        if self.base is dict:
            return dict(dict.items(obj))
        if self.base in (list, tuple):
            return list(self.base.__iter__(obj))
        if self.base in (set, frozenset):
            return frozenset(self.base.__iter__(obj))
        given = self.base.__getnewargs__(obj)  # of the exact type
        return list(given) if self.base is complex else given[0]

    def from_plain(self, payload: Any) -> Any:
        if self.base in (list, dict, set):
            obj = self.base.__new__(self.cls)
            fill: Any = {list: list.extend, dict: dict.update, set: set.update}[self.base]
            fill(obj, payload)
            return obj
        if self.base is complex:
            return complex.__new__(self.cls, *payload)
        if type(payload) is not {tuple: list}.get(self.base, self.base):
            raise TypeError
        return self.base.__new__(self.cls, payload)


def _check_bare(obj: Any) -> None:
    left = vars(obj).keys() - _ASKED if hasattr(obj, "__dict__") else None
    if left:
        raise Refusal(
            f"a {type(obj).__qualname__} has the attribute {min(left)!r}, which would be lost; "
            "use a dataclass or a model"
        )


class ModelEntry(_Fields):
    """A pydantic model: fields (by name, not alias), extra and private ones, and which are set."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        fields: dict[str, Any] = self.cls.model_fields
        self.names = tuple(fields)
        self._slots -= set(BaseModel.__slots__)
        self._template: dict[str, Any] = dict.fromkeys(fields)
        self._fresh: list[tuple[str, Callable[[], Any] | None]] = []
        self._required = [name for name, field in fields.items() if field.is_required()]
        for field_name, field in fields.items():
            if field.is_required():
                continue
            if field.default_factory in (list, dict):
                self._fresh.append((field_name, field.default_factory))
            elif field.default_factory is None and type(field.default) in _UNCHANGING:
                self._template[field_name] = field.default
            else:
                self._fresh.append((field_name, None))
        self._extra = self.cls.model_config.get("extra") == "allow"
        self._private = bool(self.cls.__private_attributes__)

    def to_plain(self, obj: Any) -> Any:
        held = obj.__dict__
        fields = {name: held[name] for name in self.names if name in held}
        odd = self._odd(obj, held, fields)
        return {**fields, "$": odd} if odd else fields

    def _odd(self, obj: Any, held: Any, fields: Any) -> dict[str, Any]:
        """What `$` has to hold; usually nothing."""
        odd: dict[str, Any] = {}
        extra = obj.__pydantic_extra__
        named = obj.__pydantic_fields_set__
        if named != (fields.keys() | extra.keys() if extra else fields.keys()):
            odd["set"] = sorted(named)
        if extra or (extra is not None) is not self._extra:
            odd["extra"] = extra
        if obj.__pydantic_private__ is not None:
            odd["private"] = obj.__pydantic_private__
        if len(held) != len(self.names) or self._slots:
            self.check_rest(obj, held.keys())
            if absent := [name for name in self.names if name not in held]:
                raise AttributeError(absent[0])
        return odd

    def from_plain(self, payload: Any) -> Any:
        odd = payload.pop("$", None)
        values = self._template.copy()
        values.update(payload)
        if len(values) != len(self.names):
            raise self.unknown(payload)
        for name in self._required:
            if name not in payload:
                raise self.missing(name)
        for name, make in self._fresh:
            if name not in payload and make is not None:
                values[name] = make()
            elif name not in payload:
                default = self.cls.model_fields[name].get_default
                values[name] = default(call_default_factory=True, validated_data=values)
        obj = object.__new__(self.cls)
        set_fields(obj, values)
        set_named(obj, set(payload))
        set_extra(obj, {} if self._extra else None)
        set_private(obj, None)
        if odd or self._private:
            self._set_odd(obj, odd or {})
        return obj

    @cached_property
    def shape(self) -> dict[str, Any] | None:
        """All fields as they are unless they are given, if that is plain data and all that there is
        to an object; what has no default is None."""
        if self._private or not self._extra or any(make is None for _, make in self._fresh):
            return None
        return self._template | {name: make() for name, make in self._fresh if make is not None}

    @cached_property
    def required(self) -> frozenset[str]:
        """Fields without a default."""
        return frozenset(self._required)

    def _set_odd(self, obj: Any, odd: dict[str, Any]) -> None:
        if not odd.keys() <= {"extra", "set", "private"}:
            raise InvalidValueError("it has parts that this version does not know")
        if "extra" in odd:
            set_extra(obj, odd["extra"])
            obj.__pydantic_fields_set__.update(odd["extra"] or ())
        if "set" in odd:
            set_named(obj, set(odd["set"]))
        private = odd.get("private", {} if self._private else None)
        if private is not None:
            made = {
                name: attribute.get_default()
                for name, attribute in self.cls.__private_attributes__.items()
                if name not in private
            }
            found = {name: value for name, value in made.items() if value is not PydanticUndefined}
            private = {**found, **private}
        set_private(obj, private)


class MessageEntry(ModelEntry):
    """A message: only what is set or is not the default is stored, and `id` comes last."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        skip = {name: self._template[name] for name in self.names if name not in self._required}
        for field_name, make in self._fresh:
            skip[field_name] = make() if make is not None else _ABSENT
        # Only what is equal just to itself: 0.0 is -0.0 to Python.
        self._skip = {n: v if type(v) is not float else _ABSENT for n, v in skip.items()}

    def to_plain(self, obj: Any) -> Any:
        held = obj.__dict__
        named = obj.__pydantic_fields_set__
        skip = self._skip
        fields = {}
        for name, value in held.items():
            if name not in named:
                default = skip.get(name, _ABSENT)
                if value is default or (type(value) is type(default) and value == default):
                    continue
            fields[name] = value
        if (
            named != fields.keys()
            or not (obj.__pydantic_extra__ == {} and self._extra)
            or obj.__pydantic_private__ is not None
            or len(held) != len(self.names)
            or self._slots
        ):
            fields = {name: fields[name] for name in self.names if name in fields}
            odd = self._odd(obj, held, fields)
            if odd:
                fields["$"] = odd
        if "id" in fields:
            fields["id"] = fields.pop("id")
        return fields


set_fields = BaseModel.__dict__["__dict__"].__set__
set_named = BaseModel.__dict__["__pydantic_fields_set__"].__set__
set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
set_private = BaseModel.__dict__["__pydantic_private__"].__set__


def kind_of(cls: type) -> type[Entry]:
    """Which entry fits a class; `InvalidInputError` if it is not made of data."""
    kind = next((entry for base, entry in _KINDS if issubclass(cls, base)), None)
    if cls in _PLAIN_CLASSES or (kind in (None, SubclassEntry) and dataclasses.is_dataclass(cls)):
        kind = ObjectEntry
    elif kind is SubclassEntry and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        kind = TupleEntry
    told = cls.__qualname__
    # A defaultdict would lose its factory, and what numpy derives from numbers and texts its dtype.
    more = kind is SubclassEntry and (issubclass(cls, defaultdict) or hasattr(cls, "dtype"))
    if kind is None or more:
        raise InvalidInputError(
            f"{told} cannot be kept: dataclasses, models of pydantic 2, msgspec.Struct, enums, "
            "NamedTuples, exceptions and subclasses of builtin types can; keep it out of the "
            "state, or store its data as one of these, or as text: str(...)"
        )
    if hasattr(cls, "__del__"):
        raise InvalidInputError(f"{told} has a __del__: its objects are more than data")
    if not issubclass(kind, (EnumEntry, StructEntry, ErrorEntry)):
        try:
            next(base for base in cls.__mro__ if base in BASES or base is object).__new__(cls)
        except TypeError:
            raise InvalidInputError(
                f"{told} cannot be made of its fields alone; store its data as a dataclass or model"
            ) from None
    return kind


# ---- exceptions ---------------------------------------------------------------------------------
# Exceptions in a graph's state.
#
# Kept are the class, the arguments, the attributes (also those that Python itself keeps apart, such
# as the name of a file), notes and the cause; not the traceback, the context, and the object that
# lacked an attribute. What nodes raise is stored by LangGraph as text, and is none of this.


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


_KINDS: tuple[tuple[Any, type[Entry]], ...] = (
    (BaseException, ErrorEntry),
    (enum.Enum, MemberEntry),
    (BaseMessage, MessageEntry),
    (BaseModel, ModelEntry),
    (msgspec.Struct, RecordEntry),
    (BASES, SubclassEntry),
)
"""Which entry fits which classes, the first that does."""
