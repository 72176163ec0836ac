"""The master is rotated in two steps; at every moment one of the two has all keys."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    Conflict,
    DamagedRingError,
    InvalidInputError,
    KeyRetiredError,
    KeyRetiringError,
    Unavailable,
    WrongKeyError,
)
from holdfast.seal import keys, master_rotation, ring
from holdfast.seal.keys import FileKey, KeySource, PassphraseKey, Secret
from holdfast.seal.master_rotation import begin, finish
from holdfast.seal.ring import Ring, generation_of, scope_of
from holdfast.seal.subject_keys import KEY, SubjectRow, put_subject, read_subject
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.wrappers import Fault, Faulty

LINEAGE = b"L" * 16


class Given(KeySource):
    """A key that a test holds in its hand."""

    def __init__(self, letter: bytes) -> None:
        self.key = letter * 32

    def load(self, *, create: bool = False) -> Secret:
        return Secret(self.key)


OLD, NEW, OTHER = Given(b"o"), Given(b"n"), Given(b"x")
SUBJECT = b"u" * 16
SCOPES = [bytes((n,)) * 16 for n in range(1, 8)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of three rows, and passphrases without the work."""
    monkeypatch.setattr(master_rotation, "SLICE", 3)

    def quick(passphrase: Secret, salt: bytes, cost: keys.Argon) -> bytes:
        return keys.hmac.digest(salt, passphrase.reveal(), "sha256")

    monkeypatch.setattr(ring, "derive", quick)


def add(ring: Ring, scope: bytes) -> Any:
    made, records = ring.stage_scope(scope)
    ring.commit(records)
    return made


def full(storage: Storage | None = None) -> tuple[Storage, Ring, dict[bytes, Any]]:
    storage = storage if storage is not None else MemoryStorage()
    ring = Ring.create(storage, OLD, LINEAGE)
    ring.put_signer(b"p" * 32)
    return storage, ring, {scope: add(ring, scope) for scope in SCOPES}


def opens(storage: Storage, source: KeySource, made: dict[bytes, Any]) -> bool:
    """Whether a key opens everything; a key that does not open the ring opens nothing."""
    try:
        ring = Ring.open(storage, source, LINEAGE)
    except (WrongKeyError, KeyRetiredError):
        return False
    assert ring.signer_seed() == b"p" * 32
    assert {scope: ring.scope_keys(scope) for scope in made} == made
    return True


def test_two_steps() -> None:
    storage, ring, made = full()
    bystander = Ring.open(storage, OLD, LINEAGE)
    assert bystander.scope_keys(SCOPES[0]) is not None
    begin(ring, NEW)
    assert opens(storage, OLD, made)
    assert opens(storage, NEW, made)
    made[b"a" * 16] = add(ring, b"a" * 16)
    made[b"b" * 16] = add(Ring.open(storage, NEW, LINEAGE), b"b" * 16)
    assert opens(storage, OLD, made)
    assert opens(storage, NEW, made)

    for late in (bystander, Ring.open(storage, OLD, LINEAGE)):
        with pytest.raises(KeyRetiringError, match="add_key"):
            late.stage_scope(b"c" * 16)
        assert late.scope_keys(b"a" * 16) == made[b"a" * 16]

    assert finish(ring) > 0
    assert opens(storage, NEW, made)
    with pytest.raises(KeyRetiredError, match="rotated"):
        Ring.open(storage, OLD, LINEAGE)
    with pytest.raises(WrongKeyError):
        Ring.open(storage, OTHER, LINEAGE)
    assert bystander.scope_keys(SCOPES[0]) is not None, "what it has open stays open"
    with pytest.raises(KeyRetiredError):
        bystander.scope_keys(SCOPES[1])
    with pytest.raises(KeyRetiredError):
        bystander.stage_scope(b"d" * 16)
    bystander.add_source(NEW)
    assert bystander.scope_keys(SCOPES[1]) == made[SCOPES[1]]
    assert {generation_of(key) for key, _ in storage.scan(b"", b"\xff") if key[:1] != b"R"} == {2}
    assert finish(ring) == 0


def test_keys_staged_before_a_rotation_are_not_put_after_it() -> None:
    storage, ring, _ = full()
    late = Ring.open(storage, OLD, LINEAGE)
    _, records = late.stage_scope(b"c" * 16)
    begin(ring, NEW)
    with pytest.raises(Conflict) as caught:
        late.commit(records)
    assert caught.value.keys == (b"G",)
    assert not ring.holds(b"c" * 16)


@pytest.mark.parametrize("mode", ["before", "ambiguous-applied"])
def test_cut_short_at_every_commit_it_goes_on(mode: str) -> None:
    steps: list[Callable[[Ring], object]] = [
        lambda ring: begin(ring, NEW),
        lambda ring: finish(ring),
    ]
    cuts = 0
    for nth in range(1, 100):
        storage, ring, made = full()
        ring.storage = Faulty(storage, Fault("commit", nth, mode, onward=True))
        try:
            for step in steps:
                step(ring)
        except Exception as error:
            assert isinstance(error, Unavailable) or "unknown" in type(error).__name__.lower()
            cuts += 1
        else:
            break
        held = [source for source in (OLD, NEW) if opens(storage, source, made)]
        assert held, f"cut at commit {nth}: no key opens everything"
        again = Ring.open(storage, held[-1], LINEAGE)
        try:
            begin(again, NEW)
        except InvalidInputError:  # its last commit was applied, though it was not told so
            assert ring.read_span(storage) == (2, 2)
        finish(again)
        assert opens(storage, NEW, made)
        assert not opens(storage, OLD, made)
        rows = [key for key, _ in storage.scan(b"", b"\xff") if key[:1] != b"R"]
        assert {generation_of(key) for key in rows} == {2}
    assert cuts > 6


def test_finish_completes_a_begin_that_was_cut_short() -> None:
    storage, ring, made = full()
    ring.storage = Faulty(storage, Fault("commit", 3, onward=True))
    with pytest.raises(Unavailable):
        begin(ring, NEW)
    finish(Ring.open(storage, NEW, LINEAGE))
    assert opens(storage, NEW, made)


def test_an_erased_scope_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, ring, _ = full()
    other = Ring.open(storage, OLD, LINEAGE)
    again = Ring.wrapped_again

    def erase_meanwhile(self: Ring, key: bytes, row: bytes, twin: bytes) -> bytes:
        if scope_of(key) == SCOPES[3] and other.holds(SCOPES[3]):
            assert other.erase(SCOPES[3]) == 1
        return again(self, key, row, twin)

    monkeypatch.setattr(Ring, "wrapped_again", erase_meanwhile)
    begin(ring, NEW)
    finish(ring)
    assert [scope for scope in SCOPES if ring.holds(scope)] == SCOPES[:3] + SCOPES[4:]


def test_a_second_wrap_that_is_not_the_same_key_stops_it() -> None:
    storage, ring, made = full()
    begin(ring, NEW)
    key = b"K" + SCOPES[2] + bytes((0, 0, 0, 2, 0, 0, 0, 1))
    row = ring._wraps[2][b"K"].wrap(b"other", generation=2, epoch=1, scope=SCOPES[2])
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, row)]))
    with pytest.raises(DamagedRingError):
        finish(ring)
    assert opens(storage, OLD, made)


def test_which_keys_it_takes(tmp_path: Path) -> None:
    storage, ring, made = full()
    with pytest.raises(InvalidInputError, match="new one"):
        begin(ring, OLD)
    begin(ring, NEW)
    begin(ring, NEW)
    with pytest.raises(InvalidInputError, match="another key"):
        begin(ring, OTHER)
    with pytest.raises(KeyRetiringError):
        finish(Ring.open(storage, OLD, LINEAGE))
    finish(ring)
    with pytest.raises(InvalidInputError, match="new one"):
        begin(ring, OLD)
    words, path = PassphraseKey("hush"), FileKey(tmp_path / "third.key")
    for source in (words, path):
        begin(ring, source)
        assert opens(storage, source, made)
        finish(ring)
        assert opens(storage, source, made)
    assert path.path.exists()
    for source in (OLD, NEW, words):
        with pytest.raises(KeyRetiredError):
            Ring.open(storage, source, LINEAGE)
    with pytest.raises(WrongKeyError):
        Ring.open(storage, PassphraseKey("other"), LINEAGE)


def test_the_old_master_does_not_lead_to_the_new_one() -> None:
    """Who has the old key and a copy of the ring from the middle has nothing that is new."""
    storage, ring, _ = full()
    begin(ring, NEW)
    middle = dict(storage.scan(b"", b"\xff"))
    old = Ring.open(storage, OLD, LINEAGE)
    assert list(old._wraps) == [1]
    assert not old.holds_master(2)
    assert b"O\0\0\0\1" not in middle
    finish(ring)
    assert not [key for key, _ in storage.scan(b"O", b"P")]


def test_a_key_that_is_retired_while_the_ring_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fitted when it was tried: the ring is not damaged."""
    storage, ring, _ = full()
    begin(ring, NEW)
    noticed = Ring.refresh

    def late(self: Ring) -> None:
        monkeypatch.setattr(Ring, "refresh", noticed)
        finish(ring)
        self.refresh()

    monkeypatch.setattr(Ring, "refresh", late)
    with pytest.raises(KeyRetiredError):
        Ring.open(storage, OLD, LINEAGE)
    assert Ring.refresh is noticed


def on_disk(path: Path) -> Storage:
    """What is in memory is not blanked."""
    return open_storage(f"sqlite:{path}", durability="normal")


def test_cut_short_those_who_use_the_ring_are_told_of_no_damage(tmp_path: Path) -> None:
    """Old rows are blanked, then dropped. Between the two, whoever has the old key only is told
    that it was retired; whoever has the new one, too, goes on."""
    told = 0
    for nth in range(1, 100):
        storage, ring, made = full(on_disk(tmp_path / f"{nth}.db"))
        put_subject(ring, SUBJECT, SubjectRow("ada", b"s" * KEY))
        old, both = Ring.open(storage, OLD, LINEAGE), Ring.open(storage, OLD, LINEAGE)
        begin(ring, NEW)
        both._sources.append(NEW)  # given, but not looked at yet
        ring.storage = Faulty(storage, Fault("commit", nth, onward=True))
        cut = True
        with suppress(Unavailable):
            finish(ring)
            cut = False
        reads: list[Callable[[Ring], object]] = [
            lambda ring, made=made: {scope: ring.scope_keys(scope) for scope in made} == made,
            lambda ring: read_subject(ring, SUBJECT) is not None,
            lambda ring: ring.signer_seed() == b"p" * 32,
        ]
        for read in reads:
            assert read(both)
            try:
                assert read(old)
            except KeyRetiredError:
                told += 1
        storage.close()
        if not cut:
            break
    assert told > 6


def test_two_finish_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other one has blanked meanwhile is not taken for damage."""
    storage, ring, made = full(on_disk(tmp_path / "ring.db"))
    begin(ring, NEW)
    other = Ring.open(storage, NEW, LINEAGE)
    wrap_page = master_rotation._wrap_page

    def late(*given: Any, **more: Any) -> None:
        monkeypatch.setattr(master_rotation, "_wrap_page", wrap_page)
        other.storage = Faulty(storage, Fault("commit", 8, onward=True))
        with pytest.raises(Unavailable):  # all is blanked, and little dropped
            finish(other)
        wrap_page(*given, **more)

    monkeypatch.setattr(master_rotation, "_wrap_page", late)
    assert finish(ring) > 0
    assert opens(storage, NEW, made)
    storage.close()
