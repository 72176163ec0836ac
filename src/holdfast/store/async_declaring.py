"""Declaring on the async face."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.declaring import plan_declare, plan_undeclare

if TYPE_CHECKING:
    from holdfast.store.declared import Declaration
    from holdfast.store.handles import LineHandle
    from holdfast.store.pump import Pump


class StateDeclaring:
    """What a state's owner can declare of it."""

    _handle: LineHandle
    _pump: Pump

    async def declare(self, *declarations: Declaration) -> int:
        """Set rules that every writer of this timeline follows from now on; see `holdfast.Sticky`.

        One entry, whose number is returned; what is declared already is not written again. A
        declaration of the same kind and name replaces the one before. A fork takes them along.
        """
        plan = plan_declare(self._handle, declarations)
        return await self._pump.commit(plan) if plan is not None else self._handle.place()[2]

    async def undeclare(self, *declarations: Declaration) -> int:
        """Take declarations back, by their kind and name; tells how many of them there were."""
        plan = plan_undeclare(self._handle, declarations)
        return await self._pump.commit(plan) if plan is not None else 0

    async def declared(self) -> list[Declaration]:
        """All that is declared, sorted by kind and name."""
        return list(self._handle.reader.declared().all)
