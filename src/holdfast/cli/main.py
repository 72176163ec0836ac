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
from holdfast.cli.commands import LazyGroup, answer
from holdfast.cli.session import Session

# A short program makes little garbage: looking for it would take a tenth of its time.
gc.set_threshold(50_000, 20, 20)

HOMES = {
    "init": "holdfast.cli.store:init",
    "scope": "holdfast.cli.scope:scope",
    "key": "holdfast.cli.key:key",
    "show": "holdfast.cli.history:show",
    "log": "holdfast.cli.history:log",
    "diff": "holdfast.cli.history:diff",
    "blame": "holdfast.cli.history:blame",
    "query": "holdfast.cli.history:query",
    "watch": "holdfast.cli.history:watch",
    "checkpoint": "holdfast.cli.checkpoint:checkpoint",
    "restore": "holdfast.cli.restore:restore",
    "recover": "holdfast.cli.recovery:recover",
    "recovery": "holdfast.cli.recovery:recovery",
    "run": "holdfast.cli.run:run",
    "doctor": "holdfast.cli.repair:doctor",
    "repair": "holdfast.cli.repair:repair",
    "quarantine": "holdfast.cli.repair:quarantine",
    "debug": "holdfast.cli.debug:debug",
    "undo": "holdfast.cli.restore:undo",
    "revert": "holdfast.cli.restore:revert",
    "fork": "holdfast.cli.timeline:fork",
    "merge": "holdfast.cli.timeline:merge",
    "timelines": "holdfast.cli.timeline:timelines",
    "lease": "holdfast.cli.store:lease",
    "backup": "holdfast.cli.backup:backup",
    "replica": "holdfast.cli.replica:replica",
    "retention": "holdfast.cli.retention:retention",
    "policy": "holdfast.cli.policy:policy",
    "agent": "holdfast.cli.agent:agent",
    "schedule": "holdfast.cli.schedule:schedule",
    "hook": "holdfast.cli.hook:hook",
    "schema": "holdfast.cli.schema:schema",
    "migrate": "holdfast.cli.schema:migrate",
    "entity": "holdfast.cli.runtime:entity",
    "relation": "holdfast.cli.runtime:relation",
    "events": "holdfast.cli.runtime:events",
    "queue": "holdfast.cli.runtime:queue",
    "observe": "holdfast.cli.runtime:observe",
    "runtime": "holdfast.cli.runtime:runtime",
    "verify": "holdfast.cli.proof:verify",
    "witness": "holdfast.cli.proof:witness",
    "prove": "holdfast.cli.proof:prove",
    "export-chain": "holdfast.cli.proof:export_chain",
    "keyring": "holdfast.cli.keyring:keyring",
    "access": "holdfast.cli.access:access",
    "audit": "holdfast.cli.store:audit",
    "stats": "holdfast.cli.store:stats",
    "sweep": "holdfast.cli.store:sweep",
    "langgraph": "holdfast.cli.langgraph:langgraph",
    "completion": "holdfast.cli.commands:completion",
}


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
