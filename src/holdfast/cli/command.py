"""What a command is: its usage line, its options, the global ones anywhere; and completion."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import AgentFailed
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, InvalidScopeError
from holdfast.store.names.scope import Scope

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem, ShellComplete

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
    "--module": {
        "metavar": "MODULE",
        "multiple": True,
        "help": "A module that registers transforms; may be given several times.",
        "expose_value": False,
        "callback": lambda _, __, given: [loaded(module) for module in given],
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


# ---- commands ---------------------------------------------------------------------------------

EPILOG = "Global options (--store, --key, --json …) may stand here, too: see holdfast --help."
Function = Callable[..., Any]
SAME = {"run": "create", "make": "create", "new": "create", "ls": "list", "check": "verify"}
SAME |= {"rm": "delete", "remove": "delete", "history": "log"}
SAME |= {"rollback": "restore", "status": "doctor", "health": "doctor"}
SAME |= {"cat": "get", "dump": "show", "snapshot": "checkpoint"}
"""Words that other programs have for commands of ours."""
_pass_session = click.make_pass_decorator(Session, ensure=True)


def _note(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Put what was given into the session; what was not given changes nothing."""
    session = context.find_root().ensure_object(Session)
    if value is not None and value is not False:
        setattr(session, str(option.name), value)
        session.given.add(str(option.name))


GLOBAL: dict[str, dict[str, Any]] = {
    "--store": {
        "metavar": "URL",
        "help": "sqlite:PATH, a bare path, postgresql://HOST/DATABASE or mongodb://HOST/DATABASE. "
        "[HOLDFAST_STORE; default sqlite:holdfast.db]",
    },
    "--key": {
        "metavar": "SOURCE",
        "help": "file:PATH, env:NAME, or `passphrase:` to be asked. [HOLDFAST_KEY]",
    },
    "--passphrase-file": {
        "metavar": "PATH",
        "help": "Take the passphrase from the first line of a file.",
    },
    "--signer": {
        "metavar": "file:PATH",
        "help": "The signing key, if it is kept apart. [HOLDFAST_SIGNER]",
    },
    "--timeline": {"metavar": "NAME", "help": "[default main]"},
    "--actor": {"metavar": "NAME", "help": "Who acts. [default the login]"},
    "--durability": {
        "type": click.Choice(["full", "normal"]),
        "help": "What a write survives: power loss, or kill -9. [default full]",
    },
    "--json": {"is_flag": True, "help": "One JSON document, errors too."},
}
"""The options that every command takes."""


def command(usage: str, **more: Any) -> Callable[[Function], click.Command]:
    """A command that is no verb of a noun. Its function gets the session, then what is given."""
    name, add = declared(usage)
    return lambda function: click.command(name, cls=Command, **more)(_pass_session(add(function)))


class Command(click.Command):
    """A command that takes the global options behind its name, unless it has its own."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own parameters, then the global ones, whose values go to the session."""
        own, hidden = super().get_params(ctx), ctx.parent is not None
        taken = {name for param in own for name in (param.name, *param.opts)}
        every = (
            click.Option([name], expose_value=False, callback=_note, hidden=hidden, **more)
            for name, more in GLOBAL.items()
        )
        more = [option for option in every if taken.isdisjoint((option.name, *option.opts))]
        return [*own[:-1], *more, *own[-1:]]  # --help stays last

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say that they may stand here."""
        super().format_epilog(ctx, formatter)
        if ctx.parent is not None:
            formatter.write_paragraph()
            formatter.write_text(EPILOG)


class Group(Command, click.Group):
    """A noun with its verbs."""

    command_class = Command
    group_class = type

    def verb(self, usage: str, **more: Any) -> Callable[[Function], click.Command]:
        """A command of this noun. Its function gets the session, then what is given."""
        name, add = declared(usage)
        return lambda function: self.command(name, **more)(_pass_session(add(function)))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name; a slip of the pen is pointed out."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            known, root, word = self.list_commands(ctx), ctx.find_root(), args[0]
            top = root.command.list_commands(root) if isinstance(root.command, Group) else []
            # By another word for it, here or of the program itself, else by closeness.
            meant = [one for one in (SAME.get(word),) if one in known]
            meant += [f"holdfast {one}" for one in (SAME.get(word), word) if one in top]
            if ctx is root and not meant:  # a verb without its noun
                meant = [*self._verbs(ctx, word), *self._verbs(ctx, SAME.get(word, ""))]
            meant += get_close_matches(word, known, 1)
            if not meant:
                raise
            text = f"No such command {word!r}. Did you mean {meant[0]!r}?"
            raise click.UsageError(text, ctx) from error

    def _verbs(self, ctx: click.Context, verb: str) -> list[str]:
        """The nouns that have a verb, each with it; those of keys first, for they are most used."""
        nouns = sorted(self.list_commands(ctx), key=lambda name: name != "key")
        made = ((name, self.get_command(ctx, name)) for name in nouns)
        found = (name for name, one in made if isinstance(one, Group) and verb in one.commands)
        return [f"{name} {verb}" for name in found]


def home_of(said: str) -> str:
    """The module that a command lies in, by what the table of commands says of it."""
    name = said.partition(":")[0]
    return f"holdfast.cli.{name}" if name == "command" else f"holdfast.cli.commands.{name}"


class LazyGroup(Group):
    """A group that imports a command when it is used; `homes` says where it is and what it does."""

    def __init__(self, *args: Any, homes: dict[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._homes = homes

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(self._homes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import it."""
        if cmd_name not in self._homes:
            return None
        home = import_module(home_of(self._homes[cmd_name]))
        found: click.Command = getattr(home, cmd_name.replace("-", "_"))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the table says: to import all of them would take a second."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._about(name)) for name in self._homes])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The same for who presses the tab key."""
        from click.shell_completion import CompletionItem

        fits = [name for name in self._homes if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self._about(name)) for name in fits]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def _about(self, name: str) -> str:
        return self._homes[name].partition(": ")[2]


# ---- agents, and what commands take from a program of theirs -----------------------------------


def agent_scope(text: str) -> str:
    """The scope of an agent, which may be named by its id alone; another scope by its text."""
    try:
        return str(Scope.parse(text)) if ":" in text else f"agent:{text}"
    except InvalidScopeError:
        return f"agent:{text}"


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


def values_named(given: Iterable[str], option: str) -> dict[str, Any]:
    """Values by their names, of an option that takes NAME=JSON."""
    from holdfast.store.inner import json_values

    found: dict[str, Any] = {}
    for name, equal, value in (one.partition("=") for one in given):
        try:
            found[name] = json_values.loads(value if equal else "")
        except InvalidInputError:
            text = f"{name}{equal}{value}"
            raise InvalidInputError(
                f"{option} takes NAME=JSON, like load=0.5, or 'role=\"critic\"' of a text, "
                f"not {text!r}"
            ) from None
    return found


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


# ---- words of this program in a shell ----------------------------------------------------------


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: Session, shell: str) -> None:
    """The script that completes holdfast's words in a shell.

    \b
    bash: echo 'eval "$(holdfast completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(holdfast completion zsh)"' >> ~/.zshrc
    fish: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    context = click.get_current_context()
    click.echo(_protocol(context.find_root().command, session, shell).source())


def answer(root: click.Command, session: Session, instruction: str) -> int:
    """What a shell asks with `SHELL_complete`."""
    shell, _, _ = instruction.partition("_")
    click.echo(_protocol(root, session, shell).complete())
    return 0


def _protocol(root: click.Command, session: Session, shell: str) -> ShellComplete:
    from click import shell_completion

    found = shell_completion.get_completion_class(shell)
    if found is None:
        raise click.UsageError("completion knows bash, zsh and fish")
    return found(root, {"obj": session}, "holdfast", "_HOLDFAST_COMPLETE")
