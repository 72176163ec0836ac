"""Points and times as people write them."""

from __future__ import annotations

import re
from datetime import datetime

from holdfast.errors import InvalidInputError

_LIKE_A_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?|\d{8}T.*")


def point(text: str) -> int | str | datetime:
    """An entry's number, a time, or else a name: TIMELINE@NUMBER or a checkpoint's.

    A checkpoint whose name looks like a number or a time is reached by its id, TIMELINE@NUMBER.
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    return moment(text) if _LIKE_A_TIME.fullmatch(text) else text


def bound(text: str) -> int | datetime:
    """An entry's number or a time."""
    found = point(text)
    if isinstance(found, str):
        raise InvalidInputError("--since and --until take an entry's number or an ISO 8601 time")
    return found


def moment(text: str) -> datetime:
    """An ISO 8601 time; without a zone it is meant where this program runs."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError("that is no time; write one as 2026-11-15T10:30:00+01:00") from None
    return found if found.tzinfo is not None else found.astimezone()
