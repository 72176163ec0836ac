"""The classes whose objects may be stored, and how they are taken apart and built.

A record can name only classes that the reader registered: decoding never imports a module
and never builds anything else. Dataclasses, `msgspec.Struct`, pydantic models and enums can
be registered. What is stored of an object are its fields, in order; of an enum member its
name (of a flag its number). Building calls the class's constructor, so `__post_init__` and
`model_post_init` run: they are the user's code and run after all checks of the bytes. An object
of a class with such code is built once when it is written, too, from a copy of its fields: what
its class would refuse to build could never be read.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from abc import ABC, abstractmethod
from collections import UserDict, UserList, UserString, deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

import msgspec

from holdfast.errors import InvalidInputError, InvalidValueError, UnknownTypeError

C = TypeVar("C", bound=type)
Upgrade = Callable[[int, dict[str, Any]], dict[str, Any]]

MAX_NAME = 200


class Entry(ABC):
    """One registered class; the base of one subclass a kind of class."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        self.cls: Any = cls
        self.name = name
        self.version = version
        self.upgrade = upgrade
        self.may_refuse = False
        """Whether building an object runs code of the class, which may raise."""

    @abstractmethod
    def to_plain(self, obj: Any) -> Any:
        """The object taken apart by one level."""

    @abstractmethod
    def from_plain(self, payload: Any) -> Any:
        """The object, from fields that this very version wrote."""

    def from_older(self, payload: Any) -> Any:
        """The object, from upgraded or older fields; raises if the class refuses them."""
        return self.from_plain(payload)


class DataclassEntry(Entry):
    """A dataclass: its fields, also those that the constructor does not take."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        fields = dataclasses.fields(cls)
        self.fields = tuple(f.name for f in fields)
        self.init = frozenset(f.name for f in fields if f.init)
        self.may_refuse = hasattr(cls, "__post_init__") or not _all_generated(cls)

    def to_plain(self, obj: Any) -> Any:
        return {name: getattr(obj, name) for name in self.fields}

    def from_plain(self, payload: Any) -> Any:
        obj = self.cls(**{k: v for k, v in payload.items() if k in self.init})
        # A constructor may compute or replace fields; what was stored is what comes back.
        for name, value in payload.items():
            if name not in self.fields:
                raise TypeError("unknown field")
            if getattr(obj, name, _ABSENT) is not value:
                object.__setattr__(obj, name, value)
        return obj


class StructEntry(Entry):
    """A `msgspec.Struct`: its fields."""

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        self.may_refuse = hasattr(cls, "__post_init__")

    def to_plain(self, obj: Any) -> Any:
        return {name: getattr(obj, name) for name in self.cls.__struct_fields__}

    def from_plain(self, payload: Any) -> Any:
        obj = self.cls(**payload)
        for name, value in payload.items():
            if getattr(obj, name) is not value:
                msgspec.structs.force_setattr(obj, name, value)
        return obj


class ModelEntry(Entry):
    """A pydantic model, known by its attributes so that pydantic need not be installed.

    Extra fields are kept, too. After reading, all fields count as set.
    """

    def __init__(self, cls: type, name: str, version: int, upgrade: Upgrade | None) -> None:
        super().__init__(cls, name, version, upgrade)
        self.may_refuse = getattr(cls, "__pydantic_post_init__", None) is not None

    def to_plain(self, obj: Any) -> Any:
        fields = {name: obj.__dict__[name] for name in self.cls.model_fields}
        extra = obj.__pydantic_extra__ or {}
        aliases = {field.alias for field in self.cls.model_fields.values()}
        for name in extra:
            if name in fields or name in aliases:
                raise InvalidValueError(
                    f"its extra field {name!r} has the name or alias of a field of {self.name!r}, "
                    "and one of the two would be lost; rename it",
                    "$",
                )
        return fields | extra

    def from_plain(self, payload: Any) -> Any:
        fields = self.cls.model_fields
        if not fields.keys() <= payload.keys():
            raise TypeError("a field is missing")
        obj = self.cls.model_construct(**self._by_alias(payload))
        for name, value in payload.items():
            if name in fields and obj.__dict__.get(name, _ABSENT) is not value:
                obj.__dict__[name] = value
        return obj

    def from_older(self, payload: Any) -> Any:
        return self.cls.model_validate(self._by_alias(payload))

    def _by_alias(self, payload: Any) -> dict[str, Any]:
        fields = self.cls.model_fields
        return {
            (fields[name].alias or name) if name in fields else name: value
            for name, value in payload.items()
        }


class EnumEntry(Entry):
    """An enum: the member's name, because values may be anything; a flag: its number."""

    def to_plain(self, obj: Any) -> Any:
        return obj.value if issubclass(self.cls, enum.Flag) else obj.name

    def from_plain(self, payload: Any) -> Any:
        return self.cls(payload) if issubclass(self.cls, enum.Flag) else self.cls[payload]


_ABSENT = object()


class Registry:
    """Which classes may be stored, by name. Safe to read from several threads.

    `kind` chooses the `Entry` that takes the objects of a class apart, or refuses the class.
    """

    def __init__(self, kind: Callable[[type], type[Entry]] | None = None) -> None:
        self._kind = kind or _kind
        self._classes: dict[type, Entry] = {}
        self._names: dict[str, Entry] = {}

    @overload
    def register(
        self,
        cls: C,
        *,
        name: str | None = None,
        version: int = 1,
        upgrade: Upgrade | None = None,
        also: Iterable[str] = (),
    ) -> C: ...

    @overload
    def register(
        self,
        cls: None = None,
        *,
        name: str | None = None,
        version: int = 1,
        upgrade: Upgrade | None = None,
        also: Iterable[str] = (),
    ) -> Callable[[C], C]: ...

    def register(
        self,
        cls: Any = None,
        *,
        name: str | None = None,
        version: int = 1,
        upgrade: Upgrade | None = None,
        also: Iterable[str] = (),
    ) -> Any:
        """Allow objects of `cls` in values; also usable as a decorator.

        `name` is what records hold (default: the class's own name) and must stay the same for
        ever. Raise `version` when the fields change; `upgrade(stored_version, fields)` then
        gives the fields of today for what an older version wrote. `also` are older names: what
        was stored under them is read as this class.
        """
        if cls is None:
            return lambda c: self.register(
                c, name=name, version=version, upgrade=upgrade, also=also
            )
        if not isinstance(cls, type):
            raise InvalidInputError("register() takes a class, not an object")
        name = cls.__name__ if name is None else name
        names = (name, *([also] if isinstance(also, str) else also))
        for each in names:
            check_name(each, version, upgrade)
            if each[0] == "$":
                raise InvalidInputError("names of types that begin with $ are Holdfast's own")
        entry = self._kind(cls)(cls, name, version, upgrade)
        for known in (*map(self._names.get, names), self._classes.get(cls)):
            if known is not None and (known.cls, known.name) != (cls, name):
                raise InvalidInputError(
                    f"cannot register {cls.__qualname__} as {name!r}: "
                    f"{known.cls.__qualname__} is registered as {known.name!r}; "
                    "give each class one name of its own with name="
                )
        self._names.update(dict.fromkeys(names, entry))
        self._classes[cls] = entry
        return cls

    def find(self, cls: type) -> Entry | None:
        """The entry of exactly this class (subclasses are other classes)."""
        return self._classes.get(cls)

    def by_name(self, name: str) -> Entry | None:
        """The entry registered under this name."""
        return self._names.get(name)

    def build(self, name: str, version: int, payload: Any) -> Any:
        """The object that was stored as these fields by that version of the class."""
        entry = self._names.get(name)
        if entry is None:
            raise UnknownTypeError(
                f"a stored value is a {name!r}, which is not registered here; register its class "
                f"before reading: registry.register(YourClass, name={name!r}, version={version})"
            )
        return construct(entry, version, payload)


def construct(entry: Entry, version: int, payload: Any) -> Any:
    """The object of an entry that was stored as these fields by that version of the class."""
    if version > entry.version:
        raise _unfit(entry, version, "update the program that reads it")
    # The text of an error of the user's may hold values: only its type is told.
    advice = "register it with upgrade="
    if version == entry.version:
        advice = "if its fields have changed, register it with a higher version= and upgrade="
    if version < entry.version and entry.upgrade is not None:
        advice = "look at what its upgrade function makes of it"
        try:
            payload = entry.upgrade(version, payload)
        except Exception as error:
            hint = f"its upgrade function raised {type(error).__name__}; {advice}"
            raise _unfit(entry, version, hint) from None
    try:
        if version == entry.version:
            return entry.from_plain(payload)
        return entry.from_older(payload)
    except Exception as error:
        told = str(error) if isinstance(error, InvalidValueError) else ""
        hint = f"{told or f'its class raised {type(error).__name__}'}; {advice}"
        raise _unfit(entry, version, hint) from None


def _unfit(entry: Entry, version: int, hint: str) -> InvalidValueError:
    return InvalidValueError(
        f"a stored {entry.name!r} of version {version} cannot be built by the registered "
        f"version {entry.version}: {hint}",
        "$",
    )


def check_name(name: object, version: object, upgrade: object = None) -> None:
    """Refuse what cannot name a stored type, and an upgrade that is none."""
    if type(name) is not str or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidInputError(f"a type's name has 1 to {MAX_NAME} printable characters")
    if type(version) is not int or not 0 < version < 1 << 31:
        raise InvalidInputError("a type's version is a whole number from 1 up")
    if upgrade is not None and not callable(upgrade):
        raise InvalidInputError("upgrade is a function of a version and the fields it wrote")


def can_be_registered(cls: type) -> bool:
    """Whether a registry takes a class."""
    try:
        return _kind(cls) is not None
    except InvalidInputError:
        return False


def _kind(cls: Any) -> type[Entry]:
    """Which way of taking apart fits the class."""
    if issubclass(cls, enum.Enum):
        return EnumEntry
    if issubclass(cls, msgspec.Struct):
        return StructEntry
    if hasattr(cls, "model_fields") and hasattr(cls, "model_construct"):
        _check_bases(cls)
        if getattr(cls, "__private_attributes__", None):
            raise InvalidInputError(
                f"{cls.__qualname__} has private attributes, which would be lost; "
                "make them fields or store another class"
            )
        return ModelEntry
    if dataclasses.is_dataclass(cls):
        _check_bases(cls)
        _check_dataclass(cls)
        return DataclassEntry
    raise InvalidInputError(
        f"{cls.__qualname__} cannot be registered: dataclasses, msgspec.Struct, pydantic models "
        "and enums can; convert other objects to one of these or to a dict"
    )


_HEAP_TYPE = 1 << 9
"""The flag of a class that was not made in C."""
_CONTAINERS = (UserDict, UserList, UserString, deque)


def _check_bases(cls: Any) -> None:
    """What an object holds by being a list, a dict, a number ... is no field."""
    for base in cls.__mro__[1:-1]:
        made_in_c = not base.__flags__ & _HEAP_TYPE and not issubclass(base, BaseException)
        if base in _CONTAINERS or made_in_c:
            raise InvalidInputError(
                f"{cls.__qualname__} is a {base.__qualname__} besides its fields, and what it "
                f"holds as such would be lost; make it a field"
            )


def _all_generated(cls: Any) -> bool:
    """Whether a dataclass is built by nothing but the `__init__` that was made for it."""
    code = getattr(cls.__init__, "__code__", None)
    generated = code is not None and code.co_qualname.startswith("__create_fn__")
    plain = cls.__new__ is object.__new__ and type(cls).__call__ is type.__call__
    frozen = cls.__dataclass_params__.frozen  # its __init__ passes its __setattr__ by
    return bool(generated and plain) and (frozen or cls.__setattr__ is object.__setattr__)


def _check_dataclass(cls: Any) -> None:
    """Refuse a class whose constructor cannot be given the fields, and nothing but them.

    An `InitVar` without a default would be missing.
    """
    for name, spec in getattr(cls, "__dataclass_fields__", {}).items():
        kind = getattr(spec, "_field_type", None)
        if str(kind) == "_FIELD_INITVAR" and spec.default is dataclasses.MISSING:
            raise InvalidInputError(
                f"{cls.__qualname__}.{name} is an InitVar without a default, which is not "
                "stored: give it a default"
            )
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    try:
        if names and cls.__init__ is object.__init__:
            raise TypeError
        inspect.signature(cls.__init__).bind(None, **dict.fromkeys(names))
    except TypeError:
        raise InvalidInputError(
            f"{cls.__qualname__} cannot be built from its fields: its __init__ does not take "
            "them by name; let it, or make fields with init=False of what it computes"
        ) from None


default_registry = Registry()
"""Where `holdfast` looks when a store is opened without a registry of its own."""

register = default_registry.register
