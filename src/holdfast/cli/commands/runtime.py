"""`holdfast entity`, `relation`, `events`, `queue`, `observe` and `runtime`: a daemon from outside.

These look; `runtime send` has a daemon's own names answered, those that change something, too.
"""

from __future__ import annotations

import asyncio
import sys
from inspect import isawaitable
from traceback import extract_tb
from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.command import Group, flag, imported, option, several, values_named
from holdfast.cli.failures import AgentFailed
from holdfast.cli.plain import Value, plain
from holdfast.cli.session import Session, login, moment
from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.runtime.entities import Entities
from holdfast.runtime.events import Events
from holdfast.runtime.life_cycle import Runtime, answers_of, known_of, name_of, plain_of
from holdfast.runtime.observations import Observations
from holdfast.runtime.queue import Queue
from holdfast.runtime.requests import Requests
from holdfast.runtime.runtime_records import SUBSCRIPTION
from holdfast.store.inner import json_values

HERE = ("completion:active", "monitor:get_stats", "observation:list")
"""What tells of the memory of a daemon's own process; from outside it would always be empty."""
_RELATION = "from=from_id, type, to=to_id, metadata, created=created_at_iso"
_EVENT = "time=timestamp_iso, event=event_name, client=client_id, correlation=correlation_id, data"


# ---- entities and relationships -----------------------------------------------------------------


entity = Group("entity", help="Entities of a scope: things with a type and properties.")


@entity.verb("list SCOPE --limit=100 --at")
@click.option("--type", "type_", help="Of this type.")
@several("--where", "NAME=JSON", "With this property.")
@option("--order", "NAME", "By a property; -NAME: the other way round.")
def list_(session: Session, /, scope: str, type_: str | None, at: str | None, **how: Any) -> None:
    """Entities, with what properties they have."""
    how["where"] = values_named(how["where"], "--where")
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


relation = Group("relation", help="Relationships between entities of a scope.")


@relation.verb("list SCOPE --limit=100 --at")
@option("--from=from_id", "ID", "From this entity.")
@option("--to=to_id", "ID", "To this entity.")
@click.option("--type", help="Of this type.")
def list_relations(session: Session, /, scope: str, at: str | None, **how: Any) -> None:
    """Relationships, in the order of their ends."""
    with session.view(scope, at) as view:
        found = Entities(view).relationships(**how)
    session.table("relationships", found, _RELATION, about={"scope": scope})


# ---- events -------------------------------------------------------------------------------------


events = Group("events", help="The log of events, as far as it is written.")


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
    session.table("events", found, _EVENT)


@events.verb("chain CORRELATION")
def chain(session: Session, correlation: str) -> None:
    """The events of a correlation, in their order."""
    with session.reading() as store:
        found = Events(store).chain(correlation)
    about = {"duration_ms": found.duration_ms, "event_types": found.event_types}
    session.table("events", found.events, _EVENT, about=about)


# ---- queues and observations --------------------------------------------------------------------


queue = Group("queue", help="Queues of items in a scope.")


@queue.verb("show SCOPE NAME")
def show_queue(session: Session, scope: str, name: str) -> None:
    """The items of a queue, the oldest first."""
    with session.read(scope) as state:
        found = Queue(state, name).items()
    rows = [{"item": Value(one) if session.json else one} for one in found]
    session.table("items", rows, "item", about={"scope": scope, "queue": name})


observe = Group("observe", help="Agents that are told of what others do.")


@observe.verb("list SCOPE")
def list_observations(session: Session, scope: str) -> None:
    """Subscriptions that are kept among the entities of a scope."""
    with session.view(scope, None) as view:
        found = Entities(view).query(SUBSCRIPTION, limit=None).items
    rows = [{"id": one.id, **one.properties} for one in found]
    columns = "subscription=id, observer, target, events, filter"
    session.table("observations", rows, columns, about={"scope": scope})


# ---- a daemon -----------------------------------------------------------------------------------


runtime = Group("runtime", help="A daemon: modules around a store.")


@runtime.verb("send NAME [JSON]=data")
@click.option("--scope", default="custom:fleet", help="Of its modules. [custom:fleet]")
def send(session: Session, name: str, data: str | None, scope: str) -> None:
    """Have a name answered as a daemon would, like state:entity:create '{"type": "agent"}'.

    Entities, queues and observations are those of one scope; the log and the requests are those of
    the store. A daemon at work knows of a subscription from its next start on.
    """
    given = json_values.loads(data) if data is not None else {}
    if not isinstance(given, dict):
        raise InvalidInputError(f"{name} takes an object of parameters")
    if name in HERE:
        raise InvalidInputError(f"{name} tells of the memory of a daemon's process: send it there")
    with session.writing() as store:
        state = session.state(store, scope, new=True)
        entities, log = Entities(state), Events(store)
        requests = Requests(store, print)  # which is not started: it asks and looks
        modules = (entities, log, Queue(state, "any"), Observations(entities, log), requests)
        answers = {one: answer for module in modules for one, answer in answers_of(module).items()}
        found = plain_of(known_of(answers, name)(given))
    output.value(plain(Value(found)))


@runtime.verb("run MODULE:NAME=program")
@click.option("--timeout", type=float, default=30.0, metavar="SECONDS", help="Of a phase. [30]")
def run(session: Session, program: str, timeout: float) -> None:
    """Run a daemon until Ctrl-C or SIGTERM ends it well.

    MODULE:NAME is a function of an open store that gives its modules; modules of the current
    folder are found. A line tells when all are ready, and one when all have ended.
    """
    make = imported(program, "what makes the modules as MODULE:NAME, like fleet:modules")
    try:
        asyncio.run(_run(session, make, timeout))
    except (HoldfastError, BrokenPipeError):
        raise
    except Exception as error:
        frames = extract_tb(error.__traceback__)
        own = getattr(sys.modules.get(make.__module__), "__file__", None)
        frame = ([one for one in frames if one.filename == own] or frames)[-1]
        place = f"{frame.filename}, line {frame.lineno}"
        told = f"{program} failed with {type(error).__name__}: {error} ({place})"
        raise AgentFailed(told) from error
    session.each({"event": "stopped"}, ["stopped", ""])


async def _run(session: Session, make: Any, timeout: float) -> None:
    import holdfast

    async with holdfast.open(**session.options()) as store:
        with store.acting(session.actor or login()):
            made = make(store)
            modules = await made if isawaitable(made) else made
            async with Runtime(store, modules, timeout=timeout) as running:
                names = [name_of(one) for one in running.modules]
                ended = asyncio.create_task(running.forever())
                await asyncio.sleep(0)  # it has taken the signals: who reads "ready" may send one
                session.each({"event": "ready", "modules": names}, ["ready", ", ".join(names)])
                sys.stdout.flush()
                await ended
