"""Lookups on the async face."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.store.commit.lookup_build import rebuild_lookup
from holdfast.store.names.threads import to_the_end
from holdfast.store.read.find import question

if TYPE_CHECKING:
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.names.items import Page
    from holdfast.store.read.reader import Reader


class ViewFinding:
    """What a view can find by something else than the key."""

    _read: Reader
    _do: Callable[..., Awaitable[Any]]

    async def find(
        self,
        lookup: str,
        where: Mapping[str, Any] | None = None,
        /,
        *,
        order: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        values: bool = False,
        plain: bool = False,
        **terms: Any,
    ) -> Page:
        """Keys whose values have these terms: a page of keys, or (`values`) of (key, value).

        A term is asked for by its value, or a `Range`, or what it `Begins` with; those whose names
        are taken here, in a mapping in front. Answers are sorted by the lookup's terms, then by
        key; `order="due"`, or `"-due"` for the other direction, says by which, once all terms
        before it are asked for by value. For the next page give `after=page.after`.
        """
        asked = question(lookup, where, terms, order, limit, after)
        return await self._do(self._read.find, asked, values, plain)  # type: ignore[no-any-return]


class StateLookups:
    """What a state can do about its lookups."""

    _handle: LineHandle

    async def rebuild(self, lookup: str) -> None:
        """Make a lookup anew from the values, in entries of bounded size, beside other writers."""
        await to_the_end(rebuild_lookup, self._handle, lookup)
