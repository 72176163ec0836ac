"""What to do about a part of a value whose type cannot be stored."""

from __future__ import annotations

import datetime

from holdfast.seal.registry import can_be_registered

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
    for base in (dict, list, str, int, float, bytes, tuple, datetime.datetime):
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
