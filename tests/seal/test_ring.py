"""The ring gives keys to the right key only, and tells damage, wrong and missing apart."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    FormatError,
    InvalidInputError,
    KeyMissingError,
    NewerFormatError,
    WrongKeyError,
)
from holdfast.seal import keys, master_rotation, ring
from holdfast.seal import ring as ring_rows
from holdfast.seal.keys import FileKey, KeySource, PassphraseKey, Secret
from holdfast.seal.master_rotation import begin
from holdfast.seal.ring import Ring
from holdfast.storage.contract import Batch
from holdfast.storage.memory import MemoryStorage

LINEAGE = b"L" * 16
SCOPE = b"s" * 16
FIRST = bytes((0, 0, 0, 1))
"""The first generation, and the first epoch."""
META, STORE, SIGNER = b"M" + FIRST, b"S" + FIRST, b"P" + FIRST
SCOPE_ROW = b"K" + SCOPE + FIRST + FIRST


class Given(KeySource):
    """A key that a test holds in its hand."""

    def __init__(self, key: bytes = bytes(range(32))) -> None:
        self.key = key

    def load(self, *, create: bool = False) -> Secret:
        return Secret(self.key)


@pytest.fixture(autouse=True)
def quick_argon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds stay; only the work is left out, but for tests that are marked by their name."""
    if "real" in request.node.name:
        return

    def quick(passphrase: Secret, salt: bytes, cost: keys.Argon) -> bytes:
        keys.check_argon(cost)
        return keys.hmac.digest(salt + repr(cost).encode(), passphrase.reveal(), "sha256")

    monkeypatch.setattr(ring, "derive", quick)


def change(storage: MemoryStorage, key: bytes, row: bytes | None) -> None:
    storage.commit(Batch(drops=[key]))
    if row is not None:
        storage.commit(Batch(puts=[(key, row)]))


def full(source: KeySource | None = None) -> tuple[MemoryStorage, Ring]:
    storage = MemoryStorage()
    made = Ring.create(storage, source or Given(), LINEAGE)
    _, records = made.stage_scope(SCOPE)
    made.commit(records)
    made.put_signer(b"p" * 32)
    return storage, made


def read_all(storage: MemoryStorage, source: KeySource | None = None) -> tuple[Any, ...]:
    opened = Ring.open(storage, source or Given(), LINEAGE)
    return opened.store_key, opened.scope_keys(SCOPE), opened.signer_seed()


@pytest.mark.parametrize("source", [Given(), PassphraseKey("hush")], ids=["raw", "passphrase"])
def test_open_gives_what_create_made(source: KeySource) -> None:
    storage, made = full(source)
    found = made.scope_keys(SCOPE)
    assert found is not None
    assert read_all(storage, source) == (made.store_key, found, b"p" * 32)
    assert len({made.store_key, found.commitment, found.data[1]}) == 3
    assert {len(key) for key in (made.store_key, found.commitment, found.data[1])} == {32}
    assert found.epoch == 1


def test_real_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, made = full(PassphraseKey("hush"))
    assert read_all(storage, PassphraseKey("hush"))[0] == made.store_key
    with pytest.raises(WrongKeyError):
        read_all(storage, PassphraseKey("hus"))


def test_a_key_file_is_made_with_the_ring_only(tmp_path: Path) -> None:
    source = FileKey(tmp_path / "a.key")
    storage = MemoryStorage()
    with pytest.raises(KeyMissingError):
        Ring.open(storage, source, LINEAGE)
    made = Ring.create(storage, source, LINEAGE)
    assert Ring.open(storage, source, LINEAGE).store_key == made.store_key
    os.unlink(tmp_path / "a.key")
    with pytest.raises(KeyMissingError, match=r"a\.key"):
        Ring.open(storage, source, LINEAGE)
    with pytest.raises(Conflict):
        Ring.create(storage, source, LINEAGE)
    assert list(tmp_path.iterdir()) == []


def test_wrong_keys() -> None:
    storage, _ = full()
    words, _ = full(PassphraseKey("hush"))
    for store, source in (
        (storage, Given(bytes(32))),
        (words, PassphraseKey("other")),
        (storage, PassphraseKey("hush")),
        (words, Given()),
    ):
        with pytest.raises(WrongKeyError) as caught:
            Ring.open(store, source, LINEAGE)
        assert "hush" not in str(caught.value)


def test_wrong_key_is_told_before_anything_is_unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, _ = full(PassphraseKey("hush"))
    monkeypatch.setattr(ring, "AESGCM", None)
    with pytest.raises(WrongKeyError):
        Ring.open(storage, PassphraseKey("other"), LINEAGE)


def test_missing() -> None:
    storage, _ = full()
    with pytest.raises(KeyMissingError, match="encrypted"):
        Ring.open(storage, None, LINEAGE)
    with pytest.raises(KeyMissingError, match="ring"):
        Ring.open(MemoryStorage(), Given(), LINEAGE)


def test_another_stores_ring() -> None:
    storage, _ = full()
    with pytest.raises(WrongKeyError, match="another store"):
        Ring.open(storage, Given(), b"M" * 16)


@pytest.mark.parametrize("key", [META, STORE, SCOPE_ROW, SIGNER])
@pytest.mark.parametrize("source", [Given(), PassphraseKey("hush")], ids=["raw", "passphrase"])
def test_every_bit_of_every_row(key: bytes, source: KeySource) -> None:
    storage, _ = full(source)
    good = storage.get([key])[0]
    assert good is not None
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        change(storage, key, bytes(bad))
        with pytest.raises(DamagedRecordError) as caught:
            read_all(storage, source)
        assert caught.value.place.startswith("ring: ")
    for length in range(len(good)):
        change(storage, key, good[:length])
        with pytest.raises(DamagedRecordError):
            read_all(storage, source)
    change(storage, key, good)
    read_all(storage, source)


def test_missing_rows() -> None:
    storage, _ = full()
    change(storage, STORE, None)
    with pytest.raises(DamagedRecordError, match="store row"):
        read_all(storage)
    storage, _ = full()
    storage.commit(Batch(cells=[(b"G", FIRST + FIRST, None)]))
    with pytest.raises(DamagedRecordError, match="generation"):
        read_all(storage)
    storage, _ = full()
    change(storage, SCOPE_ROW, None)
    change(storage, SIGNER, None)
    assert read_all(storage)[1:] == (None, None)


@pytest.mark.parametrize("moment", ["one master", "begun", "wrapped", "finished"])
def test_a_missing_generation_cell_is_made_again_as_it_was(moment: str) -> None:
    storage, made = full()
    newer = Given(bytes(32))
    if moment == "begun":
        master_rotation._announce(made, newer)
    elif moment != "one master":
        begin(made, newer)
    if moment == "finished":
        master_rotation.finish(made)
    [(_, cell)] = storage.cells(b"G", b"G\0")
    assert not master_rotation.make_cell_again(storage)
    storage.commit(Batch(cells=[(b"G", cell, None)]))
    with pytest.raises(DamagedRecordError, match=r"generation cell.*repair --yes"):
        read_all(storage)
    assert master_rotation.make_cell_again(storage)
    assert storage.cells(b"G", b"G\0") == [(b"G", cell)]
    assert read_all(storage, Given() if moment == "one master" else newer)[1] is not None


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("whole", [False, True])
def test_a_generation_cell_is_not_guessed(lost: int, whole: bool) -> None:
    """While the master is rotated, one of the two rows of masters is lost, too."""
    storage, made = full()
    (begin if whole else master_rotation._announce)(made, Given(bytes(32)))
    storage.commit(Batch(cells=[(b"G", FIRST + bytes((0, 0, 0, 2)), None)]))
    change(storage, b"M" + bytes((0, 0, 0, lost)), None)
    with pytest.raises(DamagedRecordError, match=r"damaged; put the ring back"):
        master_rotation.make_cell_again(storage)
    assert not storage.cells(b"G", b"G\0")


def test_rows_do_not_move() -> None:
    """Of another scope, another kind, another store, another generation."""
    storage, made = full()
    other = b"t" * 16
    _, records = made.stage_scope(other)
    made.commit(records)
    change(storage, SCOPE_ROW, storage.get([b"K" + other + FIRST + FIRST])[0])
    with pytest.raises(DamagedRecordError, match="scope row"):
        read_all(storage)

    storage, made = full()
    change(storage, SIGNER, storage.get([STORE])[0])
    with pytest.raises(DamagedRecordError, match="signer row"):
        read_all(storage)

    storage, made = full()
    foreign = MemoryStorage()
    Ring.create(foreign, Given(), b"M" * 16)
    change(storage, STORE, foreign.get([STORE])[0])
    with pytest.raises(DamagedRecordError, match="store row"):
        read_all(storage)

    storage, made = full()
    row = made._wraps[1][b"S"].wrap(bytes(32), generation=2)
    change(storage, STORE, row)
    with pytest.raises(DamagedRecordError, match="store row"):
        read_all(storage)


def forged(storage: MemoryStorage, **fields: Any) -> None:
    """The meta row with other fields and a checksum that fits."""
    row = storage.get([META])[0]
    assert row is not None
    meta = ring.unpack_meta(row, 1)
    for name, value in fields.items():
        setattr(meta, name, value)
    change(storage, META, ring.pack_meta(meta))


@pytest.mark.parametrize(
    "argon", [(16 << 20, 3, 4), (8, 3, 4), (65536, 1, 4), (65536, 3, 99), None]
)
def test_forged_cost_is_refused_untouched(argon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, _ = full(PassphraseKey("hush"))
    forged(storage, argon=argon)
    monkeypatch.setattr(ring, "derive", None)  # must not be reached
    with pytest.raises(FormatError, match="Argon2id"):
        Ring.open(storage, PassphraseKey("hush"), LINEAGE)


def test_forged_meta() -> None:
    storage, _ = full(PassphraseKey("hush"))
    for fields in ({"argon": (65536, 2, 4)}, {"salt": bytes(16)}, {"check": bytes(32)}):
        broken, _ = full(PassphraseKey("hush"))
        forged(broken, **fields)
        with pytest.raises(WrongKeyError):
            read_all(broken, PassphraseKey("hush"))
    forged(storage, wrapped=bytes(60))
    with pytest.raises(DamagedRecordError, match="meta row"):
        read_all(storage, PassphraseKey("hush"))
    for fields in ({"format": 2}, {"kind": 9}):
        storage, _ = full()
        forged(storage, **fields)
        with pytest.raises(NewerFormatError):
            read_all(storage)
    packed = msgspec.msgpack.encode([1, "x"])
    change(storage, META, packed + ring._checksum(packed))
    with pytest.raises(DamagedRecordError):
        read_all(storage)


def test_new_rings_use_todays_cost() -> None:
    storage, _ = full(PassphraseKey("hush"))
    row = storage.get([META])[0]
    assert row is not None
    assert ring.unpack_meta(row, 1).argon == (65536, 3, 4)


# --- scopes -----------------------------------------------------------------------------------


def test_staged_keys_are_there_after_commit_only() -> None:
    storage = MemoryStorage()
    made = Ring.create(storage, Given(), LINEAGE)
    staged, records = made.stage_scope(SCOPE)
    assert made.scope_keys(SCOPE) is None
    made.commit(records)
    assert made.scope_keys(SCOPE) == staged
    assert made.scope_keys(SCOPE) is made.scope_keys(SCOPE)
    made.forget(SCOPE)
    assert made.scope_keys(SCOPE) == staged


def test_the_second_to_make_a_scope_loses() -> None:
    storage = MemoryStorage()
    one = Ring.create(storage, Given(), LINEAGE)
    two = Ring.open(storage, Given(), LINEAGE)
    first, records = one.stage_scope(SCOPE)
    _, late = two.stage_scope(SCOPE)
    one.commit(records)
    with pytest.raises(Conflict) as caught:
        two.commit(late)
    assert caught.value.keys == (SCOPE_ROW,)
    assert two.scope_keys(SCOPE) == first
    two.put_signer(b"a" * 32)
    with pytest.raises(Conflict):
        one.put_signer(b"b" * 32)
    assert one.signer_seed() == b"a" * 32


def test_a_rotated_master_stops_stale_writers() -> None:
    storage, made = full()
    _, records = made.stage_scope(b"t" * 16)
    begin(Ring.open(storage, Given(), LINEAGE), Given(bytes(32)))
    with pytest.raises(Conflict) as caught:
        made.commit(records)
    assert caught.value.keys == (b"G",)


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "CACHED_SCOPES", 3)
    made = Ring.create(MemoryStorage(), Given(), LINEAGE)
    for n in range(6):
        _, records = made.stage_scope(bytes((n,)) * 16)
        made.commit(records)
        assert made.scope_keys(bytes((n,)) * 16) is not None
    assert list(made._cache) == [bytes((n,)) * 16 for n in (3, 4, 5)]


def test_frozen_randomness_repeats_no_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Ring.create(MemoryStorage(), Given(), LINEAGE)
    monkeypatch.setattr(ring_rows, "_random", lambda n: bytes(n))
    wrap = made._wraps[1][b"P"].wrap
    rows = [wrap(bytes((n,)) * 32, generation=1) for n in range(50)]
    assert len({row[9:21] for row in rows}) == 50


def test_ids_and_seeds() -> None:
    made = Ring.create(MemoryStorage(), Given(), LINEAGE)
    for call in (made.scope_keys, made.stage_scope, made.put_signer):
        with pytest.raises(InvalidInputError):
            call(b"short")
    with pytest.raises(InvalidInputError):
        Ring.create(MemoryStorage(), Given(), b"short")


def test_nothing_shows() -> None:
    storage, made = full()
    found = made.scope_keys(SCOPE)
    assert found is not None
    shown = f"{made!r} {found!r}"
    for key in (made.store_key, found.commitment, found.data[1]):
        assert repr(key) not in shown
        assert key.hex() not in shown
    for thing in (made, found):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
    rows = b"".join(row for _, row in storage.scan(b"", b"\xff"))
    for key in (made.store_key, found.commitment, found.data[1], b"p" * 32, bytes(range(32))):
        assert key not in rows
