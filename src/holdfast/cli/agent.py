"""`holdfast agent`: what agents are and what they do."""

from __future__ import annotations

import click

from holdfast.cli.commands import LazyGroup

HOMES = {
    "list": "holdfast.cli.agent_state:list_",
    "show": "holdfast.cli.agent_state:show",
    "export": "holdfast.cli.agent_state:export",
    "import-folder": "holdfast.cli.agent_folder:import_folder",
    "state": "holdfast.cli.agent_state:state",
    "transitions": "holdfast.cli.agent_transitions:transitions",
    "effects": "holdfast.cli.agent_effects:effects",
    "settle": "holdfast.cli.agent_effects:settle",
    "handovers": "holdfast.cli.agent_handovers:handovers",
    "mailbox": "holdfast.cli.agent_loop:mailbox",
    "drift": "holdfast.cli.agent_loop:drift",
    "run": "holdfast.cli.agent_loop:run",
    "check": "holdfast.cli.agent_loop:check",
}


@click.group(cls=LazyGroup, homes=HOMES)
def agent() -> None:
    """What agents are and what they do."""
