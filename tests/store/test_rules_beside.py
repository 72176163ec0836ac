"""What is declared of a scope, beside merge, revert, proofs and reads in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_kit import Place

from holdfast import Classed, Ephemeral, Lookup, Sticky, errors
from holdfast.store.history import revert
from holdfast.store.journal import entry
from holdfast.store.journal.declared import OWN, Declaration


def test_a_merge_leaves_ephemeral_keys_alone_and_names_them(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("tmp/old", 1)
    trial = state.fork("trial")
    state.delete("tmp/old")
    state.declare(Ephemeral("tmp/"))
    state.set("tmp/x", "ours")
    trial.set("tmp/x", "theirs")
    trial.set("tmp/old", 2)
    trial.set("plan", "theirs")
    assert state.merge(trial, dry_run=True).left == ("tmp/old", "tmp/x")
    done = state.merge(trial)
    assert (done.keys, done.left, done.conflicts) == (["plan"], ("tmp/old", "tmp/x"), [])
    assert dict(state.items()) == {"plan": "theirs", "tmp/x": "ours"}
    assert trial.get("tmp/x") == "theirs"
    assert store.verify().findings == []


def test_a_revert_leaves_ephemeral_keys_alone_and_names_them(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("tmp/x", "stored")
    with store.acting("ann"):
        state.delete("tmp/x")
        state.set("plan", 1)
    state.declare(Ephemeral("tmp/"))
    state.set("tmp/x", "held")
    done = state.revert(actor="ann")
    assert (done.done, [one.key for one in done.left]) == (["plan"], ["tmp/x"])
    assert "ephemeral" in done.left[0].why
    assert dict(state.items()) == {"tmp/x": "held"}
    assert place.open().agent("a").keys() == []


def test_a_revert_leaves_declarations_and_lookups_alone(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    lookup = Lookup("by", "tasks/", "status")
    with store.acting("ann"):
        state.set("tasks/1", {"status": "open"})
        state.declare(lookup, Sticky("effects/"))
        state.set("tasks/2", {"status": "open"})
    done = state.revert(actor="ann")
    assert done.done == ["tasks/1", "tasks/2"]
    keys = [one.key for one in done.left]
    assert keys == ["$declared/lookup/by", "$declared/sticky/effects/*", ""]
    assert "undeclare" in done.left[0].why
    assert "lookup" in done.left[-1].why
    assert state.declared() == [lookup, Sticky("effects/")]
    assert state.find("by", status="open").items == []
    state.set("tasks/3", {"status": "open"})
    assert state.find("by", status="open").items == ["tasks/3"]
    # Nor does a declaration that was taken back return, and hide or need what is stored since.
    state.undeclare(Sticky("effects/"))
    taken_back = state.log(limit=1)[0]
    assert state.revert(entries=[taken_back]).done == []
    assert state.declared() == [lookup]
    assert store.verify().findings == []


def test_a_revert_says_of_every_operation_what_becomes_of_it() -> None:
    known = {*entry.KEYED, *revert._STAYS}
    assert known == set(entry.NAMES)


def test_a_revert_of_a_new_data_key(place: Place) -> None:
    if not place.sealed:
        pytest.skip("only encrypted stores have data keys")
    store = place.open()
    state = store.agent("a")
    state.set("k", 1)
    with store.acting("ops"):
        store.rotate("agent:a")
        state.set("k", 2)
    done = state.revert(actor="ops")
    assert done.done == ["k"]
    assert "data key stays" in done.left[0].why
    assert state.get("k") == 1


def test_a_revert_of_an_expiry(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("k", 1)
    with store.acting("ops"):
        state.expire("k", 60)
    assert state.revert(actor="ops").done == ["k"]
    assert state.get("k") == 1
    assert state.item("k").expires is None


@pytest.mark.parametrize("prefix", ["$", "$t", "$lookup", *OWN, "$terms/by/", "$declared/sticky/"])
@pytest.mark.parametrize("kind", [Sticky, Ephemeral, Classed, Lookup])
def test_nothing_is_declared_of_what_rules_and_lookups_keep(
    kind: type[Declaration], prefix: str
) -> None:
    more = {Classed: (prefix, "trusted"), Lookup: ("by", prefix, "status")}
    with pytest.raises(errors.InvalidInputError, match=r"\$declared/, \$lookup/, \$terms/ alone"):
        kind(*more.get(kind, (prefix,)))  # type: ignore[arg-type]


def test_what_other_parts_own_can_be_declared_of(place: Place) -> None:
    state = place.open().agent("a")
    state.declare(Sticky("$langgraph/"))
    assert state.declared() == [Sticky("$langgraph/")]


def test_ephemeral_bytes_are_read_in_pieces(place: Place, tmp_path: Path) -> None:
    state = place.open().agent("a")
    state.declare(Ephemeral("tmp/"))
    data = bytes(range(256)) * 3000
    with state.open_write("tmp/x") as file:
        file.write(data)
    with state.open_read("tmp/x") as file:
        assert file.read() == data
    assert state.read_range("tmp/x", 5, 9) == data[5:9]
    assert state.get_file("tmp/x", tmp_path / "x") == len(data)
    assert (tmp_path / "x").read_bytes() == data


def test_an_ephemeral_key_has_no_history_and_no_proof(place: Place) -> None:
    state = place.open().agent("a")
    state.set("tmp/x", b"stored")
    state.checkpoint("before")
    state.delete("tmp/x")
    state.declare(Ephemeral("tmp/"))
    state.restore("before")  # the declaration stays, and hides what came back
    state.checkpoint("after")
    for held in (False, True):
        if held:
            state.set("tmp/x", b"held")
            assert state.open_read("tmp/x").read() == b"held"
        else:
            with pytest.raises(errors.MissingError):
                state.open_read("tmp/x")
        with pytest.raises(errors.InvalidInputError, match=r"ephemeral.*has no proof"):
            state.prove("tmp/x")
    assert state.prove("tmp/x", at="before") is not None
