"""`holdfast agent mailbox`, `drift`, `run` and `check`: what agents are sent, and how they do."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import sys
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output, plain
from holdfast.cli.agent_state import agent_argument, agent_scope
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.failures import AgentFailed
from holdfast.cli.programs import imported
from holdfast.cli.session import Session, login
from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.store.inner import json

if TYPE_CHECKING:
    from holdfast.agents.drift import NotedAlarm
    from holdfast.agents.loop.decide import LoopResult
    from holdfast.agents.mailbox import Letter, Mailbox
    from holdfast.store.inner import Metrics

STOPS = (signal.SIGTERM, signal.SIGINT)
DRIFTED = FOUND = 1
"""Exit codes: refreshing the agent did not help; a check found something."""


@click.command(cls=Command)
@agent_argument
@click.option("--set-aside", is_flag=True, help="Letters that failed too often.")
@click.option("--limit", type=click.IntRange(1), default=50, help="At most so many. [50]")
@click.option("--send", metavar="JSON", help="Put a letter with this content into the mailbox.")
@click.option("--sender", default="", help="With --send: who it is from.")
@click.option("--id", "id_", metavar="ID", help="With --send: under this id it is sent once.")
@click.option("--retry", type=int, metavar="NUMBER", help="Let one that was set aside wait again.")
@click.option("--remove", type=int, metavar="NUMBER", help="Let nobody process one of them.")
@click.option("--clear-failed", is_flag=True, help="Remove those that were set aside.")
@click.option("--clear-all", is_flag=True, help="Remove those, and all that wait.")
@click.option("--reveal", is_flag=True, help="With --json: what the letters say.")
@pass_session
def mailbox(
    session: Session,
    agent: str,
    set_aside: bool,
    limit: int,
    send: str | None,
    sender: str,
    id_: str | None,
    retry: int | None,
    remove: int | None,
    clear_failed: bool,
    clear_all: bool,
    reveal: bool,
) -> None:
    """Letters to an agent that wait, and how many were processed."""
    from holdfast.agents.mailbox import Mailbox

    asked: dict[str, Callable[[Mailbox], Any]] = {}
    if send is not None:
        asked["send"] = lambda box: box.send(json.loads(send), sender=sender, id=id_)
    if retry is not None:
        asked["retry"] = lambda box: box.retry(retry)
    if remove is not None:
        asked["remove"] = lambda box: box.remove(remove)
    if clear_failed:
        asked["clear-failed"] = lambda box: box.clear_failed()
    if clear_all:
        asked["clear-all"] = lambda box: box.clear_all()
    if asked:
        _change(session, agent, asked)
        return
    with session.reading() as store:
        box = Mailbox(session.state(store, agent_scope(agent)))
        status = box.status()
        letters = box.set_aside()[:limit] if set_aside else box.waiting(limit=limit)
    if session.json:
        counts = {name: getattr(status, name) for name in status.__slots__}
        output.document({"status": counts, "letters": [_letter(one, reveal) for one in letters]})
        return
    output.say(
        f"{status.waiting} wait, {status.processed} of {status.received} are processed, "
        f"{status.set_aside} set aside, {status.missed} missed"
    )
    output.table(
        ["number", "id", "from", "time", "tries", "error", "due"],
        [
            [one.number, one.id, one.sender, one.time, one.tries, one.kind or one.error, one.due]
            for one in letters
        ],
    )


def _change(session: Session, agent: str, asked: dict[str, Callable[[Mailbox], Any]]) -> None:
    from holdfast.agents.mailbox import Mailbox

    if len(asked) > 1:
        raise InvalidInputError(f"give one of --{' and --'.join(asked)}, not both")
    [(what, change)] = asked.items()
    with session.writing() as store:
        made = change(Mailbox(session.state(store, agent_scope(agent), new=what == "send")))
    waits, count = what in ("send", "retry"), 1 if made is None else made
    if session.json:
        output.document({"id": made} if waits else {"removed": count})
    else:
        output.say(output.clean(f"{made}: waits") if waits else f"{count} removed")


def _letter(one: Letter, reveal: bool) -> dict[str, Any]:
    shape = {"number": one.number, "id": one.id, "sender": one.sender}
    shape |= {"time": plain.time_text(one.time), "tries": one.tries, "error": one.error}
    shape |= {"kind": one.kind, "due": plain.time_text(one.due) if one.due else None}
    return shape | ({"content": json.tagged(one.content)} if reveal else {})


@click.command(cls=Command)
@agent_argument
@click.option("--limit", type=click.IntRange(1), default=10, help="At most so many alarms. [10]")
@click.option("--reset", is_flag=True, help="Forget what was usual; the count of cycles goes on.")
@pass_session
def drift(session: Session, agent: str, limit: int, reset: bool) -> None:
    """How an agent's cycles of work go, and the last alarms with their evidence."""
    from holdfast.agents.drift import Drift

    if reset:
        with session.writing() as store:
            Drift(session.state(store, agent_scope(agent))).reset()
    with session.reading() as store:
        found = Drift(session.state(store, agent_scope(agent)))
        status, alarms = found.status(), found.alarms(limit=limit)
    if session.json:
        rates = {name: getattr(status, name) for name in status.__slots__}
        output.document({"status": rates, "alarms": [_alarm(one) for one in alarms]})
        return
    output.fields([(name.replace("_", " "), getattr(status, name)) for name in status.__slots__])
    output.table(
        ["time", "cycle", "drift", "evidence", "why"],
        [
            [one.time, one.alarm.cycle, one.alarm.kind, one.alarm.evidence, one.alarm.why]
            for one in alarms
        ],
    )


def _alarm(noted: NotedAlarm) -> dict[str, Any]:
    one = noted.alarm
    shape = {"time": plain.time_text(noted.time), "cycle": one.cycle, "kind": one.kind}
    shape |= {"since": one.since, "evidence": one.evidence, "why": one.why}
    return shape | {"details": json.tagged(dict(one.details))}


@click.command(cls=Command)
@agent_argument
@click.argument("program", metavar="MODULE:NAME")
@click.option("--routine", type=float, default=1800.0, show_default=True, metavar="SECONDS",
              help="Between routine checkpoints.")  # fmt: skip
@click.option("--refresh", type=float, default=7200.0, show_default=True, metavar="SECONDS",
              help="After which it is made anew, behind a recovery checkpoint.")  # fmt: skip
@click.option("--idle", type=float, default=1.0, show_default=True, metavar="SECONDS",
              help="To wait when there is nothing to do.")  # fmt: skip
@click.option("--max-errors", type=int, default=5, show_default=True,
              help="Errors in a row after which it gives up.")  # fmt: skip
@click.option("--new-process", is_flag=True, help="Begin a refresh with a new process.")
@click.option("--async", "async_", is_flag=True,
              help="The function makes an agent that is async, without saying so.")  # fmt: skip
@pass_session
def run(
    session: Session,
    agent: str,
    program: str,
    routine: float,
    refresh: float,
    idle: float,
    max_errors: int,
    new_process: bool,
    async_: bool,
) -> int:
    """Run an agent until it is done, or Ctrl-C or SIGTERM ends it after its step.

    MODULE:NAME is a class, or a function, that makes the agent, from its state if it takes one;
    modules of the current folder are found. An agent is async if its class is a
    holdfast.agents.Agent or has async methods; a function says so by the class that it is
    annotated to return, or you do by --async. If its program fails too often, or it drifts and
    refreshing it does not help, the exit code is 1.
    """
    from holdfast.seal.keys import variable_of

    make = imported(program, "what makes the agent as MODULE:NAME, like bots:Greeter")
    options = {
        "routine": routine,
        "refresh": refresh,
        "idle": idle,
        "max_errors": max_errors,
        "restart": "process" if new_process else "here",
        "signals": STOPS,
    }
    actor = session.actor or login()
    key = variable_of(session.key_name)
    try:
        if async_ or _makes_async(make):
            running = _run_async(session, agent_scope(agent), actor, make, options)
            result, metrics = asyncio.run(running)
        else:
            from holdfast import sync
            from holdfast.agents.loop.loop import run as run_agent

            with sync.open(**session.options()) as store, store.acting(actor):
                state = store.scope(agent_scope(agent)).on(session.timeline)
                result = run_agent(_blocking(make, program), state, **options)
                _hold_signals(result)
                metrics = store.metrics()
    except HoldfastError:
        raise
    except Exception as error:
        told = [f"its program failed with {type(error).__name__}"]
        told += getattr(error, "__notes__", [])[-2:]  # of the loop: where it can go on
        raise AgentFailed(f"{agent_scope(agent)}: {'; '.join(told)}") from error
    if result.outcome == "restart":
        sys.stdout.flush()
        # The store is closed; nothing returns from here.
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **key})
    _show(session, result, metrics)
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


@click.command(cls=Command)
@click.argument("agents", nargs=-1, metavar="[AGENT]...", shell_complete=complete_scope)
@click.option("--interval", type=float, default=1800.0, show_default=True, metavar="SECONDS",
              help="Between routine checkpoints.")  # fmt: skip
@click.option("--tolerance", type=float, default=300.0, show_default=True, metavar="SECONDS",
              help="By which one may be early or late.")  # fmt: skip
@click.option("--markdown", is_flag=True, help="The whole report, as Markdown.")
@pass_session
def check(
    session: Session, agents: tuple[str, ...], interval: float, tolerance: float, markdown: bool
) -> int:
    """Whether the checkpoints of agents (of all that are there) are whole and were made in time.

    The exit code is 1 if something was found.
    """
    from holdfast.agents.loop.loop import check_loop

    with session.reading() as store:
        names = [agent_scope(one) for one in agents]
        if not names:
            names = [str(one.scope) for one in store.scopes(kind="agent").items]
        reports = [
            check_loop(session.state(store, name), interval=interval, tolerance=tolerance)
            for name in names
        ]
    if session.json:
        shapes_ = [{name: getattr(one, name) for name in one.__slots__} for one in reports]
        output.document({"agents": json.tagged(_listed(shapes_))})
    elif markdown:
        click.echo("\n".join(one.markdown() for one in reports), nl=False)
    else:
        output.table(
            ["agent", "restorable", "checkpoints", "finding"],
            [
                [one.agent, one.restorable, sum(one.checkpoints.values()), finding]
                for one in reports
                for finding in one.findings or ("nothing was found wrong",)
            ],
        )
    return FOUND if any(one.findings for one in reports) else 0


def _listed(shapes_: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: list(one) if isinstance(one, tuple) else one for name, one in shape.items()}
        for shape in shapes_
    ]


def _show(session: Session, result: LoopResult, metrics: Metrics) -> None:
    names = ("outcome", "cycles", "letters", "errors", "restarts", "checkpoint")
    if session.json:
        shape = {name: getattr(result, name) for name in names}
        shape |= {"alarms": [one.why for one in result.alarms], "metrics": metrics.figures()}
        output.document(shape)
        return
    output.fields([(name, getattr(result, name)) for name in names])
    for one in result.alarms:
        output.say(output.clean(f"{one.kind}: {one.why}"))
