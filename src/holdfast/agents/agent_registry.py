"""The agents of a store: who they are, and which of them run here."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import msgspec

from holdfast.agents.agent import Keeping
from holdfast.agents.agent_keys import EXECUTION_STATE, IDENTITY, OWN_AGENT, MayWait, may_wait
from holdfast.agents.attached import Attached, attach
from holdfast.agents.loop.decide import LoopResult
from holdfast.agents.loop.loop import Loop
from holdfast.agents.state.checks import build, problems
from holdfast.agents.state.shapes import Identity
from holdfast.errors import (
    AccessDeniedError,
    AgentValidationError,
    InvalidInputError,
    InvalidValueError,
    MissingError,
    StateIntegrityError,
)
from holdfast.store.inner import (
    Asking,
    Book,
    BookPage,
    Lease,
    LineHandle,
    StoreHandle,
    core_of,
    json_values,
    look,
    moment,
    running_lease,
    sticky,
    taken,
    taken_async,
)
from holdfast.store.names.arguments import (
    check_face,
    check_filters,
    check_flag,
    check_limit,
    check_run,
)
from holdfast.store.names.face import (
    Steps,
    ask,
    asynchronous,
    calls,
    end,
    faced,
    here,
    quick,
    steps,
    steps_of,
    writes,
)
from holdfast.store.names.face import taken as blocking_of
from holdfast.store.names.scope import Scope
from holdfast.store.names.whole_files import check_path, write_whole
from holdfast.store.store import Store


@faced
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

    @calls(kinds=may_wait)
    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, Make] | None = None,
        *,
        fields: Mapping[str, Iterable[str]] | None = None,
        duration: float = 30.0,
    ) -> None:
        check_face(store, Store, "Agents")
        awaited = isinstance(kinds, MayWait)
        kinds = (kinds.given if isinstance(kinds, MayWait) else kinds) or {}
        fields = fields or {}
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
        self._store = store
        self._core = core_of(store)
        self._storage = self._core.storage
        self._kinds = dict(kinds)
        self._fields = {name: tuple(chosen) for name, chosen in fields.items()}
        self._duration = duration
        self._closed = False
        """Whether nothing is to run here any more."""
        self._running: dict[str, tuple[Attached, Lease]] = {}
        self._loops: dict[str, Loop] = {}
        self._turns: dict[str, Turn] = {}
        """Of agents that are just spawned or stopped."""
        self._runs: dict[str, Turn] = {}
        """Of agents that a loop runs."""
        self._lock = threading.Lock()
        """Held for a look at these: nothing is waited for inside."""

    @here
    def __enter__(self) -> Self:
        return self

    @steps
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Steps[None]:
        yield from steps_of(self.close)()

    # who they are

    @writes
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
        about = {"kind": kind, "name": name, "version": version, "description": description}
        return self._register(id, {**about, "metadata": metadata})

    def _register(self, id: str, given: Mapping[str, Any]) -> Identity:
        """Write an identity, if it is another."""
        now = moment(self._core.clock.claimed())

        def note(page: BookPage[Identity]) -> Identity:
            before = page.get(WHO)
            born = before.created_at if before is not None else now
            data = {"created_at": born, **{name: part for name, part in given.items() if part}}
            found = problems(Identity, data, "identity")
            if found:
                error = AgentValidationError(f"agent:{id} is not registered", found)
                raise self._core.meter.invalid("identity", error)
            made: Identity = build(Identity, data)
            if before is not None and before.kind != made.kind:
                raise InvalidInputError(
                    f"agent:{id} is registered as {before.kind!r}, and cannot become "
                    f"{made.kind!r}: what it keeps would not fit; give the new one another id"
                )
            if made != before:  # from now on it stays when its state goes back
                page.change.operations += sticky(self._line(id), IDENTITY)
                page.put(WHO, made)
            return made

        return self._identities(id).step(note)

    def _identities(self, id: str) -> Book[Identity]:
        """The book that has the identity of an agent."""
        return Book(self._store.agent(id), OWN_AGENT, Identity)

    def _line(self, id: str) -> LineHandle:
        """The main timeline of an agent."""
        return StoreHandle(self._core).line(Scope("agent", id))

    @quick
    def identity(self, id: str) -> Identity | None:
        """Who an agent is; None if it is not registered."""
        return self._identities(id).get(WHO)

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
        return [*self._infos((*self.running(), *self._loops), kind, prefix, limit, after)]

    def _infos(
        self,
        here: Iterable[str],
        kind: str | None,
        prefix: str,
        limit: int | None,
        after: str | None,
        *,
        registered: bool = True,
    ) -> Sequence[AgentInfo]:
        """Agents in the order of their ids: those that are registered, or all.

        Those that are damaged are among them, for nobody knows.
        """
        check_filters(kind=kind, after=after)
        check_limit(limit)
        mine = set(here)
        owners = {one.name: one.owner for one in self._core.leases.infos() if not one.gone}
        found: list[AgentInfo] = []
        behind = f"agent:{after}" if after is not None else None
        for info in StoreHandle(self._core).scopes("agent", prefix, None, behind).items:
            if limit is not None and len(found) >= limit:
                break
            id = info.scope.id
            running = owners.get(running_lease(info.scope)), id in mine
            reader = self._line(id).reader
            try:
                identity, life = self.identity(id), reader.get(EXECUTION_STATE)
            except AccessDeniedError:  # what may not be read is left out of lists
                continue
            except StateIntegrityError as error:  # who it is is not known: it may be any of them
                found.append(AgentInfo(id, Identity(), "damaged", *running, str(error)))
                continue
            if identity is None and registered:
                continue
            identity = identity or Identity()
            if kind in (None, identity.kind):
                status = life.get("status", "created") if isinstance(life, dict) else "created"
                found.append(AgentInfo(id, identity, status, *running))
        return found

    @writes
    def export_identities(self, path: str | os.PathLike[str], *, plain: bool = False) -> int:
        """Write all identities to a file, as JSON for people, whole or not at all; how many.

        Agents that are damaged are named in it, and in a warning of the log. From an encrypted
        store only with `plain=True`, for the file is readable by everybody who has it.
        """
        check_flag(plain, "plain")
        if self._core.ring is not None and not plain:
            raise InvalidInputError(
                "the store is encrypted, and this file would not be; give plain=True if it is to "
                "be readable by everybody who has it"
            )
        found = self._infos((), None, "", None, None)
        agents = {
            one.id: self._line(one.id).reader.get(IDENTITY, None, None, True)
            for one in found
            if not one.damage
        }
        document: dict[str, Any] = {"format": FORMAT, "agents": agents}
        if damaged := {one.id: one.damage for one in found if one.damage}:
            document["damaged"] = damaged
            log.warning("identities that cannot be read are left out: %s", ", ".join(damaged))
        text = json_values.dumps(document, indent=2)
        write_whole(path, [text.encode(), b"\n"])
        return len(agents)

    @writes
    def import_identities(self, path: str | os.PathLike[str]) -> int:
        """Register those agents of such a file that are not registered; tells how many."""
        try:
            with open(check_path(path), "rb") as file:
                data = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise InvalidInputError(f"cannot read {path}: {error.strerror}") from None
        if len(data) > LARGEST_FILE:
            raise InvalidInputError(f"{path} is larger than {LARGEST_FILE >> 20} MiB")
        try:
            found = msgspec.convert(json_values.loads(data.decode()), _File)
        except (msgspec.ValidationError, UnicodeDecodeError, InvalidValueError):
            raise InvalidInputError(
                f"{path} is no file of identities; `export_identities` writes such"
            ) from None
        if found.format != FORMAT:
            raise InvalidInputError(f"{path} is of a format that this version does not know")
        new = {id: one for id, one in found.agents.items() if self.identity(id) is None}
        for id, one in new.items():
            self._register(id, msgspec.structs.asdict(one))
        return len(new)

    # those that run

    @here
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

    def _check_open(self) -> None:
        """Refuse to run anything once these are closed."""
        if self._closed:
            raise InvalidInputError("these Agents are closed and run nothing more; make others")

    def _maker(self, id: str) -> tuple[Callable[[], Any], tuple[str, ...] | None]:
        """What makes an agent of the kind that its identity names, and which fields are kept."""
        self._check_open()
        identity = self.identity(id)
        if identity is None:
            raise MissingError(f"agent:{id} is not registered; register it first")
        make = self._kinds.get(identity.kind)
        if make is None:
            known = ", ".join(map(repr, self._kinds)) or "none"
            raise InvalidInputError(
                f"agent:{id} is of the kind {identity.kind!r}, which is not given in kinds "
                f"({known})"
            )
        return partial(make, identity), self._fields.get(identity.kind)

    def _turn(self, id: str) -> Steps[Turn]:
        """Be the one who spawns, runs or stops an agent, after whoever is just doing so."""
        own = yield ask(lambda agents: agents, self)
        while True:
            with self._lock:
                other = self._turns.get(id)
                if other is None or other in _within.get():  # what it calls may go in again
                    return Turn(self._turns, id, other)
            yield ask(other.wait, own is not self)

    @steps
    def get(self, id: str, *, wait: float | None = 0) -> Steps[Any]:
        """The agent itself; if it does not run here, it is spawned."""
        found = self._here(id)
        return (found or (yield from steps_of(self.spawn)(id, wait=wait))).agent

    @steps
    def spawn(self, id: str, *, wait: float | None = 0) -> Steps[Attached]:
        """Make a registered agent, take its lease, and start it with what was saved.

        If it runs elsewhere, that is waited for (None: without end), then `LeaseHeldError`.
        """
        if id in self._loops:  # its lease would be waited for in vain
            raise InvalidInputError(
                f"agent:{id} runs here in a loop, which has an agent of its own; stop() it first, "
                "or send it a letter"
            )
        with (yield from self._turn(id)):
            if (found := self._here(id)) is not None:
                return found
            make, fields = yield look(self._store.agent(id), self._maker, id)
            yield from self._let_go(id)
            asking = Wanting(self, id, wait)
            lease = yield ask(
                lambda own: taken(asking) if own is self else taken_async(asking), self
            )
            try:
                made = yield ask(make, what="what makes an agent")
                own, state = yield ask(lambda *both: both, self, self._store.agent(id))
                if fields is None and isinstance(made, Keeping):
                    made.set_state(state)  # it saves itself, too
                    kept: Attached = blocking_of(made.kept)
                    kept._core.lease = lease
                else:
                    keep = attach if own is self else asynchronous(attach)
                    kept = blocking_of(keep(made, state, fields=fields, lease=lease))
                yield from steps_of(kept.__enter__)()
            except BaseException:  # whatever it is, nobody runs what was not started
                yield end(lease.release)
                raise
            self._running[id] = kept, lease
            if self._closed:  # maybe by what makes the agent: that could not stop it yet
                yield from self._stopped(id)
            return kept

    def _let_go(self, id: str) -> Steps[None]:
        """Give the lease of an agent back that has ended by itself."""
        if id in self._running and self._here(id) is None:
            yield end(self._running.pop(id)[1].release)

    @steps
    def run(self, id: str, **options: Any) -> Steps[LoopResult]:
        """Run a registered agent in a loop, here, until it is done or stopped.

        See `Loop` for the options. While it runs, `loops()` has it; a refresh makes it anew by
        its kind.
        """
        make, fields = yield look(self._store.agent(id), self._maker, id)
        if "settings" not in options:
            options.setdefault("lease", self._duration)
        loop = Loop(self._store.agent(id), lambda _: make(), fields=fields, **options)
        with (yield from self._turn(id)):
            yield from self._let_go(id)
            if id in self._loops or self._here(id) is not None:
                raise InvalidInputError(f"agent:{id} runs here already; stop() it first")
            with self._lock:  # who closes sees it, or it sees that all are closed
                self._check_open()
                self._loops[id], run = loop, Turn(self._runs, id)
        with run:
            try:
                return (yield from loop._run())
            finally:
                del self._loops[id]

    @here
    def loops(self) -> Mapping[str, Loop]:
        """The loops that `run` runs here, by the ids of their agents."""
        return dict(self._loops)

    @steps
    def stop(self, id: str) -> Steps[None]:
        """Stop an agent that runs here, which saves it, and give its lease back.

        A loop ends after the step at work, and this does not wait for it: `run` returns then.
        """
        if not (yield from self._stop(id)):
            raise MissingError(f"agent:{id} does not run here")

    def _stop(self, id: str) -> Steps[bool]:
        """The same; whether it ran here."""
        id = Scope("agent", id).id
        if (loop := self._loops.get(id)) is not None:
            loop.stop()
            return True
        with (yield from self._turn(id)):
            return (yield from self._stopped(id))

    def _stopped(self, id: str) -> Steps[bool]:
        if id not in self._running:
            return False
        kept, lease = self._running.pop(id)
        try:
            if kept.status in ALIVE:
                yield from steps_of(kept.stop)()
        except BaseException as error:  # whatever it is, the lease is not to be left behind
            if kept.status in ALIVE and not isinstance(error, Exception):
                self._running[id] = kept, lease  # cut short: who stops it again saves it
            else:
                yield end(lease.release)
            raise
        yield end(lease.release)
        return True

    @steps
    def close(self) -> Steps[None]:
        """Stop all that run here, and wait until they have ended: loops, after the step at work.

        From now on none is spawned or run: who waits for a lease to spawn one is refused, too. Of
        several errors, the first is raised at the end; those of loops are raised by `run`. An agent
        that calls this in its step waits for no loop. If this is cut short, agents that were not
        stopped yet run on, until it is called again.
        """
        own = yield ask(lambda agents: agents, self)
        errors: list[Exception] = []
        with self._lock:  # who begins with one from now on is refused
            self._closed = True
            others = {*self._turns.values(), *self._runs.values()}
        if not others.isdisjoint(_within.get()):
            others = set()  # they may wait for each other
        for id in (*self._running, *self._loops):
            try:
                yield from self._stop(id)
            except Exception as error:
                errors.append(error)
        for other in others:
            yield ask(other.wait, own is not self)
        if errors:
            raise errors[0]


# ---- agent info ---------------------------------------------------------------------------------


log = logging.getLogger("holdfast.agents")

FORMAT = "holdfast-agents/1"
WHO = "identity"
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


class Wanting(Asking):
    """Somebody who wants the lease of an agent, until the agents are closed."""

    def __init__(self, agents: Agents, id: str, wait: float | None) -> None:
        name = running_lease(Scope("agent", id))
        super().__init__(agents._core, name, agents._duration, wait, None)
        self._agents = agents

    def take(self) -> Lease | None:
        """The lease; None if it is to be waited for."""
        self._agents._check_open()
        return super().take()


class _File(msgspec.Struct):
    format: str
    agents: dict[str, Identity]


# ---- turns --------------------------------------------------------------------------------------


ALIVE = ("running", "paused")
"""The states of an agent that has not ended, by itself or by an error."""

_within: ContextVar[tuple[Turn, ...]] = ContextVar("holdfast_agent_turns", default=())
"""The turns that this is a part of: functions of agents, and tasks that those begin."""


def still_runs(kept: Attached, lease: Lease) -> bool:
    """Whether an agent that was spawned here still runs."""
    return lease.held and kept.status in ALIVE


class Turn:
    """Work on one agent, which others wait for: threads and tasks."""

    def __init__(self, turns: dict[str, Turn], id: str, outer: Turn | None = None) -> None:
        self._turns = turns
        self._id = id
        self._outer = outer
        self._over: Future[None] = Future()
        turns[id] = self

    def __enter__(self) -> None:
        self._token = _within.set((*_within.get(), self))

    def __exit__(self, *error: object) -> None:
        _within.reset(self._token)
        if self._outer is None:
            del self._turns[self._id]
        else:
            self._turns[self._id] = self._outer
        self._over.set_result(None)

    def wait(self, awaited: bool) -> Any:
        """Wait for its end; or give what is to be awaited."""
        if not awaited:
            return self._over.result()
        import asyncio

        # Who is cancelled while it waits does not cancel what others wait for.
        return asyncio.wait([asyncio.wrap_future(self._over)])
