"""Several signatures on a checkpoint, and signers with two keys."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
import holdfast_verify
from holdfast import sync
from holdfast.errors import (
    CheckpointNotFoundError,
    Conflict,
    InvalidInputError,
    ReadOnlyError,
    StateIntegrityError,
    WitnessError,
)
from holdfast.seal.signer import Signer, fingerprint
from holdfast.store.journal import entry
from holdfast.store.proof.verify_line import PAGE


def check(data: bytes, *pins: bytes, require: int = 1) -> dict[str, Any]:
    options = argparse.Namespace(pin=set(pins), require=require)
    return holdfast_verify.verdict("file", data, options, [])


@pytest.fixture
def people(tmp_path: Path) -> list[tuple[str, bytes]]:
    """Signers of three people: how each is given, and its public key. One has two keys."""
    made = []
    for number in range(3):
        path = tmp_path / f"person-{number}"
        made.append((f"file:{path}", Signer.create(path, hybrid=number == 2).public))
    return made


@pytest.fixture
def hybrid(place: Place, tmp_path: Path) -> Place:
    """A place whose signer has two keys."""
    place.signer = f"hybrid:{tmp_path / 'both.key'}"
    return place


# ---- co-signers ----------------------------------------------------------------------------------


def test_signatures_are_added_and_counted(
    place: Place, people: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("plan", "ship")
    safe = state.checkpoint("safe")
    before = [row for row in rows_of(place.storage(), b"E") if row[0]]
    keys = [public.hex() for _, public in people]
    for number, (signer, _) in enumerate(people):
        report = store.verify(trust=keys, require=number + 1)
        assert [one.kind for one in report.findings] == ["signature"]
        assert f"{number} of the trusted keys" in report.findings[0].message
        assert state.cosign(safe, signer=signer) == safe
        assert store.verify(trust=keys, require=number + 1).ok
    assert rows_of(place.storage(), b"E") == before  # the checkpoint's bytes stay
    assert store.verify().ok
    with pytest.raises(Conflict, match="already"):
        state.cosign("safe", signer=people[0][0])
    pins = [public for _, public in people]
    data = state.prove("plan").to_bytes()
    assert check(data, *pins, require=3)["valid"]
    assert check(data, pins[1])["valid"]
    assert not check(data, Signer.generate().public, pins[0], require=2)["valid"]
    state.export_chain(tmp_path / "a.chain")
    chain = (tmp_path / "a.chain").read_bytes()
    assert check(chain, *pins, require=3)["vouched"] == safe.sequence
    store = place.reopen()
    assert store.verify(trust=keys, require=3).ok


def test_a_signature_taken_away_or_changed_is_noticed(
    place: Place, people: list[tuple[str, bytes]]
) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("plan", "ship")
    state.cosign(state.checkpoint("safe"), signer=people[0][0])
    state.checkpoint("other")
    key, row = rows_of(place.storage(), b"C")[0]
    keys = [people[0][1].hex()]
    for bad in (row[:-1] + bytes([row[-1] ^ 1]), row[:20]):
        put_row(place.storage(), key, bad)
        assert {one.kind for one in place.reopen().verify().findings} == {"signature"}
    put_row(place.storage(), key, None)
    assert len(place.reopen().verify(trust=keys).findings) == 2
    assert place.open().verify().ok  # nobody asked for it
    put_row(place.storage(), key, row)
    moved = key[:13] + bytes([key[13] + 1]) + key[14:]
    put_row(place.storage(), moved, row)
    assert {one.kind for one in place.reopen().verify().findings} == {"signature"}
    put_row(place.storage(), moved, None)
    for stray in (key[:13] + bytes([1]) + key[14:], key[:13] + bytes([9]) + key[14:]):
        put_row(place.storage(), stray, row)
        found = place.reopen().verify().findings
        assert [one.kind for one in found] == ["unaccounted"]
        put_row(place.storage(), stray, None)
    put_row(place.storage(), b"C" + b"\7" * 21, row)
    assert [one.kind for one in place.reopen().verify().findings] == ["unaccounted"]


def test_signatures_of_a_long_timeline_are_accounted_for(
    plain: Place, people: list[tuple[str, bytes]]
) -> None:
    """Also where a page of entries ends with a checkpoint, and where a check goes on later."""
    store = plain.open()
    state = store.agent("a")
    for number in range(1, PAGE):
        state.set("k", number)
    assert state.cosign(state.checkpoint("last of a page"), signer=people[0][0]).sequence == PAGE
    assert store.verify().ok
    state.set("k", 0)
    state.cosign(state.checkpoint("on the next"), signer=people[0][0])
    report = store.verify(budget=0)
    while report.resume:
        assert report.ok
        report = store.verify(budget=0, resume=report.resume)
    assert report.ok, report
    key, row = rows_of(plain.storage(), b"C")[0]
    put_row(plain.storage(), key[:9] + bytes(5) + key[14:], row)
    assert [one.kind for one in store.verify().findings] == ["unaccounted"]


def test_erasing_takes_signatures_along(place: Place, people: list[tuple[str, bytes]]) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("plan", "ship")
    state.cosign(state.checkpoint("safe"), signer=people[2][0])
    store.erase("agent:a")
    assert rows_of(place.storage(), b"C") == []
    assert store.verify().ok


def test_what_cannot_be_cosigned(place: Place, people: list[tuple[str, bytes]]) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("plan", "ship")
    state.checkpoint("safe")
    with pytest.raises(CheckpointNotFoundError):
        state.cosign(1, signer=people[0][0])
    for signer in (None, 1, "", "file:", "nonsense"):
        with pytest.raises(InvalidInputError):
            state.cosign("safe", signer=signer)  # type: ignore[arg-type]
    with pytest.raises(Conflict):
        state.cosign("safe", signer=place.signer)  # it is the store's own
    for trust, require in ((["x"], 1), ([], 1), ([people[0][1].hex()], 2), ("ab", None)):
        with pytest.raises(InvalidInputError):
            store.verify(trust=trust, require=require)
    with pytest.raises(ReadOnlyError):
        place.open(read_only=True).agent("a").cosign("safe", signer=people[0][0])
    assert rows_of(place.storage(), b"C") == []


def test_signatures_outlast_a_new_data_key(tmp_path: Path, people: list[tuple[str, bytes]]) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state = store.agent("a")
    state.set("plan", "ship")
    safe = state.checkpoint("safe")
    state.cosign(safe, signer=people[0][0])
    before = rows_of(place.storage(), b"C")
    store.rotate("agent:a")
    store.reseal("agent:a")
    after = rows_of(place.storage(), b"C")
    assert [key for key, _ in before] == [key for key, _ in after]
    assert before != after  # nothing is left under the old key
    other = place.open()  # knows only the key of now, when it signs
    later = other.agent("a").checkpoint("later")
    store.rotate("agent:a")
    other.agent("a").cosign(later, signer=people[0][0])
    store.reseal("agent:a")
    assert store.verify(trust=[people[0][1].hex()], require=1).ok
    assert check(state.prove("plan", at=safe).to_bytes(), people[0][1])["valid"]
    place.close()


def test_a_gate_may_refuse_a_signature(people: list[tuple[str, bytes]]) -> None:
    class Refusing(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            if request.operations[0].kind == "cosign":
                raise InvalidInputError(f"{request.operations[0].value} is not yours to sign")

    with sync.open("memory:") as store:
        state = store.agent("a")
        state.set("k", 1)
        safe = state.checkpoint("safe")
        store.add_gate(Refusing())
        with pytest.raises(holdfast.HoldfastError, match="not yours"):
            state.cosign(safe, signer=people[0][0])


def test_the_state_is_looked_at_before_it_is_signed(
    place: Place, people: list[tuple[str, bytes]]
) -> None:
    state = place.open().agent("a")
    state.set("plan", "x" * 5000)
    safe = state.checkpoint("safe")
    key, row = rows_of(place.storage(), b"V")[0]
    put_row(place.storage(), key, row[:-1] + bytes([row[-1] ^ 1]))
    with pytest.raises(StateIntegrityError):
        place.reopen().agent("a").cosign(safe, signer=people[0][0])


def test_the_async_face(people: list[tuple[str, bytes]]) -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            state = store.agent("a")
            await state.set("k", 1)
            await state.cosign(await state.checkpoint("safe"), signer=people[0][0])
            assert (await store.verify(trust=[people[0][1].hex()], require=1)).ok

    asyncio.run(main())


# ---- hybrid signers ------------------------------------------------------------------------------


def test_a_hybrid_signer_signs_with_both_keys() -> None:
    signer = Signer.generate(hybrid=True)
    signature = signer.sign(b"text")
    assert (len(signer.public), signer.public[0], len(signature)) == (33, 2, 5357)
    assert Signer.verify(signer.public, b"text", signature)
    assert not Signer.verify(signer.public, b"texts", signature)
    for position in range(0, len(signature), 50):
        changed = bytearray(signature)
        changed[position] ^= 1
        assert not Signer.verify(signer.public, b"text", bytes(changed))
    for cut in (0, 64, 2048, 5356):
        assert not Signer.verify(signer.public, b"text", signature[:cut])
    again = Signer.from_seed(signer.seed())
    assert again.public == signer.public
    # One key alone, whichever it is, cannot stand for both.
    other = Signer.generate(hybrid=True)
    mixed = other.sign(b"text")[:64] + signature[64:]
    assert not Signer.verify(signer.public, b"text", mixed)
    assert fingerprint(signature[64:2048]) == signer.public


def test_a_store_with_a_hybrid_signer(hybrid: Place, tmp_path: Path) -> None:
    store = hybrid.open()
    assert len(store.identity().rsplit(":", 1)[1]) == 66
    state = store.agent("a")
    state.set("plan", "ship")
    safe = state.checkpoint("safe")
    state.set("plan", "wait")
    state.restore(safe)
    report = store.verify(identity=store.identity(), expect=store.witness())
    assert report.ok, report
    assert report.signed == 2
    public = bytes.fromhex(store.identity().rsplit(":", 1)[1])
    for data in (state.prove("plan", at=safe).to_bytes(), store.witness().encode()):
        found = check(data, public)
        assert found["valid"], found["told"]
        assert not check(data, Signer.generate(hybrid=True).public)["valid"]
    state.export_chain(tmp_path / "a.chain", feed=True)
    assert check((tmp_path / "a.chain").read_bytes(), public)["vouched"] == 4
    hybrid.signer = hybrid.signer.replace("hybrid:", "file:")
    assert hybrid.reopen(identity=store.identity()).verify().ok


def test_no_signature_can_be_stripped(hybrid: Place) -> None:
    state = hybrid.open().agent("a")
    state.set("plan", "ship")
    safe = state.checkpoint("safe")
    proof = state.prove("plan")
    public = proof.signatures[0][0]
    fields = {name: getattr(proof, name) for name in proof.__struct_fields__}

    def told(**changes: Any) -> bool:
        return bool(check(holdfast.Proof(**fields | changes).to_bytes())["valid"])

    assert told()
    assert not told(signatures=[])
    ed25519 = proof.signatures[0][1][64:96]
    assert not told(signatures=[(ed25519, b"")])
    assert not told(signatures=[(ed25519, proof.signatures[0][1][:64])])
    for algorithm in (entry.UNSIGNED, entry.ED25519, 3):
        envelope = proof.envelope[:-110] + bytes([algorithm]) + proof.envelope[-109:]
        assert not told(envelope=envelope)
        assert not told(envelope=envelope, signatures=[(public, b"")])
    put_row(hybrid.storage(), rows_of(hybrid.storage(), b"C")[0][0], None)
    store = hybrid.reopen()
    found = store.verify().findings
    assert [one.kind for one in found] == ["signature"]
    assert "is missing" in found[0].message
    with pytest.raises(StateIntegrityError, match="missing"):
        store.agent("a").restore(safe)
    with pytest.raises(StateIntegrityError, match="missing"):
        store.agent("a").cosign(safe, signer=hybrid.signer.replace("hybrid:", "file:"))


def test_the_kind_of_signer_is_what_was_asked_for(place: Place, tmp_path: Path) -> None:
    place.open()
    with pytest.raises(InvalidInputError, match="not a hybrid"):
        place.reopen(signer=place.signer.replace("file:", "hybrid:"))
    other = tmp_path / "other"
    Signer.create(other, hybrid=True)
    with pytest.raises(WitnessError):
        place.open(signer=f"file:{other}")
    for bad in ("hybrid", "hybrid:", "both:x"):
        with pytest.raises(InvalidInputError, match="hybrid:PATH"):
            place.open(signer=bad)


def test_a_store_of_ed25519_is_not_taken_for_a_hybrid_one(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("plan", "ship")
    state.checkpoint("safe")
    public = bytes.fromhex(store.identity().rsplit(":", 1)[1])
    assert not check(state.prove("plan").to_bytes(), b"\2" + public)["valid"]
