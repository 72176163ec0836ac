"""`holdfast langgraph import`: threads of LangGraph's own savers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.langgraph import needs_langgraph
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, MissingError

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.importer import Outcome
    from holdfast.integrations.langgraph.sources import Source

_FIGURES = ("checkpoints", "imported", "present", "writes", "strays", "verified")


@click.command("import", cls=Command)
@click.argument("source")
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Only these; repeatable.")
@click.option("--as", "under", metavar="ID", help="Another id for it here, of one --thread.")
@click.option("--dry-run", is_flag=True, help="Read and compare everything, write nothing.")
@click.option("--verify/--no-verify", default=True, help="Read back what was put. [default on]")
@click.option("--replace", is_flag=True, help="Delete threads that differ here, import them anew.")
@click.option("--import", "modules", multiple=True, metavar="MODULE", help="Where classes are.")
@click.option("--fields", is_flag=True, help="Take objects of missing classes as their fields.")
@click.option("--create", is_flag=True, help="Make the store if it is not there.")
@pass_session
def import_(
    session: Session,
    source: str,
    threads: tuple[str, ...],
    under: str | None,
    dry_run: bool,
    verify: bool,
    replace: bool,
    modules: tuple[str, ...],
    fields: bool,
    create: bool,
) -> int:
    """Take threads from a saver of LangGraph: sqlite:PATH or postgresql://…

    All checkpoints of all namespaces with their pending writes, under the same ids. SOURCE is
    only read, and may be in use. Cut short, it is run again and goes on. A thread that is here
    already and differs is refused, unless --replace. Exits with 1 if a thread was not taken.
    """
    if dry_run and create:
        raise InvalidInputError("--dry-run writes nothing: give it or --create, not both")
    if under is not None and len(threads) != 1:
        raise InvalidInputError("--as gives another id to one thread: name it with --thread")
    needs_langgraph()
    _load(modules)
    from holdfast.integrations.langgraph.importer import Import
    from holdfast.integrations.langgraph.sources import open_source
    from holdfast.integrations.langgraph.types import Types

    types = Types()
    with ExitStack() as stack:
        opened = open_source(source, types, fields=fields)
        stack.callback(opened.close)
        wanted = _wanted(opened, threads)
        store = stack.enter_context(
            session.reading() if dry_run else session.writing(create=create)
        )
        tell = stack.enter_context(_progress(len(wanted), not session.json))
        work = Import(
            store, opened, types=types, replace=replace, dry_run=dry_run, verify=verify, tell=tell
        )
        found = [work.run(thread, under) for thread in wanted]
    if session.json:
        rows = [_row(one) for one in found]
        output.document({"source": opened.name, "dry_run": dry_run, "threads": rows})
    else:
        _print(found, dry_run)
    return 0 if all(one.ok for one in found) else 1


def _load(modules: tuple[str, ...]) -> None:
    """Import the modules that the user named, also from where the command is run."""
    if modules:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        try:
            import_module(module)
        except Exception as error:
            raise InvalidInputError(
                f"--import {module}: {type(error).__name__}: {error}; give a module that Python "
                "finds from here"
            ) from None


def _wanted(source: Source, threads: tuple[str, ...]) -> list[str]:
    known = source.threads()
    for thread in threads:
        if thread not in known:
            raise MissingError(f"{source.name} has no thread {thread!r}")
    return list(dict.fromkeys(threads)) or known


def _row(one: Outcome) -> dict[str, Any]:
    figures = {name: getattr(one, name) for name in _FIGURES}
    return {
        "thread": one.thread,
        "ok": one.ok,
        **figures,
        "replaced": one.replaced,
        "error": one.error,
        "differences": one.differences,
    }


def _print(found: list[Outcome], dry_run: bool) -> None:
    output.table(
        ["thread", "checkpoints", "to import" if dry_run else "imported", *_FIGURES[2:], "result"],
        [[one.thread, *(getattr(one, name) for name in _FIGURES), _result(one)] for one in found],
    )
    for one in found:
        for text in [one.error] if one.error else one.differences:
            output.note(f"{one.thread}: {text}")
    bad = sum(not one.ok for one in found)
    total = sum(one.imported for one in found)
    done = "would be imported; nothing was written" if dry_run else "imported"
    output.note(f"{len(found) - bad} of {len(found)} threads are good; {total} checkpoints {done}")


def _result(one: Outcome) -> str:
    if one.error:
        return "not taken"
    if one.differences:
        return "differs"
    return "replaced" if one.replaced else "ok"


@contextmanager
def _progress(threads: int, wanted: bool) -> Iterator[Callable[[str, str, int, int], None] | None]:
    """Shows how far it is, on a terminal; elsewhere nothing."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.text import Text

    begun: list[str] = []
    told = 0.0
    with Console(stderr=True, no_color=not output.coloured()).status("importing …") as status:

        def tell(thread: str, doing: str, done: int, total: int) -> None:
            nonlocal told
            if begun[-1:] != [thread]:
                begun.append(thread)
            if time.monotonic() - told > 0.1:
                told = time.monotonic()
                place = f"thread {len(begun)} of {threads}, {output.clean(thread)}"
                status.update(Text(f"{doing} {place}: checkpoint {done + 1} of {total}"))

        yield tell
