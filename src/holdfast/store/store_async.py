"""The async face of a store; `holdfast` itself exports it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.seal.codec import ValueLimits
from holdfast.seal.registry import Registry
from holdfast.storage.contract import Storage
from holdfast.store import store as blocking
from holdfast.store.commit.group import Core
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.clock import Clock
from holdfast.store.names.face import made
from holdfast.store.names.items import Entry, Position
from holdfast.store.names.threads import to_the_end
from holdfast.store.open import HOUR, open_core
from holdfast.store.state_async import Pump

if TYPE_CHECKING:  # a stub alone, which scripts/stubs.py writes
    from holdfast.store.made import MadeStore
else:
    MadeStore = made(blocking.Store)


_OPEN = (
    "write `async with holdfast.open(...) as store:` or `store = await holdfast.open(...)`; "
    "without asyncio, `with holdfast.sync.open(...) as store:`"
)


class Opening:
    """What `holdfast.open` returns: await it, or use it with `async with`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._commit = options.pop("commit")
        self._options = options
        self._store: Store | None = None

    async def _open(self) -> Store:
        if self._commit not in (None, "thread", "inline"):
            raise InvalidInputError("commit is 'thread' or 'inline'")
        core = await to_the_end(open_core, undo=Core.close, **self._options)
        waits = self._options["durability"] == "full"
        waits = waits or not core.storage.limits.embedded
        mode = self._commit or ("thread" if waits else "inline")
        return Store._of(blocking.Store(StoreHandle(core)), mode)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the store is not open, so it has no {name!r} yet; {_OPEN}")

    def __enter__(self) -> Store:
        raise TypeError(f"this is the async store; {_OPEN}")

    def __exit__(self, *_: object) -> None: ...

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.close()


def open(
    url: str | Path = "sqlite:",
    *,
    key: str | None = None,
    durability: str = "full",
    create: bool = True,
    read_only: bool = False,
    signer: str | None = None,
    identity: str | None = None,
    commit: str | None = None,
    registry: Registry | None = None,
    limits: ValueLimits | None = None,
    clock: Clock | None = None,
    storage: Storage | None = None,
    cache: str | None = None,
    cache_ttl: float = HOUR,
) -> Opening:
    """Open a store, or create it: `async with holdfast.open(url) as store`, or await it.

    url: `sqlite:PATH` (default `holdfast.db`), a `Path`, `memory:`, or of a server (see
        docs/storage.md) `postgresql://` or `mongodb://`, then `USER:PASSWORD@HOST:PORT/DATABASE`.
    key: `file:PATH`, `env:NAME` or `passphrase:TEXT`; a store is encrypted if it is created
        with one. Without it `HOLDFAST_KEY` is used if it is set.
    durability: `full` (a write that returned survives power loss) or `normal` (kill -9).
    create: whether a store may be made where there is none.
    signer: `file:PATH` of the key that signs checkpoints and witnesses; `hybrid:PATH` for one
        that signs with Ed25519 and ML-DSA-65, of a new store.
    identity: what `Store.identity()` gave; another store is refused, and none is created.
    commit: `thread` or `inline`: where commits run; by default `thread` at `full`, and where
        the storage is on a server.
    registry, limits, clock: of named types, of values, and for times.
    storage: an engine of your own, already open; see docs/storage.md. With a key, the URL
        says where the ring lies: beside the file that it names.
    cache: `redis://USER:PASSWORD@HOST:PORT/NUMBER`, asked for values before the storage is, and
        `cache_ttl`, seconds for which it keeps them; see docs/storage.md.
    """
    return Opening(locals())


class Store(MadeStore):
    """One opened storage with its keys and its clock."""

    _blocking: blocking.Store
    _handle: StoreHandle
    _core: Core
    _storage: Storage
    _pump: Pump
    _run: Callable[..., Awaitable[Any]]

    @classmethod
    def _of(cls, found: blocking.Store, mode: str = "thread") -> Store:
        """The async face of a blocking store: one that was just opened, or a replica."""
        store = cls.__new__(cls)
        store._blocking = found
        store._handle = found._handle
        store._core = found._core
        store._storage = found._core.storage
        store._pump = Pump(found._core, mode)
        store._run = store._pump.commit
        return store

    async def feed(  # type: ignore[override]  # one that is made gives no async iterator
        self, since: Position | None = None, *, past_pruned: bool = False
    ) -> AsyncIterator[Entry]:
        rows = self._blocking.feed(since, past_pruned=past_pruned)
        error: HoldfastError | None = None
        while error is None:
            page, error = await to_the_end(_take, rows, 200)
            for entry in page:
                yield entry
            if not page and error is None:
                return
        raise error


def _take(rows: Iterator[Entry], count: int) -> tuple[list[Entry], HoldfastError | None]:
    """Entries, and why there are no more: what came before an error is given before it."""
    found: list[Entry] = []
    try:
        for entry in islice(rows, count):
            found.append(entry)
    except HoldfastError as error:
        return found, error
    return found, None
