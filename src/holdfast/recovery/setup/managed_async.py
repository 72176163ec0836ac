"""Setting an agent up by a configuration, on the async face.

By hand, for a store is: it is opened, and closed, on the face on which it is used, and one that was
given is the same object in what was set up. All else is done by the blocking face, on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.checkpoints import Checkpoints
from holdfast.recovery.context import StepFunction, machines_on_loop
from holdfast.recovery.setup import managed as blocking
from holdfast.recovery.setup.alerts import Tell
from holdfast.recovery.setup.configuration import Configuration
from holdfast.store.names.face import given
from holdfast.store.names.threads import OnLoop, to_the_end
from holdfast.store.store_async import Store, open

if TYPE_CHECKING:
    from holdfast.recovery import Managed


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
        found._own = store is None
        # Made by hand, for these are of the face on which they are used: the store that was given
        # or opened, and what calls functions of the user's where it is called.
        managed: Any = given(found)
        managed.store, managed.state = opened, opened.scope(found.state.scope)
        managed.recovery, managed._loops = given(found.recovery), (on_loop,)
        managed.recovery._loops = (on_loop,)
        hold = managed.replicas.hold if managed.replicas is not None else None
        managed.checkpoints = Checkpoints(managed.state, sync=hold)
        done: Managed = managed
        return done


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
