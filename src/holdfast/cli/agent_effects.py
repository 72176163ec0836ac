"""`holdfast agent effects` and `settle`: what an agent did in the world, or may have done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.agents.effect_book import HOW, Asked, Book
from holdfast.cli import output, plain
from holdfast.cli.agent_state import agent_argument, agent_scope
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError
from holdfast.store.inner import handle_of, json

if TYPE_CHECKING:
    from holdfast.agents.effect_book import Effect


@click.command(cls=Command)
@agent_argument
@click.option("--all", "done", is_flag=True, help="Those that are done, too.")
@click.option("--reveal", is_flag=True, help="With --json: what they are about, and their results.")
@pass_session
def effects(session: Session, agent: str, done: bool, reveal: bool) -> None:
    """Effects of an agent that are not done: planned ones, and those whose end is unknown.

    One that is being done in another process just now is unknown, too.
    """
    scope = agent_scope(agent)
    with session.reading() as store:
        found = Book(handle_of(session.state(store, scope))).effects(done=done, plain=True)
    if session.json:
        output.document({"scope": scope, "effects": [_shape(one, reveal=reveal) for one in found]})
        return
    output.table(
        ["effect", "id", "status", "attempts", "begun", "key", "error", "what to do"],
        [
            [
                one.name,
                one.id,
                one.status,
                one.attempts,
                one.started_at,
                one.key,
                one.error,
                _advice(one),
            ]
            for one in found
        ],
    )


def _advice(one: Effect) -> str:
    if one.strays:
        return f"it happened {one.strays} times besides"
    if one.status == "done":
        return ""
    return "nothing: the agent may begin it" if one.repeatable else "settle it"


def _shape(one: Effect, *, reveal: bool = False) -> dict[str, Any]:
    times = {"planned": one.planned_at, "begun": one.started_at, "ended": one.ended_at}
    values = {"about": one.about, "result": one.result} if reveal else {}
    return {
        "name": one.name,
        "id": one.id,
        "key": one.key,
        "status": one.status,
        "repeatable": one.repeatable,
        "attempts": one.attempts,
        "error": one.error,
        **{name: plain.time_text(time) if time else None for name, time in times.items()},
        "settled": one.settled,
        "result_lost": one.result_lost,
        "strays": one.strays,
        **{name: json.tagged(value) for name, value in values.items()},
    }


@click.command(cls=Command)
@agent_argument
@click.argument("name")
@click.argument("id", required=False)
@click.option("--done", is_flag=True, help="It happened.")
@click.option("--repeat", is_flag=True, help="It did not: the agent may begin it.")
@click.option("--drop", is_flag=True, help="It is not wanted any more.")
@click.option("--result", metavar="JSON", help="With --done: what came of it.")
@pass_session
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
    given = json.loads(result) if result is not None else None
    scope = agent_scope(agent)
    with session.writing() as store:
        book = Book(handle_of(session.state(store, scope)))
        settled = book.settle(Asked.of(name, id, None), how, given)
    if session.json:
        output.document({"scope": scope, "how": how, "effect": _shape(settled)})
    else:
        word = "dropped" if how == "drop" else settled.status
        output.say(output.clean(f"{scope} {settled}: {word}"))
