"""`holdfast langgraph`: the threads that a graph's saver keeps in a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output, plain
from holdfast.cli import plain as plain_text
from holdfast.cli.commands import Command, LazyGroup, pass_session
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, MissingExtraError
from holdfast.store.inner import tagged

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.look import Looking, Seen

_HOME = "holdfast.cli.langgraph"
HOMES = {
    "threads": f"{_HOME}:threads",
    "show": f"{_HOME}:show",
    "diff": f"{_HOME}:diff",
    "import": "holdfast.cli.langgraph_import:import_",
}
ns_option = click.option("--ns", default="", help="The namespace, such as that of a subgraph.")


@click.group(cls=LazyGroup, homes=HOMES)
def langgraph() -> None:
    """Look at the threads of LangGraph, and import them from its own savers.

    Needs `pip install 'holdfast[langgraph]'`; the classes of the graphs are not needed to look.
    """


def needs_langgraph() -> None:
    """Say which extra to install if LangGraph is not there."""
    try:
        import holdfast.integrations.langgraph  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(str(error)) from None


@contextmanager
def _looking(session: Session) -> Iterator[Looking]:
    needs_langgraph()
    from holdfast.integrations.langgraph.look import Looking

    with session.reading() as store:
        yield Looking(store)


@click.command(cls=Command)
@click.option("--prefix", default="", help="Threads whose id begins so.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@pass_session
def threads(session: Session, prefix: str, limit: int | None) -> None:
    """The threads of the store, in the order of their ids."""
    with _looking(session) as looking:
        names = looking.threads(prefix)
        found = [looking.summary(name) for name in names[:limit]]
    left = len(names) - len(found)
    if session.json:
        rows = [
            {
                "thread": one.thread,
                "namespaces": one.namespaces,
                "checkpoints": one.checkpoints,
                "newest": _told(one.newest) if one.newest else None,
            }
            for one in found
        ]
        output.document({"threads": rows, "left": left})
        return
    columns = ["thread", "checkpoints", "namespaces", "time", "step", "source"]
    lines = []
    for one in found:
        told = _told(one.newest) if one.newest else {}
        figures = [one.thread, one.checkpoints, len(one.namespaces)]
        lines.append([*figures, *(told.get(name) for name in columns[3:])])
    output.table(columns, lines)
    if left:
        output.note(f"there are {left} more")


@click.command(cls=Command)
@click.argument("thread")
@click.option("--checkpoint", "id", metavar="ID", help="This one, or the one that begins so.")
@ns_option
@click.option("--history", is_flag=True, help="List the checkpoints instead, newest first.")
@click.option("--limit", type=click.IntRange(1), default=20, help="With --history. [default 20]")
@pass_session
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
    if session.json:
        output.document(_whole(thread, ns, seen))
    else:
        _print(thread, ns, seen, namespaces)


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
    if session.json:
        place = {"thread": thread, "namespace": ns}
        output.document({**place, "checkpoints": rows, "left": left})
        return
    columns = ["id", "step", "source", "time", "messages", "pending", "next"]
    output.table(columns, [[row[name] for name in columns] for row in rows])
    if left:
        output.note(f"there are {left} more: --limit {len(past)}")


def _told(record: Any) -> dict[str, Any]:
    """What is known of a checkpoint without its values."""
    metadata = record.metadata if isinstance(record.metadata, dict) else {}
    return {
        "id": record.id,
        "time": record.ts,
        "step": metadata.get("step"),
        "source": metadata.get("source"),
    }


def _whole(thread: str, ns: str, seen: Seen) -> dict[str, Any]:
    return {
        "thread": thread,
        "namespace": ns,
        **_told(seen.record),
        "parent": seen.record.parent,
        "next": seen.next,
        "may_have_run": seen.may_have_run,
        "metadata": tagged(seen.record.metadata),
        "versions": tagged(seen.record.versions),
        "channels": {name: tagged(value) for name, value in seen.channels.items()},
        "pending": [
            {"task": task, "node": node, "channel": channel, "value": tagged(value)}
            for task, node, channel, value in seen.pending
        ],
    }


def _print(thread: str, ns: str, seen: Seen, namespaces: list[str]) -> None:
    told = _told(seen.record)
    output.fields([("thread", thread), *([("namespace", ns)] if ns else [])])
    output.fields([("checkpoint", told.pop("id")), ("parent", seen.record.parent or "none")])
    output.fields(told.items())
    output.fields([("next", seen.next or "nothing")])
    if seen.may_have_run:
        output.fields([("may have run", seen.may_have_run)])
    for name, held in seen.messages.items():
        _heading(f"{name} ({len(held)})")
        for message in held:
            output.say(f"  {plain_text.message(message)}")
    others = {name: value for name, value in seen.channels.items() if name not in seen.messages}
    if others:
        _heading("channels")
        for name, value in others.items():
            output.say(f"  {output.clean(name)}: {plain_text.value(value)}")
    if seen.pending:
        _heading("pending writes")
        for _, node, channel, value in seen.pending:
            place = f"{node} → {channel}" if node else channel
            output.say(f"  {output.clean(place)}: {plain_text.value(value)}")
    if namespaces:
        output.note(f"other namespaces (--ns): {', '.join(map(repr, namespaces))}")


def _heading(text: str) -> None:
    output.say(click.style(output.clean(text), bold=True))


@click.command(cls=Command)
@click.argument("thread")
@click.argument("before", metavar="[CHECKPOINT]", required=False)
@click.argument("after", metavar="[CHECKPOINT]", required=False)
@ns_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 if there are differences.")
@pass_session
def diff(
    session: Session, thread: str, before: str | None, after: str | None, ns: str, exit_code: bool
) -> int:
    """What changed from one checkpoint to another.

    From the first to the newest if one is given; from the newest one's parent if none is.
    """
    with _looking(session) as looking:
        from holdfast.integrations.langgraph.look import difference

        past = looking.past(looking.thread(thread), ns)
        new = looking.find(past, after)
        start = before if before is not None else new.record.parent
        old = looking.find(past, start) if start is not None else None
        was = looking.see(past, old) if old is not None else None
        found = difference(was, looking.see(past, new))
    if session.json:
        output.document({"thread": thread, "namespace": ns, **plain.diff(found)})
    else:
        plain_text.changes(found)
    return 1 if exit_code and found else 0
