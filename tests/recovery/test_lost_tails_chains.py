"""A chain exported after a loss that its timeline tells of: nothing but the truth gets through."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_kit import Place, put_row, rows_of

import holdfast_verify
from holdfast import sync

Told = list[Any]
"""[sequence, body, opening] of an entry that tells of a loss."""
_OTHER = "the feed names another entry"


def work(state: sync.State, *values: str) -> None:
    for value in values:
        state.set("paid", value)


def lose(place: Place, scope: str, count: int) -> sync.Store:
    """Lose the newest entries of an agent, and recover it."""
    line = place.open().agent(scope)._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    for key, _ in [one for one in rows_of(storage, b"E") if one[0].startswith(line)][-count:]:
        put_row(storage, key, None)
    storage.close()
    store = place.open()
    assert sync.recovery.Recovery(store).recover(f"agent:{scope}", "agent_crash").lost != "nothing"
    return store


def exported(store: sync.Store, path: Path, scope: str = "7") -> bytes:
    store.agent(scope).export_chain(path, feed=True)
    return path.read_bytes()


def check(data: bytes, *chains: Any) -> dict[str, Any]:
    options = argparse.Namespace(pin=set(), require=1)
    return holdfast_verify.verdict("file", data, options, list(chains))


def edited(data: bytes, edit: Callable[[Told], Told | None]) -> bytes:
    """A chain whose entry that tells of a loss was changed; None takes it out."""
    kind = holdfast_verify.CHAIN
    body, parts = data[len(kind) : -32], list[bytes]()
    reader = holdfast_verify.Reader(body)

    def take() -> Any:
        start = reader.at
        found = reader.read()
        parts.append(body[start : reader.at])
        return found

    for _ in range(take()[4]):
        take()
    for _ in range(take()):
        take()
    take()  # the anchor
    found = take()
    assert type(found) is list
    changed = edit(found)
    parts[-1] = b"" if changed is None else msgspec.msgpack.encode(changed)
    whole = kind + b"".join(parts) + body[reader.at :]
    return whole + hashlib.sha256(whole).digest()


def told(data: bytes) -> Told:
    found: list[Told] = []
    edited(data, lambda one: found.append(one) or one)  # type: ignore[func-returns-value]
    return found[0]


@pytest.fixture
def lost(place: Place) -> sync.Store:
    """A store whose agent lost two entries, was recovered and went on, with a checkpoint."""
    store = place.open()
    store.agent("7").set("k", 1)
    store.agent("7").checkpoint("good")
    work(store.agent("7"), "a", "b", "c")
    store = lose(place, "7", 2)
    work(store.agent("7"), "again", "more")
    store.agent("7").checkpoint("after")
    return store


def test_a_chain_that_tells_of_its_loss_is_valid(
    place: Place, lost: sync.Store, tmp_path: Path
) -> None:
    assert lost.verify().ok
    chain = check(exported(lost, tmp_path / "a.chain"))
    assert chain["valid"], chain["told"]
    assert "4 to 5 were lost once, as the chain tells" in chain["told"]
    for one in (lost.witness().encode(), lost.agent("7").prove("k").to_bytes()):
        found = check(one, chain)
        assert found["valid"], found["told"]
    assert f"entries up to {chain['last']}" in check(lost.witness().encode(), chain)["told"]


def test_a_witness_of_before_the_loss_saw_only_what_is_left_of_it(
    place: Place, tmp_path: Path
) -> None:
    store = place.open()
    store.agent("7").set("k", 1)
    work(store.agent("7"), "a", "b")
    witness = store.witness().encode()
    chain = check(exported(lose(place, "7", 1), tmp_path / "a.chain"))
    assert "it saw the chain's entries up to 2" in check(witness, chain)["told"]


@pytest.mark.parametrize("sealed", [False, True])
def test_what_tells_of_a_loss_is_bound_by_the_chain(tmp_path: Path, sealed: bool) -> None:
    place = Place("sqlite", tmp_path, sealed=sealed)
    with place.open() as store:
        for scope in ("7", "8"):
            work(store.agent(scope), "a", "b", "c")
    lose(place, "8", 1)
    store = lose(place, "7", 2)
    store.agent("7").checkpoint("after")
    older = exported(store, tmp_path / "older.chain")
    first, moved = told(older), told(exported(store, tmp_path / "8.chain", "8"))
    work(store.agent("7"), "d", "e")
    store = lose(place, "7", 1)
    data = exported(store, tmp_path / "a.chain")
    assert check(older)["valid"]
    assert check(data)["valid"]
    newest = told(data)
    assert newest[0] > first[0]
    checkpoint = store.agent("7").prove("paid")
    refused = {
        "none": (lambda _: None, _OTHER),
        "older": (lambda _: first, _OTHER),
        "of another scope": (lambda _: moved, "a part is not its own"),
        "moved": (lambda one: [one[0] + 1, *one[1:]], "a part is not its own"),
        "before the first": (lambda one: [0, *one[1:]], "a part is not its own"),
        "behind the last": (lambda one: [1 << 30, *one[1:]], "cannot be read"),
        "something else": (lambda _: [checkpoint.sequence, *checkpoint.body], "another form"),
    }
    for edit, why in refused.values():
        found = check(edited(data, edit))
        assert not found["valid"]
        assert why in found["told"]
    for at in range(len(newest[1])):  # whatever else it says, and however far it reads the feed
        body = bytearray(newest[1])
        body[at] ^= 1
        forged = bytes(body)
        assert not check(edited(data, lambda one, b=forged: [one[0], b, one[2]]))["valid"]  # type: ignore[misc]
    place.close()


def test_a_loss_behind_the_last_signature_is_nobodys_word(place: Place, tmp_path: Path) -> None:
    from holdfast.store.upkeep.losses import tell

    store = place.open()
    store.agent("7").checkpoint("good")
    work(store.agent("7"), "a", "b")
    line = store.agent("7")._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    put_row(storage, [key for key, _ in rows_of(storage, b"E") if key.startswith(line)][-1], None)
    storage.close()
    store = place.open()
    assert tell(store.agent("7")._handle, "lost") is not None
    found = check(exported(store, tmp_path / "a.chain"))
    assert "no signature vouches for what it tells of a loss" in found["told"]
    store.agent("7").checkpoint("vouched")
    assert check(exported(store, tmp_path / "a.chain"))["valid"]


@pytest.mark.usefixtures("unaware")
def test_a_loss_that_nothing_tells_of_is_refused(
    place: Place, lost: sync.Store, tmp_path: Path
) -> None:
    """Also behind one that is told of."""
    line = lost.agent("7")._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    put_row(storage, [key for key, _ in rows_of(storage, b"E") if key.startswith(line)][-1], None)
    storage.close()
    store = place.open()
    store.agent("7").checkpoint("as if nothing had happened")
    found = check(exported(store, tmp_path / "a.chain"))
    assert not found["valid"]
    assert found["told"] == _OTHER
