"""Reading rows of a range page by page, and doing again what others were faster to change.

The two loops that everything above needs: a scan gives a bounded number of rows, and a commit may
meet a conflict. Nobody writes either by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.errors import Conflict

PAGE = 1000
"""Rows that are read at once, unless their reader knows better."""
ATTEMPTS = 100
"""How often something is tried again; so many others in a row are not met without a defect."""

_T = TypeVar("_T")
Row = tuple[bytes, bytes]
Read = Callable[..., Sequence[Row]]
"""`scan` or `cells` of a storage or a moment."""


def pages(
    read: Read, low: bytes, high: bytes, *, limit: int = PAGE, reverse: bool = False
) -> Iterator[Sequence[Row]]:
    """The rows with low <= key < high, in lists of at most `limit`; from the end if `reverse`.

    Each page is read when it is asked for: rows that are put or dropped meanwhile may be seen.
    """
    more: dict[str, Any] = {"reverse": True} if reverse else {}
    while page := read(low, high, limit=limit, **more):
        yield page
        if len(page) < limit:
            return  # the last one: asking again would cost a call for nothing
        if reverse:
            high = page[-1][0]
        else:
            low = page[-1][0] + b"\0"


def each(
    read: Read, low: bytes, high: bytes, *, limit: int = PAGE, reverse: bool = False
) -> Iterator[Row]:
    """The same, row by row."""
    for page in pages(read, low, high, limit=limit, reverse=reverse):
        yield from page


def again(
    step: Callable[[], _T],
    otherwise: str = "",
    *,
    on: type[Exception] | tuple[type[Exception], ...] = Conflict,
    when: Callable[[Any], bool] | None = None,
    times: int = ATTEMPTS,
    pause: float = 0.0,
) -> _T:
    """Do a step that reads and commits; anew after each `on`, which says that others were faster.

    After so many times `Conflict` says `otherwise`, which tells what to do; without it the last
    error says it. A step that cannot go on, whatever is read anew, raises something else; or `when`
    says of its error that it cannot. `pause`: seconds that others are given in between.
    """
    for left in reversed(range(times)):
        try:
            return step()
        except on as error:
            if (when is not None and not when(error)) or not (left or otherwise):
                raise
            last = error
        if pause:
            time.sleep(pause)
    raise Conflict(otherwise, last.keys if isinstance(last, Conflict) else []) from None
