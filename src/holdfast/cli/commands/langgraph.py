"""`holdfast langgraph`: the threads that a graph's saver keeps in a store, and importing them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.command import Group, flag, loaded, option, several
from holdfast.cli.plain import Value
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, MissingError, MissingExtraError

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.importer import Outcome
    from holdfast.integrations.langgraph.look import Looking, Seen


@click.group(cls=Group)
def langgraph() -> None:
    """Look at the threads of LangGraph, and import them from its own savers.

    Needs `pip install 'holdfast[langgraph]'`; the classes of the graphs are not needed to look.
    """


def _needs_langgraph() -> None:
    """Say which extra to install if LangGraph is not there."""
    try:
        import holdfast.integrations.langgraph  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(str(error)) from None


@contextmanager
def _looking(session: Session) -> Iterator[Looking]:
    _needs_langgraph()
    from holdfast.integrations.langgraph.look import Looking

    with session.reading() as store:
        yield Looking(store)


@langgraph.verb("threads --limit")
@click.option("--prefix", default="", help="Threads whose id begins so.")
def threads(session: Session, prefix: str, limit: int | None) -> None:
    """The threads of the store, in the order of their ids."""
    with _looking(session) as looking:
        names = looking.threads(prefix)
        found = {name: looking.summary(name) for name in names[:limit]}
    left = len(names) - len(found)
    rows = [
        {
            "thread": name,
            "namespaces": namespaces,
            "checkpoints": count,
            "newest": _told(newest) if newest else None,
        }
        for name, (namespaces, count, newest) in found.items()
    ]
    session.table(
        "threads",
        rows,
        "thread, checkpoints, namespaces, time=newest.time, step=newest.step, source=newest.source",
        about={"left": left},
        namespaces=lambda row: len(row["namespaces"]),
    )
    if left:
        session.note(f"there are {left} more")


@langgraph.verb("show THREAD")
@option("--checkpoint=id", "ID", "This one, or the one that begins so.")
@click.option("--ns", default="", help="The namespace, such as that of a subgraph.")
@flag("--history", "List the checkpoints instead, newest first.")
@click.option("--limit", type=click.IntRange(1), default=20, help="With --history. [default 20]")
def show(session: Session, thread: str, id: str | None, ns: str, history: bool, limit: int) -> None:
    """The newest checkpoint of a thread, or another one."""
    if history and id is not None:
        raise InvalidInputError("give --history or --checkpoint, not both")
    with _looking(session) as looking:
        past = looking.past(looking.thread(thread), ns)
        if history:
            chosen = range(len(past) - 1, max(-1, len(past) - 1 - limit), -1)
            _history(session, thread, ns, [looking.see(past, past.at(n)) for n in chosen], past)
            return
        seen = looking.see(past, looking.find(past, id))
        namespaces = [space.ns for space in past.thread.namespaces() if space.ns != ns]
    whole = {
        "thread": thread,
        "namespace": ns,
        **_told(seen.record),
        "parent": seen.record.parent,
        "next": seen.next,
        "may_have_run": seen.may_have_run,
        "metadata": Value(seen.record.metadata),
        "versions": Value(seen.record.versions),
        "channels": {name: Value(value) for name, value in seen.channels.items()},
        "pending": [
            {"task": task, "node": node, "channel": channel, "value": Value(value)}
            for task, node, channel, value in seen.pending
        ],
    }
    session.tell(whole, lambda: _print(thread, ns, seen, namespaces))


def _history(session: Session, thread: str, ns: str, found: list[Seen], past: Any) -> None:
    rows = [
        {
            **_told(seen.record),
            "parent": seen.record.parent,
            "messages": sum(map(len, seen.messages.values())),
            "pending": len(seen.pending),
            "next": seen.next,
        }
        for seen in found
    ]
    left = len(past) - len(rows)
    columns = "id, step, source, time, messages, pending, next"
    about = {"thread": thread, "namespace": ns, "left": left}
    session.table("checkpoints", rows, columns, about=about)
    if left:
        session.note(f"there are {left} more: --limit {len(past)}")


def _told(record: Any) -> dict[str, Any]:
    """What is known of a checkpoint without its values."""
    metadata = record.metadata if isinstance(record.metadata, dict) else {}
    return {
        "id": record.id,
        "time": record.ts,
        "step": metadata.get("step"),
        "source": metadata.get("source"),
    }


def _print(thread: str, ns: str, seen: Seen, namespaces: list[str]) -> None:
    from holdfast.integrations.langgraph.look import role_of

    told, parent = _told(seen.record), seen.record.parent
    shown = {"thread": thread, "namespace": ns, "checkpoint": told.pop("id"), "parent": parent}
    shown |= {**told, "next": seen.next or "nothing", "may have run": seen.may_have_run}
    output.fields((name, one) for name, one in shown.items() if one not in (None, "", []))
    for name, held in seen.messages.items():
        output.say(f"{name} ({len(held)})", bold=True)
        for message in held:
            role, said = role_of(message), output.clean(_cut(_said(message.value)))
            name = click.style(output.clean(role), fg=_COLOURS.get(role), bold=True)
            output.echo(f"  {name}: {said}")
    others = [(name, one) for name, one in seen.channels.items() if name not in seen.messages]
    pending = [(f"{node} → {name}" if node else name, one) for _, node, name, one in seen.pending]
    for heading, values in (("channels", others), ("pending writes", pending)):
        if values:
            output.say(heading, bold=True)
        for name, value in values:
            output.say(f"  {name}: {_cut(_text(value))}")
    if namespaces:
        output.note(f"other namespaces (--ns): {', '.join(map(repr, namespaces))}")


# ---- values on a line: objects by their names, messages by their roles -------------------------

WIDTH = 160
_COLOURS = {"human": "green", "ai": "cyan", "tool": "yellow", "system": "magenta"}


def _said(fields: dict[Any, Any]) -> str:
    content = fields.get("content")
    told = []
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict):
            block = str(block["text"]) if "text" in block else f"[{block.get('type', 'block')}]"
        told.append(block if isinstance(block, str) else _text(block))
    for call in fields.get("tool_calls") or []:
        if isinstance(call, dict):
            told.append(f"[calls {call.get('name')}({_text(call.get('args'))})]")
    return " ".join(filter(None, told))


def _text(plain: Any) -> str:
    """JSON, with Name(field=…) for objects."""
    from holdfast.seal.codec import Typed
    from holdfast.store.inner import dumps

    if type(plain) is Typed:
        name = plain.name.rpartition(":")[2] if plain.name != "tuple" else ""
        held = plain.value
        if isinstance(held, dict):
            return f"{name}({', '.join(f'{key}={_text(part)}' for key, part in held.items())})"
        inner = _text(held)
        return f"{name}({inner[1:-1] if isinstance(held, list) else inner})"
    if type(plain) is list:
        return f"[{', '.join(map(_text, plain))}]"
    if type(plain) is dict:
        return f"{{{', '.join(f'{_text(key)}: {_text(part)}' for key, part in plain.items())}}}"
    return dumps(plain)


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


# ---- import: threads of LangGraph's own savers -------------------------------------------------


@langgraph.verb("import SOURCE")
@several("--thread=threads", "ID", "Only these; repeatable.")
@flag("--dry-run", "Read and compare everything, write nothing.")
@flag("--replace", "Delete threads that differ here, import them anew.")
@several("--import=modules", "MODULE", "Where classes are.")
@flag("--create", "Make the store if it is not there.")
def import_(
    session: Session,
    /,
    source: str,
    threads: tuple[str, ...],
    modules: tuple[str, ...],
    create: bool,
    **given: Any,
) -> int:
    """Take threads from a saver of LangGraph: sqlite:PATH or postgresql://…

    All checkpoints of all namespaces with their pending writes, under the same ids. SOURCE is
    only read, and may be in use. Cut short, it is run again and goes on. A thread that is here
    already and differs is refused, unless --replace. Exits with 1 if a thread was not taken.
    """
    dry_run: bool = given["dry_run"]
    if dry_run and create:
        raise InvalidInputError("--dry-run writes nothing: give it or --create, not both")
    _needs_langgraph()
    for module in modules:
        loaded(module)
    from holdfast.integrations.langgraph.importer import Import
    from holdfast.integrations.langgraph.sources import open_source
    from holdfast.integrations.langgraph.types import Types

    types = Types()
    with ExitStack() as stack:
        opened = open_source(source, types)
        stack.callback(opened.close)
        known = opened.threads()
        for thread in threads:
            if thread not in known:
                raise MissingError(f"{opened.name} has no thread {thread!r}")
        wanted = list(dict.fromkeys(threads)) or known
        store = stack.enter_context(
            session.reading() if dry_run else session.writing(create=create)
        )
        show = stack.enter_context(output.progress(not session.json, "importing"))
        work = Import(store, opened, types=types, **given)
        found: list[Outcome] = []
        for thread in wanted:
            if show is not None:
                show(f"importing {thread}: {len(found)} of {len(wanted)} threads are done")
            found.append(work.run(thread))
    taken = "to import=imported" if dry_run else "imported"
    session.table(
        "threads",
        found,
        f"thread, checkpoints, {taken}, present, writes, result",
        about={"source": opened.name, "dry_run": dry_run},
        result=lambda one: "not taken" if one.error else "replaced" if one.replaced else "ok",
    )
    for one in found:
        if one.error:
            session.note(f"{one.thread}: {one.error}")
    good, total = sum(one.ok for one in found), sum(one.imported for one in found)
    done = "would be imported; nothing was written" if dry_run else "imported"
    session.note(f"{good} of {len(found)} threads are good; {total} checkpoints {done}")
    return 0 if good == len(found) else 1
