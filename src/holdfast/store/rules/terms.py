"""Terms as text that sorts as they do: what a lookup is sorted by.

A term is None, a bool, an int, a float, a datetime with a zone, text or bytes. Types are never
confused: each has its letter in front, so that 1, True, 1.0 and "1" are four terms, and a range
stays within one type. Within a type, the order of the encoded text by code point is the order of
the terms: numbers by size, moments by instant, text by code point, bytes by byte.

| letter | term | then |
| --- | --- | --- |
| `0` | the value has no such part, or it is none of these types | |
| `1` | None | |
| `2` | bool | `0` or `1` |
| `3` | int | sign, number of hexadecimal digits, digits; those of a negative one complemented |
| `4` | float | 16 hexadecimal digits of its bits, flipped so that they sort; -0.0 as 0.0 |
| `5` | nan, all of them | |
| `6` | datetime | its microseconds since 1970 as an int: equal instants are equal terms |
| `7` | text | itself, NUL escaped, ended by NUL |
| `8` | bytes | hexadecimal digits, ended by NUL |

What is longer than `LONG` is cut there and followed by a hash of the whole: equality stays exact,
and only among those that begin alike for so long is the order not theirs. Each encoded term says
where it ends, so that several in a row can be told apart.
"""

from __future__ import annotations

import hashlib
import re
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.store.journal.key_range import behind

LONG = 64
"""Characters of a text, bytes of bytes, and hexadecimal digits of a number that are kept."""
ABSENT = "0"
NONE, BOOL, INT, FLOAT, NAN, MOMENT, TEXT, BYTES = "12345678"

_END = "\0"
_CUT = "\0\xfe"
"""Behind what is cut; sorts behind the end of a text that is just as long, before all others."""
_HASH = 32
AFTER = "\x7f"
"""Behind a whole term stands another's letter or a slash: this sorts behind both, and before what
stands inside a longer text at its place."""
_odd = re.compile("[\0\ud7ff-\udfff]")
_START = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)
_bits = struct.Struct(">d").pack
_complement = str.maketrans("0123456789abcdef", "fedcba9876543210")


def encode_term(term: Any) -> str | None:
    """The text that stands for a term; None if it is of no type that can be one."""
    kind = type(term)
    if kind is str:
        return TEXT + _text(term)
    if kind is bool:
        return BOOL + ("1" if term else "0")
    if kind is int:
        return INT + _int(term)
    if kind is float:
        return _float(term)
    if term is None:
        return NONE
    if kind is datetime and term.tzinfo is not None:
        return MOMENT + _int((term - _START) // _MICROSECOND)
    if kind is bytes:
        return BYTES + _bytes(term)
    return None


def _text(text: str) -> str:
    head = text if len(text) <= LONG else text[:LONG]
    if _odd.search(head):
        head = _odd.sub(_escaped, head)
    if len(text) <= LONG:
        return head + _END
    return head + _CUT + _hash(text.encode("utf-8", "surrogatepass"))


def _escaped(found: re.Match[str]) -> str:
    """NUL, and halves of pairs: a stored text has none. The order stays that of code points."""
    character = found[0]
    if character == "\0":
        return "\0\xff"
    return "\ud7ff" + chr(ord(character) - 0xD7FF + 1)


def _bytes(data: bytes) -> str:
    if len(data) <= LONG:
        return data.hex() + _END
    return data[:LONG].hex() + _CUT + _hash(data)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH]


def _int(number: int) -> str:
    digits = f"{abs(number):x}"
    length = f"{len(digits):x}"
    text = f"{len(length)}{length}{digits[:LONG]}"
    text = "1" + text if number >= 0 else "0" + text.translate(_complement)
    return text + _hash(digits.encode()) if len(digits) > LONG else text


def _float(number: float) -> str:
    if number != number:
        return NAN
    bits = int.from_bytes(_bits(number or 0.0), "big")
    flipped = bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63)
    return f"{FLOAT}{flipped:016x}"


def split_terms(text: str, count: int) -> list[str]:
    """The encoded terms, `count` of them, that a text begins with."""
    found = []
    at = 0
    for _ in range(count):
        end = _end_of(text, at)
        found.append(text[at:end])
        at = end
    return found


def _end_of(text: str, at: int) -> int:
    """Where the encoded term that begins at a position ends."""
    kind = text[at]
    if kind in (ABSENT, NONE, NAN):
        return at + 1
    if kind == BOOL:
        return at + 2
    if kind == FLOAT:
        return at + 17
    if kind in (INT, MOMENT):
        return _int_end(text, at + 1)
    end = text.index(_END, at)
    while text[end + 1 : end + 2] == "\xff":
        end = text.index(_END, end + 2)
    if text[end + 1 : end + 2] == _CUT[1]:
        return end + 2 + _HASH
    return end + 1


def _int_end(text: str, at: int) -> int:
    head = text[at + 1 : at + 11]
    if text[at] == "0":
        head = head.translate(_complement)
    size = int(head[0], 16)
    digits = int(head[1 : 1 + size], 16)
    return at + 2 + size + (digits if digits <= LONG else LONG + _HASH)


def equal(term: Any) -> tuple[str, str]:
    """The bounds between which, the upper one left out, just this term lies."""
    text = _must_be_term(term)
    return text, text + AFTER


def begins(text: Any) -> tuple[str, str]:
    """The bounds of all texts (or bytes) that begin with one."""
    if type(text) not in (str, bytes) or len(text) > LONG:
        raise InvalidInputError(f"a beginning is text or bytes of at most {LONG}")
    low = _must_be_term(text)[: -len(_END)]
    return low, behind(low)


def between(gt: Any, ge: Any, lt: Any, le: Any, missing: object) -> tuple[str, str]:
    """The bounds of a range; `missing` stands for a side that is not given."""
    sides = [side for side in (gt, ge, lt, le) if side is not missing]
    if not sides or (gt is not missing and ge is not missing):
        raise InvalidInputError("a range takes gt or ge, lt or le, or one of each")
    if lt is not missing and le is not missing:
        raise InvalidInputError("a range takes lt or le, not both")
    texts = [_must_be_term(side) for side in sides]
    kinds = {text[0] for text in texts}
    if len(kinds) > 1 or kinds & {NONE, NAN}:
        raise InvalidInputError("the bounds of a range are of one type, and neither None nor nan")
    for side in sides:
        if type(side) in (str, bytes) and len(side) > LONG:
            raise InvalidInputError(f"a bound is text or bytes of at most {LONG}")
        if type(side) is int and abs(side) >= 16**LONG:
            raise InvalidInputError(f"a bound is a number of at most {LONG} hexadecimal digits")
    kind = kinds.pop()
    low, high = kind, behind(kind)
    if ge is not missing:
        low = _must_be_term(ge)
    if gt is not missing:
        low = _must_be_term(gt) + AFTER
    if lt is not missing:
        high = _must_be_term(lt)
    if le is not missing:
        high = _must_be_term(le) + AFTER
    return low, high


def _must_be_term(term: Any) -> str:
    if type(term) is datetime and term.tzinfo is None:
        raise InvalidInputError("a moment needs a zone, for example datetime.now(UTC)")
    text = encode_term(term)
    if text is None:
        raise InvalidInputError(
            f"{type(term).__name__} is no term; terms are None, bool, int, float, text, bytes and "
            "datetimes with a zone"
        )
    return text
