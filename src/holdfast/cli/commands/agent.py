"""`holdfast agent`: what agents are, what they hold, and what they do."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
import typing
from typing import Any

import click

from holdfast.agents.agent_registry import Agents
from holdfast.agents.attach_fields import field_key, read_fields, read_manifest
from holdfast.agents.drift import Drift
from holdfast.agents.effect_records import Effect, EffectBook
from holdfast.agents.effects import HOW, Effects
from holdfast.agents.handover import Handovers
from holdfast.agents.loop.check import check_loop
from holdfast.agents.loop.decide import LoopResult
from holdfast.agents.machines.machine_records import MachineBook, machines_of
from holdfast.agents.mailbox import Mailbox
from holdfast.agents.state.agent_file import export_agent
from holdfast.agents.state.agent_state import AgentState
from holdfast.agents.state.checks import plain as bare
from holdfast.agents.state.components import table
from holdfast.cli import output
from holdfast.cli.command import Group, agent_scope, flag, imported, option, seconds, several
from holdfast.cli.failures import AgentFailed, exit_code
from holdfast.cli.plain import Value, fields_of, plain
from holdfast.cli.session import Session, bound, is_sensitive, login, point
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    InvalidScopeError,
    MissingError,
    StateIntegrityError,
)
from holdfast.seal.keys import variable_of
from holdfast.store.inner import Metrics, Reader, handle_of, json_values
from holdfast.store.names.items import MASK
from holdfast.store.names.scope import Scope
from holdfast.sync import State

STOPS = (signal.SIGTERM, signal.SIGINT)
DRIFTED = FOUND = 1
"""Exit codes: refreshing the agent did not help; a check found something."""


agent = Group("agent", help="What agents are and what they do.")


@agent.verb("list --limit")
@click.option("--kind", help="Agents of this kind.")
@click.option("--prefix", default="", help="Agents whose id begins so.")
@click.option("--after", help="Go on behind this id.")
def list_(
    session: Session, kind: str | None, prefix: str, limit: int | None, after: str | None
) -> int:
    """All agents that have a scope, registered or not, and who runs them.

    Those that are damaged are among them; then the exit code is 6.
    """
    with session.reading() as store:
        found = [*Agents(store)._infos((), kind, prefix, limit, after, registered=False)]
    damaged = [one for one in found if one.damage]
    about = "name=identity.name, kind=identity.kind, version=identity.version"
    rows: list[Any] = found
    if session.json:
        rows = [
            {"id": one.id, "status": one.status, "owner": one.owner}
            | {"identity": Value(bare(one.identity))}
            | ({"damage": one.damage} if one.damage else {})
            for one in found
        ]
    session.table("agents", rows, f"agent=id, {about}, status, run by=owner")
    if limit is not None and len(found) == limit:
        session.note(f"there may be more: --after {found[-1].id}")
    for one in damaged:
        session.note(one.damage)
    return exit_code(StateIntegrityError()) if damaged else 0


@agent.verb("show AGENT")
def show(session: Session, agent: str) -> None:
    """Who an agent is, where it is in its life, what it holds, and what is wrong with that.

    AGENT is its id.
    """
    with session.reading() as store:
        state = session.state(store, agent_scope(agent))
        id = state.scope.id
        found = Agents(store)._infos((), None, id, 1, None, registered=False)
        # What is no agent is in no directory, whoever has its id.
        infos = [one for one in found if one.id == id and state.scope.kind == "agent"]
        typed = AgentState(state)
        life = bare(typed.get("execution_state"))
        sizes = _sizes(state)
        problems = typed.problems()
        handle = handle_of(state)
        seen = {name: MachineBook(handle, name).look() for name in machines_of(handle)}
    owner = infos[0].owner if infos else None
    about = bare(infos[0].identity) if infos else {}
    machines = {
        name: {"state": one.state or None, "to": one.intent.to_state if one.intent else None}
        for name, one in seen.items()
    }
    places = {
        name: f"{one['state'] or 'not begun'}"
        + (f", on its way to {one['to']} or interrupted" if one["to"] is not None else "")
        for name, one in machines.items()
    }
    if session.json:
        told = {"agent": id, "identity": Value(about), "life": Value(life), "owner": owner}
        session.tell({**told, "machines": machines, "components": sizes, "problems": problems})
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
            *((f"machine {name}", one) for name, one in places.items()),
        ]
    )
    output.table(["component", "items"], list(sizes.items()))
    for text in problems:
        output.note(f"wrong: {text}")


@agent.verb("export AGENT [CHECKPOINT]=which")
@click.option("--out", "-o", metavar="FOLDER", default=".", help="[default: this one]")
@flag("--plain", "Of an encrypted store: a file that is not.")
@flag("--reveal", "Also what is sensitive.")
def export(session: Session, /, agent: str, which: str | None, out: str, **how: bool) -> None:
    """Write a checkpoint of an agent (default the newest) to a JSON file for people.

    Its current task, mailbox, operational context and memory. AGENT is its id.
    """
    at = point(which) if which is not None else None
    with session.read(agent_scope(agent)) as state:
        path = export_agent(state, out, at=at, **how)
    session.tell({"agent": state.scope.id, "file": path}, path)


@agent.verb("import-folder AGENT FOLDER")
@option("--from=name", "NAME", "What its files call the agent. [its id]")
def import_folder(session: Session, agent: str, folder: str, name: str | None) -> None:
    """Take up an agent's tasks, mailbox, context, memory and cycles from a folder of files.

    FOLDER has a folder `runtime`, or is it. All or nothing; the same files are taken up once.
    """
    from holdfast.agents.folder import import_folder

    with session.change(agent_scope(agent), new=True) as state:
        made = import_folder(state, folder, agent=name)
    done = fields_of(made)
    nothing = "all of it was taken up before; nothing was changed"
    shown = (lambda: output.fields(done.items())) if made.changed else nothing
    session.tell({**done, "changed": made.changed}, shown)


def _sizes(state: State) -> dict[str, int]:
    """How many items each component has; of one without items, its fields."""
    shown, components = _Shown(state), table()
    found = {name: component.stored(shown) for name, component in components.items()}
    sizes = {name: len(data) for name, data in found.items() if isinstance(data, dict | list)}
    if "tasks" in sizes:
        sizes["tasks"] = len(shown.keys(components["tasks"].below))
    if kept := _attached(shown):
        sizes["attached"] = len(kept)
    return sizes


class _Shown:
    """Reads of a view; values of class sensitive are not even read unless they are revealed."""

    def __init__(self, view: Any, reveal: bool = True) -> None:
        self._view = view
        self.reader: Reader = handle_of(view).reader
        self._reveal = reveal

    def get(self, key: str, default: Any = None, *_: Any) -> Any:
        """The value of a key, or what stands for it."""
        hidden = not self._reveal and is_sensitive(self._view, key) and self._view.exists(key)
        return MASK if hidden else self.reader.get(key, default, None, False)

    def keys(self, prefix: str = "") -> list[str]:
        """Keys that begin with a text, in order."""
        return self.reader.keys(prefix, None, "")

    def items(self, prefix: str, *_: Any) -> list[tuple[str, Any]]:
        """The same with their values."""
        return [(key, self.get(key)) for key in self.keys(prefix)]


def _attached(shown: Any) -> dict[str, Any]:
    found = read_fields(shown, read_manifest(shown.reader), None)
    # Of a mapping that is sensitive not even the names are shown.
    return {n: MASK if shown.get(field_key(n)) is MASK else one for n, one in found.items()}


@agent.verb("state AGENT [COMPONENT] --at --reveal")
@click.option("--tail", type=click.IntRange(1), help="Of a list, the last so many.")
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
    view: Any
    with session.view(agent_scope(agent), at) as view:
        source, components = _Shown(view, reveal), table()
        known = [*components, "attached"]
        if component is not None and component not in known:
            names = ", ".join(known)
            raise InvalidInputError(f"there is no component {component!r}; there are {names}")
        held = {}
        for name in [component] if component is not None else known:
            own = name == "attached"
            data = _attached(source) if own else components[name].stored(source)
            if data:
                held[name] = Value(data[-tail:] if tail and isinstance(data, list) else data)
    if component is not None and component not in held:
        raise MissingError(f"{view.scope} has nothing stored as {component}")
    shown = held[component] if component is not None else held
    told = {"agent": view.scope.id, "components": held}
    session.tell(told, lambda: output.value(plain(shown)))


# ---- machines ----------------------------------------------------------------------------------


@agent.verb("transitions SCOPE")
@option("--machine", "NAME", "One machine. [all of them]")
@flag("--failed", "Only attempts that failed.")
@option("--since", "TIME|NUMBER", "From a time or a transition's number on.")
@click.option("--limit", type=int, default=50, help="The newest so many. [50]")
def transitions(
    session: Session, scope: str, machine: str | None, failed: bool, since: str | None, limit: int
) -> None:
    """Where the state machines of an agent are, and how they got there.

    SCOPE is an agent's id, or any scope with machines: workflow:9.
    """
    try:
        Scope.parse(scope)
    except InvalidScopeError:
        scope = agent_scope(scope)
    start = bound(since) if since is not None else None
    with session.read(scope) as state:
        handle = handle_of(state)
        names = machines_of(handle)
        if machine is not None and machine not in names:
            known = ", ".join(names) or "none"
            raise MissingError(f"{scope} has no machine {machine!r}; it has: {known}")
        shown = [
            _told(MachineBook(handle, name), since=start, success=not failed and None, limit=limit)
            for name in names
            if machine in (None, name)
        ]
    session.tell({"scope": scope, "machines": shown}, lambda: list(map(_say, shown)))
    if not shown:
        session.note(f"{scope} has no state machine")


def _told(book: MachineBook, **asked: Any) -> dict[str, Any]:
    """A machine and its transitions."""
    seen = book.look()
    return {
        "machine": book.name,
        "state": seen.state or None,
        "version": seen.now.version if seen.now is not None else None,
        "interrupted": seen.intent,
        "transitions": book.transitions(**asked),
    }


def _say(machine: dict[str, Any]) -> None:
    """For people: where it is, then a line for each transition."""
    name, begun = machine["machine"], plain(machine["interrupted"])
    where = f"{machine['state']}, version {machine['version']}" if machine["state"] else "not begun"
    output.note(f"{name}: {where}")
    if begun is not None:
        work = f"{begun['trigger']} is being worked on since {begun['begun']}"
        output.note(f"{name}: {work}, or was interrupted")
    columns = "number, time=timestamp, kind, trigger, from=from_state, to=to_state, version, error"
    output.rows(machine["transitions"], columns, {})


# ---- effects and handovers ---------------------------------------------------------------------


@agent.verb("effects AGENT")
@flag("--all=done", "Those that are done, too.")
@flag("--reveal", "With --json: what they are about, and their results.")
def effects(session: Session, agent: str, done: bool, reveal: bool) -> None:
    """Effects of an agent that are not done: planned ones, and those whose end is unknown.

    One that is being done in another process just now is unknown, too.
    """
    scope = agent_scope(agent)
    with session.read(scope) as state:
        found = EffectBook(handle_of(state)).effects(done=done, plain=True)
    rows: list[Any] = found
    if session.json:
        values = [
            {"about": Value(one.about), "result": Value(one.result)} if reveal else {}
            for one in found
        ]
        rows = [plain(one) | more for one, more in zip(found, values, strict=True)]
    columns = "effect=name, id, status, attempts, begun=started_at, key, error, what to do=advice"
    session.table("effects", rows, columns, about={"scope": scope}, advice=_advice)


def _advice(one: Effect) -> str:
    if one.strays:
        return f"it happened {one.strays} times besides"
    if one.status == "done":
        return ""
    return "nothing: the agent may begin it" if one.repeatable else "settle it"


@agent.verb("settle AGENT NAME [ID]")
@flag("--done", "It happened.")
@flag("--repeat", "It did not: the agent may begin it.")
@flag("--drop", "It is not wanted any more.")
@option("--result", "JSON", "With --done: what came of it.")
def settle(
    session: Session, /, agent: str, name: str, id: str | None, result: str | None, **ends: bool
) -> None:
    """Say how an effect ended that its agent knows no end of.

    Find out first, and make sure that no process is doing it just now.
    """
    said = [how for how in HOW if ends[how]]
    if len(said) != 1:
        raise InvalidInputError("say how it ended, by one of --done, --repeat and --drop")
    [how] = said
    given = json_values.loads(result) if result is not None else None
    scope = agent_scope(agent)
    with session.change(scope) as state:
        settled = Effects(state).settle(name, how, id=id, result=given)
    word = "dropped" if how == "drop" else settled.status
    session.tell({"scope": scope, "how": how, "effect": settled}, f"{scope} {settled}: {word}")


@agent.verb("handovers AGENT")
@option("--task", "ID", "Of one task.")
@flag("--open=waiting", "Only offers that wait for its answer.")
@flag("--chain", "With --task: its way from agent to agent.")
def handovers(session: Session, agent: str, task: str | None, waiting: bool, chain: bool) -> None:
    """Tasks that were handed, or offered, by an agent or to it: who, to whom, and why."""
    if chain and task is None:
        raise InvalidInputError("--chain needs --task ID, the task whose way is asked for")
    scope = agent_scope(agent)
    with session.reading() as store:
        book, state = Handovers(store), session.state(store, scope)
        if chain and task is not None:
            found = book.chain(state, task)
        elif waiting:
            found = [one for one in book.offers(state) if task in (None, one.task)]
        else:
            found = book.history(state, task)
    session.table(
        "handovers",
        found,
        "handover=id, task, from=giver, to=taker, status, offered=offered_at, messages, "
        "reason, answer",
        about={"scope": scope},
    )


# ---- the mailbox -------------------------------------------------------------------------------


@agent.verb("mailbox AGENT --limit=50")
@flag("--set-aside", "Letters that failed too often.")
@option("--send", "JSON", "Put a letter with this content into the mailbox.")
@click.option("--sender", default="", help="With --send: who it is from.")
@option("--id=id_", "ID", "With --send: under this id it is sent once.")
@click.option("--retry", type=int, metavar="NUMBER", help="Let one that was set aside wait again.")
@click.option("--remove", type=int, metavar="NUMBER", help="Let nobody process one of them.")
@flag("--clear-failed", "Remove those that were set aside.")
@flag("--clear-all", "Remove those, and all that wait.")
@flag("--reveal", "With --json: what the letters say.")
def mailbox(session: Session, /, agent: str, **given: Any) -> None:
    """Letters to an agent that wait, and how many were processed."""
    changes = ("send", "retry", "remove", "clear_failed", "clear_all")
    asked = [name for name in changes if given[name] not in (None, False)]
    if len(asked) > 1:
        names = " and --".join(asked).replace("_", "-")
        raise InvalidInputError(f"give one of --{names}, not both")
    if asked:
        _change_mailbox(session, agent, asked[0], given)
        return
    with session.read(agent_scope(agent)) as state:
        box, limit = Mailbox(state), given["limit"]
        status = box.status()
        letters = box.set_aside()[:limit] if given["set_aside"] else box.waiting(limit=limit)
    if session.json:
        reveal = given["reveal"]
        told = [plain(one) | ({"content": Value(one.content)} if reveal else {}) for one in letters]
        session.tell({"status": status, "letters": told})
        return
    output.say(
        f"{status.waiting} wait, {status.processed} of {status.received} are processed, "
        f"{status.set_aside} set aside, {status.missed} missed"
    )
    columns = "number, id, from=sender, time, tries, error, due"
    output.rows(letters, columns, {"error": lambda one: one.kind or one.error})


def _change_mailbox(session: Session, agent: str, what: str, given: dict[str, Any]) -> None:
    with session.change(agent_scope(agent), new=what == "send") as state:
        box = Mailbox(state)
        if what == "send":
            content = json_values.loads(given["send"])
            made: Any = box.send(content, sender=given["sender"], id=given["id_"])
        elif what in ("retry", "remove"):
            made = getattr(box, what)(given[what])
        else:
            made = getattr(box, what)()
    if what in ("send", "retry"):
        session.tell({"id": made}, f"{made}: waits")
    else:
        count = 1 if made is None else made
        session.tell({"removed": count}, f"{count} removed")


# ---- running an agent, and how that goes -------------------------------------------------------


@agent.verb("drift AGENT --limit=10")
@flag("--reset", "Forget what was usual; the count of cycles goes on.")
def drift(session: Session, agent: str, limit: int, reset: bool) -> None:
    """How an agent's cycles of work go, and the last alarms with their evidence."""
    if reset:
        with session.change(agent_scope(agent)) as state:
            Drift(state).reset()
    with session.read(agent_scope(agent)) as state:
        found = Drift(state)
        status, alarms = found.status(), found.alarms(limit=limit)
    session.tell(
        {"status": status, "alarms": alarms},
        lambda: output.fields(fields_of(status).items()),
        lambda: output.rows(alarms, "time, cycle, drift=kind, evidence, why", {}),
    )


@agent.verb("run AGENT MODULE:NAME=program")
@seconds("--routine", 1800.0, "Between routine checkpoints.")
@seconds("--refresh", 7200.0, "After which it is made anew, behind a recovery checkpoint.")
@seconds("--idle", 1.0, "To wait when there is nothing to do.")
@click.option("--max-errors", type=int, default=5, show_default=True,
              help="Errors in a row after which it gives up.")  # fmt: skip
@several("--field=fields", "NAME", "An attribute to keep, if the agent says of none.")
@flag("--new-process", "Begin a refresh with a new process.")
@flag("--async=async_", "The function makes an agent that is async, without saying so.")
def run(
    session: Session,
    /,
    agent: str,
    program: str,
    fields: tuple[str, ...],
    new_process: bool,
    async_: bool,
    **options: Any,
) -> int:
    """Run an agent until it is done, or Ctrl-C or SIGTERM ends it after its step.

    MODULE:NAME is a class, or a function, that makes the agent, from its state if it takes one;
    modules of the current folder are found. An agent is async if its class is a
    holdfast.agents.Agent or has async methods; a function says so by the class that it is
    annotated to return, or you do by --async. If its program fails too often, or it drifts and
    refreshing it does not help, the exit code is 1.
    """
    make = imported(program, "what makes the agent as MODULE:NAME, like bots:Greeter")
    options |= {"restart": "process" if new_process else "here", "signals": STOPS}
    options["fields"] = fields or None
    actor, scope = session.actor or login(), agent_scope(agent)
    key = variable_of(session.key_name)
    try:
        if async_ or _makes_async(make):
            import asyncio

            result, metrics = asyncio.run(_run_async(session, scope, actor, make, options))
        else:
            from holdfast import sync
            from holdfast.agents.loop.loop import run as run_agent

            with sync.open(**session.options()) as store, store.acting(actor):
                state = store.scope(scope).on(session.timeline)
                result = run_agent(_blocking(make, program), state, **options)
                _hold_signals(result)
                metrics = store.metrics()
    except HoldfastError:
        raise
    except Exception as error:
        told = [f"its program failed with {type(error).__name__}"]
        told += getattr(error, "__notes__", [])[-2:]  # of the loop: where it can go on
        raise AgentFailed(f"{scope}: {'; '.join(told)}") from error
    if result.outcome == "restart":
        sys.stdout.flush()
        # The store is closed; nothing returns from here.
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **key})
    told = plain(result)
    shown = [(name, one) for name, one in told.items() if name != "alarms"]
    session.tell(
        {**told, "metrics": metrics.figures()},
        lambda: output.fields(shown),
        *(f"{one.kind}: {one.why}" for one in result.alarms),
    )
    return DRIFTED if result.outcome == "drifted" else 0


def _hold_signals(result: LoopResult) -> None:
    """Let signals wait, if a new process goes on, until its loop takes them: it ends as asked."""
    if result.outcome == "restart" and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)


def _makes_async(make: Any) -> bool:
    """Whether a class, or a function by what it says that it returns, makes an async agent."""
    if not inspect.isfunction(make):
        return _is_async(make if isinstance(make, type) else type(make))
    try:
        made = typing.get_type_hints(make).get("return")
    except (NameError, TypeError):
        made = None
    return inspect.iscoroutinefunction(make) or (isinstance(made, type) and _is_async(made))


def _is_async(kind: type) -> bool:
    import holdfast

    methods = (getattr(kind, name, None) for name in ("step", "on_letter", "check_tasks"))
    return issubclass(kind, holdfast.agents.Agent) or any(map(inspect.iscoroutinefunction, methods))


def _blocking(make: Any, program: str) -> Any:
    """A function whose agent must not be async; anything else as it is."""
    if not inspect.isfunction(make):
        return make

    @functools.wraps(make)
    def made(*given: Any) -> Any:
        agent = make(*given)
        if _is_async(type(agent)):
            raise InvalidInputError(f"the agent that {program} makes is async: add --async")
        return agent

    return made


async def _run_async(
    session: Session, scope: str, actor: str, make: Any, options: dict[str, Any]
) -> tuple[LoopResult, Metrics]:
    import holdfast

    async with holdfast.open(**session.options()) as store:
        with store.acting(actor):
            state = store.scope(scope).on(session.timeline)
            result = await holdfast.agents.run(make, state, **options)
            _hold_signals(result)
            return result, store.metrics()


@agent.verb("check [AGENT]...=agents")
@seconds("--interval", 1800.0, "Between routine checkpoints.")
@seconds("--tolerance", 300.0, "By which one may be early or late.")
@flag("--markdown", "The whole report, as Markdown.")
def check(
    session: Session, agents: tuple[str, ...], interval: float, tolerance: float, markdown: bool
) -> int:
    """Whether the checkpoints of agents (of all that are there) are whole and were made in time.

    The exit code is 1 if something was found.
    """
    with session.reading() as store:
        names = [agent_scope(one) for one in agents]
        if not names:
            names = [str(one.scope) for one in store.scopes(kind="agent").items]
        reports = [
            check_loop(session.state(store, name), interval=interval, tolerance=tolerance)
            for name in names
        ]
    if markdown and not session.json:
        click.echo("\n".join(one.markdown() for one in reports), nl=False)
    elif session.json:
        session.tell({"agents": reports})
    else:
        rows = [
            [one.agent, one.restorable, sum(one.checkpoints.values()), finding]
            for one in reports
            for finding in one.findings or ("nothing was found wrong",)
        ]
        output.table(["agent", "restorable", "checkpoints", "finding"], rows)
    return FOUND if any(one.findings for one in reports) else 0
