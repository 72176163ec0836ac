"""Declaring, and trimming, on the async face."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.names.threads import here_or_away, to_the_end
from holdfast.store.rules.trim import plan_trim, trim_of
from holdfast.store.state_declarations import declare, undeclare

if TYPE_CHECKING:
    from holdfast.store.commits_async import Pump
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.rules.declared import Declaration


class ViewDeclaring:
    """What is declared of a state, now or at a point."""

    _handle: LineHandle

    async def declared(self) -> list[Declaration]:
        """All that is declared, sorted by kind and name."""
        return list(self._handle.reader.declared().all)


class StateDeclaring:
    """What a state's owner can declare of it."""

    _handle: LineHandle

    async def declare(self, *declarations: Declaration) -> int:
        """Set rules that every writer of this timeline follows from now on; see `holdfast.Sticky`.

        One entry, whose number is returned; what is declared already is not written again. A
        declaration of the same kind and name replaces the one before. A fork takes them along.
        """
        return await to_the_end(declare, self._handle, declarations)

    async def undeclare(self, *declarations: Declaration) -> int:
        """Take declarations back, by their kind and name; tells how many of them there were."""
        return await to_the_end(undeclare, self._handle, declarations)


class StateTrimming:
    """Trimming a list."""

    _handle: LineHandle
    _pump: Pump

    async def trim(
        self,
        key: str,
        *,
        keep_last: int | None = None,
        before: int | None = None,
        if_version: int | None = None,
    ) -> int:
        """Remove the oldest items of a list: all but the last few, or those before a position.

        Returns how many went; items move to the front by so many positions. `keep_last` may be
        repeated by anyone at any time; `before` is a position in the list as it is when the trim
        is applied, so where several trim, give `if_version` or read and trim in one change.
        """
        storage, trim = self._handle.core.storage, trim_of(keep_last, before)
        plan = await here_or_away(storage, plan_trim, self._handle, key, trim, if_version)
        return await self._pump.commit(plan) if plan is not None else 0
