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

from holdfast.cli import output
from holdfast.cli.command import Group, flag, option
from holdfast.cli.plain import Value, plain, redacted
from holdfast.cli.session import Session, is_sensitive
from holdfast.errors import InvalidInputError, MissingError
from holdfast.seal.codec import ValueLimits
from holdfast.store.inner import handle_of, json_values
from holdfast.store.names.items import MASK
from holdfast.store.names.whole_files import whole_file

PIECE = 1 << 20
# A value such as -5 looks like an option.
_VALUES = {"ignore_unknown_options": True}
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


text_option = flag("--text", "VALUE is plain text, not JSON.")
sliding_option = flag("--sliding", "Each read begins the term anew.")
subject_option = option("--subject", "NAME", "Whom it is about: `keyring erase --subject` ends it.")
version_option = click.option(
    "--if-version",
    type=click.IntRange(0),
    metavar="N",
    help="Only if the key has this version (0: only if it is absent).",
)


key = Group("key", help="List, read and change keys.")


@key.verb("list SCOPE --limit --at")
@click.option("--prefix", default="", help="Keys that begin so.")
@click.option("--after", default="", help="Go on behind this key.")
def list_(
    session: Session, scope: str, prefix: str, limit: int | None, after: str, at: str | None
) -> None:
    """The keys of a scope, in order."""
    with session.view(scope, at) as view:
        # One more than asked for tells whether there are more.
        found = view.keys(prefix, limit=limit + 1 if limit else None, after=after)
    shown = found[:limit]
    more = shown[-1] if len(found) > len(shown) else None
    about = {"scope": view.scope, "after": more}
    session.table("keys", shown, "key", about=about, key=str)
    if more:
        session.note(f"there are more: --after {more!r}")


@key.verb("get SCOPE KEY=name --at --reveal")
@flag("--text", "Print a text (or bytes) as it is, not as JSON.")
def get(session: Session, scope: str, name: str, at: str | None, text: bool, reveal: bool) -> None:
    """The value of a key, as JSON; one that is sensitive only with --reveal."""
    with session.view(scope, at) as view:
        item = view.item(name)
    if item is None:
        raise _no_key(view.scope, name, at)
    hidden = item.class_ == "sensitive" and not reveal
    value = Value(MASK if hidden else item.value)
    if session.json:
        session.tell({**_place(view, name), "value": value, **plain(item)})
    elif text and not hidden:
        found = redacted(item.value)
        if not isinstance(found, str | bytes):
            raise InvalidInputError("the value is neither text nor bytes; leave out --text")
        sys.stdout.flush()
        sys.stdout.buffer.write(
            found if isinstance(found, bytes) else found.encode("utf-8", "surrogatepass")
        )
    else:
        output.value(plain(value))
    if hidden:
        output.note("it is sensitive: --reveal shows it")


def _place(state: Any, name: str) -> dict[str, Any]:
    return {"scope": state.scope, "timeline": state.timeline, "key": name}


def _no_key(scope: object, name: str, at: str | None) -> MissingError:
    when = f" at {at}" if at else ""
    return MissingError(
        f"{scope} has no key {name!r}{when}; `holdfast key list {scope}` shows them"
    )


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
    return value if text else json_values.loads(value, hint="; for plain text add --text")


def _write(
    session: Session, how: str, scope: str, name: str, value: Any, create: bool, more: Any
) -> None:
    with session.change(scope, new=True, create=create) as state:
        version = getattr(state, how)(name, value, **more)
    _written(session, state, name, version)


def _written(session: Session, state: Any, name: str, version: int) -> None:
    told = f"{state.scope} {name}: version {version}"
    session.tell({**_place(state, name), "version": version}, told)


@key.verb("set SCOPE KEY=name VALUE --create", context_settings=_VALUES)
@text_option
@version_option
@click.option(
    "--ttl", metavar="TIME", callback=_duration, help="It expires after so long: 90, 15m, 2h, 7d."
)
@sliding_option
@option("--class=class_", "CLASS", "trusted, standard, sensitive, external.")
@subject_option
def set_(
    session: Session, /, scope: str, name: str, value: str, text: bool, create: bool, **more: Any
) -> None:
    """Set a key. VALUE is JSON; `-` reads it from stdin."""
    _write(session, "set", scope, name, _read(value, text), create, more)


@key.verb("append SCOPE KEY=name VALUE --create", context_settings=_VALUES)
@text_option
@subject_option
def append(
    session: Session, /, scope: str, name: str, value: str, text: bool, create: bool, **more: Any
) -> None:
    """Add an item to the list under a key. VALUE is JSON; `-` reads it from stdin."""
    _write(session, "append", scope, name, _read(value, text), create, more)


@key.verb("delete SCOPE KEY=name")
@version_option
def delete(session: Session, scope: str, name: str, if_version: int | None) -> None:
    """Remove a key; its past stays."""
    with session.change(scope) as state:
        if if_version is None and not state.exists(name):
            raise _no_key(state.scope, name, None)
        state.delete(name, if_version=if_version)
        entry = handle_of(state).place()[2]
    session.tell({**_place(state, name), "entry": entry}, f"{state.scope} {name}: deleted")


@key.verb("expire SCOPE KEY=name")
@click.argument("ttl", metavar="TIME", callback=_duration)
@sliding_option
def expire(session: Session, scope: str, name: str, ttl: timedelta, sliding: bool) -> None:
    """Let a key expire after TIME (90, 15m, 2h, 7d); its value stays as it is."""
    with session.change(scope) as state:
        entry = state.expire(name, ttl, sliding=sliding)
    told = f"{state.scope} {name}: expires in {ttl}"
    session.tell({**_place(state, name), "entry": entry}, told)


@key.verb("persist SCOPE KEY=name")
def persist(session: Session, scope: str, name: str) -> None:
    """Let a key never expire."""
    with session.change(scope) as state:
        entry = state.persist(name)
    session.tell({**_place(state, name), "entry": entry}, f"{state.scope} {name}: never expires")


# ---- bytes of any size -------------------------------------------------------------------------


@key.verb("put SCOPE KEY=name FILE --create")
@version_option
def put(
    session: Session, scope: str, name: str, file: str, if_version: int | None, create: bool
) -> None:
    """Set a key to the bytes of a file, of any size; `-` reads stdin."""
    with (
        _opened(file) as source,
        session.change(scope, new=True, create=create) as state,
        state.open_write(name, if_version=if_version) as target,
    ):
        shutil.copyfileobj(source, target, PIECE)
    _written(session, state, name, target.version or 0)


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise InvalidInputError(f"{file!r} cannot be read: {error.strerror}") from None


@key.verb("fetch SCOPE KEY=name --at --reveal")
@click.option("-o", "--output", "path", metavar="FILE", help="Into this file; else to stdout.")
def fetch(
    session: Session, scope: str, name: str, at: str | None, path: str | None, reveal: bool
) -> None:
    """The bytes under a key, of any size, as they are; of a sensitive one only with --reveal."""
    if session.json and path is None:
        raise InvalidInputError("stdout takes the bytes themselves; use --output with --json")
    with session.view(scope, at) as view:
        if not view.exists(name):
            raise _no_key(view.scope, name, at)
        if is_sensitive(view, name) and not reveal:
            raise InvalidInputError(f"{name!r} is sensitive: --reveal gives its bytes")
        with view.open_read(name) as source:
            if path is None:
                sys.stdout.flush()
                shutil.copyfileobj(source, sys.stdout.buffer, PIECE)
                return
            with whole_file(path) as target:
                shutil.copyfileobj(source, target, PIECE)
    told = {**_place(view, name), "version": source.version, "bytes": source.size, "file": path}
    session.tell(told, f"{view.scope} {name}: {source.size} bytes in {path}")
