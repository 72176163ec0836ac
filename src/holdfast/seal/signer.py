"""The key that signs checkpoints and witnesses, and the text by which a verifier pins it.

A signature says something only if its private key is out of reach of whoever can write the
store: in a file apart from a plain store, or sealed in the ring of an encrypted one. What is
signed begins with a domain; that is the caller's duty.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Container
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from holdfast.errors import InvalidInputError, UntrustedSignerError, WrongKeyError
from holdfast.seal.keys import make_secret, read_secret

SEED = 32
PUBLIC = 32
KEY_ID = 8
HYBRID = 33
_ML_PUBLIC = 1952
_LINES = ("holdfast-signer-1 ", "holdfast-signer-2 ")

_random = os.urandom


def key_id(public: bytes) -> bytes:
    """The 8 bytes by which a signature names its key; for looking up, never for trust."""
    return hashlib.sha256(b"holdfast/1/signer\0" + public).digest()[:KEY_ID]


def fingerprint(keys: bytes) -> bytes:
    """The public key of a hybrid pair, from the Ed25519 and the ML-DSA-65 key joined."""
    return b"\2" + hashlib.sha256(b"holdfast/1/hybrid\0" + keys).digest()


def _ml_dsa() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import mldsa
    except ImportError:
        raise InvalidInputError(
            "a hybrid signer needs ML-DSA, which this version of `cryptography` lacks; "
            "install a newer one"
        ) from None
    return mldsa


class Signer:
    """An Ed25519 key pair, or a hybrid one: that and an ML-DSA-65 key pair, which sign together.

    The public key of a hybrid pair is a fingerprint of both. It has another length, so that who
    pins it can never be satisfied with one signature of the two; a signature carries both keys.
    The repr shows the public key only; a signer cannot be pickled.
    """

    __slots__ = ("_private", "_second", "key_id", "public")

    def __init__(self, private: Ed25519PrivateKey, second: Any = None) -> None:
        self._private = private
        self._second = second
        self.public: bytes = private.public_key().public_bytes_raw()
        if second is not None:
            self.public = fingerprint(self._keys())
        self.key_id: bytes = key_id(self.public)

    def _keys(self) -> bytes:
        return bytes(
            self._private.public_key().public_bytes_raw()
            + self._second.public_key().public_bytes_raw()
        )

    @property
    def hybrid(self) -> bool:
        """Whether there are two signatures in one."""
        return self._second is not None

    @classmethod
    def generate(cls, *, hybrid: bool = False) -> Signer:
        """A new pair, held in memory only."""
        return cls.from_seed(_random(2 * SEED if hybrid else SEED))

    @classmethod
    def from_seed(cls, seed: bytes) -> Signer:
        """The pair of this private key: 32 bytes, or 64 of a hybrid one."""
        if len(seed) not in (SEED, 2 * SEED):
            raise InvalidInputError(f"a signer's seed has {SEED} bytes, a hybrid one's twice that")
        first = Ed25519PrivateKey.from_private_bytes(seed[:SEED])
        if len(seed) == SEED:
            return cls(first)
        return cls(first, _ml_dsa().MLDSA65PrivateKey.from_seed_bytes(seed[SEED:]))

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, hybrid: bool = False) -> Signer:
        """A new pair in a new file of mode 0600; refused if a file is there."""
        signer = cls.generate(hybrid=hybrid)
        line = f"{_LINES[signer.hybrid]}{base64.b64encode(signer.seed()).decode()}\n"
        if not make_secret(Path(path), line.encode(), "signer file"):
            raise InvalidInputError(f"the signer file {path} is there already; load it instead")
        return signer

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Signer:
        """The pair in a file that `create` made."""
        content = read_secret(Path(path), "signer file")
        for hybrid, line in enumerate(_LINES):
            try:
                text = content.decode("ascii").strip()
                if text.startswith(line):
                    seed = base64.b64decode(text[len(line) :], validate=True)
                    if len(seed) == SEED << hybrid:
                        return cls.from_seed(seed)
            except (UnicodeDecodeError, binascii.Error):
                break
        form = f'"{_LINES[0]}" and base64 of {SEED} bytes, or "{_LINES[1]}" and of {2 * SEED}'
        raise WrongKeyError(f"the signer file {path} holds no signer; it holds one line: {form}")

    def seed(self) -> bytes:
        """The private key, for sealing it into a ring."""
        second = self._second.private_bytes_raw() if self.hybrid else b""
        return self._private.private_bytes_raw() + bytes(second)

    def sign(self, data: bytes) -> bytes:
        """A signature over data that begins with its domain: 64 bytes, of a hybrid pair 5357."""
        first = self._private.sign(data)
        if self._second is None:
            return first
        return first + self._keys() + bytes(self._second.sign(data))

    @staticmethod
    @lru_cache(maxsize=256)  # who goes back to a checkpoint checks it several times
    def verify(public: bytes, data: bytes, signature: bytes) -> bool:
        """Whether the holder of this public key signed exactly this data, with all that it has."""
        try:
            if len(public) == HYBRID:
                keys = signature[64 : 64 + PUBLIC + _ML_PUBLIC]
                if fingerprint(keys) != public:
                    return False
                second = _ml_dsa().MLDSA65PublicKey.from_public_bytes(keys[PUBLIC:])
                second.verify(signature[64 + len(keys) :], data)
                public, signature = keys[:PUBLIC], signature[:64]
            Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True

    def __repr__(self) -> str:
        return f"Signer(public={self.public.hex()})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a signer is not pickled or copied; load it again where it is needed")


def check_vouched(what: str, signer: bytes, trusted: Container[bytes]) -> None:
    """Refuse what came from outside, unless somebody signed it who is trusted."""
    if not signer:
        raise UntrustedSignerError(
            f"{what} is not signed: nobody vouches for it; give untrusted=True to take it all the "
            "same"
        )
    if signer not in trusted:
        raise UntrustedSignerError(
            f"{what} is signed by {signer.hex()}, who is not trusted here; if you know from "
            "elsewhere whose key that is, give it with trust="
        )


class Identity(NamedTuple):
    """What a verifier pins: which store, whether it is encrypted, who signs for it."""

    lineage: bytes
    encrypted: bool
    public: bytes


_IDENTITY = re.compile(r"holdfast1:([0-9a-f]{32}):(plain|encrypted):((?:02)?[0-9a-f]{64})")


def format_identity(identity: Identity) -> str:
    """`holdfast1:<lineage>:<plain|encrypted>:<public key>`."""
    if len(identity.lineage) != 16 or len(identity.public) not in (PUBLIC, HYBRID):
        raise InvalidInputError(f"an identity has a lineage of 16 and a key of {PUBLIC} bytes")
    kind = "encrypted" if identity.encrypted else "plain"
    return f"holdfast1:{identity.lineage.hex()}:{kind}:{identity.public.hex()}"


def parse_identity(text: str) -> Identity:
    """The identity in a text that `format_identity` made; blanks around it do not matter."""
    found = _IDENTITY.fullmatch(text.strip())
    if found is None:
        raise InvalidInputError(
            "an identity has the form holdfast1:<lineage>:<plain|encrypted>:<public key>, with "
            "32 and 64 hex digits; copy it whole from where the store shows it"
        )
    lineage, kind, public = found.groups()
    return Identity(bytes.fromhex(lineage), kind == "encrypted", bytes.fromhex(public))
