"""Setting an agent up by a configuration, on the async face.

By hand, for a store is: it is opened, and closed, on the face on which it is used, and one that was
given is the same object in what was set up. All else is done by the blocking face, on a thread.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.checkpoints import Checkpoints
from holdfast.recovery.context import StepFunction, machines_on_loop
from holdfast.recovery.setup import managed as blocking
from holdfast.recovery.setup.alerts import Tell
from holdfast.recovery.setup.configuration import Configuration
from holdfast.store.names.face import given
from holdfast.store.names.items import Checkpoint, Entry
from holdfast.store.names.threads import OnLoop, read_away, surely, to_the_end
from holdfast.store.state_async import State
from holdfast.store.store_async import Store, open

if TYPE_CHECKING:
    from holdfast.backup import Backups
    from holdfast.checkpoints import Policies
    from holdfast.checkpoints.create import CheckpointResult
    from holdfast.checkpoints.restore_request import RestoreResult
    from holdfast.recovery import Recovery, RecoveryReport, Scrubber
    from holdfast.replicas import Replicas, SyncReport


class Managed:
    """An agent that was set up: its store, its state, and what takes care of them.

    All that can be done with the agent's state is here: `checkpoint`, `restore`, `list`,
    `validate`, `recover`, `synchronise`, `history` and `status`, with its policies in force.
    """

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
        """What keeps replicas up to date, in the background, if there are any."""
        hold = self.replicas.hold if self.replicas is not None else None
        self.checkpoints = Checkpoints(self.state, sync=hold)
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
        """Stop all that runs beside the agent, each after what it is at; a store that was opened
        for it is closed."""
        try:
            await surely(self._blocking.close)
        finally:
            if self._own:
                await self.store.close()

    async def checkpoint(self, request: Any = "", **fields: Any) -> CheckpointResult:
        """Make a checkpoint, as `Checkpoints.create` does; `sync=True` waits for the replicas."""
        return await self.checkpoints.create(request, **fields)

    async def restore(self, request: Any = None, **fields: Any) -> RestoreResult:
        """Return to a point, as `Checkpoints.restore` does."""
        return await self.checkpoints.restore(request, **fields)

    async def list(self, *, limit: int | None = None, **where: Any) -> builtins.list[Checkpoint]:
        """Checkpoints of the agent, the newest first, as `Checkpoints.find` does."""
        return await self.checkpoints.find(limit=limit, **where)

    async def validate(self) -> builtins.list[str]:
        """What is wrong with the agent's newest state: damage, or what a check refuses."""
        return await read_away(self._blocking.validate)

    async def recover(self, failure: Any = "unknown", **more: Any) -> RecoveryReport:
        """Bring the agent back to a good state, as `Recovery.recover` does."""
        return await self.recovery.recover(self.state, failure, **more)

    async def synchronise(self) -> SyncReport:
        """Bring all replicas up to now."""
        return await to_the_end(self._blocking.synchronise)

    async def history(self, *, limit: int | None = None) -> builtins.list[Entry]:
        """What was written to the agent, the newest first, with who and why."""
        return await self.state.log(limit=limit)

    async def status(self) -> blocking.RunningStatus:
        """How the agent and all that runs beside it are now."""
        return await read_away(self._blocking.status)


class SettingUp:
    """What `set_up` returns: await it, or use it with `async with`."""

    def __init__(self, config: Any, given: dict[str, Any]) -> None:
        self._config, self._given = config, given
        self._managed: Managed | None = None

    def __await__(self) -> Generator[Any, None, Managed]:
        return self._run(**self._given).__await__()

    async def __aenter__(self) -> Managed:
        self._managed = await self
        return self._managed

    async def __aexit__(self, *_: object) -> None:
        if self._managed is not None:
            await self._managed.close()

    async def _run(
        self, store: Store | None, initial: Any, machines: Any, agents: Any, **beside: Any
    ) -> Managed:
        config, on_loop = Configuration.load(self._config), OnLoop()
        on_loop.use()
        if beside["on_alert"] is not None:
            beside["on_alert"] = on_loop.wrap(beside["on_alert"], "on_alert")

        def run(state: Any, make: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
            from holdfast.agents import Loop

            own = given(state)
            return lambda: Loop(own, make, signals=()), on_loop.wait

        made = blocking.Beside(
            machines=machines_on_loop(machines, on_loop),
            agents=blocking.agents_of(config, agents),
            run=run,
            **beside,
        )
        blocking.check_set_up(config, initial, store, Store, made)
        opened = store if store is not None else await open(**blocking.opening(config))
        try:
            found = await to_the_end(
                blocking.set_up_in,
                opened._blocking,
                config,
                initial,
                made,
                given=store is not None,
                undo=blocking.Managed.close,
            )
        except BaseException:  # also a cancelled start: a store that was opened for it is closed
            if store is None:
                await opened.close()
            raise
        return Managed(opened, found, store is None, on_loop)


def set_up(
    config: Configuration | Mapping[str, Any] | str | Path,
    *,
    store: Store | None = None,
    initial: Mapping[str, Any] | None = None,
    steps: Mapping[str, StepFunction] | None = None,
    machines: Mapping[str, MachineDefinition] | None = None,
    agents: Sequence[Any] | Mapping[str, Any] = (),
    validate: Sequence[Callable[[Any], Any]] = (),
    replicas: Sequence[str | Path] = (),
    on_alert: Tell | None = None,
    start: bool = True,
) -> SettingUp:
    """Set an agent up as a configuration says, and start all that runs beside it: await it, or
    use it with `async with`; see `holdfast.sync.recovery.set_up`."""
    beside = {"steps": steps, "validate": validate, "replicas": replicas, "on_alert": on_alert}
    more = {"store": store, "initial": initial, "machines": machines, "agents": agents}
    return SettingUp(config, {**more, **beside, "start": start})
