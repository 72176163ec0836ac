"""Keys on the async face: each call runs on a thread."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.store import state
from holdfast.store.commit.core import Core
from holdfast.store.names.items import ErasedSubject
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import read_away, to_the_end
from holdfast.store.rules.subjects import check_subject
from holdfast.store.upkeep.keyring import Keyring, MasterRotated
from holdfast.store.upkeep.rotate import Resealed


class StoreKeys:
    """What a store can do with its keys; see `holdfast.sync.Store` for each."""

    _blocking: state.Store

    async def keyring(self) -> Keyring:
        """What the ring holds: generations, scopes, data keys; never a key."""
        return await read_away(self._blocking.keyring)

    async def begin_rotation(self, new_key: str) -> None:
        """Let a new master key open the store beside the old one, for as long as you like.

        `new_key` is `file:PATH` (made if it is missing, and durable before anything else),
        `env:NAME` or `passphrase:TEXT`. Processes that have the old key go on, but with it alone
        no new scope can be made (`KeyRetiringError`): open them again with the new key, or give
        it to them with `add_key`. Cut short, it is begun again with the same key.
        """
        await to_the_end(self._blocking.begin_rotation, new_key)

    async def finish_rotation(self) -> MasterRotated:
        """Retire the old master key: from now on only the new one opens the store.

        Every key is first found to open with the new one. Processes that have the old key alone
        keep the scopes that they have open; what else they ask for gives `KeyRetiredError`.
        The result says where the old key may still open something.
        """
        return await to_the_end(self._blocking.finish_rotation)

    async def rotate_master(self, new_key: str) -> MasterRotated:
        """Begin and finish a rotation of the master key; see `begin_rotation`."""
        return await to_the_end(self._blocking.rotate_master, new_key)

    async def add_key(self, key: str) -> None:
        """Give this store the key that its master is, or will be, rotated to."""
        await to_the_end(self._blocking.add_key, key)

    async def rotate(self, scope: Scope | str) -> int:
        """Give a scope a new data key for all that is written from now on; returns its epoch.

        Other processes take it up with their next write; none of their writes fails. What was
        written before stays readable under its old key, until `reseal`.
        """
        return await to_the_end(self._blocking.rotate, scope)

    async def reseal(self, scope: Scope | str) -> Resealed:
        """Seal all records of a scope under its newest data key, and remove the older keys.

        Others go on reading and writing. History, roots and signatures do not change. Cut short,
        it is done again. If a record is damaged the others are sealed, the old key stays, and
        the damage is raised.
        """
        return await to_the_end(self._blocking.reseal, scope)

    async def subjects(self, *, prefix: str = "") -> list[str]:
        """The names of all subjects that values are sealed for, in order."""
        return await read_away(self._blocking.subjects, prefix=prefix)

    async def erase_subject(self, name: str) -> ErasedSubject:
        """Remove a subject's key: nothing that was sealed for it can be read any more, anywhere.

        Nobody can write under the key once this has begun, also not who has it in memory. What is
        written later for the same name is sealed under a new key. Cut short, call it again.
        """
        return await to_the_end(self._blocking.erase_subject, name)

    async def rotate_all(self) -> int:
        """Give every scope a new data key, one after the other; how many there are."""
        return await to_the_end(self._blocking.rotate_all)

    async def reseal_all(self) -> list[Resealed]:
        """Seal all records of every scope under its newest data key; see `reseal`."""
        return await to_the_end(self._blocking.reseal_all)


async def made(core: Core, names: Iterable[str | None]) -> None:
    """Let subjects be there before a change is built: making one waits for the disk."""
    for name in names:
        if name is not None and not core.subjects.holds(check_subject(name)):
            core.check_writable()
            await to_the_end(core.subjects.of, check_subject(name))
