"""`holdfast agent handovers`: who handed what to whom, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.agents.handover import Handovers
from holdfast.cli import output, plain
from holdfast.cli.agent_state import agent_argument, agent_scope
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError

if TYPE_CHECKING:
    from holdfast.agents.handover_package import Handover


@click.command(cls=Command)
@agent_argument
@click.option("--task", metavar="ID", help="Of one task.")
@click.option("--open", "waiting", is_flag=True, help="Only offers that wait for its answer.")
@click.option("--chain", is_flag=True, help="With --task: its way from agent to agent.")
@pass_session
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
    if session.json:
        output.document({"scope": scope, "handovers": [_shape(one) for one in found]})
        return
    names = "handover task from to status offered term messages reason answer"
    output.table(
        names.split(),
        [
            [
                one.id,
                one.task,
                str(one.giver),
                str(one.taker),
                one.status,
                one.offered_at,
                f"{one.term:g} s" if one.term is not None else "",
                one.messages,
                one.reason,
                one.answer,
            ]
            for one in found
        ],
    )


def _shape(one: Handover) -> dict[str, Any]:
    return {
        "id": one.id,
        "task": one.task,
        "from": str(one.giver),
        "to": str(one.taker),
        "status": one.status,
        "reason": one.reason,
        "answer": one.answer,
        "offered": plain.time_text(one.offered_at) if one.offered_at else None,
        "answered": plain.time_text(one.answered_at) if one.answered_at else None,
        "messages": one.messages,
        "before": one.before,
        "returns": one.returns,
        "term": one.term,
    }
