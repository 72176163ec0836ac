"""`holdfast entity`, `relation`, `events`, `queue`, `observe` and `runtime`: a daemon from outside.

Values are JSON; `--where` and `--set` take NAME=JSON.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.commands import Group, flag, imported, option, several
from holdfast.cli.plain import Value
from holdfast.cli.session import Session, login, moment
from holdfast.errors import InvalidInputError, MissingError
from holdfast.runtime.entities import Entities
from holdfast.runtime.events import Event, Events
from holdfast.runtime.life_cycle import Runtime, name_of
from holdfast.runtime.observations import TYPE, Observations
from holdfast.runtime.queue import Queue
from holdfast.store.inner import json

_RELATION = "from=from_id, type, to=to_id, metadata, created=created_at_iso"
_EVENT = "time=timestamp_iso, event=event_name, client=client_id, correlation=correlation_id, data"
set_option = several("--set=given", "NAME=JSON", "A property.")


def _pairs(given: Sequence[str]) -> dict[str, Any]:
    found = {}
    for text in given:
        name, equal, value = text.partition("=")
        if not equal:
            raise InvalidInputError(f"{text!r} is not NAME=JSON, like load=0.5")
        found[name] = json.loads(value)
    return found


# ---- entities and relationships -----------------------------------------------------------------


@click.group(cls=Group)
def entity() -> None:
    """Entities of a scope: things with a type and properties."""


@entity.verb("list SCOPE --limit=100 --at")
@click.option("--type", "type_", help="Of this type.")
@several("--where", "NAME=JSON", "With this property.")
@option("--order", "NAME", "By a property; -NAME: the other way round.")
def list_(session: Session, /, scope: str, type_: str | None, at: str | None, **how: Any) -> None:
    """Entities, with what properties they have."""
    how["where"] = _pairs(how["where"])
    with session.view(scope, at) as view:
        found = Entities(view).query(type_, **how)
    columns = "entity=id, type, properties, updated=updated_at_iso"
    session.table("entities", found.items, columns, about={"scope": scope})
    if found.after is not None:
        session.note("there may be more: give a larger --limit")


@entity.verb("show SCOPE ID --at")
def show(session: Session, scope: str, id: str, at: str | None) -> None:
    """An entity with its properties and relationships."""
    with session.view(scope, at) as view:
        found = Entities(view).get(id, include=["relationships"])
    related = [(f"{one.from_id} {one.type}", one.to_id) for one in found.relationships]
    shown = [("type", found.type), *found.properties.items(), *related]
    session.fields(found, shown)


@entity.verb("create SCOPE TYPE")
@click.option("--id", help="[default: the type and eight digits]")
@set_option
def create(session: Session, scope: str, type: str, id: str | None, given: Sequence[str]) -> None:
    """Make an entity; tells its id."""
    properties = _pairs(given)
    with session.change(scope, new=True) as state:
        made = Entities(state).create(type, properties, id=id)
    session.tell(made, made.id)


@entity.verb("update SCOPE ID")
@set_option
def update(session: Session, scope: str, id: str, given: Sequence[str]) -> None:
    """Set properties of an entity; NAME=null deletes one."""
    properties = _pairs(given)
    with session.change(scope) as state:
        made = Entities(state).update(id, properties)
    session.tell(made, f"{id}: updated")


@entity.verb("delete SCOPE ID")
@flag("--restrict", "Not while a relationship leads to it.")
def delete(session: Session, scope: str, id: str, restrict: bool) -> None:
    """Delete an entity with its properties and relationships."""
    with session.change(scope) as state:
        if not Entities(state).delete(id, restrict=restrict):
            raise MissingError(f"{scope} has no entity {id}")
    session.tell({"scope": scope, "deleted": id}, f"{id}: deleted")


@click.group(cls=Group)
def relation() -> None:
    """Relationships between entities of a scope."""


@relation.verb("list SCOPE --limit=100 --at")
@option("--from=from_id", "ID", "From this entity.")
@option("--to=to_id", "ID", "To this entity.")
@click.option("--type", help="Of this type.")
def list_relations(session: Session, /, scope: str, at: str | None, **how: Any) -> None:
    """Relationships, in the order of their ends."""
    with session.view(scope, at) as view:
        found = Entities(view).relationships(**how)
    session.table("relationships", found, _RELATION, about={"scope": scope})


@relation.verb("add SCOPE FROM_ID TYPE TO_ID")
@set_option
def add(session: Session, /, scope: str, given: Sequence[str], **ends: str) -> None:
    """Make a relationship between two entities."""
    metadata = _pairs(given)
    with session.change(scope) as state:
        made = Entities(state).relate(**ends, metadata=metadata)
    session.tell(made, f"{made.from_id} {made.type} {made.to_id}")


@relation.verb("remove SCOPE FROM_ID TYPE TO_ID")
def remove(session: Session, /, scope: str, **ends: str) -> None:
    """Delete a relationship."""
    with session.change(scope) as state:
        if not Entities(state).unrelate(**ends):
            raise MissingError(f"{scope}: there is no {' '.join(ends.values())}")
    session.tell({"scope": scope, "removed": ends}, f"{' '.join(ends.values())}: removed")


# ---- events -------------------------------------------------------------------------------------


@click.group(cls=Group)
def events() -> None:
    """The log of events, as far as it is written."""


@events.verb("list [PATTERNS]... --limit=100")
@click.option("--client", help="Of this client.")
@option("--since", "TIME", "From this ISO 8601 time on.")
@option("--until", "TIME", "Up to this time.")
@flag("--oldest", "The oldest first, not the newest.")
def list_events(session: Session, /, patterns: tuple[str, ...], oldest: bool, **how: Any) -> None:
    """Events whose names fit a PATTERN, like agent:*, the newest first."""
    for name in ("since", "until"):
        how[name] = moment(how[name]) if how[name] is not None else None
    with session.reading() as store:
        found = Events(store).query(patterns or "*", reverse=not oldest, durable=True, **how)
    _tell_events(session, found)


@events.verb("chain CORRELATION")
def chain(session: Session, correlation: str) -> None:
    """The events of a correlation, in their order."""
    with session.reading() as store:
        found = Events(store).chain(correlation)
    about = {"duration_ms": found.duration_ms, "event_types": found.event_types}
    _tell_events(session, found.events, **about)


@events.verb("session ID --limit=100")
def of_session(session: Session, id: str, limit: int) -> None:
    """The events of a session, in their order."""
    with session.reading() as store:
        found = Events(store).session_events(id, limit=limit)
    _tell_events(session, found)


def _tell_events(session: Session, found: Sequence[Event], **about: Any) -> None:
    session.table("events", found, _EVENT, about=about)


# ---- queues and observations --------------------------------------------------------------------


@click.group(cls=Group)
def queue() -> None:
    """Queues of items in a scope."""


@queue.verb("show SCOPE NAME")
def show_queue(session: Session, scope: str, name: str) -> None:
    """The items of a queue, the oldest first."""
    with session.read(scope) as state:
        found = Queue(state, name).items()
    rows = [{"item": Value(one) if session.json else one} for one in found]
    session.table("items", rows, "item", about={"scope": scope, "queue": name})


@queue.verb("push SCOPE NAME JSON=item")
@click.option("--ttl", type=float, default=3600.0, metavar="SECONDS", help="[3600; 0: for ever]")
def push(session: Session, scope: str, name: str, item: str, ttl: float) -> None:
    """Put an item at the end."""
    content = json.loads(item)
    with session.change(scope, new=True) as state:
        there = Queue(state, name).push(content, ttl=ttl or None)
    session.tell({"scope": scope, "queue": name, "items": there}, f"{name}: {there} items")


@queue.verb("pop SCOPE NAME")
@click.option("--count", type=click.IntRange(1), default=1, help="At most so many. [1]")
def pop(session: Session, scope: str, name: str, count: int) -> None:
    """Take items from the front; they are gone then."""
    with session.change(scope) as state:
        found = Queue(state, name).pop(count)
    rows = [{"item": Value(one) if session.json else one} for one in found]
    session.table("items", rows, "item", about={"scope": scope, "queue": name})


@click.group(cls=Group)
def observe() -> None:
    """Agents that are told of what others do."""


@observe.verb("list SCOPE")
def list_observations(session: Session, scope: str) -> None:
    """Subscriptions that are kept among the entities of a scope."""
    with session.view(scope, None) as view:
        found = Entities(view).query(TYPE, limit=None).items
    rows = [{"id": one.id, **one.properties} for one in found]
    columns = "subscription=id, observer, target, events, filter"
    session.table("observations", rows, columns, about={"scope": scope})


@observe.verb("add SCOPE OBSERVER TARGET [PATTERNS]...")
@option("--filter=filter_", "JSON", "As in docs/runtime.md.")
def add_observation(
    session: Session,
    scope: str,
    observer: str,
    target: str,
    patterns: tuple[str, ...],
    filter_: str | None,
) -> None:
    """Let an agent observe another; a daemon does so from its next start on."""
    wanted = json.loads(filter_) if filter_ is not None else None
    with session.writing() as store:
        made = Observations(Entities(session.state(store, scope)), Events(store))
        id = made.subscribe(observer, target, patterns or "*", filter=wanted)
    session.tell({"scope": scope, "subscription": id}, id)


# ---- a daemon -----------------------------------------------------------------------------------


@click.group(cls=Group)
def runtime() -> None:
    """A daemon: modules around a store."""


@runtime.verb("run MODULE:NAME=program")
@click.option("--timeout", type=float, default=30.0, metavar="SECONDS", help="Of a phase. [30]")
def run(session: Session, program: str, timeout: float) -> None:
    """Run a daemon until Ctrl-C or SIGTERM ends it well.

    MODULE:NAME is a function of an open store that gives its modules; modules of the current
    folder are found. A line tells when all are ready, and one when all have ended.
    """
    make = imported(program, "what makes the modules as MODULE:NAME, like fleet:modules")
    asyncio.run(_run(session, make, timeout))
    session.each({"event": "stopped"}, ["stopped", ""])


async def _run(session: Session, make: Any, timeout: float) -> None:
    import holdfast

    async with holdfast.open(**session.options()) as store:
        with store.acting(session.actor or login()):
            async with Runtime(store, make(store), timeout=timeout) as running:
                names = [name_of(one) for one in running.modules]
                ended = asyncio.create_task(running.forever())
                await asyncio.sleep(0)  # it has taken the signals: who reads "ready" may send one
                session.each({"event": "ready", "modules": names}, ["ready", ", ".join(names)])
                sys.stdout.flush()
                await ended
