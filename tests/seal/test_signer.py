"""Signers sign, their files are private, identities parse exactly."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest

from holdfast.errors import InvalidInputError, KeyMissingError, UnsafePlaceError, WrongKeyError
from holdfast.seal.signer import Identity, Signer, format_identity, key_id, parse_identity

SEED = bytes(range(32))


def test_sign_and_verify() -> None:
    signer = Signer.generate()
    data = b"holdfast/1/checkpoint\0abc"
    signature = signer.sign(data)
    assert len(signature) == 64
    assert Signer.verify(signer.public, data, signature)
    for bit in range(512):
        bad = bytearray(signature)
        bad[bit // 8] ^= 1 << bit % 8
        assert not Signer.verify(signer.public, data, bytes(bad))
    assert not Signer.verify(signer.public, data + b"x", signature)
    assert not Signer.verify(Signer.generate().public, data, signature)
    for public, text in ((b"", signature), (b"x" * 31, signature), (signer.public, b"")):
        assert not Signer.verify(public, data, text)


def test_golden() -> None:
    """Frozen: the RFC's algorithm and our key id."""
    signer = Signer.from_seed(SEED)
    public = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert signer.public.hex() == public
    assert signer.key_id == key_id(signer.public)
    assert signer.key_id.hex() == "3a8f630a7b271a5b"
    assert signer.seed() == SEED
    with pytest.raises(InvalidInputError):
        Signer.from_seed(b"short")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "store.sign"
    with pytest.raises(KeyMissingError, match=r"store\.sign"):
        Signer.load(path)
    made = Signer.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("holdfast-signer-1 ")
    assert Signer.load(path).public == made.public
    with pytest.raises(InvalidInputError, match="load it"):
        Signer.create(path)
    assert Signer.load(path).public == made.public
    path.chmod(0o644)
    with pytest.raises(UnsafePlaceError):
        Signer.load(path)


@pytest.mark.parametrize("text", ["", "holdfast-key-1 AAAA", "holdfast-signer-1 AAAA", "\xff"])
def test_malformed_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "store.sign"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(WrongKeyError, match="holdfast-signer-1"):
        Signer.load(path)


def test_a_signer_shows_no_seed() -> None:
    signer = Signer.from_seed(SEED)
    assert SEED.hex() not in repr(signer)
    assert signer.public.hex() in repr(signer)
    with pytest.raises(TypeError):
        pickle.dumps(signer)


@pytest.mark.parametrize("encrypted", [True, False])
def test_identity(encrypted: bool) -> None:
    identity = Identity(bytes(range(16)), encrypted, SEED)
    text = format_identity(identity)
    kind = "encrypted" if encrypted else "plain"
    assert text == f"holdfast1:{bytes(range(16)).hex()}:{kind}:{SEED.hex()}"
    assert parse_identity(f" {text}\n") == identity


@pytest.mark.parametrize("bad", ["", "holdfast2:", "holdfast1:00:plain:00"])
def test_identities_that_are_none(bad: str) -> None:
    with pytest.raises(InvalidInputError, match="holdfast1:"):
        parse_identity(bad)
    good = format_identity(Identity(bytes(16), False, SEED))
    for wrong in (good + "0", good.replace("plain", "Plain"), good[:-1], good.upper()):
        with pytest.raises(InvalidInputError):
            parse_identity(wrong)
    with pytest.raises(InvalidInputError):
        format_identity(Identity(b"", False, SEED))
