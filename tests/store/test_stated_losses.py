"""Rows of the past that are damaged for good: stated once, they are known, and nothing else is."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from store_kit import Place, rows_of

from holdfast import sync
from holdfast.errors import InvalidInputError
from holdfast.seal.signer import Signer
from holdfast.storage.contract import Batch
from holdfast.store.inner import STATED, core_of, handle_of, state_losses
from holdfast.store.names import rowkinds
from holdfast.store.proof.verify_report import Report

NEWEST = {"k0": 0, "k1": 1, "k2": 2, "k3": 3, "long": "short"}


def filled(place: Place) -> None:
    """A past with long values, checkpoints, a restore and a fork; the newest state needs none."""
    with place.open() as store:
        state = store.agent("a")
        for number in range(12):
            with state.change(id=f"c{number}", correlation="run") as change:
                change.set(f"k{number % 4}", f"{number} " * 300)
                change.set("long", [f"{number} {item} " * 20 for item in range(60)])
            if number % 3 == 0:
                state.checkpoint(f"cp{number}")
        state.restore("cp6")
        state.fork("trial", at="cp3").set("z", 1)
        for number in range(4):
            state.set(f"k{number}", number)
        state.set("long", "short")
        state.checkpoint("end")


def past_rows(place: Place) -> list[bytes]:
    """Rows that the newest state of main does not need, for it was saved and changed since."""
    found = [key for kind in (b"E", b"V") for key, _ in rows_of(place.storage(), kind)]
    return [key for key in found if rowkinds.sequence_of(key) < 18 and not rowkinds.line_of(key)]


def spoil(place: Place, key: bytes, how: str) -> None:
    storage = place.storage()
    row = bytearray(storage.get([key])[0] or b"")
    row[{"body": -3, "envelope": 25, "gone": 0}[how]] ^= 8
    storage.commit(Batch(drops=[key]))
    if how != "gone":
        storage.commit(Batch(puts=[(key, bytes(row))]))


def state_all(store: sync.Store, report: Report) -> list[str]:
    assert all(one.kind in STATED for one in report.findings)
    rows = [(one.kind, bytes.fromhex(one.row)) for one in report.findings]
    return state_losses(handle_of(store.agent("a")), rows, "no copy has it")


@pytest.mark.parametrize("how", ["body", "envelope", "gone"])
def test_every_row_of_the_past(place: Place, how: str) -> None:
    filled(place)
    for number in range(0, len(past_rows(place)), 6):
        folder = place.folder / f"{how}{number}"
        folder.mkdir()
        other = Place(place.engine, folder, sealed=place.sealed)
        filled(other)
        key = past_rows(other)[number]
        spoil(other, key, how)
        store = other.open()
        found = store.verify()
        assert found.exit_code == 1
        state_all(store, found)
        known = other.open().verify()
        assert (known.exit_code, known.findings) == (0, [])
        assert len(known.losses) == len(found.findings)
        assert dict(store.agent("a").items()) == NEWEST
        if rowkinds.sequence_of(key) > 2:  # states before the damage stay
            assert store.agent("a").at(2).get("k0") == "0 " * 300
        store.agent("a").prune(20)
        again = other.open().verify()
        assert (again.exit_code, again.findings) == (0, [])
        assert dict(other.open().agent("a").items()) == NEWEST
        other.close()


def test_nothing_else_is_hidden_by_it(place: Place) -> None:
    """Neither another row, nor another change of the same row, nor the entry behind a gap."""
    filled(place)
    lost, behind, other = (
        rowkinds.entry(key[:9], at) for key in past_rows(place)[:1] for at in (5, 6, 9)
    )
    spoil(place, lost, "gone")
    store = place.open()
    state_all(store, store.verify())
    assert place.open().verify().ok
    before = [(key, place.storage().get([key])[0]) for key in (behind, other)]
    for key, row in before:
        spoil(place, key, "body")
        found = place.open().verify().findings
        assert any(one.row == key.hex() and one.kind == "damage" for one in found)
        place.storage().commit(Batch(drops=[key]))
        place.storage().commit(Batch(puts=[(key, row or b"")]))
    assert place.open().verify().ok
    place.storage().commit(Batch(puts=[(lost, b"\1" * 200)]))  # something else in its place
    assert not place.open().verify().ok


def test_a_row_that_is_changed_again_is_found_again(place: Place) -> None:
    filled(place)
    key = next(key for key in past_rows(place) if key[:1] == b"V")
    spoil(place, key, "body")
    store = place.open()
    state_all(store, store.verify())
    assert place.open().verify().ok
    spoil(place, key, "envelope")
    assert key.hex() in {one.row for one in place.open().verify().findings}


def test_only_the_signer_can_state_it(place: Place) -> None:
    filled(place)
    spoil(place, past_rows(place)[3], "body")
    store = place.open()
    core = core_of(store)
    mine, found = core.signer, store.verify()
    core.signer = None
    with pytest.raises(InvalidInputError, match="signer is not here"):
        state_all(store, found)
    core.signer = Signer(Ed25519PrivateKey.generate())
    state_all(store, found)
    core.signer = mine
    assert {one.row for one in found.findings} <= {
        one.row for one in place.open().verify().findings
    }
