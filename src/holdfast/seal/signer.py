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
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from holdfast.errors import InvalidInputError, WrongKeyError
from holdfast.seal.files import make_secret, read_secret

SEED = 32
PUBLIC = 32
KEY_ID = 8
_LINE = "holdfast-signer-1 "

_random = os.urandom


def key_id(public: bytes) -> bytes:
    """The 8 bytes by which a signature names its key; for looking up, never for trust."""
    return hashlib.sha256(b"holdfast/1/signer\0" + public).digest()[:KEY_ID]


class Signer:
    """An Ed25519 key pair. Its repr shows the public key only; it cannot be pickled."""

    __slots__ = ("_private", "key_id", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()
        self.key_id: bytes = key_id(self.public)

    @classmethod
    def generate(cls) -> Signer:
        """A new pair, held in memory only."""
        return cls.from_seed(_random(SEED))

    @classmethod
    def from_seed(cls, seed: bytes) -> Signer:
        """The pair of this 32-byte private key."""
        if len(seed) != SEED:
            raise InvalidInputError(f"a signer's seed has {SEED} bytes")
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Signer:
        """A new pair in a new file of mode 0600; refused if a file is there."""
        signer = cls.generate()
        line = f"{_LINE}{base64.b64encode(signer.seed()).decode()}\n"
        if not make_secret(Path(path), line.encode(), "signer file"):
            raise InvalidInputError(f"the signer file {path} is there already; load it instead")
        return signer

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Signer:
        """The pair in a file that `create` made."""
        content = read_secret(Path(path), "signer file")
        try:
            text = content.decode("ascii").strip()
            if not text.startswith(_LINE):
                raise ValueError
            seed = base64.b64decode(text[len(_LINE) :], validate=True)
        except (UnicodeDecodeError, binascii.Error, ValueError):
            seed = b""
        if len(seed) != SEED:
            form = f'"{_LINE}" and base64 of {SEED} bytes'
            raise WrongKeyError(
                f"the signer file {path} holds no signer; it holds one line: {form}"
            )
        return cls.from_seed(seed)

    def seed(self) -> bytes:
        """The private key, for sealing it into a ring."""
        return self._private.private_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """64 bytes over data that begins with its domain."""
        return self._private.sign(data)

    @staticmethod
    def verify(public: bytes, data: bytes, signature: bytes) -> bool:
        """Whether the holder of this public key signed exactly this data."""
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True

    def __repr__(self) -> str:
        return f"Signer(public={self.public.hex()})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a signer is not pickled or copied; load it again where it is needed")


class Identity(NamedTuple):
    """What a verifier pins: which store, whether it is encrypted, who signs for it."""

    lineage: bytes
    encrypted: bool
    public: bytes


_IDENTITY = re.compile(r"holdfast1:([0-9a-f]{32}):(plain|encrypted):([0-9a-f]{64})")


def format_identity(identity: Identity) -> str:
    """`holdfast1:<lineage>:<plain|encrypted>:<public key>`."""
    if len(identity.lineage) != 16 or len(identity.public) != PUBLIC:
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
