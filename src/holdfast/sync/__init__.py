"""The blocking face: the same names as `holdfast`, without `await`.

Calls over embedded engines pay for no event loop and no thread. One store may be used from
several threads; all that wait at one moment share a commit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.exports import PARTS, BlockingPart
from holdfast.seal.codec import ValueLimits
from holdfast.seal.registry import Registry
from holdfast.storage.contract import Storage
from holdfast.store.book import Book, BookPage
from holdfast.store.history.handle import StoreHandle
from holdfast.store.lease import Lease
from holdfast.store.names.clock import Clock
from holdfast.store.open import HOUR, open_core
from holdfast.store.read.watch import Watch
from holdfast.store.state import State, View
from holdfast.store.store import Change, Store

if TYPE_CHECKING:
    from holdfast.sync import access as access
    from holdfast.sync import agents as agents
    from holdfast.sync import backup as backup
    from holdfast.sync import checkpoints as checkpoints
    from holdfast.sync import hooks as hooks
    from holdfast.sync import recovery as recovery
    from holdfast.sync import replicas as replicas
    from holdfast.sync import runtime as runtime
    from holdfast.sync import schemas as schemas
    from holdfast.sync import testing as testing

__all__ = [
    "Book",
    "BookPage",
    "Change",
    "Lease",
    "State",
    "Store",
    "View",
    "Watch",
    "open",
]


def open(
    url: str | Path = "sqlite:",
    *,
    key: str | None = None,
    durability: str = "full",
    create: bool = True,
    read_only: bool = False,
    signer: str | None = None,
    identity: str | None = None,
    registry: Registry | None = None,
    limits: ValueLimits | None = None,
    clock: Clock | None = None,
    storage: Storage | None = None,
    cache: str | None = None,
    cache_ttl: float = HOUR,
) -> Store:
    """Open or create a store; see `holdfast.open` for the arguments."""
    return Store(StoreHandle(open_core(**locals())))


# A part is a module without a file: its names, and where they live, stand in `holdfast.<part>`.
for _part in PARTS:
    globals()[_part] = sys.modules[f"{__name__}.{_part}"] = BlockingPart(f"{__name__}.{_part}")
