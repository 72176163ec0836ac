"""Signatures on a checkpoint that lie beside it: of a hybrid signer, and of co-signers.

Each is a row of its own. It covers the hash of the checkpoint's entry, and so all of it, and was
made when that hash was known: the checkpoint's bytes and hash do not change when more are added.
Such a row is evidence, not state: nothing but the rules of who verifies says how many there must
be. One exception: a checkpoint that says that its signer is hybrid calls for its signature.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import Conflict, InvalidInputError
from holdfast.seal.signer import Signer
from holdfast.storage.contract import Batch
from holdfast.storage.rows import again
from holdfast.store.commit.group import Core
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Envelope
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.signatures import Signature, beside, signature_row
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.arguments import check_count, listed

if TYPE_CHECKING:
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.names.items import Checkpoint

_PUBLIC = re.compile("(?:02)?[0-9a-f]{64}")


def signatures_of(core: Core, ledger: Ledger, key: bytes, envelope: Envelope) -> list[Signature]:
    """Public key and signature of all who signed a checkpoint."""
    if envelope.statement is None:
        return []
    own = [(core.public, b"")] if envelope.statement.algorithm == entry.ED25519 else []
    return [*own, *(signature for _, signature in beside(ledger, key))]


class Trust(NamedTuple):
    """Keys that are believed, and how many of them must have signed each checkpoint."""

    keys: frozenset[bytes]
    require: int

    @classmethod
    def of(cls, trust: Sequence[str], require: int | None) -> Trust:
        """What was given to `verify`."""
        keys = listed(trust, "trust")
        form = "trust takes public keys in hexadecimal, as `identity()` ends with one"
        if not all(isinstance(key, str) and _PUBLIC.fullmatch(key) for key in keys):
            raise InvalidInputError(form)
        found = frozenset(bytes.fromhex(key) for key in keys)
        if require is None:
            return cls(found, min(1, len(found)))
        check_count(require, "require")
        if not 1 <= require <= len(found):
            raise InvalidInputError("require is at least 1 and at most the number of trusted keys")
        return cls(found, require)

    def missing(self, valid: set[bytes]) -> list[str]:
        """What to say of a checkpoint that these keys signed; nothing if they are enough."""
        count = len(valid & self.keys)
        if count >= self.require:
            return []
        return [f"{count} of the trusted keys signed it, {self.require} must"]


def cosign(handle: LineHandle, point: Any, signer: str, verify: str) -> Checkpoint:
    """Add a signature to a checkpoint; see `State.cosign`."""
    core = handle.core
    handle.ask("cosign", str(getattr(point, "id", point)))
    if not isinstance(signer, str) or not signer.startswith("file:") or len(signer) == 5:
        raise InvalidInputError("a signer is given as file:PATH")
    made = Signer.load(os.path.expanduser(signer[5:]))
    timeline, sequence = handle.history.points.find(point)
    source = handle.history.points.view(timeline, sequence)
    found = handle.history.checkpoint_at(timeline, sequence)
    handle.history.check_point(source, sequence, verify)
    ledger = source.ledger
    key, envelope, _ = ledger.entry_at(source.number, sequence)
    if any(other == made.public for other, _ in signatures_of(core, ledger, key, envelope)):
        raise Conflict(f"{handle.scope}: {found.id} has a signature of this key already", [])
    if len(list(beside(ledger, key))) >= rows.MOST_SIGNATURES:
        raise InvalidInputError(
            f"{handle.scope}: {found.id} has {rows.MOST_SIGNATURES} signatures; more are not kept"
        )

    def step() -> bool:  # again if the data key was rotated meanwhile
        handle.history.points.line(timeline)  # takes up a newer data key, if there is one
        rekeyed = ledger.next_epoch()  # before anything is sealed
        put = signature_row(ledger, key, bytes.fromhex(found.hash), made)
        if absent := core.storage.get([put[0]])[0] is None:
            core.leases.commit(Batch(puts=[put], absent=[put[0], ledger.tombstone, rekeyed]))
        return absent

    said = f"{handle.scope}: {found.id} was signed by this key just now; look again"
    if not again(step, said):
        raise Conflict(said, [])
    return found
