"""Setting an agent up by a configuration, on the async face.

By hand, for a store is: it is opened, and closed, on the face on which it is used, and one that was
given is the same object in what was set up. All else is done by the blocking face, on a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.recovery import managed as blocking
from holdfast.recovery.configuration import Configuration
from holdfast.recovery.context import StepFunction, machines_on_loop
from holdfast.store.names.face import given
from holdfast.store.names.threads import OnLoop, surely, to_the_end
from holdfast.store.state_async import State
from holdfast.store.store_async import Store, open

if TYPE_CHECKING:
    from holdfast.backup import Backups
    from holdfast.checkpoints import Policies
    from holdfast.recovery import Recovery, Scrubber
    from holdfast.replicas import Replicas


class Managed:
    """An agent that was set up: its store, its state, and what takes care of them."""

    def __init__(self, store: Store, found: blocking.Managed, own: bool, on_loop: OnLoop) -> None:
        self._blocking = found
        self._own = own
        self.store = store
        self.state: State = store.scope(found.state.scope)
        self.policies: Policies = given(found.policies)
        self.recovery: Recovery = given(found.recovery)
        self.recovery._loops = (on_loop,)  # functions of machines run where it is called
        self.backups: Backups | None = given(found.backups)
        self.replicas: Replicas | None = given(found.replicas)
        """What keeps replicas up to date, in the background, if the configuration names any."""
        self.scrubber: Scrubber | None = given(found.scrubber)
        """What checks the store in the background, if the configuration asks for that."""
        self.report = found.report

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Watch no longer; a store that was opened for it is closed."""
        try:
            await surely(self._blocking.close)
        finally:
            if self._own:
                await self.store.close()


async def set_up(
    config: Configuration,
    *,
    store: Store | None = None,
    initial: Mapping[str, Any] | None = None,
    steps: Mapping[str, StepFunction] | None = None,
    machines: Mapping[str, MachineDefinition] | None = None,
) -> Managed:
    """Set an agent up as a configuration says; see `holdfast.sync.recovery.set_up`."""
    blocking.check_set_up(config, initial, store, Store)
    on_loop = OnLoop()
    on_loop.use()
    opened = store if store is not None else await open(**blocking.opening(config))
    try:
        found = await to_the_end(
            blocking.set_up_in,
            opened._blocking,
            config,
            initial,
            steps,
            machines_on_loop(machines, on_loop),
            given=store is not None,
            undo=blocking.Managed.close,
        )
    except BaseException:  # also a cancelled start: a store that was opened for it is closed
        if store is None:
            await opened.close()
        raise
    return Managed(opened, found, store is None, on_loop)
