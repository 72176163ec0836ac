"""The global options, the store that they open, and how its answers are printed."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.plain import fields_of, plain, redact
from holdfast.errors import (
    DamagedStorageError,
    HoldfastError,
    InvalidInputError,
    KeyringError,
    RefusedError,
    ScopeNotFoundError,
    StoreNotFoundError,
)
from holdfast.storage import shown, url_of
from holdfast.storage.sqlite.guard import was_store
from holdfast.store.inner import core_of, handle_of

if TYPE_CHECKING:
    from holdfast.sync import State, Store, View

DEFAULT = "sqlite:holdfast.db"
_PROMPT = "passphrase:"


class Session:
    """What was said before or behind the command that holds for every command."""

    def __init__(self) -> None:
        if not os.environ.get("HOLDFAST_KEY"):
            os.environ.pop("HOLDFAST_KEY", None)  # empty is as good as unset
        self.store: str | None = None
        self.key: str | None = None
        self.passphrase_file: str | None = None
        self.signer: str | None = None
        self.timeline = "main"
        self.given: set[str] = set()
        """Names of the global options that were given."""
        self.json = False
        self.actor: str | None = None
        self.durability = "full"
        self.warnings: list[str] = []
        """What the library warned of when the store was opened."""

    # where, and with what key

    @property
    def url(self) -> str:
        """The store's URL; a bare path is one of SQLite."""
        return self.url_of(self.store or os.environ.get("HOLDFAST_STORE") or DEFAULT)

    def url_of(self, text: str) -> str:
        """The URL of a store that is named like this."""
        scheme, colon, _ = text.partition(":")
        if scheme == "memory" and colon:
            raise InvalidInputError("a store in memory would end with this command: name a file")
        # One letter before the colon is a drive, not an engine; a plus is in mongodb+srv.
        named = colon and len(scheme) > 1 and scheme.replace("+", "").isalnum()
        return url_of(text) if named else f"sqlite:{text}"

    @property
    def shown(self) -> str:
        """The store's URL without a password."""
        return shown(self.url)

    @property
    def is_file(self) -> bool:
        """Whether the store is a file, and not on a server."""
        return self.url.startswith("sqlite:")

    @property
    def path(self) -> str:
        """The store's file."""
        return self.url.partition(":")[2] or DEFAULT.partition(":")[2]

    def key_source(self, *, new: bool = False) -> str | None:
        """What to open the store with. Asks for a passphrase, twice if it is to be a new one."""
        if self.key is None and self.passphrase_file is None:
            return os.environ.get("HOLDFAST_KEY")
        return self.other_key("", self.key, self.passphrase_file, new=new)

    def other_key(
        self, which: str, key: str | None, passphrase_file: str | None, *, new: bool
    ) -> str | None:
        """A key that is not the one the store is opened with: --WHICH-key and its companion."""
        from holdfast.seal.keys import HiddenText

        which = f"{which}-" if which else ""
        _refuse_passphrase(key, which)
        if passphrase_file is not None:
            if key not in (None, _PROMPT):
                raise InvalidInputError(f"give --{which}key or --{which}passphrase-file, not both")
            return HiddenText(_PROMPT + _first_line(passphrase_file))
        if key != _PROMPT:
            return key
        if not sys.stdin.isatty():
            raise InvalidInputError(
                "there is no terminal to ask for the passphrase at; use --passphrase-file"
            )
        text = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
        return HiddenText(_PROMPT + text)

    @property
    def key_name(self) -> str:
        """Where the key comes from, without its content."""
        source = self.key or os.environ.get("HOLDFAST_KEY", "")
        asked = self.passphrase_file is not None or source.startswith(_PROMPT)
        return "passphrase" if asked else source

    @property
    def signer_source(self) -> str | None:
        """Where the signer is, if it is not with the store."""
        return self.signer or os.environ.get("HOLDFAST_SIGNER") or None

    # opening

    def reading(self) -> AbstractContextManager[Store]:
        """The store, for looking only."""
        return self._open(create=False, read_only=True)

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Store]:
        """The store, for changes in the name of the actor."""
        with self._open(create=create) as store, store.acting(self.actor or login()):
            yield store

    def creating(self) -> AbstractContextManager[Store]:
        """A new store."""
        from holdfast import sync

        there = not self.is_file or _is_file(self.path)
        if there:
            try:
                sync.open(self.url, create=False, read_only=True).close()
            except StoreNotFoundError:
                there = False  # its creation was cut short
            except KeyringError:
                pass  # it is one, of another key
        if there:
            where = repr(self.path) if self.is_file else self.shown
            raise RefusedError(f"there is a store at {where} already; nothing was changed")
        return self._open(create=True)

    def options(self, *, create: bool = False) -> dict[str, Any]:
        """Arguments of `open`, for a program of the user's own, which has its own classes."""
        _refuse_passphrase(self.key)
        if not create:
            self._check_there()
        return {
            "url": self.url,
            "key": self.key_source(new=create and not _is_file(self.path)),
            "durability": self.durability,
            "create": create,
            "signer": self.signer_source,
        }

    @contextmanager
    def _open(self, *, create: bool, read_only: bool = False) -> Iterator[Store]:
        given = self.options(create=create)
        import warnings

        from holdfast import sync
        from holdfast.seal.codec import Unbuilt

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store = sync.open(**given, read_only=read_only, registry=Unbuilt())
        self.warnings = [str(warning.message) for warning in caught]
        for text in self.warnings if not self.json else []:  # not as Python shows them
            click.echo(f"warning: {text}", err=True)
        with store:
            self._redact(store)
            yield store

    def _redact(self, store: Store) -> None:
        """Show nothing that `Protection.keep` has named, unless --reveal asks for it."""
        from holdfast.access.protection import kept_redaction

        context, hide = click.get_current_context(silent=True), None
        if context is None or not context.params.get("reveal"):
            with suppress(HoldfastError):  # what is damaged is repaired with these commands
                hide = kept_redaction(store)
        redact[:] = [hide] if hide is not None else []
        core_of(store).redact = hide

    def _check_there(self) -> None:
        """Say what to do if there is no store; other places than files speak for themselves."""
        if not self.there():
            back = "repair it with a copy of the store (holdfast repair --copy URL), or put the "
            back = f"was a store: {back}file back from a backup" if was_store(self.path) else ""
            if back and os.path.exists(self.path):
                raise DamagedStorageError(f"{self.path!r} is empty, and {back}", place=self.path)
            raise StoreNotFoundError(
                f"there is no store at {self.path!r}; make one with `holdfast init`, or name "
                "another with --store or HOLDFAST_STORE" + (f". If there {back}" if back else "")
            )

    def there(self) -> bool:
        """False if the store is a file that is not there; nothing is opened for that."""
        folder = os.path.dirname(self.path) or "."
        return not self.is_file or not os.path.isdir(folder) or _is_file(self.path)

    def state(self, store: Store, scope: str, *, new: bool = False) -> State:
        """The timeline of a scope; refused if it is not there, unless it may be new."""
        state = store.scope(scope).on(self.timeline)
        if not new and handle_of(state).place()[2] == 0:
            raise ScopeNotFoundError(
                f"there is no scope {state.scope} in this store; `holdfast scope list` shows them"
            )
        return state

    @contextmanager
    def read(self, scope: str, *, new: bool = False) -> Iterator[State]:
        """The timeline of a scope, for looking only."""
        with self.reading() as store:
            yield self.state(store, scope, new=new)

    @contextmanager
    def change(self, scope: str, *, new: bool = False, create: bool = False) -> Iterator[State]:
        """The timeline of a scope, for changes in the name of the actor."""
        with self.writing(create=create) as store:
            yield self.state(store, scope, new=new)

    @contextmanager
    def view(self, scope: str, at: str | None) -> Iterator[View]:
        """A scope at a point, or as it is now: all that is read of it is of one moment."""
        from holdfast.sync import View

        with self.read(scope) as state:
            yield state.at(point(at)) if at is not None else View(handle_of(state).pinned())

    @contextmanager
    def copies(self, urls: Iterable[str]) -> Iterator[list[Store]]:
        """Copies of the store, opened with the same key, for looking only."""
        with ExitStack() as stack:
            found = []
            for url in urls:
                there = copy(self)
                there.store = url
                found.append(stack.enter_context(there.reading()))
            yield found

    # answering

    def tell(self, data: Any, *lines: object) -> None:
        """What came of a command: one JSON document of the data, or lines for people.

        A line is a text, a result that is written as lines, a function that prints something else,
        or None, which is left out.
        """
        if self.json:
            output.document(plain(data))
            return
        for line in lines:
            if callable(line):
                line()
            elif line is not None:
                output.say(line)

    def note(self, text: str) -> None:
        """A remark for people; whoever wants a document has it in a field."""
        if not self.json:
            output.note(text)

    def each(self, data: Any, line: object) -> None:
        """One of many answers that come as time goes by: a line, of JSON or for people.

        A line for people is a text, a result, or a list of what a row of a table would have.
        """
        if self.json:
            output.document(plain(data), indent=None)
        elif isinstance(line, list):
            output.echo("\t".join(output.clean(output.cell(one)) for one in line))
        else:
            output.say(line)

    def fields(self, data: Any, shown: Iterable[tuple[str, Any]] | None = None) -> None:
        """Data as a document, or for people a line for each field (or of `shown`) that has one."""
        if shown is None:
            shown = (data if isinstance(data, dict) else fields_of(data)).items()
        said = [(name, one) for name, one in shown if one not in (None, "", [], (), {})]
        self.tell(data, lambda: output.fields(said))

    def table(
        self, name: str, found: Iterable[Any], columns: str, *, about: Any = None, **made: Any
    ) -> None:
        """Results as a table with these columns, or as the list `name` of a document.

        `about` is what else the document has; `made` has functions of columns that are no fields.
        """
        if self.json:
            output.document({**plain(about or {}), name: plain(list(found))})
        elif found := list(found):
            output.rows(found, columns, made)
        else:
            output.note(f"{name}: none")

    def confirm(
        self, question: str, refusal: str, show: Callable[[], object] | None = None
    ) -> None:
        """Ask, where somebody can answer, after showing what it is about; else refuse."""
        if not sys.stdin.isatty():
            raise InvalidInputError(refusal)
        if show is not None:
            show()
        click.confirm(output.clean(question), abort=True, err=True)


# ---- points and times as people write them ----------------------------------------------------

_LIKE_A_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?|\d{8}T.*")


def point(text: str) -> int | str | datetime:
    """An entry's number, a time, or else a name: TIMELINE@NUMBER or a checkpoint's.

    A checkpoint whose name looks like a number or a time is reached by its id, TIMELINE@NUMBER.
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    return moment(text) if _LIKE_A_TIME.fullmatch(text) else text


def bound(text: str) -> int | datetime:
    """An entry's number or a time."""
    found = point(text)
    if isinstance(found, str):
        raise InvalidInputError("--since and --until take an entry's number or an ISO 8601 time")
    return found


def moment(text: str) -> datetime:
    """An ISO 8601 time; without a zone it is meant where this program runs."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError("that is no time; write one as 2026-11-15T10:30:00+01:00") from None
    return found if found.tzinfo is not None else found.astimezone()


def is_sensitive(view: Any, key: str) -> bool:
    """Whether a key is of class sensitive: its value is shown only if that is asked for."""
    from holdfast.store.inner import SENSITIVE

    return bool(handle_of(view).reader.class_of(key) == SENSITIVE)


# ---- what the session is made of ---------------------------------------------------------------


@contextmanager
def until_stopped() -> Iterator[None]:
    """Until Ctrl-C, or SIGTERM, which is how this is meant to end."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_passphrase(key: str | None, which: str = "") -> None:
    if key is not None and key.startswith(_PROMPT) and key != _PROMPT:
        raise InvalidInputError(
            "a passphrase does not belong on the command line, where `ps` and the shell's "
            f"history show it; use `--{which}key passphrase:` to be asked, or "
            f"--{which}passphrase-file. Change it if it was a real one"
        )


def login() -> str:
    """The name of who is logged in."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without a name, as in containers
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _is_file(path: str) -> bool:
    """Whether something is there; an empty file is as good as none."""
    return os.path.exists(path) and (os.path.isdir(path) or os.path.getsize(path) > 0)


def _first_line(path: str) -> str:
    """The passphrase in a file, or in a pipe such as /dev/fd/3."""
    from pathlib import Path

    from holdfast.seal.keys import read_secret

    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "rb") as pipe:
                content = pipe.readline(4096)
        else:
            content = read_secret(Path(path).expanduser(), "passphrase file")
        return content.decode().partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError):
        raise InvalidInputError("the passphrase file cannot be read as a line of text") from None
