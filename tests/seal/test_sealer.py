"""Sealed records open unchanged in their place, and not otherwise."""

from __future__ import annotations

import hashlib
import hmac
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import (
    DamagedRecordError,
    InvalidInputError,
    KeyMissingError,
)
from holdfast.seal import sealer
from holdfast.seal.sealer import (
    Commitments,
    KeySeal,
    PlainSeal,
    Seal,
    new_writer,
    read_varint,
    write_varint,
)

KEY = bytes(range(32))
WRITER = b"w" * 16
AD = b"lineage/scope/timeline/12"
TEXT = b'{"role": "user", "content": "hello"}' * 12
COMMIT = Commitments(KEY).domain(b"value")


def key_seal(epoch: int = 1) -> KeySeal:
    return KeySeal({1: KEY, 300: KEY[::-1]}, epoch, WRITER)


SEALS: list[Callable[[], Seal]] = [
    lambda: PlainSeal(WRITER),
    key_seal,
    lambda: key_seal(300),
]
seals = pytest.mark.parametrize("make", SEALS, ids=["plain", "key", "key, epoch 300"])


def put(seal: Seal, plain: bytes = TEXT, ad: bytes = AD, **options: Any) -> bytes:
    return seal.seal(ad, plain, COMMIT(plain), **options)


# --- varints ----------------------------------------------------------------------------------


@given(st.integers(0, 2**63 - 1), st.binary(max_size=3))
def test_varint(n: int, rest: bytes) -> None:
    data = write_varint(n)
    assert read_varint(b"x" + data + rest, 1) == (n, 1 + len(data))
    assert len(data) == max(1, -(-n.bit_length() // 7))


@given(st.binary(max_size=11))
def test_varint_is_canonical(data: bytes) -> None:
    try:
        n, end = read_varint(data, 0)
    except ValueError:
        return
    assert write_varint(n) == data[:end]


@pytest.mark.parametrize(
    "bad", [b"", b"\x80", b"\x80\x00", b"\xff\x80\x00", b"\xff" * 9, b"\xff" * 9 + b"\x01"]
)
def test_varint_refuses(bad: bytes) -> None:
    with pytest.raises(ValueError, match="varint"):
        read_varint(bad, 0)


@pytest.mark.parametrize("n", [-1, 2**63])
def test_varint_range(n: int) -> None:
    with pytest.raises(InvalidInputError):
        write_varint(n)


# --- commitments ------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_commitments_are_the_standard_functions(data: bytes) -> None:
    message = b"holdfast/1/entry\0" + data
    plain, keyed = Commitments(None, salt=b"s"), Commitments(KEY)
    assert plain.domain(b"entry")(data) == hashlib.sha256(message).digest()
    digest = hashlib.sha256(message).digest()
    opening = hashlib.blake2b(digest, key=KEY, digest_size=32).digest()
    expected = hashlib.sha256(b"holdfast/1/keyed\0" + opening + digest).digest()
    assert keyed.domain(b"entry")(data) == expected
    assert keyed.opening(b"entry", data) == opening
    assert plain.opening(b"entry", data) == b""
    assert keyed.tag(b"name", data) == keyed.domain(b"tag/name")(data)[:16]


def test_domains_and_keys_are_apart() -> None:
    made = [Commitments(None, salt=b"a"), Commitments(KEY), Commitments(KEY[::-1])]
    found = {c.domain(label)(b"x") for c in made for label in (b"a", b"b", b"tag/a")}
    assert len(found) == 9
    keys = {c.boundary_key for c in (*made, Commitments(None, salt=b"b"))}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}
    assert Commitments(None, salt=b"a").domain(b"a")(b"x") == Commitments(None).domain(b"a")(b"x")


def test_bad_labels_and_keys() -> None:
    for label in (b"", b"a\0b"):
        with pytest.raises(InvalidInputError):
            Commitments(None).domain(label)
    with pytest.raises(InvalidInputError):
        Commitments(b"short")


# --- round trips ------------------------------------------------------------------------------


@seals
@given(plain=st.binary(max_size=500), ad=st.binary(max_size=70), compress=st.booleans())
def test_round_trip(make: Callable[[], Seal], plain: bytes, ad: bytes, compress: bool) -> None:
    seal = make()
    assert seal.open(ad, put(seal, plain, ad, compress=compress)) == plain


@seals
@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 20_000, 1 << 20])
def test_sizes(make: Callable[[], Seal], size: int) -> None:
    seal = make()
    for plain in (bytes(size), os.urandom(size)):
        assert seal.open(AD, put(seal, plain)) == plain


def test_layout() -> None:
    sealed = put(key_seal(), b"abc")
    assert sealed[:19] == b"\x11\x01" + WRITER + b"\x03"
    assert len(sealed) == 19 + 12 + 3 + 16
    outside = put(key_seal(), b"abc", writer_outside=True)
    assert outside[:3] == b"\x19\x01\x03"
    assert len(outside) == 3 + 12 + 3 + 16
    plain = put(PlainSeal(WRITER), b"abc")
    assert plain[:5] == b"\x10\x03abc"
    assert len(plain) == 5 + 16
    assert put(key_seal())[0] == 0x13  # lz4
    assert put(key_seal(), TEXT * 50)[0] == 0x15  # zstd
    assert put(key_seal(), compress=False)[0] == 0x11


def test_golden_plain_record() -> None:
    """Frozen: what was written once must open for ever."""
    sealed = put(PlainSeal(WRITER), b"abc", b"place")
    message = b"holdfast/1/plain-record\0" + bytes(7) + b"\x05place\x10\x03abc"
    assert sealed == b"\x10\x03abc" + hashlib.sha256(message).digest()[:16]


GOLDEN = (
    "11017777777777777777777777777777777703"
    "5fb53585db2c641fd19e5662"
    "d46cf9557ef35599cad08c4fc34bea6fcfc70d"
)


def test_golden_encrypted_record() -> None:
    """Frozen: what was written once must open for ever."""
    sealed = bytes.fromhex(GOLDEN)
    assert key_seal().open(b"place", sealed) == b"abc"


# --- tampering --------------------------------------------------------------------------------


@seals
@pytest.mark.parametrize("plain", [b"", b"abc", TEXT], ids=["empty", "short", "compressed"])
@pytest.mark.parametrize("outside", [False, True])
def test_every_bit(make: Callable[[], Seal], plain: bytes, outside: bool) -> None:
    seal = make()
    sealed = put(seal, plain, writer_outside=outside)
    assert seal.open(AD, sealed, writer=WRITER) == plain
    for bit in range(len(sealed) * 8):
        bad = bytearray(sealed)
        bad[bit // 8] ^= 1 << bit % 8
        # A changed epoch names a key that is not there; all else is damage.
        with pytest.raises((DamagedRecordError, KeyMissingError)):
            seal.open(AD, bytes(bad), writer=WRITER)


@seals
def test_cut_and_longer(make: Callable[[], Seal]) -> None:
    seal = make()
    sealed = put(seal)
    for bad in (*(sealed[:n] for n in range(len(sealed))), sealed + b"\0", b"\0" + sealed):
        with pytest.raises(DamagedRecordError) as caught:
            seal.open(AD, bad)
        assert caught.value.place == ""


@seals
def test_another_place(make: Callable[[], Seal]) -> None:
    seal = make()
    sealed = put(seal)
    for ad in (b"", AD[:-1], AD + b"\0", AD + sealed[:1], AD[:-1] + b"3", AD[::-1]):
        with pytest.raises(DamagedRecordError):
            seal.open(ad, sealed)


def test_bytes_do_not_move_between_place_and_header() -> None:
    """The header begins with 0x10: a place that ends like a header must not be taken for one."""
    seal = PlainSeal(WRITER)
    sealed = put(seal, b"abc", b"p\x10\x03")
    for ad in (b"p", b"p\x10\x03\x10\x03"):
        with pytest.raises(DamagedRecordError):
            seal.open(ad, sealed)


def test_plain_and_encrypted_do_not_mix() -> None:
    plain, keyed = PlainSeal(WRITER), key_seal()
    with pytest.raises(DamagedRecordError):
        keyed.open(AD, put(plain))
    with pytest.raises(DamagedRecordError):
        plain.open(AD, put(keyed))
    assert (plain.encrypted, keyed.encrypted) == (False, True)


# --- keys -------------------------------------------------------------------------------------


def test_epochs() -> None:
    both, old, new = key_seal(300), KeySeal({1: KEY}, 1, WRITER), KeySeal({300: KEY}, 300, WRITER)
    assert both.open(AD, put(old)) == TEXT
    with pytest.raises(KeyMissingError, match="epoch 300"):
        old.open(AD, put(both))
    with pytest.raises(DamagedRecordError):  # the epoch's number, with another key
        new.open(AD, put(both))


def test_other_writers_records_open() -> None:
    other = KeySeal({1: KEY}, 1, new_writer())
    assert key_seal().open(AD, put(other)) == TEXT


def test_writer_outside() -> None:
    seal = key_seal()
    sealed = put(seal, writer_outside=True)
    assert WRITER not in sealed
    assert seal.open(AD, sealed, writer=WRITER) == TEXT
    for writer in (None, b"", b"v" * 16):
        with pytest.raises(DamagedRecordError):
            seal.open(AD, sealed, writer=writer)
    mine = put(seal, writer_outside=True, writer=b"v" * 16)
    assert seal.open(AD, mine, writer=b"v" * 16) == TEXT
    with pytest.raises(InvalidInputError):
        put(seal, writer=b"v" * 16)


def test_new_writer_after_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealer, "RECORDS_PER_WRITER", 3)
    seal = key_seal()
    sealed = []
    for _ in range(7):
        sealed.append((seal.writer, put(seal)))
    assert [writer == WRITER for writer, _ in sealed] == [True] * 3 + [False] * 4
    assert len({writer for writer, _ in sealed}) == 3
    assert all(writer in record for writer, record in sealed)
    assert all(seal.open(AD, record) == TEXT for _, record in sealed)


def test_bad_keys() -> None:
    for keys, epoch in (({1: KEY}, 2), ({1: b"short"}, 1), ({}, 0)):
        with pytest.raises(InvalidInputError):
            KeySeal(keys, epoch, WRITER)
    with pytest.raises(InvalidInputError):
        KeySeal({1: KEY}, 1, b"short")


def test_many_writers_stay_bounded() -> None:
    reader = key_seal()
    for _ in range(sealer.CACHED_WRITERS + 20):
        other = KeySeal({1: KEY}, 1, new_writer())
        assert reader.open(AD, put(other, b"x")) == b"x"
    assert reader._keys_of.cache_info().currsize == sealer.CACHED_WRITERS


def test_a_seal_shows_no_key() -> None:
    seal = key_seal()
    assert KEY.hex() not in repr(seal)
    assert repr(KEY)[2:20] not in repr(seal)
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(seal)


def test_threads() -> None:
    seal = key_seal()
    wrong: list[int] = []

    def work(n: int) -> None:
        plain = os.urandom(100_000) + bytes((n,)) * 1000
        for _ in range(100):
            if seal.open(AD, put(seal, plain)) != plain:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- nonces -----------------------------------------------------------------------------------


def nonce_of(sealed: bytes) -> bytes:
    at = read_varint(sealed, 1)[1] + 16
    at = read_varint(sealed, at)[1]
    return sealed[at : at + 12]


def test_frozen_randomness_repeats_no_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clones of a machine draw the same random numbers and then write different things."""
    monkeypatch.setattr(sealer, "_random", lambda n: b"\7" * n)
    seen: dict[bytes, tuple[bytes, bytes, bool]] = {}
    for clone in range(3):
        seal = KeySeal({1: KEY}, 1, new_writer())
        for n in range(200):
            for ad in (b"a", b"ab", AD):
                for compress in (True, False):
                    plain = TEXT + b"%d" % (n if n % 2 else n * clone)
                    nonce = nonce_of(put(seal, plain, ad, compress=compress))
                    assert seen.setdefault(nonce, (ad, plain, compress)) == (ad, plain, compress)
    assert len(seen) > 1200


def test_lengths_in_the_nonce_are_unambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealer, "_random", lambda n: bytes(n))
    seal = key_seal()
    commitment = bytes(32)
    nonces = {nonce_of(seal.seal(bytes(n), b"x", commitment)) for n in range(50)}
    assert len(nonces) == 50


def test_fresh_randomness_gives_fresh_nonces() -> None:
    seal = key_seal()
    assert len({nonce_of(put(seal)) for _ in range(500)}) == 500


def test_the_writer_key_is_as_written_down() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    sealed = put(key_seal(), b"abc")
    key = hmac.digest(KEY, b"holdfast/writer" + WRITER, "sha256")
    head = sealed[:19]
    bound = AD + head + bytes((len(head),))
    assert AESGCM(key).decrypt(sealed[19:31], sealed[31:], bound) == b"abc"


def test_what_is_authentic_but_badly_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealer, "squeeze", lambda data: (3, data))
    for seal in (PlainSeal(WRITER), key_seal()):
        with pytest.raises(DamagedRecordError, match="padded"):
            seal.open(AD, put(seal))


def test_a_quiet_record_says_little_by_its_length() -> None:
    seal = key_seal()
    lengths = set()
    for data in (b"", b"a" * 255, bytes(200), noise(255)):
        sealed = put(seal, data, quiet=True)
        assert seal.open(AD, sealed) == data
        lengths.add(len(sealed))
    assert len(lengths) == 1
    plain = PlainSeal(WRITER)
    assert plain.open(AD, put(plain, b"a" * 1000, quiet=True)) == b"a" * 1000


def noise(length: int) -> bytes:
    return hashlib.shake_256(b"noise").digest(length)


def test_the_nonce_is_as_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealer, "_random", lambda n: bytes(n))
    sealed = put(key_seal(), b"abc")
    bound = AD + sealed[:19] + b"\x13"
    message = len(bound).to_bytes(4, "big") + bound + COMMIT(b"abc") + bytes(16)
    key = hmac.digest(KEY, b"holdfast/nonce" + WRITER, "sha256")
    assert nonce_of(sealed) == hashlib.blake2b(message, key=key, digest_size=12).digest()


@pytest.mark.parametrize("first", [0x00, 0x20, 0x18, 0x11, 0x90, 0x30])
def test_unknown_flags_with_a_fitting_check(first: int) -> None:
    """Who can make the check, or has the key, still cannot use bits that mean nothing."""
    head = bytes((first, 3))
    forged = head + b"abc" + sealer._plain_check(AD, head, b"abc")
    with pytest.raises(DamagedRecordError):
        PlainSeal(WRITER).open(AD, forged)
    head = bytes((first & ~1, 1)) + (b"" if first & 8 else WRITER) + b"\x03"
    aead = key_seal()._keys_of(1, WRITER).aead
    forged = head + bytes(12) + aead.encrypt(bytes(12), b"abc", AD + head + bytes((len(head),)))
    with pytest.raises(DamagedRecordError):
        key_seal().open(AD, forged, writer=WRITER)
