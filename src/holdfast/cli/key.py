"""`holdfast key`: the keys of a scope and their values."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, BinaryIO

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Command, Group, pass_session
from holdfast.cli.completion import complete_key, complete_scope
from holdfast.cli.points import point
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, MissingError
from holdfast.seal.limits import ValueLimits
from holdfast.store.inner import SENSITIVE, handle_of, json
from holdfast.store.names.items import MASK

# ---- key expiry ---------------------------------------------------------------------------------
# How long keys last: `--ttl`, `holdfast key expire`, `holdfast key persist`.


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _duration(
    context: click.Context, option: click.Parameter, text: str | None
) -> timedelta | None:
    """The time that a text means."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text)
    try:
        return timedelta(**{_UNITS[found[2] or "s"]: float(found[1])})  # type: ignore[index]
    except (TypeError, OverflowError):
        hint = f"{text!r} is no time; give seconds, or 15m, 2h, 7d"
        raise click.BadParameter(hint, context, option) from None


ttl_option = click.option(
    "--ttl", metavar="TIME", callback=_duration, help="It expires after so long: 90, 15m, 2h, 7d."
)
sliding_option = click.option("--sliding", is_flag=True, help="Each read begins the term anew.")


@click.command(cls=Command)
@click.argument("scope", shell_complete=complete_scope)
@click.argument("name", metavar="KEY", shell_complete=complete_key)
@click.argument("ttl", metavar="TIME", callback=_duration)
@sliding_option
@pass_session
def expire(session: Session, scope: str, name: str, ttl: timedelta, sliding: bool) -> None:
    """Let a key expire after TIME (90, 15m, 2h, 7d); its value stays as it is."""
    with session.writing() as store:
        state = session.state(store, scope)
        entry = state.expire(name, ttl, sliding=sliding)
    _told(session, state, name, entry, f"expires in {ttl}")


@click.command(cls=Command)
@click.argument("scope", shell_complete=complete_scope)
@click.argument("name", metavar="KEY", shell_complete=complete_key)
@pass_session
def persist(session: Session, scope: str, name: str) -> None:
    """Let a key never expire."""
    with session.writing() as store:
        state = session.state(store, scope)
        entry = state.persist(name)
    _told(session, state, name, entry, "never expires")


def _told(session: Session, state: Any, name: str, entry: int, what: str) -> None:
    if session.json:
        place = {"scope": str(state.scope), "timeline": state.timeline, "key": name}
        output.document({**place, "entry": entry})
    else:
        output.say(output.clean(f"{state.scope} {name}: {what}"))


# ---- key ----------------------------------------------------------------------------------------


scope_argument = click.argument("scope", shell_complete=complete_scope)
key_argument = click.argument("name", metavar="KEY", shell_complete=complete_key)
at_option = click.option("--at", metavar="POINT", help="As it was at a point.")
reveal_option = click.option("--reveal", is_flag=True, help="Show values of class sensitive.")
PIECE = 1 << 20
# A value such as -5 looks like an option.
_VALUES = {"ignore_unknown_options": True}


@click.group(cls=Group)
def key() -> None:
    """List, read and change keys."""


@key.command("list")
@scope_argument
@click.option("--prefix", default="", help="Keys that begin so.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option("--after", default="", help="Go on behind this key.")
@at_option
@pass_session
def list_(
    session: Session, scope: str, prefix: str, limit: int | None, after: str, at: str | None
) -> None:
    """The keys of a scope, in order."""
    with session.reading() as store:
        state: Any = session.state(store, scope)
        view = state if at is None else state.at(point(at))
        # One more than asked for tells whether there are more.
        found = view.keys(prefix, limit=limit + 1 if limit else None, after=after)
    shown = found[:limit]
    more = shown[-1] if len(found) > len(shown) else None
    if session.json:
        output.document({"scope": str(state.scope), "keys": shown, "after": more})
        return
    output.table(["key"], [[name] for name in shown])
    if more:
        output.note(f"there are more: --after {more!r}")


@key.command()
@scope_argument
@key_argument
@at_option
@click.option("--text", is_flag=True, help="Print a text (or bytes) as it is, not as JSON.")
@reveal_option
@pass_session
def get(session: Session, scope: str, name: str, at: str | None, text: bool, reveal: bool) -> None:
    """The value of a key, as JSON; one that is sensitive only with --reveal."""
    with session.reading() as store:
        state: Any = session.state(store, scope)
        view = state if at is None else state.at(point(at))
        item = view.item(name)
    if item is None:
        raise _no_key(state.scope, name, at)
    hidden = item.class_ == SENSITIVE and not reveal
    value = MASK if hidden else item.value
    if session.json:
        about = {
            "scope": str(view.scope),
            "timeline": view.timeline,
            "key": name,
            "value": json.tagged(value),
            "version": item.version,
            "time": plain.time_text(item.time),
            "class": item.class_,
            "expires": plain.time_text(item.expires) if item.expires else None,
            "cause": plain.cause(item.cause),
        }
        output.document(about)
    elif text and not hidden:
        _raw(item.value)
    else:
        output.value(json.tagged(value))
    if hidden:
        output.note("it is sensitive: --reveal shows it")


def _no_key(scope: object, name: str, at: str | None) -> MissingError:
    when = f" at {at}" if at else ""
    return MissingError(
        f"{scope} has no key {name!r}{when}; `holdfast key list {scope}` shows them"
    )


def _raw(value: Any) -> None:
    if not isinstance(value, str | bytes):
        raise InvalidInputError("the value is neither text nor bytes; leave out --text")
    content = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    sys.stdout.flush()
    sys.stdout.buffer.write(content)


_MOST = 2 * ValueLimits().size
"""Bytes that are read of stdin: JSON may take more than what it stands for."""


def _read(value: str, text: bool) -> Any:
    """The value that was given, or that stdin holds."""
    if value == "-":
        content = sys.stdin.buffer.read(_MOST + 1)
        if len(content) > _MOST:
            raise InvalidInputError(
                f"stdin holds more than the {_MOST >> 20} MiB that a value may have; "
                "`key put` takes bytes of any size"
            )
    else:
        content = os.fsencode(value)  # the bytes that were given, whatever they stand for
    try:
        value = content.decode()
    except UnicodeDecodeError:
        raise InvalidInputError('the value is not UTF-8; use {"$bytes": …}') from None
    return value if text else json.loads(value)


def _written(session: Session, state: Any, name: str, version: int) -> None:
    if session.json:
        place = {"scope": str(state.scope), "timeline": state.timeline, "key": name}
        output.document({**place, "version": version})
    else:
        output.say(output.clean(f"{state.scope} {name}: version {version}"))


value_argument = click.argument("value")
text_option = click.option("--text", is_flag=True, help="VALUE is plain text, not JSON.")
create_option = click.option("--create", is_flag=True, help="Make the store if there is none.")
subject_option = click.option(
    "--subject", metavar="NAME", help="Seal it for this subject; `keyring erase --subject` ends it."
)
version_option = click.option(
    "--if-version",
    type=click.IntRange(0),
    metavar="N",
    help="Only if the key has this version (0: only if it is absent).",
)


@key.command("set", context_settings=_VALUES)
@scope_argument
@key_argument
@value_argument
@text_option
@version_option
@ttl_option
@sliding_option
@click.option("--class", "class_", metavar="CLASS", help="trusted, standard, sensitive, external.")
@subject_option
@create_option
@pass_session
def set_(
    session: Session,
    scope: str,
    name: str,
    value: str,
    text: bool,
    if_version: int | None,
    ttl: timedelta | None,
    sliding: bool,
    class_: str | None,
    subject: str | None,
    create: bool,
) -> None:
    """Set a key. VALUE is JSON; `-` reads it from stdin."""
    content = _read(value, text)
    with session.writing(create=create) as store:
        state = session.state(store, scope, new=True)
        version = state.set(
            name,
            content,
            if_version=if_version,
            ttl=ttl,
            sliding=sliding,
            class_=class_,
            subject=subject,
        )
    _written(session, state, name, version)


@key.command(context_settings=_VALUES)
@scope_argument
@key_argument
@value_argument
@text_option
@subject_option
@create_option
@pass_session
def append(
    session: Session,
    scope: str,
    name: str,
    value: str,
    text: bool,
    subject: str | None,
    create: bool,
) -> None:
    """Add an item to the list under a key. VALUE is JSON; `-` reads it from stdin."""
    content = _read(value, text)
    with session.writing(create=create) as store:
        state = session.state(store, scope, new=True)
        version = state.append(name, content, subject=subject)
    _written(session, state, name, version)


@key.command()
@scope_argument
@key_argument
@version_option
@pass_session
def delete(session: Session, scope: str, name: str, if_version: int | None) -> None:
    """Remove a key; its past stays."""
    with session.writing() as store:
        state = session.state(store, scope)
        if if_version is None and not state.exists(name):
            raise _no_key(state.scope, name, None)
        state.delete(name, if_version=if_version)
        version = handle_of(state).place()[2]
    if session.json:
        output.document(
            {"scope": str(state.scope), "timeline": state.timeline, "key": name, "entry": version}
        )
    else:
        output.say(output.clean(f"{state.scope} {name}: deleted"))


@key.command()
@scope_argument
@key_argument
@click.argument("file", metavar="FILE")
@version_option
@create_option
@pass_session
def put(
    session: Session, scope: str, name: str, file: str, if_version: int | None, create: bool
) -> None:
    """Set a key to the bytes of a file, of any size; `-` reads stdin."""
    with _opened(file) as source, session.writing(create=create) as store:
        state = session.state(store, scope, new=True)
        with state.open_write(name, if_version=if_version) as target:
            shutil.copyfileobj(source, target, PIECE)
    _written(session, state, name, target.version or 0)


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise InvalidInputError(f"{file!r} cannot be read: {error.strerror}") from None


@key.command()
@scope_argument
@key_argument
@at_option
@click.option("-o", "--output", "path", metavar="FILE", help="Into this file; else to stdout.")
@click.option("--range", "span", metavar="A:B", help="From byte A to byte B, as Python slices.")
@reveal_option
@pass_session
def fetch(
    session: Session,
    scope: str,
    name: str,
    at: str | None,
    path: str | None,
    span: str | None,
    reveal: bool,
) -> None:
    """The bytes under a key, of any size, as they are; of a sensitive one only with --reveal."""
    if session.json and path is None:
        raise InvalidInputError("stdout takes the bytes themselves; use --output with --json")
    from holdfast.store.names.whole_files import whole_file

    with session.reading() as store:
        view: Any = session.view(store, scope, at)
        if not view.exists(name):
            raise _no_key(view.scope, name, at)
        if handle_of(view).reader.class_of(name) == SENSITIVE and not reveal:
            raise InvalidInputError(f"{name!r} is sensitive: --reveal gives its bytes")
        with view.open_read(name) as source:
            low, high, _ = _span(span).indices(source.size)
            source.seek(low)
            size = max(high - low, 0)
            if path is None:
                sys.stdout.flush()
                _copy(source, sys.stdout.buffer, size)
                return
            with whole_file(path) as target:
                _copy(source, target, size)
    if session.json:
        about = {"scope": str(view.scope), "timeline": view.timeline, "key": name}
        output.document({**about, "version": source.version, "bytes": size, "file": path})
    else:
        output.say(output.clean(f"{view.scope} {name}: {size} bytes in {path}"))


def _span(text: str | None) -> slice:
    found = re.fullmatch(r"(-?\d+)?:(-?\d+)?", text or ":", re.ASCII)
    if found is None:
        raise InvalidInputError("--range takes A:B, two numbers of which each may be left out")
    return slice(*(int(bound) if bound else None for bound in found.groups()))


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while piece := source.read(min(size, PIECE)):
        target.write(piece)
        size -= len(piece)


key.add_command(expire)
key.add_command(persist)
