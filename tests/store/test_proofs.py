"""Proofs, exported chains and witnesses, as somebody checks them who has only the file."""

from __future__ import annotations

import argparse
import ast
import asyncio
import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Place

import holdfast
import holdfast_verify
from holdfast import sync
from holdfast.errors import (
    CheckpointNotFoundError,
    GateRefusedError,
    InvalidInputError,
    LimitExceededError,
    StateIntegrityError,
)

PROGRAM = Path(holdfast_verify.__file__)


def check(data: bytes, *chains: Any, pin: str = "", require: int = 1) -> dict[str, Any]:
    """What holdfast-verify says of a file's bytes."""
    pins = {bytes.fromhex(pin)} if pin else set()
    options = argparse.Namespace(pin=pins, require=require)
    return holdfast_verify.verdict("file", data, options, list(chains))


def public_of(store: sync.Store) -> str:
    return store.identity().rsplit(":", 1)[1]


def fill(store: sync.Store) -> sync.State:
    state = store.agent("a")
    for number in range(40):
        state.set(f"fact/{number:02}", {"number": number, "text": "t" * number})
    state.set("plan", {"goal": "ship", "done": False, "weight": 1.5, "raw": b"\0\xff"})
    state.checkpoint("safe", tags=["x"], metadata={"run": 7})
    return state


VALUES = {
    "nothing": None,
    "number": -(2**62),
    "flag": True,
    "text": "hällo",
    "short list": [1, "two", [3.5]],
    "long text": "é" * 20_000,
    "long list": [{"n": n, "text": "x" * 50} for n in range(900)],
    "long mapping": {f"key {n}": [n] * 20 for n in range(300)},
    "nested": {"a": {"b": [["x" * 2000] * 3, {"c": "y" * 3000}]}},
    "bytes": b"\1\2\3",
    "empty": {},
}


def test_every_kind_of_value_is_proven(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    for key, value in VALUES.items():
        state.set(key, value)
    state.checkpoint("all")
    for key, value in VALUES.items():
        found = check(state.prove(key).to_bytes(), pin=public_of(store))
        assert found["valid"], (key, found["told"])
        assert (found["scope"], found["key"], found["checkpoint"]) == ("agent:a", key, "all")
        assert found["value"] == value, key
        assert not found["absent"]
    state.set("long bytes", bytes(range(256)) * 200)
    state.set("time", datetime(2026, 1, 2, tzinfo=UTC))
    state.set("not a number", float("nan"))
    state.checkpoint("more")
    found = check(state.prove("long bytes").to_bytes())
    assert found["value"] == bytes(range(256)) * 200
    time = check(state.prove("time").to_bytes())["value"]
    assert time == {"$time": {"at": "2026-01-02T00:00:00+00:00"}}
    assert check(state.prove("not a number").to_bytes())["value"] == {"$float": "nan"}


ALIKE = [
    [b"hi", {"$bytes": "aGk="}],
    [{1: "x"}, {"1": "x"}, {"$map": [[1, "x"]]}],
    [float("nan"), {"$float": "nan"}],
    [2**70, -(2**70), {"$int": str(2**70)}, 2**5000, {"$int": hex(2**5000)}],
    [
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=2), "CEST")),
        {"$time": {"at": "2026-10-25T02:30:00+02:00"}},
    ],
    [
        holdfast.Typed("Plan", 1, {"x": 1}),
        holdfast.Typed("Plan", 2, {"x": 1}),
        {"$object": {"name": "Plan", "version": 1, "fields": {"x": 1}}},
    ],
    ["\ud800", {"$ext": [2, "7aCA"]}],
    [dict.fromkeys(range(200), "x" * 20), {str(n): "x" * 20 for n in range(200)}],
]


NAMED = ["bytes", "keys", "float", "int", "time", "object", "text", "long"]


@pytest.mark.parametrize("values", ALIKE, ids=NAMED)
def test_no_two_values_are_shown_as_the_same(plain: Place, values: list[Any]) -> None:
    state = plain.open().agent("a")
    for number, value in enumerate(values):
        state.set(str(number), value)
    state.checkpoint("all")
    proofs = [state.prove(str(number)).to_bytes() for number in range(len(values))]
    found = [check(proof) for proof in proofs]
    assert all(one["valid"] for one in found)
    shown = {holdfast_verify.dumps(one["value"]) for one in found}
    assert len(shown) == len(values)
    # and what looks like one of the forms is shown as `$map`
    for value, one in zip(values, found, strict=True):
        if type(value) is dict and len(value) == 1:
            assert list(one["value"]) in (["$map"], ["1"])


def test_a_mapping_that_names_a_key_twice_is_refused() -> None:
    twice = b"\x82\xa1a\x01\xa1a\x02"
    with pytest.raises(holdfast_verify.Refused, match="names a key twice"):
        holdfast_verify.unpack(twice)
    assert holdfast_verify.unpack(b"\x82\x01\x01\xa11\x02") == {"$map": [[1, 1], ["1", 2]]}


def test_after_a_restore_the_newest_checkpoint_is_one_of_the_present_states_past(
    place: Place,
) -> None:
    state = place.open().agent("a")
    state.set("plan", "first")
    early = state.log(limit=1)[0].sequence
    state.set("plan", "good")
    state.checkpoint("safe")
    state.set("plan", "good, later")
    later = state.log(limit=1)[0].sequence
    state.set("plan", "bad")
    state.checkpoint("too late")
    backup = state.restore("safe").backup
    assert backup is not None

    def proven(line: Any, at: Any = None) -> tuple[Any, Any]:
        found = check(line.prove("plan", at=at).to_bytes())
        return found["value"], found["checkpoint"]

    assert proven(state) == ("good", "safe")
    assert proven(state, backup) == ("bad", backup.name)
    state.restore(later)  # an entry behind "safe": that one is the last in its past
    assert proven(state) == ("good", "safe")
    fork = state.fork("trial")
    fork.set("plan", "tried")
    assert proven(fork) == ("good", "safe")
    state.restore(fork.checkpoint("on the fork"))
    assert proven(state) == ("tried", "on the fork")
    state.checkpoint("here again")
    assert proven(state) == ("tried", "here again")
    state.restore(early)
    with pytest.raises(CheckpointNotFoundError, match="make one"):
        state.prove("plan")


def test_a_proof_speaks_of_its_checkpoint_and_of_none_else(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("plan", "old")
    first = state.checkpoint("first")
    state.set("plan", "new")
    state.delete("gone")
    state.checkpoint("second")
    state.set("plan", "later")
    assert check(state.prove("plan", at="first").to_bytes())["value"] == "old"
    assert check(state.prove("plan", at=first).to_bytes())["entry"] == first.sequence
    newest = check(state.prove("plan").to_bytes())
    assert (newest["value"], newest["checkpoint"]) == ("new", "second")
    assert newest["hash"] == state.checkpoints()[0].hash
    assert newest["time"] == state.checkpoints()[0].time.isoformat()
    fork = state.fork("trial", at=first)
    fork.set("plan", "forked")
    fork.checkpoint("on the fork")
    assert check(fork.prove("plan").to_bytes())["value"] == "forked"


def test_absence_is_proven(place: Place) -> None:
    state = fill(place.open())
    for key in ("a", "fact/005", "fact/399", "plan/x", "zzz"):
        proof = state.prove(key)
        assert proof.absent
        found = check(proof.to_bytes())
        assert found["valid"], found["told"]
        assert found["absent"]
        assert "value" not in found
    empty = place.open().agent("empty")
    empty.checkpoint("of nothing")
    assert check(empty.prove("x").to_bytes())["absent"]


def summed(data: bytes) -> bytes:
    """The file with a checksum that fits, as a forger writes it."""
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


@pytest.mark.parametrize("key", ["plan", "fact/05", "absent", "fact/39"])
def test_every_byte_counts(place: Place, key: str) -> None:
    """Changed in any byte, or cut anywhere, a proof is refused, and never with a traceback.

    Whoever makes the checksum anew gets no further than to what is true of a neighbouring key.
    """
    state = fill(place.open())
    data = state.prove(key).to_bytes()
    assert check(data)["valid"]
    for position in range(len(data)):
        for change in (1, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] ^= change
            assert not check(bytes(changed))["valid"]
            if position < len(data) - 32 and (change == 1 or position % 8 == 0):
                found = check(summed(bytes(changed)))
                other = found.get("key", key)
                true = other != key and found.get("value") == state.get(other)
                assert not found["valid"] or true, (position, change, found)
    for length in range(len(data)):
        assert not check(data[:length])["valid"]
    assert not check(data + b"\0")["valid"]


def test_another_key_or_value_put_in_is_refused(place: Place) -> None:
    state = fill(place.open())
    one, two = state.prove("fact/01"), state.prove("fact/30")
    changes: list[dict[str, Any]] = [
        {"key": "fact/02"},
        {"key": "absent"},
        {"path": two.path},
        {"path": one.path[:-1]},
        {"path": []},
        {"path": [*one.path, one.path[-1]]},
        {"value": two.path},
        {"signatures": []},
        {"signatures": one.signatures * 2},
        {"body": (b"\x92\x00\x90", b"")},
    ]
    for change in changes:
        fields = {name: getattr(one, name) for name in one.__struct_fields__} | change
        found = check(holdfast.Proof(**fields).to_bytes())
        # A neighbour in the same leaf: what is shown of it is true.
        true = "key" in change and found.get("value") == state.get(change["key"])
        true |= change.get("path") == one.path  # both lie there, as the boundary key has it
        assert not found["valid"] or true, change


def test_a_signature_of_somebody_else_is_refused(place: Place, tmp_path: Path) -> None:
    mine = fill(place.open())
    (tmp_path / "else").mkdir()
    other_place = Place("memory", tmp_path / "else", sealed=False)
    other_store = other_place.open()
    other = fill(other_store)
    found = check(mine.prove("plan").to_bytes(), pin=public_of(other_store))
    assert not found["valid"]
    fields = {name: getattr(mine.prove("plan"), name) for name in holdfast.Proof.__struct_fields__}
    fields["signatures"] = other.prove("plan").signatures
    assert not check(holdfast.Proof(**fields).to_bytes())["valid"]
    other_place.close()


def test_without_a_pin_it_says_so(place: Place) -> None:
    store = place.open()
    data = fill(store).prove("plan").to_bytes()
    assert "on trust" in check(data)["told"]
    assert "(pinned)" in check(data, pin=public_of(store))["told"]


HOSTILE = [
    b"",
    b"\xc0",
    b"\x99" * 5000,
    b"\x91" * 100_000,
    b"\x81" * 100_000,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\x81\x90\x01",
    b"\xc1",
    b"\xd9\x02\xff\xff",
]


@pytest.mark.parametrize("kind", [b"holdfast-proof/1\0", b"holdfast-chain/1\0"])
@pytest.mark.parametrize("body", HOSTILE)
def test_hostile_files_get_a_verdict(kind: bytes, body: bytes) -> None:
    assert not check(kind + body)["valid"]


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_get_a_verdict(data: bytes) -> None:
    for kind in (b"", b"holdfast-proof/1\0", b"holdfast-chain/1\0", b"holdfast-witness1:"):
        assert not check(kind + data)["valid"]


def test_what_cannot_be_proven_is_refused(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("small", 1)
    with pytest.raises(CheckpointNotFoundError, match="make one"):
        state.prove("small")
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint"):
        state.prove("small", at=1)
    state.set("large", "x" * (1 << 20))
    state.set("just so", "x" * ((1 << 20) - 4096))  # chunks have headers
    state.checkpoint("safe")
    with pytest.raises(LimitExceededError, match="under a key of its own"):
        state.prove("large")
    assert check(state.prove("just so").to_bytes())["valid"]
    with pytest.raises(InvalidInputError, match="no proof"):
        holdfast.Proof.from_bytes(b"holdfast-proof/1\0nonsense")


def test_without_a_signature_nothing_is_proven(tmp_path: Path) -> None:
    url, signer = f"sqlite:{tmp_path / 'a.db'}", tmp_path / "signer"
    with sync.open(url, signer=f"file:{signer}") as store:
        store.agent("a").set("k", 1)
    with sync.open(url) as store:
        store.agent("a").checkpoint("unsigned")
        with pytest.raises(InvalidInputError, match="not signed"):
            store.agent("a").prove("k")


def test_what_a_proof_reveals(place: Place) -> None:
    """Names of neighbours and their small values; nothing of long values, and no key."""
    store = place.open()
    state = store.agent("a")
    for number in range(200):
        state.set(f"small/{number}", f"small secret {number}")
        state.set(f"small/{number}/long", "long secret " * 20)
    state.set("small/7/mine", "mine")
    state.checkpoint("safe")
    proof = state.prove("small/7/mine")
    data = proof.to_bytes()
    assert 1 <= len(proof.reveals) < 150  # said plainly in docs/proofs.md
    assert set(proof.reveals) < set(state.keys())
    for number in range(200):
        shown = f"small secret {number}".encode() + b"\xc4" in data
        assert not shown or f"small/{number}" in proof.reveals
    assert b"long secret" not in data
    if place.sealed:
        ring = store._core.ring
        assert ring is not None
        keys = ring.scope_keys(store._core.ledger(state.scope).id)
        assert keys is not None
        assert keys.commitment not in data


@pytest.mark.parametrize("there", [True, False])
def test_a_sensitive_neighbour_that_a_proof_shows_is_read(place: Place, there: bool) -> None:
    """Gates are told of it, and may refuse; not of what only a commitment stands for."""
    store = place.open()
    state = store.agent("a")
    with state.change() as change:
        for number in range(100, 160):
            change.set(f"k/{number}", f"short secret {number}", class_="sensitive")
            change.set(f"k/{number}/long", "long secret " * 20, class_="sensitive")
            change.set(f"k/{number}/open", "for all")
    state.checkpoint("safe")
    told: list[str] = []
    refused = 0

    class Gate(holdfast.Gate):
        refuses = False

        def reading(self, reading: holdfast.GateReading) -> None:
            told.extend(reading.keys)
            if self.refuses:
                raise GateRefusedError("nobody reads secrets at night")

    gate = Gate()
    store.add_gate(gate)
    for number in range(100, 160):
        key, gate.refuses = f"k/{number}/open" if there else f"k/{number}/not there", False
        told.clear()
        data = state.prove(key).to_bytes()
        assert b"long secret" not in data
        shown = [f"k/{n}" for n in range(100, 160) if f"short secret {n}".encode() in data]
        assert sorted(told) == shown
        if shown:  # where a node of the index ends is left to chance
            gate.refuses, refused = True, refused + 1
            with pytest.raises(GateRefusedError, match="at night"):
                state.prove(key)
    assert refused


def test_a_proof_is_saved_and_loaded(place: Place, tmp_path: Path) -> None:
    state = fill(place.open())
    proof = state.prove("plan")
    assert len(proof.to_bytes()) < 4096
    proof.save(tmp_path / "plan.proof")
    loaded = holdfast.Proof.load(tmp_path / "plan.proof")
    assert loaded == proof
    assert (loaded.key, loaded.sequence, loaded.absent) == ("plan", 42, False)
    assert [path.name for path in tmp_path.glob(".plan*")] == []
    with pytest.raises(InvalidInputError, match="cannot be written"):
        proof.save(tmp_path / "no folder" / "plan.proof")
    with pytest.raises(InvalidInputError, match="cannot read"):
        holdfast.Proof.load(tmp_path / "absent")


def test_a_state_that_is_not_the_signed_one_is_not_proven(place: Place) -> None:
    store = place.open()
    state = fill(store)
    view = state._handle.history.points.view("main", 42)
    view.rebase(view.ledger.trees.empty, {})
    with pytest.raises(StateIntegrityError, match="another state"):
        state.prove("plan")


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=4), st.integers(-(2**60), 2**60), max_size=150
    )
)
@settings(max_examples=15, deadline=None)
def test_proofs_agree_with_a_model(model: dict[str, int]) -> None:
    with sync.open("memory:") as store:
        state = store.agent("a")
        with state.change() as change:
            for key, value in model.items():
                change.set(key, value)
            change.set("x", 0)
        state.checkpoint("all")
        for key in [*list(model)[:10], "a", "bb", "ccc", "", "abcabc"]:
            if key:
                found = check(state.prove(key).to_bytes())
                assert found["valid"]
                assert found.get("value") == model.get(key)


# ---- chains and witnesses ------------------------------------------------------------------------


def exported(state: sync.State, path: Path, **more: Any) -> bytes:
    assert state.export_chain(path, **more) > 0
    return path.read_bytes()


def test_a_chain_is_checked_without_a_key(place: Place, tmp_path: Path) -> None:
    store = place.open()
    state = fill(store)
    state.set("later", 1)
    data = exported(state, tmp_path / "a.chain")
    found = check(data, pin=public_of(store))
    assert found["valid"], found["told"]
    assert (found["first"], found["last"], found["vouched"]) == (1, 43, 42)
    assert found["head"] == state.log(limit=1)[0].hash
    assert b"ship" not in data
    assert b"agent" not in data
    for position in range(0, len(data), 7):
        changed = bytearray(data)
        changed[position] ^= 1
        assert not check(bytes(changed))["valid"], position
    for position in range(30, 41 * 90, 37):  # before the newest checkpoint
        changed = bytearray(data)
        changed[position] ^= 1
        assert not check(summed(bytes(changed)))["valid"], position
    assert not check(data[:-40])["valid"]


def test_a_chain_of_a_scope_made_again_begins_behind(place: Place, tmp_path: Path) -> None:
    store = place.open()
    state = fill(store)
    store.delete(state)
    state = store.agent("a")
    state.set("k", 1)
    state.checkpoint("again")
    found = check(exported(state, tmp_path / "a.chain"))
    assert found["valid"], found["told"]
    assert found["first"] == 44


def test_a_proof_and_a_witness_against_a_chain(place: Place, tmp_path: Path) -> None:
    store = place.open()
    state = fill(store)
    store.agent("b").set("k", 1)
    witness = store.witness().encode()
    proof = state.prove("plan").to_bytes()
    state.set("later", 1)
    chain = check(exported(state, tmp_path / "a.chain", feed=True))
    assert chain["valid"], chain["told"]
    assert "chain has this checkpoint" in check(proof, chain)["told"]
    assert "entries up to 42" in check(witness, chain)["told"]
    store.agent("b").set("k", 2)
    told = check(store.witness().encode(), chain)["told"]
    assert told == "the chain ends before what it saw: it is older, or put back"
    lone = check(exported(state, tmp_path / "b.chain"))
    assert "exported with its feed" in check(witness, lone)["told"]
    for chains in ((chain, lone), (lone, chain)):  # one of them is enough
        assert "entries up to 42" in check(witness, *chains)["told"]
    assert not check(store.witness().encode(), lone, chain)["valid"]
    state.checkpoint("newer")
    assert "another there, or none" in check(state.prove("plan").to_bytes(), chain)["told"]
    store.agent("b").checkpoint("of another scope")
    other = check(store.agent("b").prove("k").to_bytes(), chain)
    assert other["valid"]
    assert "the chain is of another timeline" in other["told"]
    for position in range(len(witness)):
        changed = bytearray(witness)
        changed[position] ^= 1
        assert not check(bytes(changed), chain)["valid"]


def test_a_store_that_was_put_back_contradicts_its_witness(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    state = fill(place.open())
    place.close()
    copies = {path: path.read_bytes() for path in place.path.parent.iterdir()}
    store = place.open()
    store.agent("a").set("revoked", True)
    witness = store.witness().encode()
    place.close()
    for path in place.path.parent.iterdir():
        path.unlink()
    for path, content in copies.items():
        path.write_bytes(content)
    state = place.open().agent("a")
    state.set("revoked", False)
    state.checkpoint("all is well")
    chain = check(exported(state, tmp_path / "a.chain", feed=True))
    assert chain["valid"]
    found = check(witness, chain)
    assert not found["valid"]
    assert "ends before what it saw" in found["told"] or "another history" in found["told"]
    place.close()


# ---- the program ---------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The file alone, in a Python that finds neither the store nor this folder."""
    command = [sys.executable, "-I", str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def test_the_program_alone(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state = fill(store)
    good, bad = tmp_path / "good", tmp_path / "bad"
    state.prove("plan").save(good)
    proof = good.read_bytes()
    bad.write_bytes(proof[:-1] + bytes([proof[-1] ^ 1]))
    done = run("--pin", public_of(store), str(good))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("valid: ")
    assert len(done.stdout.splitlines()) == 1
    done = run(str(good), str(bad), "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert [one["valid"] for one in told] == [True, False]
    assert told[0]["value"]["goal"] == "ship"
    for arguments in (["absent"], ["--pin", "no", str(good)], ["--require", "2", str(good)], []):
        assert run(*arguments).returncode == 2
    place.close()


def test_the_program_is_one_short_file_of_its_own() -> None:
    source = PROGRAM.read_text()
    assert len(source.splitlines()) <= 410
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"cryptography"}


def test_the_async_face(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            state = store.agent("a")
            await state.set("k", 1)
            await state.checkpoint("safe")
            assert check((await state.prove("k")).to_bytes())["value"] == 1
            assert await state.export_chain(tmp_path / "a.chain", feed=True) == 2
            assert check((tmp_path / "a.chain").read_bytes())["valid"]

    asyncio.run(main())


@pytest.mark.parametrize("pin", ["", "00", "00" * 31, "00" * 34, "00" * 64])
def test_pin_that_no_public_key_can_be_is_bad_usage(
    place: Place, tmp_path: Path, pin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(place.open()).prove("plan").save(tmp_path / "proof")
    with pytest.raises(SystemExit) as caught:
        holdfast_verify.main([str(tmp_path / "proof"), "--pin", pin])
    assert caught.value.code == 2
    assert "64 or 66 digits" in capsys.readouterr().err
