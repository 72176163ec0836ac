"""Datetimes with a zone, to bytes and back.

Kept are the wall time to the microsecond, `fold`, the offset from UTC and the zone: the key of
a `zoneinfo.ZoneInfo`, or the fixed offset (and name) of a `datetime.timezone`. If the reader's
zone data is missing or gives another offset for that wall time today, the instant and offset
that were written come back with a fixed-offset zone: they never change silently.
"""

from __future__ import annotations

import zoneinfo
from datetime import datetime, timedelta, timezone

import msgspec

_encode = msgspec.msgpack.Encoder().encode
_Fields = tuple[int, int, int, int, int, int, int, int, int, str | None, str | None]
_decode = msgspec.msgpack.Decoder(_Fields).decode

_MICROSECOND = timedelta(microseconds=1)


def pack(moment: datetime) -> bytes | None:
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


def unpack(data: bytes) -> datetime:
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
