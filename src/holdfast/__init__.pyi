# Written by scripts/stubs.py from the blocking classes; not to be edited.

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from holdfast import access as access
from holdfast import agents as agents
from holdfast import backup as backup
from holdfast import checkpoints as checkpoints
from holdfast import errors as errors
from holdfast import hooks as hooks
from holdfast import recovery as recovery
from holdfast import replicas as replicas
from holdfast import runtime as runtime
from holdfast import schemas as schemas
from holdfast import sync as sync
from holdfast import testing as testing
from holdfast.errors import HoldfastError as HoldfastError
from holdfast.seal.codec import Typed as Typed
from holdfast.seal.codec import ValueLimits as ValueLimits
from holdfast.seal.registry import Registry as Registry
from holdfast.seal.registry import register as register
from holdfast.seal.subject_keys import ERASED as ERASED
from holdfast.store.book import _T, R
from holdfast.store.book import BookPage as BookPage
from holdfast.store.commit.change import Written
from holdfast.store.commit.group import Core
from holdfast.store.history.handle import ChangeParts
from holdfast.store.history.merge import MergeConflict as MergeConflict
from holdfast.store.lease import Lease as Lease
from holdfast.store.names.cause import Cause as Cause
from holdfast.store.names.clock import Clock as Clock
from holdfast.store.names.items import Checkpoint as Checkpoint
from holdfast.store.names.items import Entry as Entry
from holdfast.store.names.items import Item as Item
from holdfast.store.names.items import Page as Page
from holdfast.store.names.items import Position as Position
from holdfast.store.names.scope import Scope as Scope
from holdfast.store.proof.prove import Proof as Proof
from holdfast.store.proof.verify_report import Report as Report
from holdfast.store.read.find import Begins as Begins
from holdfast.store.read.find import Range as Range
from holdfast.store.rules.classes import Classed as Classed
from holdfast.store.rules.ephemeral import Ephemeral as Ephemeral
from holdfast.store.rules.gates import Gate as Gate
from holdfast.store.rules.gates import GateReading as GateReading
from holdfast.store.rules.gates import GateRequest as GateRequest
from holdfast.store.rules.gates import Operation as Operation
from holdfast.store.rules.keep import Keep as Keep
from holdfast.store.rules.lookup import Lookup as Lookup
from holdfast.store.rules.owned import Owned as Owned
from holdfast.store.rules.sticky import Sticky as Sticky
from holdfast.store.state_async import ChangePart
from holdfast.store.state_async import State as State
from holdfast.store.state_async import View as View
from holdfast.store.store_async import Store as Store
from holdfast.store.store_async import open as open
from holdfast.store.tree.difference import DELETED as DELETED
from holdfast.store.tree.difference import Diff as Diff

__version__: str

class Book:
    """The records of one feature in one state, by their ids.

    `owned` says which keys these are, and what becomes of them when the state is restored, merged
    or copied; `kind` is the class of the records, a `msgspec.Struct` whose fields are values.
    `under` is how the keys of these go on, where records of other kinds lie beside them: "open/".
    `name` is what stands for the star of a prefix that has one: `Owned("plans/*/")`.
    """
    def __init__(
        self, state: View, owned: Owned, kind: type[R], *, under: str = "", name: str = ""
    ) -> None: ...
    async def get(self, id: str) -> R | None:
        """The record of an id; None if there is none."""
    async def all(
        self, prefix: str = "", *, after: str = "", limit: int | None = None, plain: bool = False
    ) -> dict[str, R]:
        """Records by their ids, in the order of these: those that begin with a text, some of them.

        `after` is the last id of those that were given before. With `plain`, objects of registered
        classes in them are given as data, as by `State.get`.
        """
    async def readable(self, prefix: str = "") -> dict[str, R]:
        """The same as `all`, past damage: a record that cannot be read is left out, with a warning,
        and hides none of the others.
        """
    async def find(
        self,
        lookup: str,
        where: Mapping[str, Any] | None = None,
        *,
        order: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page:
        """Records that a lookup leads to: a page of (id, record); see `State.find`.

        It may be declared with the first record: while there is none, nothing is found.
        """
    async def versioned(self, id: str) -> tuple[R | None, int]:
        """The record of an id, and its version: the entry that wrote it; (None, 0) if none did."""
    async def tail(self, id: str, count: int) -> list[R]:
        """The last records of the list of an id, without reading the rest."""
    async def slice(self, id: str, start: int, stop: int | None = None) -> list[R]:
        """Records start..stop of the list of an id, without reading the rest."""
    async def length(self, id: str) -> int:
        """How many records the list of an id has."""
    async def step(
        self,
        function: Callable[[BookPage[R]], _T],
        *,
        reason: str | None = None,
        id: str | None = None,
    ) -> _T:
        """Do something to the records, in one change; returns what the function returns.

        The function gets a `BookPage`. It is called again, with new reads, if somebody else changed
        what it has read before its change was durable: it does nothing but read and write there.
        Under an `id` it is applied once. The `reason` stands in the cause of the entry.
        """
    async def page(self, change: ChangePart) -> BookPage[R]:
        """The records as a change of the caller's reads and writes them, with what else it does."""

class Change:
    """A change over several scopes: `change[state]` is the part for one of them."""
    def __init__(self, parts: ChangeParts) -> None: ...
    entries: list[Written]
    def __getitem__(self, state: State | Scope | str) -> ChangePart: ...
    @property
    def repeated(self) -> bool:
        """Once the block has ended: whether it had been applied before, and so was not now."""

class Watch:
    """Entries as they are committed: `for entry in watch`, or `async for`.

    It waits for the next entry without end, or ends when none came for `timeout` seconds; then
    it can be iterated again and goes on. It also ends when it or the store is closed, by any
    thread or task. A wait that is cancelled loses nothing: the next one goes on. Nothing is held in
    the storage for it.
    """
    def __init__(
        self,
        core: Core,
        scope: Scope | None,
        timeline: str | None,
        prefix: str,
        pattern: str | None,
        since: Position | None,
        timeout: float | None,
        past_pruned: bool,
    ) -> None: ...
    @property
    def position(self) -> Position:
        """Where the watch is: behind the entry that it gave last, and what did not fit since."""
    def __aiter__(self) -> Watch: ...
    async def __anext__(self) -> Entry: ...
    async def close(self) -> None:
        """End the watch, also one that another thread or task waits for."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
