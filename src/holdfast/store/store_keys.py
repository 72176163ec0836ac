"""Keys on the blocking face; what they need is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.store.history.handle import StoreHandle
    from holdfast.store.names.items import ErasedSubject
    from holdfast.store.names.scope import Scope
    from holdfast.store.upkeep.keyring import Keyring, MasterRotated
    from holdfast.store.upkeep.rotate import Resealed


class StoreKeys:
    """What a store can do with its keys."""

    _handle: StoreHandle

    def keyring(self) -> Keyring:
        """What the ring holds: generations, scopes, data keys; never a key."""
        from holdfast.store.upkeep.keyring import show_keyring

        return show_keyring(self._handle.core)

    def begin_rotation(self, new_key: str) -> None:
        """Let a new master key open the store beside the old one, for as long as you like.

        `new_key` is `file:PATH` (made if it is missing, and durable before anything else),
        `env:NAME` or `passphrase:TEXT`. Processes that have the old key go on, but with it alone
        no new scope can be made (`KeyRetiringError`): open them again with the new key, or give
        it to them with `add_key`. Cut short, it is begun again with the same key.
        """
        from holdfast.store.upkeep.keyring import begin_rotation

        begin_rotation(self._handle.core, new_key)

    def finish_rotation(self) -> MasterRotated:
        """Retire the old master key: from now on only the new one opens the store.

        Every key is first found to open with the new one. Processes that have the old key alone
        keep the scopes that they have open; what else they ask for gives `KeyRetiredError`.
        The result says where the old key may still open something.
        """
        from holdfast.store.upkeep.keyring import finish_rotation

        return finish_rotation(self._handle.core)

    def rotate_master(self, new_key: str) -> MasterRotated:
        """Begin and finish a rotation of the master key; see `begin_rotation`."""
        self.begin_rotation(new_key)
        return self.finish_rotation()

    def add_key(self, key: str) -> None:
        """Give this store the key that its master is, or will be, rotated to."""
        from holdfast.store.upkeep.keyring import add_key

        add_key(self._handle.core, key)

    def rotate(self, scope: Scope | str) -> int:
        """Give a scope a new data key for all that is written from now on; returns its epoch.

        Other processes take it up with their next write; none of their writes fails. What was
        written before stays readable under its old key, until `reseal`.
        """
        from holdfast.store.upkeep.rotate import rotate_scope

        return rotate_scope(self._handle, scope)

    def reseal(self, scope: Scope | str) -> Resealed:
        """Seal all records of a scope under its newest data key, and remove the older keys.

        Others go on reading and writing. History, roots and signatures do not change. Cut short,
        it is done again. If a record is damaged the others are sealed, the old key stays, and
        the damage is raised.
        """
        from holdfast.store.upkeep.rotate import reseal_scope

        return reseal_scope(self._handle, scope)

    def subjects(self, *, prefix: str = "") -> list[str]:
        """The names of all subjects that values are sealed for, in order."""
        return self._handle.core.subjects.names(prefix)

    def erase_subject(self, name: str) -> ErasedSubject:
        """Remove a subject's key: nothing that was sealed for it can be read any more, anywhere.

        Nobody can write under the key once this has begun, also not who has it in memory. What is
        written later for the same name is sealed under a new key. Cut short, call it again.
        """
        return self._handle.core.subjects.erase(name)

    def rotate_all(self) -> int:
        """Give every scope a new data key, one after the other; how many there are."""
        from holdfast.store.upkeep.rotate import rotate_all

        return rotate_all(self._handle)

    def reseal_all(self) -> list[Resealed]:
        """Seal all records of every scope under its newest data key; see `reseal`."""
        from holdfast.store.upkeep.rotate import reseal_all

        return reseal_all(self._handle)
