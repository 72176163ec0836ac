"""`holdfast agent list`, `show` and `state`: who agents are and what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.failures import exit_code
from holdfast.cli.key import at_option, reveal_option
from holdfast.cli.points import point
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, MissingError, StateIntegrityError
from holdfast.store.inner import SENSITIVE, core_of, handle_of, tagged
from holdfast.store.names.items import MASK

if TYPE_CHECKING:
    from holdfast.agents.agent_registry import AgentInfo
    from holdfast.agents.state.components import Source
    from holdfast.sync import State, Store

agent_argument = click.argument("agent", metavar="AGENT", shell_complete=complete_scope)


def agent_scope(text: str) -> str:
    """The scope of an agent, which may be named by its id alone."""
    kind, colon, _ = text.partition(":")
    return text if colon and kind == "agent" else f"agent:{text}"


@click.command("list", cls=Command)
@click.option("--kind", help="Agents of this kind.")
@click.option("--prefix", default="", help="Agents whose id begins so.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option("--after", help="Go on behind this id.")
@pass_session
def list_(
    session: Session, kind: str | None, prefix: str, limit: int | None, after: str | None
) -> int:
    """All agents that are registered or were started, and who runs them.

    Those that are damaged are among them; then the exit code is 6.
    """
    with session.reading() as store:
        found = _infos(store, kind, prefix, limit, after)
    damaged = [one for one in found if one.damage]
    code = exit_code(StateIntegrityError()) if damaged else 0
    if session.json:
        output.document({"agents": [_info(one) for one in found]})
        return code
    rows = [
        [one.id, one.identity.name, one.identity.kind, one.identity.version, one.status, one.owner]
        for one in found
    ]
    output.table(["agent", "name", "kind", "version", "status", "run by"], rows)
    if limit is not None and len(found) == limit:
        output.note(f"there may be more: --after {found[-1].id}")
    for one in damaged:
        output.note(one.damage)
    return code


def _infos(
    store: Store, kind: str | None, prefix: str, limit: int | None, after: str | None
) -> list[AgentInfo]:
    from holdfast.agents.agent_registry import Registering

    core = Registering(core_of(store), {}, {}, 30.0)
    return core.infos((), kind, prefix, limit, after, registered=False)


def _info(one: AgentInfo) -> dict[str, Any]:
    from holdfast.agents.state.checks import plain

    about = tagged(plain(one.identity))
    shown = {"id": one.id, "status": one.status, "owner": one.owner, "identity": about}
    return shown | {"damage": one.damage} if one.damage else shown


@click.command(cls=Command)
@agent_argument
@pass_session
def show(session: Session, agent: str) -> None:
    """Who an agent is, where it is in its life, what it holds, and what is wrong with that.

    AGENT is its id.
    """
    from holdfast.agents.state.agent_state import AgentState
    from holdfast.agents.state.checks import plain

    with session.reading() as store:
        state = session.state(store, agent_scope(agent))
        id = state.scope.id
        infos = [one for one in _infos(store, None, id, 1, None) if one.id == id]
        typed = AgentState(state)
        life = plain(typed.get("execution_state"))
        sizes = _sizes(state)
        problems = typed.problems()
        machines = _machines(state)
    owner = infos[0].owner if infos else None
    about = plain(infos[0].identity) if infos else {}
    if session.json:
        document = {"agent": id, "identity": tagged(about), "life": tagged(life), "owner": owner}
        held = {"machines": machines, "components": sizes, "problems": problems}
        output.document({**document, **held})
        return
    output.fields(
        [
            ("agent", id),
            *((name, part) for name, part in about.items() if name != "metadata"),
            ("status", life.get("status", "created")),
            ("since", life.get("since")),
            *([("error", life["error"])] if "error" in life else []),
            ("starts", life.get("starts", 0)),
            ("run by", owner or "nobody"),
            *((f"machine {name}", _place(one)) for name, one in machines.items()),
        ]
    )
    output.table(["component", "items"], [[name, size] for name, size in sizes.items()])
    for text in problems:
        output.note(f"wrong: {text}")


@click.command(cls=Command)
@agent_argument
@click.argument("which", metavar="[CHECKPOINT]", required=False)
@click.option("--out", "-o", metavar="FOLDER", default=".", help="[default: this one]")
@click.option("--plain", is_flag=True, help="Of an encrypted store: a file that is not.")
@click.option("--reveal", is_flag=True, help="Also what is sensitive.")
@pass_session
def export(
    session: Session, agent: str, which: str | None, out: str, plain: bool, reveal: bool
) -> None:
    """Write a checkpoint of an agent (default the newest) to a JSON file for people.

    Its current task, mailbox, operational context and memory. AGENT is its id.
    """
    from holdfast.agents.state.agent_file import export_agent

    at = point(which) if which is not None else None
    with session.reading() as store:
        state = session.state(store, agent_scope(agent))
        path = export_agent(state, out, at=at, plain=plain, reveal=reveal)
    if session.json:
        output.document({"agent": state.scope.id, "file": path})
    else:
        output.say(output.clean(path))


def _machines(state: State) -> dict[str, dict[str, str | None]]:
    """Where the machines of an agent are, and where those are to come that are on their way."""
    from holdfast.agents.machines.machine_records import Looker, machines_of

    found = {name: Looker(handle_of(state), name).look() for name in machines_of(handle_of(state))}
    return {
        name: {"state": seen.state or None, "to": seen.intent.to_state if seen.intent else None}
        for name, seen in found.items()
    }


def _place(machine: dict[str, str | None]) -> str:
    where = machine["state"] or "not begun"
    to = machine["to"]
    return where if to is None else f"{where}, on its way to {to} or interrupted"


def _sizes(state: State) -> dict[str, int]:
    """How many items each component has; of one without items, its fields."""
    moment, components = _components(state)
    found = {name: component.stored(moment) for name, component in components.items()}
    sizes = {name: len(data) for name, data in found.items() if isinstance(data, dict | list)}
    if "tasks" in sizes:
        sizes["tasks"] = len(moment.keys(components["tasks"].below))
    if kept := _attached(state):
        sizes["attached"] = len(kept)
    return sizes


def _components(state: State, reveal: bool = True) -> tuple[Source, dict[str, Any]]:
    from holdfast.agents.state.agent_state import Moment
    from holdfast.agents.state.components import table

    moment: Source = Moment(handle_of(state).reader)
    return moment if reveal else _Masked(moment, state), table()


class _Masked:
    """A source whose sensitive values are not even read."""

    def __init__(self, source: Source, view: State) -> None:
        self._source = source
        self._view = view

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or what stands for it."""
        hidden = handle_of(self._view).reader.class_of(key) == SENSITIVE and self._view.exists(key)
        return MASK if hidden else self._source.get(key, default)

    def keys(self, prefix: str = "") -> list[str]:
        """Keys that begin with a text, in order."""
        return self._source.keys(prefix)


def _attached(state: State, reveal: bool = True) -> dict[str, Any]:
    from holdfast.agents.attach_fields import field_key, read_fields, read_manifest

    def hidden(key: str) -> bool:
        return not reveal and handle_of(state).reader.class_of(key) == SENSITIVE

    reader = handle_of(state).reader
    manifest = read_manifest(reader)
    shown = [name for name in manifest.fields if not hidden(field_key(name))]
    values = read_fields(reader, manifest, shown).values
    for name, value in values.items():
        below = field_key(name) + "/"
        for key in state.keys(below) if isinstance(value, dict) else ():
            if hidden(key):
                value[key.removeprefix(below)] = MASK
    there = [name for name in manifest.fields if name in values or name not in shown]
    return {name: values.get(name, MASK) for name in there}


@click.command(cls=Command)
@agent_argument
@click.argument("component", required=False)
@click.option("--tail", type=click.IntRange(1), help="Of a list, the last so many.")
@at_option
@reveal_option
@pass_session
def state(
    session: Session,
    agent: str,
    component: str | None,
    tail: int | None,
    at: str | None,
    reveal: bool,
) -> None:
    """What an agent holds: all of it, or one component (conversation, tasks, attached ...).

    AGENT is its id.
    """
    with session.reading() as store:
        view: Any = session.view(store, agent_scope(agent), at)
        moment, components = _components(view, reveal)
        if component is not None and component not in {*components, "attached"}:
            known = ", ".join([*components, "attached"])
            raise InvalidInputError(f"there is no component {component!r}; there are {known}")
        chosen = [component] if component is not None else [*components, "attached"]
        values = {}
        for name in chosen:
            own = name == "attached"
            data = _attached(view, reveal) if own else components[name].stored(moment)
            if data:
                values[name] = data
    if component is not None and component not in values:
        raise MissingError(f"{view.scope} has nothing stored as {component}")
    held = {name: tagged(_last(data, tail)) for name, data in values.items()}
    if session.json:
        output.document({"agent": view.scope.id, "components": held})
    else:
        output.value(held[component] if component is not None else held)


def _last(data: Any, count: int | None) -> Any:
    return data[-count:] if count is not None and isinstance(data, list) else data
