"""Errors as one line and an exit code."""

from __future__ import annotations

import os
import re
import sys

import click

from holdfast import errors


class AgentFailed(click.ClickException):
    """The program of an agent failed, which is no bug in Holdfast."""


BAD_USAGE, UNRECOVERED, INTERNAL, OUTPUT, INTERRUPTED, BROKEN_PIPE = 2, 9, 70, 74, 130, 141
CODES: tuple[tuple[type[Exception], int], ...] = (
    (AgentFailed, 1),
    (errors.MissingError, 4),
    (errors.Conflict, 5),
    (errors.MergeConflictError, 5),
    (errors.StateIntegrityError, 6),
    (errors.RefusedError, BAD_USAGE),
    (errors.Unavailable, 7),
    (errors.OutcomeUnknown, 8),
    (errors.RecoveryFailedError, UNRECOVERED),
    (click.ClickException, BAD_USAGE),
)
HELP = """\b
Exit codes:
  0   done
  1   verify found something; diff --exit-code: there are differences; import: not all was taken;
      agent run: its program failed, or it drifted and refreshing did not help;
      runtime run: its program failed;
      agent check: something is wrong; doctor: health is below --at-least;
      repair, recovery boot|scrub: something is left; backup verify: something is wrong;
      replica sync|status: one is not up to date
  2   bad usage, or refused (also a key that does not fit)
  3   verify was stopped by its budget, nothing found so far
  4   not found: store, scope, key, point, checkpoint or timeline
  5   conflict: someone else changed it, both sides of a merge did, or the name is taken
  6   damage was found while reading
  7   the storage is unavailable: locked, full, read-only
  8   the outcome of a write is unknown: look before trying again
  9   a recovery did not succeed; `holdfast recovery show` says why, and where it left the agent
  70  a bug in Holdfast; HOLDFAST_DEBUG=1 shows where
  74  the output cannot be written; what was asked for may be done
"""
# The library speaks of arguments, this program of options.
_WORDS = (
    ("give its key (key= or HOLDFAST_KEY)", "give its key with --key or HOLDFAST_KEY"),
    ("with key= or HOLDFAST_KEY", "with --key or HOLDFAST_KEY"),
    ("open it without a key", "leave out --key and unset HOLDFAST_KEY"),
    (
        "a key is given as file:PATH, env:NAME or passphrase:TEXT",
        "--key takes file:PATH, env:NAME or `passphrase:`",
    ),
    ("`checkpoints()` lists them", "`holdfast checkpoint list` shows them"),
    ("`keys()` lists them", "`holdfast key list` shows them"),
    ("`log()` shows causes", "`holdfast log` shows causes"),
    ("`reports` lists them", "`holdfast recovery list` shows them"),
    ("`list` has them", "`holdfast quarantine list` shows them"),
    ("`break_lease` of it mends that", "`holdfast lease break` of it mends that"),
    ("`leases()` lists them", "`holdfast lease list` shows them"),
    (
        "look at waiting() and set_aside()",
        "`holdfast agent mailbox` shows those that wait, and with --set-aside the others",
    ),
    ("look at set_aside()", "`holdfast agent mailbox --set-aside` shows those"),
    ("unfinished() lists them", "`holdfast agent effects` lists them"),
    ("`schedules()` lists them", "`holdfast schedule list` shows them"),
    ("`timelines()` lists them", "`holdfast timelines` shows them"),
    ("given as metrics=", "which you name with --metric"),
    ("pin identity=", "give --identity"),
    ("open the store with the new key, or give it to this one with add_key()", "give that one"),
    ("or erase it with despite_holds=True", "or use `scope erase --despite-holds`"),
    ("sweep() drops", "`holdfast sweep` drops"),
    ("rotate_master(), and", "`holdfast keyring rotate --new-key` and `finish`, and"),
    ("or give dependencies='ignore'", "or give --dependencies ignore"),
    ("signer=file:PATH", "--signer file:PATH"),
    (
        "Give a strategy: ours, theirs or a function",
        "Give --strategy: ours or theirs",
    ),
    ("give key= for the file, or plain=True", "give --file-key, or --plain"),
    ("give key= or plain=True", "give --file-key or --plain"),
    ("leave out key=", "leave out --file-key"),
    ("leave the key out", "leave out --file-key"),
    ("give the key that it was made with", "give the key that it was made with, --file-key"),
    ("give the one that it was made with", "give the one that it was made with, --file-key"),
    ("give it with trust=", "give it with --trust"),
    ("as `list()` shows it", "as `holdfast backup list` shows it"),
    ("`list()` shows those", "`holdfast backup list` shows those"),
    ("say with `at` which", "say with --at which"),
    ("give limit= if", "give --limit if"),
    ("reveal= is", "--reveal is"),
    ("`export_checkpoint` makes one", "`holdfast checkpoint export` makes one"),
    ("open the store with read_only=True", "use commands that only read"),
    ("open it with create=True", "make a store there with `holdfast init`"),
    ("; sweep does that", "; `holdfast sweep` does that"),
    ("`Store.sweep`", "`holdfast sweep`"),
    ("; resume with ", "; go on with --resume "),
)
_FLAG = re.compile(r"\b(give|with) ([a-z_]+)=True")
_METHOD = re.compile(r"`(Checkpoints|Retention|Recovery)\.(\w+)`")
_NOUNS = {"Checkpoints": "checkpoint", "Retention": "retention", "Recovery": "recovery"}


def exit_code(error: BaseException) -> int:
    """The code that `holdfast --help` documents."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, OSError) and error.filename is None:
        return OUTPUT  # one that concerned a file would name it
    return next((code for kind, code in CODES if isinstance(error, kind)), INTERNAL)


def text_of(error: BaseException) -> str:
    """One line: what went wrong and what to do next."""
    if isinstance(error, click.ClickException):
        text = error.format_message()
        if (
            isinstance(error, click.MissingParameter)
            and getattr(error.param, "name", "") == "scope"
        ):
            text += " Name one as in agent:7; `holdfast scope list` shows them."
    elif isinstance(error, click.Abort | KeyboardInterrupt):
        text = "interrupted"
    elif isinstance(error, OSError) and exit_code(error) == OUTPUT:
        text = f"the output cannot be written ({error.strerror}); what was asked for may be done"
    elif exit_code(error) == INTERNAL:
        kind = type(error).__name__
        text = f"{error}" if isinstance(error, errors.HoldfastError) else f"unexpected {kind}"
        text += "; this is a bug: run it again with HOLDFAST_DEBUG=1 and report what it shows"
    else:
        text = str(error)
    return " ".join(in_options(text).split())


def in_options(text: str) -> str:
    """A text of the library in the words of this program."""
    for said, meant in _WORDS:
        text = text.replace(said, meant)
    text = _FLAG.sub(lambda found: f"{found[1]} --{found[2].replace('_', '-')}", text)
    return _METHOD.sub(lambda found: f"`holdfast {_NOUNS[found[1]]} {found[2]}`", text)


def report(error: BaseException, *, as_json: bool) -> int:
    """Say it on stderr; returns the exit code."""
    if os.environ.get("HOLDFAST_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if as_json:
        from holdfast.store.inner import dumps

        name = "Interrupted" if isinstance(error, click.Abort) else type(error).__name__
        click.echo(dumps({"error": name, "message": text_of(error)}), err=True)
    else:
        from holdfast.cli.output import clean

        click.echo(f"error: {clean(text_of(error))}", err=True)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"see `{error.ctx.command_path} --help`", err=True)
    return exit_code(error)
