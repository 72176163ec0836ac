"""Values to bytes and back, exactly.

What goes in comes out equal and with the same types, or it is refused with the path of the
part that would not. msgpack by `msgspec`, whose silent conversions (tuple to list, UUID to
str, enum to value ...) are ruled out by a walk that looks at exact types first. What msgpack
lacks are extension parts:

    1  int beyond 64 bits       signed, big-endian
    2  str with lone surrogates UTF-8 with surrogates passed
    3  datetime with a zone     [year .. microsecond, fold, offset in microseconds, zone, name]
    4  registered object        [name, version, plain payload]

A part that is sealed for a subject (see `parts`) is an object of a reserved name.

Mappings keep the order they were given.
"""

from __future__ import annotations

import enum
import sys
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property
from operator import is_not
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from holdfast.errors import (
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    LimitExceededError,
    NewerFormatError,
    UnknownTypeError,
)
from holdfast.seal.registry import Entry, Registry, can_be_registered, check_name
from holdfast.seal.subject_keys import SEALED, SHORTEST

BIG_INT, ODD_TEXT, MOMENT, OBJECT = 1, 2, 3, 4

MAP_KEY = 256 * 1024
"""Most bytes of a mapping's key: a node with it has to fit into one record."""
MOST_WHOLE = 512 * 1024
"""Most bytes of what is not taken apart, however long: an int, and text with lone surrogates."""
_LOW, _HIGH = -(1 << 63), (1 << 64) - 1
_SCALARS = frozenset((bool, float, type(None)))


class Typed:
    """The plain form of an object: the name and version of its type, and its fields.

    It may stand anywhere in a value that is written, and is stored like the object itself;
    reads with `plain=True` give it instead of building the object.
    """

    __slots__ = ("name", "value", "version")

    def __init__(self, name: str, version: int, value: Any) -> None:
        self.name = name
        self.version = version
        self.value = value

    def __eq__(self, other: object) -> bool:
        if type(other) is not Typed:
            return NotImplemented
        return (self.name, self.version, self.value) == (other.name, other.version, other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Typed({self.name!r}, {self.version})"


def altered(value: Any, change: Callable[[Any, Any], Any], name: Any = None) -> Any:
    """A value in plain form with something else for parts of it; the very same if for none.

    `change(name, part)` gives what takes the place of a part; if that is the part itself, what lies
    in it is looked at. `name` is that of the field that the part is; None if it is none.
    """
    made = change(name, value)
    if made is not value:
        return made
    kind = type(value)
    if kind is dict:
        fields = {name: altered(part, change, name) for name, part in value.items()}
        return fields if any(fields[name] is not value[name] for name in value) else value
    if kind is list:
        items = [altered(part, change) for part in value]
        return items if any(map(is_not, items, value)) else value
    if kind is Typed:
        inner = altered(value.value, change)
        return value if inner is value.value else Typed(value.name, value.version, inner)
    return value


class Unbuilt(Registry):
    """For programs without the classes: every object is, and stays, a `Typed`."""

    def build(self, name: str, version: int, payload: Any) -> Typed:
        """The plain form itself."""
        return Typed(name, version, payload)


class Refusal(Exception):
    """A part that cannot be stored; the path is gathered from the inside out."""

    def __init__(self, text: str, kind: type[InvalidValueError] = InvalidValueError) -> None:
        super().__init__(text)
        self.kind = kind
        self.steps: list[str | int] = []

    def error(self) -> InvalidValueError:
        steps = [step_text(step) for step in reversed(self.steps)]
        if len(steps) > 16:
            steps[8:-8] = ["..."]
        path = "$" + "".join(steps)
        # A name in a mapping that is no plain word may be somebody's: the path alone has it.
        shown = "".join("[...]" if step[:2] in ("['", '["') else step for step in steps)
        return self.kind(f"${shown}: {self}", path)


def step_text(step: str | int) -> str:
    """One step of a path into a value."""
    if type(step) is int:
        return f"[{step}]" if -_HIGH < step < _HIGH else "[large int]"
    text = str(step) if len(str(step)) <= 40 else f"{str(step)[:37]}..."
    return f".{text}" if text.isascii() and text.isidentifier() else f"[{text!a}]"


class Codec:
    """Turns values into plain form and bytes, and bytes into values. Safe for threads."""

    def __init__(self, registry: Registry, limits: ValueLimits | None = None) -> None:
        self.registry = registry
        self.limits = limits or ValueLimits()
        usual, mine = ValueLimits(), self.limits
        self._to_read = ValueLimits(
            DEEPEST, max(mine.items, usual.items), max(mine.size, usual.size)
        )
        """What bounds reading: none is smaller than the usual one."""
        self.unseal: Callable[[bytes, Codec], Any] | None = None
        """Gives what a sealed part holds; without it such parts stay as they are."""
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._typed_out)
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._ext_in)

    @cached_property
    def plain_reader(self) -> Codec:
        """The same codec, but objects are read as `Typed` instead of being built, and parts that
        are sealed for a subject stay sealed: what it reads is written back exactly."""
        return Codec(Unbuilt(), self.limits)

    @cached_property
    def plain_viewer(self) -> Codec:
        """The same, but sealed parts are opened: for those who look at values."""
        codec = Codec(Unbuilt(), self.limits)
        codec.unseal = self.unseal
        return codec

    def plain(self, value: Any, depth: int = 1) -> Any:
        """The value in plain form; the very same object where nothing needs converting.

        `depth` says where it stands: an item of a list stands at 2.

        Raises `InvalidValueError` (or `LimitExceededError`) with the path of the first part
        that cannot be stored exactly.
        """
        return self.examined(value, depth)[0]

    def examined(self, value: Any, depth: int = 1) -> tuple[Any, bool, int, int]:
        """The value in plain form, whether there are bytes in it, how much text and bytes, and how
        many items."""
        walk = _Walk(self)
        try:
            plain, limits = walk.any(value, depth), self.limits
            return plain, walk.raw, limits.size - walk.size, limits.items - walk.items
        except Refusal as refusal:
            raise refusal.error() from None
        except RecursionError:
            raise _no_stack(", or it contains itself") from None

    def encode(self, plain: Any) -> bytes:
        """The bytes of a value in plain form."""
        try:
            data = self._encoder.encode(plain)
        except RecursionError:
            raise _no_stack(", or it contains itself") from None
        if len(data) > self.limits.size:
            raise _too_large(self.limits).error()
        return data

    def decode(self, data: bytes) -> Any:
        """The value, with registered objects built.

        Bytes that `encode` did not make raise `DamagedRecordError`; more depth, items or bytes
        than may be read raise `LimitExceededError` before anything large is built.
        """
        limits = self._to_read
        if len(data) > limits.size:
            raise _unread(f"more than {limits.size} bytes")
        try:
            # n bytes hold fewer than n items: only longer data needs counting beforehand.
            if len(data) > limits.items:
                check_bounds(data, limits.depth, limits.items, OBJECT)
            return self._decoder.decode(data)
        except HoldfastError:
            raise
        except TooMuch as excess:
            raise _unread(str(excess)) from None
        except RecursionError:
            raise _no_stack() from None
        except (msgspec.DecodeError, ValueError, TypeError, OverflowError):
            raise DamagedRecordError("a stored value is not in the form it was written") from None

    def build(self, name: str, version: int, payload: Any) -> Any:
        """The registered object of that name; `UnknownTypeError` if there is none."""
        if name == SEALED and self.unseal is not None:
            return self.unseal(payload, self)
        return self.registry.build(name, version, payload)

    def opened(self, plain: Any) -> Any:
        """A value in plain form, or what it holds if it is a sealed part as a whole."""
        if type(plain) is Typed and plain.name == SEALED:
            return self.build(plain.name, plain.version, plain.value)
        return plain

    def _typed_out(self, part: Any) -> Ext:
        if type(part) is not Typed:
            raise InvalidValueError(f"$: {type(part).__qualname__} is not in plain form", "$")
        return Ext(OBJECT, self._encoder.encode([part.name, part.version, part.value]))

    def _ext_in(self, code: int, data: memoryview) -> Any:
        if code == BIG_INT:
            return int.from_bytes(data, "big", signed=True)
        if code == ODD_TEXT:
            return str(data, "utf-8", "surrogatepass")
        if code == MOMENT:
            return unpack_datetime(bytes(data))
        if code == OBJECT:
            name, version, payload = self._decoder.decode(data)
            if type(name) is not str or type(version) is not int:
                raise ValueError
            return self.build(name, version, payload)
        raise NewerFormatError(
            f"a stored value uses extension {code}, which this version does not know; "
            "update holdfast"
        )


def _no_stack(other: str = "") -> LimitExceededError:
    """Levels beyond the limit are refused before: it is the caller who stands too deep, or objects
    in each other, which take more calls each."""
    return LimitExceededError(
        f"$: Python's stack ended at {sys.getrecursionlimit()} calls before the value did{other}; "
        "make this call from fewer calls within each other, flatten the value, or raise "
        "sys.setrecursionlimit",
        "$",
    )


def _too_large(limits: ValueLimits) -> Refusal:
    return Refusal(
        f"larger than {limits.size} bytes; store it in parts under several keys",
        LimitExceededError,
    )


def _unread(what: str) -> LimitExceededError:
    advice = "it was written with larger limits: open the store with limits=holdfast.ValueLimits"
    return LimitExceededError(f"$: a stored value has {what}; {advice}(...) as then", "$")


def _long_key() -> Refusal:
    return Refusal(
        f"a key of a mapping takes at most {MAP_KEY} bytes; shorten it", LimitExceededError
    )


class _Walk:
    """One pass over one value. The two loops repeat the tests for speed: they are the hot path
    of every write, and a call per scalar would double their cost."""

    __slots__ = ("_codec", "_limits", "items", "raw", "size")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._limits = limits = codec.limits
        self.items = limits.items
        self.size = limits.size
        self.raw = False

    def any(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is dict:
            return self.mapping(value, depth)
        if kind is list:
            return self.list(value, depth)
        if kind is str:
            return self._text(value)
        if kind is int:
            return value if _LOW <= value <= _HIGH else self._int(value)
        if kind in _SCALARS:
            return value
        return self._other(value, kind, depth)

    def mapping(self, value: dict[Any, Any], depth: int) -> Any:
        self._enter(len(value), depth)
        out: dict[Any, Any] | None = None
        size = 0
        key: Any = None
        try:
            for key, part in value.items():
                if type(key) is str:
                    if not key.isascii():
                        self._key_text(key)
                    size += len(key)
                elif type(key) is not int or not _LOW <= key <= _HIGH:
                    raise self._bad_key(key)
                kind = type(part)
                if kind is str and part.isascii():
                    size += len(part)
                    continue
                if kind is int and _LOW <= part <= _HIGH:
                    continue
                if kind in _SCALARS:
                    continue
                new = self.any(part, depth + 1)
                if new is not part:
                    if out is None:
                        out = dict(value)
                    out[key] = new
        except Refusal as refusal:
            refusal.steps.append(key if type(key) in (str, int) else f"({type(key).__name__})")
            raise
        self._grow(size)
        for key in value if size > MAP_KEY else ():  # of those that are not ASCII it is known
            if type(key) is str and len(key) > MAP_KEY:
                long = _long_key()
                long.steps.append(key)
                raise long
        return value if out is None else out

    def list(self, value: list[Any], depth: int) -> Any:
        self._enter(len(value), depth)
        out: list[Any] | None = None
        size = 0
        index = 0
        try:
            for index, part in enumerate(value):
                kind = type(part)
                if kind is dict:
                    new = self.mapping(part, depth + 1)
                elif kind is str and part.isascii():
                    size += len(part)
                    continue
                elif (kind is int and _LOW <= part <= _HIGH) or kind in _SCALARS:
                    continue
                else:
                    new = self.any(part, depth + 1)
                if new is not part:
                    if out is None:
                        out = value.copy()
                    out[index] = new
        except Refusal as refusal:
            refusal.steps.append(index)
            raise
        self._grow(size)
        return value if out is None else out

    def _enter(self, length: int, depth: int) -> None:
        if depth > self._limits.depth:
            raise Refusal(
                f"nested deeper than {self._limits.depth} levels, or contains itself; flatten it",
                LimitExceededError,
            )
        self.items -= length
        if self.items < 0:
            raise Refusal(
                f"the value has more than {self._limits.items} items; "
                "store it in parts under several keys",
                LimitExceededError,
            )

    def _grow(self, size: int) -> None:
        self.size -= size
        if self.size < 0:
            raise _too_large(self._limits)

    def _text(self, value: str) -> Any:
        try:
            self._grow(len(value) if value.isascii() else len(value.encode()))
        except UnicodeEncodeError:
            data = value.encode("utf-8", "surrogatepass")
            self._grow(len(data))
            return self._whole(ODD_TEXT, data, "text with lone surrogates")
        return value

    def _int(self, value: int) -> Ext:
        data = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
        self._grow(len(data))
        return self._whole(BIG_INT, data, "an int")

    def _whole(self, code: int, data: bytes, what: str) -> Ext:
        if len(data) > MOST_WHOLE:
            raise Refusal(
                f"{what} takes at most {MOST_WHOLE} bytes, because it is kept whole; use bytes",
                LimitExceededError,
            )
        return Ext(code, data)

    def _key_text(self, key: str) -> None:
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            raise Refusal("a key of a mapping holds a lone surrogate; use valid text") from None
        if size > MAP_KEY:
            raise _long_key()

    def _bad_key(self, key: Any) -> Refusal:
        if type(key) is int:
            return Refusal("an int key of a mapping must fit in 64 bits; use str(key)")
        return Refusal(
            f"a key of a mapping is a {type_name(type(key))}; only str and int keys can be stored, "
            "convert it"
        )

    def _other(self, value: Any, kind: type, depth: int) -> Any:
        if kind is bytes:
            self.raw = True
            self._grow(len(value))
            return value
        if kind is datetime:
            packed = pack_datetime(value)
            if packed is None:
                raise Refusal(
                    "a datetime needs a zone that can be stored (zoneinfo.ZoneInfo with a key, "
                    "or datetime.timezone); add one, for example with .astimezone(timezone.utc)"
                )
            return Ext(MOMENT, packed)
        if kind is Typed:
            return self._typed(value, depth)
        entry = self._codec.registry.find(kind)
        if entry is None:
            raise Refusal(advice(kind))
        try:
            payload = entry.to_plain(value)
        except InvalidValueError as error:
            raise Refusal(str(error)) from None
        except Exception as error:
            told = f"the object has not all fields of {entry.name!r} ({type(error).__name__})"
            raise Refusal(f"{told}; set them before storing it") from None
        self._enter(3, depth)
        made = Typed(entry.name, entry.version, self.any(payload, depth + 1))
        if entry.may_refuse:
            self._build(entry, made.value)
        return made

    def _build(self, entry: Entry, plain: Any) -> None:
        """Refuse an object that could not be read: its class does not build it.

        It is built from a copy, so that code of the class changes nothing of the caller's.
        """
        try:
            entry.from_plain(self._codec.decode(self._codec.encode(plain)))
        except UnknownTypeError:
            pass  # a `Typed` in it is of a class that others know
        except Exception as error:
            if isinstance(error, HoldfastError) and type(error) is not InvalidValueError:
                raise
            raise Refusal(
                f"{entry.name!r} cannot be built from the fields that this object has: its class "
                f"raised {type(error).__name__}; store it as its class takes it"
            ) from None

    def _typed(self, value: Typed, depth: int) -> Typed:
        """An object that was given in plain form."""
        try:
            check_name(value.name, value.version)
        except InvalidInputError as error:
            raise Refusal(str(error)) from None
        if value.name[0] == "$":
            sealed = value.name == SEALED and value.version == 1 and type(value.value) is bytes
            if not sealed or len(value.value) < SHORTEST:
                raise Refusal("names of types that begin with $ are not free; choose another")
        self._enter(3, depth)
        payload = self.any(value.value, depth + 1)
        return value if payload is value.value else Typed(value.name, value.version, payload)


# ---- type advice --------------------------------------------------------------------------------
# What to do about a part of a value whose type cannot be stored.


_INSTEAD = {
    "tuple": "use list(...)",
    "set": "use sorted(...) or list(...)",
    "frozenset": "use sorted(...) or list(...)",
    "bytearray": "use bytes(...)",
    "memoryview": "use bytes(...)",
    "date": "use .isoformat()",
    "time": "use .isoformat()",
    "timedelta": "use .total_seconds()",
    "Decimal": "use str(...)",
    "UUID": "use str(...)",
    "complex": "use [real, imag]",
    "Ext": "use bytes(...)",
    "PosixPath": "use str(...)",
    "WindowsPath": "use str(...)",
    "PurePosixPath": "use str(...)",
    "PureWindowsPath": "use str(...)",
    "ndarray": "use .tolist()",
    "ErasedPart": "it stands for what an erased subject's key sealed; leave it out",
}


def type_name(kind: type) -> str:
    """A type as an error names it."""
    place = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return place + kind.__qualname__


def advice(kind: type) -> str:
    """What to do about a part of this type."""
    told = f"a {type_name(kind)} would not come back as it was"
    if kind.__name__ in _INSTEAD:
        return f"{told}; {_INSTEAD[kind.__name__]}"
    for base in (dict, list, str, int, float, bytes, tuple, datetime):
        if issubclass(kind, base) and not hasattr(kind, "__members__"):
            return f"{told} (it is a subclass of {base.__name__}); use {base.__name__}(...)"
    if kind.__module__ == "numpy":
        return f"{told}; use .item()"
    if not can_be_registered(kind):
        return f"{told}; convert it to a dict, or to a dataclass that is registered"
    return (
        f"{told}; register its class with registry.register({kind.__name__}, "
        f"name={kind.__name__!r}), or convert it to a dict"
    )


# ---- msgpack scan -------------------------------------------------------------------------------
# Counts what msgpack data would become, without building it.
#
# 16 MB of empty arrays become more than 1 GB of objects. The scan reads headers only, skips
# over text and bytes, and stops at the first header that goes beyond the bounds, so its cost
# is that of the items allowed, not of the bytes given.


# Bytes a part takes when its first byte alone tells: small ints, nil, bools, numbers, short
# texts, and containers that are empty.
_FIXED = [0] * 256
for _b in range(256):
    if _b < 0x80 or _b >= 0xE0 or _b in (0x80, 0x90, 0xC0, 0xC2, 0xC3):
        _FIXED[_b] = 1
    elif 0xA0 <= _b < 0xC0:
        _FIXED[_b] = _b - 0xA0 + 1
for _b, _n in ((0xCA, 5), (0xCB, 9), (0xCC, 2), (0xCD, 3), (0xCE, 5), (0xCF, 9)):
    _FIXED[_b] = _n
for _b, _n in ((0xD0, 2), (0xD1, 3), (0xD2, 5), (0xD3, 9)):
    _FIXED[_b] = _n

# First byte -> bytes of the length that follows it.
_BLOB = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXT = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_ARRAY = {0xDC: 2, 0xDD: 4}
_MAP = {0xDE: 2, 0xDF: 4}


class TooMuch(Exception):
    """The data goes beyond a bound; the text says which."""


def check_bounds(data: bytes, depth: int, items: int, nested: int) -> None:
    """Raises `TooMuch` beyond the bounds, ValueError where the data is not msgpack.

    Extensions of kind `nested` hold msgpack themselves and are counted with the rest.
    """
    around: list[tuple[int, int]] = []
    """Of each container around: parts that are left there, and its level."""
    pos, parts, level = 0, 1, 0
    while parts or around:
        if not parts:
            parts, level = around.pop()
            continue
        if pos >= len(data):
            raise ValueError("cut short")
        parts -= 1
        first = data[pos]
        size = _FIXED[first]
        if size:
            pos += size
            continue
        count, pos, kind = _header(data, pos, first)
        if kind == nested:
            around.append((parts, level))
            parts = 1
        elif kind is None or kind >= 0:
            pos += count
        else:
            items -= count
            if items < 0:
                raise TooMuch("more items than are allowed")
            if level >= depth:
                raise TooMuch(f"more than {depth} levels")
            around.append((parts, level))
            parts, level = -kind * count, level + 1
    if pos != len(data):
        raise ValueError("does not end where it should")


def _header(data: bytes, pos: int, first: int) -> tuple[int, int, int | None]:
    """(length or count, position after the header, kind).

    Kind is None for text and bytes, -1 for an array, -2 for a map, else the extension's code.
    """
    if first & 0xF0 == 0x90:
        return first & 0x0F, pos + 1, -1
    if first & 0xF0 == 0x80:
        return first & 0x0F, pos + 1, -2
    for table, kind in ((_BLOB, None), (_ARRAY, -1), (_MAP, -2)):
        if first in table:
            after = pos + 1 + table[first]
            return int.from_bytes(data[pos + 1 : after], "big"), after, kind
    if first in _FIXED_EXT:
        return _FIXED_EXT[first], pos + 2, _code(data, pos + 1)
    if first in _EXT:
        after = pos + 1 + _EXT[first]
        return int.from_bytes(data[pos + 1 : after], "big"), after + 1, _code(data, after)
    raise ValueError("not msgpack")


def _code(data: bytes, pos: int) -> int:
    # Negative codes are reserved by msgpack and hold no parts: any code that is not ours.
    if pos >= len(data):
        raise ValueError("cut short")
    return data[pos] if data[pos] < 0x80 else 0


# ---- datetimes ----------------------------------------------------------------------------------
# Datetimes with a zone, to bytes and back.
#
# Kept are the wall time to the microsecond, `fold`, the offset from UTC and the zone: the key of
# a `zoneinfo.ZoneInfo`, or the fixed offset (and name) of a `datetime.timezone`. If the reader's
# zone data is missing or gives another offset for that wall time today, the instant and offset
# that were written come back with a fixed-offset zone: they never change silently.


_encode = msgspec.msgpack.Encoder().encode
_Fields = tuple[int, int, int, int, int, int, int, int, int, str | None, str | None]
_decode = msgspec.msgpack.Decoder(_Fields).decode

_MICROSECOND = timedelta(microseconds=1)


def pack_datetime(moment: datetime) -> bytes | None:
    """The bytes of a datetime, or None if it has no zone or one that cannot be stored."""
    zone = moment.tzinfo
    key: str | None = None
    name: str | None = None
    if type(zone) is zoneinfo.ZoneInfo:
        key = zone.key
        if not key:  # made from a file: nothing names it
            return None
    elif type(zone) is timezone:
        # The only way to tell a given name from the one that is made of the offset.
        given = zone.__getinitargs__()  # type: ignore[attr-defined]
        name = given[1] if len(given) > 1 else None
    else:
        return None
    offset = moment.utcoffset()
    assert offset is not None
    wall = moment.timetuple()[:6]
    try:
        return _encode((*wall, moment.microsecond, moment.fold, offset // _MICROSECOND, key, name))
    except UnicodeEncodeError:
        return None


def unpack_datetime(data: bytes) -> datetime:
    """The datetime; ValueError or a msgspec error if the bytes are not one."""
    year, month, day, hour, minute, second, micro, fold, offset, key, name = _decode(data)
    delta = timedelta(microseconds=offset)
    fixed = timezone(delta) if name is None else timezone(delta, name)
    moment = datetime(year, month, day, hour, minute, second, micro, fixed, fold=fold)
    if key is not None:
        try:
            zoned = moment.replace(tzinfo=zoneinfo.ZoneInfo(key))
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return moment
        return zoned if zoned.utcoffset() == delta else moment
    return moment


# ---- limits -------------------------------------------------------------------------------------
# How large values may be.


DEEPEST = 400
"""Levels that can be kept: two calls for each fit on Python's stack, beside those of the caller."""


@dataclass(frozen=True)
class ValueLimits:
    """How large one value may be: nesting, parts in all containers together, encoded bytes.

    They hold for what one call writes. What is stored is read whatever they are: reading is bounded
    by the usual numbers of items and bytes, or by larger ones that are given, and by as many levels
    as can be kept. Only bytes beyond `size` are read in pieces, with `open_read`.
    """

    depth: int = 256
    """At most 400: a value is walked by calls, and Python's stack ends at 1,000 of them."""
    items: int = 1_000_000
    size: int = 256 << 20
    long: int = 1 << 38
    """Bytes of a value that is written with `open_write` or `put_file`; more than these 256 GiB
    cannot be given."""

    def __post_init__(self) -> None:
        for name in ("depth", "items", "size", "long"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInputError(f"the limit {name} is a number of at least 1")
        if self.depth > DEEPEST:
            raise InvalidInputError(f"the limit depth is at most {DEEPEST}: Python's stack ends")
        if self.long > 1 << 38:
            raise InvalidInputError("the limit long is at most 256 GiB: packs have short numbers")


# ---- typed --------------------------------------------------------------------------------------
# Values as the type that a reader asked for, and what is told where they do not fit.


def convert(value: Any, type_: Any, what: str) -> Any:
    """The value as `type_`: a builtin, dataclass, Struct, enum, container type or model.

    Raises `InvalidValueError` that says of `what` where it does not fit, and what was expected,
    never the value.
    """
    if isinstance(type_, type) and type(value) is type_:
        return value
    validate = getattr(type_, "model_validate", None)
    if isinstance(type_, enum.EnumMeta):
        validate = type_  # msgspec knows only enums of text or of numbers
    try:
        return validate(value) if validate else msgspec.convert(value, type_)
    except Exception as error:
        text, path = complaints(error)[0]
    wanted = getattr(type_, "__qualname__", None) or str(type_)
    raise InvalidValueError(f"{what} does not fit {wanted}: {text} at {path}", path)


def complaints(error: Exception) -> list[tuple[str, str]]:
    """What msgspec or pydantic says is wrong, and where; no text that would repeat a value.

    Of what a class raised itself, such as in `__post_init__`, the kind only.
    """
    if isinstance(error, msgspec.ValidationError):
        own = error.__cause__  # msgspec repeats its text, and says the path behind it
        said = str(error) if own is None else str(error)[len(str(own)) :]
        text, _, path = said.partition(" - at `")
        if own is not None:
            text = f"{type(own).__name__} was raised"
        elif not text.startswith(("Expected", "Object missing", "Object contains")):
            text = "a part is not allowed there"
        return [(text, path.rstrip("`") or "$")]
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return [(f"{type(error).__name__} was raised", "$")]
    found = errors(include_input=False, include_url=False, include_context=False)
    return [(str(one["type"]), "$" + "".join(map(step_text, one["loc"]))) for one in found]
