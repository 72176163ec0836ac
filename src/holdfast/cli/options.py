"""Arguments and options that several commands take, and what they mean."""

from __future__ import annotations

import os
import re
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


# `--copy=copies` is an option --copy that is given to the function as `copies`.


def flag(name: str, about: str) -> Decorator:
    """An option that is there or not."""
    return click.option(*name.split("="), is_flag=True, help=about)


def option(name: str, shown: str, about: str) -> Decorator:
    """An option with a text; `shown` says of what kind."""
    return click.option(*name.split("="), metavar=shown, help=about)


def several(name: str, shown: str, about: str) -> Decorator:
    """The same, which may be given more than once."""
    return click.option(*name.split("="), metavar=shown, multiple=True, help=about)


def choice(name: str, words: str, about: str, *, required: bool = False) -> Decorator:
    """An option with one of some words, the first unless one has to be given."""
    first = None if required else words.split()[0]
    kind = click.Choice(words.split())
    return click.option(*name.split("="), type=kind, default=first, required=required, help=about)


def seconds(name: str, default: float, about: str) -> Decorator:
    """An option with a time."""
    return click.option(
        name, type=float, default=default, show_default=True, metavar="SECONDS", help=about
    )


SHARED: dict[str, dict[str, Any]] = {
    "--at": {"metavar": "POINT", "help": "As it was at a point."},
    "--reveal": {"is_flag": True, "help": "Show values of class sensitive."},
    "--yes": {"is_flag": True, "help": "Do not ask."},
    "--reason": {"help": "Why; it is kept with the entry."},
    "--dry-run": {"is_flag": True, "help": "Show what would change, and change nothing."},
    "--limit": {"type": click.IntRange(1), "help": "At most so many."},
    "--create": {"is_flag": True, "help": "Make the store if there is none."},
    "--trust": {"metavar": "KEY", "multiple": True, "help": "A public key that must have signed."},
    "--copy=copies": {
        "metavar": "URL",
        "multiple": True,
        "help": "A copy of the store that may have what is lost here, opened with the same key.",
    },
    "--machine=machines": {
        "metavar": "NAME=MODULE:DEFINITION",
        "multiple": True,
        "help": "What settles an open transition of the machine NAME; may be given several times.",
    },
}
"""Options that a usage line can name."""
_WORD = re.compile(r"(\[?)([\w:-]+)(\]?)(\.\.\.)?(?:=(\w+))?(\]?)")


def declared(usage: str) -> tuple[str, Decorator]:
    """The name of a command, and what gives it the arguments and options of its usage line.

    `get SCOPE KEY=name [POINT] --reveal --limit=100`: KEY is given to the function as `name`,
    POINT may be left out, `URL...` may be several. Options are those of `SHARED`; a number is the
    default of one. They are shown behind the command's own.
    """
    name, *words = usage.split()
    arguments = [_argument(word) for word in words if not word.startswith("-")]
    options = [_option(word) for word in words if word.startswith("-")]

    def add(function: Any) -> Any:
        own = getattr(function, "__click_params__", [])  # the last one first, as click keeps them
        function.__click_params__ = [*reversed(options), *own, *reversed(arguments)]
        return function

    return name, add


def _argument(word: str) -> click.Argument:
    found = _WORD.fullmatch(word)
    if found is None:
        raise ValueError(f"{word} is no argument of a usage line")
    optional, shown, _, several, name, _ = found.groups()
    metavar = f"[{shown}]" if optional else shown
    return click.Argument(
        [name or shown.lower()],
        metavar=f"{metavar}{several or ''}",
        required=not optional,
        nargs=-1 if several else 1,
    )


def _option(word: str) -> click.Option:
    name, _, default = word.partition("=")
    key = next(one for one in SHARED if one.partition("=")[0] == name)
    given = dict(SHARED[key])
    if default:
        given |= {"default": int(default), "help": f"{given['help']} [{default}]"}
    return click.Option([name, *key.split("=")[1:]], **given)


# ---- agents, and what commands take from a program of theirs -----------------------------------


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
