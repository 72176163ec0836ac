"""Setting an agent up by a configuration, on the async face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.checkpoints.policy.policies_async import Policies
from holdfast.recovery.context import StepFunction
from holdfast.recovery.recovery_async import Recovery
from holdfast.recovery.setup.configuration import Configuration
from holdfast.recovery.setup.managed import (
    SetUp,
    check_set_up,
    first_sync,
    opening,
    placing,
    put_in_force,
)
from holdfast.recovery.watchdog_async import Scrubber
from holdfast.store.names.threads import to_the_end
from holdfast.store.state_async import State
from holdfast.store.store_async import Store, open

if TYPE_CHECKING:
    from holdfast.backup.backups_async import Backups
    from holdfast.replicas.replicas_async import Replicas


class Managed:
    """An agent that was set up: its store, its state, and what takes care of them."""

    def __init__(
        self,
        store: Store,
        config: Configuration,
        recovery: Recovery,
        policies: Policies,
        replicas: tuple[Replicas | None, Sequence[Store]],
        own: bool,
    ) -> None:
        self.store = store
        self.state: State = store.agent(config.agent_id)
        self.policies = policies
        self.recovery = recovery
        self.backups = backups_of(config, store)
        self.replicas, copies = replicas
        """What keeps replicas up to date, in the background, if the configuration names any."""
        self.scrubber: Scrubber | None = None
        """What checks the store in the background, if the configuration asks for that."""
        if config.scrub_interval is not None:
            self.scrubber = Scrubber(store, interval=config.scrub_interval, copies=copies)
        self.report: SetUp
        self._own = own

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
        async with AsyncExitStack() as ends:  # each of them, whatever becomes of the others
            if self._own:
                ends.push_async_callback(self.store.close)
            ends.push_async_callback(self.policies.close)
            if self.scrubber is not None:
                ends.push_async_callback(self.scrubber.stop)
            if self.replicas is not None:
                ends.push_async_callback(self.replicas.stop)


def backups_of(config: Configuration, store: Store) -> Backups | None:
    """The backups of a store at the place that a configuration names."""
    if config.backup is None:
        return None
    from holdfast.backup.backups_async import Backups

    return Backups(store, **placing(config.backup))


def replicas_of(config: Configuration, store: Store) -> Replicas | None:
    """The replicas that a configuration names."""
    if config.replication is None:
        return None
    from holdfast.replicas.replicas_async import Replicas

    return Replicas(store, config.replication.urls, factor=config.replication.factor)


async def set_up(
    config: Configuration,
    *,
    store: Store | None = None,
    initial: Mapping[str, Any] | None = None,
    steps: Mapping[str, StepFunction] | None = None,
    machines: Mapping[str, MachineDefinition] | None = None,
) -> Managed:
    """Set an agent up as a configuration says; see `holdfast.sync.set_up`."""
    check_set_up(config, initial, store, Store)
    opened = store if store is not None else await open(**opening(config))
    try:
        replicas = replicas_of(config, opened)
        blocking = replicas._blocking if replicas is not None else None
        trouble = await to_the_end(first_sync, blocking)
        copies = await replicas.copies() if replicas is not None else []
        recovery = Recovery(
            opened,
            procedures=config.procedures,
            steps=steps,
            copies=copies,
            machines=machines,
        )
        policies = Policies(opened)
        managed = Managed(opened, config, recovery, policies, (replicas, copies), store is None)
        try:
            managed.report = await to_the_end(
                put_in_force,
                config,
                recovery._blocking,
                policies._blocking,
                initial,
                trouble,
                given=store is not None,
            )
            if managed.scrubber is not None:
                await managed.scrubber.start()
            if replicas is not None:
                await replicas.start()
        except BaseException:
            await policies.close()
            raise
    except BaseException:
        if store is None:
            await opened.close()
        raise
    return managed
