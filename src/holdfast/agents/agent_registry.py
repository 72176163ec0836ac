"""The agents of a store, on the blocking face."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from holdfast.agents.agent import Agent
from holdfast.agents.agent_keys import EXECUTION_STATE, IDENTITY, sticky
from holdfast.agents.attached import Attached, attach
from holdfast.agents.loop.decide import LoopResult
from holdfast.agents.loop.loop import Loop
from holdfast.agents.state.checks import build, plain, problems
from holdfast.agents.state.shapes import Identity
from holdfast.errors import (
    AgentValidationError,
    InvalidInputError,
    InvalidValueError,
    MissingError,
    StateIntegrityError,
)
from holdfast.store.inner import (
    Asking,
    Core,
    Lease,
    LineHandle,
    Operation,
    Plan,
    Reader,
    StoreHandle,
    core_of,
    json,
    running_lease,
    taken,
)
from holdfast.store.names.arguments import (
    check_filters,
    check_flag,
    check_limit,
    check_prefixes,
    check_run,
    ran,
)
from holdfast.store.names.scope import Scope
from holdfast.store.names.whole_files import write_whole
from holdfast.store.state import State
from holdfast.store.store import Store


class Agents:
    """Who the agents of a store are, and those of them that run here.

        agents = Agents(store, {"greeter": lambda identity: Greeter()})
        agents.register("7", kind="greeter")
        agents.get("7").greet("ann")

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
            raise InvalidInputError("Agents takes a store; those of holdfast.open have its own")
        self._store = store
        self._core = Registering(core_of(store), kinds or {}, fields or {}, duration)
        self._running: dict[str, tuple[Attached, Lease]] = {}
        self._loops: dict[str, Run[Loop]] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # who they are

    def register(
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
        return self._register(id, given)

    def _register(self, id: str, given: Mapping[str, Any]) -> Identity:
        plan, made = self._core.plan_register(id, given)
        if plan is not None:
            self._store.agent(id)._run(plan)
        return made

    def identity(self, id: str) -> Identity | None:
        """Who an agent is; None if it is not registered."""
        return self._core.identity(id)

    def list(
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
        return self._core.infos((*self.running(), *self._loops), kind, prefix, limit, after)

    def export_identities(self, path: str | os.PathLike[str], *, plain: bool = False) -> int:
        """Write all identities to a file, as JSON for people, whole or not at all; how many.

        Agents that are damaged are named in it, and in a warning of the log. From an encrypted
        store only with `plain=True`, for the file is readable by everybody who has it.
        """
        return self._core.write_file(path, plain)

    def import_identities(self, path: str | os.PathLike[str]) -> int:
        """Register those agents of such a file that are not registered; tells how many."""
        found = self._core.read_file(path)
        new = {id: given for id, given in found.items() if self.identity(id) is None}
        for id, given in new.items():
            self._register(id, given)
        return len(new)

    # those that run

    def running(self) -> Mapping[str, Attached]:
        """The agents that run here, by ids.

        Without those that have ended, by their own `stop` or by an error, or whose lease another
        has by now; who ended so is spawned anew when it is asked for.
        """
        known = tuple(self._running.items())  # another thread may add one meanwhile
        return {id: one[0] for id, one in known if still_runs(*one)}

    def _here(self, id: str) -> Attached | None:
        found = self._running.get(Scope("agent", id).id)
        return found[0] if found is not None and still_runs(*found) else None

    def _let_go(self, id: str) -> None:
        """Give the lease of an agent back that has ended by itself."""
        if id in self._running and self._here(id) is None:
            self._running.pop(id)[1].release()

    def get(self, id: str, *, wait: float | None = 0) -> Any:
        """The agent itself; if it does not run here, it is spawned."""
        found = self._here(id)
        return found.agent if found is not None else self.spawn(id, wait=wait).agent

    def spawn(self, id: str, *, wait: float | None = 0) -> Attached:
        """Make a registered agent, take its lease, and start it with what was saved.

        If it runs elsewhere, that is waited for (None: without end), then `LeaseHeldError`. One is
        spawned after the other, so who waits for one keeps the others waiting.
        """
        with self._lock:
            if (found := self._here(id)) is not None:
                return found
            refuse_beside(id, self._loops)
            make, fields = self._core.maker(id)
            self._let_go(id)
            lease = taken(Wanting(self._core, id, wait))
            try:
                made = ran(make(), "what makes an agent")
                kept = self._attached(made, self._store.agent(id), fields, lease)
                kept.start()
            except BaseException:
                lease.release()
                raise
            self._running[id] = kept, lease
            if self._core.closed:  # maybe by what makes the agent: that could not stop it yet
                self._stop(id)
            return kept

    def _attached(
        self, agent: Any, state: State, fields: tuple[str, ...] | None, lease: Lease
    ) -> Attached:
        if fields is not None or not isinstance(agent, Agent):
            return attach(agent, state, fields=fields, lease=lease)
        agent.set_state(state)  # it saves itself, too
        agent.kept._core.lease = lease
        return agent.kept

    def run(self, id: str, **options: Any) -> LoopResult:
        """Run a registered agent in a loop, here, until it is done or stopped.

        See `Loop` for the options. While it runs, `loops()` has it; a refresh makes it anew by
        its kind.
        """
        make, fields = self._core.maker(id)
        if "settings" not in options:
            options.setdefault("lease", self._core.duration)
        loop = Loop(self._store.agent(id), lambda _: make(), fields=fields, **options)
        with self._lock:
            self._core.check_open()  # by now
            self._let_go(id)
            if id in self._loops or self._here(id) is not None:
                raise InvalidInputError(f"agent:{id} runs here already; stop() it first")
            self._loops[id] = run = Run(loop, threading.Event)
        with run.at_work():
            try:
                return loop.run()
            finally:
                del self._loops[id]

    def loops(self) -> Mapping[str, Loop]:
        """The loops that `run` runs here, by the ids of their agents."""
        known = tuple(self._loops.items())  # another thread may end one meanwhile
        return {id: run.loop for id, run in known}

    def stop(self, id: str) -> None:
        """Stop an agent that runs here, which saves it, and give its lease back.

        A loop ends after the step at work, and this does not wait for it: `run` returns then.
        """
        if not self._stop(id):
            raise MissingError(f"agent:{id} does not run here")

    def _stop(self, id: str) -> bool:
        """The same; whether it ran here."""
        id = Scope("agent", id).id
        with self._lock:
            if (looping := self._loops.get(id)) is not None:
                looping.loop.stop()
                return True
            if id not in self._running:
                return False
            kept, lease = self._running.pop(id)
            try:
                if kept.status in ALIVE:
                    kept.stop()
            except Exception:
                lease.release()
                raise
            except BaseException:
                if kept.status in ALIVE:
                    self._running[id] = kept, lease  # cut short: who stops it again saves it
                else:
                    lease.release()
                raise
            lease.release()
            return True

    def close(self) -> None:
        """Stop all that run here, and wait until they have ended: loops, after the step at work.

        From now on none is spawned or run: who waits for a lease to spawn one is refused, too. Of
        several errors, the first is raised at the end; those of loops are raised by `run`. An agent
        that calls this in its step does not wait for itself, nor for others that do so, too. If
        this is cut short, agents that were not stopped yet run on, until it is called again.
        """
        self._core.closed = True
        errors: list[Exception] = []
        with self._lock:  # who spawns or runs one at this moment has done so, or is refused
            ids, runs = (*self._running, *self._loops), list(self._loops.values())
        for id in ids:
            try:
                self._stop(id)
            except Exception as error:
                errors.append(error)
        with closing(runs) as ends:
            for end in ends:
                end.wait()
        if errors:
            raise errors[0]


# ---- agent info ---------------------------------------------------------------------------------
# Who the agents of a store are, and which of them run: what both faces share.


log = logging.getLogger("holdfast.agents")

FORMAT = "holdfast-agents/1"
LARGEST_FILE = 64 << 20
"""Bytes of a file of identities, at most."""
Make = Callable[[Identity], Any]
"""Makes an agent of a kind, by who it is."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent of the store."""

    id: str
    identity: Identity
    status: str
    """created, running, paused, stopped or failed, as it was last stored; or damaged"""
    owner: str | None
    """Who runs it, by its lease, which a process that died holds until another takes it, unless it
    is known to be gone."""
    here: bool
    """Whether this registry runs it."""
    damage: str = ""
    """Why nothing more is known of one that is damaged."""


class Registering:
    """Identities and leases of the agents of one store. Nothing here waits."""

    def __init__(
        self,
        core: Core,
        kinds: Mapping[str, Make],
        fields: Mapping[str, Iterable[str]],
        duration: float,
        *,
        awaited: bool = False,
    ) -> None:
        if not isinstance(kinds, Mapping) or not isinstance(fields, Mapping):
            raise InvalidInputError("kinds and fields are mappings from the names of kinds")
        for name, make in kinds.items():
            if type(name) is not str or not callable(make):
                raise InvalidInputError(
                    "kinds are names and functions of an identity: "
                    '{"greeter": lambda identity: Greeter()}'
                )
            if not isinstance(make, type):  # of which only the objects may be called so
                check_run(make, f"what makes the kind {name!r}", awaited=awaited)
        unknown = [name for name in fields if name not in kinds]
        if unknown:
            raise InvalidInputError(f"fields are of kinds; {', '.join(unknown)} is none")
        self.core = core
        self.kinds = dict(kinds)
        self.fields = {name: tuple(chosen) for name, chosen in fields.items()}
        self.duration = duration
        self.closed = False
        """Whether nothing is to run here any more."""

    def handle(self, id: str) -> LineHandle:
        """The main timeline of an agent."""
        return StoreHandle(self.core).line(Scope("agent", id))

    def lease(self, id: str) -> str:
        """The name of the lease that who runs an agent holds."""
        return running_lease(Scope("agent", id))

    # identities

    def identity(self, id: str) -> Identity | None:
        """Who an agent is; None if it is not registered."""
        return _identity(self.handle(id).reader)

    def plan_register(self, id: str, given: Mapping[str, Any]) -> tuple[Plan | None, Identity]:
        """A change that writes an identity, if it is another; and the identity."""
        handle = self.handle(id)
        before = _identity(handle.reader)
        now = datetime.fromtimestamp(self.core.clock.claimed() / 1_000_000, UTC)
        born = before.created_at if before is not None else now
        data = {"created_at": born, **{name: part for name, part in given.items() if part}}
        found = problems(Identity, data, "identity")
        if found:
            error = AgentValidationError(f"agent:{id} is not registered", found)
            raise self.core.meter.invalid("identity", error)
        made: Identity = build(Identity, data)
        if made == before:
            return None, made
        if before is not None and before.kind != made.kind:
            raise InvalidInputError(
                f"agent:{id} is registered as {before.kind!r}, and cannot become {made.kind!r}: "
                "what it keeps would not fit; give the new one another id"
            )
        known = handle.reader.now()
        slot = handle.reader.live(known, IDENTITY) if known is not None else None
        version = known.version(slot) if known is not None else 0
        operations = [*sticky(handle, IDENTITY), Operation("set", IDENTITY, plain(made))]
        return handle._plan(operations, lambda _: made, expects={IDENTITY: version}), made

    def infos(
        self,
        here: Iterable[str],
        kind: str | None,
        prefix: str,
        limit: int | None,
        after: str | None,
        *,
        registered: bool = True,
    ) -> list[AgentInfo]:
        """Agents in the order of their ids: those that are registered, or all that were started.

        Those that are damaged are among them, for nobody knows.
        """
        check_prefixes(prefix=prefix)
        check_filters(kind=kind, after=after)
        check_limit(limit)
        mine = set(here)
        owners = {one.name: one.owner for one in self.core.leases.infos() if not one.gone}
        found: list[AgentInfo] = []
        behind = f"agent:{after}" if after is not None else None
        for info in StoreHandle(self.core).scopes("agent", prefix, None, behind).items:
            if limit is not None and len(found) >= limit:
                break
            id = info.scope.id
            running = owners.get(self.lease(id)), id in mine
            try:
                seen = self._seen(id, registered)
            except StateIntegrityError as error:  # who it is is not known: it may be any of them
                found.append(AgentInfo(id, Identity(), "damaged", *running, str(error)))
                continue
            if seen is not None and kind in (None, seen[0].kind):
                found.append(AgentInfo(id, *seen, *running))
        return found

    def _seen(self, id: str, registered: bool) -> tuple[Identity, str] | None:
        """Who an agent is, and its status; None if it is not registered, or was never started."""
        reader = self.handle(id).reader
        identity = _identity(reader)
        life = reader.get(EXECUTION_STATE, None, None, False)
        if identity is None and (registered or life is None):
            return None
        status = life.get("status", "created") if isinstance(life, dict) else "created"
        return identity or Identity(), status

    # running

    def check_open(self) -> None:
        """Refuse to run anything once these are closed."""
        if self.closed:
            raise InvalidInputError("these Agents are closed and run nothing more; make others")

    def maker(self, id: str) -> tuple[Callable[[], Any], tuple[str, ...] | None]:
        """What makes an agent of the kind that its identity names, and which fields are kept."""
        self.check_open()
        identity = self.identity(id)
        if identity is None:
            raise MissingError(f"agent:{id} is not registered; register it first")
        make = self.kinds.get(identity.kind)
        if make is None:
            known = ", ".join(map(repr, self.kinds)) or "none"
            raise InvalidInputError(
                f"agent:{id} is of the kind {identity.kind!r}, which is not given in kinds "
                f"({known})"
            )
        return partial(make, identity), self.fields.get(identity.kind)

    # files

    def write_file(self, path: str | os.PathLike[str], readable: bool) -> int:
        """All identities as JSON for people, whole or not at all; tells how many.

        Those that are damaged are named in it, and in a warning. `readable`: it is meant to be so,
        also where the store is not.
        """
        check_flag(readable, "plain")
        if self.core.ring is not None and not readable:
            raise InvalidInputError(
                "the store is encrypted, and this file would not be; give plain=True if it is to "
                "be readable by everybody who has it"
            )
        found = self.infos((), None, "", None, None)
        agents = {
            one.id: self.handle(one.id).reader.get(IDENTITY, None, None, True)
            for one in found
            if not one.damage
        }
        document: dict[str, Any] = {"format": FORMAT, "agents": agents}
        if damaged := {one.id: one.damage for one in found if one.damage}:
            document["damaged"] = damaged
            log.warning("identities that cannot be read are left out: %s", ", ".join(damaged))
        text = json.dumps(document, indent=2)
        write_whole(path, [text.encode(), b"\n"])
        return len(agents)

    def read_file(self, path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
        """The identities in such a file, by ids."""
        if not isinstance(path, str | os.PathLike):
            raise InvalidInputError("a path is text")
        try:
            with open(path, "rb") as file:
                data = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise InvalidInputError(f"cannot read {path}: {error.strerror}") from None
        except ValueError:
            raise InvalidInputError("a path is valid text without a NUL character") from None
        if len(data) > LARGEST_FILE:
            raise InvalidInputError(f"{path} is larger than {LARGEST_FILE >> 20} MiB")
        try:
            found = msgspec.convert(json.loads(data.decode()), _File)
        except (msgspec.ValidationError, UnicodeDecodeError, InvalidValueError):
            raise InvalidInputError(
                f"{path} is no file of identities; `export_identities` writes such"
            ) from None
        if found.format != FORMAT:
            raise InvalidInputError(f"{path} is of a format that this version does not know")
        return {
            id: {name: getattr(one, name) for name in Identity.__struct_fields__}
            for id, one in found.agents.items()
        }


class Wanting(Asking):
    """Somebody who wants the lease of an agent, until the agents are closed."""

    def __init__(self, agents: Registering, id: str, wait: float | None) -> None:
        super().__init__(agents.core, agents.lease(id), agents.duration, wait, None)
        self._agents = agents

    def take(self) -> Lease | None:
        """The lease; None if it is to be waited for."""
        self._agents.check_open()
        return super().take()


def refuse_beside(id: str, loops: Mapping[str, Any]) -> None:
    """Refuse to spawn an agent that a loop runs here: its lease would be waited for in vain."""
    if id in loops:
        raise InvalidInputError(
            f"agent:{id} runs here in a loop, which has an agent of its own; stop() it first, or "
            "send it a letter"
        )


class _File(msgspec.Struct):
    format: str
    agents: dict[str, Identity]


def _identity(reader: Reader) -> Identity | None:
    found = reader.get(IDENTITY, None, None, False)
    return None if found is None else build(Identity, found)


# ---- registry runs ------------------------------------------------------------------------------
# Runs of loops that a registry knows, and who may wait for the end of which; for both faces.


_Loop = TypeVar("_Loop")
ALIVE = ("running", "paused")
"""The states of an agent that has not ended, by itself or by an error."""

_within: ContextVar[tuple[Run[Any], ...]] = ContextVar("holdfast_loops", default=())
"""The runs that this is a part of: steps of their agents, and tasks that those begin."""


def still_runs(kept: Any, lease: Lease) -> bool:
    """Whether an agent that was spawned here still runs."""
    return lease.held and kept.status in ALIVE


class Run(Generic[_Loop]):
    """One run of a loop; `event` is of threads, or of asyncio."""

    def __init__(self, loop: _Loop, event: Callable[[], Any]) -> None:
        self.loop = loop
        self.over = event()
        self.passed = event()
        """Set when it is over, and while its own agent closes agents and waits for others."""
        self._closing = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The run itself: what is called in it belongs to it."""
        token = _within.set((*_within.get(), self))
        try:
            yield
        finally:
            _within.reset(token)
            self.over.set()
            self.passed.set()

    def _closes(self, more: int) -> None:
        self._closing += more
        if self._closing:
            self.passed.set()
        elif not self.over.is_set():
            self.passed.clear()


@contextmanager
def closing(runs: list[Run[Any]]) -> Iterator[list[Any]]:
    """The events to wait for until the runs have ended.

    An agent may end all, itself included: it does not wait for itself, nor for another that is
    about to do the same and waits for it.
    """
    mine = _within.get()
    for one in mine:
        one._closes(+1)
    try:
        yield [one.passed if mine else one.over for one in runs if one not in mine]
    finally:
        for one in mine:
            one._closes(-1)
