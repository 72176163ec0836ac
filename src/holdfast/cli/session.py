"""The global options, and the store that they open."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.points import point
from holdfast.errors import (
    InvalidInputError,
    KeyringError,
    RefusedError,
    ScopeNotFoundError,
    StoreNotFoundError,
)
from holdfast.store.inner import handle_of

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
        return text if named else f"sqlite:{text}"

    @property
    def shown(self) -> str:
        """The store's URL without a password."""
        from holdfast.storage import shown

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
        if self.passphrase_file is not None:
            if self.key not in (None, _PROMPT):
                raise InvalidInputError("give --key or --passphrase-file, not both")
            return _PROMPT + _first_line(self.passphrase_file)
        if self.key is None:
            return os.environ.get("HOLDFAST_KEY")
        if self.key == _PROMPT:
            return _PROMPT + _ask(new)
        return self.key

    def other_key(
        self, which: str, key: str | None, passphrase_file: str | None, *, new: bool
    ) -> str | None:
        """A key that is not the one the store is opened with: --WHICH-key and its companion."""
        if passphrase_file is not None:
            if key not in (None, _PROMPT):
                raise InvalidInputError(
                    f"give --{which}-key or --{which}-passphrase-file, not both"
                )
            return _PROMPT + _first_line(passphrase_file)
        _refuse_passphrase(key, f"{which}-")
        return _PROMPT + _ask(new) if key == _PROMPT else key

    @property
    def would_ask(self) -> bool:
        """Whether opening the store asks a question."""
        return self.key == _PROMPT

    @property
    def key_name(self) -> str:
        """Where the key comes from, without its content."""
        source = self.key or os.environ.get("HOLDFAST_KEY", "")
        return "passphrase" if source.startswith(_PROMPT) else source

    @property
    def signer_source(self) -> str | None:
        """Where the signer is, if it is not with the store."""
        return self.signer or os.environ.get("HOLDFAST_SIGNER") or None

    # opening

    @contextmanager
    def reading(self) -> Iterator[Store]:
        """The store, for looking only."""
        with self._open(create=False, read_only=True) as store:
            yield store

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Store]:
        """The store, for changes in the name of the actor."""
        with self._open(create=create) as store, store.acting(self.actor or login()):
            yield store

    @contextmanager
    def creating(self) -> Iterator[Store]:
        """A new store."""
        if self._is_store():
            where = repr(self.path) if self.is_file else self.shown
            raise RefusedError(f"there is a store at {where} already; nothing was changed")
        with self._open(create=True) as store:
            yield store

    def options(self) -> dict[str, Any]:
        """Arguments of `open`, for a program of the user's own, which has its own classes."""
        _refuse_passphrase(self.key)
        self._check_there()
        return {
            "url": self.url,
            "key": self.key_source(),
            "durability": self.durability,
            "create": False,
            "signer": self.signer_source,
        }

    @contextmanager
    def _open(self, *, create: bool, read_only: bool = False) -> Iterator[Store]:
        _refuse_passphrase(self.key)
        if not create:
            self._check_there()
        key = self.key_source(new=create and not _is_file(self.path))
        from holdfast import sync
        from holdfast.seal.codec import Unbuilt

        with self._warned():
            store = sync.open(
                self.url,
                key=key,
                durability=self.durability,
                create=create,
                read_only=read_only,
                signer=self.signer_source,
                registry=Unbuilt(),
            )
        with store:
            yield store

    @contextmanager
    def _warned(self) -> Iterator[None]:
        """Show what the library warns of as a line, not as Python shows it."""
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        self.warnings = [str(warning.message) for warning in caught]
        for text in self.warnings if not self.json else []:
            click.echo(f"warning: {text}", err=True)

    def _check_there(self) -> None:
        """Say what to do if there is no store; other places than files speak for themselves."""
        folder = os.path.dirname(self.path) or "."
        if self.is_file and os.path.isdir(folder) and not _is_file(self.path):
            raise StoreNotFoundError(
                f"there is no store at {self.path!r}; make one with `holdfast init`, or name "
                "another with --store or HOLDFAST_STORE"
            )

    def _is_store(self) -> bool:
        if self.is_file and not _is_file(self.path):
            return False
        from holdfast import sync

        try:
            sync.open(self.url, create=False, read_only=True).close()
        except StoreNotFoundError:
            return False  # its creation was cut short
        except KeyringError:
            pass
        return True

    def state(self, store: Store, scope: str, *, new: bool = False) -> State:
        """The timeline of a scope; refused if it is not there, unless it may be new."""
        state = store.scope(scope).on(self.timeline)
        if not new and handle_of(state).place()[2] == 0:
            raise ScopeNotFoundError(
                f"there is no scope {state.scope} in this store; `holdfast scope list` shows them"
            )
        return state

    def view(self, store: Store, scope: str, at: str | None) -> View:
        """A scope at a point, or as it is now: all that is read of it is of one moment."""
        from holdfast.sync import View

        state = self.state(store, scope)
        return state.at(point(at)) if at is not None else View(handle_of(state).pinned())


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


def _ask(new: bool) -> str:
    if not sys.stdin.isatty():
        raise InvalidInputError(
            "there is no terminal to ask for the passphrase at; use --passphrase-file"
        )
    text: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    return text
