"""`holdfast agent import-folder`: an agent that lived in a folder of files."""

from __future__ import annotations

import click

from holdfast.cli import output
from holdfast.cli.agent_state import agent_argument, agent_scope
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.session import Session


@click.command(cls=Command)
@agent_argument
@click.argument("folder", metavar="FOLDER")
@click.option("--from", "name", metavar="NAME", help="What its files call the agent. [its id]")
@pass_session
def import_folder(session: Session, agent: str, folder: str, name: str | None) -> None:
    """Take up an agent's tasks, mailbox, context, memory and cycles from a folder of files.

    FOLDER has a folder `runtime`, or is it. All or nothing; the same files are taken up once.
    """
    from holdfast.agents.folder import import_folder

    with session.writing() as store:
        state = session.state(store, agent_scope(agent), new=True)
        made = import_folder(state, folder, agent=name)
    if session.json:
        shape = {one: getattr(made, one) for one in made.__slots__}
        output.document(shape | {"changed": made.changed})
    elif made.changed:
        output.fields([(one.replace("_", " "), getattr(made, one)) for one in made.__slots__])
    else:
        output.say("all of it was taken up before; nothing was changed")
