"""What commands take from a program: an object of a module in this folder, or on Python's path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import AgentFailed
from holdfast.errors import InvalidInputError

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition

machine_option = click.option(
    "--machine",
    "machines",
    metavar="NAME=MODULE:DEFINITION",
    multiple=True,
    help="What settles an open transition of the machine NAME; may be given several times.",
)


def imported(text: str, what: str) -> Any:
    """The object that MODULE:NAME names; `what` says what it is, with an example."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidInputError(f"name {what}")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise AgentFailed(f"{module} cannot be imported: {error}") from error
        raise InvalidInputError(f"there is no module {module!r} here") from None
    except AttributeError:
        raise InvalidInputError(f"the module {module!r} has no {name!r}") from None
    except Exception as error:
        kind = type(error).__name__
        raise AgentFailed(f"{module} cannot be imported: {kind}: {error}") from error


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
