"""Signatures on a checkpoint that lie beside it, in rows of their own.

Each covers the hash of the checkpoint's entry, and so all of it. Who adds them, and how many there
must be: `store.proof.cosign`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.seal.signer import Signer, key_id
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Envelope
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds as rows

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode
Signature = tuple[bytes, bytes]
"""Public key, and signature; empty if the envelope has it."""


def signature_row(ledger: Ledger, key: bytes, hash_: bytes, signer: Signer) -> Signature:
    """The row (key, content at rest) of a signature on the entry with this key and hash."""
    text = _text(ledger, key, hash_, signer.public)
    place = rows.signature(key, signer.key_id)
    plain = _encode((signer.public, signer.sign(text)))
    return place, ledger.seal_row(place, plain, ledger.commit_signature)


def _text(ledger: Ledger, key: bytes, hash_: bytes, public: bytes) -> bytes:
    return b"".join((b"holdfast/cosign/1\0", ledger.prefix, key, hash_, public))


def beside(ledger: Ledger, key: bytes) -> Iterator[tuple[bytes, Signature]]:
    """Rows of signatures on an entry: their keys, and what they hold."""
    prefix = rows.signature(key, b"")
    for place, row in ledger.storage.scan(prefix, rows.after(prefix), limit=rows.MOST_SIGNATURES):
        try:
            yield place, _decode(ledger.open_row(place, row))
        except msgspec.MsgspecError:
            raise ledger.damage(place, "it cannot be read") from None


def signers_of(
    ledger: Ledger, key: bytes, envelope: Envelope, public: bytes
) -> tuple[set[bytes], list[str]]:
    """Public keys whose signatures on a checkpoint fit, and what is wrong with the others.

    `public` is the key that is believed to be the store's signer's.
    """
    statement = envelope.statement
    assert statement is not None
    algorithm = statement.algorithm
    valid: set[bytes] = set()
    wrong: list[str] = []
    hash_ = ledger.entry_hash(key, envelope.data)
    for place, (other, signature) in beside(ledger, key):
        fits = Signer.verify(other, _text(ledger, key, hash_, other), signature)
        if fits and place == rows.signature(key, key_id(other)):
            valid.add(other)
        else:
            wrong.append("a signature beside it does not fit")
    if algorithm not in (entry.UNSIGNED, entry.ED25519, entry.HYBRID):
        wrong.append("it is signed in a way that this version does not know")
    elif algorithm != entry.UNSIGNED and statement.key_id != key_id(public):
        wrong.append("it was signed by a key that is not trusted here")
    elif algorithm == entry.HYBRID and public not in valid:
        wrong.append("the signature of its signer, which it calls for, is missing")
    elif algorithm == entry.ED25519:
        text = entry.signed_text(ledger.prefix, key, envelope.data)
        if Signer.verify(public, text, statement.signature):
            valid.add(public)
        else:
            wrong.append("the signature does not fit")
    return valid, wrong
