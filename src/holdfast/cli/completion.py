"""Shell completion: the scripts, and what they ask this program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from holdfast.cli.commands import command
from holdfast.cli.session import Session
from holdfast.store.names.scope import KINDS

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

MOST = 200
_VARIABLE = "_HOLDFAST_COMPLETE"
# The line itself is handed over, because bash takes agent:7 apart at the colon; and only what
# stands behind the last colon is given back, because bash replaces no more than that.
_BASH = """\
_holdfast_completion() {
    local line="${COMP_LINE:0:$COMP_POINT}" cut="" kind value
    local word="${line##* }"
    [[ $COMP_WORDBREAKS == *:* && $word == *:* ]] && cut="${word%"${word##*:}"}"
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            plain) printf -v value %q "${value#"$cut"}"; COMPREPLY+=("$value") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
        esac
    done < <(env COMP_TEXT="$line" _HOLDFAST_COMPLETE=bash_complete "$1")
}
complete -o nosort -F _holdfast_completion holdfast
"""


@command()
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

    class Bash(shell_completion.BashComplete):
        def source(self) -> str:
            return _BASH

        def get_completion_args(self) -> tuple[list[str], str]:
            text = os.environ["COMP_TEXT"]
            words = shell_completion.split_arg_string(text)[1:]
            begun = bool(words) and not text[-1:].isspace()
            return (words[:-1], words[-1]) if begun else (words, "")

    found = Bash if shell == "bash" else shell_completion.get_completion_class(shell)
    if found is None:
        raise click.UsageError("completion knows bash, zsh and fish")
    return found(root, {"obj": session}, "holdfast", _VARIABLE)


# ---- scopes and keys -----------------------------------------------------------------------


def complete_scope(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Scopes of the store; none if it cannot be opened without asking."""
    try:
        with _session(context).reading() as store:
            kind, named, prefix = begun.partition(":")
            kinds = [kind] if named else [one for one in KINDS if one.startswith(kind)]
            pages = [store.scopes(kind=one, prefix=prefix, limit=MOST) for one in kinds]
    except Exception:  # whatever is wrong, pressing a key is no time to say it
        return []
    found = [str(one.scope) for page in pages for one in page.items]
    return [text for text in found if text.startswith(begun)]


def complete_key(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Keys of the scope that stands before."""
    session = _session(context)
    try:
        with session.reading() as store:
            state = session.state(store, context.params["scope"])
            return state.keys(begun, limit=MOST)
    except Exception:
        return []


def _session(context: click.Context) -> Session:
    session = context.find_root().ensure_object(Session)
    if session.would_ask:
        raise click.UsageError("completing a word asks for no passphrase")
    return session
