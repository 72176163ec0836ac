"""Values of Python's own types, and of numpy's, in plain form and back.

Each kind has a short name, which no class can have: the names of classes hold a colon. What is
written is exact; what is read is checked by the constructor that gets it, and nothing else is run.
"""

from __future__ import annotations

import ipaddress
import math
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, NamedTuple
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

import msgspec

from holdfast.errors import MissingExtraError
from holdfast.seal.codec import Refusal, Typed, pack_datetime


class Kind(NamedTuple):
    """A type: its short name, and the ways out and in.

    `apart` gives what holds the value, of which each part is taken apart in turn; `build` gets
    that again, with all parts built.
    """

    name: str
    apart: Callable[[Any], Any]
    build: Callable[[Any], Any]


def listed(items: Iterable[Any]) -> list[Any]:
    """Plain forms of a set's items in an order that does not depend on the process."""
    found = list(items)
    with suppress(TypeError, ValueError, OverflowError):
        found.sort(key=_order)
    return found


def _order_of_typed(part: Any) -> Any:
    if type(part) is not Typed:
        raise TypeError
    return [part.name, part.version, part.value]


_order = msgspec.msgpack.Encoder(enc_hook=_order_of_typed).encode


# ---- times ---------------------------------------------------------------------------------


def _datetime_apart(value: datetime) -> Any:
    if value.tzinfo is not None:
        raise Refusal(
            "a datetime has a zone that cannot be kept; use zoneinfo.ZoneInfo with a key, or "
            "datetime.timezone, for example .astimezone(timezone.utc)"
        )
    return [value.isoformat(), 1] if value.fold else value.isoformat()


def _datetime_build(held: Any) -> datetime:
    text, fold = held if type(held) is list else (held, 0)
    return datetime.fromisoformat(text).replace(fold=fold)


def _time_build(held: Any) -> time:
    text, fold, zone = held
    return time.fromisoformat(text).replace(fold=fold, tzinfo=zone)


def _zoneinfo_apart(value: ZoneInfo) -> str:
    if not value.key:
        raise Refusal("a ZoneInfo was made from a file; use one with a key")
    return value.key


def storable(value: datetime) -> bool:
    """Whether the core keeps a datetime as it is."""
    return value.tzinfo is not None and pack_datetime(value) is not None


# ---- the rest of Python --------------------------------------------------------------------


def _uuid_apart(value: UUID) -> Any:
    safe = value.is_safe
    return value.bytes if safe is SafeUUID.unknown else [value.bytes, safe.name]


def _uuid_build(held: Any) -> UUID:
    if type(held) is list:
        return UUID(bytes=held[0], is_safe=SafeUUID[held[1]])
    return UUID(bytes=held)


def _pattern_apart(value: re.Pattern[Any]) -> Any:
    if value.flags & re.DEBUG:
        raise Refusal("a pattern was compiled with re.DEBUG; compile it without")
    return [value.pattern, value.flags]


def _path_kind(kind: Any, pure: Any) -> Kind:
    """Paths of the other platform can be read, but only as pure ones."""

    def apart(value: Any) -> str:
        text = str(value)
        if kind(text).parts != value.parts:
            raise Refusal("a path is not what its text leads to; make it anew from text")
        return text

    return Kind(kind.__name__, apart, kind if kind is type(Path()) else pure)


def _span_apart(value: slice | range) -> Any:
    return [value.start, value.stop, value.step]


FACTORIES: dict[str | None, Any] = {
    kind.__name__: kind
    for kind in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)
}
FACTORIES[None] = None


def _defaultdict_apart(value: defaultdict[Any, Any]) -> Any:
    factory: Any = value.default_factory
    name = getattr(factory, "__name__", None)
    if FACTORIES.get(name) is not factory:
        raise Refusal(
            "a defaultdict makes its defaults with a function, which cannot be kept; use a builtin "
            "type such as list, or dict(...)"
        )
    return [name, dict(value)]


BUILTIN: dict[type, Kind] = {
    tuple: Kind("tuple", list, tuple),
    deque: Kind("deque", lambda v: [v.maxlen, list(v)], lambda h: deque(h[1], h[0])),
    bytearray: Kind("bytearray", bytes, bytearray),
    complex: Kind("complex", lambda v: [v.real, v.imag], lambda h: complex(*h)),
    Decimal: Kind("decimal", str, Decimal),
    Fraction: Kind("fraction", lambda v: [v.numerator, v.denominator], lambda h: Fraction(*h)),
    datetime: Kind("datetime", _datetime_apart, _datetime_build),
    date: Kind("date", date.isoformat, date.fromisoformat),
    time: Kind(
        "time", lambda v: [v.replace(tzinfo=None).isoformat(), v.fold, v.tzinfo], _time_build
    ),
    timedelta: Kind(
        "timedelta", lambda v: [v.days, v.seconds, v.microseconds], lambda h: timedelta(*h)
    ),
    timezone: Kind("timezone", lambda v: [*v.__getinitargs__()], lambda h: timezone(*h)),
    ZoneInfo: Kind("zoneinfo", _zoneinfo_apart, ZoneInfo),
    UUID: Kind("uuid", _uuid_apart, _uuid_build),
    re.Pattern: Kind("pattern", _pattern_apart, lambda h: re.compile(h[0], h[1] & ~re.DEBUG)),
    slice: Kind("slice", _span_apart, lambda h: slice(*h)),
    range: Kind("range", _span_apart, lambda h: range(*h)),
    type(...): Kind("ellipsis", str, lambda _: ...),
    OrderedDict: Kind("ordereddict", dict, OrderedDict),
    Counter: Kind("counter", dict, Counter),
    defaultdict: Kind(
        "defaultdict", _defaultdict_apart, lambda h: defaultdict(FACTORIES[h[0]], h[1])
    ),
    **{
        kind: Kind(kind.__name__.lower(), str, kind)
        for kind in (
            ipaddress.IPv4Address,
            ipaddress.IPv4Interface,
            ipaddress.IPv4Network,
            ipaddress.IPv6Address,
            ipaddress.IPv6Interface,
            ipaddress.IPv6Network,
        )
    },
    PurePosixPath: _path_kind(PurePosixPath, PurePosixPath),
    PureWindowsPath: _path_kind(PureWindowsPath, PureWindowsPath),
    PosixPath: _path_kind(PosixPath, PurePosixPath),
    WindowsPath: _path_kind(WindowsPath, PureWindowsPath),
}


# ---- numpy ---------------------------------------------------------------------------------


def numpy_kind(cls: type) -> Kind | None:
    """The kind of a numpy type, if it is one and numpy is loaded."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if cls is numpy.ndarray:
        return NUMPY["ndarray"]
    if cls in (numpy.str_, numpy.bytes_):
        return NUMPY[f"np{cls.__name__.strip('_')}"]
    return NUMPY["npscalar"] if issubclass(cls, numpy.generic) else None


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise MissingExtraError(
            "a stored value is an array: install numpy, for example with holdfast[langgraph]"
        ) from None
    return numpy


def _dtype_apart(dtype: Any) -> Any:
    """What numpy's own file format says of a dtype."""
    if dtype.hasobject:
        raise Refusal("an array holds Python objects; use a dtype of numbers or text, or a list")
    if not dtype.metadata and dtype.kind in "biufcmMSUV":
        describe = _numpy().lib.format
        found = describe.dtype_to_descr(dtype)
        if describe.descr_to_dtype(found) == dtype:
            return found
    raise Refusal("an array has a dtype that cannot be kept; convert it with .astype(...)")


def _array_build(held: Any) -> Any:
    descr, shape, data = held
    numpy = _numpy()
    dtype = numpy.lib.format.descr_to_dtype(descr)
    if dtype.hasobject or len(data) != dtype.itemsize * math.prod(shape):
        raise ValueError
    # bytearray: frombuffer would make bytes an array that cannot be written.
    return numpy.ndarray(tuple(shape), dtype, bytearray(data))


NUMPY = {
    "ndarray": Kind(
        "ndarray",
        lambda v: [_dtype_apart(v.dtype), list(v.shape), v.tobytes("C")],
        _array_build,
    ),
    "npscalar": Kind(
        "npscalar",
        lambda v: [_dtype_apart(v.dtype), v.tobytes()],
        lambda h: _array_build([h[0], [], h[1]])[()],
    ),
    # A numpy text of its own may end with NUL, which it may not in an array.
    "npstr": Kind("npstr", str.__str__, lambda h: _numpy().str_(h)),
    "npbytes": Kind("npbytes", bytes.__bytes__, lambda h: _numpy().bytes_(h)),
}

BUILDERS: dict[str, Callable[[Any], Any]] = {
    **{kind.name: kind.build for kind in BUILTIN.values()},
    **{kind.name: kind.build for kind in NUMPY.values()},
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}
"""What builds each kind; sets and mappings with keys of all kinds are taken apart by the walk."""
