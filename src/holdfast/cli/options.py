"""Arguments and options that several commands take, and what they mean."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import AgentFailed
from holdfast.errors import InvalidInputError

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition

Decorator = Callable[[Any], Any]


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator."""

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def limit_option(default: int | None = None, what: str = "At most so many.") -> Decorator:
    """How many are shown."""
    shown = f"{what} [{default}]" if default is not None else what
    return click.option("--limit", type=click.IntRange(1), default=default, help=shown)


scope_argument = click.argument("scope")
any_scope_argument = click.argument("scope", required=False)
key_argument = click.argument("name", metavar="KEY")
at_option = click.option("--at", metavar="POINT", help="As it was at a point.")
reveal_option = click.option("--reveal", is_flag=True, help="Show values of class sensitive.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
reason_option = click.option("--reason", help="Why; it is kept with the entry.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would change, and change nothing."
)
copy_option = click.option(
    "--copy",
    "copies",
    metavar="URL",
    multiple=True,
    help="A copy of the store that may have what is lost here, opened with the same key.",
)

# ---- agents, and what commands take from a program of theirs -----------------------------------

agent_argument = click.argument("agent", metavar="AGENT")
machine_option = click.option(
    "--machine",
    "machines",
    metavar="NAME=MODULE:DEFINITION",
    multiple=True,
    help="What settles an open transition of the machine NAME; may be given several times.",
)


def agent_scope(text: str) -> str:
    """The scope of an agent, which may be named by its id alone."""
    kind, colon, _ = text.partition(":")
    return text if colon and kind == "agent" else f"agent:{text}"


def loaded(module: str) -> Any:
    """A module that the user named, also one that lies where the command is run."""
    sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0]:
            raise InvalidInputError(f"there is no module {module!r} here") from None
        raise AgentFailed(f"{module} cannot be imported: {error}") from error
    except Exception as error:
        kind = type(error).__name__
        raise AgentFailed(f"{module} cannot be imported: {kind}: {error}") from error


def imported(text: str, what: str) -> Any:
    """The object that MODULE:NAME names; `what` says what it is, with an example."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidInputError(f"name {what}")
    try:
        return getattr(loaded(module), name)
    except AttributeError:
        raise InvalidInputError(f"the module {module!r} has no {name!r}") from None


def machines_named(given: Iterable[str]) -> dict[str, MachineDefinition]:
    """Definitions by the names of machines, of what `--machine` was given."""
    from holdfast.agents.machines.definition import MachineDefinition

    found: dict[str, MachineDefinition] = {}
    for text in given:
        name, equal, place = text.partition("=")
        wanted = "a machine as NAME=MODULE:DEFINITION, like orders=shop:ORDERS"
        made = imported(place if name and equal else "", wanted)
        if not isinstance(made, MachineDefinition):
            raise InvalidInputError(f"{place} is no MachineDefinition")
        found[name] = made
    return found
