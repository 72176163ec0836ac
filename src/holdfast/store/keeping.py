"""Keys on the blocking face; what they need is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.store.handles import StoreHandle
    from holdfast.store.keyring import Keyring


class StoreKeys:
    """What a store can do with its keys."""

    _handle: StoreHandle

    def keyring(self) -> Keyring:
        """What the ring holds: generations, scopes, data keys; never a key."""
        from holdfast.store.keyring import show_keyring

        return show_keyring(self._handle.core)

    def begin_rotation(self, new_key: str) -> None:
        """Let a new master key open the store beside the old one, for as long as you like.

        `new_key` is `file:PATH` (made if it is missing, and durable before anything else),
        `env:NAME` or `passphrase:TEXT`. Processes that have the old key go on, but with it alone
        no new scope can be made (`KeyRetiringError`): open them again with the new key, or give
        it to them with `add_key`. Cut short, it is begun again with the same key.
        """
        from holdfast.store.keyring import begin_rotation

        begin_rotation(self._handle.core, new_key)

    def finish_rotation(self) -> None:
        """Retire the old master key: from now on only the new one opens the store.

        Every key is first found to open with the new one. Processes that have the old key alone
        keep the scopes that they have open; what else they ask for gives `KeyRetiredError`.
        """
        from holdfast.store.keyring import finish_rotation

        finish_rotation(self._handle.core)

    def rotate_master(self, new_key: str) -> None:
        """Begin and finish a rotation of the master key; see `begin_rotation`."""
        self.begin_rotation(new_key)
        self.finish_rotation()

    def add_key(self, key: str) -> None:
        """Give this store the key that its master is, or will be, rotated to."""
        from holdfast.store.keyring import add_key

        add_key(self._handle.core, key)
