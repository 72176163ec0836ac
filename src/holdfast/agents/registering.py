"""Who the agents of a store are, and which of them run: what both faces share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.agents.checking import build, plain, problems
from holdfast.agents.keys import EXECUTION_STATE, IDENTITY, sticky
from holdfast.agents.shapes import Identity
from holdfast.errors import (
    AgentValidationError,
    InvalidInputError,
    InvalidValueError,
    MissingError,
)
from holdfast.store import json_values
from holdfast.store.arguments import check_filters, check_limit, check_prefixes
from holdfast.store.core import Core
from holdfast.store.files import write_whole
from holdfast.store.gates import Operation
from holdfast.store.handles import LineHandle, StoreHandle
from holdfast.store.history import Plan
from holdfast.store.lease_names import running_lease
from holdfast.store.reading import Reader
from holdfast.store.scopes import Scope

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
    """created, running, paused, stopped or failed, as it was last stored"""
    owner: str | None
    """Who runs it, by its lease, which a process that died holds until another takes it, unless it
    is known to be gone."""
    here: bool
    """Whether this registry runs it."""


class Registering:
    """Identities and leases of the agents of one store. Nothing here waits."""

    def __init__(
        self,
        core: Core,
        kinds: Mapping[str, Make],
        fields: Mapping[str, Iterable[str]],
        duration: float,
    ) -> None:
        if not isinstance(kinds, Mapping) or not isinstance(fields, Mapping):
            raise InvalidInputError("kinds and fields are mappings from the names of kinds")
        for name, make in kinds.items():
            if type(name) is not str or not callable(make):
                raise InvalidInputError(
                    "kinds are names and functions of an identity: "
                    '{"greeter": lambda identity: Greeter()}'
                )
        unknown = [name for name in fields if name not in kinds]
        if unknown:
            raise InvalidInputError(f"fields are of kinds; {', '.join(unknown)} is none")
        self.core = core
        self.kinds = dict(kinds)
        self.fields = {name: tuple(chosen) for name, chosen in fields.items()}
        self.duration = duration

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
        """Agents in the order of their ids: those that are registered, or all that were started."""
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
            reader = self.handle(id).reader
            identity = _identity(reader)
            life = reader.get(EXECUTION_STATE, None, None, False)
            if identity is None and (registered or life is None):
                continue
            identity = identity or Identity()
            if kind is not None and identity.kind != kind:
                continue
            status = life.get("status", "created") if isinstance(life, dict) else "created"
            found.append(AgentInfo(id, identity, status, owners.get(self.lease(id)), id in mine))
        return found

    # running

    def maker(self, id: str) -> tuple[Callable[[], Any], tuple[str, ...] | None]:
        """What makes an agent of the kind that its identity names, and which fields are kept."""
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

    def write_file(self, path: str | os.PathLike[str]) -> int:
        """All identities as JSON for people, whole or not at all; tells how many."""
        found = self.infos((), None, "", None, None)
        agents = {
            one.id: self.handle(one.id).reader.get(IDENTITY, None, None, True) for one in found
        }
        text = json_values.dumps({"format": FORMAT, "agents": agents}, indent=2)
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
            found = msgspec.convert(json_values.loads(data.decode()), _File)
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


class _File(msgspec.Struct):
    format: str
    agents: dict[str, Identity]


def _identity(reader: Reader) -> Identity | None:
    found = reader.get(IDENTITY, None, None, False)
    return None if found is None else build(Identity, found)
