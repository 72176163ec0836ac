"""The entry point."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TextIO

import click

import holdfast
from holdfast.cli import failures
from holdfast.cli.command import LazyGroup, answer
from holdfast.cli.session import Session

# A short program makes little garbage: looking for it would take a tenth of its time.
gc.set_threshold(50_000, 20, 20)

HOMES = {
    "init": "store: Make a store; with a key it is encrypted.",
    "scope": "store: List, delete and erase scopes.",
    "key": "key: List, read and change keys.",
    "show": "history: The whole state of a scope: every key with its value.",
    "log": "history: The entries of a scope, newest first.",
    "diff": "history: What changed from one point to another.",
    "blame": "history: Who wrote each part of a value.",
    "query": "history: Keys and values that a lookup leads to.",
    "watch": "history: Entries as they are committed; until Ctrl-C.",
    "checkpoint": "checkpoint: Make, list, show, co-sign, export and import checkpoints.",
    "restore": "timeline: Return to the state at a point.",
    "recover": "recovery: Bring an agent back to a good state.",
    "recovery": "recovery: What became of recoveries; going on with them.",
    "procedure": "recovery: Procedures of recoveries that are kept.",
    "run": "run: Run all that a document asks for.",
    "doctor": "repair: Health from 0 to 100, with reasons and next steps.",
    "repair": "repair: Mend what is damaged, of a scope or of all.",
    "quarantine": "repair: Damaged rows as they were found.",
    "debug": "history: Step through the entries of a scope.",
    "undo": "timeline: Undo the newest change of a scope.",
    "revert": "timeline: Undo what some entries did.",
    "fork": "timeline: Begin a new timeline of a scope.",
    "merge": "timeline: Bring what another timeline became into main.",
    "timelines": "timeline: The timelines of a scope.",
    "lease": "store: List leases, and break one.",
    "backup": "backup: Whole stores in a folder or a bucket.",
    "replica": "backup: Keep other stores up to date with this one.",
    "retention": "checkpoint: Which checkpoints go by the rules; prune them.",
    "policy": "policy: When checkpoints of an agent are made by themselves.",
    "agent": "agent: What agents are and what they do.",
    "schedule": "policy: Checkpoints at intervals and by the calendar.",
    "hook": "hook: Hooks: functions that are told of changes.",
    "schema": "schema: What values have to be: schemas that scopes have declared.",
    "migrate": "schema: Lead values of older versions of a schema to the newest.",
    "entity": "runtime: Entities of a scope: things with a type and properties.",
    "relation": "runtime: Relationships between entities of a scope.",
    "events": "runtime: The log of events, as far as it is written.",
    "queue": "runtime: Queues of items in a scope.",
    "observe": "runtime: Agents that are told of what others do.",
    "runtime": "runtime: A daemon: modules around a store.",
    "verify": "proof: Check all that is stored.",
    "witness": "proof: A small signed token over all that is in the store now.",
    "prove": "proof: A small proof of what a key was at a checkpoint.",
    "export-chain": "proof: The chain of a scope's entries, without content.",
    "keyring": "keyring: Look at, rotate and remove keys.",
    "access": "access: Who may read and write what, and all rules of one scope.",
    "audit": "store: Reads of sensitive values that were noted.",
    "stats": "store: Figures of the store.",
    "sweep": "store: Remove keys that have expired.",
    "langgraph": "langgraph: Threads of LangGraph, and importing them.",
    "completion": "command: The script that completes holdfast's words in a shell.",
}
"""The module of each command, and what its help says of it: no module is imported for that."""


@click.group(
    cls=LazyGroup,
    homes=HOMES,
    epilog=failures.HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(holdfast.__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def root() -> None:
    """Durable, verifiable state for AI agents.

    SCOPE is `global`, agent:ID, workflow:ID, step:WORKFLOW/STEP, session:ID or custom:NAME. POINT
    is an entry's number, TIMELINE@NUMBER, an ISO 8601 time, or the name of a checkpoint.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: this program's own); returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _complete_streams()
    session = Session()
    try:
        code = _run(words, session)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        return failures.BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        if failures.exit_code(error) == failures.OUTPUT:
            _silence(sys.stdout)
        try:
            return failures.report(error, as_json=session.json or "--json" in words)
        except OSError:
            _silence(sys.stderr)
            return failures.exit_code(error)
    return code


def _run(words: list[str], session: Session) -> int:
    shell = os.environ.get("_HOLDFAST_COMPLETE")
    if shell:
        return answer(root, session, shell)
    try:
        with root.make_context("holdfast", [*words], obj=session) as context:
            code = root.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as asked:
        # A newcomer's first word: the help, not an error about it.
        print(asked.ctx.get_help() if asked.ctx else asked.format_message())
        return 0
    return code if isinstance(code, int) else 0


def _complete_streams() -> None:
    """Let what the caller closed (`>&-`) lead nowhere, so that no file takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115 - it stays
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what a terminal has no letter for is escaped
            stream.reconfigure(errors="backslashreplace")


def _silence(stream: TextIO) -> None:
    """Who read the output is gone: let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
