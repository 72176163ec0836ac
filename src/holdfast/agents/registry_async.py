"""The agents of a store, on the async face.

By hand: its lock belongs to tasks, also to those that a task inside of it begins (`lock_async`),
and what it makes and stops are agents whose methods are awaited.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from holdfast.agents import Attached, Loop
from holdfast.agents.agent_async import Agent, attach
from holdfast.agents.agent_registry import (
    ALIVE,
    AgentInfo,
    Make,
    Registering,
    Run,
    Wanting,
    closing,
    refuse_beside,
    still_runs,
)
from holdfast.agents.lock_async import NestingLock
from holdfast.agents.loop.decide import LoopResult
from holdfast.agents.state.shapes import Identity
from holdfast.errors import InvalidInputError, MissingError
from holdfast.store.inner import Lease, core_of, taken_async
from holdfast.store.names.face import taken as blocking_of
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import here_or_away, read_away, surely, to_the_end
from holdfast.store.state_async import State
from holdfast.store.store_async import Store


class Agents:
    """Who the agents of a store are, and those of them that run here.

        agents = Agents(store, {"greeter": lambda identity: Greeter()})
        await agents.register("7", kind="greeter")
        (await agents.get("7")).greet("ann")

    An identity is part of the agent's own scope, and stays when its state is restored. Whoever
    runs an agent holds its lease: it runs in one process, and what another still writes for it is
    refused. `kinds` say how agents are made, `fields` which attributes of a kind are kept if it
    does not say so itself. An agent of a process that died can be spawned `duration` seconds after.
    """

    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, Make] | None = None,
        *,
        fields: Mapping[str, Iterable[str]] | None = None,
        duration: float = 30.0,
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("Agents takes a store; those of holdfast.sync have its own")
        self._store = store
        self._core = Registering(core_of(store), kinds or {}, fields or {}, duration, awaited=True)
        self._running: dict[str, tuple[Attached, Lease]] = {}
        self._loops: dict[str, Run[Loop]] = {}
        self._lock = NestingLock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # who they are

    async def register(
        self,
        id: str,
        *,
        kind: str = "",
        name: str = "",
        version: str = "",
        description: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> Identity:
        """Say who an agent is, now and after every restart; its kind stays what it is."""
        given = {
            "kind": kind,
            "name": name,
            "version": version,
            "description": description,
            "metadata": metadata,
        }
        return await self._register(id, given)

    async def _register(self, id: str, given: Mapping[str, Any]) -> Identity:
        state = self._store.agent(id)
        plan, made = await here_or_away(state._storage, self._core.plan_register, id, given)
        if plan is not None:
            await state._run(plan)
        return made

    async def identity(self, id: str) -> Identity | None:
        """Who an agent is; None if it is not registered."""
        return await here_or_away(self._store.agent(id)._storage, self._core.identity, id)

    async def list(
        self,
        *,
        kind: str | None = None,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
    ) -> list[AgentInfo]:
        """Registered agents in the order of their ids; for the next page give the last as `after`.

        Each of them is looked at: the time grows with their number. One that is damaged has that as
        its status, and is among them whatever its kind is.
        """
        here = (*self.running(), *self._loops)
        return await read_away(self._core.infos, here, kind, prefix, limit, after)

    async def export_identities(self, path: str | os.PathLike[str], *, plain: bool = False) -> int:
        """Write all identities to a file, as JSON for people, whole or not at all; how many.

        Agents that are damaged are named in it, and in a warning of the log. From an encrypted
        store only with `plain=True`, for the file is readable by everybody who has it.
        """
        return await to_the_end(self._core.write_file, path, plain)

    async def import_identities(self, path: str | os.PathLike[str]) -> int:
        """Register those agents of such a file that are not registered; tells how many."""
        found = await read_away(self._core.read_file, path)
        new = {id: given for id, given in found.items() if await self.identity(id) is None}
        for id, given in new.items():
            await self._register(id, given)
        return len(new)

    # those that run

    def running(self) -> Mapping[str, Attached]:
        """The agents that run here, by ids.

        Without those that have ended, by their own `stop` or by an error, or whose lease another
        has by now; who ended so is spawned anew when it is asked for.
        """
        known = self._running.items()
        return {id: one[0] for id, one in known if still_runs(*one)}

    def _here(self, id: str) -> Attached | None:
        found = self._running.get(Scope("agent", id).id)
        return found[0] if found is not None and still_runs(*found) else None

    async def _let_go(self, id: str) -> None:
        """Give the lease of an agent back that has ended by itself."""
        if id in self._running and self._here(id) is None:
            await surely(self._running.pop(id)[1].release)

    async def get(self, id: str, *, wait: float | None = 0) -> Any:
        """The agent itself; if it does not run here, it is spawned."""
        found = self._here(id)
        return found.agent if found is not None else (await self.spawn(id, wait=wait)).agent

    async def spawn(self, id: str, *, wait: float | None = 0) -> Attached:
        """Make a registered agent, take its lease, and start it with what was saved.

        If it runs elsewhere, that is waited for (None: without end), then `LeaseHeldError`. One is
        spawned after the other, so who waits for one keeps the others waiting.
        """
        async with self._lock.held():
            if (found := self._here(id)) is not None:
                return found
            refuse_beside(id, self._loops)
            make, fields = await here_or_away(self._store.agent(id)._storage, self._core.maker, id)
            await self._let_go(id)
            lease = await taken_async(Wanting(self._core, id, wait))
            try:
                made = make()
                made = await made if hasattr(made, "__await__") else made
                kept = self._attached(made, self._store.agent(id), fields, lease)
                await kept.__aenter__()
            except BaseException:
                await surely(lease.release)
                raise
            self._running[id] = kept, lease
            if self._core.closed:  # maybe by what makes the agent: that could not stop it yet
                await self._stop(id)
            return kept

    def _attached(
        self, agent: Any, state: State, fields: tuple[str, ...] | None, lease: Lease
    ) -> Attached:
        if fields is not None or not isinstance(agent, Agent):
            return attach(agent, state, fields=fields, lease=lease)
        agent.set_state(state)  # it saves itself, too
        blocking_of(agent.kept)._core.lease = lease
        return agent.kept

    async def run(self, id: str, **options: Any) -> LoopResult:
        """Run a registered agent in a loop, here, until it is done or stopped.

        See `Loop` for the options. While it runs, `loops()` has it; a refresh makes it anew by
        its kind.
        """
        make, fields = await here_or_away(self._store.agent(id)._storage, self._core.maker, id)
        if "settings" not in options:
            options.setdefault("lease", self._core.duration)
        loop = Loop(self._store.agent(id), lambda _: make(), fields=fields, **options)
        async with self._lock.held():
            await self._let_go(id)
        self._core.check_open()  # by now; nobody comes between this and what follows
        if id in self._loops or self._here(id) is not None:
            raise InvalidInputError(f"agent:{id} runs here already; stop() it first")
        self._loops[id] = run = Run(loop, asyncio.Event)
        with run.at_work():
            try:
                return await loop.run()
            finally:
                del self._loops[id]

    def loops(self) -> Mapping[str, Loop]:
        """The loops that `run` runs here, by the ids of their agents."""
        return {id: run.loop for id, run in self._loops.items()}

    async def stop(self, id: str) -> None:
        """Stop an agent that runs here, which saves it, and give its lease back.

        A loop ends after the step at work, and this does not wait for it: `run` returns then.
        """
        if not await self._stop(id):
            raise MissingError(f"agent:{id} does not run here")

    async def _stop(self, id: str) -> bool:
        """The same; whether it ran here."""
        id = Scope("agent", id).id
        async with self._lock.held():
            if (looping := self._loops.get(id)) is not None:
                looping.loop.stop()
                return True
            if id not in self._running:
                return False
            kept, lease = self._running.pop(id)
            try:
                if kept.status in ALIVE:
                    await kept.stop()
            except Exception:
                await surely(lease.release)
                raise
            except BaseException:
                if kept.status in ALIVE:
                    self._running[id] = kept, lease  # cut short: who stops it again saves it
                else:
                    await surely(lease.release)
                raise
            await surely(lease.release)
            return True

    async def close(self) -> None:
        """Stop all that run here, and wait until they have ended: loops, after the step at work.

        From now on none is spawned or run: who waits for a lease to spawn one is refused, too. Of
        several errors, the first is raised at the end; those of loops are raised by `run`. An agent
        that calls this in its step does not wait for itself, nor for others that do so, too. If
        this is cut short, agents that were not stopped yet run on, until it is called again.
        """
        self._core.closed = True
        errors: list[Exception] = []
        async with self._lock.held():  # who spawns one at this moment has done so, or is refused
            ids, runs = (*self._running, *self._loops), list(self._loops.values())
        for id in ids:
            try:
                await self._stop(id)
            except Exception as error:
                errors.append(error)
        with closing(runs) as ends:
            for end in ends:
                await end.wait()
        if errors:
            raise errors[0]
