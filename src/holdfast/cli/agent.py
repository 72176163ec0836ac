"""`holdfast agent`: what agents are and what they do."""

from __future__ import annotations

import click

from holdfast.cli.commands import LazyGroup

HOMES = {
    "transitions": "holdfast.cli.agent_transitions:transitions",
}


@click.group(cls=LazyGroup, homes=HOMES)
def agent() -> None:
    """What agents are and what they do."""
