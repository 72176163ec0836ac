"""Who the agents of a store are, and which of them run: what both faces share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.agents.agent_keys import EXECUTION_STATE, IDENTITY, sticky
from holdfast.agents.state.checks import build, plain, problems
from holdfast.agents.state.shapes import Identity
from holdfast.errors import (
    AgentValidationError,
    InvalidInputError,
    InvalidValueError,
    MissingError,
    StateIntegrityError,
)
from holdfast.store.commit.core import Core
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.lease.lease import Lease
from holdfast.store.lease.lease_names import running_lease
from holdfast.store.lease.wait import Asking
from holdfast.store.names.arguments import (
    check_filters,
    check_flag,
    check_limit,
    check_prefixes,
    check_run,
)
from holdfast.store.names.scope import Scope
from holdfast.store.names.whole_files import write_whole
from holdfast.store.read.reader import Reader
from holdfast.store.rules.gates import Operation
from holdfast.store.tree import json

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
