"""The same store, seen in another storage: a copy, or rows as if some were others."""

from __future__ import annotations

from copy import copy

from holdfast.storage.contract import Storage
from holdfast.store.commit.core import Core


def seen_in(core: Core, storage: Storage) -> Core:
    """A store that is read in another storage with the keys of this one, and nothing cached.

    Nothing can be written. The ring belongs to the store that it is taken from: that must stay
    open as long.
    """
    return Core(
        storage,
        core.lineage,
        instance=core.instance,
        public=core.public,
        self_signed=core.self_signed,
        ring=core.ring,
        ring_storage=None,
        signer=None,
        codec=copy(core.codec),
        clock=core.clock,
        read_only=True,
    )
